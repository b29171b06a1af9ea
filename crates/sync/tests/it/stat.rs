//! Lock statistics (feature `lockstat`).

use extant_sync::stat::{self, LockSnapshot, Side};
use extant_sync::{
    Condvar, CountedAtomicU64, LockClass, Mutex, Rank, RmwClass, RwLock, RwLockWriteGuard,
};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::Duration;

// Each test has classes of its own: tests run side by side.

fn of(name: &str, side: Side) -> LockSnapshot {
    let snapshot = stat::snapshot();
    let found = snapshot
        .locks
        .iter()
        .find(|l| l.name == name && l.side == side);
    found
        .unwrap_or_else(|| panic!("no {name} in\n{snapshot}"))
        .clone()
}

#[test]
fn acquisitions_and_holds_are_counted() {
    static CLASS: LockClass = LockClass::new("counted", Rank::Leaf);
    let lock = Mutex::new(&CLASS, 0);
    for _ in 0..10 {
        *lock.lock() += 1;
    }
    let held = lock.try_lock().unwrap();
    assert!(lock.try_lock().is_none());
    std::thread::sleep(Duration::from_millis(2));
    drop(held);
    let stats = of("counted", Side::Exclusive);
    assert_eq!(stats.acquisitions, 11);
    assert_eq!(stats.acquisition_bounces, 0, "only one thread used it");
    assert_eq!(stats.wait.count, 0);
    assert_eq!(stats.hold.count, 11);
    assert!(stats.hold.max_ns >= 2_000_000);
    assert!(stats.hold.min_ns <= stats.hold.avg_ns());
    assert!(stats.hold.total_ns >= stats.hold.max_ns);
}

#[test]
fn waiting_is_counted_and_timed() {
    static CLASS: LockClass = LockClass::new("contended", Rank::Leaf);
    let lock = Mutex::new(&CLASS, ());
    let barrier = Barrier::new(2);
    std::thread::scope(|s| {
        let guard = lock.lock();
        s.spawn(|| {
            barrier.wait();
            drop(lock.lock());
        });
        barrier.wait();
        std::thread::sleep(Duration::from_millis(20));
        drop(guard);
    });
    let stats = of("contended", Side::Exclusive);
    assert_eq!((stats.acquisitions, stats.wait.count), (2, 1));
    assert_eq!(
        (stats.acquisition_bounces, stats.contention_bounces),
        (1, 1)
    );
    assert!(stats.wait.max_ns > 1_000_000, "{stats:?}");
}

#[test]
fn readers_and_writers_are_told_apart() {
    static CLASS: LockClass = LockClass::new("two sides", Rank::Leaf);
    let lock = RwLock::new(&CLASS, ());
    drop(lock.read());
    drop(lock.read());
    drop(RwLockWriteGuard::downgrade(lock.write()));
    assert_eq!(of("two sides", Side::Shared).acquisitions, 3);
    let write = of("two sides", Side::Exclusive);
    assert_eq!((write.acquisitions, write.hold.count), (1, 1));
}

#[test]
fn a_wait_for_a_condition_is_not_held_time() {
    static CLASS: LockClass = LockClass::new("condition", Rank::Leaf);
    let lock = Mutex::new(&CLASS, ());
    let mut guard = lock.lock();
    Condvar::new().wait_for(&mut guard, Duration::from_millis(50));
    drop(guard);
    let stats = of("condition", Side::Exclusive);
    assert_eq!((stats.acquisitions, stats.hold.count), (2, 2));
    assert!(stats.hold.total_ns < 40_000_000, "{stats:?}");
}

#[test]
fn shared_read_modify_writes_are_counted() {
    static CLASS: RmwClass = RmwClass::new("next number");
    let next = CountedAtomicU64::new(&CLASS, 0);
    for _ in 0..5 {
        next.fetch_add(1, Ordering::Relaxed);
    }
    let _ = next.compare_exchange(9, 10, Ordering::Relaxed, Ordering::Relaxed);
    assert_eq!(next.load(Ordering::Relaxed), 5);
    let snapshot = stat::snapshot();
    let found = snapshot.atomics.iter().find(|a| a.name == "next number");
    let found = found.unwrap();
    assert_eq!((found.count, found.bounces, found.squares), (6, 0, 36));
    std::thread::scope(|s| {
        s.spawn(|| next.fetch_add(1, Ordering::Relaxed));
    });
    let snapshot = stat::snapshot();
    let found = snapshot.atomics.iter().find(|a| a.name == "next number");
    assert_eq!(found.unwrap().bounces, 1);
}

#[test]
fn how_often_threads_meet_at_a_lock_is_known_from_the_uses_of_each() {
    static SHARED: LockClass = LockClass::new("one for all", Rank::Leaf);
    static OWN: LockClass = LockClass::new("one for each", Rank::Leaf);
    let work = |one: &Mutex<()>, own: &Mutex<()>| {
        for _ in 0..100 {
            drop(one.lock());
            drop(own.lock());
        }
    };
    let uses = |name| {
        let stats = of(name, Side::Exclusive);
        (stats.acquisitions, stats.squares)
    };
    work(&Mutex::new(&SHARED, ()), &Mutex::new(&OWN, ()));
    let alone = [uses("one for all"), uses("one for each")];
    let one = Mutex::new(&SHARED, ());
    for _ in 0..4 {
        std::thread::scope(|s| {
            s.spawn(|| work(&one, &Mutex::new(&OWN, ())));
        });
    }
    let since = |name, before: (u64, u64)| {
        let (uses, squares) = uses(name);
        (uses - before.0, squares - before.1)
    };
    let shared = since("one for all", alone[0]);
    let own = since("one for each", alone[1]);
    assert!((stat::meetings(alone[0], shared, 4) - 1.0).abs() < 1e-9);
    assert!(stat::meetings(alone[1], own, 4) < 1e-9);
    // A thread that meets itself in one of ten uses meets the others as often, if all use the same
    // ten locks.
    assert!((stat::meetings((100, 1000), (400, 16_000), 4) - 0.1).abs() < 1e-9);
}

#[test]
fn the_table_has_the_columns_of_the_kernel() {
    static CLASS: LockClass = LockClass::new("in the table", Rank::Leaf);
    drop(Mutex::new(&CLASS, ()).lock());
    let table = stat::snapshot().to_string();
    for column in [
        "con-bounces",
        "waittime-avg",
        "acq-bounces",
        "holdtime-total",
    ] {
        assert!(table.contains(column), "{table}");
    }
    assert!(table.contains("in the table"));
}
