//! Taking blocks away from files mapped by indirect blocks.

use super::budget::{Allowance, Budget, Everything};
use super::indirect::named_twice;
use super::tree::store::{Charge, free, hold_groups};
use super::{MapGuard, Removed, check_node_owned};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Inode, LiveInode};
use crate::meta::BlockRef;
use crate::meta::Seal;
use crate::{InPlace, Place, Result};
use extant_format::extent::LBLK_END;
use extant_format::indirect::{
    DIRECT, ROOT_POINTERS, check_pointer, encode_pointers, encode_root, pointers,
    pointers_per_block, root_pointers,
};
use extant_format::{Pblk, Structure};
use std::ops::Range;
use std::sync::Arc;

/// A removal while it is made up.
struct Removal<'r, A> {
    fs: &'r Fs,
    inode: &'r Inode,
    range: &'r Range<u64>,
    budget: &'r mut A,
    freed: Vec<(Pblk, u32)>,
    freed_nodes: Vec<Pblk>,
    /// Blocks of pointers that lost some and keep others.
    edits: Vec<(BlockRef, Vec<u32>)>,
}

/// What a block of pointers became.
struct Outcome {
    /// Whether no pointer is left.
    empty: bool,
    /// Where the removal had to stop, below this block.
    stopped: Option<u64>,
}

/// Unmaps from an indirect map; see [`remove_keeping`](super::remove_keeping).
pub(super) fn remove<'f>(
    handle: &Handle<'f>,
    live: &Arc<LiveInode>,
    guard: &MapGuard<'_>,
    range: &Range<u64>,
    budget: &mut Budget<'_, 'f>,
) -> Result<Removed> {
    debug_assert!(guard.is_of(live), "the guard is another inode's");
    let fs = handle.fs();
    let inode = live.snapshot();
    let mut removal = Removal {
        fs,
        inode: &inode,
        range,
        budget,
        freed: Vec::new(),
        freed_nodes: Vec::new(),
        edits: Vec::new(),
    };
    let mut root = root_pointers(&inode.disk().map);
    let stopped = removal.root(&mut root)?;
    let Removal {
        freed,
        freed_nodes,
        edits,
        ..
    } = removal;
    hold_groups(handle, &freed, &freed_nodes)?;
    handle.touch_inode(live)?;
    // From here on nothing fails that could be undone.
    for (block, pointers) in &edits {
        handle.edit(block, Seal::Plain, |bytes| encode_pointers(bytes, pointers));
    }
    let lost = freed.iter().map(|&(_, len)| u64::from(len)).sum::<u64>() + freed_nodes.len() as u64;
    live.update(handle, |inode| {
        inode.disk_mut().map = encode_root(&root);
        Charge { gained: 0, lost }.apply(fs, inode);
    })?;
    free(handle, &inode, &freed, &freed, &freed_nodes)?;
    Ok(Removed::up_to(stopped))
}

/// Returns the nodes of an indirect map, in ascending order.
///
/// # Errors
/// When one is broken, is named twice or cannot be read.
pub(super) fn nodes(fs: &Fs, inode: &Inode) -> Result<Vec<Pblk>> {
    let mut removal = Removal {
        fs,
        inode,
        range: &(0..LBLK_END),
        budget: &mut Everything,
        freed: Vec::new(),
        freed_nodes: Vec::new(),
        edits: Vec::new(),
    };
    removal.root(&mut root_pointers(&inode.disk().map))?;
    let mut nodes = removal.freed_nodes;
    nodes.sort_unstable();
    let twice = nodes.windows(2).find(|pair| pair.first() == pair.last());
    match twice.and_then(|pair| pair.first()) {
        Some(&block) => Err(named_twice(inode.ino(), block)),
        None => Ok(nodes),
    }
}

impl<A: Allowance> Removal<'_, A> {
    /// Removes below the pointers in the inode, from the end. Returns where it had to stop.
    fn root(&mut self, root: &mut [u32; ROOT_POINTERS]) -> Result<Option<u64>> {
        let per_block = u64::from(pointers_per_block(self.fs.block_size()));
        let place = Place::Inode(self.inode.ino());
        // Where each of the trees begins, and how far one of its pointers reaches.
        let direct = u64::from(DIRECT);
        let double = direct + per_block;
        let triple = double + per_block * per_block;
        for (level, start) in [(3, triple), (2, double), (1, direct)] {
            let at = DIRECT as usize - 1 + level as usize;
            let last = &mut root[at..=at];
            let span = per_block.pow(level);
            let outcome = self.pointers(last, level, start, span, place)?;
            if outcome.stopped.is_some() {
                return Ok(outcome.stopped);
            }
        }
        let first = &mut root[..DIRECT as usize];
        Ok(self.pointers(first, 0, 0, 1, place)?.stopped)
    }

    /// Removes from the blocks at `pointers`, each of which maps `span` blocks through `level`
    /// levels of pointers, the first from logical block `start` on.
    fn pointers(
        &mut self,
        pointers: &mut [u32],
        level: u32,
        start: u64,
        span: u64,
        place: Place,
    ) -> Result<Outcome> {
        let mut stopped = None;
        for (i, pointer) in pointers.iter_mut().enumerate().rev() {
            let first = start + i as u64 * span;
            if first >= self.range.end {
                continue;
            }
            if first + span <= self.range.start {
                break;
            }
            let target = check_pointer(*pointer, i, &self.fs.physical()).in_place(place)?;
            let Some(block) = target else {
                continue;
            };
            let end = (first + span).min(self.range.end);
            if level == 0 {
                if self.budget.data(block, 1) == 0 {
                    stopped = Some(end);
                    break;
                }
                self.free_data(block);
                *pointer = 0;
                continue;
            }
            if !self.budget.node(block) {
                stopped = Some(end);
                break;
            }
            let outcome = self.node(block, level, first, span)?;
            if outcome.empty {
                self.freed_nodes.push(block);
                *pointer = 0;
            }
            if outcome.stopped.is_some() {
                stopped = outcome.stopped;
                break;
            }
        }
        Ok(Outcome {
            empty: pointers.iter().all(|&pointer| pointer == 0),
            stopped,
        })
    }

    /// Removes below a block of pointers.
    fn node(&mut self, block: Pblk, level: u32, start: u64, span: u64) -> Result<Outcome> {
        let place = Place::InodeBlock(self.inode.ino(), block);
        let what = Structure::IndirectBlock;
        let owner = Some(self.inode.ino());
        check_node_owned(self.fs, self.inode, block)?;
        let bytes = self.fs.metadata(block, place, what, owner, |_| Ok(()))?;
        let mut own: Vec<u32> = pointers(&bytes).collect();
        let each = span / u64::from(pointers_per_block(self.fs.block_size()));
        let outcome = self.pointers(&mut own, level - 1, start, each, place)?;
        if !outcome.empty && !own.iter().copied().eq(pointers(&bytes)) {
            self.edits.push((bytes, own));
        }
        Ok(outcome)
    }

    /// Notes a block of data, which often lies before the last one.
    fn free_data(&mut self, block: Pblk) {
        match self.freed.last_mut() {
            Some((start, len)) if start.checked_sub(1) == Some(block) => {
                *start = block;
                *len += 1;
            }
            _ => self.freed.push((block, 1)),
        }
    }
}
