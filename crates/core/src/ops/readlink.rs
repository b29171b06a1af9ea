//! `readlink`.

use super::accessed::accessed_by_image;
use crate::Result;
use crate::fs::Fs;
use crate::inode::Inode;

/// Returns the target of a symbolic link, as stored.
///
/// # Errors
/// As for [`Fs::read_link`].
pub fn readlink(fs: &Fs, inode: &Inode) -> Result<Vec<u8>> {
    let target = fs.read_link(inode)?;
    accessed_by_image(fs, inode);
    Ok(target)
}
