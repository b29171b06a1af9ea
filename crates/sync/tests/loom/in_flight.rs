//! Loads in flight: one at most of a key, and the threads that wait for it.

use extant_sync::atomic::{AtomicU32, Ordering};
use extant_sync::model::exhaust;
use extant_sync::{Claimed, InFlight, LockClass, Rank, RcuMap, pin, thread};
use std::sync::Arc;

static CLAIMS: LockClass = LockClass::new("test claims", Rank::CacheLoad);
static OUTCOMES: LockClass = LockClass::new("test outcomes", Rank::CacheLoad);
static BUCKET: LockClass = LockClass::new("test table", Rank::CacheBucket);

const KEY: u32 = 5;

/// A table of what was loaded, and the loads.
struct Loaded {
    table: RcuMap<u32, u32>,
    loads: InFlight<u32, Result<u32, ()>>,
    /// How many loads are at work, and how many were.
    at_work: AtomicU32,
    reads: AtomicU32,
}

impl Loaded {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            table: RcuMap::new(&BUCKET, 1),
            loads: InFlight::new(&CLAIMS, &OUTCOMES, 1, |key| key as usize),
            at_work: AtomicU32::new(0),
            reads: AtomicU32::new(0),
        })
    }

    fn lookup(&self) -> Option<u32> {
        self.table.get(&KEY, &pin()).copied()
    }

    /// Finds the value, loads it, or waits for the thread that does. `load` is the read of the
    /// device; `None` gives up.
    fn get(&self, mut load: impl FnMut() -> Option<Result<u32, ()>>) -> Result<u32, ()> {
        loop {
            if let Some(found) = self.lookup() {
                return Ok(found);
            }
            match self.loads.claim(KEY, || self.lookup()) {
                Claimed::Found(found) => return Ok(found),
                Claimed::Theirs(load) => {
                    if let Some(ended) = load.wait() {
                        return ended;
                    }
                }
                Claimed::Mine(claim) => {
                    assert_eq!(self.at_work.load(Ordering::Relaxed), 0, "two at a time");
                    self.at_work.store(1, Ordering::Relaxed);
                    let reads = self.reads.load(Ordering::Relaxed);
                    self.reads.store(reads + 1, Ordering::Relaxed);
                    let read = load();
                    self.at_work.store(0, Ordering::Relaxed);
                    let Some(read) = read else {
                        continue;
                    };
                    let Ok(value) = read else {
                        claim.end(read);
                        return read;
                    };
                    let guard = pin();
                    let kept = claim.publish(|| {
                        let (_, back) = self.table.get_or_insert(KEY, value, &guard);
                        back.is_none().then_some(read)
                    });
                    if let Some(kept) = kept {
                        return kept;
                    }
                }
            }
        }
    }
}

#[test]
fn two_who_miss_make_one_load_and_both_get_what_it_found() {
    exhaust(
        "two_who_miss_make_one_load_and_both_get_what_it_found",
        Some(4),
        || {
            let loaded = Loaded::new();
            let threads = [(), ()].map(|()| {
                let loaded = Arc::clone(&loaded);
                thread::spawn(move || assert_eq!(loaded.get(|| Some(Ok(7))), Ok(7)))
            });
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(loaded.reads.load(Ordering::Relaxed), 1);
        },
    );
}

#[test]
fn three_who_miss_are_all_served() {
    exhaust("three_who_miss_are_all_served", Some(2), || {
        let loaded = Loaded::new();
        let others = [(), ()].map(|()| {
            let loaded = Arc::clone(&loaded);
            thread::spawn(move || assert_eq!(loaded.get(|| Some(Ok(7))), Ok(7)))
        });
        assert_eq!(loaded.get(|| Some(Ok(7))), Ok(7));
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(loaded.reads.load(Ordering::Relaxed), 1);
    });
}

