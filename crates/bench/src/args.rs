//! The command line, turned into a checked configuration in one place.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Measures Extant against its peers: same work, same run, sides alternating.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "extant-bench",
    version,
    after_help = "Example:\n  extant-bench build --against kernel,mke2fs --runs 3 --json\n  \
                  extant-bench metadata --variant create-own,unlink --workers 1,2\n  \
                  extant-bench remote --variant first-byte,copy-out-20ms"
)]
pub(crate) struct Config {
    /// What to measure
    pub(crate) workload: WorkloadName,

    /// Peers to run beside the engine; those that do not fit the workload are refused
    /// [default: all that fit but mount, fuse2fs, which takes minutes, and the baselines]
    #[arg(long, value_delimiter = ',')]
    pub(crate) against: Option<Vec<Side>>,

    /// Run the peers alone
    #[arg(long, conflicts_with = "engine_only")]
    pub(crate) peers_only: bool,

    /// Run the engine alone, to look into it
    #[arg(long, conflicts_with = "against")]
    pub(crate) engine_only: bool,

    /// Repetitions of each side
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,

    /// Threads that work at once, several values for several measurements
    /// [default: what fits the workload]
    #[arg(long, value_delimiter = ',')]
    pub(crate) workers: Option<Vec<usize>>,

    /// Variants to run, or what the names of several begin with, up to a hyphen [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) variant: Option<Vec<String>>,

    /// One JSON object per line instead of a table
    #[arg(long)]
    pub(crate) json: bool,

    /// Folder for trees and images; a tmpfs, so that no disk is measured
    #[arg(long, default_value = "/dev/shm")]
    pub(crate) dir: PathBuf,

    /// Forms of the kernel's side, each measured on its own
    #[arg(long, value_delimiter = ',', default_value = "plain")]
    pub(crate) kernel: Vec<KernelForm>,

    /// Print lock statistics per operation of the engine (needs `--features lockstat`; counting
    /// costs time, so that the rates of such a run are not for quoting)
    #[arg(long)]
    pub(crate) locks: bool,

    /// Files of `metadata`, `smallfiles` and these of `mounted`, all workers together
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) files: u64,

    /// Appends of `fsync`, all workers together, and transactions of `mounted`
    #[arg(long, default_value_t = 16_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) operations: u64,

    /// Calls of `fallocate2` [default: 2000000] and `append64` [default: 262144], all workers
    /// together, and of a round of `live` [default: 100000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) fallocations: Option<u64>,

    /// Inodes of `bulkstat`
    #[arg(long, default_value_t = 505_000, value_parser = clap::value_parser!(u64).range(1001..=100_000_000))]
    pub(crate) inodes: u64,

    /// Have the image of `bulkstat` stay in this file, sparse, or use the one that is there from
    /// another run
    #[arg(long)]
    pub(crate) keep: Option<PathBuf>,

    /// Truncations of `orphan`, all workers together; a quarter as many where they do more
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) truncations: u64,

    /// Writes of `sparse`
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) writes: u64,

    /// Size of the file that `fill` and `fill4` write, in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub(crate) fill_mib: u64,

    /// Transfers of `overwrite`, all workers together
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) transfers: u64,

    /// Rounds of `age`, each of which writes as much as the file system holds
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,

    /// Seed of `age`
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Size of the image that workloads inside an image have, in MiB
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(64..=16_777_216))]
    pub(crate) image_mib: u64,

    /// Entries of the source tree of `build`, `sources`, `extract`, `compare` and `mounted`
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    pub(crate) entries: u64,

    /// Bytes of file content in that tree
    #[arg(long, default_value_t = 1_342_177_280)]
    pub(crate) bytes: u64,

    /// Files in the image that `remote first-byte` looks into
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..=2_000_000))]
    pub(crate) image_files: u64,

    /// Files that `remote copy-out` and `remote copy-in` copy
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    pub(crate) copied: u64,

    /// Files that peers copy, whose time is then scaled up [default: as many as --copied]
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    pub(crate) peer_copied: Option<u64>,

    /// Size of what `remote` streams and converts, in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(4..=1_048_576))]
    pub(crate) stream_mib: u64,

    /// The command that `remote`, `mounted`, `sources`, `compare` and `edit` measure [default:
    /// `extant` in the folder of this program]
    #[arg(long)]
    pub(crate) extant: Option<PathBuf>,

    /// Folder that `report` writes its results, tables and pictures to
    #[arg(long, default_value = "docs/report")]
    pub(crate) out: PathBuf,

    /// Files that `--json` printed, as of `model`, whose rows `report` draws too: of the machine
    /// and build of the others
    #[arg(long, value_delimiter = ',')]
    pub(crate) rows: Vec<PathBuf>,

    /// Parts of `report` to measure, the others stay as they are; `none` shows again what is there
    /// [default: all, in the place of what is there]
    #[arg(long, value_delimiter = ',')]
    pub(crate) part: Option<Vec<String>>,

    /// Measure each part of `report` once and at a fraction of its size, and say so on the page
    #[arg(long)]
    pub(crate) quick: bool,

    /// Take any build for `report`, say on the page that it is a draft, and leave the front page
    /// alone
    #[arg(long)]
    pub(crate) draft: bool,
}

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkloadName {
    /// Make an image from a directory
    Build,
    /// Write the files of an image into a directory
    Extract,
    /// Make images from a directory and from ten layers, beside what reading these costs
    Sources,
    /// Compare two images, make one like a directory, and list one as it is mended, by the command
    /// `extant`
    Compare,
    /// Change an image by a script of twenty lines, by the command `extant`
    Edit,
    /// Create, stat and unlink many empty files
    Metadata,
    /// Append 4 KiB to a file and make it durable, again and again
    Fsync,
    /// Reserve 8 KiB after 8 KiB of an unlinked file, cut it to nothing at 1 MiB, again and again
    Fallocate2,
    /// Let many files grow by 4 KiB at a time, all at once, with fallocate
    Append64,
    /// Write 1 KiB after each 7 KiB of a hole
    Sparse,
    /// Write a file by single KiB in random order
    Fill,
    /// Write a file by four KiB in a row, rows in random order
    Fill4,
    /// Create and remove many files of 2 KiB
    Smallfiles,
    /// Reserve single blocks anywhere in a file with 1e3 to 1e6 live preallocations
    Live,
    /// Look at every inode of a file system
    Bulkstat,
    /// Truncate files byte by byte, or block by block, or unlink them while they are open
    Orphan,
    /// Read and write 4 KiB here and there in files that are written already
    Overwrite,
    /// Write a file from start to end by 1 MiB, and read it
    Stream,
    /// Write, append and remove files of all sizes in a file system that is 70% or 95% full
    Age,
    /// Do on a mount what programs do there, by the command `extant`, beside Linux's own ext4
    Mounted,
    /// Use images behind servers, links with delays and formats, by the command `extant`
    Remote,
    /// Simulate more cores than there are, from what is measured here (needs `--features
    /// lockstat,baseline`)
    Model,
    /// List what operations of each mechanism share, and fail if it grows with workers (needs
    /// `--features lockstat`)
    Shares,
    /// All of the above but `age`, `model` and `shares`, as tables and pictures in a folder of
    /// documents
    Report,
}

