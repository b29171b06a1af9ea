//! Commit: one caller leads, the others wait for what it does.
//!
//! A leader takes everything registered by the time it closes the gate, so the changes of all that
//! wait for it, and of many that do not, are durable with the same two flushes. While it writes,
//! the next transaction runs; a thread that needs that one committed waits for the next leader, or
//! becomes it.
//!
//! # Who is woken
//!
//! When a leader is done, those whose transaction it committed are woken, and of those that wait
//! for the next one a single one, to lead. So they wait in two places: of any two transactions that
//! are waited for at one time, one is the successor of the other. Threads that only need room wait
//! in a third, and go on as soon as another transaction runs. Where commits are short compared with
//! putting a thread to sleep and waking it, waiters first let others run for as long as a few
//! commits take, unless there are more of them than CPUs: whichever thread leads meanwhile.
//! Sleepers are woken one by one, by the leader. Woken together they would hand the lock from one
//! to the next, each of which has to be put on a CPU first.
//!
//! # Who is waited for
//!
//! Threads that one commit served mostly come back with more. So a leader that saw several at the
//! last commit lets them do so before it closes the gate: until as many ask, and only for part of
//! the time that all their commits would take. A thread that was alone at the last commit waits for
//! nobody.

use super::capture::Captured;
use super::item::{Images, LogItems};
use super::queue::Image;
use super::unwinding::PanicWatch;
use super::{FlushTicket, Journal, LOG, Seq, Tail, home};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result};
use extant_blockdev::Request;
use extant_format::{Pblk, Tid};
use extant_jbd2::{CommitTime, LogImage, LogTransaction, LogWriter};
use extant_sync::{
    Condvar, LockClass, Mutex, MutexGuard, Rank, debug_assert_no_locks_at_or_above, shard_count,
};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static PROGRESS: LockClass = LockClass::new("journal progress", Rank::Leaf);

/// As long as sleeping and being woken takes, about: commits that take longer are slept through.
const SHORT: Duration = Duration::from_micros(100);

/// A leader waits for others for at most one part in this many of the time that a commit for each
/// would take,
const GATHER_PART: u32 = 2;

/// and for at most this long: meanwhile nobody's changes become durable.
const GATHER_MOST: Duration = Duration::from_micros(50);

/// Which thread commits, and what is committed.
#[derive(Debug)]
pub(super) struct Progress {
    state: Mutex<State>,
    /// Where those wait whose transaction has an even number, and an odd one.
    changed: [Condvar; 2],
    /// Where threads wait that need room: for the next transaction to begin, or to lead.
    room: Condvar,
    /// What the state says, for a look without the lock. Stored under it.
    durable: AtomicU64,
    has_leader: AtomicBool,
    /// Threads that wait for a transaction that is not durable yet, of an even number and of an odd
    /// one, the leader included. Stored under the lock.
    waiters: [AtomicU32; 2],
    /// Mean duration of recent commits in nanoseconds, 0 before the first. Stored by leaders.
    mean_ns: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// A leader is at work.
    has_leader: bool,
    /// The last transaction that is durable.
    durable: Seq,
    /// Threads that waited for it, and for the next one, when it became so.
    waiters_last_commit: u32,
    /// How many sleep until a transaction of an even number is durable, and of an odd one.
    asleep: [u32; 2],
}

impl Progress {
    pub(super) fn new(durable: Seq) -> Self {
        Self {
            state: Mutex::new(
                &PROGRESS,
                State {
                    has_leader: false,
                    durable,
                    waiters_last_commit: 0,
                    asleep: [0; 2],
                },
            ),
            changed: [Condvar::new(), Condvar::new()],
            room: Condvar::new(),
            durable: AtomicU64::new(durable.get()),
            has_leader: AtomicBool::new(false),
            waiters: [AtomicU32::new(0), AtomicU32::new(0)],
            mean_ns: AtomicU64::new(0),
        }
    }

    /// Where threads wait that need `seq`.
    fn changed(&self, seq: Seq) -> &Condvar {
        of(&self.changed, seq)
    }

    /// Threads that wait for `seq`.
    fn waiters(&self, seq: Seq) -> &AtomicU32 {
        of(&self.waiters, seq)
    }

    /// Whether `seq` is durable, without the lock.
    fn is_durable(&self, seq: Seq) -> bool {
        self.durable.load(Ordering::Acquire) >= seq.get()
    }

    /// Sleeps until `seq` is durable, or this thread is to lead, or without cause.
    fn sleep(&self, seq: Seq, state: &mut MutexGuard<'_, State>) {
        *of_mut(&mut state.asleep, seq) += 1;
        self.changed(seq).wait(state);
        *of_mut(&mut state.asleep, seq) -= 1;
    }

