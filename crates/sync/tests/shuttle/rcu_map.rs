//! The read-mostly table: its own code, with a change of thread before every look at a shared
//! pointer and before every publication of one.

use extant_sync::model::explore;
use extant_sync::{LockClass, Rank, RcuMap, RcuSlot, pin, thread};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static BUCKET: LockClass = LockClass::new("bucket", Rank::CacheBucket);

/// Says when it is gone, to the system's atomics: it may be freed after its model has ended.
struct Watched {
    n: u64,
    gone: Arc<AtomicBool>,
}

impl Watched {
    fn new(n: u64) -> Self {
        Self {
            n,
            gone: Arc::default(),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.gone.store(true, Relaxed);
    }
}

#[test]
fn one_of_the_inserters_of_a_key_wins_and_all_see_its_value() {
    explore(
        "one_of_the_inserters_of_a_key_wins_and_all_see_its_value",
        || {
            let map = Arc::new(RcuMap::new(&BUCKET, 1));
            let threads: Vec<_> = (0..3_u64)
                .map(|n| {
                    let map = Arc::clone(&map);
                    thread::spawn(move || {
                        let guard = pin();
                        let (value, rejected) = map.get_or_insert(7_u64, n, &guard);
                        assert_eq!(map.get(&7, &guard), Some(value));
                        (*value, rejected.is_none())
                    })
                })
                .collect();
            let seen: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            assert_eq!(seen.iter().filter(|(_, won)| *won).count(), 1);
            assert!(seen.iter().all(|(value, _)| *value == seen[0].0));
        },
    );
}

#[test]
fn what_stays_is_found_while_the_table_grows_and_shrinks_around_it() {
    explore(
        "what_stays_is_found_while_the_table_grows_and_shrinks_around_it",
        || {
            let map = Arc::new(RcuMap::new(&BUCKET, 1));
            for key in 0..2_u64 {
                map.get_or_insert(key, key, &pin());
            }
            let writer = {
                let map = Arc::clone(&map);
                thread::spawn(move || {
                    for key in 10..20 {
                        map.get_or_insert(key, key, &pin());
                    }
                    for key in 10..20 {
                        assert_eq!(map.remove(&key, &pin()), Some(&key));
                    }
                })
            };
            let reader = {
                let map = Arc::clone(&map);
                thread::spawn(move || {
                    for _ in 0..4 {
                        let guard = pin();
                        assert_eq!(map.get(&0, &guard), Some(&0));
                        assert_eq!(map.get(&1, &guard), Some(&1));
                        assert!(map.get(&5, &guard).is_none());
                    }
                })
            };
            let guard = pin();
            let staying = map.iter(&guard).filter(|(key, _)| **key < 2).count();
            assert_eq!(staying, 2);
            drop(guard);
            writer.join().unwrap();
            reader.join().unwrap();
            assert_eq!(map.len(), 2);
        },
    );
}

#[test]
fn what_a_reader_found_lives_until_its_guard_is_gone() {
    explore("what_a_reader_found_lives_until_its_guard_is_gone", || {
        let map = Arc::new(RcuMap::new(&BUCKET, 1));
        map.get_or_insert(1_u64, Watched::new(1), &pin());
        let changer = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                map.replace(1, Watched::new(2), &pin());
                map.remove_if(&1, |value| value.n == 2, &pin());
                for _ in 0..4 {
                    pin().flush();
                }
            })
        };
        let guard = pin();
        if let Some(found) = map.get(&1, &guard) {
            let gone = Arc::clone(&found.gone);
            thread::yield_now();
            assert!(!gone.load(Relaxed), "freed under a guard");
            assert!(found.n == 1 || found.n == 2);
        }
        drop(guard);
        changer.join().unwrap();
        assert!(map.get(&1, &pin()).is_none());
    });
}

/// A value that holds places: it is in the map as long as one of them is taken.
#[test]
fn places_in_a_value_come_and_go_with_it() {
    type Places = [RcuSlot<Watched>; 2];
    explore("places_in_a_value_come_and_go_with_it", || {
        let map: Arc<RcuMap<u32, Places>> = Arc::new(RcuMap::new(&BUCKET, 1));
        let put = |map: &RcuMap<u32, Places>, at: usize| {
            let guard = pin();
            let value = Arc::new(Watched::new(at as u64));
            map.update(1, |places| (places[at].put(value, &guard), true), &guard);
        };
        let clear = |map: &RcuMap<u32, Places>, at: usize| {
            let guard = pin();
            map.update(
                1,
                |places| {
                    let stays = !places[1 - at].is_empty();
                    if stays {
                        places[at].clear(&guard);
                    }
                    ((), stays)
                },
                &guard,
            );
        };
        put(&map, 0);
        let other = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                put(&map, 1);
                clear(&map, 1);
                pin().flush();
            })
        };
        let guard = pin();
        // Nobody touches this one yet, whatever happens to its neighbour.
        let found = map.get(&1, &guard).and_then(|places| places[0].get(&guard));
        let found = found.expect("it was put there");
        let gone = Arc::clone(&found.gone);
        clear(&map, 0);
        thread::yield_now();
        assert!(!gone.load(Relaxed) && found.n == 0, "freed under a guard");
        drop(guard);
        other.join().unwrap();
        let guard = pin();
        assert!(map.get(&1, &guard).is_none());
        assert_eq!(map.len(), 0);
    });
}