/// How the kernel's side is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelForm {
    /// `mke2fs -t ext4`, loop device through the page cache
    Plain,
    /// `mke2fs -t ext4 -O orphan_file`, loop device through the page cache
    OrphanFile,
    /// `mke2fs -t ext4`, the loop device with direct I/O
    DirectIo,
}

impl KernelForm {
    /// How the form is named in options.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "mke2fs -t ext4",
            Self::OrphanFile => "mke2fs -t ext4 -O orphan_file",
            Self::DirectIo => "mke2fs -t ext4, losetup --direct-io=on",
        }
    }
}

/// What does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// Extant, in this process
    Engine,
    /// The kernel's ext4 on a loop device
    Kernel,
    /// Extant mounted through FUSE
    Mount,
    /// Extant mounted through FUSE, with requests through `/dev/fuse`
    Device,
    /// `fuse2fs` of e2fsprogs
    Fuse2fs,
    /// The engine with the unimproved forms of its mechanisms (needs `--features baseline`)
    Baseline,
    /// The engine with the unimproved forms, which keeps at most 512 preallocations of a file
    #[value(name = "baseline-512")]
    BaselineCapped,
    /// `extant check`
    Check,
    /// `mke2fs -d`
    Mke2fs,
    /// `genext2fs`
    Genext2fs,
    /// `tar -c` into a pipe
    Tar,
    /// The command with one archive in the place of layers
    OneTar,
    /// `openssl dgst` of the layers alone
    Openssl,
    /// `debugfs rdump`
    Debugfs,
    /// The backing file without a file system
    Raw,
    /// Memory
    Memcpy,
    /// `nbdfuse`, which shows an export as a file
    Nbdfuse,
    /// `guestfish` of libguestfs
    Guestfish,
    /// `qemu-nbd`, the kernel's driver nbd and its ext4
    QemuNbd,
    /// `nbdcopy`
    Nbdcopy,
    /// `qemu-img convert`
    QemuImg,
    /// `img2simg`
    Img2simg,
    /// `simg2img`
    Simg2img,
}

impl Side {
    /// The name used in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Kernel => "kernel",
            Self::Mount => "mount",
            Self::Device => "device",
            Self::Fuse2fs => "fuse2fs",
            Self::Baseline => "baseline",
            Self::BaselineCapped => "baseline-512",
            Self::Check => "check",
            Self::Mke2fs => "mke2fs",
            Self::Genext2fs => "genext2fs",
            Self::Tar => "tar",
            Self::OneTar => "one-tar",
            Self::Openssl => "openssl",
            Self::Debugfs => "debugfs",
            Self::Raw => "raw",
            Self::Memcpy => "memcpy",
            Self::Nbdfuse => "nbdfuse",
            Self::Guestfish => "guestfish",
            Self::QemuNbd => "qemu-nbd",
            Self::Nbdcopy => "nbdcopy",
            Self::QemuImg => "qemu-img",
            Self::Img2simg => "img2simg",
            Self::Simg2img => "simg2img",
        }
    }
}

/// Reads the command line; usage errors end the process with code 2.
pub(crate) fn parse() -> Config {
    Config::parse()
}
