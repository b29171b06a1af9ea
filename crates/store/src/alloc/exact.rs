//! Blocks and inodes that somebody else has chosen: a log says which, not the allocator.

use super::Alloc;
use super::Taken;
use super::share::Share;
use crate::journal::Handle;
use crate::{Error, InPlace, Place, Result};
use extant_format::{Group, Ino, Pblk, bitmap};
use extant_sync::{cpu_hint, shard_count};
use std::ops::Range;

impl Alloc {
    /// Takes those of these blocks that are free, wherever they lie; the others have owners. For a
    /// caller that is alone with the file system.
    ///
    /// # Errors
    /// [`Error::BlockOutOfRange`]; when a group is damaged or cannot be read.
    pub fn take_free_among(&self, start: Pblk, len: u32) -> Result<Vec<Taken<'_>>> {
        if !self.volume.geometry().contains(start, len.into()) {
            return Err(Error::BlockOutOfRange {
                block: start,
                blocks: self.volume.geometry().blocks_count(),
            });
        }
        let mut all = Vec::new();
        for piece in self.pieces(start, len) {
            let (group, run) = piece?;
            let mut at = run.start;
            while let Some(free) = self.take_next_free(group, at..run.end)? {
                at = free.end;
                let (first, clusters) = self.clusters_of(group, &free);
                all.push(Taken::new(self, first, clusters));
            }
        }
        Ok(all)
    }

    /// Takes the first free clusters of `run` that lie side by side.
    fn take_next_free(&self, group: Group, run: Range<u32>) -> Result<Option<Range<u32>>> {
        let (_, mut state) = self.lock_group(group)?;
        let bits = state.blocks.bits();
        let Some(first) = bitmap::next_clear(bits, run.start, run.end) else {
            return Ok(None);
        };
        let end = bitmap::next_set(bits, first, run.end).unwrap_or(run.end);
        state.take(&(first..end));
        drop(state);
        let len = end - first;
        if self.space.take(len, len, || Share::All).is_none() {
            let (_, mut state) = self.lock_group(group)?;
            state.return_taken(&(first..end));
            return Err(Error::NoSpace);
        }
        Ok(Some(first..end))
    }

    /// Marks this very inode as in use, in the transaction of `handle`, if it is free. Changes its
    /// group and the superblock.
    ///
    /// # Errors
    /// When there is no such inode, or its group is damaged or cannot be read.
    pub fn take_this_inode(&self, handle: &Handle<'_>, ino: Ino, is_dir: bool) -> Result<()> {
        let geometry = self.volume.geometry();
        let at = geometry.locate_inode(ino).in_place(Place::Inode(ino))?;
        loop {
            let (slot, loaded) = self.load_group(at.group)?;
            let Some(mut state) = slot.lock(loaded) else {
                continue;
            };
            if bitmap::test(state.inodes.bits(), at.index) {
                return Ok(());
            }
            if at.index >= state.table_sound {
                drop(state);
                self.zero_table(slot, loaded, at.index)?;
                continue;
            }
            self.touch_group(handle, at.group, loaded);
            handle.touch_superblock();
            let cpu = cpu_hint() % shard_count().max(1);
            state.take_inode(at.index, 0, is_dir, geometry, cpu);
            drop(state);
            self.free_inodes.dec();
            self.dirs.add(is_dir.into());
            return Ok(());
        }
    }
}
