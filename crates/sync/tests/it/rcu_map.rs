//! The read-mostly hash table.

use crate::{rng::Rng, seed};
use extant_sync::{LockClass, Rank, RcuMap, pin};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

static BUCKET: LockClass = LockClass::new("test bucket", Rank::CacheBucket);

#[test]
fn it_agrees_with_a_plain_map_under_random_changes() {
    let seed = seed("it_agrees_with_a_plain_map_under_random_changes");
    let mut rng = Rng::new(seed);
    for buckets in [1, 4] {
        let map = RcuMap::new(&BUCKET, buckets);
        let mut model = HashMap::new();
        for round in 0..60_000_u64 {
            // Few keys at times, many at others: tables grow and shrink.
            let keys = if round / 10_000 % 2 == 0 { 3000 } else { 40 };
            let key = rng.below(keys);
            let guard = pin();
            match rng.below(5) {
                0 | 1 => {
                    let (winner, rejected) = map.get_or_insert(key, round, &guard);
                    let had = model.get(&key).copied();
                    assert_eq!(rejected.is_some(), had.is_some());
                    assert_eq!(*winner, *model.entry(key).or_insert(round));
                }
                2 => assert_eq!(map.remove(&key, &guard).copied(), model.remove(&key)),
                3 => {
                    let before = map.replace(key, round, &guard).copied();
                    assert_eq!(before, model.insert(key, round));
                }
                _ => {
                    let odd = map.remove_if(&key, |v| v % 2 == 1, &guard).copied();
                    let expected = model.get(&key).copied().filter(|v| v % 2 == 1);
                    assert_eq!(odd, expected);
                    if odd.is_some() {
                        model.remove(&key);
                    }
                }
            }
            assert_eq!(map.get(&key, &guard), model.get(&key));
            if round % 5000 == 0 {
                let all: HashMap<_, _> = map.iter(&guard).map(|(k, v)| (*k, *v)).collect();
                assert_eq!(all, model);
                assert_eq!(
                    (map.len(), map.iter(&guard).count()),
                    (model.len(), model.len())
                );
            }
        }
    }
}

#[test]
fn removed_slots_do_not_pile_up() {
    let map = RcuMap::new(&BUCKET, 1);
    // Two keys at a time, forever new ones: every lookup must still end.
    for key in 0..100_000_u64 {
        let guard = pin();
        map.get_or_insert(key, key, &guard);
        if key >= 2 {
            assert_eq!(map.remove(&(key - 2), &guard), Some(&(key - 2)));
        }
        assert_eq!(map.get(&(key + 1), &guard), None);
    }
    assert_eq!(map.len(), 2);
}

#[test]
fn keys_are_looked_up_by_what_they_borrow() {
    let map: RcuMap<String, u32> = RcuMap::new(&BUCKET, 4);
    let guard = pin();
    for n in 0..100 {
        map.get_or_insert(format!("a rather long name of a file {n}"), n, &guard);
    }
    assert_eq!(
        map.get("a rather long name of a file 42", &guard),
        Some(&42)
    );
    assert_eq!(map.get("a rather long name of a file 100", &guard), None);
}

#[test]
fn one_of_many_inserters_wins() {
    let map: RcuMap<u64, usize> = RcuMap::new(&BUCKET, 8);
    let wins: Vec<AtomicUsize> = (0..500).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|s| {
        for thread in 0..8 {
            let (map, wins) = (&map, &wins);
            s.spawn(move || {
                for key in 0..500 {
                    let guard = pin();
                    let (winner, rejected) = map.get_or_insert(key, thread, &guard);
                    if rejected.is_none() {
                        assert_eq!(*winner, thread);
                        wins[key as usize].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(wins.iter().all(|w| w.load(Ordering::Relaxed) == 1));
}

/// A value that notices when it is read after it was dropped.
struct Canary {
    key: u64,
    alive: AtomicU64,
    dropped: Arc<AtomicUsize>,
}

const ALIVE: u64 = 0x0a11_5e11;

impl Drop for Canary {
    fn drop(&mut self) {
        assert_eq!(self.alive.swap(0, Ordering::Relaxed), ALIVE);
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn readers_see_stable_entries_and_live_values_while_writers_resize() {
    let seed = seed("readers_see_stable_entries_and_live_values_while_writers_resize");
    let dropped = Arc::new(AtomicUsize::new(0));
    let made = AtomicUsize::new(0);
    let map: RcuMap<u64, Canary> = RcuMap::new(&BUCKET, 2);
    let canary = |key| {
        made.fetch_add(1, Ordering::Relaxed);
        Canary {
            key,
            alive: AtomicU64::new(ALIVE),
            dropped: dropped.clone(),
        }
    };
    // Even keys below 200 stay for good; the others come and go.
    for key in (0..200).step_by(2) {
        map.get_or_insert(key, canary(key), &pin());
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let mut writers = Vec::new();
        for thread in 0..3 {
            let (map, canary) = (&map, &canary);
            writers.push(s.spawn(move || {
                let mut rng = Rng::new(seed + thread);
                for round in 0..40_000 {
                    let span = if round / 4000 % 2 == 0 { 4000 } else { 100 };
                    let key = rng.below(span) * 2 + 1;
                    let guard = pin();
                    match rng.below(3) {
                        0 => drop(map.remove(&key, &guard)),
                        1 => drop(map.replace(key, canary(key), &guard)),
                        _ => drop(map.get_or_insert(key, canary(key), &guard)),
                    }
                }
            }));
        }
        for thread in 0..3 {
            let (map, stop) = (&map, &stop);
            s.spawn(move || {
                let mut rng = Rng::new(seed + 100 + thread);
                while !stop.load(Ordering::Relaxed) {
                    let guard = pin();
                    let stays = rng.below(100) * 2;
                    let found = map.get(&stays, &guard).expect("an entry that stays");
                    assert_eq!(found.key, stays);
                    for (key, value) in map.iter(&guard).take(300) {
                        assert_eq!(*key, value.key);
                        assert_eq!(value.alive.load(Ordering::Relaxed), ALIVE);
                    }
                    let even = map.iter(&guard).filter(|(key, _)| *key % 2 == 0).count();
                    assert_eq!(even, 100, "each entry that stays is seen exactly once");
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let left = map.len();
    drop(map);
    // Values rejected by `get_or_insert` were dropped at once; all but the retired ones that the
    // epoch still keeps are gone, and none was dropped twice (each drop checks).
    for _ in 0..10_000 {
        if dropped.load(Ordering::Relaxed) == made.load(Ordering::Relaxed) {
            return;
        }
        pin().flush();
        std::thread::yield_now();
    }
    panic!(
        "{left} entries were left; {} of {} values dropped",
        dropped.load(Ordering::Relaxed),
        made.load(Ordering::Relaxed)
    );
}

#[test]
fn a_map_that_expects_many_entries_holds_few_and_more_all_the_same() {
    let map = RcuMap::new(&BUCKET, 4).expecting(1000);
    for round in 0..3 {
        for key in 0..5000_u64 {
            let guard = pin();
            let (_, rejected) = map.get_or_insert(key, key + round, &guard);
            assert_eq!(rejected, None);
        }
        assert_eq!(map.len(), 5000);
        for key in 0..5000_u64 {
            let guard = pin();
            assert_eq!(map.get(&key, &guard), Some(&(key + round)));
            assert_eq!(map.remove(&key, &guard), Some(&(key + round)));
            assert_eq!(map.get(&key, &guard), None);
        }
        assert!(map.is_empty());
    }
}
