//! The writing side of the log: transactions are appended and committed, and the tail follows as
//! they are checkpointed.
//!
//! ```text
//! first            tail                         head                end
//! |  free ........ | live transactions ........ | free ............ |
//!                    oldest       newest, open
//! ```
//!
//! One thread uses a writer; it holds no lock and starts no thread. It knows where each live
//! transaction lies, and nothing about what is in it.
//!
//! # Order on the device
//!
//! A commit has two flushes, and everything rests on what lies before, between and behind them:
//!
//! 1. [`LogWriter::append`] writes revokes, descriptors and images. They lie in free space, so a
//!    crash finds the log as it was.
//! 2. First flush. Now they are durable, and so are the home writes of checkpointing that were
//!    completed before.
//! 3. The commit block is written, and beside it the journal superblock if it has to change: it
//!    says where a log begins that was empty until now, allows revokes, or takes the tail that
//!    [`LogWriter::queue_tail`] left. The two may reach the device in any order: a commit block
//!    that nobody finds from the superblock is a transaction that never happened, which nobody was
//!    told of yet; and a superblock that points at a transaction without commit block, an empty
//!    log.
//! 4. Second flush. The transaction is committed, and the space behind the tail free.
//!
//! # Invariants
//! - A durable tail precedes reuse. Space counts as free only when the superblock that leaves it
//!   out is durable: were it overwritten before, recovery would begin at the old tail, find a
//!   record of a much later transaction there, and take the log for empty, live transactions and
//!   all.
//! - Transactions are numbered without gaps, which is how recovery knows where the log ends.
//! - After the device failed, nothing is written any more but [`LogWriter::record_error`]: what
//!   is durable then is unknown, and the log as it was last known is what recovery must find.
//! - The log ends in front of the fast-commit area, and that is never written.

mod options;
mod transaction;

pub use options::WriterOptions;
pub use transaction::{LogImage, LogTransaction};

use crate::log::parse_superblock;
use crate::map::LogMap;
use crate::mutants::{LogMutant, is_on};
use crate::{JournalError, JournalResult, LogRun};
use extant_blockdev::{AlignedBuf, DeviceResult, Request, SharedDevice};
use extant_format::jbd2::{CommitBlock, IncompatFeatures, JournalSuperblock, LogArea, LogFormat};
use extant_format::{BlockSize, Tid};
use options::empty_superblock;
use std::collections::VecDeque;
use std::io::IoSlice;
use transaction::{Encoded, LogBlock, blocks_needed};

/// Where a transaction lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpan {
    /// The transaction.
    pub tid: Tid,
    /// Its first journal block.
    pub start: u32,
    /// Its blocks around the ring, commit block included.
    pub len: u32,
}

/// When a transaction was committed, since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitTime {
    /// Seconds.
    pub seconds: u64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitReceipt {
    /// Where the transaction lies.
    pub span: LogSpan,
    /// Flushes of the device.
    pub flushes: u32,
    /// Whether the journal superblock was written.
    pub superblock_written: bool,
    /// Blocks of the log that became free by a queued tail.
    pub freed: u32,
}

/// The transaction that was appended and waits for its commit.
#[derive(Clone, Copy, Debug)]
struct OpenTransaction {
    span: LogSpan,
    crc: Option<u32>,
    has_revokes: bool,
}

/// A journal as it was found: where its blocks lie, and the first of them.
struct Found {
    map: LogMap,
    first_block: AlignedBuf,
}

