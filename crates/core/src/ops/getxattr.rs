//! `getxattr`.

use super::permission::OpContext;
use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::xattr::AclKind;
use crate::{Result, xattr};
use extant_format::acl::Acl;
use extant_format::xattr::split_name;

/// Returns the value of the attribute with this full name (`user.mime_type`).
///
/// # Errors
/// As for [`xattr::get`].
pub fn getxattr(fs: &Fs, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    xattr::get(fs, inode, name)
}

/// Reads an attribute as [`getxattr`] does, of an inode that may change meanwhile.
///
/// # Errors
/// As for [`xattr::get`]; [`Error::PermissionDenied`](crate::Error::PermissionDenied) for `user.`
/// attributes of a file that may not be read. `trusted.` ones exist for user 0 only.
pub fn getxattr_live<'a>(
    ctx: impl Into<OpContext<'a>>,
    inode: &Held,
    name: &[u8],
) -> Result<Vec<u8>> {
    let ctx = ctx.into();
    let _shared = inode.op().read();
    let image = inode.snapshot();
    if let Some(stored) = split_name(name) {
        ctx.may_get_xattr(&image, stored.index)?;
    }
    xattr::get(ctx.fs(), &image, name)
}

/// Returns an access control list of an inode that may change meanwhile.
///
/// # Errors
/// As for [`xattr::acl`].
pub fn getacl(fs: &Fs, inode: &Held, kind: AclKind) -> Result<Option<Acl>> {
    let _shared = inode.op().read();
    xattr::acl(fs, &inode.snapshot(), kind)
}
