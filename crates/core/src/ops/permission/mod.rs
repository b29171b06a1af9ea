//! Who may do what: the rules of POSIX, as Linux applies them to ext4.
//!
//! An operation is told for whom it acts ([`Acting`]) and asks here, with its own locks held where that matters, so that
//! what was allowed is what is done. Acting for nobody asks nothing and costs one look at a pointer: that is how
//! programs work on images of their own.
//!
//! | file | owns |
//! |---|---|
//! | `access` | mode bits and access control lists; search, read, write, execute |
//! | `names` | making and removing names, sticky directories, what a new inode belongs to |
//! | `owner` | what only the owner may do: mode, owners, times, flags, lists |
//! | `attributes` | the namespaces of extended attributes |
//! | `strip` | set-ID bits and capabilities of programs, which go when somebody else changes the file |
//!
//! User 0 has every capability, others have none. Not here: what is policy of a whole system and not of a file system
//! (`fs.protected_hardlinks`, `protected_regular` and the like), security modules, and mappings of ids.

mod access;
mod attributes;
mod names;
mod owner;
mod strip;

pub use access::{EXECUTE, READ, WRITE, Wanted, access, search};
pub(super) use strip::{change_without_privileges, strip, without_set_ids};

use crate::fs::Fs;
use std::sync::Arc;

/// Set-user-ID, set-group-ID and sticky bit of a mode, and the group's right to execute.
const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
const GROUP_EXECUTE: u16 = 0o010;

/// Whom something is done for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user; 0 may do everything but execute what nobody may.
    pub uid: u32,
    /// The group, which new files get.
    pub gid: u32,
    /// More groups.
    pub groups: Vec<u32>,
    /// Permissions that new files do not get, unless a default access control list decides.
    pub umask: u16,
}

impl Caller {
    /// A user in one group, without a umask.
    #[must_use]
    pub fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            ..Self::default()
        }
    }

    /// The same caller in more groups.
    #[must_use]
    pub fn groups(mut self, groups: impl Into<Vec<u32>>) -> Self {
        self.groups = groups.into();
        self
    }

    /// The same caller with a umask.
    #[must_use]
    pub fn umask(mut self, umask: u16) -> Self {
        self.umask = umask;
        self
    }

    fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }
}

/// A file system, and for whom something is done there.
///
/// Operations take anything that becomes one: an [`Fs`] by itself acts for nobody and may do everything.
#[derive(Clone, Copy, Debug)]
pub struct Acting<'a> {
    fs: &'a Fs,
    caller: Option<&'a Caller>,
}

impl<'a> Acting<'a> {
    /// For `caller`, or for nobody.
    #[must_use]
    pub fn new(fs: &'a Fs, caller: Option<&'a Caller>) -> Self {
        Self { fs, caller }
    }

    /// The file system.
    #[must_use]
    pub fn fs(self) -> &'a Fs {
        self.fs
    }

    /// Who asks, unless he may do everything.
    fn restricted(self) -> Option<&'a Caller> {
        self.caller.filter(|caller| caller.uid != 0)
    }
}

impl<'a> From<&'a Fs> for Acting<'a> {
    fn from(fs: &'a Fs) -> Self {
        Self::new(fs, None)
    }
}

impl<'a> From<&'a Arc<Fs>> for Acting<'a> {
    fn from(fs: &'a Arc<Fs>) -> Self {
        Self::new(fs, None)
    }
}

impl Fs {
    /// The file system as somebody uses it.
    #[must_use]
    pub fn acting_for<'a>(&'a self, caller: &'a Caller) -> Acting<'a> {
        Acting::new(self, Some(caller))
    }
}
