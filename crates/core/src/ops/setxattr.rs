//! `setxattr`, `removexattr`, and access control lists.

use super::flags::check_changeable;
use super::naming::{changing_of, now, reap};
use super::permission::OpContext;
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode, Mode, SET_GID};
use crate::xattr::{self, AclKind, Change, SetXattr};
use crate::{Error, Result};
use extant_format::NAME_MAX;
use extant_format::acl::{Acl, AclWho};
use extant_format::xattr::{AttributeName, name, split_name};

/// Longest value, in bytes, as under Linux.
const VALUE_MAX: usize = 64 << 10;
/// The permission bits that an access control list speaks of.
const LISTED: u16 = 0o777;

/// Gives the attribute with this full name (`user.mime_type`) a value. Access control lists come in
/// the form of the system calls, and bring the mode in step.
///
/// # Errors
/// [`Error::Exists`] and [`Error::NoAttribute`] as `how` says; [`Error::NoSpace`] when the value
/// does not fit; [`Error::AttributeTooLarge`], [`Error::AttributeName`] and [`Error::NoNamespace`]
/// for values above 64 KiB and names that nobody may set; [`Error::NotPermitted`] for `user.`
/// attributes of anything but files and directories; [`Error::InvalidInput`] for a list that is
/// none, [`Error::PermissionDenied`] for a default list of anything but a directory, and for
/// `user.` attributes of a file that may not be written; [`Error::NotPermitted`] for `trusted.` and
/// `security.` ones by others than user 0; [`Error::ReadOnly`].
pub fn setxattr<'a>(
    ctx: impl Into<OpContext<'a>>,
    inode: &Held,
    name: &[u8],
    value: &[u8],
    how: SetXattr,
) -> Result<()> {
    let ctx = ctx.into();
    check_full_name(name)?;
    if value.len() > VALUE_MAX {
        return Err(Error::AttributeTooLarge);
    }
    if let Some(kind) = acl_kind(name) {
        return setacl(ctx, inode, kind, decoded(value)?.as_ref());
    }
    let name = stored_name(inode, name)?;
    let change = Change {
        name,
        value: Some(value),
        how,
    };
    change_one(ctx, inode, change)
}

/// Removes the attribute with this full name.
///
/// # Errors
/// [`Error::NoAttribute`] when there is none; those of names as for [`setxattr`];
/// [`Error::ReadOnly`].
pub fn removexattr<'a>(ctx: impl Into<OpContext<'a>>, inode: &Held, name: &[u8]) -> Result<()> {
    let ctx = ctx.into();
    check_full_name(name)?;
    if let Some(kind) = acl_kind(name) {
        return setacl(ctx, inode, kind, None);
    }
    let name = stored_name(inode, name)?;
    let change = Change {
        name,
        value: None,
        how: SetXattr::Replace,
    };
    change_one(ctx, inode, change)
}

fn change_one(ctx: OpContext<'_>, inode: &Held, change: Change<'_>) -> Result<()> {
    changing_of(ctx, &[inode], || {
        let _exclusive = inode.op().write();
        check_changeable(inode)?;
        ctx.may_set_xattr(&inode.copy(), change.name.index)?;
        xattr::change(ctx.fs(), inode, &[change], now(), |_| ())
    })?;
    // The value there was may have been in an inode of its own.
    reap(ctx.fs());
    Ok(())
}

/// Sets an access control list, or removes it. The permission bits of the mode follow the access
/// list; one that says no more than they do is not stored. With an access list set-group-ID goes if
/// the caller is not in the group.
///
/// # Errors
/// [`Error::NotPermitted`] for others than the owner, [`Error::NoNamespace`] for symbolic links,
/// [`Error::PermissionDenied`] for a default list of anything but a directory, [`Error::NoSpace`],
/// [`Error::ReadOnly`].
pub fn setacl<'a>(
    ctx: impl Into<OpContext<'a>>,
    inode: &Held,
    kind: AclKind,
    acl: Option<&Acl>,
) -> Result<()> {
    change_acl(ctx.into(), inode, kind, acl, SetGid::AsCallerMay)
}

/// Sets an access list, in the form of the system calls, for a caller of which all that is known is
/// that it may do so and is not in the file's group: set-group-ID goes.
///
/// # Errors
/// As for [`setxattr`].
pub fn set_access_list_from_outside(fs: &Fs, inode: &Held, value: &[u8]) -> Result<()> {
    let list = decoded(value)?;
    change_acl(
        fs.into(),
        inode,
        AclKind::Access,
        list.as_ref(),
        SetGid::Goes,
    )
}

