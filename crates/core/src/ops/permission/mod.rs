//! Permission: the rules of POSIX, as Linux applies them to ext4.
//!
//! An operation is told which user it acts for ([`OpContext`]) and asks here, with its own locks
//! held where that matters, so that what was allowed is what is done. An operation for nobody asks
//! nothing, which costs one look at a pointer: that is how programs work on images of their own.
//!
//! | file | owns |
//! |---|---|
//! | `access` | mode bits and access control lists; search, read, write, execute |
//! | `names` | making and removing names, sticky directories, what a new inode belongs to |
//! | `owner` | what only the owner may do: mode, owners, times, flags, lists |
//! | `attributes` | the namespaces of extended attributes |
//!
//! What a program loses when its content or its owner changes is no question of permission:
//! [`crate::xattr`] owns that.
//!
//! User 0 has every capability, others have none. Not here: what is policy of a whole system and
//! not of a file system (`fs.protected_hardlinks`, `protected_regular` and the like), security
//! modules, and mappings of ids. Which users may have the blocks that the superblock reserves is
//! decided where space is taken, for the user that an operation acts for.

mod access;
mod attributes;
mod names;
mod owner;

pub(super) use access::may_change;
pub use access::{EXECUTE, READ, WRITE, Wanted, access, search};

use crate::Result;
use crate::alloc::Spending;
use crate::data::WriteOptions;
use crate::fs::{Changing, Fs};
use crate::inode::Actor;
pub use crate::inode::Caller;
use std::sync::Arc;

/// The sticky bit of a mode.
const STICKY: u16 = 0o1000;

/// What an operation runs in: the file system, and the user that it acts for.
///
/// Operations take anything that becomes one: an [`Fs`] by itself acts for nobody and may do
/// everything.
#[derive(Clone, Copy, Debug)]
pub struct OpContext<'a> {
    fs: &'a Fs,
    actor: Actor<'a>,
}

impl<'a> OpContext<'a> {
    /// Makes the context of operations for `caller`, or for nobody.
    #[must_use]
    pub fn new(fs: &'a Fs, caller: Option<&'a Caller>) -> Self {
        Self {
            fs,
            actor: caller.map_or(Actor::Nobody, Actor::User),
        }
    }

    /// Makes the context of a writer whose data was taken earlier and is written now: nothing but
    /// the content changes, neither times nor what programs lose when somebody writes them. Taking
    /// the data has seen to that.
    #[must_use]
    pub fn for_earlier(fs: &'a Fs) -> Self {
        Self {
            fs,
            actor: Actor::Earlier,
        }
    }

    /// Makes the context of a caller that changed the content through memory that the file is
    /// mapped to: it is dated now, and programs lose nothing, as under Linux.
    #[must_use]
    pub fn for_mapped(fs: &'a Fs) -> Self {
        Self {
            fs,
            actor: Actor::Mapped,
        }
    }

    /// Returns the file system.
    #[must_use]
    pub fn fs(self) -> &'a Fs {
        self.fs
    }

    /// Returns the user that asks, if there is one.
    #[inline]
    fn caller(self) -> Option<&'a Caller> {
        match self.actor {
            Actor::User(caller) => Some(caller),
            Actor::Nobody | Actor::Earlier | Actor::Mapped => None,
        }
    }

    /// Returns the user that asks, unless it may do everything.
    pub(super) fn restricted(self) -> Option<&'a Caller> {
        self.actor.restricted()
    }

    /// Begins a change, which is paid from what the caller may have.
    ///
    /// # Errors
    /// As for [`Fs::begin_change`].
    pub(super) fn begin_change(self) -> Result<(Option<Changing<'a>>, Option<Spending>)> {
        let changing = self.fs.begin_change()?;
        let spending = self.restricted().map(|caller| self.fs.spending_for(caller));
        Ok((changing, spending))
    }

    /// Returns how the caller changes content.
    pub(super) fn writing(self) -> WriteOptions<'a> {
        WriteOptions { actor: self.actor }
    }
}

impl<'a> From<&'a Fs> for OpContext<'a> {
    fn from(fs: &'a Fs) -> Self {
        Self::new(fs, None)
    }
}

impl<'a> From<&'a Arc<Fs>> for OpContext<'a> {
    fn from(fs: &'a Arc<Fs>) -> Self {
        Self::new(fs, None)
    }
}

impl Fs {
    /// Makes the context of operations for `caller`.
    #[must_use]
    pub fn acting_for<'a>(&'a self, caller: &'a Caller) -> OpContext<'a> {
        OpContext::new(self, Some(caller))
    }
}
