//! The end of an open file.

use crate::data::reserve::preallocation;
use crate::fs::Fs;
use crate::inode::Held;
use crate::{Result, data};

/// Gives a hold up. If it was the last one of an inode without names, the inode is deleted now.
///
/// What was written to a file after it was cut to nothing is written back: see `ops::rename` for
/// the other way in which programs replace what a file holds.
///
/// Dropping a hold does the same, but somewhat later: at the end of the next operation that removes
/// a name, at the next `syncfs`, or in the background.
///
/// # Errors
/// When the inode cannot be deleted; it stays an orphan, out of reach, and the next one to open the
/// file system tries again.
pub fn release(fs: &Fs, held: Held) -> Result<()> {
    // Deleting what is left over has time while nobody may change anything.
    let changing = fs.try_begin_change();
    let replaced = held.file_cache().is_some_and(|file| file.take_replaced());
    if replaced && changing.is_some() && held.snapshot().disk().links > 0 {
        data::write_back_early(fs, &held);
    }
    if held.holds() == 1
        && let Ok(alloc) = fs.alloc()
    {
        // The next writer begins anew. Where nobody writes, nothing is kept ready.
        preallocation::drop_all(alloc, &held);
    }
    drop(held);
    match changing {
        Some(_changing) => fs.reap(),
        None => Ok(()),
    }
}
