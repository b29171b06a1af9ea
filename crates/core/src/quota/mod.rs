//! Quotas: what users, groups and projects use and may use, in the files of the file system's own
//! that say so.
//!
//! | file | owns |
//! |---|---|
//! | `layout` | where those files lie, and their blocks |
//! | `file` | reading them |
//! | `share` | what inodes are counted as, and what a transaction changes of that |
//! | `accounts` | keeping the files true |
//! | `ledger` | holding owners to their limits |
//! | `admit` | asking before something is used |
//! | `setting` | giving owners other limits |
//!
//! # Invariants
//!
//! - What a file says is what is in use as of the same transaction.
//! - The files' own inodes, and the file system's others, are nobody's.
//! - A listing takes memory for one way through the tree, and stops at the first thing that breaks
//!   the format.

mod accounts;
mod admit;
mod file;
mod layout;
mod ledger;
mod setting;
mod share;

pub(crate) use accounts::Accounts;
pub(crate) use admit::Admission;
pub(crate) use file::QuotaFile;
pub(crate) use ledger::{Granted, Ledger};
pub use setting::{QuotaChange, SideChange};
pub(crate) use share::{Share, Tally};

use extant_format::quota::QuotaEntry;
pub use extant_format::quota::QuotaKind;
use std::time::Duration;

/// Which kinds of owners are held to the limits that quota files say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// `usrquota` under Linux.
    pub users: bool,
    /// `grpquota` under Linux.
    pub groups: bool,
    /// `prjquota` under Linux.
    pub projects: bool,
}

impl Enforced {
    /// All kinds.
    pub const ALL: Self = Self {
        users: true,
        groups: true,
        projects: true,
    };
}

/// Why an owner is to use more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A user that is held to limits asks for it.
    Asked,
    /// It was let in before, or a user asks that is held to none.
    LetIn,
}

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
    /// When that time ends, in seconds since the epoch; `None` while the soft limit is not
    /// exceeded.
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

impl Quota {
    /// Takes over what an entry of a quota file says.
    fn from_entry(entry: QuotaEntry) -> Self {
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