    /// Wakes the threads that slept until `seq` was durable, `asleep` of them.
    fn wake_sleepers(&self, seq: Seq, asleep: u32) {
        let changed = self.changed(seq);
        for _ in 1..asleep {
            changed.notify_one();
        }
        // The last one, and any in whose place one was woken that came later.
        changed.notify_all();
    }

    /// Counts a thread that waits for `seq`. Under the lock.
    fn add_waiter(&self, seq: Seq) {
        let waiters = self.waiters(seq);
        waiters.store(waiters.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Lets threads come that asked lately, before `seq` is committed for them together.
    fn gather(&self, seq: Seq, waiters_last_commit: u32) {
        // No time passes under a model checker.
        if waiters_last_commit < 2 || cfg!(feature = "shuttle") {
            return;
        }
        let mean = Duration::from_nanos(self.mean_ns.load(Ordering::Relaxed));
        let most = (mean.saturating_mul(waiters_last_commit) / GATHER_PART).min(GATHER_MOST);
        let start = Instant::now();
        while self.waiters(seq).load(Ordering::Relaxed) < waiters_last_commit
            && start.elapsed() < most
        {
            extant_sync::thread::yield_now();
        }
    }

    fn wake_all(&self) {
        self.changed.iter().for_each(Condvar::notify_all);
        self.room.notify_all();
    }

    /// Another transaction runs: threads that need room find some.
    fn wake_for_room(&self) {
        // A thread that looked before it began waits by now.
        drop(self.state.lock());
        self.room.notify_all();
    }

    /// While a thread leads that will soon be done: waits without sleeping, for a moment, until
    /// `is_over` or a leader is needed. Whether it was worth it: if not the time is up, which began
    /// at `start`.
    fn wait_awake(&self, upto: Seq, start: Instant, is_over: impl Fn() -> bool) -> bool {
        let mean = Duration::from_nanos(self.mean_ns.load(Ordering::Relaxed));
        let many = self.waiters(upto).load(Ordering::Relaxed) as usize > shard_count();
        // No time passes under a model checker.
        if mean > SHORT || many || cfg!(feature = "shuttle") {
            return false;
        }
        loop {
            if is_over() || !self.has_leader.load(Ordering::Acquire) {
                return true;
            }
            if start.elapsed() >= SHORT {
                return false;
            }
            extant_sync::thread::yield_now();
        }
    }

    /// Notes that a leader begins or ends. Under the lock.
    fn set_leader(&self, state: &mut State, has_leader: bool) {
        state.has_leader = has_leader;
        self.has_leader.store(has_leader, Ordering::Release);
    }

    /// Takes the duration of a commit into the mean.
    fn record_duration(&self, duration: Duration) {
        let now = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let before = self.mean_ns.load(Ordering::Relaxed);
        let mean = if before == 0 {
            now
        } else {
            // One that was held up says little about the next.
            before - before / 8 + now.min(before.saturating_mul(2)) / 8
        };
        self.mean_ns.store(mean.max(1), Ordering::Relaxed);
    }

    /// The last transaction that is durable.
    pub(super) fn durable(&self) -> Seq {
        self.state.lock().durable
    }
}

/// Of two things that transactions of even and of odd numbers have, that of `seq`.
fn of<T>([even, odd]: &[T; 2], seq: Seq) -> &T {
    if seq.get().is_multiple_of(2) {
        even
    } else {
        odd
    }
}

/// Returns that of `seq` to change it, of two things that transactions of even and odd numbers
/// have.
fn of_mut<T>([even, odd]: &mut [T; 2], seq: Seq) -> &mut T {
    if seq.get().is_multiple_of(2) {
        even
    } else {
        odd
    }
}

/// What to do about a transaction in which nothing has been registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    /// There is nothing to commit.
    Nothing,
    /// Wait until no handle is inside.
    Drain,
}

/// The one that commits. Makes way when it is dropped, and stops the journal if that is by a panic.
struct Leader<'j> {
    journal: &'j Journal,
    /// What was durable when it began.
    before: Seq,
    watch: PanicWatch,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if self.watch.has_panicked() {
            let what = "a commit ended before its time";
            self.journal.abort_unrecorded(Error::Internal(what));
        }
        let progress = &self.journal.progress;
        let mut state = progress.state.lock();
        progress.set_leader(&mut state, false);
        let durable = state.durable;
        let asleep = *of(&state.asleep, durable);
        let nothing = durable == self.before;
        if nothing {
            // A thread that asked is told, or asks no more: not counted twice.
            for waiters in &progress.waiters {
                waiters.store(0, Ordering::Relaxed);
            }
        }
        drop(state);
        if nothing {
            // Which concerns all that wait.
            return progress.wake_all();
        }
        // The next leader first: the others have to get hold of a CPU each.
        progress.changed(durable.next()).notify_one();
        progress.wake_sleepers(durable, asleep);
        progress.room.notify_all();
    }
}

