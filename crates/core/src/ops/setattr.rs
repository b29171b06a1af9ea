//! `chmod`, `chown` and `utimens`.

use super::flags::check_changeable;
use super::naming::{now, with_space};
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode, Mode, Timestamp, with_permissions};
use crate::journal::Handle;
use crate::xattr::{AclKind, Change, SetXattr};
use crate::{Result, xattr};

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;
/// The permission bits and the three above them.
const PERMISSIONS: u16 = 0o7777;

/// Sets the permissions, with set-user-ID, set-group-ID and sticky bit. Other bits are ignored.
///
/// # Errors
/// [`Error::ReadOnly`](crate::Error::ReadOnly); [`Error::Device`](crate::Error::Device) when the
/// record's block cannot be read.
pub fn chmod(fs: &Fs, inode: &Held, permissions: u16) -> Result<()> {
    let set = |image: &mut Inode| {
        let file_type = image.file_type();
        image.disk_mut().mode = Mode::new(file_type, permissions & PERMISSIONS);
    };
    with_space(fs, || {
        let _exclusive = inode.op().write();
        check_changeable(inode)?;
        let image = inode.snapshot();
        if image.xattr_region().is_empty() && image.disk().file_acl.get() == 0 {
            return change_locked(fs, inode, set);
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

/// Sets owner and group; `None` leaves what is. Regular files lose set-user-ID, and set-group-ID
/// where the group may execute.
///
/// # Errors
/// As for [`chmod`].
pub fn chown(fs: &Fs, inode: &Held, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    change(fs, inode, |image| {
        let file_type = image.file_type();
        let disk = image.disk_mut();
        disk.uid = uid.unwrap_or(disk.uid);
        disk.gid = gid.unwrap_or(disk.gid);
        if file_type == FileType::Regular {
            disk.mode = Mode::new(file_type, without_set_ids(disk.mode.permissions()));
        }
    })
}

/// Sets the times of last access and last change of the content; `None` leaves what is.
///
/// # Errors
/// As for [`chmod`].
pub fn utimens(
    fs: &Fs,
    inode: &Held,
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
) -> Result<()> {
    change(fs, inode, |image| {
        let disk = image.disk_mut();
        disk.atime = atime.unwrap_or(disk.atime);
        disk.mtime = mtime.unwrap_or(disk.mtime);
    })
}

/// What the set-ID bits become when somebody else may have changed the file.
fn without_set_ids(permissions: u16) -> u16 {
    let mut cleared = permissions & !SET_UID;
    if permissions & GROUP_EXECUTE != 0 {
        cleared &= !SET_GID;
    }
    cleared
}

fn change(fs: &Fs, inode: &Held, edit: impl FnOnce(&mut Inode)) -> Result<()> {
    let _exclusive = inode.op().write();
    check_changeable(inode)?;
    change_locked(fs, inode, edit)
}

fn change_locked(fs: &Fs, inode: &Held, edit: impl FnOnce(&mut Inode)) -> Result<()> {
    let handle: Handle<'_> = fs.start(1)?;
    let time = now();
    inode.live().update(&handle, |image| {
        edit(image);
        image.disk_mut().ctime = time;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_group_id_without_group_execute_means_something_else_and_stays() {
        assert_eq!(without_set_ids(0o6755), 0o755);
        assert_eq!(without_set_ids(0o6745), 0o2745);
    }
}
