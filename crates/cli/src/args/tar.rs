//! The command line of `extant tar`.

use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::path::PathBuf;

/// Write a tar archive of what is in an image, or put one into an image
#[derive(Debug, ClapArgs)]
#[command(override_usage = "\
extant tar [OPTIONS] <IMAGE[:/path]>...
       extant tar -x [OPTIONS] [-f ARCHIVE] <IMAGE[:/path]>")]
#[command(after_help = "\
Examples:
  extant tar rootfs.img > rootfs.tar
  extant tar rootfs.img:/etc -o etc.tar
  extant tar rootfs.img | docker import - rootfs
  extant tar --mend --partial bad.img -o saved.tar
  extant tar --exclude '*.o' -f parts.tar.zst 'rootfs.img:/[eu]*'
  extant tar -x -f parts.tar.zst rootfs.img:/srv
  tar -c ./tree | extant tar -x rootfs.img:/srv

The archive is in the pax format, with nanosecond times, extended attributes (SCHILY.xattr), \
access control lists (SCHILY.acl), holes (GNU.sparse 1.0), hard links and device nodes. The same \
image gives the same bytes. What is in one directory is named from there on; of several paths, all \
names are from the root of the image.

What cannot be read is named, with its bytes and the reason, and left out. The others are archived, \
and the exit code is 1.

With -x, an archive, plain or compressed, is put into a directory of the image that exists, with \
owners, permissions, times, attributes, links and holes. It is read whole before anything is \
written. A directory joins one that is there; everything else takes the place of what had its name. \
Unlike `extant apply`, it knows no whiteouts and no container images: names are names.")]
pub(crate) struct Tar {
    /// The directories and files to write; with -x, the directory to put the archive into
    #[arg(required = true, value_name = "IMAGE[:/path]")]
    pub(crate) paths: Vec<OsString>,
    /// Write an archive: what is done without -x
    #[arg(short, long, conflicts_with = "extract")]
    pub(crate) create: bool,
    /// Put an archive into the image
    #[arg(short = 'x', long)]
    pub(crate) extract: bool,
    /// The archive: a file, or `-` for standard output or input, as without this option. Its
    /// extension (.tar.gz, .tar.zst, .tar.xz) says how it is compressed, where no option does
    #[arg(short, long, value_name = "ARCHIVE")]
    pub(crate) file: Option<PathBuf>,
    /// Write the archive to this file: -f by another name
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with_all = ["file", "extract"]
    )]
    pub(crate) output: Option<PathBuf>,
    /// Leave out what matches (`*.o`, `/var/cache`, `**/tmp/`), as for `extant mkfs`; may be given
    /// more than once
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<OsString>,
    /// Compress with gzip
    #[arg(short = 'z', long, conflicts_with_all = ["zstd", "xz"])]
    pub(crate) gzip: bool,
    /// Compress with zstd
    #[arg(long, conflicts_with = "xz")]
    pub(crate) zstd: bool,
    /// Compress with xz
    #[arg(short = 'J', long)]
    pub(crate) xz: bool,
    /// Tell the name of each member, on standard error if the archive goes to standard output; with
    /// -x, what changes
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Compare files that fs-verity protects with their hashes first; one that differs ends the
    /// archive
    #[arg(long, conflicts_with = "extract")]
    pub(crate) verify: bool,
    /// Archive also files of which a part cannot be read, with zeros there; they are named
    #[arg(long, conflicts_with = "extract")]
    pub(crate) partial: bool,
    /// Say what was archived and what was not as one JSON object; the archive goes to a file (-o)
    #[arg(long, conflicts_with_all = ["extract", "verbose"])]
    pub(crate) json: bool,
}
