//! The command line of `extant convert`.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Copy a disk from one format of images to another
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant convert rootfs.img rootfs.qcow2
  extant convert --json rootfs.img disk.vhd | jq .file_size
  extant convert --force rootfs.img system.simg --crc
  extant convert disk.img part.img --partition 2
  extant convert --image-format raw disk.img disk.qcow2
  extant convert rootfs.img rootfs.caibx --store chunks.castr

What SOURCE is, is seen from its content: raw, qcow2, VHD (fixed, dynamic), VMDK (flat), Android \
sparse, a raw image compressed with gzip, zstd or xz, or the index of one in chunks (casync, \
desync). Holes are not read, and zeros take no space. TARGET appears under its name only when it \
is complete.

The chunks of an index are in the store `default.castr` beside it, or in the directory or URL that \
EXTANT_CHUNK_STORE names.")]
pub(crate) struct Convert {
    /// The image to read
    #[arg(value_name = "SOURCE")]
    pub(crate) source: PathBuf,
    /// The image to make: a file, or a block device for a raw one
    ///
    /// Empty files, zeros and images that `extant mkfs` made are replaced. Anything else is named,
    /// and you are asked. Without a terminal it is left alone, unless --force is given.
    #[arg(value_name = "TARGET")]
    pub(crate) target: PathBuf,
    /// What the target is: raw, qcow2, vhd, vhd-fixed, simg (Android sparse), vmdk (flat, in two
    /// files) or caibx (in chunks, as casync makes them)
    ///
    /// By default the extension of its name says it (`.qcow2`, `.vhd`, `.simg`, `.vmdk`, `.caibx`),
    /// and others mean raw.
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// As --image-format: `raw` reads the bytes of the source as they are, whatever they look like
    #[arg(long, value_name = "raw")]
    pub(crate) source_format: Option<String>,
    /// Open backing files and extents outside of the source's folder as well
    ///
    /// An image may name any file as its content. Only for images that are trusted.
    #[arg(long)]
    pub(crate) outside: bool,
    /// Replace what is there, whatever it is, unless it is in use
    #[arg(short, long)]
    pub(crate) force: bool,
    /// With simg, put a checksum at the end
    #[arg(long)]
    pub(crate) crc: bool,
    /// With simg, say nothing of holes, so that what a partition held before may stay there
    #[arg(long)]
    pub(crate) holes_dont_care: bool,
    /// With caibx, put chunks into this directory, which other images may share
    ///
    /// By default it is the one that EXTANT_CHUNK_STORE names, or `default.castr` beside the
    /// target. Chunks that are there already are not written again.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// With caibx, the average size of chunks, or the smallest size, the average and the largest
    /// size
    ///
    /// By default it is 16K:64K:256K, as with casync and desync. Images share chunks if they were
    /// cut by the same sizes.
    #[arg(long, value_name = "SIZE|MIN:SIZE:MAX")]
    pub(crate) chunk_size: Option<String>,
    /// Threads; one per processor if not given
    #[arg(long, value_name = "N", value_parser = super::threads::parse_threads)]
    pub(crate) threads: Option<usize>,
    /// Say nothing about what was made
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Say what was made as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
