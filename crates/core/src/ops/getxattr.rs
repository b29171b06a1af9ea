//! `getxattr`.

use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::xattr::AclKind;
use crate::{Result, xattr};
use extant_format::acl::Acl;

/// The value of the attribute with this full name (`user.mime_type`).
///
/// # Errors
/// As for [`xattr::get`].
pub fn getxattr(fs: &Fs, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    xattr::get(fs, inode, name)
}

/// The same of an inode that may change meanwhile.
///
/// # Errors
/// As for [`xattr::get`].
pub fn getxattr_live(fs: &Fs, inode: &Held, name: &[u8]) -> Result<Vec<u8>> {
    let _shared = inode.op().read();
    xattr::get(fs, &inode.snapshot(), name)
}

/// An access control list of an inode that may change meanwhile.
///
/// # Errors
/// As for [`xattr::acl`].
pub fn getacl(fs: &Fs, inode: &Held, kind: AclKind) -> Result<Option<Acl>> {
    let _shared = inode.op().read();
    xattr::acl(fs, &inode.snapshot(), kind)
}
