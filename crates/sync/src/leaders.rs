//! Which of several threads wait for work, where each thread that waits is woken at a price.
//!
//! Leader and followers (Schmidt et al., "Pattern-Oriented Software Architecture", volume 2): one
//! thread waits for work, does it itself and waits again, while the others rest. It is called a
//! leader here whether it waits or works, and there are more of them the more work there is at
//! once.
//!
//! # Protocol
//!
//! | thread | does |
//! |---|---|
//! | a leader that takes work | sees to it that a resting thread is on guard |
//! | one whose work may take long | calls a resting thread, if no other waits for work |
//! | one that found work without waiting several times | the same |
//! | one that finds nothing, or seldom without waiting | rests, if another waits for work |
//! | the guard, after each period | waits for work itself, if nobody has taken any since and nobody waits for it; rests without a period, if somebody waits |
//!
//! # Invariants
//!
//! - While anybody rests, somebody waits for work, or is on guard. So work that can only be done
//!   while other work is done, for which that one waits, is begun after two periods at most, as
//!   long as there is a thread left for it.
//! - A called thread counts as waiting from then on, and any that rests may take the call: the
//!   guard too, which hands the guard on.

use crate::{Condvar, LockClass, Mutex, MutexGuard};
use std::time::Duration;

/// The guard's period.
const PERIOD: Duration = Duration::from_millis(1);
/// So often in a row work was there: there is more than one leader can do.
const MANY_READY: u32 = 4;
/// So often in a row it was not: fewer can do it.
const MANY_IDLE: u32 = 16;

/// Threads of which some wait for work, some do it, and the others rest.
///
/// ```
/// use extant_sync::{Leaders, LockClass, Rank};
///
/// static LEADERS: LockClass = LockClass::new("example leaders", Rank::Leaf);
/// let leaders = Leaders::new(&LEADERS);
/// let mut leader = leaders.join();
/// // Work came.
/// leader.took(Some(true));
/// // It is done.
/// leader.did();
/// assert!(!leader.rest_if_another_waits(), "nobody else waits for work");
/// ```
#[derive(Debug)]
pub struct Leaders {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that wait for work, or were called to.
    waiting: usize,
    /// Threads that rest, and were not called.
    resting: usize,
    /// Calls that nobody has taken yet.
    called: usize,
    /// A resting thread is on guard, or is to be.
    is_guarded: bool,
    /// It is to be, and nobody has begun.
    wants_guard: bool,
    /// How often work was taken.
    taken: u64,
    /// Nobody rests any more.
    is_over: bool,
}

/// One of the threads. All others are called to wait for work when it is dropped, for good: the one
/// that ends may be the one they rely on.
#[derive(Debug)]
pub struct Leader<'a> {
    all: &'a Leaders,
    /// It waits for work.
    waits: bool,
    /// So often in a row work was there when it began to wait.
    ready: u32,
    /// So often in a row it was not.
    idle: u32,
}

impl Leaders {
    /// For threads that have yet to [`join`](Self::join). The lock is of `class`, and taken for a
    /// moment whenever work is taken or done.
    #[must_use]
    pub fn new(class: &'static LockClass) -> Self {
        Self {
            state: Mutex::new(class, State::default()),
            changed: Condvar::new(),
        }
    }

    /// One thread more, which waits for work.
    #[must_use]
    pub fn join(&self) -> Leader<'_> {
        self.state.lock().waiting += 1;
        Leader {
            all: self,
            waits: true,
            ready: 0,
            idle: 0,
        }
    }

    /// How many threads rest now.
    #[must_use]
    pub fn resting(&self) -> usize {
        self.state.lock().resting
    }

    /// Lets the guard's period pass in a model, where no time does.
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    pub fn tick(&self) {
        self.changed.notify_all();
    }

    /// Has a resting thread wait for work, if none does.
    fn call(&self, state: &mut State) {
        if state.waiting == 0 && state.resting > 0 {
            state.resting -= 1;
            state.called += 1;
            state.waiting += 1;
            self.changed.notify_one();
        }
    }

    /// Has a resting thread be on guard, if none is.
    fn guard(&self, state: &mut State) {
        if !state.is_guarded && state.resting > 0 {
            state.is_guarded = true;
            state.wants_guard = true;
            self.changed.notify_one();
        }
    }

    /// Returns when this thread, which waits for work no more, is to wait for it again.
    fn rest(&self, state: &mut MutexGuard<'_, State>) {
        state.waiting -= 1;
        state.resting += 1;
        // What was taken when it looked last, of the one on guard.
        let mut guards = None;
        loop {
            if state.called > 0 {
                state.called -= 1;
                break;
            }
            if state.is_over {
                state.resting -= 1;
                state.waiting += 1;
                break;
            }
            if std::mem::take(&mut state.wants_guard) {
                guards = Some(state.taken);
            }
            let Some(seen) = guards else {
                self.changed.wait(state);
                continue;
            };
            self.changed.wait_for(state, PERIOD);
            if state.called > 0 || state.is_over {
                continue;
            }
            if state.taken != seen {
                guards = Some(state.taken);
            } else if state.waiting > 0 {
                // The thread that takes work next wants a guard again.
                guards = None;
                state.is_guarded = false;
            } else {
                state.resting -= 1;
                state.waiting += 1;
                break;
            }
        }
        // A thread that was woken to be on guard may have come here instead.
        if guards.is_some() || state.wants_guard {
            state.is_guarded = false;
            state.wants_guard = false;
            self.guard(state);
        }
    }
}

impl Leader<'_> {
    /// It has work, and waits no more. `was_there` if that was there when it began to wait; nothing
    /// is known if there is no more to it.
    pub fn took(&mut self, was_there: Option<bool>) {
        let mut state = self.all.state.lock();
        self.waits = false;
        state.waiting -= 1;
        state.taken = state.taken.wrapping_add(1);
        match was_there {
            Some(true) => (self.ready, self.idle) = (self.ready + 1, 0),
            Some(false) => (self.ready, self.idle) = (0, self.idle + 1),
            None => {}
        }
        if self.ready >= MANY_READY {
            self.ready = 0;
            self.all.call(&mut state);
        }
        self.all.guard(&mut state);
    }

    /// Its work may take long: somebody else shall wait for more.
    pub fn gives_way(&self) {
        self.all.call(&mut self.all.state.lock());
    }

    /// Its work is done: returns when it is to wait for more, which may be at once, and whether it
    /// rested meanwhile.
    pub fn did(&mut self) -> bool {
        let mut state = self.all.state.lock();
        self.waits = true;
        state.waiting += 1;
        let rests = self.idle >= MANY_IDLE && state.waiting > 1;
        if rests {
            self.idle = 0;
            self.all.rest(&mut state);
        }
        rests
    }

    /// Rests after it found no work, if another one waits for that: sleeps, and returns `true` when
    /// it is to wait again itself. Returns `false` without sleeping if it is the only one.
    pub fn rest_if_another_waits(&mut self) -> bool {
        let mut state = self.all.state.lock();
        if state.waiting == 1 || state.is_over {
            return false;
        }
        self.idle = 0;
        self.all.rest(&mut state);
        true
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        state.is_over = true;
        if self.waits {
            state.waiting -= 1;
        }
        self.all.changed.notify_all();
    }
}
