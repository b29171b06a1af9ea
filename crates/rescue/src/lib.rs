//! What an ext4 file system still tells of its past: the transactions in its log, the files that
//! were deleted, and how far their content can be believed.
//!
//! Part of the API: versions say when it changes (`docs/dev/api.md`).
//!
//! Linux empties the map of a file that it deletes. What the file was is told by older copies of
//! the inode and of the nodes of its map, which the log keeps until the ring comes round. The log
//! also says what became of the blocks since: each change of a bitmap is in it.
//!
//! | module | owns |
//! |---|---|
//! | `volume` | superblock, descriptors, inodes, reading |
//! | `journal` | the log, and the file system as recovery would leave it |
//! | `maps` | the map of one inode |
//! | `uses` | what a block is used for |
//! | `tree` | the names of directories, and of inodes that are asked for |
//! | `log` | the log as it is shown |
//! | `timeline` | what became of each inode, transaction by transaction |
//! | `fates` | what became of each block |
//! | `names` | names of what was deleted |
//! | `candidate` | a deleted inode: its last copy, and its map |
//! | `claims` | blocks that were given away |
//! | `paths` | paths of what was deleted |
//! | `deleted` | deleted files, with their verdicts |
//! | `content` | content of a deleted file |
//!
//! # Invariants
//! - Nothing is written.
//! - Any bytes at all give a list or an error: no panic, no endless loop. Memory and
//!   time follow the log and the size of the device, however often blocks are claimed.
//! - [`Verdict::Whole`] is said of what the log proves, and of nothing else ([`Verdict`] has the
//!   conditions).
#![forbid(unsafe_code)]

mod candidate;
mod claims;
mod content;
mod deleted;
mod error;
mod fates;
mod journal;
mod log;
mod maps;
mod names;
mod paths;
mod timeline;
mod tree;
mod uses;
mod volume;

pub use deleted::{Deleted, DeletedFile, DeletedName, Source, Verdict};
pub use error::{Error, Result};
pub use extant_jbd2::Check;
pub use log::{FastCommitTag, ImageView, JournalView, LogState, LogView, TransactionView};
pub use uses::{BlockUse, Use};

use extant_blockdev::SharedDevice;
use journal::Journal;
use volume::Volume;

/// A file system whose past is looked at.
#[derive(Debug)]
pub struct Rescue {
    volume: Volume,
    journal: Option<Journal>,
    /// What the log has to replay is not laid over the device.
    is_as_it_lies: bool,
}

impl Rescue {
    /// Opens the file system that starts at byte 0 of `device`, which is only read. `journal` is
    /// the device of a journal that is not inside.
    ///
    /// What the log holds that was not written home is seen as recovery would leave it.
    ///
    /// # Errors
    /// No file system, features that are not known here, a device that fails, a journal on another
    /// device that was not given or is another one.
    pub fn open(device: SharedDevice, journal: Option<SharedDevice>) -> Result<Self> {
        let volume = Volume::open(SharedDevice::clone(&device))?;
        let Some(journal) = Journal::open(&volume, journal)? else {
            return Ok(Self {
                volume,
                journal: None,
                is_as_it_lies: false,
            });
        };
        // What the log says of superblock and descriptors counts.
        let volume = Volume::open(journal.replayed(device))?;
        Ok(Self {
            volume,
            journal: Some(journal),
            is_as_it_lies: false,
        })
    }

    /// Opens the file system at byte 0 of `device` as it lies there, without what its log has to
    /// replay. The journal is inside.
    ///
    /// # Errors
    /// No file system, features that are not known here, a device that fails, a journal on another
    /// device.
    pub fn open_as_it_lies(device: SharedDevice) -> Result<Self> {
        let volume = Volume::open(device)?;
        let journal = Journal::open(&volume, None)?;
        Ok(Self {
            volume,
            journal,
            is_as_it_lies: true,
        })
    }
}
