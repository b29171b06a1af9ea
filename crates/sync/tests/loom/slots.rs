//! Slots that are filled and emptied at the same time.

use extant_sync::model::exhaust;
use extant_sync::{RmwClass, SlotArray, thread};
use std::sync::Arc;

static SLOT: RmwClass = RmwClass::new("test slot");
static FREE: RmwClass = RmwClass::new("test free slots");

fn array(values: &[u32]) -> Arc<SlotArray> {
    Arc::new(SlotArray::new(&SLOT, &FREE, values))
}

#[test]
fn two_threads_never_get_the_same_slot() {
    exhaust("two_threads_never_get_the_same_slot", Some(3), || {
        let slots = array(&[0, 0]);
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.reserve().map(|slot| slot.put(1, 0)))
        };
        let mine = slots.reserve().map(|slot| slot.put(2, 0));
        let other = other.join().unwrap();
        assert_ne!(mine, other);
        let mut values: Vec<u32> = slots.values().collect();
        values.sort_unstable();
        assert_eq!(values, [1, 2]);
        assert!(slots.reserve().is_none());
    });
}

/// The count comes after the emptied slot: a thread that takes the one finds the other.
#[test]
fn a_slot_emptied_meanwhile_is_found_or_refused() {
    exhaust(
        "a_slot_emptied_meanwhile_is_found_or_refused",
        Some(3),
        || {
            let slots = array(&[5, 6]);
            let other = {
                let slots = Arc::clone(&slots);
                thread::spawn(move || assert!(slots.empty(1, 6)))
            };
            let mine = slots.reserve().map(|slot| slot.put(7, 0));
            other.join().unwrap();
            match mine {
                Some(at) => {
                    assert_eq!(at, 1);
                    assert!(slots.reserve().is_none());
                }
                None => drop(slots.reserve().expect("the emptied slot is free")),
            }
        },
    );
}

#[test]
fn filling_and_emptying_by_turns_keeps_the_count() {
    exhaust(
        "filling_and_emptying_by_turns_keeps_the_count",
        Some(2),
        || {
            let slots = array(&[0, 9]);
            let threads = [1, 2].map(|value| {
                let slots = Arc::clone(&slots);
                thread::spawn(move || {
                    if let Some(slot) = slots.reserve() {
                        let at = slot.put(value, value as usize);
                        assert!(slots.empty(at, value));
                    }
                })
            });
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(slots.values().collect::<Vec<_>>(), [0, 9]);
            let one = slots.reserve().expect("one slot is free");
            assert!(slots.reserve().is_none());
            drop(one);
        },
    );
}
