//! The journal: handles, the running transaction, commit and checkpoint.
//!
//! | file | owns |
//! |---|---|
//! | `touched` | what the running transaction has changed, in per-CPU lists |
//! | `unwinding` | whether a panic ends what is under way before its time |
//! | `credits` | room in the running transaction, handed out in chunks |
//! | `handle` | [`Handle`]: the right to change metadata, for one operation |
//! | `commit` | which thread commits, which wait, and what follows from a commit |
//! | `capture` | what commit takes while handles are drained |
//! | `item` | [`LogItem`]: what commits carry besides whole blocks |
//! | `queue` | committed images that are not home yet |
//! | `checkpoint` | writing them home, and moving the log's tail |
//! | `home` | sorted, large writes |
//! | `flush` | flushes of the device, shared |
//! | `abort` | what an error stops, and where it is recorded |
//! | `background` | the thread that commits and checkpoints |
//! | `stats` | what the journal did |
//!
//! # How a change becomes durable
//!
//! Metadata in memory is published as immutable images: a block
//! ([`BlockRef`](crate::meta::BlockRef)), an inode's record, a group's bitmap. A change puts a new
//! image in place of the old one and registers the object in the running transaction at its first
//! touch there. Commit closes the gate, waits until no handle is inside, takes references to the
//! images of everything registered, and opens the gate for the next transaction. What it took can
//! no longer change, so encoding, checksums, the log and the checkpoint work on it with new handles
//! already running.
//!
//! # Locking
//!
//! A handle is a place of rank `JournalHandle` in the order: starting one may sleep for a commit,
//! so nothing from that rank on may be held. Lists of touched objects have locks of rank
//! `JournalRunning`. A thread that commits or checkpoints holds no lock while it captures and
//! encodes; for the log and the home writes it holds one of two locks of the same rank, held across
//! I/O, in this order: `CHECKPOINT`, `LOG`. Threads that wait for a commit wait on a condition
//! variable.
//!
//! # Without a journal
//!
//! Commits write images home, in no particular order: after a crash the file
//! system needs a check.

mod abort;
mod background;
mod capture;
mod checkpoint;
mod commit;
mod credits;
mod flush;
mod handle;
mod home;
mod item;
mod queue;
mod stats;
mod touched;
mod unwinding;

pub use crate::meta::{Seal, Seq};
pub use background::Due;
pub use checkpoint::Tail;
pub use flush::FlushTicket;
pub use handle::Handle;
pub use handle::Start;
pub use item::{CapturedItem, Images, LogItem, NumberList, Numbers};
pub use stats::JournalStats;

use crate::meta::Overlay;
use crate::volume::{SuperState, Volume};
use crate::{Error, Result};
use background::Background;
use commit::Progress;
use credits::Credits;
use extant_jbd2::LogWriter;
use extant_sync::{JoinGate, LockClass, Mutex, PerCpu, Rank, RmwClass};
use flush::Flushes;
use queue::Queue;
use stats::Counters;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use touched::Touched;

static GATE: LockClass = LockClass::new("journal gate", Rank::Leaf);
static INSIDE: RmwClass = RmwClass::new("handles of a CPU");
static TOUCHED: LockClass = LockClass::new("journal touched", Rank::JournalRunning);
static DEVICE: LockClass = LockClass::ascending("journal log and checkpoint", Rank::JournalHandle);

/// Place of the lock of checkpoints in its class.
const CHECKPOINT: u64 = 1;
/// Place of the lock of the log in its class.
const LOG: u64 = 2;

/// Most blocks in a transaction. Taking that many references, each from another place in memory,
/// has to end within the 2 ms for which no operation may be kept waiting.
pub const MOST_BLOCKS: u32 = 4096;
/// A transaction takes at most one part in this many of the log.
const LOG_SHARE: u32 = 4;
/// As many where each commit takes round trips, so that there are fewer. While a checkpoint moves
/// the tail behind two transactions, there still is room for the next one.
const FAR_LOG_SHARE: u32 = 3;
/// Blocks of a transaction that nobody asks room for: superblock, descriptors, revokes, commit.
const OVERHEAD: u32 = 16;

