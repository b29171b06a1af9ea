//! Ranked locks, lock statistics, per-CPU shards and a read-mostly hash table.
//!
//! Internal to Extant: any version may change it. Programs use the crate `extant`.
//!
//! | item | what it is for |
//! |---|---|
//! | [`Rank`], [`LockClass`] | the one lock order of the engine, and the kinds of lock in it |
//! | [`Mutex`], [`RwLock`], [`Condvar`] | the usual locks, checked against the order in debug builds |
//! | [`BiasedRwLock`] | a reader-writer lock whose readers store nothing to the lock |
//! | [`JoinGate`] | joined and left at almost no cost, until somebody closes it and waits for it to drain |
//! | [`FirstTouch`] | of the threads that touch an object in a transaction, picks the one that registers it |
//! | [`HoldCount`] | holds on a shared thing, and whether it is leaving |
//! | [`InFlight`] | of the threads that need the same thing, has one load it and the others wait |
//! | [`Leaders`] | as few threads wait for work as are needed, and one is always there for it while others do theirs |
//! | [`RcuCell`], [`RcuSlot`] | one value, or a place for one, borrowed by readers and replaced as a whole |
//! | [`RcuMap`], [`pin`] | a hash table with lock-free lookups that borrow under an epoch guard |
//! | [`AtomicBitSet`] | a set of small numbers, changed and searched without a lock |
//! | [`SlotArray`] | slots that threads fill and empty without a lock |
//! | [`cpu_hint`], [`PerCpu`], [`ShardedCounter`], [`PerCpuList`] | state spread over CPUs, folded when read |
//! | [`PendingSum`] | how much has come and not left, never read as too little |
//! | [`prefetch`] | telling the processor what is about to be used |
//! | [`CountedAtomicU64`] and its kin | shared atomics whose read-modify-writes are counted |
//! | [`atomic`], [`thread`] | plain atomics and threads, from where a model checker can take them over |
//! | [`stat`] | lock statistics, in the columns of the kernel's `lock_stat` |
//!
//! # Checking by a model
//!
//! With the feature `loom` or `shuttle` all of this, and [`atomic`] and [`thread`], is run by that
//! model checker: the same code, with its threads, locks and atomics in place of the real ones.
//! `model` then has what starts a check. Code above this crate that takes its threads, locks and
//! shared atomics from here is checked along with it.
//!
//! # Locking
//!
//! Locks are acquired in ascending [`Rank`]. In debug builds each thread keeps the list of locks it
//! holds, and an acquisition that could deadlock panics with the names of both classes, whether or
//! not another thread is there to deadlock with. `try_` forms cannot deadlock and are exempt, but
//! what they acquire counts as held. Release builds keep none of this.
//!
//! # Invariants
//!
//! - `unsafe` lives in `biased.rs`, `rcu_cell.rs` and `rcu_map.rs` only, in what takes the place of
//!   shared pointers in a model (`backend/pointers.rs`), and in `prefetch.rs`.
//! - With the `lockstat` feature off and debug assertions off, a [`Mutex`] is exactly as large and
//!   as fast as the `parking_lot` one.
#![deny(unsafe_code)]

mod backend;
mod biased;
mod bit_set;
mod condvar;
mod cpu;
mod epoch;
mod first_touch;
mod hold_count;
mod in_flight;
mod join_gate;
mod leaders;
mod list;
#[cfg(any(feature = "loom", feature = "shuttle"))]
pub mod model;
mod mutex;
mod order;
mod pending;
mod prefetch;
mod rank;
mod rcu_cell;
mod rcu_map;
mod rmw;
mod rwlock;
mod slots;
pub mod stat;
mod track;

#[cfg(not(feature = "loom"))]
pub use backend::thread_local;
pub use backend::{atomic, thread};
pub use biased::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard};
pub use bit_set::AtomicBitSet;
pub use condvar::Condvar;
pub use cpu::{PerCpu, ShardedCounter, cpu_hint, keep_one_shard, shard_count};
pub use epoch::{EpochGuard, pin};
pub use first_touch::FirstTouch;
pub use hold_count::HoldCount;
pub use in_flight::{Claim, Claimed, InFlight, Load};
pub use join_gate::{JoinGate, Joined};
pub use leaders::{Leader, Leaders};
pub use list::{ListCursor, ListToken, PerCpuList};
pub use mutex::{Mutex, MutexGuard};
pub use order::{RankToken, debug_assert_may_wait_for_device, debug_assert_no_locks_at_or_above};
pub use pending::PendingSum;
pub use prefetch::prefetch;
pub use rank::{LockClass, Rank};
pub use rcu_cell::{RcuCell, RcuSlot};
pub use rcu_map::RcuMap;
pub use rmw::{
    CountedAtomicBool, CountedAtomicI64, CountedAtomicU32, CountedAtomicU64, CountedAtomicUsize,
    RmwClass,
};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use slots::{ReservedSlot, SlotArray};