/// What becomes of set-group-ID with an access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetGid {
    /// It stays if the caller is in the group.
    AsCallerMay,
    Goes,
}

fn change_acl(
    ctx: OpContext<'_>,
    inode: &Held,
    kind: AclKind,
    acl: Option<&Acl>,
    set_gid: SetGid,
) -> Result<()> {
    // Linux says this before that there can be no such list.
    check_changeable(inode)?;
    let file_type = inode.snapshot().file_type();
    match (file_type, kind, acl) {
        (FileType::Symlink, ..) => return Err(Error::NoNamespace),
        (FileType::Directory, ..) | (_, AclKind::Access, _) => {}
        (.., None) => return Ok(()),
        _ => return Err(Error::PermissionDenied),
    }
    changing_of(ctx, &[inode], || {
        let _exclusive = inode.op().write();
        check_changeable(inode)?;
        ctx.must_own(&inode.copy())?;
        let permissions = match (kind, acl) {
            (AclKind::Access, Some(acl)) => Some(acl.mode_bits()),
            _ => None,
        };
        let stored = acl.filter(|acl| kind == AclKind::Default || !acl.is_minimal());
        let edit = |inode: &mut Inode| {
            if let Some(bits) = permissions {
                let kept = inode.disk().mode.permissions() & !LISTED;
                let kept = match set_gid {
                    SetGid::AsCallerMay => ctx.settable(inode, kept),
                    SetGid::Goes => kept & !SET_GID,
                };
                inode.disk_mut().mode = Mode::new(file_type, kept | bits);
            }
        };
        let value = stored.map(Acl::encode_disk);
        let change = Change {
            name: kind.stored_name(),
            value: value.as_deref(),
            how: SetXattr::Any,
        };
        xattr::change(ctx.fs(), inode, &[change], now(), edit)
    })
}

/// Returns a list in the form of the system calls; one without entries, or no bytes at all, is
/// none.
fn decoded(value: &[u8]) -> Result<Option<Acl>> {
    // The version alone.
    const EMPTY: &[u8] = &2_u32.to_le_bytes();
    if value.is_empty() || value == EMPTY {
        return Ok(None);
    }
    let bad = Error::InvalidInput("the access control list is not valid");
    let Ok(acl) = Acl::decode_syscall(value) else {
        return Err(bad);
    };
    // This id is nobody's.
    let is_nobody = |who| matches!(who, AclWho::User(u32::MAX) | AclWho::NamedGroup(u32::MAX));
    if acl.entries().iter().any(|entry| is_nobody(entry.who)) {
        Err(bad)
    } else {
        Ok(Some(acl))
    }
}

fn check_full_name(name: &[u8]) -> Result<()> {
    if (1..=NAME_MAX).contains(&name.len()) {
        Ok(())
    } else {
        Err(Error::AttributeName)
    }
}

fn acl_kind(name: &[u8]) -> Option<AclKind> {
    AclKind::of(&split_name(name)?)
}

/// Returns the stored form of a name that programs may set on such an inode.
fn stored_name<'n>(inode: &Held, full: &'n [u8]) -> Result<AttributeName<'n>> {
    let Some(stored) = split_name(full) else {
        let empty = [&b"user."[..], b"trusted.", b"security."].contains(&full);
        return Err(if empty {
            Error::InvalidInput("an attribute needs a name behind its namespace")
        } else {
            Error::NoNamespace
        });
    };
    match stored.index {
        name::USER => match inode.snapshot().file_type() {
            FileType::Regular | FileType::Directory => Ok(stored),
            _ => Err(Error::NotPermitted),
        },
        name::TRUSTED | name::SECURITY => Ok(stored),
        _ => Err(Error::NoNamespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(id: u32) -> Vec<u8> {
        let entries = [
            (1_u16, u32::MAX),
            (2, id),
            (4, u32::MAX),
            (16, u32::MAX),
            (32, u32::MAX),
        ];
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, id) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&7_u16.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_list_is_whole_and_names_somebody() {
        assert!(matches!(decoded(&[]), Ok(None)));
        assert!(matches!(decoded(&[2, 0, 0, 0]), Ok(None)));
        assert!(matches!(decoded(&list(7)), Ok(Some(_))));
        for bad in [
            &[2][..],
            &[2, 0, 0],
            &[1, 0, 0, 0],
            &[2, 0, 0, 0, 1],
            &list(u32::MAX),
        ] {
            assert!(
                matches!(decoded(bad), Err(Error::InvalidInput(_))),
                "{bad:?}"
            );
        }
    }
}