/// Nothing is kept of a load that failed: a thread that waited for it hears of it, one that comes
/// later tries again.
#[test]
fn a_failure_reaches_those_who_wait_and_no_others() {
    exhaust(
        "a_failure_reaches_those_who_wait_and_no_others",
        Some(3),
        || {
            let loaded = Loaded::new();
            let other = {
                let loaded = Arc::clone(&loaded);
                thread::spawn(move || loaded.get(|| Some(Err(()))))
            };
            let own = loaded.get(|| Some(Ok(7)));
            let theirs = other.join().unwrap();
            match loaded.reads.load(Ordering::Relaxed) {
                1 => assert_eq!(own, theirs),
                _ => assert_eq!((own, theirs), (Ok(7), Err(()))),
            }
            assert_eq!(loaded.get(|| Some(Ok(7))), Ok(7));
        },
    );
}

#[test]
fn who_waits_for_a_load_that_was_given_up_loads_himself() {
    exhaust(
        "who_waits_for_a_load_that_was_given_up_loads_himself",
        Some(3),
        || {
            let loaded = Loaded::new();
            let other = {
                let loaded = Arc::clone(&loaded);
                thread::spawn(move || {
                    let mut tries = 0;
                    let found = loaded.get(|| {
                        tries += 1;
                        (tries > 1).then_some(Ok(7))
                    });
                    assert_eq!(found, Ok(7));
                })
            };
            assert_eq!(loaded.get(|| Some(Ok(7))), Ok(7));
            other.join().unwrap();
        },
    );
}

/// The device changes, and then the thread that changed it discards: what was read before is not
/// found afterwards.
#[test]
fn what_was_discarded_while_it_was_loaded_is_not_kept() {
    exhaust(
        "what_was_discarded_while_it_was_loaded_is_not_kept",
        Some(3),
        || {
            let loaded = Loaded::new();
            let device = Arc::new(AtomicU32::new(1));
            let other = {
                let (loaded, device) = (Arc::clone(&loaded), Arc::clone(&device));
                thread::spawn(move || {
                    let read = loaded.get(|| Some(Ok(device.load(Ordering::Acquire))));
                    assert!(matches!(read, Ok(1 | 2)));
                })
            };
            let changer = {
                let loaded = Arc::clone(&loaded);
                thread::spawn(move || {
                    device.store(2, Ordering::Release);
                    // First the load in flight, which might otherwise publish after the removal.
                    loaded.loads.discard(KEY);
                    loaded.table.remove(&KEY, &pin());
                })
            };
            changer.join().unwrap();
            other.join().unwrap();
            assert_ne!(loaded.lookup(), Some(1));
        },
    );
}

/// A value is changed in the table first, as a transaction does it; then it goes to the device and
/// is forgotten. A thread that looks for it afterwards finds the new one, whatever was loaded
/// meanwhile, and also when it joins a load that began before.
#[test]
fn what_was_changed_while_it_was_loaded_is_not_found_as_it_was_before() {
    exhaust(
        "what_was_changed_while_it_was_loaded_is_not_found_as_it_was_before",
        Some(3),
        || {
            let loaded = Loaded::new();
            let device = Arc::new(AtomicU32::new(1));
            let read = {
                let device = Arc::clone(&device);
                move || Some(Ok(device.load(Ordering::Acquire)))
            };
            let reader = {
                let (loaded, read) = (Arc::clone(&loaded), read.clone());
                thread::spawn(move || assert!(matches!(loaded.get(read), Ok(1 | 2))))
            };
            let changer = {
                let loaded = Arc::clone(&loaded);
                thread::spawn(move || {
                    if loaded.table.replace(KEY, 2, &pin()).is_none() {
                        loaded.loads.discard(KEY);
                    }
                    device.store(2, Ordering::Release);
                    loaded.table.remove(&KEY, &pin());
                    assert_eq!(loaded.get(read), Ok(2));
                })
            };
            reader.join().unwrap();
            changer.join().unwrap();
            assert_eq!(loaded.lookup(), Some(2));
        },
    );
}
