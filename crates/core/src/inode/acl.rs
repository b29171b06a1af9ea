//! Access control lists that a new inode gets from its directory.
//!
//! As POSIX.1e drafts and Linux do: a default list of the directory becomes the access list of what is
//! made in it, cut to the permissions that were asked for, and the umask means nothing then. A
//! directory also takes the default list over as its own.

use super::{Inode, NewInode};
use crate::fs::Fs;
use crate::inode::FileType;
use crate::xattr::{self, AclKind};
use crate::{Error, InPlace, Place, Result};
use extant_format::acl::{Acl, AclEntry, AclWho};
use extant_format::xattr::{
    Attribute, AttributeName, NewValue, encode_in_inode, name, space_in_inode,
};

/// What a new inode gets.
pub(super) struct Inherited {
    /// The permissions of the mode, set-id and sticky bits included.
    pub(super) permissions: u16,
    /// The part of the record that holds attributes; empty without.
    pub(super) xattrs: Box<[u8]>,
}

/// What `new` gets from `parent`, `region` bytes of its record being there for attributes.
///
/// # Errors
/// [`Error::Unsupported`] when the lists do not fit there; those of reading the parent's attributes.
pub(super) fn inherit(fs: &Fs, parent: &Inode, new: &NewInode, region: usize) -> Result<Inherited> {
    let without = Inherited {
        permissions: new.permissions & !new.umask,
        xattrs: Box::default(),
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
    let lists = [(name::ACL_ACCESS, &access), (name::ACL_DEFAULT, &default)];
    let attributes: Vec<Attribute<'_>> = lists
        .into_iter()
        .filter_map(|(index, list)| {
            Some(Attribute {
                name: AttributeName { index, suffix: b"" },
                value: NewValue::Bytes(list.as_ref()?),
            })
        })
        .collect();
    let mut xattrs = Vec::new();
    if space_in_inode(&attributes) > 0 {
        xattrs.resize(region, 0);
        if !encode_in_inode(&mut xattrs, &attributes) {
            return Err(Error::Unsupported {
                features: "inherited access control lists larger than the inode".to_owned(),
            });
        }
    }
    Ok(Inherited {
        permissions,
        xattrs: xattrs.into_boxed_slice(),
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
