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
