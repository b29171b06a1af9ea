//! The connections of an NBD client under sampled schedules: the code that ships, with connections
//! that are none.
//!
//! The file is part of this test, since what it owns is nothing that the crate shows.

#[path = "../../src/nbd/client/links.rs"]
mod links;

use extant_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use extant_sync::model::explore;
use extant_sync::{LockClass, Mutex, Rank, thread};
use links::{Effort, Link, Links, Reason};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Plain;
use std::time::Duration;

static ATTEMPTS: LockClass = LockClass::new("test attempts", Rank::Leaf);
const THREADS: usize = 3;

/// A connection.
struct Fake {
    broken: AtomicBool,
    busy: AtomicUsize,
}

impl Fake {
    fn new(broken: bool, busy: usize) -> Self {
        Self {
            broken: AtomicBool::new(broken),
            busy: AtomicUsize::new(busy),
        }
    }
}

impl Link for Fake {
    fn busy(&self) -> Option<usize> {
        let busy = self.busy.load(Ordering::SeqCst);
        (!self.broken.load(Ordering::SeqCst)).then_some(busy)
    }
}

/// Why there is no connection: the number of the attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed {
    attempt: usize,
    is_final: bool,
}

impl Reason for Failed {
    fn is_final(&self) -> bool {
        self.is_final
    }
}

#[derive(Default)]
struct Attempts {
    is_at_work: bool,
    ended: usize,
    /// Of those that were for a while.
    long: usize,
}

struct World {
    links: Links<Fake, Failed>,
    first: Arc<Fake>,
    attempts: Mutex<Attempts>,
}

impl World {
    fn new(first: Fake) -> Arc<Self> {
        let links = Links::new(first, Duration::ZERO);
        let first = Arc::clone(&links.live()[0]);
        Arc::new(Self {
            links,
            first,
            attempts: Mutex::new(&ATTEMPTS, Attempts::default()),
        })
    }

    /// Makes a connection, or does not, while others may do anything.
    fn attempt(
        &self,
        effort: Effort,
        made: impl Fn(usize) -> Result<Fake, Failed>,
    ) -> Result<Fake, Failed> {
        {
            let mut attempts = self.attempts.lock();
            assert!(!attempts.is_at_work, "two are made at a time");
            attempts.is_at_work = true;
        }
        thread::yield_now();
        let mut attempts = self.attempts.lock();
        attempts.is_at_work = false;
        attempts.ended += 1;
        attempts.long += usize::from(effort == Effort::ForAWhile);
        made(attempts.ended)
    }

    fn ended(&self) -> usize {
        self.attempts.lock().ended
    }
}

/// Runs `each` in so many threads, with their numbers, and returns what comes of it.
fn together<T: Send + 'static>(
    world: &Arc<World>,
    each: impl Fn(&World, usize) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (world, each) = (Arc::clone(world), each.clone());
            thread::spawn(move || each(&world, number))
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

#[test]
fn threads_that_find_none_have_the_one_that_is_made() {
    explore("threads_that_find_none_have_the_one_that_is_made", || {
        let world = World::new(Fake::new(true, 0));
        let all = together(&world, |world, _| {
            let make = |effort| world.attempt(effort, |_| Ok(Fake::new(false, 0)));
            world.links.choose(1, make).unwrap()
        });
        assert_eq!(world.ended(), 1, "nobody makes another");
        assert!(all.iter().all(|link| Arc::ptr_eq(link, &all[0])));
        assert_eq!(world.links.live().len(), 1, "the broken one is forgotten");
    });
}

/// Fewest attempts of all schedules.
static FEWEST: Plain = Plain::new(usize::MAX);

#[test]
fn a_failure_is_had_by_all_that_waited_for_it_and_by_nobody_later() {
    explore(
        "a_failure_is_had_by_all_that_waited_for_it_and_by_nobody_later",
        || {
            let world = World::new(Fake::new(true, 0));
            let all = together(&world, |world, _| {
                let before = world.ended();
                let make = |effort| {
                    world.attempt(effort, |attempt| {
                        Err(Failed {
                            attempt,
                            is_final: false,
                        })
                    })
                };
                let failed = world.links.choose(1, make).err().expect("it fails");
                assert!(failed.attempt >= before, "a failure from before");
                failed.attempt
            });
            let ended = world.ended();
            assert!(ended <= THREADS && all.contains(&ended));
            assert_eq!(world.attempts.lock().long, 1, "the first alone takes long");
            FEWEST.fetch_min(ended, std::sync::atomic::Ordering::SeqCst);
        },
    );
    let fewest = FEWEST.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(fewest, 1, "in some schedule all wait for the first");
}

/// Another connection is not taken, and the only one breaks meanwhile: whoever needs one has one.
#[test]
fn one_more_that_fails_is_nobody_s_failure() {
    explore("one_more_that_fails_is_nobody_s_failure", || {
        let world = World::new(Fake::new(false, 1));
        let all = together(&world, |world, number| {
            if number == 0 {
                world.first.broken.store(true, Ordering::SeqCst);
            }
            let make = |effort| {
                world.attempt(effort, |attempt| match effort {
                    Effort::Once => Err(Failed {
                        attempt,
                        is_final: false,
                    }),
                    Effort::ForAWhile => Ok(Fake::new(false, 0)),
                })
            };
            let link = world.links.choose(2, make).expect("one is there");
            // The thread that broke the first cannot have it.
            assert!(number != 0 || !link.broken.load(Ordering::SeqCst));
            link
        });
        assert_eq!(all.len(), THREADS);
        assert_eq!(world.attempts.lock().long, 1);
        assert_eq!(world.links.live().len(), 1);
    });
}

/// There are never more than there may be, and each is used.
#[test]
fn there_are_no_more_than_there_may_be() {
    explore("there_are_no_more_than_there_may_be", || {
        let world = World::new(Fake::new(false, 1));
        together(&world, |world, _| {
            for _ in 0..2 {
                let make = |effort| world.attempt(effort, |_| Ok(Fake::new(false, 1)));
                world.links.choose(2, make).unwrap();
            }
        });
        assert_eq!(world.links.live().len(), 2);
        assert_eq!(world.ended(), 1);
    });
}

/// Threads that wait for nobody have what there is, and one more is made beside them.
#[test]
fn one_more_is_made_beside_those_that_do_not_wait() {
    explore("one_more_is_made_beside_those_that_do_not_wait", || {
        let world = World::new(Fake::new(false, 1));
        together(&world, |world, _| {
            let make = |effort| world.attempt(effort, |_| Ok(Fake::new(false, 1)));
            let (_, wants_more) = world.links.choose_at_once(2, make).unwrap();
            if wants_more {
                world.links.add_one(2, make);
            }
        });
        assert_eq!(world.links.live().len(), 2);
        assert_eq!(world.ended(), 1);
    });
}

#[test]
fn what_is_gone_is_not_asked_for_again() {
    explore("what_is_gone_is_not_asked_for_again", || {
        let world = World::new(Fake::new(true, 0));
        together(&world, |world, _| {
            for _ in 0..2 {
                let make = |effort| {
                    world.attempt(effort, |attempt| {
                        Err(Failed {
                            attempt,
                            is_final: true,
                        })
                    })
                };
                let failed = world.links.choose(1, make).err().expect("it is gone");
                assert_eq!(failed.attempt, 1);
            }
        });
        assert_eq!(world.ended(), 1);
    });
}
