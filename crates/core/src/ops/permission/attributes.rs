//! The namespaces of extended attributes: the right to read and to set.
//!
//! Access control lists are no part of this: everybody may read them, and the owner sets them.

use super::access::{READ, WRITE};
use super::{OpContext, STICKY};
use crate::inode::{FileType, Inode};
use crate::{Error, Result};
use extant_format::xattr::name;

impl OpContext<'_> {
    /// Refuses to read an attribute of this namespace. The inode's `op` lock is held.
    pub(in crate::ops) fn may_get_xattr(self, image: &Inode, namespace: u8) -> Result<()> {
        match namespace {
            name::TRUSTED if self.restricted().is_some() => Err(Error::NoAttribute),
            name::USER => match image.file_type() {
                FileType::Regular | FileType::Directory => self.may_access_locked(image, READ),
                _ => Err(Error::NoAttribute),
            },
            _ => Ok(()),
        }
    }

    /// Refuses to set or remove an attribute of this namespace. The inode's `op` lock is held.
    pub(in crate::ops) fn may_set_xattr(self, image: &Inode, namespace: u8) -> Result<()> {
        match namespace {
            name::TRUSTED | name::SECURITY if self.restricted().is_some() => {
                Err(Error::NotPermitted)
            }
            name::USER => {
                let disk = image.disk();
                let is_dir = image.file_type() == FileType::Directory;
                if is_dir && disk.mode.permissions() & STICKY != 0 {
                    self.must_own(image)?;
                }
                self.may_access_locked(image, WRITE)
            }
            _ => Ok(()),
        }
    }

    /// Tells whether names of this namespace are listed.
    pub(in crate::ops) fn lists_xattr(self, full_name: &[u8]) -> bool {
        self.restricted().is_none() || !full_name.starts_with(b"trusted.")
    }
}
