//! The biased lock with more threads than rows, and a bias that comes and goes.

use extant_sync::atomic::{AtomicU64, Ordering::Relaxed};
use extant_sync::model::explore;
use extant_sync::{BiasedRwLock, LockClass, Rank, thread};
use std::sync::Arc;

static CLASS: LockClass = LockClass::ascending("biased", Rank::InodeOp);

#[test]
fn readers_never_see_half_a_write_while_the_bias_comes_and_goes() {
    explore(
        "readers_never_see_half_a_write_while_the_bias_comes_and_goes",
        || {
            let lock = Arc::new(BiasedRwLock::new(&CLASS, ()));
            let halves = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let (lock, halves) = (Arc::clone(&lock), Arc::clone(&halves));
                    thread::spawn(move || {
                        for _ in 0..3 {
                            if n == 0 {
                                let _write = lock.write();
                                let value = halves[0].load(Relaxed) + 1;
                                halves[0].store(value, Relaxed);
                                halves[1].store(value, Relaxed);
                            } else {
                                let _read = lock.read();
                                assert_eq!(halves[0].load(Relaxed), halves[1].load(Relaxed));
                            }
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(halves[0].load(Relaxed), 3);
        },
    );
}

#[test]
fn two_locks_that_share_a_place_in_the_table_do_not_disturb_each_other() {
    explore(
        "two_locks_that_share_a_place_in_the_table_do_not_disturb_each_other",
        || {
            let locks = Arc::new([BiasedRwLock::new(&CLASS, ()), BiasedRwLock::new(&CLASS, ())]);
            let writing = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let threads: Vec<_> = (0..3)
                .map(|n| {
                    let (locks, writing) = (Arc::clone(&locks), Arc::clone(&writing));
                    thread::spawn(move || {
                        let _first = locks[0].read_ascending(1);
                        assert_eq!(writing[0].load(Relaxed), 0);
                        if n == 0 {
                            let _second = locks[1].write_ascending(2);
                            writing[1].store(1, Relaxed);
                            writing[1].store(0, Relaxed);
                        } else {
                            let _second = locks[1].read_ascending(2);
                            assert_eq!(writing[1].load(Relaxed), 0);
                        }
                    })
                })
                .collect();
            if let Some(_write) = locks[0].try_write() {
                writing[0].store(1, Relaxed);
                writing[0].store(0, Relaxed);
            }
            for thread in threads {
                thread.join().unwrap();
            }
        },
    );
}
