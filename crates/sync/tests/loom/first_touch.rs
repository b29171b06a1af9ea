//! First touch, alone and inside a gate.

use extant_sync::atomic::{AtomicU64, Ordering};
use extant_sync::model::exhaust;
use extant_sync::{FirstTouch, JoinGate, LockClass, Mutex, Rank, RmwClass, thread};
use std::sync::Arc;

static GATE: LockClass = LockClass::new("test gate", Rank::Leaf);
static INSIDE: RmwClass = RmwClass::new("inside the test gate");
static LIST: LockClass = LockClass::new("test list", Rank::JournalRunning);

#[test]
fn one_of_the_threads_that_touch_registers() {
    exhaust("one_of_the_threads_that_touch_registers", None, || {
        let touched = Arc::new(FirstTouch::new());
        let others = [(); 2].map(|()| {
            let touched = Arc::clone(&touched);
            thread::spawn(move || u32::from(touched.touch(1)))
        });
        let mine = u32::from(touched.touch(1));
        let all: u32 = others.into_iter().map(|o| o.join().unwrap()).sum();
        assert_eq!(mine + all, 1);
        assert!(touched.touch(2));
    });
}

/// What a commit must find: the gate closes, and every object that participants touched is on the
/// transaction's list, once, and the next transaction registers it anew.
#[test]
fn a_drained_transaction_has_every_touched_object_registered_once() {
    struct Journal {
        gate: JoinGate,
        id: AtomicU64,
        touched: FirstTouch,
        list: Mutex<Vec<u64>>,
    }

    impl Journal {
        /// Touches the object in the running transaction.
        fn change(&self) -> bool {
            let Some(_joined) = self.gate.join() else {
                return false;
            };
            let id = self.id.load(Ordering::Relaxed);
            if self.touched.touch(id) {
                self.list.lock().push(id);
            }
            true
        }
    }

    exhaust(
        "a_drained_transaction_has_every_touched_object_registered_once",
        Some(2),
        || {
            let journal = Arc::new(Journal {
                gate: JoinGate::new(&GATE, &INSIDE),
                id: AtomicU64::new(1),
                touched: FirstTouch::new(),
                list: Mutex::new(&LIST, Vec::new()),
            });
            let others = [(); 2].map(|()| {
                let journal = Arc::clone(&journal);
                thread::spawn(move || journal.change())
            });
            journal.gate.close();
            journal.gate.wait_drained();
            let committed = std::mem::take(&mut *journal.list.lock());
            journal.id.store(2, Ordering::Relaxed);
            journal.gate.open();
            let in_time = journal.change();
            assert!(in_time);
            let all = others.map(|o| o.join().unwrap());
            // A first transaction nobody joined committed nothing; otherwise the object, once.
            assert!(committed.is_empty() || committed == [1]);
            assert!(all.iter().any(|changed| *changed) || committed.is_empty());
            assert_eq!(*journal.list.lock(), [2]);
        },
    );
}
