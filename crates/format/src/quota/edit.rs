//! Setting and removing entries: which blocks change, and to what.
//!
//! Nothing is written here. An [`Edit`] gathers the new content of blocks, and the caller writes
//! all of them or none.

use super::leaf::{ENTRIES_PER_LEAF, Leaf};
use super::tree::{below, find, in_block, leaf_of};
use super::{BLOCK_LEN, DEPTH, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaInfo, ROOT, reference_at};
use crate::bytes::put;
use crate::{Expected, FormatError, Structure};
use alloc::collections::{BTreeMap, BTreeSet};

/// Blocks of the file that differ from what it has, by number.
pub type EditedBlocks = BTreeMap<u32, QuotaBlock>;

/// Changes to a quota file that are made together.
#[derive(Debug)]
pub struct Edit<'a, B> {
    under: &'a mut B,
    info: QuotaInfo,
    changed: EditedBlocks,
    /// Blocks that came from the list of those not used, which a circle would give out again.
    taken: BTreeSet<u32>,
}

impl<B: QuotaBlocks> QuotaBlocks for Edit<'_, B> {
    type Error = B::Error;

    fn read(&mut self, block: u32) -> Result<QuotaBlock, B::Error> {
        match self.changed.get(&block) {
            Some(bytes) => Ok(*bytes),
            None => self.under.read(block),
        }
    }

    fn corrupt(&self, block: u32, source: FormatError) -> B::Error {
        self.under.corrupt(block, source)
    }
}

impl<'a, B: QuotaBlocks> Edit<'a, B> {
    /// Begins to change a file with this header.
    pub fn new(under: &'a mut B, info: QuotaInfo) -> Self {
        Self {
            under,
            info,
            changed: EditedBlocks::new(),
            taken: BTreeSet::new(),
        }
    }

    /// Returns what is to be written: the header, which says how long the file has to be, is among
    /// it if anything else is.
    ///
    /// # Errors
    /// When the old header cannot be read.
    pub fn finish(mut self) -> Result<(QuotaInfo, EditedBlocks), B::Error> {
        if !self.changed.is_empty() {
            let mut header = self.under.read(0)?;
            self.info.encode(&mut header);
            self.changed.insert(0, header);
        }
        Ok((self.info, self.changed))
    }

    /// Has the header written, whatever else changes.
    ///
    /// # Errors
    /// When the old header cannot be read.
    pub fn touch_header(&mut self) -> Result<(), B::Error> {
        let header = self.under.read(0)?;
        self.changed.insert(0, header);
        Ok(())
    }

    /// Returns the entry of `id` with the changes so far, if there is one.
    ///
    /// # Errors
    /// When a block cannot be read or breaks the format.
    pub fn get(&mut self, id: u32) -> Result<Option<QuotaEntry>, B::Error> {
        let info = self.info;
        find(self, &info, id)
    }

    /// Makes `entry` the one of its id, in the place of another one if there is one. On an error,
    /// what was gathered is not to be used.
    ///
    /// # Errors
    /// When a block cannot be read or breaks the format, or the file has as many blocks as it can
    /// have.
    pub fn set(&mut self, entry: &QuotaEntry) -> Result<(), B::Error> {
        let mut block = ROOT;
        for level in 0..DEPTH {
            let at = reference_at(entry.id, level);
            let mut node = self.read(block)?;
            let next = below(self, &self.info, (block, &node), at)?;
            if next == 0 {
                let next = self.chain(level + 1, entry)?;
                put(&mut node, at, &next.to_le_bytes());
                self.changed.insert(block, node);
                return Ok(());
            }
            block = next;
        }
        let info = self.info;
        let (mut leaf, place, old) = leaf_of(self, &info, block, entry.id)?;
        if old != *entry {
            leaf.set(place, Some(entry));
            self.changed.insert(block, leaf.into_bytes());
        }
        Ok(())
    }

    /// Removes the entry of `id`; returns whether there was one. On an error, what was gathered is
    /// not to be used.
    ///
    /// # Errors
    /// When a block cannot be read or breaks the format.
    pub fn remove(&mut self, id: u32) -> Result<bool, B::Error> {
        let mut path = [(ROOT, [0; BLOCK_LEN]); DEPTH as usize];
        let mut block = ROOT;
        for (level, step) in path.iter_mut().enumerate() {
            let node = self.read(block)?;
            *step = (block, node);
            let at = reference_at(id, level as u32);
            block = below(self, &self.info, (block, &node), at)?;
            if block == 0 {
                return Ok(false);
            }
        }
        self.take_out(block, id)?;
        for (level, (block, mut node)) in path.into_iter().enumerate().rev() {
            put(&mut node, reference_at(id, level as u32), &[0; 4]);
            let is_empty = node.iter().all(|byte| *byte == 0);
            if block == ROOT || !is_empty {
                self.changed.insert(block, node);
                break;
            }
            self.give_back(block);
        }
        Ok(true)
    }

    /// Makes the part of the tree from `level` down to a new entry; returns its first block.
    fn chain(&mut self, level: u32, entry: &QuotaEntry) -> Result<u32, B::Error> {
        let mut below = self.put_in(entry)?;
        for level in (level..DEPTH).rev() {
            let block = self.take_block()?;
            let mut node = [0; BLOCK_LEN];
            put(
                &mut node,
                reference_at(entry.id, level),
                &below.to_le_bytes(),
            );
            self.changed.insert(block, node);
            below = block;
        }
        Ok(below)
    }

