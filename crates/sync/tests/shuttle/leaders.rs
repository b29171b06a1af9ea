//! Leaders and followers, with work that can only be done while other work is done.

use extant_sync::model::explore;
use extant_sync::{Condvar, Leaders, LockClass, Mutex, Rank, thread};
use std::collections::VecDeque;
use std::sync::Arc;

static LEADERS: LockClass = LockClass::new("test leaders", Rank::DeviceQueue);
static PLACE: LockClass = LockClass::new("test place of work", Rank::Leaf);
const THREADS: usize = 3;

/// Where work comes to, by numbers.
struct Place {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    work: VecDeque<usize>,
    is_done: Vec<usize>,
    /// Threads that wait here.
    asleep: usize,
    is_over: bool,
}

impl Place {
    /// What is there. `None` if there will be no more.
    fn look(&self) -> Option<Option<usize>> {
        let mut state = self.state.lock();
        let work = state.work.pop_front();
        (work.is_some() || !state.is_over).then_some(work)
    }

    fn wait_for_work(&self) {
        let mut state = self.state.lock();
        state.asleep += 1;
        self.changed
            .wait_while(&mut state, |state| state.work.is_empty() && !state.is_over);
        state.asleep -= 1;
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Waits until so much is done.
    fn wait_done(&self, count: usize) {
        let mut state = self.state.lock();
        self.changed
            .wait_while(&mut state, |state| state.is_done.len() < count);
    }

    fn is_done(&self, count: usize) -> bool {
        self.state.lock().is_done.len() >= count
    }
}

/// Work of which each waits until all that came after it is done, but the last `alone`, which wait
/// for nothing.
fn work(leaders: &Leaders, place: &Place, gives_way: bool, count: usize, alone: usize) {
    let mut leader = leaders.join();
    let mut was_there = true;
    while let Some(found) = place.look() {
        let Some(number) = found else {
            if !leader.rest_if_another_waits() {
                place.wait_for_work();
            }
            was_there = false;
            continue;
        };
        leader.took(Some(was_there));
        if gives_way {
            leader.gives_way();
        }
        if number + alone < count {
            place.wait_done(count - 1 - number);
        }
        place.change(|state| state.is_done.push(number));
        leader.did();
        was_there = true;
    }
}

fn run(gives_way: bool, ticks: bool, count: usize, alone: usize) {
    let leaders = Arc::new(Leaders::new(&LEADERS));
    let place = Arc::new(Place {
        state: Mutex::new(&PLACE, State::default()),
        changed: Condvar::new(),
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (leaders, place) = (Arc::clone(&leaders), Arc::clone(&place));
            thread::spawn(move || work(&leaders, &place, gives_way, count, alone))
        })
        .collect();
    for number in 0..count {
        place.change(|state| state.work.push_back(number));
    }
    while ticks && !place.is_done(count) {
        leaders.tick();
        thread::yield_now();
    }
    place.wait_done(count);
    place.change(|state| state.is_over = true);
    for thread in threads {
        thread.join().unwrap();
    }
    let mut done = std::mem::take(&mut place.state.lock().is_done);
    done.sort_unstable();
    assert!(done.into_iter().eq(0..count));
}

/// As many wait for others' work as there are threads but one. Nobody said that it would take long.
#[test]
fn work_that_waits_for_other_work_is_done_as_periods_pass() {
    explore(
        "work_that_waits_for_other_work_is_done_as_periods_pass",
        || {
            run(false, true, THREADS, 1);
        },
    );
}

/// A leader that gives way is followed without any period passing, as each taker of work says so.
#[test]
fn a_leader_that_gives_way_is_followed_without_delay() {
    explore("a_leader_that_gives_way_is_followed_without_delay", || {
        run(true, false, THREADS, 1);
    });
}

/// More work than threads, which waits for nothing: no call is lost, and all end.
#[test]
fn threads_that_rest_and_are_called_do_all_work() {
    explore("threads_that_rest_and_are_called_do_all_work", || {
        run(false, false, 8, 8);
        run(true, false, 5, 5);
    });
}
