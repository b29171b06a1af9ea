//! Walks of a per-CPU list while it changes.

use extant_sync::model::explore;
use extant_sync::{ListCursor, LockClass, PerCpuList, Rank, thread};
use std::sync::Arc;

static CLASS: LockClass = LockClass::new("list", Rank::LruShard);

#[test]
fn walks_see_what_stays_exactly_once() {
    explore("walks_see_what_stays_exactly_once", || {
        let list = Arc::new(PerCpuList::new(&CLASS));
        let staying: Vec<_> = (0..3).map(|n| list.insert(n)).collect();
        let changers: Vec<_> = (1..3)
            .map(|n| {
                let list = Arc::clone(&list);
                thread::spawn(move || {
                    let token = list.insert(n * 10);
                    let other = list.insert(n * 10 + 1);
                    assert_eq!(list.remove(token), Some(n * 10));
                    assert_eq!(list.remove(other), Some(n * 10 + 1));
                })
            })
            .collect();
        let (mut cursor, mut seen) = (ListCursor::default(), Vec::new());
        while list.next_batch(&mut cursor, 2, &mut seen, |n| Some(*n)) {}
        let mut stayed: Vec<_> = seen.into_iter().filter(|n| *n < 10).collect();
        stayed.sort_unstable();
        assert_eq!(stayed, [0, 1, 2]);
        for changer in changers {
            changer.join().unwrap();
        }
        assert_eq!(list.len(), 3);
        for token in staying {
            assert!(list.remove(token).is_some());
        }
        assert!(list.is_empty());
    });
}

/// Entries go while a thread walks, and others come to their places: the walk sees what stays once,
/// never what was gone when the walk began, and no entry twice.
#[test]
fn walks_go_on_while_what_they_are_at_is_removed() {
    explore("walks_go_on_while_what_they_are_at_is_removed", || {
        let list = Arc::new(PerCpuList::new(&CLASS));
        let gone = list.insert(99);
        let tokens: Vec<_> = (0..6).map(|n| (n, list.insert(n))).collect();
        assert_eq!(list.remove(gone), Some(99));
        let (going, staying): (Vec<_>, Vec<_>) = tokens.into_iter().partition(|(n, _)| n % 2 == 0);
        let remover = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                for (n, token) in going {
                    assert_eq!(list.remove(token), Some(n));
                    // In its place, or in another shard.
                    let new = list.insert(n + 10);
                    assert_eq!(list.remove(new), Some(n + 10));
                }
            })
        };
        let walkers = [1, 4].map(|max| {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                let (mut cursor, mut seen) = (ListCursor::default(), Vec::new());
                while list.next_batch(&mut cursor, max, &mut seen, |n| Some(*n)) {}
                seen
            })
        });
        for walker in walkers {
            let mut seen = walker.join().unwrap();
            seen.sort_unstable();
            assert!(!seen.contains(&99));
            assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
            let stayed = seen.into_iter().filter(|n| *n < 10 && n % 2 == 1);
            assert_eq!(stayed.collect::<Vec<_>>(), [1, 3, 5]);
        }
        remover.join().unwrap();
        for (n, token) in staying {
            assert_eq!(list.remove(token), Some(n));
        }
        assert!(list.is_empty());
    });
}
