//! New blocks for a directory.

use super::block::Directory;
use super::form::Form;
use super::growth::Growth;
use super::room::try_insert;
use super::{convert, index, inline};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::Held;
use crate::map::MapGuard;
use crate::{Error, Result};
use extant_format::Ino;
use extant_format::dir::{DirBlockBuilder, EntryType, NewEntry};
use extant_sync::pin;

/// Gives the directory the room that an entry needs, and puts the entry there.
///
/// Most of the work is done while others may change names: the lock of the map keeps them from
/// growing the directory, so only the block that is split can have changed when the index is
/// locked, and then it is made up anew.
pub(super) fn insert(handle: &Handle<'_>, dir: &Held, entry: &NewEntry<'_>) -> Result<()> {
    let live = dir.live();
    let map = MapGuard::lock(live);
    let state = dir.dir_state();
    let names_stay = state.shared();
    let image = dir.copy();
    let (directory, form) = Directory::writable(handle.fs(), &image, state)?;
    if directory.blocks() == 0 {
        return Err(super::lookup::no_parent(dir.ino()));
    }
    let make_up = || {
        // Others may have made room while this one waited.
        if try_insert(handle, state, &directory, form, entry)? {
            return Ok(None);
        }
        let growth = match form {
            Form::Indexed => index::split(&directory, entry)?,
            Form::One(hasher) => convert::convert(&directory, &hasher, entry)?,
            Form::Linear => append(&directory, entry)?,
        };
        let taken = directory.take(&growth)?;
        Ok::<_, Error>(Some((growth, taken)))
    };
    let Some(made) = make_up()? else {
        return Ok(());
    };
    drop(names_stay);
    let names = state.exclusive();
    let (growth, taken) = if made.0.is_current(&directory) {
        made
    } else {
        // Its blocks may be the last ones.
        drop(made);
        match make_up()? {
            Some(made) => made,
            None => return Ok(()),
        }
    };
    growth.apply(handle, live, &map, &names, &directory, taken)
}

/// Makes `dir`, which has no content yet, a directory without names in `parent`.
///
/// Nobody else can reach `dir`; links are the caller's.
///
/// # Errors
/// [`Error::NoSpace`]; [`Error::Device`]. Nothing has changed then.
pub(crate) fn init(handle: &Handle<'_>, dir: &Held, parent: Ino) -> Result<()> {
    if dir.image(&pin()).is_inline() {
        return inline::init(handle, dir, parent);
    }
    let live = dir.live();
    let map = MapGuard::lock(live);
    let state = dir.dir_state();
    let names = state.exclusive();
    let image = dir.copy();
    let (directory, _) = Directory::writable(handle.fs(), &image, state)?;
    let dots = [
        NewEntry::new(dir.ino(), b".", EntryType::Directory),
        NewEntry::new(parent, b"..", EntryType::Directory),
    ];
    let mut growth = Growth::default();
    growth
        .created
        .push((directory.leaf_seal(), block_of(&directory, &dots)?));
    let taken = directory.take(&growth)?;
    growth.apply(handle, live, &map, &names, &directory, taken)
}

/// Blocks that [`init`] may change: the first block, the group it comes from and two more, the
/// record, the superblock.
pub(crate) fn init_credits(_fs: &Fs) -> u32 {
    1 + 3 * 3 + 2 + 3
}

/// Returns a new block at the end of a directory without an index.
fn append(dir: &Directory<'_>, entry: &NewEntry<'_>) -> Result<Growth> {
    let mut growth = Growth::default();
    growth
        .created
        .push((dir.leaf_seal(), block_of(dir, &[*entry])?));
    Ok(growth)
}

/// Returns a block of these entries, which are few enough.
fn block_of(dir: &Directory<'_>, entries: &[NewEntry<'_>]) -> Result<Box<[u8]>> {
    let mut block = dir.empty_block();
    let mut builder = DirBlockBuilder::new(&mut block, &dir.layout);
    for entry in entries {
        if !builder.push(entry) {
            return Err(Error::NameTooLong);
        }
    }
    builder.finish_unsealed();
    Ok(block)
}
