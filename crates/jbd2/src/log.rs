//! An opened journal: its superblock, and reading its blocks.

use crate::ahead::Ahead;
use crate::map::LogMap;
use crate::recovery::{self, Recovery};
use crate::{JournalError, JournalResult, LogRun};
use extant_blockdev::BlockDevice;
use extant_format::jbd2::{JournalSuperblock, LogArea, LogFormat};
use extant_format::{BlockSize, Pblk};
use std::cell::RefCell;

/// An opened journal.
#[derive(Debug)]
pub struct Log<'d> {
    device: &'d dyn BlockDevice,
    map: LogMap,
    superblock: JournalSuperblock,
    /// What was read ahead, where each request to the device takes a round trip.
    ahead: Option<RefCell<Ahead>>,
}

impl<'d> Log<'d> {
    /// Opens the journal whose blocks lie at `runs` (sorted by journal block, without gaps) of a
    /// file system with blocks of `block_size` that starts at byte 0 of `device`.
    ///
    /// # Errors
    /// Runs with gaps or overlaps, a journal superblock that is not sound or does not fit the
    /// file system, a device that fails.
    pub fn open(
        device: &'d dyn BlockDevice,
        runs: &[LogRun],
        block_size: BlockSize,
    ) -> JournalResult<Self> {
        let map = LogMap::new(runs.to_vec())?;
        let superblock = read_superblock(device, &map, block_size)?;
        Ok(Self::of(device, map, superblock))
    }

    /// Opens a journal as [`Log::open`] does, whose block 0 the caller has read: `first_block` is
    /// the whole of it, or its beginning at least.
    ///
    /// # Errors
    /// Runs with gaps or overlaps, a journal superblock that is cut, not sound, or does not fit the
    /// file system.
    pub fn open_read(
        device: &'d dyn BlockDevice,
        runs: &[LogRun],
        block_size: BlockSize,
        first_block: &[u8],
    ) -> JournalResult<Self> {
        let map = LogMap::new(runs.to_vec())?;
        let superblock = parse_superblock(first_block, &map, block_size)?;
        Ok(Self::of(device, map, superblock))
    }

    fn of(device: &'d dyn BlockDevice, map: LogMap, superblock: JournalSuperblock) -> Self {
        let block_size = superblock.block_size;
        let ahead = (device.in_flight() > 1).then(|| RefCell::new(Ahead::new(block_size.len())));
        Self {
            device,
            map,
            superblock,
            ahead,
        }
    }

    /// Returns the journal superblock.
    #[must_use]
    pub fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    /// Returns whether there is nothing to replay.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.superblock.start == 0
    }

    /// Reads the log and finds the newest image of every block in it. `filesystem_blocks` is
    /// the size of the file system, the limit of where those blocks may belong. A clean log gives
    /// an empty recovery.
    ///
    /// Takes three passes over the log at most, and memory for a table of its blocks. Where each
    /// request to the device takes a round trip, parts of the log come together, and up to 64 MiB
    /// of it are kept until this is dropped.
    ///
    /// # Errors
    /// Damage in a transaction that must be replayed, fast commits with unknown features, a device
    /// that fails.
    pub fn recover(&self, filesystem_blocks: u64) -> JournalResult<Recovery> {
        recovery::recover(self, filesystem_blocks)
    }

    /// Recovers what can be had of a damaged log: the transactions up to the first that is damaged,
    /// and what is wrong with that one. What it and those after it revoke is not replayed, as far
    /// as that can be read: it may have had another use since.
    ///
    /// # Errors
    /// Fast commits with unknown features, a device that fails.
    pub fn recover_before_damage(
        &self,
        filesystem_blocks: u64,
    ) -> JournalResult<(Recovery, Option<JournalError>)> {
        recovery::recover_before_damage(self, filesystem_blocks)
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.superblock.log_format()
    }

    pub(crate) fn area(&self) -> LogArea {
        self.superblock.area()
    }

    /// Where journal block `block` lies, and how many blocks from it on lie side by side.
    pub(crate) fn locate(&self, block: u32) -> JournalResult<(Pblk, u32)> {
        self.map.locate(block)
    }

    pub(crate) fn device(&self) -> &'d dyn BlockDevice {
        self.device
    }

    pub(crate) fn map(&self) -> &LogMap {
        &self.map
    }

    /// Whether each request to the device takes a round trip.
    pub(crate) fn is_far(&self) -> bool {
        self.ahead.is_some()
    }

    /// Copies journal block `block` into `buf`, if it was read ahead.
    pub(crate) fn copy_kept(&self, block: u32, buf: &mut [u8]) -> bool {
        let Some(ahead) = &self.ahead else {
            return false;
        };
        let ahead = ahead.borrow();
        let piece = ahead.piece(block).and_then(|(first, bytes)| {
            let at = (block - first) as usize * self.superblock.block_size.len();
            bytes.get(at..at.checked_add(buf.len())?)
        });
        if let Some(bytes) = piece {
            buf.copy_from_slice(bytes);
        }
        piece.is_some()
    }

    /// Fills `window` with the piece of the log that has journal block `block`, read ahead now
    /// unless it was before. Returns its first block and how many it has; `None` where that is not
    /// done, or failed.
    fn fill_ahead(&self, block: u32, window: &mut Vec<u8>) -> Option<(u32, u32)> {
        let mut ahead = self.ahead.as_ref()?.borrow_mut();
        if ahead.piece(block).is_none() {
            ahead.read(self, block);
        }
        let (first, bytes) = ahead.piece(block)?;
        window.clear();
        window.extend_from_slice(bytes);
        let blocks = bytes.len() / self.superblock.block_size.len();
        Some((first, u32::try_from(blocks).ok()?))
    }
}

