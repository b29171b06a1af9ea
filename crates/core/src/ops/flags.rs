//! What the flags of an inode forbid.

use crate::inode::{Held, Inode};
use crate::{Error, Result};
use extant_format::inode::InodeFlags;

/// Refuses to change the record or the attributes of a file that is immutable or only appended to.
pub(super) fn check_changeable(inode: &Held) -> Result<()> {
    check_image_changeable(&inode.copy())
}

/// The same for an image.
pub(super) fn check_image_changeable(image: &Inode) -> Result<()> {
    match image
        .flags()
        .intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
    {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}
