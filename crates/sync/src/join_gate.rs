//! A gate that many threads pass at the same time, and that one thread can close and see empty.
//!
//! Operations join a transaction and leave it thousands of times for each time it is locked for its
//! commit. So the two sides pay unevenly: joining and leaving each cost one atomic addition on a
//! cache line of the CPU and one load of a line that nobody writes; closing looks at all shards.
//!
//! # Protocol
//!
//! | joining | closing |
//! |---|---|
//! | count in own shard | store *closed* |
//! | load the state | load every shard |
//!
//! # Invariants
//!
//! - All four accesses are sequentially consistent. Either the joiner sees *closed*, and leaves
//!   again, or the closer sees it counted.
//! - A participant leaves through the shard it joined through, on whatever CPU it runs by then. So
//!   no shard is ever negative, and a shard once seen at 0 after closing has no participant until
//!   the gate opens.
//! - A thread that takes a shard to 0 and sees *closed* wakes the closer, under the lock under
//!   which the closer looks. One that does not see it had left before the closer looked at all.

use crate::backend::atomic::{AtomicBool, Ordering};
use crate::backend::{between_seqcst, spin_until};
use crate::{Condvar, CountedAtomicU64, LockClass, Mutex, PerCpu, RmwClass};
use std::fmt;

/// Lets participants in and out at almost no cost, until somebody closes it and waits for those
/// inside to leave.
///
/// ```
/// use extant_sync::{JoinGate, LockClass, Rank, RmwClass};
///
/// static GATE: LockClass = LockClass::new("example gate", Rank::Leaf);
/// static INSIDE: RmwClass = RmwClass::new("inside the example gate");
/// let gate = JoinGate::new(&GATE, &INSIDE);
/// let inside = gate.join().expect("the gate is open");
/// gate.close();
/// assert!(gate.join().is_none());
/// drop(inside);
/// gate.wait_drained();
/// gate.open();
/// assert!(gate.join().is_some());
/// ```
pub struct JoinGate {
    /// Participants, and for a moment those that find the gate closed.
    inside: PerCpu<CountedAtomicU64>,
    closed: AtomicBool,
    /// Held to look and sleep, and to wake. Only ever while the gate is closed or opening.
    sleep: Mutex<()>,
    drained: Condvar,
    opened: Condvar,
}

impl JoinGate {
    /// An open gate with nobody inside. Its lock is of `class`: threads that leave, and threads
    /// that wait here, take it for a moment, so its rank is after all that they may hold;
    /// [`Rank::Leaf`] suits most. Joining and leaving are counted as read-modify-writes of
    /// `inside`.
    ///
    /// [`Rank::Leaf`]: crate::Rank::Leaf
    #[must_use]
    pub fn new(class: &'static LockClass, inside: &'static RmwClass) -> Self {
        Self {
            inside: PerCpu::new(|_| CountedAtomicU64::new(inside, 0)),
            closed: AtomicBool::new(false),
            sleep: Mutex::new(class, ()),
            drained: Condvar::new(),
            opened: Condvar::new(),
        }
    }

    /// Joins, unless the gate is closed. Never waits.
    ///
    /// What the last closer did before [`open`](Self::open) has happened before.
    #[inline]
    pub fn join(&self) -> Option<Joined<'_>> {
        let shard = self.inside.local_index();
        self.inside
            .local_shard(shard)
            .fetch_add(1, Ordering::SeqCst);
        between_seqcst();
        let joined = Joined { gate: self, shard };
        // When closed, dropping `joined` leaves, and wakes the closer, which may have seen the
        // count.
        (!self.closed.load(Ordering::SeqCst)).then_some(joined)
    }

    /// Waits until the gate is open, if it is closed. It may be closed again by the time the caller
    /// tries to join.
    ///
    /// A participant that waits for the gate it is inside of waits forever.
    ///
    /// # Panics
    /// In debug builds, when a lock of the gate's rank or a later one is held.
    #[track_caller]
    pub fn wait_open(&self) {
        if !self.is_closed() {
            return;
        }
        let mut sleep = self.sleep.lock();
        while self.is_closed() {
            self.opened.wait(&mut sleep);
        }
    }

    /// Closes the gate: from now on nobody joins. Returns whether this call closed it; `false` says
    /// that somebody else has it closed, and is the one to open it.
    #[inline]
    pub fn close(&self) -> bool {
        let closed_now =
            self.closed
                .compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed);
        between_seqcst();
        closed_now.is_ok()
    }

    /// Waits until every thread that joined before the gate was closed has left. What they did
    /// inside has then happened before.
    ///
    /// For the thread that closed the gate; while it is open the answer is worth nothing.
    ///
    /// # Panics
    /// In debug builds, when a lock of the gate's rank or a later one is held and participants are
    /// still inside.
    #[track_caller]
    pub fn wait_drained(&self) {
        if spin_until(|| self.is_drained()) {
            return;
        }
        let mut sleep = self.sleep.lock();
        while !self.is_drained() {
            self.drained.wait(&mut sleep);
        }
    }

    /// Whether every thread that joined before the gate was closed has left. May say no for a
    /// moment while others find the gate closed.
    #[inline]
    #[must_use]
    pub fn is_drained(&self) -> bool {
        // One shard after the other: see the second invariant.
        self.inside
            .iter()
            .all(|shard| shard.load(Ordering::SeqCst) == 0)
    }

    /// Opens the gate, and wakes the threads that wait for that.
    #[track_caller]
    pub fn open(&self) {
        let _sleep = self.sleep.lock();
        self.closed.store(false, Ordering::SeqCst);
        self.opened.notify_all();
    }

    /// Whether the gate is closed. For statistics and for threads that wait elsewhere: only
    /// [`join`](Self::join) decides.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How many are inside, while others come and go about how many.
    #[must_use]
    pub fn participants(&self) -> u64 {
        self.inside
            .iter()
            .map(|shard| shard.load(Ordering::Relaxed))
            .sum()
    }

    #[inline]
    fn leave(&self, shard: usize) {
        // Release: what the participant did happened before the closer sees it gone.
        let before = self
            .inside
            .local_shard(shard)
            .fetch_sub(1, Ordering::SeqCst);
        between_seqcst();
        if before == 1 && self.closed.load(Ordering::SeqCst) {
            self.wake_closer();
        }
    }

    #[cold]
    fn wake_closer(&self) {
        // The closer looks and falls asleep under this lock: it has either seen this shard at 0
        // or is asleep by now.
        drop(self.sleep.lock());
        self.drained.notify_all();
    }
}

impl fmt::Debug for JoinGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinGate")
            .field("closed", &self.is_closed())
            .field("participants", &self.participants())
            .finish_non_exhaustive()
    }
}

/// A participant inside a [`JoinGate`]; leaves when dropped, on any thread.
#[must_use = "the participant leaves at once if this is dropped"]
pub struct Joined<'a> {
    gate: &'a JoinGate,
    /// Which shard counts this participant.
    shard: usize,
}

impl<'a> Joined<'a> {
    /// The gate this participant is inside of.
    #[inline]
    #[must_use]
    pub fn gate(&self) -> &'a JoinGate {
        self.gate
    }
}

impl Drop for Joined<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.shard);
    }
}

impl fmt::Debug for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined")
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}
