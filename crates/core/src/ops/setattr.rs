//! `chmod`, `chown`, `utimens` and setting times to now.

use super::flags::{check_changeable, check_not_immutable};
use super::naming::{changing_of, now};
use super::permission::OpContext;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Held, Inode, Mode, Timestamp, without_set_ids};
use crate::lifecycle::with_permissions;
use crate::xattr::{AclKind, Change, SetXattr};
use crate::{Result, xattr};

/// The permission bits and the three above them.
const PERMISSIONS: u16 = 0o7777;

/// Sets the permissions, with set-user-ID, set-group-ID and sticky bit. Other bits are ignored. A
/// caller that is not in the file's group does not set set-group-ID.
///
/// # Errors
/// [`Error::NotPermitted`](crate::Error::NotPermitted) for others than the owner;
/// [`Error::ReadOnly`](crate::Error::ReadOnly); [`Error::Device`](crate::Error::Device) when the
/// record's block cannot be read.
pub fn chmod<'a>(ctx: impl Into<OpContext<'a>>, inode: &Held, permissions: u16) -> Result<()> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    changing_of(ctx, &[inode], || {
        let _exclusive = inode.op().write();
        check_changeable(inode)?;
        let image = inode.snapshot();
        ctx.must_own(&image)?;
        let permissions = ctx.settable(&image, permissions & PERMISSIONS);
        let set = |image: &mut Inode| {
            image.disk_mut().mode = Mode::new(image.file_type(), permissions);
        };
        if !image.may_have_attributes() {
            return change_record(fs, inode, set);
        }
        // The list says the same as the mode.
        let kind = AclKind::Access;
        let list = xattr::acl(fs, &image, kind)?;
        let value = list
            .and_then(|list| with_permissions(&list, permissions))
            .map(|list| list.encode_disk());
        let changes = value.as_deref().map(|value| Change {
            name: kind.stored_name(),
            value: Some(value),
            how: SetXattr::Any,
        });
        xattr::change(fs, inode, changes.as_slice(), now(), set)
    })
}

/// Sets owner and group; `None` leaves what is. All but directories lose set-user-ID, set-group-ID
/// where the group may execute or the caller is not in it, and the capabilities of a program.
///
/// # Errors
/// As for [`chmod`]; the owner may only give the file to a group of its own.
pub fn chown<'a>(
    ctx: impl Into<OpContext<'a>>,
    inode: &Held,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<()> {
    let ctx = ctx.into();
    changing_of(ctx, &[inode], || {
        let _exclusive = inode.op().write();
        let image = inode.snapshot();
        let mode = if image.is_dir() {
            image.disk().mode
        } else {
            Mode::new(image.file_type(), without_set_ids(&image, ctx.restricted()))
        };
        let strips = mode != image.disk().mode;
        if strips || uid.is_some() || gid.is_some() {
            check_changeable(inode)?
        } else {
            check_not_immutable(&image)?
        }
        ctx.may_chown(&image, uid, gid)?;
        if strips {
            ctx.must_own(&image)?;
        }
        let mut _let_in = None;
        if ctx.fs().counts_usage() {
            let disk = image.disk();
            let (user, group) = (uid.unwrap_or(disk.uid), gid.unwrap_or(disk.gid));
            let owners = [user, group, disk.project.unwrap_or(0)];
            ctx.fs().prepare_owners(owners)?;
            _let_in = ctx.fs().admit_owners(inode, owners)?;
        }
        let give = |image: &mut Inode| {
            let disk = image.disk_mut();
            disk.uid = uid.unwrap_or(disk.uid);
            disk.gid = gid.unwrap_or(disk.gid);
        };
        if image.is_dir() {
            return change_record(ctx.fs(), inode, give);
        }
        xattr::change_without_capabilities(ctx.fs(), inode, |image| {
            give(image);
            image.disk_mut().mode = mode;
        })
    })
}

/// Sets the times of last access and last change of the content; `None` leaves what is. Nobody is
/// refused to leave both. Times that the format cannot hold become the nearest that it can.
///
/// # Errors
/// As for [`chmod`].
pub fn utimens<'a>(
    ctx: impl Into<OpContext<'a>>,
    inode: &Held,
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
) -> Result<()> {
    match (atime, mtime) {
        (None, None) => Ok(()),
        _ => set_times(ctx.into(), inode, atime, mtime, None),
    }
}

/// As [`utimens`], with the time of the change itself: that at which a kernel took the change that
/// it hands on now.
///
/// # Errors
/// As for [`chmod`].
pub fn utimens_dated<'a>(
    ctx: impl Into<OpContext<'a>>,
    inode: &Held,
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
    ctime: Timestamp,
) -> Result<()> {
    set_times(ctx.into(), inode, atime, mtime, Some(ctime))
}

fn set_times(
    ctx: OpContext<'_>,
    inode: &Held,
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
    ctime: Option<Timestamp>,
) -> Result<()> {
    changing_of(ctx, &[inode], || {
        let _exclusive = inode.op().write();
        check_changeable(inode)?;
        ctx.must_own(&inode.copy())?;
        change_record(ctx.fs(), inode, |image| {
            let disk = image.disk_mut();
            // What lies past the format's range is not kept for a while and cut later.
            let set = |time: Option<Timestamp>, old| time.map_or(old, |time| time.stored(true));
            disk.atime = set(atime, disk.atime);
            disk.mtime = set(mtime, disk.mtime);
            disk.ctime = set(ctime, disk.ctime);
        })
    })
}

/// Sets both times to now (`utimensat` without times), for which it is enough to be able to write
/// the file. One that is append-only takes it, too.
///
/// # Errors
/// [`Error::NotPermitted`](crate::Error::NotPermitted) for an immutable file,
/// [`Error::PermissionDenied`](crate::Error::PermissionDenied); as for [`chmod`].
pub fn touch<'a>(ctx: impl Into<OpContext<'a>>, inode: &Held) -> Result<()> {
    touch_at(ctx.into(), inode, None)
}

/// As [`touch`], with the time at which a kernel took the call that it hands on now.
///
/// # Errors
/// As for [`touch`].
pub fn touch_dated<'a>(ctx: impl Into<OpContext<'a>>, inode: &Held, time: Timestamp) -> Result<()> {
    touch_at(ctx.into(), inode, Some(time))
}

fn touch_at(ctx: OpContext<'_>, inode: &Held, time: Option<Timestamp>) -> Result<()> {
    changing_of(ctx, &[inode], || {
        let _exclusive = inode.op().write();
        ctx.may_touch(&inode.copy())?;
        change_record(ctx.fs(), inode, |image| {
            let disk = image.disk_mut();
            let time = time.map_or(disk.ctime, |time| time.stored(true));
            disk.atime = time;
            disk.mtime = time;
            disk.ctime = time;
        })
    })
}

/// Changes the time of change of a record, and what `edit` changes. The `op` lock is held
/// exclusively.
pub(super) fn change_record(fs: &Fs, inode: &Held, edit: impl FnOnce(&mut Inode)) -> Result<()> {
    let handle: Handle<'_> = fs.start(1)?;
    let time = now();
    inode.live().update(&handle, |image| {
        image.disk_mut().ctime = time;
        edit(image);
    })
}
