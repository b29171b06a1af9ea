//! Arguments of `log`, `deleted` and `recover`.

use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::path::PathBuf;

/// Show the journal: its transactions, and what the blocks in them are
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant log rootfs.img
  extant log rootfs.img --brief
  extant log rootfs.img --block 1
  extant log --json rootfs.img | jq -r 'select(.tid).tid'

Every transaction is shown of which the ring still has something: those that wait to be written \
home, which the next mount replays, and old ones behind them, which the next transactions replace. \
What a block is used for is said as of now; what nothing owns any more is named by its content. \
Nothing is written.

With --json, the journal itself is the first object, each transaction is one, and so is each record \
of fast commits.")]
pub(crate) struct Log {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Only what is about this block of the file system
    #[arg(long, value_name = "N")]
    pub(crate) block: Option<u64>,
    /// Only this transaction
    #[arg(long, value_name = "N")]
    pub(crate) tid: Option<u32>,
    /// Only a line for each transaction
    #[arg(long, conflicts_with = "json")]
    pub(crate) brief: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// List what was deleted, and how sure its content is
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant rm rootfs.img:/etc/fstab
  extant deleted rootfs.img
  extant deleted rootfs.img:/etc
  extant deleted --json rootfs.img | jq -r 'select(.verdict == \"whole\").path'

Linux empties the map of a file that it deletes. What is found comes from older copies in the \
journal, from entries left in directories, and from inodes. The words for how sure the content is:
  whole\tThe log proves that nothing used the blocks since
  likely\tAll blocks are free, and nothing is known to have used them since
  partly\tSome blocks were given away, or a part of the map is not known
  lost\tAll blocks were given away
  unmapped\tNothing tells where the content was
  name-only\tThere is a name, and nothing else

A name with a question mark may have belonged to another file of the same inode number.")]
pub(crate) struct Deleted {
    /// The image, or a directory in it
    #[arg(value_name = "IMAGE[:/dir]")]
    pub(crate) path: OsString,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Bring deleted files back, to a directory of the host
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant rm rootfs.img:/etc/fstab
  extant recover rootfs.img /etc/fstab -d ./found
  extant recover rootfs.img --all -d ./all-of-it

The image is only read. A file goes to its path below DIR, or to inode-NUMBER-GENERATION where its \
name is not known. What exists is never overwritten. Files, directories and symbolic links are \
made, with the permissions they had and the time of their last change; set-ID bits, owners, \
devices and pipes are not.

What is whole or likely is brought back (`extant deleted` explains the words), with --sure only what \
is whole. With --partial, what is partly there is written to NAME.partial, with zeros in the place of \
blocks that were given away.")]
pub(crate) struct Recover {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: OsString,
    /// Numbers of inodes, or paths; of a directory, all that was deleted in it
    #[arg(value_name = "INODE|PATH", required_unless_present = "all")]
    pub(crate) what: Vec<OsString>,
    /// All that was deleted
    #[arg(long, conflicts_with = "what")]
    pub(crate) all: bool,
    /// The directory for what is brought back; it is made if it does not exist
    #[arg(short, long = "dir", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only what is proven to be whole
    #[arg(long, conflicts_with = "partial")]
    pub(crate) sure: bool,
    /// Also what is there in part
    #[arg(long)]
    pub(crate) partial: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}
