//! Making and removing names, and what a new inode belongs to.

use super::access::{EXECUTE, WRITE};
use super::{OpContext, STICKY};
use crate::inode::{FileType, GROUP_EXECUTE, Held, Inode, SET_GID};
use crate::lifecycle::NewInode;
use crate::ops::flags::{check_removable, check_takes_names};
use crate::{Error, Result};
use extant_sync::pin;

/// Mode bits that `mkdir` sets.
const OF_MKDIR: u16 = 0o1777;

impl OpContext<'_> {
    /// Refuses to put a name into the directory of this newest image. Its `op` lock is held.
    pub(in crate::ops) fn may_put_name(self, dir: &Inode) -> Result<()> {
        check_takes_names(dir)?;
        self.may_access_locked(dir, WRITE | EXECUTE)
    }

    /// Refuses to take `victim` out of the directory of this newest image, or to put something else
    /// in its place. The `op` locks of both are held.
    pub(in crate::ops) fn may_take_name(self, dir: &Inode, victim: &Held) -> Result<()> {
        check_takes_names(dir)?;
        self.may_access_locked(dir, WRITE | EXECUTE)?;
        check_removable(dir, victim)?;
        if self.is_kept_by_sticky(dir, victim) {
            Err(Error::NotPermitted)
        } else {
            Ok(())
        }
    }

    /// Tells whether this is a sticky directory, where only the owner of the file and that of the
    /// directory remove names.
    fn is_kept_by_sticky(self, dir: &Inode, victim: &Held) -> bool {
        self.restricted().is_some_and(|caller| {
            dir.disk().mode.permissions() & STICKY != 0
                && caller.uid != victim.image(&pin()).disk().uid
                && caller.uid != dir.disk().uid
        })
    }

    /// Refuses to move a directory to another parent, which writes its `..`. Its `op` lock is held.
    pub(in crate::ops) fn may_reparent(self, child: &Held) -> Result<()> {
        if child.is_dir() {
            self.may_access_locked(&child.copy(), WRITE)
        } else {
            Ok(())
        }
    }

    /// Returns what becomes of a new inode in `dir`: it belongs to the caller, which may not make
    /// device nodes, nor a program that runs in a group which is not the caller's.
    pub(in crate::ops) fn adopt(self, dir: &Inode, new: &NewInode) -> Result<NewInode> {
        let Some(caller) = self.caller() else {
            return Ok(new.clone());
        };
        let is_node = matches!(new.file_type, FileType::CharDevice | FileType::BlockDevice);
        // One of number 0:0 is a whiteout, which stands for nothing.
        if is_node && caller.uid != 0 && !is_whiteout(new) {
            return Err(Error::NotPermitted);
        }
        let mut permissions = new.permissions;
        if new.file_type == FileType::Directory {
            permissions &= OF_MKDIR;
        } else {
            let runs_as_group = SET_GID | GROUP_EXECUTE;
            let inherits = dir.disk().mode.permissions() & SET_GID != 0;
            if permissions & runs_as_group == runs_as_group
                && inherits
                && !self.is_in_group(dir.disk().gid)
            {
                permissions &= !SET_GID;
            }
        }
        Ok(NewInode {
            permissions,
            umask: caller.umask,
            uid: caller.uid,
            gid: caller.gid,
            ..new.clone()
        })
    }

    /// Tells whether the caller is in this group, or may do as if it were.
    pub(super) fn is_in_group(self, group: u32) -> bool {
        self.restricted().is_none_or(|caller| caller.is_in(group))
    }
}

fn is_whiteout(new: &NewInode) -> bool {
    new.file_type == FileType::CharDevice && new.device == Default::default()
}
