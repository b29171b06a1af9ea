//! Mode bits and access control lists.

use super::{Caller, OpContext};
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode, InodeId, LiveInode, Mode};
use crate::ops::flags::check_not_immutable;
use crate::xattr::{self, AclKind};
use crate::{Error, Result};
use extant_format::acl::{Acl, AclWho};
use extant_sync::{EpochGuard, pin};

/// What somebody wants to do: read 4, write 2, execute or search 1, in any combination.
pub type Wanted = u8;

/// To read a file, or list a directory.
pub const READ: Wanted = 4;
/// To write a file, or change the names of a directory.
pub const WRITE: Wanted = 2;
/// To execute a file, or search a directory.
pub const EXECUTE: Wanted = 1;
/// The permissions of a file's group, which with a list are what it can give at most.
const GROUP: u16 = 0o070;

/// Refuses what the mode and the access control list of an inode do not allow (`access`).
///
/// # Errors
/// [`Error::PermissionDenied`]; [`Error::ReadOnly`] and [`Error::NotPermitted`] for writing what
/// cannot be written or is immutable; [`Error::Corrupt`] when the list is broken.
pub fn access<'a>(ctx: impl Into<OpContext<'a>>, inode: &Held, wanted: Wanted) -> Result<()> {
    let ctx = ctx.into();
    if wanted & WRITE != 0 {
        may_change(ctx.fs(), &inode.copy())?;
    }
    ctx.may_access(inode, wanted)
}

/// Refuses to write what nobody may write, whatever mode and list say. What is written to a device,
/// pipe or socket is no change of the file system.
///
/// # Errors
/// [`Error::ReadOnly`]; [`Error::NotPermitted`] for what is immutable.
pub(in crate::ops) fn may_change(fs: &Fs, image: &Inode) -> Result<()> {
    match image.file_type() {
        FileType::Regular | FileType::Directory | FileType::Symlink => fs.check_writable()?,
        FileType::CharDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket => {}
    }
    check_not_immutable(image)
}

/// Refuses to look a name up in a directory that may not be searched.
///
/// # Errors
/// [`Error::PermissionDenied`], [`Error::NotADirectory`], [`Error::NotFound`] when it has been
/// removed; [`Error::Corrupt`] when its list is broken.
pub fn search<'a>(ctx: impl Into<OpContext<'a>>, dir: InodeId) -> Result<()> {
    let ctx = ctx.into();
    if ctx.restricted().is_none() {
        return Ok(());
    }
    let of_stale = |e| match e {
        Error::Stale => Error::NotFound,
        e => e,
    };
    let look = |image: &Inode| {
        let may_have_list = || image.may_have_attributes();
        image
            .is_dir()
            .then(|| ctx.by_mode(image, EXECUTE, may_have_list))
    };
    match ctx.fs().with_same(dir, look).map_err(of_stale)? {
        None => Err(Error::NotADirectory),
        Some(Some(allowed)) => told(allowed),
        Some(None) => ctx.may_access(&ctx.fs().hold_same(dir).map_err(of_stale)?, EXECUTE),
    }
}

impl OpContext<'_> {
    /// Refuses what mode and list of an inode do not allow. The caller does not hold its `op` lock.
    pub(in crate::ops) fn may_access(self, inode: &Held, wanted: Wanted) -> Result<()> {
        let by_mode = {
            let guard = pin();
            let image = inode.image(&guard);
            self.by_mode(image, wanted, || inode.may_have_list(image, &guard))
        };
        if let Some(allowed) = by_mode {
            return told(allowed);
        }
        let _shared = inode.op().read();
        let image = inode.copy();
        if xattr::acl(self.fs, &image, AclKind::Access)?.is_none() {
            inode.note_not_listed();
        }
        self.may_access_locked(&image, wanted)
    }

    /// Refuses what mode and list of an inode do not allow. Its `op` lock is held, and `image` is
    /// its newest image.
    pub(in crate::ops) fn may_access_locked(self, image: &Inode, wanted: Wanted) -> Result<()> {
        if let Some(allowed) = self.by_mode(image, wanted, || image.may_have_attributes()) {
            return told(allowed);
        }
        let Some(caller) = self.caller() else {
            return Ok(());
        };
        let disk = image.disk();
        let owners = (disk.uid, disk.gid);
        let acl = xattr::acl(self.fs, image, AclKind::Access)?;
        let file_type = image.file_type();
        told(allows(
            file_type,
            disk.mode,
            owners,
            acl.as_ref(),
            caller,
            wanted,
        ))
    }

    /// Refuses to search a directory.
    pub(in crate::ops) fn may_search(self, dir: &Held) -> Result<()> {
        self.may_access(dir, EXECUTE)
    }

    /// Tells whether a directory may be searched, if that can be said without waiting.
    #[inline]
    pub(in crate::ops) fn may_search_fast(
        self,
        live: &LiveInode,
        dir: &Inode,
        guard: &EpochGuard,
    ) -> Option<bool> {
        self.by_mode(dir, EXECUTE, || live.may_have_list(dir, guard))
    }

    /// Returns what the mode says; `None` when there may be a list that is to be asked.
    #[inline]
    fn by_mode(
        self,
        image: &Inode,
        wanted: Wanted,
        may_have_list: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let Some(caller) = self.caller() else {
            return Some(true);
        };
        let disk = image.disk();
        let asks_list = caller.uid != 0
            && caller.uid != disk.uid
            && disk.mode.permissions() & GROUP != 0
            && may_have_list();
        if asks_list {
            return None;
        }
        let owners = (disk.uid, disk.gid);
        Some(allows(
            image.file_type(),
            disk.mode,
            owners,
            None,
            caller,
            wanted,
        ))
    }
}

