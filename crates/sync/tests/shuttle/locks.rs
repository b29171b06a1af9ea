//! The locks themselves behave in a model as they do outside: what other checks rest on.

use extant_sync::model::explore;
use extant_sync::{Condvar, CountedAtomicU64, LockClass, Mutex, Rank, RmwClass, RwLock, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

static FIRST: LockClass = LockClass::new("first", Rank::InodeOp);
static SECOND: LockClass = LockClass::new("second", Rank::Group);
static COUNT: RmwClass = RmwClass::new("count");

#[test]
fn a_queue_hands_everything_over_and_wakes_whoever_waits() {
    explore(
        "a_queue_hands_everything_over_and_wakes_whoever_waits",
        || {
            let queue = Arc::new((Mutex::new(&FIRST, Vec::new()), Condvar::new()));
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    let queue = Arc::clone(&queue);
                    thread::spawn(move || {
                        let mut items = queue.0.lock();
                        while items.is_empty() {
                            // In a model only a notification ends it.
                            let timed_out = queue.1.wait_for(&mut items, Duration::from_nanos(1));
                            assert!(!timed_out);
                        }
                        items.pop().unwrap()
                    })
                })
                .collect();
            for item in 1..=2 {
                queue.0.lock().push(item);
                queue.1.notify_one();
            }
            let taken: u32 = takers.into_iter().map(|t| t.join().unwrap()).sum();
            assert_eq!(taken, 3);
        },
    );
}

#[test]
fn readers_share_writers_exclude_and_a_downgraded_writer_keeps_them_out() {
    explore(
        "readers_share_writers_exclude_and_a_downgraded_writer_keeps_them_out",
        || {
            let lock = Arc::new(RwLock::new(&FIRST, [0_u32; 2]));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let lock = Arc::clone(&lock);
                    thread::spawn(move || {
                        let mut write = lock.write();
                        write[0] += 1;
                        thread::yield_now();
                        write[1] += 1;
                        let written = *write;
                        let read = extant_sync::RwLockWriteGuard::downgrade(write);
                        thread::yield_now();
                        assert_eq!(*read, written);
                    })
                })
                .collect();
            let read = *lock.read();
            assert_eq!(read[0], read[1]);
            if let Some(read) = lock.try_read() {
                assert_eq!(read[0], read[1]);
                assert!(lock.try_write().is_none());
            }
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(*lock.read(), [2, 2]);
        },
    );
}

#[test]
fn each_thread_of_a_model_has_its_own_list_of_held_locks() {
    explore(
        "each_thread_of_a_model_has_its_own_list_of_held_locks",
        || {
            let locks = Arc::new((Mutex::new(&FIRST, ()), Mutex::new(&SECOND, ())));
            let theirs = Arc::clone(&locks);
            let other = thread::spawn(move || {
                let _second = theirs.1.lock();
                thread::yield_now();
            });
            {
                // The other thread may hold the second one: no violation of this one's order.
                let _first = locks.0.lock();
                let _second = locks.1.lock();
            }
            other.join().unwrap();
        },
    );
}

#[test]
fn a_violated_order_panics_in_a_model_too() {
    if !cfg!(debug_assertions) {
        return;
    }
    let violated = catch_unwind(AssertUnwindSafe(|| {
        explore("a_violated_order_panics_in_a_model_too", || {
            let (first, second) = (Mutex::new(&FIRST, ()), Mutex::new(&SECOND, ()));
            let _second = second.lock();
            let _first = first.lock();
        });
    }));
    assert!(violated.is_err());
}

#[test]
fn a_lost_update_is_found() {
    // The check of the checker: a read-modify-write taken apart loses an update under some
    // schedule.
    let found = catch_unwind(AssertUnwindSafe(|| {
        explore("a_lost_update_is_found", || {
            let count = Arc::new(CountedAtomicU64::new(&COUNT, 0));
            let other = Arc::clone(&count);
            let adder = thread::spawn(move || other.store(other.load(Relaxed) + 1, Relaxed));
            count.store(count.load(Relaxed) + 1, Relaxed);
            adder.join().unwrap();
            assert_eq!(count.load(Relaxed), 2);
        });
    }));
    assert!(found.is_err());
}
