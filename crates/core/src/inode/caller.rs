//! The user that something is done for, and what of a program's mode outlives a change.

use super::Inode;

/// Set-user-ID and set-group-ID of a mode, and the group's right to execute.
const SET_UID: u16 = 0o4000;
pub(crate) const SET_GID: u16 = 0o2000;
pub(crate) const GROUP_EXECUTE: u16 = 0o010;

/// The user that something is done for.
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

    /// Adds groups that the caller is in.
    #[must_use]
    pub fn groups(mut self, groups: impl Into<Vec<u32>>) -> Self {
        self.groups = groups.into();
        self
    }

    /// Sets the umask of the caller.
    #[must_use]
    pub fn umask(mut self, umask: u16) -> Self {
        self.umask = umask;
        self
    }

    pub(crate) fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }
}

/// The origin of a change of a file's content, which decides what else changes with it.
#[derive(Clone, Copy, Debug, Default)]
pub enum Actor<'a> {
    /// No user in particular. Set-ID bits stay as they are.
    #[default]
    Nobody,
    /// This user.
    User(&'a Caller),
    /// A program whose data a kernel took earlier, which asked and dated it then: nothing changes
    /// but the content.
    Earlier,
    /// A program, through memory that the file is mapped to: nothing is taken from programs. The
    /// time is unknown, so it is now.
    Mapped,
}

impl<'a> Actor<'a> {
    /// The user that writes, unless set-ID bits stay as they are.
    pub(crate) fn restricted(self) -> Option<&'a Caller> {
        match self {
            Self::User(caller) if caller.uid != 0 => Some(caller),
            _ => None,
        }
    }
}

/// The permissions without the bits that give a program the rights of its owners, after a change by
/// `caller`: without set-user-ID, and without set-group-ID where the group may execute (otherwise
/// the bit means something else) or the caller is not in the group.
pub(crate) fn without_set_ids(image: &Inode, caller: Option<&Caller>) -> u16 {
    let permissions = image.disk().mode.permissions();
    if permissions & (SET_UID | SET_GID) == 0 {
        return permissions;
    }
    let is_outside = caller.is_some_and(|caller| !caller.is_in(image.disk().gid));
    let keeps_group = permissions & GROUP_EXECUTE == 0 && !is_outside;
    if keeps_group {
        permissions & !SET_UID
    } else {
        permissions & !(SET_UID | SET_GID)
    }
}
