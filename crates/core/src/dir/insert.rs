//! New names.

use super::block::Directory;
use super::room::{check_encoding, check_name, report, try_insert};
use super::{grow, inline};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{FileType, Held, Inode};
use crate::{Error, Result, map};
use extant_format::Ino;
use extant_format::dir::htree::max_indirect_levels;
use extant_format::dir::{EntryType, NewEntry};
use extant_format::features::Incompat;
use extant_sync::pin;

/// Blocks that [`insert`] may change in the directory of this image.
pub(crate) fn insert_credits(fs: &Fs, dir: &Inode) -> u32 {
    let large_dir = fs.superblock().has_incompat(Incompat::LARGEDIR);
    let levels = u32::from(max_indirect_levels(large_dir));
    // A new leaf and a new node on each level; the old ones, and the root.
    let new = levels + 1;
    let old = levels + 2;
    new + old + map::insert_credits(dir, new) + inline::leave_credits(dir)
}

/// Gives an inode a name in `dir`.
///
/// The caller holds the lock of the name and has seen that the directory does not have it; times
/// and links are the caller's too, and can be changed after this: the directory's record is
/// registered first. Several threads insert at the same time; they wait for each other only in the
/// same block, and while one needs a new block.
///
/// # Errors
/// [`Error::InvalidInput`] and [`Error::NameTooLong`] for what cannot be a name; [`Error::NoSpace`]
/// when the directory has to grow and cannot, or its index is full; [`Error::Unsupported`] for
/// kinds of directory that are only read; [`Error::Corrupt`] and [`Error::Device`]. Nothing has
/// changed then.
pub(crate) fn insert(
    handle: &Handle<'_>,
    dir: &Held,
    name: &[u8],
    ino: Ino,
    file_type: FileType,
) -> Result<()> {
    check_name(name)?;
    handle.touch_inode(dir.live())?;
    let entry = NewEntry::new(ino, name, EntryType::of(file_type));
    insert_entry(handle, dir, &entry).inspect_err(|e| report(handle, e))
}

fn insert_entry(handle: &Handle<'_>, dir: &Held, entry: &NewEntry<'_>) -> Result<()> {
    if dir.image(&pin()).is_encrypted() {
        return Err(Error::Encrypted);
    }
    if dir.image(&pin()).is_inline() {
        if inline::insert(handle, dir, entry)? {
            return Ok(());
        }
        inline::leave(handle, dir)?;
    }
    let state = dir.dir_state();
    {
        let _names_stay = state.shared();
        let image = dir.copy();
        let (directory, form) = Directory::writable(handle.fs(), &image, state)?;
        check_encoding(&directory, entry.name)?;
        if try_insert(handle, state, &directory, form, entry)? {
            return Ok(());
        }
    }
    grow::insert(handle, dir, entry)
}
