//! The summary of a bit set that is changed from several sides.

use extant_sync::model::exhaust;
use extant_sync::{AtomicBitSet, RmwClass, thread};
use std::sync::Arc;

static MEMBER: RmwClass = RmwClass::new("test set");

fn set(members: &[usize]) -> Arc<AtomicBitSet> {
    let set = AtomicBitSet::new(&MEMBER, 130);
    for &member in members {
        set.insert(member);
    }
    Arc::new(set)
}

/// The one clears the summary bit that the other has just set.
#[test]
fn what_was_inserted_is_found_though_its_word_was_emptied_meanwhile() {
    exhaust(
        "what_was_inserted_is_found_though_its_word_was_emptied_meanwhile",
        Some(3),
        || {
            let set = set(&[64]);
            let other = {
                let set = Arc::clone(&set);
                thread::spawn(move || set.remove(64))
            };
            set.insert(65);
            other.join().unwrap();
            assert_eq!(set.next(0), Some(65));
        },
    );
}

#[test]
fn two_inserts_and_two_removes_in_one_word_leave_it_found() {
    exhaust(
        "two_inserts_and_two_removes_in_one_word_leave_it_found",
        Some(2),
        || {
            let set = set(&[64]);
            let threads = [65, 66].map(|own| {
                let set = Arc::clone(&set);
                thread::spawn(move || {
                    set.insert(own);
                    if own == 65 {
                        set.remove(64);
                        set.remove(own);
                    }
                })
            });
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(set.next(0), Some(66));
            set.remove(66);
            assert_eq!(set.next(0), None);
        },
    );
}

/// As groups move between orders: in the new set before they leave the old one.
#[test]
fn what_moves_from_one_set_to_another_is_always_in_one() {
    exhaust(
        "what_moves_from_one_set_to_another_is_always_in_one",
        Some(3),
        || {
            let (old, new) = (set(&[64]), set(&[]));
            let other = {
                let (old, new) = (Arc::clone(&old), Arc::clone(&new));
                thread::spawn(move || {
                    new.insert(64);
                    old.remove(64);
                })
            };
            // In the order in which it moves.
            assert!(old.contains(64) || new.contains(64));
            other.join().unwrap();
            assert_eq!((old.next(0), new.next(0)), (None, Some(64)));
        },
    );
}