impl Journal {
    /// Makes transaction `upto`, and all before it, durable. Commits in the calling thread unless
    /// another one is at it, and returns when the changes are on the device.
    ///
    /// The caller holds neither a handle nor any lock that is acquired under one.
    ///
    /// # Errors
    /// Why the journal stopped, when it has; nothing is known to be durable then.
    pub fn commit(&self, items: &LogItems<'_>, upto: Seq) -> Result<()> {
        self.commit_what(items, upto, Idle::Nothing)
    }

    /// Ends a transaction that has no room: returns when another one runs, which is before `full`
    /// is durable where another thread commits it. If nothing has been registered in it, the room
    /// is with handles that have yet to use it or give it back: their end is waited for.
    ///
    /// # Errors
    /// As for [`Journal::commit`].
    pub fn commit_full(&self, items: &LogItems<'_>, full: Seq) -> Result<()> {
        self.commit_what(items, full, Idle::Drain)
    }

    /// Commits what runs, and has it home and durable there before anything else is committed.
    /// `begun` is called as soon as the next transaction runs, which nobody waits for in vain: its
    /// commit comes after this one is home.
    ///
    /// For what has to be known before the log counts: the mark of the file system as in use.
    ///
    /// # Errors
    /// As for [`Journal::commit`]. `begun` is perhaps not called then.
    pub fn commit_home(&self, items: &LogItems<'_>, begun: impl FnOnce()) -> Result<()> {
        debug_assert_no_locks_at_or_above(Rank::JournalHandle);
        let progress = &self.progress;
        let mut state = progress.state.lock();
        while state.has_leader {
            progress.room.wait(&mut state);
        }
        self.lead(state, || {
            self.commit_running(items, Idle::Drain, begun)?;
            self.checkpoint_with(Tail::FlushedNextCommit)
        })
    }

    fn commit_what(&self, items: &LogItems<'_>, upto: Seq, idle: Idle) -> Result<()> {
        debug_assert_no_locks_at_or_above(Rank::JournalHandle);
        self.write_reports();
        let progress = &self.progress;
        let mut state = progress.state.lock();
        let mut looked = false;
        let mut awake_since = Instant::now();
        loop {
            if state.durable >= upto || (idle == Idle::Drain && self.running() > upto) {
                if looked {
                    self.counters.shared_commits.inc();
                }
                return Ok(());
            }
            if let Err(cause) = self.check_going() {
                // Woken to lead, and will not: nor will the others.
                drop(state);
                progress.wake_all();
                return Err(cause);
            }
            if !looked && idle == Idle::Nothing {
                progress.add_waiter(upto);
            }
            if !state.has_leader {
                break;
            }
            looked = true;
            drop(state);
            let over = || match idle {
                Idle::Nothing => progress.is_durable(upto),
                Idle::Drain => self.running() > upto,
            };
            let awake = progress.wait_awake(upto, awake_since, over);
            if awake && over() {
                self.counters.shared_commits.inc();
                return Ok(());
            }
            state = progress.state.lock();
            let is_over = state.durable >= upto || (idle == Idle::Drain && self.running() > upto);
            if !awake && state.has_leader && !is_over {
                match idle {
                    Idle::Nothing => progress.sleep(upto, &mut state),
                    Idle::Drain => progress.room.wait(&mut state),
                }
                awake_since = Instant::now();
            }
        }
        let waiters_last_commit = state.waiters_last_commit;
        self.lead(state, || {
            if idle == Idle::Nothing {
                progress.gather(self.running(), waiters_last_commit);
            }
            let began = Instant::now();
            let outcome = self.commit_running(items, idle, || ());
            progress.record_duration(began.elapsed());
            outcome
        })
    }

    /// The last transaction that is durable.
    #[must_use]
    pub fn durable(&self) -> Seq {
        self.progress.durable()
    }

    /// Does `work` as the one that commits.
    fn lead(
        &self,
        mut state: MutexGuard<'_, State>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.progress.set_leader(&mut state, true);
        let before = state.durable;
        drop(state);
        let leader = Leader {
            journal: self,
            before,
            watch: PanicWatch::begin(),
        };
        let outcome = work();
        if let Err(cause) = &outcome {
            self.stop(cause);
        }
        drop(leader);
        outcome
    }