/// Reads journal blocks, a few at a time where they lie side by side.
#[derive(Debug)]
pub(crate) struct LogReader<'l> {
    log: &'l Log<'l>,
    window: Vec<u8>,
    /// Journal block at the start of the window.
    first: u32,
    /// Blocks in the window.
    len: u32,
    /// Most blocks in the window.
    limit: u32,
}

impl<'l> LogReader<'l> {
    /// A reader that fetches up to `window_bytes` at once.
    pub(crate) fn new(log: &'l Log<'_>, window_bytes: usize) -> Self {
        let limit = (window_bytes >> log.superblock.block_size.log2()).max(1) as u32;
        Self {
            log,
            window: Vec::new(),
            first: 0,
            len: 0,
            limit,
        }
    }

    /// The bytes of journal block `block`.
    pub(crate) fn block(&mut self, block: u32) -> JournalResult<&[u8]> {
        let inside = block
            .checked_sub(self.first)
            .is_some_and(|offset| offset < self.len);
        if !inside {
            self.fetch(block)?;
        }
        let size = self.log.superblock.block_size.len();
        let at = (block - self.first) as usize * size;
        self.window
            .get(at..at + size)
            .ok_or(JournalError::Mapping { block })
    }

    fn fetch(&mut self, block: u32) -> JournalResult<()> {
        if let Some((first, len)) = self.log.fill_ahead(block, &mut self.window) {
            (self.first, self.len) = (first, len);
            return Ok(());
        }
        let size = self.log.superblock.block_size;
        let (start, together) = self.log.locate(block)?;
        // Never past the end of the log: what is there has another use.
        let left = self.log.superblock.max_len.saturating_sub(block).max(1);
        let len = together.min(self.limit).min(left);
        self.len = 0;
        self.window.resize(len as usize * size.len(), 0);
        read_bytes(self.log.device, size, start, block, &mut self.window)?;
        self.first = block;
        self.len = len;
        Ok(())
    }
}

/// The superblock in journal block 0, if it is sound and fits the file system and the runs.
fn read_superblock(
    device: &dyn BlockDevice,
    map: &LogMap,
    block_size: BlockSize,
) -> JournalResult<JournalSuperblock> {
    let mut record = [0; JournalSuperblock::LEN];
    let (start, _) = map.locate(0)?;
    read_bytes(device, block_size, start, 0, &mut record)?;
    parse_superblock(&record, map, block_size)
}

/// The superblock in `record`, if it is sound and fits the file system and the runs.
pub(crate) fn parse_superblock(
    record: &[u8],
    map: &LogMap,
    block_size: BlockSize,
) -> JournalResult<JournalSuperblock> {
    let superblock = JournalSuperblock::parse(record)?;
    if superblock.block_size != block_size {
        return Err(JournalError::BlockSize {
            journal: superblock.block_size,
            filesystem: block_size,
        });
    }
    if superblock.max_len > map.len() {
        return Err(JournalError::TooShort {
            mapped: map.len(),
            needed: superblock.max_len,
        });
    }
    Ok(superblock)
}

fn read_bytes(
    device: &dyn BlockDevice,
    size: BlockSize,
    start: Pblk,
    block: u32,
    buf: &mut [u8],
) -> JournalResult<()> {
    let offset = size
        .offset_of(start)
        .ok_or(JournalError::Mapping { block })?;
    device
        .read_at(offset, buf)
        .map_err(|source| JournalError::Device { block, source })
}
