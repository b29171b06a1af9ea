//! The join gate.

use extant_sync::model::exhaust;
use extant_sync::{JoinGate, LockClass, Rank, RmwClass, thread};
use loom::cell::UnsafeCell;
use std::sync::Arc;

static GATE: LockClass = LockClass::new("test gate", Rank::Leaf);
static INSIDE: RmwClass = RmwClass::new("inside the test gate");

/// A gate and what its participants read and its closer changes. loom reports a read and a change
/// that are not ordered one after the other.
struct Guarded {
    gate: JoinGate,
    state: UnsafeCell<()>,
}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: JoinGate::new(&GATE, &INSIDE),
            state: UnsafeCell::new(()),
        })
    }

    fn use_inside(&self) -> bool {
        let Some(_joined) = self.gate.join() else {
            return false;
        };
        self.state.with(|_| ());
        true
    }

    fn change_drained(&self) {
        self.gate.wait_drained();
        self.state.with_mut(|_| ());
    }
}

/// Starts `body` on a thread with the same gate; `moved` threads begin on the other CPU.
fn start(
    guarded: &Arc<Guarded>,
    moved: bool,
    body: impl FnOnce(&Guarded) + Send + 'static,
) -> thread::JoinHandle<()> {
    let guarded = Arc::clone(guarded);
    thread::spawn(move || {
        if moved {
            let _other_cpu_next_time = extant_sync::cpu_hint();
        }
        body(&guarded);
    })
}

#[test]
fn nobody_is_inside_a_drained_gate() {
    for moved in [false, true] {
        let name = format!("nobody_is_inside_a_drained_gate({moved})");
        exhaust(&name, Some(3), move || {
            let guarded = Guarded::new();
            let joiners = [false, moved].map(|moved| {
                start(&guarded, moved, |g| {
                    g.use_inside();
                })
            });
            guarded.gate.close();
            guarded.change_drained();
            assert!(guarded.gate.join().is_none());
            // Nobody opens the gate: a thread that reads the state from here on is caught.
            for joiner in joiners {
                joiner.join().unwrap();
            }
            guarded.state.with_mut(|_| ());
        });
    }
}

#[test]
fn one_joiner_and_one_closer_under_every_schedule() {
    exhaust(
        "one_joiner_and_one_closer_under_every_schedule",
        None,
        || {
            let guarded = Guarded::new();
            let joiner = start(&guarded, false, |g| {
                g.use_inside();
            });
            guarded.gate.close();
            guarded.change_drained();
            guarded.gate.open();
            joiner.join().unwrap();
        },
    );
}

#[test]
fn those_who_find_the_gate_closed_are_woken_and_join_after_the_change() {
    exhaust(
        "those_who_find_the_gate_closed_are_woken_and_join_after_the_change",
        Some(3),
        || {
            let guarded = Guarded::new();
            let joiner = start(&guarded, false, |g| {
                while !g.use_inside() {
                    g.gate.wait_open();
                }
            });
            guarded.gate.close();
            guarded.change_drained();
            guarded.gate.open();
            joiner.join().unwrap();
            assert!(guarded.gate.is_drained());
        },
    );
}

#[test]
fn a_participant_that_moved_leaves_through_the_shard_it_joined() {
    exhaust(
        "a_participant_that_moved_leaves_through_the_shard_it_joined",
        Some(3),
        || {
            let guarded = Guarded::new();
            let joiner = start(&guarded, false, |g| {
                let outer = g.gate.join();
                if outer.is_some() {
                    // On the other CPU by now; refused perhaps, and then gone at once.
                    g.use_inside();
                    g.state.with(|_| ());
                }
                drop(outer);
            });
            guarded.gate.close();
            guarded.change_drained();
            joiner.join().unwrap();
        },
    );
}

#[test]
fn two_closers_never_have_it_both() {
    exhaust("two_closers_never_have_it_both", Some(3), || {
        let guarded = Guarded::new();
        let other = start(&guarded, false, |g| {
            if g.gate.close() {
                g.change_drained();
                g.gate.open();
            }
        });
        if guarded.gate.close() {
            guarded.change_drained();
            guarded.gate.open();
        }
        other.join().unwrap();
        assert!(!guarded.gate.is_closed());
    });
}
