//! Access control lists.

use super::areas::Areas;
use super::value;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::{InPlace, Result};
use extant_format::acl::Acl;
use extant_format::xattr::{AttributeName, name};
use std::ops::ControlFlow;

/// Which of an inode's two access control lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclKind {
    /// The one that governs access.
    Access,
    /// The one that a directory hands to what is made in it.
    Default,
}

impl AclKind {
    /// Which list an attribute of this name is.
    pub(crate) fn of(name: &AttributeName<'_>) -> Option<Self> {
        match name.index {
            name::ACL_ACCESS if name.suffix.is_empty() => Some(Self::Access),
            name::ACL_DEFAULT if name.suffix.is_empty() => Some(Self::Default),
            _ => None,
        }
    }

    /// Returns the name under which such a list is stored.
    pub(crate) fn stored_name(self) -> AttributeName<'static> {
        AttributeName {
            index: match self {
                Self::Access => name::ACL_ACCESS,
                Self::Default => name::ACL_DEFAULT,
            },
            suffix: b"",
        }
    }
}

/// Returns an access control list of an inode, or `None` if it has none and its mode bits say all.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt) when an area or the list is broken,
/// [`Error::Device`](crate::Error::Device) when the device fails.
pub fn acl(fs: &Fs, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
    Areas::of(fs, inode)?.for_each(|place, entry| {
        if AclKind::of(&entry.name) != Some(kind) {
            return Ok(ControlFlow::Continue(()));
        }
        let value = value::stored(fs, inode, place, entry)?;
        let acl = Acl::decode_disk(&value).in_place(place)?;
        Ok(ControlFlow::Break(acl))
    })
}
