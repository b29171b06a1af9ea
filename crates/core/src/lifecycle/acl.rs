//! Access control lists that a new inode gets from its directory.
//!
//! As POSIX.1e drafts and Linux do: a default list of the directory becomes the access list of what
//! is made in it, cut to the permissions that were asked for, and the umask means nothing then. A
//! directory also takes the default list over as its own.

use crate::fs::Fs;
use crate::inode::FileType;
use crate::inode::Inode;
use crate::lifecycle::NewInode;
use crate::xattr::{self, AclKind, Fresh};
use crate::{InPlace, Place, Result};
use extant_format::acl::{Acl, AclEntry, AclWho};
use extant_format::xattr::name::INLINE_DATA;

/// What a new inode gets.
pub(super) struct Inherited {
    /// The permissions of the mode, set-id and sticky bits included.
    pub(super) permissions: u16,
    /// Its attributes.
    pub(super) xattrs: Fresh,
}

/// The list that `acl` becomes when the permission bits are set to `permissions`, as chmod does:
/// the group's go to the mask where there is one.
pub(crate) fn with_permissions(acl: &Acl, permissions: u16) -> Option<Acl> {
    let masked = acl.entries().iter().any(|entry| entry.who == AclWho::Mask);
    let entries = acl.entries().iter().map(|entry| {
        let shift = match entry.who {
            AclWho::Owner => 6,
            AclWho::Mask => 3,
            AclWho::Group if !masked => 3,
            AclWho::Other => 0,
            _ => return *entry,
        };
        AclEntry {
            permissions: (permissions >> shift & 7) as u8,
            ..*entry
        }
    });
    Acl::new(entries.collect()).ok()
}

/// What `new` gets from `parent`, `region` bytes of its record being there for attributes. If it
/// `is_inline` one of them is for what its map does not hold of its content, of which there is none
/// yet.
///
/// # Errors
/// Those of reading the parent's attributes.
pub(super) fn inherit(
    fs: &Fs,
    parent: &Inode,
    new: &NewInode,
    region: usize,
    is_inline: bool,
) -> Result<Inherited> {
    let content = is_inline.then(|| (INLINE_DATA, Vec::new()));
    let without = Inherited {
        permissions: new.permissions & !new.umask,
        xattrs: match &content {
            Some(content) => xattr::fresh(fs, region, std::slice::from_ref(content))?,
            None => Fresh::default(),
        },
    };
    if new.file_type == FileType::Symlink {
        return Ok(Inherited {
            permissions: new.permissions,
            ..without
        });
    }
    let Some(default) = xattr::acl(fs, parent, AclKind::Default)? else {
        return Ok(without);
    };
    let (access, permissions) = cut(&default, new.permissions);
    let access = Acl::new(access).in_place(Place::Inode(parent.ino()))?;
    let access = (!access.is_minimal()).then(|| access.encode_disk());
    let is_dir = new.file_type == FileType::Directory;
    let default = is_dir.then(|| default.encode_disk());
    let lists = [(AclKind::Access, access), (AclKind::Default, default)];
    let lists = lists
        .into_iter()
        .filter_map(|(kind, list)| Some((kind.stored_name(), list?)));
    let values: Vec<_> = content.into_iter().chain(lists).collect();
    Ok(Inherited {
        permissions,
        xattrs: xattr::fresh(fs, region, &values)?,
    })
}

/// The access list that comes from `default` when `asked` permissions are asked for, and the
/// permissions that go with it.
fn cut(default: &Acl, asked: u16) -> (Vec<AclEntry>, u16) {
    let mut entries = default.entries().to_vec();
    let masked = entries.iter().any(|entry| entry.who == AclWho::Mask);
    let mut bits = 0;
    for entry in &mut entries {
        let shift = match entry.who {
            AclWho::Owner => 6,
            AclWho::Mask => 3,
            AclWho::Group if !masked => 3,
            AclWho::Other => 0,
            _ => continue,
        };
        let left = u16::from(entry.permissions) & (asked >> shift) & 7;
        bits |= left << shift;
        entry.permissions = match left {
            0..=7 => left as u8,
            _ => 7,
        };
    }
    (entries, (asked & !0o777) | bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(who: AclWho, permissions: u8) -> AclEntry {
        AclEntry { who, permissions }
    }

    #[test]
    fn a_default_list_is_cut_to_what_is_asked_for() {
        let plain = Acl::new(vec![
            entry(AclWho::Owner, 7),
            entry(AclWho::Group, 7),
            entry(AclWho::Other, 5),
        ])
        .unwrap();
        let (entries, bits) = cut(&plain, 0o4642);
        assert_eq!(bits, 0o4640);
        let left: Vec<u8> = entries.iter().map(|e| e.permissions).collect();
        assert_eq!(left, [6, 4, 0]);

        let masked = Acl::new(vec![
            entry(AclWho::Owner, 7),
            entry(AclWho::User(5), 7),
            entry(AclWho::Group, 7),
            entry(AclWho::Mask, 6),
            entry(AclWho::Other, 4),
        ])
        .unwrap();
        let (entries, bits) = cut(&masked, 0o755);
        assert_eq!(bits, 0o744);
        let left: Vec<u8> = entries.iter().map(|e| e.permissions).collect();
        assert_eq!(left, [7, 7, 7, 4, 4]);
    }
}
