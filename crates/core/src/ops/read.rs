//! `pread`.

use crate::Result;
use crate::data;
use crate::fs::Fs;
use crate::inode::Inode;

/// Reads from byte `offset` of a regular file; short only at its end, 0 past it.
///
/// # Errors
/// As for [`data::read_at`].
pub fn read(fs: &Fs, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    data::read_at(fs, inode, offset, buf)
}
