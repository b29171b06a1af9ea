//! What a repair has changed so far: blocks in memory over a device that is only read, and why they
//! changed.

use super::shown::Shown;
use super::whole::Whole;
use super::zeroed::Zeroed;
use crate::blockset::BlockSet;
use crate::error::{Error, Result};
use crate::survey::Survey;
use crate::{Code, Place};
use extant_blockdev::{BlockDevice, OverlayDevice, SharedDevice};
use extant_format::Ino;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_jbd2::{ReplayedBlocks, ReplayedDevice};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Most fixes with one code that are kept in full; what is beyond is only counted.
const KEPT: u64 = 1000;
/// Bytes that are copied at once.
const COPIED: usize = 1 << 20;

/// Bytes of the superblock that Linux keeps up itself: free blocks and inodes, the time of writing,
/// the state, remembered errors, the upper half of free blocks, the checksum.
const SUMS: [Range<u64>; 6] = [
    0x0c..0x14,
    0x30..0x34,
    0x3a..0x3c,
    0x158..0x15c,
    0x194..0x200,
    0x3fc..0x400,
];

/// One thing that was put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// What was wrong.
    pub code: Code,
    /// Where.
    pub place: Place,
    /// What was done about it.
    pub text: String,
}

/// One line: `link-count: inode 12: link count is 1, was 5`.
impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.code, self.place, self.text)
    }
}

/// The changes so far.
pub(super) struct Draft {
    base: SharedDevice,
    /// What is written, in steps: see [`Changes`].
    steps: Vec<Arc<OverlayDevice>>,
    /// The last of them.
    overlay: Arc<OverlayDevice>,
    /// The device with what waited in its journal, as a mount would have it.
    mounted: SharedDevice,
    block_size: u32,
    held: BTreeSet<u64>,
    first: BTreeSet<u64>,
    moves: Vec<Move>,
    fixes: Vec<Fix>,
    by_code: [u64; Code::ALL.len()],
    /// Inodes whose content may not be what it was: see [`IN_DOUBT`].
    in_doubt: BTreeSet<Ino>,
    /// What nothing new may have: fast commits that wait say what becomes of it.
    reserved: Reserved,
    /// Whether it is for writing, step by step.
    is_written: bool,
    in_use: Option<InUse>,
    /// The device below the first step, where parts of it may be zeroed before that.
    zeroed: Option<Arc<Shown<Zeroed>>>,
}

/// What was in use before anything changed.
#[derive(Clone, Debug)]
struct InUse {
    clusters: Arc<BlockSet>,
    /// The first block of the first cluster.
    first: u64,
    /// Binary logarithm of the blocks in a cluster.
    bits: u32,
}

impl InUse {
    fn has(&self, block: u64) -> bool {
        let cluster = block.saturating_sub(self.first) >> self.bits;
        self.clusters.contains(cluster)
    }
}

/// Clusters and inodes that are spoken for.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    pub(super) clusters: BlockSet,
    /// Those of each file that gets some.
    pub(super) by_file: BTreeMap<Ino, BlockSet>,
    /// Inodes that come.
    pub(super) inodes: BTreeSet<Ino>,
}

/// Bytes of blocks that are kept in memory where there is a spool.
const IN_MEMORY: u64 = 64 << 20;

/// A state of a draft to which it can be taken back.
pub(super) struct Mark {
    steps: usize,
    mounted: SharedDevice,
    held: BTreeSet<u64>,
    first: BTreeSet<u64>,
    moves: usize,
    fixes: usize,
    by_code: [u64; Code::ALL.len()],
    in_doubt: BTreeSet<Ino>,
}

/// What is mended by leaving out what makes no sense, or by a choice between two files: what the
/// file held there before the damage is not known.
const IN_DOUBT: &[Code] = &[
    Code::ExtentNode,
    Code::ExtentChecksum,
    Code::ExtentIndexStart,
    Code::ExtentMisaligned,
    Code::IndirectPointer,
    Code::BlockShared,
    Code::BlockOfMetadata,
    Code::InlineData,
    Code::MapAbandoned,
];

impl Draft {
    pub(super) fn new(base: SharedDevice, block_size: u32) -> Self {
        let overlay = OverlayDevice::new(Arc::clone(&base), block_size).keep_writes();
        Self::over(base, block_size, overlay, true)
    }

