//! Searching indirect maps.

use super::{Mapping, Target, check_node_owned};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Error, InPlace, Place, Result};
use extant_format::indirect::{DIRECT, IndirectPath, check_pointer, pointer, pointers_per_block};
use extant_format::{Expected, FormatError, Ino, Lblk, Pblk, Structure};

pub(super) fn lookup(fs: &Fs, inode: &Inode, lblk: Lblk) -> Result<Mapping> {
    Ok(answer(fs, inode, lblk)?.0)
}

/// Returns the run that begins at `lblk`, and whether it is the first of a node of pointers to
/// data: a walk counts those, as an empty one may hang in many places.
pub(super) fn answer(fs: &Fs, inode: &Inode, lblk: Lblk) -> Result<(Mapping, bool)> {
    let block_size = fs.block_size();
    let Some(path) = IndirectPath::to(lblk, block_size) else {
        // Past what the map reaches nothing can be stored.
        return Ok((hole(lblk, (1 << 32) - u64::from(lblk.get())), false));
    };
    let physical = fs.physical();
    let map = &inode.disk().map[..];
    let mut place = Place::Inode(inode.ino());
    if path.levels() == 0 {
        let run = run(map, path.root(), DIRECT as usize, lblk, fs, place)?;
        return Ok((run, false));
    }
    let mut at = path.root();
    let mut parent = pointer(map, at);
    for (step, &offset) in path.steps().iter().enumerate() {
        let Some(block) = check_pointer(parent, at, &physical).in_place(place)? else {
            return Ok((hole(lblk, path.hole_len(step, block_size)), false));
        };
        check_node_owned(fs, inode, block)?;
        place = Place::InodeBlock(inode.ino(), block);
        let what = Structure::IndirectBlock;
        let bytes = fs.metadata(block, place, what, Some(inode.ino()), |_| Ok(()))?;
        at = offset as usize;
        if step + 1 == path.levels() {
            let end = pointers_per_block(block_size) as usize;
            let run = run(&bytes, at, end, lblk, fs, place)?;
            return Ok((run, at == 0));
        }
        parent = pointer(&bytes, at);
    }
    // Not reached: the last step has returned.
    Ok((hole(lblk, 1), false))
}

/// Returns the error for a node that a map names more than once.
pub(super) fn named_twice(ino: Ino, block: Pblk) -> Error {
    let expected = Expected::Said("a block that the map names once");
    let what = Structure::IndirectBlock;
    let source = FormatError::new(what, "pointer", block.get(), expected);
    Error::corrupt(Place::InodeBlock(ino, block), source)
}

fn hole(lblk: Lblk, len: u64) -> Mapping {
    Mapping {
        lblk,
        len: len.max(1),
        target: Target::Hole,
    }
}

/// Returns the run of pointers from `at` on, which continue each other, up to the pointer at `end`.
fn run(block: &[u8], at: usize, end: usize, lblk: Lblk, fs: &Fs, place: Place) -> Result<Mapping> {
    let first = pointer(block, at);
    let physical = fs.physical();
    let target = match check_pointer(first, at, &physical).in_place(place)? {
        Some(pblk) => Target::Written(pblk),
        None => Target::Hole,
    };
    let mut len = 1;
    for i in at + 1..end {
        let expected = match target {
            Target::Hole => 0,
            _ => u64::from(first) + len,
        };
        let next = u64::from(pointer(block, i));
        if next != expected || (next != 0 && !physical.contains(&next)) {
            break;
        }
        len += 1;
    }
    Ok(Mapping { lblk, len, target })
}