    /// Commits the running transaction, if there is anything in it. Calls `begun` when the next
    /// one runs.
    fn commit_running(&self, items: &LogItems<'_>, idle: Idle, begun: impl FnOnce()) -> Result<()> {
        let empty = self.touched.iter().all(|shard| shard.lock().is_empty())
            && !items.iter().any(|item| item.has_changes());
        // Closing has to see the end of handles that have not registered anything yet.
        if empty && idle == Idle::Nothing && self.closing.get().is_none() {
            return Ok(());
        }
        let Some(captured) = self.capture(items)? else {
            return Ok(());
        };
        begun();
        self.progress.wake_for_room();
        let Captured {
            seq,
            blocks,
            items: captured,
            revoked,
        } = captured;
        let mut images = Images::of_blocks(self.volume.cache(), &blocks)?;
        for item in captured {
            item.encode(seq, &mut images)?;
        }
        let images = images.sorted()?;
        drop(blocks);
        let flushed = self.flushes.begin();
        if is_on(Mutant::CheckpointTooEarly) {
            home::write(self.volume.device(), self.volume.block_size(), &images)?;
        }
        match &self.log {
            Some(log) => self.write_log(log, seq, &revoked, &images)?,
            None => {
                self.check_going()?;
                let device = self.volume.device();
                let size = self.volume.block_size();
                if !home::write_then(device, size, &images, Some(Request::Flush))? {
                    device.flush()?;
                }
                self.counters.flushes.inc();
            }
        }
        self.committed(items, seq, &revoked, images, flushed);
        Ok(())
    }

    fn write_log(
        &self,
        log: &Mutex<LogWriter>,
        seq: Seq,
        revoked: &[Pblk],
        images: &[Image],
    ) -> Result<()> {
        let images: Vec<LogImage<'_>> = images
            .iter()
            .map(|image| LogImage {
                block: image.block,
                bytes: &image.bytes,
            })
            .collect();
        let transaction = LogTransaction {
            tid: tid(seq),
            images: &images,
            revokes: revoked,
        };
        let fits = |writer: &LogWriter| writer.needed(images.len(), revoked.len()) <= writer.free();
        let mut writer = log.lock_ascending(LOG);
        // The second reason is memory: nobody has checkpointed for long.
        if !fits(&writer) || self.queue.len() > self.most_queued * 2 {
            drop(writer);
            self.checkpoint()?;
            writer = log.lock_ascending(LOG);
        }
        self.check_going()?;
        writer.append(&transaction).map_err(Error::log)?;
        let receipt = writer.commit(transaction.tid, now()).map_err(Error::log)?;
        self.counters.flushes.add(receipt.flushes.into());
        let is_due = writer.free() < self.least_free;
        drop(writer);
        if is_due || self.queue.len() > self.most_queued {
            self.background.checkpoint();
        }
        Ok(())
    }

    /// What follows from a transaction's being durable.
    fn committed(
        &self,
        items: &LogItems<'_>,
        seq: Seq,
        revoked: &[Pblk],
        images: Vec<Image>,
        flushed: FlushTicket,
    ) {
        let counters = &self.counters;
        // Before a checkpoint can write it home: records of errors start from it.
        self.state.set_committed();
        counters.commits.inc();
        counters.blocks.add(images.len() as i64);
        counters.revokes.add(revoked.len() as i64);
        let blocks: Vec<Pblk> = images.iter().map(|image| image.block).collect();
        if self.log.is_some() {
            self.queue.insert(seq, images);
        }
        // Images that do not come from the cache are newer than what it may have loaded.
        self.forget_loaded(seq, &blocks);
        self.volume.cache().set_clean(seq);
        self.queue.drop_images(revoked);
        self.flushes.done(flushed);
        // Not before: what is forgotten and loaded again no longer knows what it waits for. And
        // before anybody is told: a caller that waited for space finds it.
        for item in items {
            item.committed(seq);
        }
        let progress = &self.progress;
        let mut state = progress.state.lock();
        let next = progress.waiters(seq.next()).load(Ordering::Relaxed);
        state.waiters_last_commit =
            next.saturating_add(progress.waiters(seq).load(Ordering::Relaxed));
        progress.waiters(seq).store(0, Ordering::Relaxed);
        state.durable = state.durable.max(seq);
        let durable = &self.progress.durable;
        durable.store(state.durable.get(), Ordering::Release);
    }

    /// Takes blocks out of the cache that were loaded before transaction `seq` wrote them.
    fn forget_loaded(&self, seq: Seq, blocks: &[Pblk]) {
        for block in blocks {
            let stale = self
                .volume
                .cache()
                .peek(*block, &extant_sync::pin())
                .is_some_and(|image| image.seq() < seq);
            if stale {
                self.volume.cache().discard(*block);
            }
        }
    }
}

/// The number of a transaction in the log.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the log has the low 32 bits"
)]
pub(super) const fn tid(seq: Seq) -> Tid {
    Tid::new(seq.get() as u32)
}

/// The time of day; recovery needs it not to go backwards, which the log sees to.
fn now() -> CommitTime {
    let now = crate::clock::now();
    CommitTime {
        seconds: u64::try_from(now.secs).unwrap_or(0),
        nanoseconds: now.nanos,
    }
}
