//! Which thread reads the device where requests come through rings.
//!
//! What comes by the device then is that nodes are forgotten: of each file that is removed, right
//! after it. To wake a thread for each costs as much as a request, so one thread alone reads, and
//! pauses while such words keep coming, which come many at a time then. The other threads rest.
//! Should anything else come, which means that the rings do not answer, or not yet, all read again.

use crate::answer::{Answerer, PAUSE};
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::time::Instant;

static WATCH: LockClass = LockClass::new("fuse device readers", Rank::Leaf);

/// The threads that read, of which one stays when the others rest.
#[derive(Debug)]
pub(super) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    resting: usize,
    /// How often the threads that rest were called.
    calls: u64,
    is_over: bool,
}

/// One thread's part in it.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    watch: &'a Watch,
    /// It is the one that stays.
    stays: bool,
    /// When it read last that a node is forgotten.
    last: Option<Instant>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(&WATCH, State::default()),
            changed: Condvar::new(),
        }
    }

    /// Makes the part of one thread; of one of all with `stays`.
    pub(super) fn reader(&self, stays: bool) -> Reader<'_> {
        Reader {
            watch: self,
            stays,
            last: None,
        }
    }

    fn call(&self) {
        let mut state = self.state.lock();
        if state.resting > 0 {
            state.calls += 1;
            self.changed.notify_all();
        }
    }
}

impl Reader<'_> {
    /// Notes a request that is to be answered, and calls the threads that rest.
    pub(super) fn saw_request(&self) {
        self.watch.call();
    }

    /// Notes that nodes were forgotten while the rings answer everything else. Returns when this
    /// thread should read again.
    pub(super) fn saw_forget(&mut self, answerer: &Answerer) {
        if self.stays {
            self.pause(answerer)
        } else {
            self.rest()
        }
    }

    /// Waits for more of them, unless none came for a while: a program that removes a single file
    /// has its space again.
    fn pause(&mut self, answerer: &Answerer) {
        let now = Instant::now();
        let before = self.last.replace(now);
        if before.is_some_and(|before| now - before < 2 * PAUSE) {
            answerer.forgets_later();
            std::thread::sleep(PAUSE);
        }
    }

    fn rest(&self) {
        let mut state = self.watch.state.lock();
        let calls = state.calls;
        state.resting += 1;
        self.watch
            .changed
            .wait_while(&mut state, |state| state.calls == calls && !state.is_over);
        state.resting -= 1;
    }
}

impl Drop for Reader<'_> {
    /// Calls the threads that rest: nobody else is left for that when the one that stays is gone.
    fn drop(&mut self) {
        if self.stays {
            self.watch.state.lock().is_over = true;
            self.watch.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn resting(watch: &Watch) -> usize {
        watch.state.lock().resting
    }

    fn until(mut condition: impl FnMut() -> bool) {
        let since = Instant::now();
        while !condition() {
            assert!(since.elapsed() < Duration::from_secs(60), "it never came");
            std::thread::yield_now();
        }
    }

    #[test]
    fn those_who_rest_are_called_when_something_is_asked_and_at_the_end() {
        let watch = Watch::new();
        let (sender, called) = mpsc::channel();
        std::thread::scope(|scope| {
            let stays = watch.reader(true);
            for _ in 0..2 {
                let (watch, sender) = (&watch, sender.clone());
                scope.spawn(move || {
                    let reader = watch.reader(false);
                    for _ in 0..2 {
                        reader.rest();
                        sender.send(()).unwrap();
                    }
                });
            }
            until(|| resting(&watch) == 2);
            assert!(called.try_recv().is_err());
            stays.saw_request();
            called.recv().unwrap();
            called.recv().unwrap();
            until(|| resting(&watch) == 2);
            drop(stays);
        });
        assert_eq!(called.try_iter().count(), 2);
    }
}
