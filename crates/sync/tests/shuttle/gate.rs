//! The join gate with participants that come again, and closers that take turns.

use extant_sync::atomic::{AtomicU64, Ordering::Relaxed};
use extant_sync::model::explore;
use extant_sync::{FirstTouch, JoinGate, LockClass, Mutex, Rank, RmwClass, thread};
use std::sync::Arc;

static GATE: LockClass = LockClass::new("test gate", Rank::Leaf);
static INSIDE: RmwClass = RmwClass::new("inside the test gate");
static LIST: LockClass = LockClass::new("test list", Rank::JournalRunning);

#[test]
fn participants_come_again_and_closers_take_turns() {
    explore("participants_come_again_and_closers_take_turns", || {
        let gate = Arc::new(JoinGate::new(&GATE, &INSIDE));
        let inside = Arc::new(AtomicU64::new(0));
        let mut threads: Vec<_> = (0..3)
            .map(|_| {
                let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
                thread::spawn(move || {
                    for _ in 0..2 {
                        let joined = loop {
                            match gate.join() {
                                Some(joined) => break joined,
                                None => gate.wait_open(),
                            }
                        };
                        inside.fetch_add(1, Relaxed);
                        inside.fetch_sub(1, Relaxed);
                        drop(joined);
                    }
                })
            })
            .collect();
        threads.extend((0..2).map(|_| {
            let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
            thread::spawn(move || {
                while !gate.close() {
                    gate.wait_open();
                }
                gate.wait_drained();
                assert_eq!(inside.load(Relaxed), 0);
                gate.open();
            })
        }));
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(gate.is_drained() && !gate.is_closed());
    });
}

/// Three transactions, one after the other, while objects are changed: each change is in the list
/// of the transaction it was made in.
#[test]
fn every_change_is_committed_with_its_transaction() {
    struct Object {
        touched: FirstTouch,
        /// The value and the transaction that changed it last.
        state: Mutex<(u64, u64)>,
    }
    static STATE: LockClass = LockClass::new("test object", Rank::InodeMeta);

    explore("every_change_is_committed_with_its_transaction", || {
        let gate = Arc::new(JoinGate::new(&GATE, &INSIDE));
        let running = Arc::new(AtomicU64::new(1));
        let list = Arc::new(Mutex::new(&LIST, Vec::new()));
        let objects: Arc<Vec<Object>> = Arc::new(
            (0..2)
                .map(|_| Object {
                    touched: FirstTouch::new(),
                    state: Mutex::new(&STATE, (0, 0)),
                })
                .collect(),
        );
        let writers: Vec<_> = (0..3)
            .map(|n| {
                let (gate, running) = (Arc::clone(&gate), Arc::clone(&running));
                let (list, objects) = (Arc::clone(&list), Arc::clone(&objects));
                thread::spawn(move || {
                    for at in [n % 2, (n + 1) % 2] {
                        let _joined = loop {
                            match gate.join() {
                                Some(joined) => break joined,
                                None => gate.wait_open(),
                            }
                        };
                        let id = running.load(Relaxed);
                        let object = &objects[at];
                        if object.touched.touch(id) {
                            list.lock().push(at);
                        }
                        let mut state = object.state.lock();
                        *state = (state.0 + 1, id);
                    }
                })
            })
            .collect();
        let mut committed = [0; 2];
        for id in 1..=3 {
            assert!(gate.close());
            gate.wait_drained();
            let mut registered = std::mem::take(&mut *list.lock());
            registered.sort_unstable();
            assert!(registered.is_sorted_by(|a, b| a < b), "registered twice");
            for (at, object) in objects.iter().enumerate() {
                let state = *object.state.lock();
                let changed = state.1 == id;
                assert_eq!(registered.binary_search(&at).is_ok(), changed);
                assert!(changed || state.0 == committed[at]);
                committed[at] = state.0;
            }
            running.store(id + 1, Relaxed);
            gate.open();
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let all: u64 = objects.iter().map(|o| o.state.lock().0).sum();
        assert_eq!(all, 6);
    });
}