/// A log being written.
#[derive(Debug)]
pub struct LogWriter {
    device: SharedDevice,
    /// Whether each request to it took a round trip when this began.
    is_far: bool,
    map: LogMap,
    format: LogFormat,
    area: LogArea,
    /// As it is durable on the device, or will be with the first commit of a log that was empty:
    /// until then nothing of it counts but that.
    superblock: JournalSuperblock,
    /// The block that holds it; what follows the record there is kept.
    superblock_block: AlignedBuf,
    /// The journal block where the next transaction starts.
    head: u32,
    /// Blocks from the durable tail to the head.
    used: u32,
    /// The number the next transaction must have.
    next_tid: Tid,
    /// Committed transactions that the durable tail has not passed, oldest first.
    live: VecDeque<LogSpan>,
    open: Option<OpenTransaction>,
    /// The writes of that one, where each request takes a round trip: they go with its commit.
    waiting: Vec<Request>,
    /// The tail that the next commit writes: the first transaction to keep.
    queued: Option<Tid>,
    last_commit: CommitTime,
    stopped: bool,
}

impl LogWriter {
    /// Begins an empty log with transaction `first_tid` in the journal whose blocks lie at `runs`
    /// (sorted by journal block, without gaps) of a file system with blocks of `block_size` that
    /// starts at byte 0 of `device`. Writes the journal superblock, with the features the file
    /// system needs, and flushes; where the log is empty already, the first commit does so.
    ///
    /// What the log held is gone afterwards: it must be clean, or recovered and
    /// [written home](crate::Recovery::write_home). `first_tid` and `last_commit_seconds` are those
    /// of its recovery. An error recorded in the superblock stays until
    /// [`LogWriter::record_error`] replaces it.
    ///
    /// # Errors
    /// As for [`Log::open`](crate::Log::open), and features that forbid writing.
    pub fn start(
        device: SharedDevice,
        runs: Vec<LogRun>,
        block_size: BlockSize,
        first_tid: Tid,
        last_commit_seconds: u64,
        options: WriterOptions,
    ) -> JournalResult<Self> {
        let map = LogMap::new(runs)?;
        let mut first_block = AlignedBuf::zeroed(block_size.len());
        let (offset, _) = map.offset(0, block_size)?;
        on_device(0, device.read_at(offset, &mut first_block))?;
        let log = Found { map, first_block };
        Self::start_in(
            device,
            log,
            block_size,
            first_tid,
            last_commit_seconds,
            options,
        )
    }

    /// Begins an empty log as [`LogWriter::start`] does, in a journal whose block 0 the caller has
    /// read: `first_block` is that block, as it is on the device by now.
    ///
    /// # Errors
    /// `Mapping` where `first_block` is no block; otherwise as for [`LogWriter::start`].
    pub fn start_read(
        device: SharedDevice,
        runs: Vec<LogRun>,
        first_block: &[u8],
        first_tid: Tid,
        last_commit_seconds: u64,
        options: WriterOptions,
    ) -> JournalResult<Self> {
        let bytes = u32::try_from(first_block.len()).unwrap_or(u32::MAX);
        let no_block = JournalError::Mapping { block: 0 };
        let block_size = BlockSize::from_bytes(bytes).ok_or(no_block)?;
        let log = Found {
            map: LogMap::new(runs)?,
            first_block: AlignedBuf::copy_of(first_block),
        };
        Self::start_in(
            device,
            log,
            block_size,
            first_tid,
            last_commit_seconds,
            options,
        )
    }

    fn start_in(
        device: SharedDevice,
        log: Found,
        block_size: BlockSize,
        first_tid: Tid,
        last_commit_seconds: u64,
        options: WriterOptions,
    ) -> JournalResult<Self> {
        let Found { map, first_block } = log;
        let superblock_block = first_block;
        let found = parse_superblock(&superblock_block, &map, block_size)?;
        let mut superblock = empty_superblock(&found, options, first_tid)?;
        let area = superblock.area();
        let in_log = (area.first..area.end).contains(&superblock.head);
        let head = if in_log { superblock.head } else { area.first };
        if options.keeps_fast_commits {
            superblock.start = head;
        }
        let is_empty = found.start == 0 && superblock.start == 0;
        let mut writer = Self {
            is_far: device.in_flight() > 1,
            device,
            map,
            format: superblock.log_format(),
            area,
            head,
            superblock: found,
            superblock_block,
            used: 0,
            next_tid: first_tid,
            live: VecDeque::new(),
            open: None,
            waiting: Vec::new(),
            queued: None,
            last_commit: CommitTime {
                seconds: last_commit_seconds,
                nanoseconds: 0,
            },
            stopped: false,
        };
        if is_empty {
            // The device says so, and the first commit says the rest.
            writer.superblock = superblock;
        } else {
            writer.replace_superblock(superblock)?;
        }
        Ok(writer)
    }

