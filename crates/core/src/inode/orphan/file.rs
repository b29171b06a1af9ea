//! The orphan file: slots that hold the number of an orphan, or 0.
//!
//! Adding takes one from the block's count of free slots, registers the block, and puts the number
//! into an empty slot; removing registers the block and empties the slot. See [`SlotArray`].
//!
//! # Invariants
//!
//! - A slot changes only under a handle in which its block was registered before.
//! - Threads on different CPUs begin at different blocks: while there are as many blocks as CPUs
//!   they share no cache line.

use super::Membership;
use crate::alloc::Alloc;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Inode, LiveInode};
use crate::journal::NumberList;
use crate::meta::BlockRef;
use crate::meta::{Seal, Seq};
use crate::{Error, InPlace, Place, Result};
use extant_format::features::Compat;
use extant_format::orphan_file::{OrphanBlock, block_seed, encode, slots_per_block};
use extant_format::{Expected, FormatError, Ino, Pblk, Structure};
use extant_sync::{FirstTouch, RmwClass, SlotArray, cpu_hint};

/// The list in which handles register blocks of the orphan file.
pub(crate) const ORPHAN_BLOCKS: NumberList = NumberList::SECOND;

static SLOT: RmwClass = RmwClass::new("orphan file slot");
static FREE: RmwClass = RmwClass::new("orphan file free slots");

/// The orphan file, in memory.
#[derive(Debug)]
pub(crate) struct OrphanFile {
    ino: Ino,
    generation: u32,
    blocks: Box<[SlotBlock]>,
}

/// A block of the file. Its neighbours are used by threads on other CPUs.
#[derive(Debug)]
#[repr(align(128))]
struct SlotBlock {
    block: Pblk,
    slots: SlotArray,
    seen: FirstTouch,
}

/// What a block held at a commit.
#[derive(Debug)]
pub(crate) struct CapturedSlots {
    index: u32,
    slots: Vec<u32>,
}

impl OrphanFile {
    /// Loads the orphan file of `fs`, if it has one. `blocks_of` says where its blocks lie.
    ///
    /// # Errors
    /// When the file or one of its blocks breaks the format, or the device fails.
    pub(super) fn load(
        fs: &Fs,
        alloc: &Alloc,
        blocks_of: impl FnOnce(&Fs, &Inode) -> Result<Vec<Pblk>>,
    ) -> Result<Option<Self>> {
        if !fs.superblock().has_compat(Compat::ORPHAN_FILE) {
            return Ok(None);
        }
        let Some(ino) = fs.superblock().orphan_file_ino() else {
            let expected = Expected::Said("an inode, as there is an orphan file");
            let source = FormatError::new(Structure::Superblock, "orphan_file_inum", 0, expected);
            return Err(Error::corrupt(Place::Superblock, source));
        };
        let inode = fs.inode(ino)?;
        let generation = inode.disk().generation;
        let mut blocks = Vec::new();
        for block in blocks_of(fs, &inode)? {
            // Slots are written wherever these are.
            if let Some(kept) = alloc.first_kept(block.get()..block.get().saturating_add(1)) {
                let expected = Expected::Said("a block that is not the file system's own metadata");
                let what = Structure::OrphanFile;
                let source = FormatError::new(what, "block", kept.get(), expected);
                return Err(Error::corrupt(Place::Inode(ino), source));
            }
            blocks.push(SlotBlock::load(fs, &inode, block)?);
        }
        Ok(Some(Self {
            ino,
            generation,
            blocks: blocks.into_boxed_slice(),
        }))
    }

    /// Whether nothing is noted.
    pub(super) fn is_empty(&self) -> bool {
        self.orphans().next().is_none()
    }

    /// What is noted, with the slot. Numbers are as stored.
    pub(crate) fn orphans(&self) -> impl Iterator<Item = (u64, Ino)> + '_ {
        (0..).zip(&self.blocks).flat_map(|(index, block)| {
            let numbers = block.slots.values().zip(0..);
            numbers
                .filter(|(raw, _)| *raw != 0)
                .map(move |(raw, at)| (join(index, at), Ino::new(raw)))
        })
    }

    /// Notes an inode, which is registered. `false` when there is no room.
    pub(super) fn add(&self, handle: &Handle<'_>, live: &LiveInode) -> bool {
        let count = self.blocks.len();
        let cpu = cpu_hint();
        for step in 0..count {
            let index = (cpu + step) % count;
            let Some(block) = self.blocks.get(index) else {
                return false;
            };
            let Some(reserved) = block.slots.reserve() else {
                continue;
            };
            handle.touch_number(ORPHAN_BLOCKS, index as u32, 1, &block.seen);
            let at = reserved.put(live.ino().get(), cpu / count.max(1));
            let slot = join(index as u32, at);
            live.set_membership(Membership::File { slot });
            return true;
        }
        false
    }

    /// Takes the note in `slot` back.
    pub(super) fn remove(&self, handle: &Handle<'_>, live: &LiveInode, slot: u64) {
        self.clear(handle, slot, live.ino());
        live.set_membership(Membership::None);
    }

    /// Empties `slot`, which holds `ino`.
    pub(crate) fn clear(&self, handle: &Handle<'_>, slot: u64, ino: Ino) {
        let (index, at) = split(slot);
        if let Some(block) = self.blocks.get(index as usize) {
            handle.touch_number(ORPHAN_BLOCKS, index, 1, &block.seen);
            let held = block.slots.empty(at, ino.get());
            debug_assert!(held, "a slot holds what was put there");
        }
    }

    /// What block `index` holds now.
    pub(super) fn capture(&self, index: u32) -> Option<CapturedSlots> {
        let block = self.blocks.get(index as usize)?;
        Some(CapturedSlots {
            index,
            slots: block.slots.values().collect(),
        })
    }

    /// Makes `captured` the image of its block.
    pub(super) fn encode(&self, fs: &Fs, captured: CapturedSlots, seq: Seq) -> BlockRef {
        let block = self
            .blocks
            .get(captured.index as usize)
            .map_or(Pblk::new(0), |block| block.block);
        let seed = fs
            .checksum_seed()
            .map(|seed| block_seed(seed, self.ino, self.generation, block));
        let mut data = vec![0; fs.block_size().len()].into_boxed_slice();
        encode(&captured.slots, &mut data, seed);
        fs.cache()
            .publish_image(block, data, seq, Seal::Plain, None)
    }
}

impl SlotBlock {
    fn load(fs: &Fs, file: &Inode, block: Pblk) -> Result<Self> {
        let ino = file.ino();
        let size = fs.block_size();
        let place = Place::InodeBlock(ino, block);
        let seed = fs
            .checksum_seed()
            .map(|seed| block_seed(seed, ino, file.disk().generation, block));
        let bytes = fs.metadata(block, place, Structure::OrphanFile, Some(ino), |bytes| {
            OrphanBlock::parse(bytes, size, seed).map(|_| ())
        })?;
        let mut values = vec![0; slots_per_block(size)];
        let parsed = OrphanBlock::parse(&bytes, size, None).in_place(place)?;
        for (at, orphan) in parsed.orphans() {
            if let Some(value) = values.get_mut(at) {
                *value = orphan.get();
            }
        }
        Ok(Self {
            block,
            slots: SlotArray::new(&SLOT, &FREE, &values),
            seen: FirstTouch::new(),
        })
    }
}

/// A slot's number among those of all blocks.
const fn join(index: u32, at: u32) -> u64 {
    (index as u64) << 32 | at as u64
}

const fn split(slot: u64) -> (u32, u32) {
    ((slot >> 32) as u32, slot as u32)
}