/// The transactions of a file system open for writing.
#[derive(Debug)]
pub struct Journal {
    volume: Arc<Volume>,
    /// The superblock, in which errors are recorded.
    state: Arc<SuperState>,
    /// Handles are inside; commit closes it.
    gate: JoinGate,
    /// The running transaction. Changes only while the gate is closed and drained.
    running: AtomicU64,
    touched: PerCpu<Mutex<Touched>>,
    credits: Credits,
    progress: Progress,
    /// The log on the device; `None` on a file system without a journal.
    log: Option<Mutex<LogWriter>>,
    queue: Arc<Queue>,
    /// Images in the queue that make a checkpoint due.
    most_queued: usize,
    /// Free blocks of the log below which one is due.
    least_free: u32,
    /// Held by the one that checkpoints.
    checkpointing: Mutex<()>,
    flushes: Flushes,
    background: Background,
    /// Why nothing can be committed any more.
    aborted: OnceLock<Error>,
    /// Errors were reported and are not written down yet.
    unwritten: AtomicBool,
    /// Much of the free space waits for a commit.
    commit_requested: AtomicBool,
    /// No handle starts any more: the file system is being closed.
    closing: OnceLock<()>,
    counters: Counters,
}

impl Journal {
    /// The journal of `volume`, whose next transaction is `first`, over `log`. Its committed images
    /// wait in `queue` for their checkpoint.
    pub fn new(
        volume: Arc<Volume>,
        state: Arc<SuperState>,
        first: Seq,
        log: Option<LogWriter>,
        queue: CheckpointQueue,
    ) -> Self {
        let is_far = volume.device().in_flight() > 1;
        let share = if is_far { FAR_LOG_SHARE } else { LOG_SHARE };
        let capacity = log.as_ref().map(LogWriter::capacity);
        let room = capacity.map_or(MOST_BLOCKS, |capacity| capacity / share);
        let capacity = capacity.unwrap_or(0);
        let least_free = if is_far {
            // Early, as it takes long: it is to be over before its room is needed.
            capacity - capacity / share
        } else {
            capacity / 2
        };
        // Of every 16 blocks of log one may be a descriptor.
        let blocks = (room - room / 16).saturating_sub(OVERHEAD);
        Self {
            volume,
            state,
            gate: JoinGate::new(&GATE, &INSIDE),
            running: AtomicU64::new(first.get()),
            touched: PerCpu::new(|_| Mutex::new(&TOUCHED, Touched::default())),
            credits: Credits::new(blocks.clamp(1, MOST_BLOCKS)),
            progress: Progress::new(Seq::new(first.get().saturating_sub(1))),
            log: log.map(|log| Mutex::new(&DEVICE, log)),
            queue: queue.images,
            most_queued: queue.most,
            least_free,
            checkpointing: Mutex::new(&DEVICE, ()),
            flushes: Flushes::new(),
            background: Background::new(),
            aborted: OnceLock::new(),
            unwritten: AtomicBool::new(false),
            commit_requested: AtomicBool::new(false),
            closing: OnceLock::new(),
            counters: Counters::new(),
        }
    }

    /// The running transaction.
    #[must_use]
    pub fn running(&self) -> Seq {
        Seq::new(self.running.load(Ordering::Acquire))
    }

