//! The end of an open file.

use crate::Result;
use crate::fs::Fs;
use crate::inode::Held;

/// Gives a hold up. If it was the last one of an inode without names, the inode is deleted now.
///
/// Dropping a hold does the same, but somewhat later: at the end of the next operation that removes a
/// name, at the next `syncfs`, or in the background.
///
/// # Errors
/// When the inode cannot be deleted; it stays an orphan, out of reach, and the next one to open the file
/// system tries again.
pub fn release(fs: &Fs, held: Held) -> Result<()> {
    if held.holds() == 1 {
        // Who comes now begins anew.
        fs.drop_preallocations(&held);
    }
    drop(held);
    fs.reap()
}
