//! The lock order is enforced, in debug builds.
#![cfg(debug_assertions)]

use extant_sync::{
    Condvar, LockClass, Mutex, Rank, RankToken, RwLock, RwLockWriteGuard,
    debug_assert_may_wait_for_device, debug_assert_no_locks_at_or_above, pin,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

static INODE: LockClass = LockClass::ascending("inode", Rank::InodeOp);
static MAP: LockClass = LockClass::new("inode map", Rank::InodeMap);
static GROUP: LockClass = LockClass::new("group", Rank::Group);
static HANDLE: LockClass = LockClass::new("handle", Rank::JournalHandle);

/// The message of the panic that `f` must end in.
fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("the violation was not noticed");
    payload
        .downcast_ref::<String>()
        .expect("a message with names")
        .clone()
}

#[test]
fn descending_acquisition_panics_with_both_names() {
    let group = Mutex::new(&GROUP, ());
    let map = RwLock::new(&MAP, ());
    let message = panic_of(|| {
        let _group = group.lock();
        let _map = map.read();
    });
    assert!(
        message.contains("`inode map`") && message.contains("`group`"),
        "{message}"
    );
    // Unwinding has released everything.
    let _map = map.write();
    let _group = group.lock();
}

#[test]
fn a_second_lock_of_a_class_panics_unless_tried() {
    let (a, b) = (Mutex::new(&GROUP, ()), Mutex::new(&GROUP, ()));
    let _a = a.lock();
    assert!(panic_of(|| drop(b.lock())).contains("`group`"));
    let tried = b.try_lock();
    assert!(tried.is_some());
}

#[test]
fn what_was_tried_counts_as_held() {
    let group = Mutex::new(&GROUP, ());
    let map = RwLock::new(&MAP, ());
    let _group = group.try_lock().unwrap();
    assert!(panic_of(|| drop(map.write())).contains("`group`"));
}

#[test]
fn reading_twice_panics() {
    let map = RwLock::new(&MAP, ());
    let _once = map.read();
    assert!(panic_of(|| drop(map.read())).contains("`inode map`"));
}

#[test]
fn ascending_classes_nest_by_ascending_key_only() {
    let locks: Vec<_> = (0..3).map(|n| RwLock::new(&INODE, n)).collect();
    let _second = locks[1].write_ascending(11);
    let _third = locks[2].read_ascending(12);
    assert!(panic_of(|| drop(locks[0].write_ascending(10))).contains("`inode`"));
    assert!(panic_of(|| drop(locks[0].read_ascending(12))).contains("`inode`"));
    let _first = locks[0].try_write().unwrap();
    assert!(
        panic_of(|| drop(locks[0].read_ascending(99))).contains("`inode`"),
        "nothing ascends from a tried lock"
    );
}

#[test]
fn release_in_any_order_is_tracked() {
    let map = RwLock::new(&MAP, ());
    let group = Mutex::new(&GROUP, ());
    let held_map = map.write();
    let held_group = group.lock();
    drop(held_map);
    assert!(panic_of(|| drop(map.read())).contains("`group`"));
    drop(held_group);
    let read = RwLockWriteGuard::downgrade(map.write());
    assert!(map.try_read().is_some());
    drop(read);
    debug_assert_no_locks_at_or_above(Rank::FsState);
}

#[test]
fn a_token_holds_its_place_like_a_lock() {
    let inode = RwLock::new(&INODE, ());
    let _handle = RankToken::enter(&HANDLE);
    assert!(panic_of(|| drop(inode.read())).contains("`handle`"));
    assert!(
        panic_of(|| debug_assert_no_locks_at_or_above(Rank::JournalHandle)).contains("`handle`")
    );
    debug_assert_no_locks_at_or_above(Rank::InodeMap);
}

#[test]
fn devices_are_not_waited_for_under_a_group_lock_or_an_epoch_guard() {
    let map = RwLock::new(&MAP, ());
    let group = Mutex::new(&GROUP, ());
    let _map = map.read();
    debug_assert_may_wait_for_device();
    let guard = group.lock();
    assert!(panic_of(debug_assert_may_wait_for_device).contains("`group`"));
    drop(guard);
    let epoch = pin();
    let payload = catch_unwind(debug_assert_may_wait_for_device).unwrap_err();
    assert!(payload.downcast_ref::<&str>().unwrap().contains("epoch"));
    drop(epoch);
    debug_assert_may_wait_for_device();
}

#[test]
fn waiting_keeps_the_mutex_in_the_order() {
    let map = Arc::new(Mutex::new(&MAP, false));
    let changed = Arc::new(Condvar::new());
    let group = Mutex::new(&GROUP, ());
    let setter = std::thread::spawn({
        let (map, changed) = (map.clone(), changed.clone());
        move || {
            *map.lock() = true;
            changed.notify_all();
        }
    });
    let mut guard = map.lock();
    changed.wait_while(&mut guard, |set| !*set);
    setter.join().unwrap();
    assert!(*guard);
    assert!(changed.wait_for(&mut guard, Duration::from_millis(1)));
    let _group = group.lock();
    let message = panic_of(|| {
        changed.wait_for(&mut guard, Duration::from_millis(1));
    });
    assert!(message.contains("`group`"), "{message}");
}
