//! Another kind of map for a file or directory: `chattr +e` and `chattr -e`.

use crate::data::io::size_limit;
use crate::data::reserve::preallocation;
use crate::data::writeback::write_back;
use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::map::{MapGuard, Reshape};
use crate::{Error, Result};

/// Gives a file or directory a map of extents if it has none, otherwise one of indirect blocks, in
/// one transaction with what `also` changes of its record. The content stays where it is. `op` is
/// held exclusively.
///
/// # Errors
/// [`Error::FileTooLarge`] when indirect blocks do not reach as far as the file does; those of
/// [`Reshape::make`] and [`Reshape::store`]; what writing back finds. Nothing has changed then.
pub(crate) fn reshape(fs: &Fs, held: &Held, also: impl FnOnce(&mut Inode)) -> Result<()> {
    // What is only in memory gets its blocks first: then nobody else changes the map.
    write_back(fs, held.live())?;
    let _still = held.pages().write();
    let _quiet = held.file_cache().map(|file| {
        file.set_tail(u64::MAX);
        file.quiesce()
    });
    // They may lie where the other kind of map cannot point.
    preallocation::drop_all(fs.alloc()?, held.live());
    let reshape = Reshape::make(fs, held.live())?;
    if held.snapshot().size() > size_limit(fs, reshape.empty()) {
        return Err(Error::FileTooLarge);
    }
    let handle = fs.start(reshape.credits())?;
    let guard = MapGuard::lock(held.live());
    let store = || reshape.store(&handle, held.live(), &guard, also);
    if held.snapshot().is_dir() {
        // A search of it reads nodes that are no more.
        held.dir_state().while_moving(store)
    } else {
        store()
    }
}
