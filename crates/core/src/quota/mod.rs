//! Quotas: what users, groups and projects use and may use, in the files of the file system's own that say so.
//!
//! | file | owns |
//! |---|---|
//! | `layout` | where those files lie, and their blocks |
//! | `file` | reading them |
//! | `share` | what inodes are counted as, and what a transaction changes of that |
//! | `accounts` | keeping the files true |
//!
//! # Invariants
//!
//! - What a file says is what is in use as of the same transaction.
//! - The files' own inodes, and the file system's others, are nobody's.
//! - A listing takes memory for one way through the tree, and stops at the first thing that breaks the format.

mod accounts;
mod file;
mod layout;
mod share;

pub(crate) use accounts::Accounts;
pub(crate) use file::QuotaFile;
pub(crate) use share::{Share, Tally};

use extant_format::quota::QuotaEntry;
pub use extant_format::quota::QuotaKind;
use std::time::Duration;

/// What one user, group or project uses, and may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The user, group or project.
    pub id: u32,
    /// Space in use, in bytes.
    pub space: u64,
    /// The limits of it, in bytes.
    pub space_limits: Limits,
    /// Inodes there are.
    pub inodes: u64,
    /// The limits of them.
    pub inode_limits: Limits,
}

/// How much there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// What may not be exceeded, if there is such a limit.
    pub hard: Option<u64>,
    /// What may be exceeded for some time only, if there is such a limit.
    pub soft: Option<u64>,
    /// When that time ends, in seconds since the epoch; `None` while the soft limit is not exceeded.
    pub grace_ends: Option<u64>,
}

/// For how long soft limits may be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// That of space.
    pub space: Duration,
    /// That of inodes.
    pub inodes: Duration,
}

impl From<QuotaEntry> for Quota {
    fn from(entry: QuotaEntry) -> Self {
        let given = |number: u64| (number != 0).then_some(number);
        let bytes = |kib: u64| given(kib).map(|kib| kib.saturating_mul(1024));
        Self {
            id: entry.id,
            space: entry.space,
            space_limits: Limits {
                hard: bytes(entry.space_hard),
                soft: bytes(entry.space_soft),
                grace_ends: given(entry.space_time),
            },
            inodes: entry.inodes,
            inode_limits: Limits {
                hard: given(entry.inode_hard),
                soft: given(entry.inode_soft),
                grace_ends: given(entry.inode_time),
            },
        }
    }
}
