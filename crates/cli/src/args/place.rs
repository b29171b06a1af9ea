//! Where a file system is, and how it is opened: options of all commands.

use super::{SaidFormat, Session};
use crate::keeping::Keeping;
use crate::size;
use clap::Args as ClapArgs;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where in a file the file system is.
#[derive(Debug, Clone, Default, PartialEq, Eq, ClapArgs)]
pub(crate) struct Whereabouts {
    /// Use partition N of a whole-disk image (GPT or MBR)
    #[arg(
        long,
        global = true,
        value_name = "N",
        conflicts_with = "offset",
        help_heading = "Where the file system is"
    )]
    pub(crate) partition: Option<u32>,
    /// Use the file system that starts at this byte (K, M, G, T are powers of 1024)
    #[arg(
        long,
        global = true,
        value_name = "BYTES",
        value_parser = size::parse,
        help_heading = "Where the file system is"
    )]
    pub(crate) offset: Option<u64>,
    /// Read by a backup superblock: the number of its block, in blocks of the file system's own
    /// size, or `auto` for the first that is found
    #[arg(
        long,
        global = true,
        value_name = "BLOCK|auto",
        value_parser = SuperblockAt::from_str,
        help_heading = "Where the file system is"
    )]
    pub(crate) superblock: Option<SuperblockAt>,
    /// Do not replay a journal that was not closed: show what lies on the device
    #[arg(long, global = true, help_heading = "Where the file system is")]
    pub(crate) as_is: bool,
    /// Read as `extant repair` would leave it: what it would do is done in memory, and the image is
    /// not touched
    #[arg(
        long,
        global = true,
        conflicts_with = "as_is",
        help_heading = "Where the file system is"
    )]
    pub(crate) mend: bool,
    /// The device that holds the journal, if it is not inside; it is replayed in memory
    #[arg(
        long,
        global = true,
        value_name = "DEVICE",
        conflicts_with = "as_is",
        help_heading = "Where the file system is"
    )]
    pub(crate) journal: Option<PathBuf>,
    /// Take images for what this says, and not for what they look like: raw, qcow2, vhd, vhd-fixed,
    /// vmdk, simg, gzip, zstd, xz or caibx
    ///
    /// A guest writes what it likes to its disk, also the mark of another format. So say `raw` of a
    /// raw disk that somebody else has written to. It is about every image that the command opens,
    /// wherever it is; IMAGE=FORMAT is about this one, and may be given several times. What has no
    /// mark of the format is refused.
    #[arg(
        long,
        global = true,
        value_name = "[IMAGE=]FORMAT",
        value_parser = OsStringValueParser::new().try_map(SaidFormat::read),
        help_heading = "Where the file system is"
    )]
    pub(crate) image_format: Vec<SaidFormat>,
    /// Keep what the changed blocks of the image held in this new file, for `extant revert`
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Taking it back"
    )]
    pub(crate) undo: Option<PathBuf>,
    /// What is open already.
    #[arg(skip)]
    pub(crate) session: Option<Session>,
    /// The image whose blocks are kept.
    #[arg(skip)]
    pub(crate) keeping: Keeping,
}

/// Which superblock to read by, if not by the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuperblockAt {
    /// The first backup that is found.
    Auto,
    /// The backup in this block.
    Block(u64),
}

impl fmt::Display for SuperblockAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Block(block) => write!(f, "{block}"),
        }
    }
}

impl FromStr for SuperblockAt {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            block => block
                .parse()
                .map(Self::Block)
                .map_err(|_| "write the number of a block, or auto"),
        }
    }
}
