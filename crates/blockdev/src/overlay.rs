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
//! - A block lies wholly on the spool before it is said to lie there. The spool is never read or
//!   written under the lock of the blocks.

use crate::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_sync::{LockClass, Mutex, Rank, RwLock};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

static WRITES_CLASS: LockClass = LockClass::new("overlay writes", Rank::Leaf);
static SPOOLING_CLASS: LockClass = LockClass::new("overlay spool", Rank::ImageFormat);

type Blocks = BTreeMap<u64, Box<[u8]>>;

/// Blocks that were written.
#[derive(Default)]
struct Written {
    blocks: BTreeMap<u64, Kept>,
    /// How many of them are in memory.
    in_memory: usize,
}

/// Where a block is that was written.
enum Kept {
    Here(Box<[u8]>),
    /// On the spool, at the byte where it lies on the base device.
    Spooled,
}

/// Where blocks go that memory has no room for.
struct Spool {
    device: SharedDevice,
    /// Blocks that are kept in memory before.
    most: usize,
    /// Held while a block is put there that was not written before: two threads that write parts
    /// of it put it there once.
    turn: Mutex<()>,
}

/// A base device with some blocks replaced in memory. Refuses writes unless told to keep them.
pub struct OverlayDevice {
    base: SharedDevice,
    block_size: u64,
    replaced: Blocks,
    writes: Option<RwLock<Written>>,
    spool: Option<Spool>,
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
            spool: None,
        }
    }

    /// Accepts writes and keeps them in memory, for as long as the overlay lives.
    #[must_use]
    pub fn keep_writes(mut self) -> Self {
        self.writes
            .get_or_insert_with(|| RwLock::new(&WRITES_CLASS, Written::default()));
        self
    }

    /// Accepts writes, of which at most `memory` bytes are kept in memory: further blocks go to
    /// `spool`, to the bytes where they lie on the base device, and cost some tens of bytes each.
    ///
    /// # Errors
    /// `ReadOnly` or `OutOfRange` when the spool cannot be written to as far as the base reaches.
    pub fn spill_writes(mut self, spool: SharedDevice, memory: u64) -> DeviceResult<Self> {
        spool.check_writable("write", 0, self.size())?;
        self.spool = Some(Spool {
            device: spool,
            most: usize::try_from(memory / self.block_size).unwrap_or(usize::MAX),
            turn: Mutex::new(&SPOOLING_CLASS, ()),
        });
        Ok(self.keep_writes())
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
        writes.map_or_else(Vec::new, |writes| {
            writes.read().blocks.keys().copied().collect()
        })
    }

    /// Returns the memory that replaced and written blocks hold, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let writes = self.writes.as_ref();
        let written = writes.map_or(0, |writes| writes.read().in_memory);
        (self.replaced.len() + written) as u64 * self.block_size
    }

    /// Takes out the blocks written so far, by number: the overlay is as if they had not been
    /// written.
    ///
    /// # Panics
    /// If some of them are on a spool: see [`OverlayDevice::spill_writes`].
    pub fn take_written(&self) -> BTreeMap<u64, Box<[u8]>> {
        let Some(writes) = &self.writes else {
            return Blocks::new();
        };
        let taken = std::mem::take(&mut *writes.write());
        let blocks = taken.blocks.into_iter();
        blocks
            .map(|(block, kept)| match kept {
                Kept::Here(content) => (block, content),
                Kept::Spooled => panic!("blocks on a spool stay there"),
            })
            .collect()
    }

    /// Numbers of the blocks that a range of bytes touches.
    fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block_size..range.end.div_ceil(self.block_size)
    }

    /// The bytes of a block that lie in a range.
    fn part_of(&self, block: u64, range: &Range<u64>) -> Range<u64> {
        let at = block * self.block_size;
        at.max(range.start)..(at + self.block_size).min(range.end)
    }

    /// Copies what a block holds of the range that starts at `offset` over `buf`.
    fn patch_one(&self, block: u64, content: &[u8], offset: u64, buf: &mut [u8]) {
        let part = self.part_of(block, &(offset..offset + buf.len() as u64));
        if !part.is_empty() {
            let at = block * self.block_size;
            let source = &content[(part.start - at) as usize..(part.end - at) as usize];
            buf[(part.start - offset) as usize..(part.end - offset) as usize]
                .copy_from_slice(source);
        }
    }

    /// Copies what was replaced of the range that starts at `offset` over `buf`.
    fn patch_replaced(&self, offset: u64, buf: &mut [u8]) {
        let range = offset..offset + buf.len() as u64;
        for (block, content) in self.replaced.range(self.blocks_of(&range)) {
            self.patch_one(*block, content, offset, buf);
        }
    }

    /// Copies what was written of the range that starts at `offset` over `buf`.
    fn patch_written(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let Some(writes) = &self.writes else {
            return Ok(());
        };
        let range = offset..offset + buf.len() as u64;
        let mut spooled = Vec::new();
        for (block, kept) in writes.read().blocks.range(self.blocks_of(&range)) {
            match kept {
                Kept::Here(content) => self.patch_one(*block, content, offset, buf),
                Kept::Spooled => spooled.push(*block),
            }
        }
        let Some(spool) = &self.spool else {
            return Ok(());
        };
        for block in spooled {
            let part = self.part_of(block, &range);
            let bytes = (part.start - offset) as usize..(part.end - offset) as usize;
            spool.device.read_at(part.start, &mut buf[bytes])?;
        }
        Ok(())
    }

    /// Writes `part`, the bytes from `from` on of a block whose bytes on the device are `whole`.
    fn write_block(
        &self,
        writes: &RwLock<Written>,
        block: u64,
        whole: &Range<u64>,
        from: u64,
        part: &[u8],
    ) -> DeviceResult<()> {
        let at = whole.start;
        let inside = (from - at) as usize..(from - at) as usize + part.len();
        {
            let mut writes = writes.write();
            match writes.blocks.get_mut(&block) {
                Some(Kept::Here(content)) => {
                    content[inside].copy_from_slice(part);
                    return Ok(());
                }
                Some(Kept::Spooled) | None => {}
            }
        }
        // What lies below never changes, so it can be read without the lock.
        let mut below = vec![0; self.block_size as usize].into_boxed_slice();
        if part.len() as u64 != whole.end - whole.start {
            let present = &mut below[..(whole.end - at) as usize];
            self.base.read_at(at, present)?;
            self.patch_replaced(at, present);
        }
        {
            let mut writes = writes.write();
            let is_full = self
                .spool
                .as_ref()
                .is_some_and(|spool| writes.in_memory >= spool.most);
            match writes.blocks.get_mut(&block) {
                Some(Kept::Here(content)) => {
                    content[inside].copy_from_slice(part);
                    return Ok(());
                }
                None if !is_full => {
                    below[inside].copy_from_slice(part);
                    writes.blocks.insert(block, Kept::Here(below));
                    writes.in_memory += 1;
                    return Ok(());
                }
                Some(Kept::Spooled) | None => {}
            }
        }
        let Some(spool) = &self.spool else {
            return Ok(());
        };
        let _turn = spool.turn.lock();
        let is_there = match writes.write().blocks.get_mut(&block) {
            Some(Kept::Here(content)) => {
                content[inside].copy_from_slice(part);
                return Ok(());
            }
            Some(Kept::Spooled) => true,
            None => false,
        };
        if is_there {
            return spool.device.write_at(from, part);
        }
        below[inside].copy_from_slice(part);
        let present = &below[..(whole.end - at) as usize];
        spool.device.write_at(at, present)?;
        writes.write().blocks.insert(block, Kept::Spooled);
        Ok(())
    }

    /// The first block of the overlay in `range`, as a range of bytes inside it.
    fn first_overlaid(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let blocks = self.blocks_of(range);
        let replaced = self
            .replaced
            .range(blocks.clone())
            .next()
            .map(|(block, _)| *block);
        let written = self.writes.as_ref().and_then(|writes| {
            let writes = writes.read();
            writes.blocks.range(blocks).next().map(|(block, _)| *block)
        });
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
        self.patch_replaced(offset, buf);
        self.patch_written(offset, buf)
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
            let part = &buf[(from - offset) as usize..(to - offset) as usize];
            self.write_block(writes, block, &whole, from, part)?;
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
