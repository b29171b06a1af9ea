//! `fallocate`.

use crate::data::{self, FallocateMode};
use crate::fs::Fs;
use crate::inode::Held;
use crate::{Error, Result};

/// Reserves blocks for a range of a regular file; see [`data::fallocate`].
///
/// # Errors
/// As there.
pub fn fallocate(fs: &Fs, file: &Held, offset: u64, len: u64, mode: FallocateMode) -> Result<()> {
    if file.snapshot().is_dir() {
        return Err(Error::IsADirectory);
    }
    data::fallocate(fs, file, offset, len, mode)
}