    /// A draft of which parts may be zeroed before the first step: see [`Draft::zero_first`].
    pub(super) fn that_zeroes_first(base: SharedDevice, block_size: u32) -> Self {
        let zeroed = Arc::new(Shown::new(&base, base.size(), Zeroed::new()));
        let below = Arc::clone(&zeroed) as SharedDevice;
        let overlay = OverlayDevice::new(below, block_size).keep_writes();
        Self {
            zeroed: Some(zeroed),
            ..Self::over(base, block_size, overlay, true)
        }
    }

    /// A draft that is read and never written, so that it has no steps. What it has no room for in
    /// memory goes to a spool, if there is one.
    pub(super) fn for_reading(
        base: SharedDevice,
        block_size: u32,
        spool: Option<SharedDevice>,
    ) -> Result<Self> {
        let overlay = OverlayDevice::new(Arc::clone(&base), block_size);
        let overlay = match spool {
            Some(spool) => overlay.spill_writes(spool, IN_MEMORY)?,
            None => overlay.keep_writes(),
        };
        Ok(Self::over(base, block_size, overlay, false))
    }

    fn over(base: SharedDevice, block_size: u32, overlay: OverlayDevice, is_written: bool) -> Self {
        let overlay = Arc::new(overlay);
        Self {
            mounted: Arc::clone(&base),
            base,
            steps: vec![Arc::clone(&overlay)],
            overlay,
            block_size,
            in_doubt: BTreeSet::new(),
            reserved: Reserved::default(),
            is_written,
            in_use: None,
            zeroed: None,
            held: BTreeSet::new(),
            first: BTreeSet::new(),
            moves: Vec::new(),
            fixes: Vec::new(),
            by_code: [0; Code::ALL.len()],
        }
    }

    /// The device as it is with the changes.
    pub(super) fn device(&self) -> SharedDevice {
        Arc::clone(&self.overlay) as SharedDevice
    }

    /// The device as a mount would have it before anything is mended.
    pub(super) fn mounted(&self) -> SharedDevice {
        Arc::clone(&self.mounted)
    }

    /// Takes note of what the journal held, whose blocks lie on the device.
    pub(super) fn replayed(&mut self, blocks: ReplayedBlocks) {
        let below = Arc::clone(&self.mounted);
        self.mounted = Arc::new(ReplayedDevice::with_log(
            below,
            Arc::clone(&self.base),
            blocks,
        ));
    }

    /// Takes note of how a mount would have the device.
    pub(super) fn mounted_as(&mut self, device: SharedDevice) {
        self.mounted = device;
    }

    /// Has all that changed so far written, and made durable, before anything that changes from now
    /// on: what a journal held is at home, and the journal empty.
    pub(super) fn end_step(&mut self) {
        if self.is_written {
            self.begin_step();
        }
    }

    /// Begins another step: what the device has now stays as it is, also in a repair that is only
    /// read. Returns that.
    pub(super) fn freeze(&mut self) -> SharedDevice {
        let device = self.device();
        self.begin_step();
        device
    }

    /// Keeps clusters and inodes from being given to anything new.
    pub(super) fn reserve(&mut self, reserved: Reserved) {
        self.reserved = reserved;
    }

    pub(super) fn reserved(&self) -> &Reserved {
        &self.reserved
    }

    fn begin_step(&mut self) {
        let overlay = OverlayDevice::new(self.device(), self.block_size).keep_writes();
        self.overlay = Arc::new(overlay);
        self.steps.push(Arc::clone(&self.overlay));
    }

    /// Takes note of what is in use before anything changes. What is put somewhere from now on lies
    /// elsewhere, and is written before anything that leads there.
    pub(super) fn note_in_use(&mut self, survey: &Survey) {
        let geo = &survey.volume.geo;
        self.in_use = Some(InUse {
            clusters: Arc::new(survey.used.clone()),
            first: geo.first_data_block().get(),
            bits: geo.cluster_bits(),
        });
    }

    /// The clusters that were in use before anything changed, if that was noted.
    pub(super) fn in_use(&self) -> Option<Arc<BlockSet>> {
        let in_use = self.in_use.as_ref()?;
        Some(Arc::clone(&in_use.clusters))
    }

