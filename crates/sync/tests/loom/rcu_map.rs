//! The hash table: lookups without a lock, against threads that insert, remove and rebuild.

use extant_sync::atomic::{AtomicU32, Ordering};
use extant_sync::model::exhaust;
use extant_sync::{LockClass, Rank, RcuMap, RcuSlot, pin, thread};
use std::sync::Arc;

static BUCKET: LockClass = LockClass::new("test bucket", Rank::CacheBucket);

/// A value that is written before it is put into the map. A thread that finds it without being
/// behind that may see that it is none yet.
struct Made(AtomicU32);

const NONE: u32 = u32::MAX;

impl Made {
    fn new(n: u32) -> Self {
        let made = Self(AtomicU32::new(NONE));
        made.0.store(n, Ordering::Relaxed);
        made
    }

    fn get(&self) -> u32 {
        let n = self.0.load(Ordering::Relaxed);
        assert_ne!(n, NONE, "found before it was made");
        n
    }
}

type Map = RcuMap<u32, Made>;

fn map() -> Arc<Map> {
    Arc::new(RcuMap::new(&BUCKET, 1))
}

/// Starts `body` on a thread: both sides of a race get one, since loom takes what the main thread
/// does before its first wait for settled.
fn start(map: &Arc<Map>, body: impl FnOnce(&Map) + Send + 'static) -> thread::JoinHandle<()> {
    let map = Arc::clone(map);
    thread::spawn(move || body(&map))
}

#[test]
fn what_a_lookup_finds_is_whole() {
    exhaust("what_a_lookup_finds_is_whole", Some(3), || {
        let map = map();
        let writer = start(&map, |map| {
            map.get_or_insert(0, Made::new(0), &pin());
            map.get_or_insert(1, Made::new(1), &pin());
            map.replace(1, Made::new(2), &pin());
        });
        let reader = start(&map, |map| {
            let guard = pin();
            if let Some(found) = map.get(&1, &guard) {
                assert!(matches!(found.get(), 1 | 2));
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(map.get(&1, &pin()).map(Made::get), Some(2));
    });
}

#[test]
fn of_two_who_insert_a_key_one_wins_and_both_see_its_value() {
    exhaust(
        "of_two_who_insert_a_key_one_wins_and_both_see_its_value",
        Some(3),
        || {
            let map = map();
            let inserters = [1, 2].map(|n| {
                let map = Arc::clone(&map);
                thread::spawn(move || {
                    let guard = pin();
                    let (found, rejected) = map.get_or_insert(1, Made::new(n), &guard);
                    assert_eq!(found.get() == n, rejected.is_none());
                    found.get()
                })
            });
            let seen = inserters.map(|inserter| inserter.join().unwrap());
            assert_eq!(seen[0], seen[1]);
            assert_eq!(map.get(&1, &pin()).map(Made::get), Some(seen[0]));
            assert_eq!(map.len(), 1);
        },
    );
}

/// A key that stays is found in each table, however its neighbours come, go and have the table
/// rebuilt.
#[test]
fn what_stays_is_found_while_the_table_is_rebuilt_around_it() {
    exhaust(
        "what_stays_is_found_while_the_table_is_rebuilt_around_it",
        Some(2),
        || {
            let map = map();
            // As many as the first table holds.
            for key in 0..6 {
                map.get_or_insert(key, Made::new(key), &pin());
            }
            let writer = start(&map, |map| {
                map.remove(&4, &pin());
                // One of these is one too many.
                map.get_or_insert(6, Made::new(6), &pin());
                map.get_or_insert(7, Made::new(7), &pin());
            });
            let reader = start(&map, |map| {
                let guard = pin();
                assert_eq!(map.get(&5, &guard).map(Made::get), Some(5));
                assert!(map.get(&99, &guard).is_none());
            });
            writer.join().unwrap();
            reader.join().unwrap();
            assert_eq!(map.len(), 7);
            for key in [0, 1, 2, 3, 5, 6, 7] {
                assert_eq!(map.get(&key, &pin()).map(Made::get), Some(key));
            }
        },
    );
}

/// A leaf of inodes: places of a value, which is in the map as long as one of them is taken.
#[test]
fn a_place_in_a_leaf_is_found_while_its_neighbour_comes_and_goes() {
    type Places = [RcuSlot<Made>; 2];
    exhaust(
        "a_place_in_a_leaf_is_found_while_its_neighbour_comes_and_goes",
        Some(3),
        || {
            let map: Arc<RcuMap<u32, Places>> = Arc::new(RcuMap::new(&BUCKET, 1));
            let put = |map: &RcuMap<u32, Places>, at: usize| {
                let guard = pin();
                let made = Arc::new(Made::new(at as u32));
                map.update(1, |places| (places[at].put(made, &guard), true), &guard);
            };
            let clear = |map: &RcuMap<u32, Places>, at: usize| {
                let guard = pin();
                let change = |places: &Places| {
                    let stays = !places[1 - at].is_empty();
                    if stays {
                        places[at].clear(&guard);
                    }
                    ((), stays)
                };
                map.update(1, change, &guard);
            };
            put(&map, 0);
            let other = {
                let map = Arc::clone(&map);
                thread::spawn(move || {
                    put(&map, 1);
                    clear(&map, 1);
                })
            };
            let reader = {
                let map = Arc::clone(&map);
                thread::spawn(move || {
                    let guard = pin();
                    let places = map.get(&1, &guard).expect("its first place is taken");
                    assert_eq!(places[0].get(&guard).map(Made::get), Some(0));
                    if let Some(made) = places[1].get(&guard) {
                        assert_eq!(made.get(), 1);
                    }
                    drop(guard);
                    clear(&map, 0);
                })
            };
            other.join().unwrap();
            reader.join().unwrap();
            assert!(map.get(&1, &pin()).is_none());
        },
    );
}
