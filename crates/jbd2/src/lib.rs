//! The JBD2 log on disk: layout, scan, revoke table and replay.
//!
//! Internal to Extant: any version may change it. Programs use the crate `extant`.
//!
//! A caller finds the journal's blocks (they belong to an inode, or are what [`external_log`]
//! says), opens a [`Log`] over them and, when it is not clean, asks for its [`Recovery`]: where the
//! newest image of every block lies in the log. A read-only open lays the images over the device
//! with [`ReplayedDevice`] and writes nothing; a read-write open writes them home with
//! [`Recovery::write_home`] and goes on with a [`LogWriter`], which starts with an empty log.
//!
//! | module | owns |
//! |---|---|
//! | `external` | a journal on a device of its own |
//! | `map` | where journal blocks lie on the device |
//! | `ahead` | reading ahead where each request takes a round trip |
//! | `log` | an opened journal: its superblock, and reading its blocks |
//! | `scan` | the end of the log: which transactions are whole |
//! | `revoke` | which images must not be replayed |
//! | `replay` | the images that must |
//! | `fast_commit` | the fast commits that follow the last transaction |
//! | `history` | every transaction of which the ring still has something |
//! | `overlay` | where the images lie, and a device that shows them |
//! | `home` | writing the images to where they belong |
//! | `mutants` | mistakes that tests must find |
//! | `writer` | appending transactions, committing them, moving the tail |
//!
//! # Invariants
//! - Every loop is bounded by the number of blocks in the log, and memory by a few bytes for each
//!   of them and some mebibytes of what is read ahead, whatever the blocks hold.
//! - A transaction counts only as a whole: its commit block is there and every checksum the log
//!   has is right. The last one may be torn, which ends the log; a wrong one in the middle is an
//!   error, because what follows depends on it.
//! - No locks, no transactions of its own: this crate knows the disk only.
#![forbid(unsafe_code)]

mod ahead;
mod error;
mod external;
mod fast_commit;
mod history;
mod home;
mod log;
mod map;
#[cfg(feature = "mutants")]
pub mod mutants;
#[cfg(not(feature = "mutants"))]
mod mutants;
mod overlay;
mod recovery;
mod replay;
mod revoke;
mod scan;
mod writer;

pub use error::{JournalError, JournalResult};
pub use external::external_log;
pub use fast_commit::FastCommits;
pub use history::{
    Check, EachFastCommit, HistoryEnd, LogHistory, LogRecord, LoggedImage, LoggedTransaction,
};
pub use home::WrittenHome;
pub use log::Log;
pub use map::LogRun;
pub use overlay::{ReplayedBlocks, ReplayedDevice};
pub use recovery::{LogEnd, Recovery};
pub use writer::{
    CommitReceipt, CommitTime, LogImage, LogSpan, LogTransaction, LogWriter, WriterOptions,
};
