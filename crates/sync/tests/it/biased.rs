//! The biased reader-writer lock.

use crate::{rng::Rng, seed};
use extant_sync::{BiasedRwLock, LockClass, Rank};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

static CLASS: LockClass = LockClass::ascending("biased", Rank::InodeOp);

#[test]
fn readers_share_and_writers_do_not() {
    let lock = BiasedRwLock::new(&CLASS, 1);
    let first = lock.read();
    std::thread::scope(|s| {
        s.spawn(|| {
            assert_eq!(*lock.read(), 1);
            assert!(
                lock.try_write().is_none(),
                "a visible reader keeps writers out"
            );
            assert!(
                lock.try_read().is_some(),
                "a failed attempt leaves readers alone"
            );
        });
    });
    drop(first);
    let mut write = lock.try_write().unwrap();
    *write = 2;
    std::thread::scope(|s| {
        s.spawn(|| {
            assert!(lock.try_read().is_none());
            assert!(lock.try_write().is_none());
        });
    });
    drop(write);
    assert_eq!(*lock.read(), 2);
    assert_eq!(lock.into_inner(), 2);
}

#[test]
fn a_writer_waits_for_visible_readers() {
    let lock = BiasedRwLock::new(&CLASS, 0);
    let left = AtomicBool::new(false);
    let barrier = Barrier::new(2);
    std::thread::scope(|s| {
        s.spawn(|| {
            let guard = lock.read();
            barrier.wait();
            std::thread::sleep(Duration::from_millis(30));
            left.store(true, Ordering::Relaxed);
            drop(guard);
        });
        barrier.wait();
        let _write = lock.write();
        assert!(left.load(Ordering::Relaxed));
    });
}

#[test]
fn several_locks_are_held_at_once() {
    // More than a row has places, so that some use the lock below.
    let locks: Vec<_> = (0..64).map(|n| BiasedRwLock::new(&CLASS, n)).collect();
    let guards: Vec<_> = (0..)
        .zip(&locks)
        .map(|(key, l)| l.read_ascending(key))
        .collect();
    assert!(guards.iter().map(|g| **g).eq(0..64));
    std::thread::scope(|s| {
        s.spawn(|| assert!(locks.iter().all(|l| l.try_write().is_none())));
    });
    drop(guards);
    assert!(locks.iter().all(|l| l.try_write().is_some()));
}

#[test]
fn the_bias_comes_back_and_writers_still_exclude() {
    let lock = BiasedRwLock::new(&CLASS, 0_u64);
    for round in 0..5 {
        *lock.write() += 1;
        for _ in 0..2000 {
            assert_eq!(*lock.read(), round + 1);
        }
        let reader = lock.read();
        std::thread::scope(|s| {
            s.spawn(|| assert!(lock.try_write().is_none()));
        });
        drop(reader);
    }
}

#[test]
fn readers_never_see_half_a_write() {
    let seed = seed("readers_never_see_half_a_write");
    // Plain words: a torn write, or a missing edge between threads, would show.
    let locks: Vec<_> = (0..3)
        .map(|_| BiasedRwLock::new(&CLASS, [0_u64; 8]))
        .collect();
    let writes = AtomicU64::new(0);
    std::thread::scope(|s| {
        for thread in 0..6 {
            let (locks, writes) = (&locks, &writes);
            s.spawn(move || {
                let mut rng = Rng::new(seed + thread);
                // Some threads write a lot, others hardly ever: the bias comes and goes.
                let write_every = [3, 50, 5000][thread as usize % 3];
                for _ in 0..30_000 {
                    let lock = &locks[rng.below(3) as usize];
                    if rng.below(write_every) == 0 {
                        let mut words = lock.write();
                        let next = words[0] + 1;
                        for word in words.iter_mut() {
                            *word = next;
                        }
                        writes.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let words = lock.read();
                        assert!(words.iter().all(|w| *w == words[0]), "{words:?}");
                    }
                }
            });
        }
    });
    let total: u64 = locks.iter().map(|l| l.read()[0]).sum();
    assert_eq!(total, writes.load(Ordering::Relaxed), "no write was lost");
}

#[test]
fn threads_that_come_and_go_are_seen_by_writers() {
    let lock = BiasedRwLock::new(&CLASS, [0_u64; 2]);
    for _ in 0..40 {
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for n in 0..50 {
                        if n % 25 == 0 {
                            let mut pair = lock.write();
                            pair[0] += 1;
                            pair[1] += 1;
                        }
                        let pair = lock.read();
                        assert_eq!(pair[0], pair[1]);
                    }
                });
            }
        });
    }
    assert_eq!(lock.read()[0], 40 * 8 * 2);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "while holding `biased`")]
fn reading_twice_panics() {
    let lock = BiasedRwLock::new(&CLASS, ());
    let _first = lock.read();
    let _second = lock.read();
}

#[test]
fn a_guard_that_is_leaked_keeps_out_no_writer_of_a_lock_that_comes_to_lie_there() {
    let mut place = Box::new(None);
    for round in 0..3 {
        let lock = place.insert(BiasedRwLock::new(&CLASS, round));
        std::mem::forget(lock.try_read().unwrap());
        assert!(lock.try_write().is_none(), "the lock is held for good");
        // Another one in the same place.
        let next = place.insert(BiasedRwLock::new(&CLASS, round));
        assert!(next.try_write().is_some(), "round {round}");
    }
}
