//! How many values in inodes of their own an inode is charged for: each counts as one inode more
//! for its owners, whatever else has the same value.

use super::areas::Areas;
use super::own_inode::is_possible;
use crate::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use extant_format::xattr::XattrValue;
use std::ops::ControlFlow;

/// Returns the values that the attributes of an inode have in inodes of their own.
///
/// # Errors
/// When an area is broken or cannot be read.
pub(crate) fn count_values(fs: &Fs, inode: &Inode) -> Result<u16> {
    if !is_possible(fs) || !inode.may_have_attributes() {
        return Ok(0);
    }
    let mut count = 0;
    Areas::of(fs, inode)?.for_each(|_, entry| {
        count += usize::from(matches!(entry.value, XattrValue::InInode { .. }));
        Ok(ControlFlow::<()>::Continue(()))
    })?;
    Ok(as_count(count))
}

/// Returns the number as records in memory keep it: one inode and one block have entries for fewer.
pub(super) fn as_count(values: usize) -> u16 {
    u16::try_from(values).unwrap_or(u16::MAX)
}