    /// Takes note of what has changed so far.
    pub(super) fn mark(&mut self) -> Mark {
        let mark = Mark {
            steps: self.steps.len(),
            mounted: Arc::clone(&self.mounted),
            held: self.held.clone(),
            first: self.first.clone(),
            moves: self.moves.len(),
            fixes: self.fixes.len(),
            by_code: self.by_code,
            in_doubt: self.in_doubt.clone(),
        };
        self.begin_step();
        mark
    }

    /// Forgets what has changed since a mark.
    pub(super) fn back_to(&mut self, mark: Mark) {
        self.steps.truncate(mark.steps);
        if let Some(last) = self.steps.last() {
            self.overlay = Arc::clone(last);
        }
        self.mounted = mark.mounted;
        self.held = mark.held;
        self.first = mark.first;
        self.moves.truncate(mark.moves);
        self.fixes.truncate(mark.fixes);
        self.by_code = mark.by_code;
        self.in_doubt = mark.in_doubt;
    }

    /// Bytes in a block.
    pub(super) fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The blocks that were written, ascending; some may hold what they held before.
    pub(super) fn written_blocks(&self) -> Vec<u64> {
        written_blocks(&self.steps)
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.overlay.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.overlay.write_at(offset, bytes)?)
    }

    /// Has the block at this byte written only when all others are durable: that of the journal's
    /// superblock, which may say that what the journal held is no longer needed.
    pub(super) fn hold_back(&mut self, offset: u64) {
        self.held.insert(offset);
    }

    /// Has the block at this byte written, and made durable, before all others of its step: that of
    /// the journal's superblock, where what the log holds must not be replayed over what is mended.
    /// One that is held back stays so.
    pub(super) fn put_first(&mut self, offset: u64) {
        if self.held.insert(offset) {
            self.first.insert(offset);
        }
    }

    /// Has blocks of a file copied to a place that nothing uses before anything else is written.
    /// Until then a check finds what lies there now: only for what no check looks at.
    pub(super) fn copy(&mut self, from: u64, to: u64, len: u64) {
        match self.moves.last_mut() {
            Some(last) if last.from + last.len == from && last.to + last.len == to => {
                last.len += len;
            }
            _ => self.moves.push(Move { from, to, len }),
        }
    }

    /// Has whole blocks, of which nothing makes use before anything changes, zeroed on the device
    /// before the first step, in a draft that can: they take no memory. What was written to them
    /// in some step stays.
    pub(super) fn zero_first(&self, part: Range<u64>) {
        if let Some(zeroed) = &self.zeroed {
            zeroed.way().add(part);
        }
    }

    /// The primary superblock as it is with the changes so far.
    pub(super) fn superblock(&self) -> Result<Superblock> {
        let bytes = self.read(SUPERBLOCK_OFFSET, SUPERBLOCK_LEN)?;
        Superblock::parse_unverified(&bytes).map_err(|e| Error::not_ext4(&*self.device(), e))
    }

    /// Writes the primary superblock.
    pub(super) fn put_superblock(&self, sb: &Superblock) -> Result<()> {
        self.write(SUPERBLOCK_OFFSET, &sb.encode())
    }

    /// Takes note of a fix.
    pub(super) fn fix(&mut self, code: Code, place: Place, text: impl Into<String>) {
        if IN_DOUBT.contains(&code) {
            self.in_doubt.extend(place.ino);
        }
        if let Some(count) = self.by_code.get_mut(code as usize) {
            *count += 1;
            if *count <= KEPT {
                let text = text.into();
                self.fixes.push(Fix { code, place, text });
            }
        }
    }

    /// Takes note that the content of a file may not be what it was, whatever is mended.
    pub(super) fn doubt(&mut self, ino: Ino) {
        self.in_doubt.insert(ino);
    }

    /// Mends so far, also those beyond the ones kept.
    pub(super) fn count(&self) -> u64 {
        self.by_code.iter().sum()
    }

    /// Whether anything with this code was mended.
    pub(super) fn has(&self, code: Code) -> bool {
        self.by_code.get(code as usize).is_some_and(|n| *n > 0)
    }

    /// Inodes whose content may not be what it was.
    pub(super) fn in_doubt(&self) -> &BTreeSet<Ino> {
        &self.in_doubt
    }

    pub(super) fn into_parts(self) -> (Vec<Fix>, u64, Changes) {
        let count = self.count();
        let changes = Changes {
            base: self.base,
            steps: self.steps,
            overlay: self.overlay,
            block_size: self.block_size,
            held: self.held,
            first: self.first,
            moves: self.moves,
            in_use: self.in_use,
            zeroed: self.zeroed,
            whole: None,
        };
        (self.fixes, count, changes)
    }
}

