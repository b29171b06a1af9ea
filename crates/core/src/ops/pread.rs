//! `pread` of a file that may change meanwhile.

use super::accessed::accessed;
use crate::fs::Fs;
use crate::inode::Held;
use crate::{Result, data};

/// Reads from byte `offset` of a regular file; short only at its end, 0 past it. Blocks that
/// somebody takes away meanwhile stay until the read is done.
///
/// # Errors
/// As for [`data::read_at`].
pub fn pread(fs: &Fs, file: &Held, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let read = data::read_live(fs, file, offset, buf)?;
    accessed(fs, file);
    Ok(read)
}

/// Reads past memory, as after opening with `O_DIRECT`.
///
/// # Errors
/// As for [`data::read_direct`].
pub fn pread_direct(fs: &Fs, file: &Held, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let read = data::read_direct(fs, file, offset, buf)?;
    accessed(fs, file);
    Ok(read)
}