fn told(allowed: bool) -> Result<()> {
    if allowed {
        Ok(())
    } else {
        Err(Error::PermissionDenied)
    }
}

/// Tells whether a file with this mode, these owners (user and group) and this list allows it.
fn allows(
    file_type: FileType,
    mode: Mode,
    (uid, gid): (u32, u32),
    acl: Option<&Acl>,
    caller: &Caller,
    wanted: Wanted,
) -> bool {
    let bits = mode.permissions();
    let wanted = wanted & 7;
    if caller.uid == 0 {
        let executable = file_type == FileType::Directory || bits & 0o111 != 0;
        return wanted & EXECUTE == 0 || executable;
    }
    let has = |permissions: u16| permissions & u16::from(wanted) == u16::from(wanted);
    if caller.uid == uid {
        return has(bits >> 6 & 7);
    }
    let is_in = |group: u32| caller.is_in(group);
    let Some(acl) = acl else {
        return has(if is_in(gid) { bits >> 3 & 7 } else { bits & 7 });
    };
    let entries = acl.entries();
    let mask = entries.iter().find(|entry| entry.who == AclWho::Mask);
    let masked =
        |permissions: u8| has((permissions & mask.map_or(7, |mask| mask.permissions)).into());
    let user = entries.iter().find(|e| e.who == AclWho::User(caller.uid));
    if let Some(user) = user {
        return masked(user.permissions);
    }
    let mut groups = entries.iter().filter(|entry| match entry.who {
        AclWho::Group => is_in(gid),
        AclWho::NamedGroup(group) => is_in(group),
        _ => false,
    });
    let first = groups.next();
    match first {
        // One of the groups must allow all of it.
        Some(first) => masked(first.permissions) || groups.any(|e| masked(e.permissions)),
        None => {
            let other = entries.iter().find(|entry| entry.who == AclWho::Other);
            has(other.map_or(bits & 7, |other| other.permissions.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_format::acl::AclEntry;

    fn asks(uid: u32, groups: &[u32], mode: u16, acl: Option<&Acl>) -> String {
        let caller = Caller::new(uid, 99).groups(groups);
        let mode = Mode::new(FileType::Regular, mode);
        let one = |wanted, letter| {
            if allows(FileType::Regular, mode, (10, 20), acl, &caller, wanted) {
                letter
            } else {
                '-'
            }
        };
        [one(4, 'r'), one(2, 'w'), one(1, 'x')].iter().collect()
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        assert_eq!(asks(10, &[20], 0o077, None), "---");
        assert_eq!(asks(11, &[20], 0o706, None), "---");
        assert_eq!(asks(11, &[21], 0o706, None), "rw-");
        assert_eq!(asks(0, &[], 0o000, None), "rw-");
        assert_eq!(asks(0, &[], 0o001, None), "rwx");
    }

    #[test]
    fn a_list_names_users_and_groups_under_its_mask() {
        let entry = |who, permissions| AclEntry { who, permissions };
        let acl = Acl::new(vec![
            entry(AclWho::Owner, 7),
            entry(AclWho::User(11), 7),
            entry(AclWho::User(12), 0),
            entry(AclWho::Group, 4),
            entry(AclWho::NamedGroup(30), 2),
            entry(AclWho::Mask, 6),
            entry(AclWho::Other, 1),
        ])
        .unwrap();
        // The list decides where the mode, which should say the same, says more.
        let ask = |uid, groups: &[u32]| asks(uid, groups, 0o767, Some(&acl));
        assert_eq!(ask(10, &[]), "rwx");
        assert_eq!(ask(11, &[]), "rw-");
        assert_eq!(ask(12, &[20]), "---");
        assert_eq!(ask(13, &[20]), "r--");
        assert_eq!(ask(13, &[30, 20]), "rw-");
        assert_eq!(ask(13, &[31]), "--x");
    }
}