/// The blocks that were written in any of some overlays, ascending.
fn written_blocks(steps: &[Arc<OverlayDevice>]) -> Vec<u64> {
    let all: BTreeSet<u64> = steps
        .iter()
        .flat_map(|step| step.written_blocks())
        .collect();
    all.into_iter().collect()
}

/// The blocks that a repair changes, with what they hold before and after.
///
/// They are written in steps, each durable before the next begins. What waits in a journal is
/// replayed by a step of its own, which ends with an empty journal: as long as a journal may be
/// replayed, nothing is written over what it holds.
#[derive(Debug)]
pub struct Changes {
    base: SharedDevice,
    /// What each step writes, over the one before it.
    steps: Vec<Arc<OverlayDevice>>,
    /// The last step.
    overlay: Arc<OverlayDevice>,
    block_size: u32,
    held: BTreeSet<u64>,
    first: BTreeSet<u64>,
    moves: Vec<Move>,
    in_use: Option<InUse>,
    /// The device below the first step, if parts of it are zeroed before that.
    zeroed: Option<Arc<Shown<Zeroed>>>,
    /// How they are made as a whole, if they are.
    whole: Option<Whole>,
}

/// Bytes of files that are copied, in whole blocks.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: u64,
    to: u64,
    len: u64,
}

/// A block that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The byte on the device where it begins.
    pub offset: u64,
    /// What it holds now.
    pub before: Vec<u8>,
    /// What it is to hold.
    pub after: Vec<u8>,
}

impl Change {
    /// The ranges of bytes that differ, from the start of the block.
    pub fn ranges(&self) -> Vec<std::ops::Range<usize>> {
        let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
        for (i, (a, b)) in self.before.iter().zip(&self.after).enumerate() {
            if a == b {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == i => last.end += 1,
                _ => ranges.push(i..i + 1),
            }
        }
        ranges
    }
}

/// The blocks of some that two devices have not in common.
fn differing<'a>(
    blocks: impl Iterator<Item = u64> + 'a,
    block_size: u32,
    before: &'a dyn BlockDevice,
    after: &'a dyn BlockDevice,
) -> impl Iterator<Item = Result<Change>> + 'a {
    let size = u64::from(block_size);
    let changes = blocks.map(move |block| {
        let offset = block * size;
        let len = size.min(before.size().saturating_sub(offset)) as usize;
        let mut change = Change {
            offset,
            before: vec![0; len],
            after: vec![0; len],
        };
        before.read_at(offset, &mut change.before)?;
        after.read_at(offset, &mut change.after)?;
        Ok(change)
    });
    changes.filter(|change: &Result<Change>| {
        let is_same = |change: &Change| change.before == change.after;
        !change.as_ref().is_ok_and(is_same)
    })
}

