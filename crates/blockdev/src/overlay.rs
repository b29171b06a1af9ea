//! A device whose blocks are partly replaced in memory.
//!
//! An image that was not closed cleanly is read through an overlay that holds the blocks its
//! journal would have written: the image itself is not touched.
//!
//! # Invariants
//! - The base device is never written.
//! - Replaced blocks are put in place before the overlay is shared (`&mut self`), so readers of
//!   them take no lock. Only blocks that are written later (see [`OverlayDevice::keep_writes`])
//!   sit behind one; they win over replaced ones.

use crate::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_sync::{LockClass, Rank, RwLock};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

static WRITES_CLASS: LockClass = LockClass::new("overlay writes", Rank::Leaf);

type Blocks = BTreeMap<u64, Box<[u8]>>;

/// A base device with some blocks replaced in memory. Refuses writes unless told to keep them.
pub struct OverlayDevice {
    base: SharedDevice,
    block_size: u64,
    replaced: Blocks,
    writes: Option<RwLock<Blocks>>,
}

impl OverlayDevice {
    /// Makes an overlay on `base` with nothing replaced yet, in blocks of `block_size` bytes.
    ///
    /// # Panics
    /// If `block_size` is zero.
    pub fn new(base: SharedDevice, block_size: u32) -> Self {
        assert!(block_size > 0, "blocks have a size");
        Self {
            base,
            block_size: u64::from(block_size),
            replaced: Blocks::new(),
            writes: None,
        }
    }

    /// Accepts writes and keeps them in memory, for as long as the overlay lives.
    #[must_use]
    pub fn keep_writes(mut self) -> Self {
        self.writes
            .get_or_insert_with(|| RwLock::new(&WRITES_CLASS, Blocks::new()));
        self
    }

    /// Replaces block number `block` (in blocks of the overlay, from the start of the device). A
    /// later replacement of the same block wins.
    ///
    /// # Errors
    /// `OutOfRange` if the block does not lie wholly on the device or `content` is not one
    /// block long.
    pub fn replace(&mut self, block: u64, content: impl Into<Box<[u8]>>) -> DeviceResult<()> {
        let content = content.into();
        let len = content.len() as u64;
        let offset = block.saturating_mul(self.block_size);
        self.check_range("replace", offset, len.max(self.block_size))?;
        if len != self.block_size {
            let (device, size) = (self.name(), self.size());
            return Err(DeviceError::OutOfRange {
                op: "replace",
                device,
                offset,
                len,
                size,
            });
        }
        self.replaced.insert(block, content);
        Ok(())
    }

    /// Returns the bytes in a block of the overlay.
    pub fn block_size(&self) -> u32 {
        u32::try_from(self.block_size).unwrap_or(u32::MAX)
    }

    /// Returns the number of blocks replaced before the overlay was shared.
    pub fn replaced_blocks(&self) -> usize {
        self.replaced.len()
    }

    /// Returns the blocks that were written since [`OverlayDevice::keep_writes`], ascending.
    pub fn written_blocks(&self) -> Vec<u64> {
        let writes = self.writes.as_ref();
        writes.map_or_else(Vec::new, |writes| writes.read().keys().copied().collect())
    }

    /// Returns the memory that replaced and written blocks hold, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let written = self.writes.as_ref().map_or(0, |writes| writes.read().len());
        (self.replaced.len() + written) as u64 * self.block_size
    }

    /// Takes out the blocks written so far, by number: the overlay is as if they had not been
    /// written.
    pub fn take_written(&self) -> BTreeMap<u64, Box<[u8]>> {
        let writes = self.writes.as_ref();
        writes.map_or_else(Blocks::new, |writes| std::mem::take(&mut *writes.write()))
    }

    /// Numbers of the blocks that a range of bytes touches.
    fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block_size..range.end.div_ceil(self.block_size)
    }

    /// Copies what `blocks` hold of the range that starts at `offset` over `buf`.
    fn patch(&self, blocks: &Blocks, offset: u64, buf: &mut [u8]) {
        let range = offset..offset + buf.len() as u64;
        for (block, content) in blocks.range(self.blocks_of(&range)) {
            let at = block * self.block_size;
            let from = at.max(range.start);
            let to = (at + self.block_size).min(range.end);
            if from < to {
                let source = &content[(from - at) as usize..(to - at) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
    }

    /// The first block of the overlay in `range`, as a range of bytes inside it.
    fn first_overlaid(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let blocks = self.blocks_of(range);
        let replaced = self
            .replaced
            .range(blocks.clone())
            .next()
            .map(|(block, _)| *block);
        let written = self
            .writes
            .as_ref()
            .and_then(|writes| writes.read().range(blocks).next().map(|(block, _)| *block));
        let first = replaced.into_iter().chain(written).min()?;
        let at = first * self.block_size;
        Some(at.max(range.start)..(at + self.block_size).min(range.end))
    }
}

impl fmt::Debug for OverlayDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayDevice")
            .field("base", &self.base)
            .field("block_size", &self.block_size)
            .field("replaced", &self.replaced.len())
            .field("keeps_writes", &self.writes.is_some())
            .finish()
    }
}

impl BlockDevice for OverlayDevice {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn is_read_only(&self) -> bool {
        self.writes.is_none()
    }

    fn name(&self) -> String {
        self.base.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.base.read_at(offset, buf)?;
        self.patch(&self.replaced, offset, buf);
        if let Some(writes) = &self.writes {
            self.patch(&writes.read(), offset, buf);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        let Some(writes) = &self.writes else {
            return Err(DeviceError::ReadOnly {
                device: self.name(),
            });
        };
        let range = offset..offset + buf.len() as u64;
        for block in self.blocks_of(&range) {
            let at = block * self.block_size;
            let whole = at..(at + self.block_size).min(self.size());
            let from = whole.start.max(range.start);
            let to = whole.end.min(range.end);
            if from >= to {
                continue;
            }
            // What lies below never changes, so it can be read before the lock is taken.
            let mut below = vec![0; self.block_size as usize].into_boxed_slice();
            if (from, to) != (whole.start, whole.end) {
                let present = &mut below[..(whole.end - at) as usize];
                self.base.read_at(at, present)?;
                self.patch(&self.replaced, at, present);
            }
            let part = &buf[(from - offset) as usize..(to - offset) as usize];
            let mut writes = writes.write();
            let content = writes.entry(block).or_insert(below);
            content[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
        }
        Ok(())
    }

    /// Does nothing: there is nothing durable about an overlay.
    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        self.base.prefetch(ranges);
    }

    fn logical_sector(&self) -> u32 {
        self.base.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.base.preferred_io()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let range = from..end.min(self.size());
        if range.is_empty() {
            return Ok(None);
        }
        let below = self.base.next_data(range.start, range.end)?;
        let here = self.first_overlaid(&range);
        Ok(match (below, here) {
            (Some(below), Some(here)) if here.start < below.start => Some(here),
            (Some(below), _) => Some(below),
            (None, here) => here,
        })
    }
}
