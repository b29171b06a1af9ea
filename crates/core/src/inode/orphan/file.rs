//! The orphan file: slots that hold the number of an orphan, or 0.
//!
//! # Protocol
//!
//! | adding | removing |
//! |---|---|
//! | take one from the block's count of free slots | register the block |
//! | register the block | empty the slot |
//! | find a slot that is 0 and put the number there, by compare-and-swap | give one to the count |
//!
//! # Invariants
//!
//! - The count of free slots never exceeds the empty slots, so whoever took one from it finds a slot
//!   in the end.
//! - A slot changes only under a handle in which its block was registered before.
//! - Threads on different CPUs begin at different blocks: while there are as many blocks as CPUs
//!   they share no cache line.

use super::Membership;
use crate::fs::Fs;
use crate::inode::{FileType, Inode, LiveInode};
use crate::journal::{Handle, Seal, Seq};
use crate::map::{Runs, Target};
use crate::meta::BlockRef;
use crate::{Error, InPlace, Place, Result};
use extant_format::features::Compat;
use extant_format::orphan_file::{OrphanBlock, block_seed, encode, slots_per_block};
use extant_format::{Expected, FormatError, Ino, Pblk, Structure};
use extant_sync::{CountedAtomicU32, FirstTouch, RmwClass, cpu_hint};
use std::collections::HashSet;
use std::sync::atomic::Ordering;

static SLOT: RmwClass = RmwClass::new("orphan file slot");
static FREE: RmwClass = RmwClass::new("orphan file free slots");

/// Largest orphan file, as under Linux: 8 MiB.
const MAX_BYTES: u64 = 8 << 20;

/// The orphan file, in memory.
#[derive(Debug)]
pub(super) struct OrphanFile {
    ino: Ino,
    generation: u32,
    blocks: Box<[SlotBlock]>,
}

/// A block of the file.
#[derive(Debug)]
struct SlotBlock {
    block: Pblk,
    slots: Slots,
    seen: FirstTouch,
}

/// The slots of one block.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[CountedAtomicU32]>,
    /// How many are empty and not promised to anybody.
    free: CountedAtomicU32,
}

/// What a block held at a commit.
#[derive(Debug)]
pub(crate) struct CapturedSlots {
    index: u32,
    slots: Vec<u32>,
}

impl OrphanFile {
    /// The orphan file of `fs`, if it has one.
    ///
    /// # Errors
    /// When the file or one of its blocks breaks the format, or the device fails.
    pub(super) fn load(fs: &Fs) -> Result<Option<Self>> {
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
        for block in addresses(fs, &inode)? {
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
    pub(super) fn orphans(&self) -> impl Iterator<Item = (u64, Ino)> + '_ {
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
            handle.touch_orphan_block(index as u32, &block.seen);
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
    pub(super) fn clear(&self, handle: &Handle<'_>, slot: u64, ino: Ino) {
        let (index, at) = split(slot);
        if let Some(block) = self.blocks.get(index as usize) {
            handle.touch_orphan_block(index, &block.seen);
            block.slots.clear(at, ino.get());
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

/// Where the blocks of the orphan file lie.
fn addresses(fs: &Fs, inode: &Inode) -> Result<Vec<Pblk>> {
    let place = Place::Inode(inode.ino());
    let wrong = |field, found, expected| {
        let source = FormatError::new(Structure::OrphanFile, field, found, expected);
        Error::corrupt(place, source)
    };
    let bytes = inode.size();
    let whole = bytes.is_multiple_of(fs.block_size().bytes().into());
    if inode.file_type() != FileType::Regular || inode.is_inline() || bytes == 0 || !whole {
        let expected = Expected::Said("whole blocks of a regular file");
        return Err(wrong("size", bytes, expected));
    }
    if bytes > MAX_BYTES {
        return Err(wrong("size", bytes, Expected::AtMost(MAX_BYTES)));
    }
    let mut blocks = Vec::new();
    let mut seen = HashSet::new();
    for run in Runs::over(fs, inode, 0..inode.size_in_blocks(fs.block_size())) {
        let run = run?;
        let Target::Written(start) = run.target else {
            let expected = Expected::Said("a written block, as the file has no holes");
            return Err(wrong("block", run.lblk.get().into(), expected));
        };
        for step in 0..run.len {
            let block = Pblk::new(start.get().saturating_add(step));
            if !seen.insert(block) {
                let expected = Expected::Said("a block that appears once");
                return Err(wrong("block", block.get(), expected));
            }
            blocks.push(block);
        }
    }
    Ok(blocks)
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
            slots: Slots::new(&values),
            seen: FirstTouch::new(),
        })
    }
}

impl Slots {
    pub(super) fn new(values: &[u32]) -> Self {
        let free = values.iter().filter(|&&value| value == 0).count();
        Self {
            slots: values
                .iter()
                .map(|&value| CountedAtomicU32::new(&SLOT, value))
                .collect(),
            free: CountedAtomicU32::new(&FREE, u32::try_from(free).unwrap_or(0)),
        }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().map(|slot| slot.load(Ordering::Acquire))
    }

    /// Takes one from the count of free slots.
    pub(super) fn reserve(&self) -> Option<Reserved<'_>> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free > 0 {
            let taken = self.free.compare_exchange_weak(
                free,
                free - 1,
                // Who sees a count that was given back also sees the empty slot.
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return Some(Reserved { slots: self }),
                Err(now) => free = now,
            }
        }
        None
    }

    /// Empties the slot at `at`, which holds `value`.
    pub(super) fn clear(&self, at: u32, value: u32) {
        let Some(slot) = self.slots.get(at as usize) else {
            return;
        };
        let cleared = slot.compare_exchange(value, 0, Ordering::AcqRel, Ordering::Relaxed);
        debug_assert!(cleared.is_ok(), "a slot holds what was put there");
        if cleared.is_ok() {
            self.free.fetch_add(1, Ordering::Release);
        }
    }
}

/// A slot that will be found empty.
pub(super) struct Reserved<'a> {
    slots: &'a Slots,
}

impl Reserved<'_> {
    /// Puts `value` into an empty slot, looking from place `near` on; returns its place.
    pub(super) fn put(self, value: u32, near: usize) -> u32 {
        let slots = &self.slots.slots;
        let mut at = near;
        loop {
            at %= slots.len().max(1);
            if let Some(slot) = slots.get(at)
                && slot.load(Ordering::Relaxed) == 0
                && slot
                    .compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return at as u32;
            }
            at += 1;
        }
    }
}

/// A slot's number among those of all blocks.
const fn join(index: u32, at: u32) -> u64 {
    (index as u64) << 32 | at as u64
}

const fn split(slot: u64) -> (u32, u32) {
    ((slot >> 32) as u32, slot as u32)
}