    /// What the journal did since the file system was opened.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        self.counters.read()
    }

    /// Blocks that one handle may ask for at most.
    #[must_use]
    pub fn max_credits(&self) -> u32 {
        self.credits.limit()
    }

    /// Starts the thread that commits and checkpoints: every `interval`, and when that is asked
    /// for, it calls `tend` with what is due, until that returns `false`.
    pub fn start_background(
        &self,
        interval: Duration,
        tend: impl Fn(Due) -> bool + Send + 'static,
    ) -> Result<()> {
        self.background.start(interval, tend)
    }

    /// A ticket for writes of data that are complete: [`Journal::flush_data`] makes them durable.
    pub fn data_ticket(&self) -> FlushTicket {
        self.flushes.ticket()
    }

    /// Makes data durable that was complete when the ticket was taken. Costs nothing when a commit
    /// or a flush has begun since and is over; one flush serves all callers of the same time.
    ///
    /// # Errors
    /// [`Error::Device`] when the flush fails.
    pub fn flush_data(&self, since: FlushTicket) -> Result<()> {
        if self.flushes.flush(&**self.volume.device(), since)? {
            self.counters.flushes.inc()
        } else {
            self.counters.shared_flushes.inc()
        }
        Ok(())
    }

    /// How many flushes of data have failed.
    pub fn flush_failures(&self) -> u64 {
        self.flushes.failures()
    }

    /// Why the last flush of data failed that did.
    pub fn flush_failure(&self) -> Option<Error> {
        self.flushes.failure()
    }

    /// Whether the file system is being closed, or was.
    pub fn is_closing(&self) -> bool {
        self.closing.get().is_some()
    }

    /// Refuses handles from now on. Returns whether that was the first call.
    pub fn begin_closing(&self) -> bool {
        self.closing.set(()).is_ok()
    }

    /// Ends the thread and waits for its end.
    pub fn stop_background(&self) {
        self.background.stop();
    }

    /// Takes room in the running transaction, if there is as much. The thread commits a transaction
    /// that is two thirds full, so that a thread at work neither encodes and writes it nor waits
    /// for that.
    fn take_room(&self, blocks: u32) -> bool {
        self.credits.take(blocks, || {
            self.background.commit(self.running());
        })
    }

    /// Asks for a commit soon: of the thread, or else of the next one to start a handle. Any lock
    /// may be held.
    pub(crate) fn request_commit_soon(&self) {
        let is_requested = self.commit_requested.load(Ordering::Relaxed);
        if !is_requested && !self.background.commit(self.running()) {
            self.commit_requested.store(true, Ordering::Release);
        }
    }

    /// Takes back the record of an error that stopped the journal in an earlier life.
    ///
    /// # Errors
    /// [`Error::Log`] when the device fails.
    pub fn forget_error(&self) -> Result<()> {
        match &self.log {
            Some(log) => log.lock_ascending(LOG).record_error(0).map_err(Error::log),
            None => Ok(()),
        }
    }

    /// Begins transaction `seq`, with handles drained.
    fn begin(&self, seq: Seq) {
        self.credits.reset();
        self.running.store(seq.get(), Ordering::Release);
    }

    /// Whether anything may still be written.
    ///
    /// # Errors
    /// Why the journal stopped, when it has.
    fn check_going(&self) -> Result<()> {
        self.aborted
            .get()
            .map_or(Ok(()), |cause| Err(cause.clone()))
    }

    /// Whether changes are taken.
    ///
    /// # Errors
    /// [`Error::Stopped`] after an error, [`Error::ReadOnly`] when the file system is closed.
    pub fn check_open(&self) -> Result<()> {
        if let Some(cause) = self.aborted.get() {
            return Err(Error::Stopped(Arc::new(cause.clone())));
        }
        if self.closing.get().is_some() {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }
}

/// Where committed images wait for their checkpoint. Made before the journal, as the metadata cache
/// looks there.
#[derive(Debug)]
pub struct CheckpointQueue {
    images: Arc<Queue>,
    most: usize,
}

impl CheckpointQueue {
    /// A queue in which about `most` images make a checkpoint due.
    pub fn new(most: usize) -> Self {
        Self {
            images: Arc::new(Queue::new()),
            most,
        }
    }

    /// The queue, as the cache sees it.
    pub fn overlay(&self) -> Arc<dyn Overlay> {
        Arc::clone(&self.images) as Arc<dyn Overlay>
    }
}
