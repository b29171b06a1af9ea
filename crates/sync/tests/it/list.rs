//! Per-CPU lists.

use crate::{rng::Rng, seed};
use extant_sync::{ListCursor, LockClass, PerCpuList, Rank};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

static SHARD: LockClass = LockClass::new("list shard", Rank::LruShard);

fn all<T: Clone>(list: &PerCpuList<T>) -> Vec<T> {
    let (mut cursor, mut out) = (ListCursor::default(), Vec::new());
    while list.next_batch(&mut cursor, 7, &mut out, |entry| Some(entry.clone())) {}
    out
}

#[test]
fn it_agrees_with_a_plain_map_under_random_changes() {
    let seed = seed("list::it_agrees_with_a_plain_map_under_random_changes");
    let mut rng = Rng::new(seed);
    let list = PerCpuList::new(&SHARD);
    let mut model = Vec::new();
    for round in 0..50_000_u64 {
        // Grows for a while, then shrinks.
        let grow = if round / 5000 % 2 == 0 { 3 } else { 1 };
        if rng.below(4) < grow || model.is_empty() {
            model.push((list.insert(round), round));
        } else {
            let at = rng.below(model.len() as u64) as usize;
            let (token, value) = model.swap_remove(at);
            assert_eq!(list.remove(token), Some(value));
        }
        if round % 2500 == 0 {
            let mut found = all(&list);
            found.sort_unstable();
            let mut expected: Vec<_> = model.iter().map(|(_, v)| *v).collect();
            expected.sort_unstable();
            assert_eq!(found, expected);
            assert_eq!(list.len(), model.len());
        }
    }
    for (token, value) in model {
        assert_eq!(list.remove(token), Some(value));
    }
    assert!(list.is_empty());
}

#[test]
fn a_walk_stops_where_it_is_told_and_goes_on_there() {
    let list = PerCpuList::new(&SHARD);
    let tokens: Vec<_> = (0..10).map(|n| list.insert(n)).collect();
    let (mut cursor, mut even) = (ListCursor::default(), Vec::new());
    let pick = |n: &i32| (n % 2 == 0).then_some(*n);
    assert!(list.next_batch(&mut cursor, 2, &mut even, pick));
    assert_eq!(even.len(), 2);
    while list.next_batch(&mut cursor, 2, &mut even, pick) {}
    even.sort_unstable();
    assert_eq!(even, [0, 2, 4, 6, 8]);
    let mut count = 0;
    list.for_each(|_| count += 1);
    assert_eq!(count, tokens.len());
}

#[test]
fn walks_see_what_stays_exactly_once_while_others_change_the_list() {
    let seed = seed("walks_see_what_stays_exactly_once_while_others_change_the_list");
    let list = PerCpuList::new(&SHARD);
    let stay: Vec<_> = (0..500_u64).map(|n| list.insert(n)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let changers: Vec<_> = (0..4)
            .map(|thread| {
                let list = &list;
                s.spawn(move || {
                    let mut rng = Rng::new(seed + thread);
                    let mut mine = Vec::new();
                    for _ in 0..30_000 {
                        if rng.below(2) == 0 {
                            mine.push(list.insert(1_000_000 + rng.next() % 1000));
                        } else if !mine.is_empty() {
                            let at = rng.below(mine.len() as u64) as usize;
                            list.remove(mine.swap_remove(at)).expect("my entry");
                        }
                    }
                    for token in mine {
                        list.remove(token).expect("my entry");
                    }
                })
            })
            .collect();
        let (list, stop) = (&list, &stop);
        s.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let mut seen = HashMap::new();
                for entry in all(list) {
                    *seen.entry(entry).or_insert(0) += 1;
                }
                assert!((0..500).all(|n| seen.get(&n) == Some(&1)));
            }
        });
        for changer in changers {
            changer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(list.len(), stay.len());
}