impl Changes {
    /// Bytes in a block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// All blocks that hold something else when all is written, ascending, read one at a time.
    ///
    /// # Errors
    /// Of the device, in the place of a block.
    pub fn iter(&self) -> impl Iterator<Item = Result<Change>> + '_ {
        let blocks = self.blocks(written_blocks(&self.steps));
        differing(blocks, self.block_size, &*self.base, &*self.overlay)
    }

    /// Returns the memory that the content of changed blocks takes, in bytes. Blocks that were
    /// never used, and are zeroed before all else is written, take none.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.memory_bytes()).sum()
    }

    /// Some blocks that are written, ascending, and those that are zeroed before, each once.
    fn blocks(&self, written: Vec<u64>) -> impl Iterator<Item = u64> + use<> {
        let size = u64::from(self.block_size).max(1);
        let zeroed = self.zeroed_first().into_iter();
        let zeroed = zeroed.flat_map(move |part| part.start / size..part.end.div_ceil(size));
        let (mut written, mut zeroed) = (written.into_iter().peekable(), zeroed.peekable());
        std::iter::from_fn(move || match (written.peek(), zeroed.peek()) {
            (Some(first), Some(second)) if first > second => zeroed.next(),
            (Some(first), Some(second)) => {
                if first == second {
                    zeroed.next();
                }
                written.next()
            }
            (Some(_), None) => written.next(),
            (None, _) => zeroed.next(),
        })
    }

    /// The parts of the device that are zeroed before the first step, in bytes, ascending.
    fn zeroed_first(&self) -> Vec<Range<u64>> {
        let zeroed = self.zeroed.as_ref();
        zeroed.map_or_else(Vec::new, |zeroed| zeroed.way().parts())
    }

    /// Whether a block is zeroed before the first step.
    pub(super) fn is_zeroed_first(&self, offset: u64) -> bool {
        let zeroed = self.zeroed.as_ref();
        zeroed.is_some_and(|zeroed| !zeroed.way().parts_of(&(offset..offset + 1)).is_empty())
    }

    /// Zeroes what is to be zero before the first step, and makes that durable.
    pub(super) fn zero_parts(&self) -> Result<()> {
        let size = self.block_size.max(1) as usize;
        let mut buf = vec![0; COPIED.next_multiple_of(size)];
        let mut is_written = false;
        for part in self.zeroed_first() {
            let mut at = part.start;
            while at < part.end {
                let len = (part.end - at).min(buf.len() as u64) as usize;
                let bytes = buf.get_mut(..len).unwrap_or_default();
                self.base.read_at(at, bytes)?;
                let first = bytes.iter().position(|byte| *byte != 0);
                let last = bytes.iter().rposition(|byte| *byte != 0);
                if let (Some(first), Some(last)) = (first, last) {
                    let start = first / size * size;
                    let end = (last + 1).next_multiple_of(size).min(len);
                    let zeros = bytes.get_mut(start..end).unwrap_or_default();
                    zeros.fill(0);
                    self.base.write_at(at + start as u64, zeros)?;
                    is_written = true;
                }
                at += len as u64;
            }
        }
        if is_written {
            self.base.flush()?;
        }
        Ok(())
    }

    /// Has the changes of a sound file system made as a whole, where that is possible. `survey` is
    /// of the file system afterwards.
    pub(super) fn make_whole(&mut self, survey: &Survey) -> Result<()> {
        self.whole = Whole::of(self, survey)?;
        Ok(())
    }

    /// How they are made as a whole, if they are.
    pub(super) fn whole(&self) -> Option<&Whole> {
        self.whole.as_ref()
    }

    /// The clusters that were in use before anything changed, if that was noted.
    pub(super) fn in_use(&self) -> Option<&BlockSet> {
        self.in_use.as_ref().map(|in_use| &*in_use.clusters)
    }

    /// Blocks that hold something else when all is written, ascending, once what is zeroed before
    /// the first step is.
    pub(super) fn over_zeros(&self) -> impl Iterator<Item = Result<Change>> + '_ {
        let blocks = written_blocks(&self.steps).into_iter();
        differing(blocks, self.block_size, self.below(), &*self.overlay)
    }

    /// What the first step lies over.
    fn below(&self) -> &dyn BlockDevice {
        let zeroed = self.zeroed.as_ref();
        zeroed.map_or(&*self.base, |zeroed| &**zeroed as &dyn BlockDevice)
    }

    /// What the block that begins at a byte holds when all is written.
    pub(super) fn content(&self, offset: u64) -> Result<Vec<u8>> {
        let len = u64::from(self.block_size).min(self.base.size().saturating_sub(offset));
        let mut bytes = vec![0; len as usize];
        self.overlay.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// How many steps there are.
    pub(super) fn steps_count(&self) -> usize {
        self.steps.len()
    }

    /// Whether a step changes nothing.
    pub(super) fn is_idle(&self, index: usize) -> bool {
        self.step_of(index, &|_| true).next().is_none()
    }

    /// What one step writes of some blocks, by the byte at which they begin, from what the steps
    /// before it left.
    pub(super) fn step_of(
        &self,
        index: usize,
        are: &dyn Fn(u64) -> bool,
    ) -> impl Iterator<Item = Result<Change>> + '_ {
        let below = index.checked_sub(1).and_then(|i| self.steps.get(i));
        let below = below.map_or(self.below(), |step| &**step as &dyn BlockDevice);
        let step = self.steps.get(index).unwrap_or(&self.overlay);
        let mut blocks = step.written_blocks();
        blocks.retain(|block| are(block * u64::from(self.block_size)));
        differing(blocks.into_iter(), self.block_size, below, &**step)
    }

    /// What `len` bytes from `offset` on hold after a step.
    pub(super) fn after_step(&self, index: usize, offset: u64, len: usize) -> Result<Vec<u8>> {
        let step = self.steps.get(index).unwrap_or(&self.overlay);
        let mut bytes = vec![0; len];
        step.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes at which blocks begin that are written in some step or zeroed before, or that the
    /// log takes where all is made as a whole, and that of the primary superblock, which is always.
    pub(super) fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let size = u64::from(self.block_size);
        let mut blocks: BTreeSet<u64> = written_blocks(&self.steps).into_iter().collect();
        let log = self.whole.iter().flat_map(Whole::log);
        blocks.extend(log.map(|offset| offset / size.max(1)));
        blocks.insert(SUPERBLOCK_OFFSET / size.max(1));
        self.blocks(blocks.into_iter().collect())
            .map(move |block| block * size)
    }

    /// The bytes at which blocks begin to which content of files is copied, and those that it comes
    /// from. The first block of a journal that moves may be written in a step as well.
    pub(super) fn copies(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let size = self.block_size.max(1) as usize;
        self.moves.iter().flat_map(move |part| {
            let steps = (0..part.len).step_by(size);
            steps.map(|at| (part.to + at, part.from + at))
        })
    }

    /// Whether no block changes.
    ///
    /// # Errors
    /// Of the device.
    pub fn is_empty(&self) -> Result<bool> {
        self.iter().next().transpose().map(|first| first.is_none())
    }

    /// Whether nothing changes but sums, the state and the checksum of the primary superblock: what
    /// Linux writes there itself with every mount.
    ///
    /// # Errors
    /// Of the device.
    pub fn are_sums(&self) -> Result<bool> {
        for change in self.iter() {
            let change = change?;
            let inside = |at: usize| {
                let at = (change.offset + at as u64).checked_sub(SUPERBLOCK_OFFSET);
                at.is_some_and(|at| SUMS.iter().any(|sums| sums.contains(&at)))
            };
            if !change.ranges().into_iter().flatten().all(inside) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The device as it will be.
    #[must_use]
    pub fn device(&self) -> SharedDevice {
        Arc::clone(&self.overlay) as SharedDevice
    }

    /// Copies what files hold to where the file system will look for it. Nothing uses these places
    /// yet.
    pub(super) fn copy_contents(&self) -> Result<()> {
        let mut buf = vec![0; COPIED];
        for part in &self.moves {
            let mut done = 0;
            while done < part.len {
                let len = (part.len - done).min(COPIED as u64);
                let bytes = buf.get_mut(..len as usize).unwrap_or_default();
                self.base.read_at(part.from + done, bytes)?;
                self.base.write_at(part.to + done, bytes)?;
                done += len;
            }
        }
        if !self.moves.is_empty() {
            self.base.flush()?;
        }
        Ok(())
    }

    /// Whether a block is of a journal's superblock, which is put back when all others are.
    pub(super) fn is_put_back_last(&self, offset: u64) -> bool {
        self.held.contains(&offset)
    }

    /// Whether a block waits until all others of its step are durable.
    pub(super) fn is_held(&self, offset: u64) -> bool {
        self.held.contains(&offset) && !self.is_first(offset)
    }

    /// Whether all others of its step wait until a block is durable.
    pub(super) fn is_first(&self, offset: u64) -> bool {
        self.first.contains(&offset)
    }

    /// Whether nothing used a block before anything changed.
    pub(super) fn is_fresh(&self, offset: u64) -> bool {
        let block = offset / u64::from(self.block_size).max(1);
        let in_use = self.in_use.as_ref();
        in_use.is_some_and(|in_use| !in_use.has(block))
    }

    pub(super) fn base(&self) -> &SharedDevice {
        &self.base
    }
}