    /// Puts an entry into a leaf with room; returns which.
    fn put_in(&mut self, entry: &QuotaEntry) -> Result<u32, B::Error> {
        let (block, mut leaf) = match self.info.free_entry {
            0 => {
                let block = self.take_block()?;
                self.info.free_entry = block;
                (block, Leaf::EMPTY)
            }
            block => (block, self.leaf(block)?),
        };
        let place = leaf
            .free_place()
            .filter(|_| leaf.count() < ENTRIES_PER_LEAF);
        let place = place.ok_or_else(|| {
            let expected = Expected::AtMost(ENTRIES_PER_LEAF as u64 - 1);
            FormatError::new(Structure::Quota, "entries", leaf.count() as u64, expected)
        });
        let place = in_block(self, block, place)?;
        leaf.set(place, Some(entry));
        leaf.set_count(leaf.count() + 1);
        if leaf.count() == ENTRIES_PER_LEAF {
            self.unlink(block, &mut leaf)?;
        }
        self.changed.insert(block, leaf.into_bytes());
        Ok(block)
    }

    /// Takes the entry of `id` out of a leaf.
    fn take_out(&mut self, block: u32, id: u32) -> Result<(), B::Error> {
        let info = self.info;
        let (mut leaf, place, _) = leaf_of(self, &info, block, id)?;
        let was_full = leaf.count() == ENTRIES_PER_LEAF;
        let left = leaf
            .count()
            .checked_sub(1)
            .ok_or_else(|| FormatError::new(Structure::Quota, "entries", 0, Expected::AtLeast(1)));
        let left = in_block(self, block, left)?;
        leaf.set(place, None);
        leaf.set_count(left);
        if left == 0 {
            self.unlink(block, &mut leaf)?;
            self.give_back(block);
            return Ok(());
        }
        if was_full {
            self.link(block, &mut leaf)?;
        }
        self.changed.insert(block, leaf.into_bytes());
        Ok(())
    }

    fn leaf(&mut self, block: u32) -> Result<Leaf, B::Error> {
        let bytes = self.read(block)?;
        in_block(self, block, Leaf::parse(bytes, &self.info))
    }

    /// Puts a leaf in front of the list of those with room.
    fn link(&mut self, block: u32, leaf: &mut Leaf) -> Result<(), B::Error> {
        let first = self.info.free_entry;
        if first != 0 {
            let mut next = self.leaf(first)?;
            next.set_previous(block);
            self.changed.insert(first, next.into_bytes());
        }
        leaf.set_next(first);
        leaf.set_previous(0);
        self.info.free_entry = block;
        Ok(())
    }

    /// Takes a leaf off the list of those with room, if it is there.
    fn unlink(&mut self, block: u32, leaf: &mut Leaf) -> Result<(), B::Error> {
        let (next, previous) = (leaf.next(), leaf.previous());
        match previous {
            0 if self.info.free_entry == block => self.info.free_entry = next,
            // It is in no list: files that were written as a whole have such leaves.
            0 if next == 0 => return Ok(()),
            0 => {
                let found = u64::from(self.info.free_entry);
                let expected = Expected::Exactly(u64::from(block));
                let error = FormatError::new(Structure::Quota, "free_entry", found, expected);
                return Err(self.corrupt(0, error));
            }
            previous => {
                let mut before = self.leaf(previous)?;
                self.check_neighbour(previous, "next_free", before.next(), block)?;
                before.set_next(next);
                self.changed.insert(previous, before.into_bytes());
            }
        }
        if next != 0 {
            let mut after = self.leaf(next)?;
            self.check_neighbour(next, "prev_free", after.previous(), block)?;
            after.set_previous(previous);
            self.changed.insert(next, after.into_bytes());
        }
        leaf.set_next(0);
        leaf.set_previous(0);
        Ok(())
    }

    /// Refuses a list whose two directions disagree.
    fn check_neighbour(
        &self,
        neighbour: u32,
        field: &'static str,
        found: u32,
        block: u32,
    ) -> Result<(), B::Error> {
        if found == block {
            return Ok(());
        }
        let expected = Expected::Exactly(u64::from(block));
        let error = FormatError::new(Structure::Quota, field, u64::from(found), expected);
        Err(self.corrupt(neighbour, error))
    }

    /// A block that nothing uses.
    fn take_block(&mut self) -> Result<u32, B::Error> {
        if self.info.free_block != 0 {
            let block = self.info.free_block;
            self.info.free_block = self.leaf(block)?.next();
            if !self.taken.insert(block) {
                let expected = Expected::Said("a list that does not lead back to itself");
                let error =
                    FormatError::new(Structure::Quota, "free_blk", u64::from(block), expected);
                return Err(self.corrupt(0, error));
            }
            return Ok(block);
        }
        let block = self.info.blocks;
        let blocks = block.checked_add(1).ok_or_else(|| {
            let most = Expected::AtMost(u64::from(u32::MAX) - 1);
            FormatError::new(Structure::Quota, "blocks", u64::from(block), most)
        });
        self.info.blocks = in_block(self, 0, blocks)?;
        Ok(block)
    }

    /// Puts a block in front of the list of those not used.
    fn give_back(&mut self, block: u32) {
        self.taken.remove(&block);
        let mut unused = Leaf::EMPTY;
        unused.set_next(self.info.free_block);
        self.info.free_block = block;
        self.changed.insert(block, unused.into_bytes());
    }
}
