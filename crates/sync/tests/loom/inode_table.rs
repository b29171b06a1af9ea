//! How an inode leaves the table while others look it up, load it and take hold of it: the protocol
//! of the inode table, of the parts it is made of.

use extant_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use extant_sync::model::exhaust;
use extant_sync::{
    CountedAtomicU64, HoldCount, LockClass, Rank, RcuMap, RcuSlot, RmwClass, pin, thread,
};
use std::sync::Arc;

static BUCKET: LockClass = LockClass::new("test inodes", Rank::CacheBucket);
static HOLDS: RmwClass = RmwClass::new("test holds");
static TURN: RmwClass = RmwClass::new("test turn");

const KEY: u32 = 3;

/// An inode in memory: what its record says, and what holds it.
struct Live {
    holds: HoldCount,
    /// The record, and whether it was changed since it was read.
    record: AtomicU64,
    is_changed: AtomicBool,
    /// It is in the table no more.
    is_gone: AtomicBool,
}

type Leaf = [RcuSlot<Live>; 1];

struct Table {
    map: RcuMap<u32, Leaf>,
    turn: CountedAtomicU64,
    /// The record as the device has it.
    device: AtomicU64,
}

impl Table {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            map: RcuMap::new(&BUCKET, 1),
            turn: CountedAtomicU64::new(&TURN, 0),
            device: AtomicU64::new(0),
        })
    }

    fn find(&self) -> Option<Arc<Live>> {
        let guard = pin();
        self.map.get(&KEY, &guard)?[0].load(&guard)
    }

    /// Reads the record and keeps it, unless a changed inode was forgotten meanwhile.
    fn load(&self) -> Arc<Live> {
        loop {
            if let Some(live) = self.find() {
                return live;
            }
            let turn = self.turn.load(Ordering::Acquire);
            let new = Arc::new(Live {
                holds: HoldCount::new(&HOLDS, 0),
                record: AtomicU64::new(self.device.load(Ordering::Acquire)),
                is_changed: AtomicBool::new(false),
                is_gone: AtomicBool::new(false),
            });
            let guard = pin();
            let kept = self.map.update(
                KEY,
                |leaf: &Leaf| match leaf[0].load(&guard) {
                    Some(known) => (Some(known), true),
                    None if self.turn.load(Ordering::Acquire) == turn => {
                        leaf[0].put(Arc::clone(&new), &guard);
                        (Some(new), true)
                    }
                    None => (None, false),
                },
                &guard,
            );
            if let Some(kept) = kept {
                return kept;
            }
        }
    }

    fn hold(&self) -> Arc<Live> {
        loop {
            let live = self.load();
            if live.holds.try_hold() {
                return live;
            }
            thread::yield_now();
        }
    }

    /// Forgets the inode, if nobody holds it; whether that was done.
    fn forget(&self) -> bool {
        let guard = pin();
        let Some(live) = self.find() else {
            return false;
        };
        if !live.holds.claim_if(0) {
            return false;
        }
        if live.is_changed.load(Ordering::Relaxed) {
            // Before it is gone, so that a thread that finds it gone also finds the turn over.
            self.turn.fetch_add(1, Ordering::AcqRel);
        }
        live.is_gone.store(true, Ordering::Relaxed);
        self.map.update(KEY, |_| ((), false), &guard);
        true
    }
}

#[test]
fn what_is_held_stays_in_the_table() {
    exhaust("what_is_held_stays_in_the_table", Some(2), || {
        let table = Table::new();
        table.load();
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.forget();
            })
        };
        let holder = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let held = table.hold();
                assert!(!held.is_gone.load(Ordering::Relaxed));
                let found = table.find().expect("it is held");
                assert!(Arc::ptr_eq(&held, &found));
                held.holds.release();
            })
        };
        holder.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn of_those_who_forget_it_one_does() {
    exhaust("of_those_who_forget_it_one_does", Some(3), || {
        let table = Table::new();
        table.load();
        let threads = [(), ()].map(|()| {
            let table = Arc::clone(&table);
            thread::spawn(move || table.forget())
        });
        let [one, other] = threads.map(|thread| thread.join().unwrap());
        assert!(one ^ other);
        assert!(table.find().is_none());
    });
}

/// A record that was read before the inode was changed and forgotten does not come back.
#[test]
fn what_was_changed_and_forgotten_is_never_found_as_it_was() {
    exhaust(
        "what_was_changed_and_forgotten_is_never_found_as_it_was",
        Some(2),
        || {
            let table = Table::new();
            let other = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    table.load();
                })
            };
            let changer = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let held = table.hold();
                    held.record.store(1, Ordering::Relaxed);
                    held.is_changed.store(true, Ordering::Relaxed);
                    held.holds.release();
                    // Durable: then it may be forgotten.
                    table.device.store(1, Ordering::Release);
                    table.forget();
                })
            };
            changer.join().unwrap();
            other.join().unwrap();
            let found = table.load();
            assert_eq!(found.record.load(Ordering::Relaxed), 1);
        },
    );
}
