//! Room for a new name in a block that exists, and which names may take it.

use super::block::{Directory, block_number};
use super::form::Form;
use super::htree::{leaf_of, major};
use super::split::pack;
use super::state::{DirState, Start};
use crate::fs::Handle;
use crate::{Error, InPlace, Place, Result};
use extant_format::Lblk;
use extant_format::NAME_MAX;
use extant_format::dir::{NewEntry, edit, fold_name};

/// A flag of the encoding (`s_encoding_flags`): names in casefolded directories have to be valid.
const STRICT: u16 = 1;

/// Reports an error that a change of a directory met, if it says that the file system is corrupt.
pub(super) fn report(handle: &Handle<'_>, error: &Error) {
    if error.is_corruption() {
        handle.fs().report(error);
    }
}

/// Refuses what no entry but `.` and `..` may be called.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let dots = name.is_empty() || name == b"." || name == b"..";
    if dots || name.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Err(Error::InvalidInput("a name that no file can have"));
    }
    Ok(())
}

/// Refuses a name that cannot be compared without regard to case where all must be.
pub(super) fn check_encoding(dir: &Directory<'_>, name: &[u8]) -> Result<()> {
    let is_strict = || {
        let encoding = dir.fs.superblock().encoding();
        encoding.is_some_and(|(_, flags)| flags & STRICT != 0)
    };
    if dir.is_casefolded() && is_strict() && fold_name(name).is_none() {
        Err(Error::InvalidInput(
            "a name that is not UTF-8, which casefolded directories of this file system do not take",
        ))
    } else {
        Ok(())
    }
}

/// Puts the entry into a block that has room for it; `false` if it has to be made. The caller holds
/// the lock of the index, shared or not.
pub(super) fn try_insert(
    handle: &Handle<'_>,
    state: &DirState,
    dir: &Directory<'_>,
    form: Form,
    entry: &NewEntry<'_>,
) -> Result<bool> {
    match form {
        Form::Indexed => {
            let leaf = leaf_of(dir, |hasher| major(hasher, entry.name));
            let leaf = leaf.map_err(super::htree::Fault::into_error)?;
            insert_into(handle, state, dir, leaf.lblk, entry, true)
        }
        Form::One(_) => insert_into(handle, state, dir, Lblk::new(0), entry, true),
        Form::Linear => {
            let need = dir.layout.min_rec_len(entry.name);
            for at in 0..dir.blocks() {
                let lblk = block_number(at)?;
                let room = dir
                    .with_block(lblk, |block| edit::find_room(block, &dir.layout, need))?
                    .ok_or_else(|| dir.hole(lblk))?
                    .in_place(Place::FileBlock(dir.inode.ino(), lblk))?;
                if room.is_some() && insert_into(handle, state, dir, lblk, entry, false)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Puts the entry into this block, if there is room. Other entries move only if they may: where
/// listings go by hash.
fn insert_into(
    handle: &Handle<'_>,
    state: &DirState,
    dir: &Directory<'_>,
    lblk: Lblk,
    entry: &NewEntry<'_>,
    may_move: bool,
) -> Result<bool> {
    let place = Place::FileBlock(dir.inode.ino(), lblk);
    let mut block = dir.lock_leaf(state, lblk)?;
    let need = dir.layout.min_rec_len(entry.name);
    let from = Start::unpack(block.note()).of(need);
    let room = edit::find_room_from(&block, &dir.layout, need, from).in_place(place)?;
    if let Some(room) = room {
        handle.edit_locked(&mut block, dir.leaf_seal(), |bytes| {
            let fits = edit::insert(bytes, &dir.layout, &room, entry);
            debug_assert!(fits, "there was room");
        })?;
        let at = room.entry_at();
        block.set_note(Start { at, need }.pack());
        return Ok(true);
    }
    let may_move = may_move && edit::slack(&block, &dir.layout).in_place(place)? >= need;
    let packed = if may_move {
        pack(&block, &dir.layout, entry).in_place(place)?
    } else {
        None
    };
    if let Some(packed) = &packed {
        handle.edit_locked(&mut block, dir.leaf_seal(), |bytes| {
            bytes.copy_from_slice(packed)
        })?;
        block.set_note(Start::default().pack());
    }
    Ok(packed.is_some())
}
