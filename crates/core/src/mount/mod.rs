//! The way from a device to a file system, and back.
//!
//! | file | owns |
//! |---|---|
//! | `open` | from a device to a usable [`Fs`](crate::fs::Fs) |
//! | `writable` | from a device to one that may be changed |
//! | `ahead` | what opening for writing asks for before it needs it |
//! | `orphan_file` | where the blocks of the orphan file lie |
//! | `torn` | a superblock of which a crash left one half, restored from the log |
//! | `replay` | where the journal lies, and its replay into memory |
//! | `fast_commit` | what the journal says besides whole blocks |
//! | `staged` | changes that are made as a whole, or not at all |
//! | `held` | a claim around changes that are made without an open file system |
//! | `waiting` | those that no journal holds: a log in free blocks, and taking it up |
//! | `background` | what the journal's thread does in a turn |
//! | `freeze` | freezing, and making read-only while mounted |
//! | `close` | closing, for good or for a while, and marking as in use |

mod ahead;
mod background;
mod close;
mod fast_commit;
mod freeze;
mod held;
mod open;
mod orphan_file;
mod replay;
mod staged;
mod torn;
mod waiting;
mod writable;

pub use freeze::Frozen;
#[cfg(test)]
pub(crate) use open::read_superblock;
pub use staged::{Staged, StagedReport};
