//! What only the owner of a file may do.

use super::OpContext;
use super::access::WRITE;
use crate::inode::{Inode, SET_GID};
use crate::ops::flags::check_not_immutable;
use crate::{Error, Result};
use extant_format::inode::InodeFlags;

impl OpContext<'_> {
    /// Refuses everybody but the owner and user 0.
    pub(in crate::ops) fn must_own(self, image: &Inode) -> Result<()> {
        match self.restricted() {
            Some(caller) if caller.uid != image.disk().uid => Err(Error::NotPermitted),
            _ => Ok(()),
        }
    }

    /// Returns the mode bits that are set when these are asked for: a caller that is not in the
    /// file's group does not give its rights to a program.
    pub(in crate::ops) fn settable(self, image: &Inode, permissions: u16) -> u16 {
        if self.is_in_group(image.disk().gid) {
            permissions
        } else {
            permissions & !SET_GID
        }
    }

    /// Refuses to give a file away: only user 0 may, and the owner may give it to a group of its
    /// own.
    pub(in crate::ops) fn may_chown(
        self,
        image: &Inode,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        let Some(caller) = self.restricted() else {
            return Ok(());
        };
        let disk = image.disk();
        let owns = caller.uid == disk.uid;
        let user = uid.is_none_or(|uid| owns && uid == disk.uid);
        let group = gid.is_none_or(|gid| owns && (gid == disk.gid || caller.is_in(gid)));
        if user && group {
            Ok(())
        } else {
            Err(Error::NotPermitted)
        }
    }

    /// Refuses to set the times to now to a caller that neither owns the file nor may write it. Its
    /// `op` lock is held.
    pub(in crate::ops) fn may_touch(self, image: &Inode) -> Result<()> {
        check_not_immutable(image)?;
        match self.must_own(image) {
            Ok(()) => Ok(()),
            Err(_) => self.may_access_locked(image, WRITE),
        }
    }

    /// Refuses to change `changed` among the flags of a file.
    pub(in crate::ops) fn may_chattr(self, image: &Inode, changed: InodeFlags) -> Result<()> {
        self.must_own(image)?;
        let capable = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if self.restricted().is_some() && changed.intersects(capable) {
            Err(Error::NotPermitted)
        } else {
            Ok(())
        }
    }
}
