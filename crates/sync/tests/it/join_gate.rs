//! The join gate and first touch, with threads that really race.

use crate::rng::Rng;
use crate::seed;
use extant_sync::{FirstTouch, JoinGate, LockClass, Rank, RmwClass};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

static GATE: LockClass = LockClass::new("test gate", Rank::Leaf);
static INSIDE: RmwClass = RmwClass::new("inside the test gate");

#[test]
fn an_open_gate_lets_everyone_in() {
    let gate = JoinGate::new(&GATE, &INSIDE);
    let inside: Vec<_> = (0..10).map(|_| gate.join().expect("open")).collect();
    assert_eq!(gate.participants(), 10);
    assert!(!gate.is_drained());
    drop(inside);
    assert_eq!(gate.participants(), 0);
    assert!(gate.is_drained());
}

#[test]
fn a_closed_gate_lets_nobody_in_and_counts_nobody() {
    let gate = JoinGate::new(&GATE, &INSIDE);
    assert!(gate.close());
    assert!(!gate.close(), "somebody else has it closed");
    assert!(gate.join().is_none());
    assert_eq!(gate.participants(), 0);
    gate.wait_drained();
    gate.open();
    assert!(!gate.is_closed());
    assert!(gate.join().is_some());
}

#[test]
fn the_closer_waits_for_the_last_to_leave_and_is_woken() {
    let gate = JoinGate::new(&GATE, &INSIDE);
    let left = AtomicBool::new(false);
    std::thread::scope(|s| {
        let first = gate.join().expect("open");
        let second = gate.join().expect("open");
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            drop(first);
            std::thread::sleep(Duration::from_millis(20));
            left.store(true, Relaxed);
            // Another thread than the one that joined.
            drop(second);
        });
        gate.close();
        gate.wait_drained();
        assert!(left.load(Relaxed));
    });
}

#[test]
fn those_who_wait_for_opening_are_woken() {
    let gate = JoinGate::new(&GATE, &INSIDE);
    gate.close();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                gate.wait_open();
                assert!(gate.join().is_some());
            });
        }
        std::thread::sleep(Duration::from_millis(5));
        gate.open();
    });
}

#[test]
fn nobody_is_inside_a_drained_gate() {
    let seed = seed("nobody_is_inside_a_drained_gate");
    let gate = JoinGate::new(&GATE, &INSIDE);
    // Changed by the closer alone while drained; participants see it hold still. Plain loads and
    // stores: the gate orders them, or the check fails.
    let epoch = AtomicU64::new(0);
    let inside = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let (joins, refusals) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        for n in 0..6 {
            let (gate, epoch, inside, stop) = (&gate, &epoch, &inside, &stop);
            let (joins, refusals) = (&joins, &refusals);
            s.spawn(move || {
                let mut rng = Rng::new(seed ^ n);
                while !stop.load(Relaxed) {
                    let Some(joined) = gate.join() else {
                        refusals.fetch_add(1, Relaxed);
                        gate.wait_open();
                        continue;
                    };
                    joins.fetch_add(1, Relaxed);
                    inside.fetch_add(1, Relaxed);
                    let before = epoch.load(Relaxed);
                    match rng.below(64) {
                        0 => std::thread::yield_now(),
                        1 => std::thread::sleep(Duration::from_micros(20)),
                        _ => {}
                    }
                    assert_eq!(epoch.load(Relaxed), before);
                    inside.fetch_sub(1, Relaxed);
                    drop(joined);
                }
            });
        }
        let until = Instant::now() + Duration::from_millis(600);
        while Instant::now() < until {
            assert!(gate.close());
            gate.wait_drained();
            let e = epoch.load(Relaxed);
            assert_eq!(inside.load(Relaxed), 0);
            epoch.store(e + 1, Relaxed);
            std::thread::yield_now();
            assert_eq!(inside.load(Relaxed), 0);
            epoch.store(e + 2, Relaxed);
            gate.open();
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
    });
    println!(
        "{} joins, {} refused, drained {} times",
        joins.load(Relaxed),
        refusals.load(Relaxed),
        epoch.load(Relaxed) / 2
    );
    assert!(epoch.load(Relaxed) > 0);
    assert!(gate.is_drained());
}

#[test]
fn two_closers_exclude_each_other() {
    let gate = JoinGate::new(&GATE, &INSIDE);
    let alone = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..200 {
                    while !gate.close() {
                        gate.wait_open();
                    }
                    assert!(!alone.swap(true, Relaxed));
                    gate.wait_drained();
                    alone.store(false, Relaxed);
                    gate.open();
                }
            });
        }
    });
}

#[test]
fn one_of_the_threads_that_touch_an_object_registers_it() {
    let touched: Vec<FirstTouch> = (0..64).map(|_| FirstTouch::new()).collect();
    for id in 1..=100 {
        let registered = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for object in &touched {
                        if object.touch(id) {
                            registered.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(registered.load(Relaxed), 64);
    }
    assert!(touched.iter().all(|t| t.last() == 100));
}

#[test]
fn an_older_transaction_registers_nothing_any_more() {
    let touched = FirstTouch::default();
    assert_eq!(touched.last(), 0);
    assert!(touched.touch(5));
    assert!(!touched.touch(4));
    assert_eq!(touched.last(), 5);
    assert!(touched.touch(u64::MAX));
    assert!(!touched.touch(6));
}