    /// Returns the blocks a transaction with so many images and revokes takes in the log.
    #[must_use]
    pub fn needed(&self, images: usize, revokes: usize) -> u32 {
        u32::try_from(blocks_needed(&self.format, images, revokes)).unwrap_or(u32::MAX)
    }

    /// Returns the blocks that the next transaction may take.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.area.len().saturating_sub(self.used)
    }

    /// Returns the blocks of the largest transaction that an empty log can take: all of the ring,
    /// without superblock and fast-commit area. A transaction as large waits until everything
    /// before it is checkpointed, so a running one is better closed at a quarter of this.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.area.len()
    }

    /// Returns the number the next transaction must have.
    #[must_use]
    pub fn next_tid(&self) -> Tid {
        self.next_tid
    }

    /// Returns the committed transactions whose space is not free yet, oldest first.
    pub fn live(&self) -> impl Iterator<Item = LogSpan> {
        self.live.iter().copied()
    }

    /// Returns the journal superblock as it is durable, or will be with the first commit of a log
    /// that was found empty.
    #[must_use]
    pub fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    /// Returns whether the device failed, and nothing is written any more.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Writes a transaction into the log, without its commit block and without a flush. The next
    /// step is its [`LogWriter::commit`]; where each request to the device takes a round trip, all
    /// of it is written then.
    ///
    /// # Errors
    /// `Full`, `OutOfTurn` (also while another transaction waits for its commit), `ImageSize` and
    /// `Encode` leave the writer as it was; `Device` stops it; `Stopped`.
    pub fn append(&mut self, tx: &LogTransaction<'_>) -> JournalResult<LogSpan> {
        self.check_running()?;
        let expected = self.next_tid;
        if tx.tid != expected || self.open.is_some() {
            let found = tx.tid;
            return Err(JournalError::OutOfTurn { found, expected });
        }
        let (needed, free) = (self.needed(tx.images.len(), tx.revokes.len()), self.free());
        if needed > free {
            let tid = tx.tid;
            return Err(JournalError::Full { tid, needed, free });
        }
        let encoded = Encoded::new(&self.format, tx)?;
        let span = LogSpan {
            tid: tx.tid,
            start: self.head,
            len: needed,
        };
        if is_on(LogMutant::CommitBlockFirst) {
            self.commit_too_early(&span, encoded.crc)?;
        }
        self.guarded(|writer| {
            if writer.is_far {
                writer.waiting = writer.requests(span.start, &encoded.blocks)?;
                Ok(())
            } else {
                writer.write_blocks(span.start, &encoded.blocks)
            }
        })?;
        self.head = self.area.advance(span.start, span.len);
        self.used += span.len;
        self.next_tid = span.tid.next();
        self.open = Some(OpenTransaction {
            span,
            crc: encoded.crc,
            has_revokes: !tx.revokes.is_empty(),
        });
        Ok(span)
    }

    /// Commits the transaction that was appended: flush, commit block, flush. It is durable when
    /// this returns. A `time` before that of the last commit becomes that one, as recovery takes
    /// a log for another's when its times go backwards.
    ///
    /// # Errors
    /// `OutOfTurn` when `tid` is not the appended transaction; `Device` stops the writer, and
    /// whether the transaction is durable is then unknown; `Stopped`.
    pub fn commit(&mut self, tid: Tid, time: CommitTime) -> JournalResult<CommitReceipt> {
        self.check_running()?;
        let Some(open) = self.open.filter(|open| open.span.tid == tid) else {
            return Err(JournalError::OutOfTurn {
                found: tid,
                expected: self.open.map_or(self.next_tid, |open| open.span.tid),
            });
        };
        let time = time.max(self.last_commit);
        let superblock = self.superblock_with(&open);
        let superblock_written = superblock != self.superblock;
        self.guarded(|writer| writer.write_commit(&open, time, &superblock))?;
        let tail = superblock.sequence;
        self.superblock = superblock;
        self.last_commit = time;
        self.queued = None;
        self.open = None;
        self.live.push_back(open.span);
        Ok(CommitReceipt {
            span: open.span,
            flushes: 2,
            superblock_written,
            freed: self.release_before(tail),
        })
    }

    /// Moves the tail to `first_live`, the oldest transaction that is not checkpointed yet; `None`
    /// if all committed ones are. Their home writes must be completed *and flushed*: the
    /// superblock written here may reach the device before anything else does. Flushes, so that the
    /// space is free when this returns. A transaction the tail has passed already is no error.
    ///
    /// # Errors
    /// `OutOfTurn` for a transaction that is not in the log; `Device` stops the writer; `Stopped`.
    pub fn set_tail(&mut self, first_live: Option<Tid>) -> JournalResult<()> {
        self.check_running()?;
        let Some(tail) = self.new_tail(first_live)? else {
            return Ok(());
        };
        let superblock = self.superblock_at(tail);
        self.guarded(|writer| writer.replace_superblock(superblock))?;
        if self.queued.is_some_and(|queued| !queued.is_after(tail)) {
            self.queued = None;
        }
        self.release_before(tail);
        Ok(())
    }

    /// Sets the tail as [`LogWriter::set_tail`] does, without a flush of its own: the next commit
    /// writes the tail between its two flushes. The first of them makes the home writes durable,
    /// which here must only be *completed*; after the second the space is free.
    ///
    /// # Errors
    /// `OutOfTurn` for a transaction that is not in the log; `Stopped`.
    pub fn queue_tail(&mut self, first_live: Option<Tid>) -> JournalResult<()> {
        self.check_running()?;
        if let Some(tail) = self.new_tail(first_live)?
            && self.queued.is_none_or(|queued| tail.is_after(queued))
        {
            self.queued = Some(tail);
        }
        Ok(())
    }

    /// Says that the log is empty, and flushes: everything committed must be checkpointed and
    /// flushed. The writer may go on afterwards, with the next transaction.
    ///
    /// # Errors
    /// `OutOfTurn` while a transaction waits for its commit; `Device` stops the writer; `Stopped`.
    pub fn close(&mut self) -> JournalResult<()> {
        self.check_running()?;
        if let Some(open) = self.open {
            return Err(JournalError::OutOfTurn {
                found: self.next_tid,
                expected: open.span.tid,
            });
        }
        let superblock = JournalSuperblock {
            start: 0,
            sequence: self.next_tid,
            head: self.head,
            ..self.superblock.clone()
        };
        self.guarded(|writer| writer.replace_superblock(superblock))?;
        self.queued = None;
        self.live.clear();
        self.used = 0;
        Ok(())
    }

    /// Records in the journal superblock why the journal was aborted (`errno` as a
    /// positive number; 0 takes the record back), and flushes. This bypasses the log, works after
    /// the device failed, and changes nothing else: the log keeps the tail that is known to be
    /// durable.
    ///
    /// # Errors
    /// `Device`.
    pub fn record_error(&mut self, errno: i32) -> JournalResult<()> {
        let superblock = JournalSuperblock {
            errno: errno.saturating_neg(),
            ..self.superblock.clone()
        };
        self.replace_superblock(superblock)
    }

    fn check_running(&self) -> JournalResult<()> {
        if self.stopped {
            return Err(JournalError::Stopped);
        }
        Ok(())
    }

    /// Does something with the device; a failure stops the writer.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> JournalResult<()>) -> JournalResult<()> {
        let result = work(self);
        self.stopped |= result.is_err();
        result
    }

    /// The transaction that `first_live` asks the tail to move to, if that is a move.
    fn new_tail(&self, first_live: Option<Tid>) -> JournalResult<Option<Tid>> {
        let end = self.open.map_or(self.next_tid, |open| open.span.tid);
        let tail = first_live.unwrap_or(end);
        if tail.is_after(end) {
            return Err(JournalError::OutOfTurn {
                found: tail,
                expected: end,
            });
        }
        let moves = self
            .live
            .front()
            .is_some_and(|oldest| tail.is_after(oldest.tid));
        Ok(moves.then_some(tail))
    }

    /// The superblock for a log whose tail is `tail`, which is live, open or next.
    fn superblock_at(&self, tail: Tid) -> JournalSuperblock {
        let committed = self.live.iter().copied();
        let start = committed
            .chain(self.open.map(|open| open.span))
            .find(|span| span.tid == tail)
            .map_or(self.head, |span| span.start);
        JournalSuperblock {
            start,
            sequence: tail,
            ..self.superblock.clone()
        }
    }

    /// The superblock that the commit of `open` needs.
    fn superblock_with(&self, open: &OpenTransaction) -> JournalSuperblock {
        let mut superblock = match self.queued {
            Some(tail) => self.superblock_at(tail),
            None if self.superblock.start == 0 => self.superblock_at(open.span.tid),
            None => self.superblock.clone(),
        };
        if open.has_revokes {
            superblock.incompat.insert(IncompatFeatures::REVOKE);
        }
        superblock
    }

    /// Counts the space of the transactions before `tail` as free, and says how much it was.
    fn release_before(&mut self, tail: Tid) -> u32 {
        let mut freed = 0;
        while let Some(span) = self.live.front()
            && tail.is_after(span.tid)
        {
            freed += span.len;
            self.live.pop_front();
        }
        self.used = self.used.saturating_sub(freed);
        freed
    }

    fn write_commit(
        &mut self,
        open: &OpenTransaction,
        time: CommitTime,
        superblock: &JournalSuperblock,
    ) -> JournalResult<()> {
        let LogSpan { tid, start, len } = open.span;
        let at = self.area.advance(start, len - 1);
        let record = CommitBlock {
            sequence: tid,
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
            transaction_crc: open.crc,
        };
        let block = LogBlock::Own(AlignedBuf::copy_of(&record.encode(&self.format)));
        if self.is_far {
            return self.write_together(at, &block, superblock);
        }
        if !is_on(LogMutant::FirstFlushDropped) {
            self.flush(at)?;
        }
        if *superblock != self.superblock {
            self.write_superblock(superblock)?;
        }
        self.write_blocks(at, &[block])?;
        if is_on(LogMutant::SecondFlushDropped) {
            return Ok(());
        }
        self.flush(at)
    }

    /// Writes a whole commit with one batch: a device that is far may take fewer round trips for it
    /// than for one request after the other.
    fn write_together(
        &mut self,
        at: u32,
        block: &LogBlock<'_>,
        superblock: &JournalSuperblock,
    ) -> JournalResult<()> {
        let mut batch = std::mem::take(&mut self.waiting);
        if !is_on(LogMutant::FirstFlushDropped) {
            batch.push(Request::Flush);
        }
        if *superblock != self.superblock {
            batch.push(self.superblock_request(superblock)?);
        }
        batch.append(&mut self.requests(at, std::slice::from_ref(block))?);
        if !is_on(LogMutant::SecondFlushDropped) {
            batch.push(Request::Flush);
        }
        on_device(at, self.device.submit(batch).wait_all().map(drop))
    }

    /// What [`LogMutant::CommitBlockFirst`] does: the commit block, durable before the transaction
    /// is.
    fn commit_too_early(&mut self, span: &LogSpan, crc: Option<u32>) -> JournalResult<()> {
        let open = OpenTransaction {
            span: *span,
            crc,
            has_revokes: false,
        };
        let superblock = self.superblock.clone();
        self.write_commit(&open, self.last_commit, &superblock)
    }

    /// Writes a superblock and flushes; it is ours when both succeeded.
    fn replace_superblock(&mut self, superblock: JournalSuperblock) -> JournalResult<()> {
        if self.is_far {
            let batch = vec![self.superblock_request(&superblock)?, Request::Flush];
            on_device(0, self.device.submit(batch).wait_all().map(drop))?;
        } else {
            self.write_superblock(&superblock)?;
            self.flush(0)?;
        }
        self.superblock = superblock;
        Ok(())
    }

    fn write_superblock(&mut self, superblock: &JournalSuperblock) -> JournalResult<()> {
        let offset = self.encode_superblock(superblock)?;
        on_device(0, self.device.write_at(offset, &self.superblock_block))
    }

    /// The write of a superblock, to be part of a batch.
    fn superblock_request(&mut self, superblock: &JournalSuperblock) -> JournalResult<Request> {
        let offset = self.encode_superblock(superblock)?;
        let block = AlignedBuf::copy_of(&self.superblock_block);
        Ok(Request::write(offset, block))
    }

    /// Puts a superblock into its block. Returns where on the device that is.
    fn encode_superblock(&mut self, superblock: &JournalSuperblock) -> JournalResult<u64> {
        // Everything that changes lies in the first sector, which is written as a whole or not
        // at all.
        for (to, from) in self.superblock_block.iter_mut().zip(superblock.encode()) {
            *to = from;
        }
        Ok(self.map.offset(0, self.format.block_size)?.0)
    }

    /// Writes blocks around the ring from journal block `start` on, with one call for each run of
    /// the journal they touch.
    fn write_blocks(&self, start: u32, blocks: &[LogBlock<'_>]) -> JournalResult<()> {
        self.each_run(start, blocks, |at, offset, slices| {
            on_device(at, self.device.write_vectored_at(offset, slices))
        })
    }

    /// The writes of blocks around the ring from journal block `start` on.
    fn requests(&self, start: u32, blocks: &[LogBlock<'_>]) -> JournalResult<Vec<Request>> {
        let mut requests = Vec::new();
        self.each_run(start, blocks, |_, offset, slices| {
            requests.push(Request::write_copy(offset, slices));
            Ok(())
        })?;
        Ok(requests)
    }

    /// Calls `put` for blocks around the ring from journal block `start` on, once for each run of
    /// the journal they touch, with its first block and where that lies on the device.
    fn each_run(
        &self,
        start: u32,
        blocks: &[LogBlock<'_>],
        mut put: impl FnMut(u32, u64, &[IoSlice<'_>]) -> JournalResult<()>,
    ) -> JournalResult<()> {
        let mut at = start;
        let mut rest = blocks;
        while !rest.is_empty() {
            let (offset, together) = self.map.offset(at, self.format.block_size)?;
            let before_wrap = self.area.end.saturating_sub(at);
            let most = together.min(before_wrap).max(1) as usize;
            let (now, later) = rest.split_at(rest.len().min(most));
            let slices: Vec<_> = now
                .iter()
                .map(|block| IoSlice::new(block.bytes()))
                .collect();
            put(at, offset, &slices)?;
            at = self.area.advance(at, now.len() as u32);
            rest = later;
        }
        Ok(())
    }

    fn flush(&self, block: u32) -> JournalResult<()> {
        on_device(block, self.device.flush())
    }
}

fn on_device<T>(block: u32, result: DeviceResult<T>) -> JournalResult<T> {
    result.map_err(|source| JournalError::Device { block, source })
}
