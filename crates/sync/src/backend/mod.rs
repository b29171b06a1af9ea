//! Where locks, atomics, threads and thread-locals come from.
//!
//! Everything in this crate that threads race on goes through here, so that a build of the crate
//! can hand the races to a model checker:
//!
//! | build | locks | atomics, threads, thread-locals |
//! |---|---|---|
//! | ordinary | `parking_lot`, under its own names | the standard library's, under their own names |
//! | feature `shuttle` | `locks.rs` over shuttle's | shuttle's: sequentially consistent, schedules sampled |
//! | feature `loom` | `locks.rs` over loom's | loom's: weak memory, all schedules of a small case |
//!
//! In a model no time passes, a thread moves to another CPU each time it asks where it is, and
//! there are two CPUs. Shared pointers under an epoch are loom's as well (`pointers.rs`); shuttle
//! changes threads before each use of one. `crossbeam-epoch` itself stays what it is in all builds:
//! a model runs all its threads on one of the system's, so that one epoch participant stands for
//! all of them and frees nothing while any of them holds a guard.

#[cfg(all(feature = "loom", feature = "shuttle"))]
compile_error!("the features `loom` and `shuttle` are two answers to one question: choose one");

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod cpu;
#[cfg(any(feature = "loom", feature = "shuttle"))]
mod locks;
#[cfg(feature = "loom")]
mod pointers;

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub(crate) use self::cpu::cpu_hint;
#[cfg(any(feature = "loom", feature = "shuttle"))]
pub(crate) use self::locks::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, cpu_hint,
};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub(crate) use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
#[cfg(feature = "shuttle")]
pub use shuttle::thread_local;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use std::thread_local;

/// loom's, for initial values written as constants too.
#[cfg(feature = "loom")]
macro_rules! loom_thread_local {
    () => {};
    ($(#[$attr:meta])* static $name:ident: $type:ty = const { $init:expr }; $($rest:tt)*) => {
        ::loom::thread_local! { $(#[$attr])* static $name: $type = { $init }; }
        $crate::backend::loom_thread_local! { $($rest)* }
    };
    ($(#[$attr:meta])* static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        ::loom::thread_local! { $(#[$attr])* static $name: $type = { $init }; }
        $crate::backend::loom_thread_local! { $($rest)* }
    };
}
#[cfg(feature = "loom")]
pub(crate) use loom_thread_local as thread_local;
#[cfg(feature = "loom")]
pub(crate) use loom_thread_local;

/// Whether a model checker runs the threads.
pub(crate) const IS_MODEL: bool = cfg!(any(feature = "loom", feature = "shuttle"));

/// Shared atomics and fences, known to the model checker in a build that has one.
///
/// For loads and stores. Shared read-modify-writes outside this crate are those of the counted
/// types, such as [`CountedAtomicU64`](crate::CountedAtomicU64).
pub mod atomic {
    #[cfg(feature = "loom")]
    pub use loom::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    #[cfg(feature = "shuttle")]
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Threads: those of the standard library, or the model checker's in a build that has one.
pub mod thread {
    #[cfg(feature = "loom")]
    pub use loom::thread::{Builder, JoinHandle, current, park, spawn, yield_now};
    #[cfg(feature = "shuttle")]
    pub use shuttle::thread::{
        Builder, JoinHandle, Scope, ScopedJoinHandle, current, park, scope, sleep, spawn, yield_now,
    };
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    pub use std::thread::{
        Builder, JoinHandle, Scope, ScopedJoinHandle, current, park, scope, sleep, spawn, yield_now,
    };
}

/// Strips `const` from functions that make what loom cannot make before a model runs.
macro_rules! const_unless_loom {
    ($(#[$attr:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(feature = "loom"))]
        $(#[$attr])* $vis const fn $($rest)*
        #[cfg(feature = "loom")]
        $(#[$attr])* $vis fn $($rest)*
    };
}
pub(crate) use const_unless_loom;

#[cfg(not(feature = "loom"))]
pub(crate) use crossbeam_epoch::Atomic as EpochPointer;
#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::AtomicPtr;
#[cfg(feature = "loom")]
pub(crate) use pointers::Atomic as EpochPointer;
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::AtomicPtr;

/// What a pointer that goes away points to, which goes with it. Null in loom's models: what is
/// freed after its execution has ended may not touch it, and stays.
#[inline(always)]
pub(crate) fn last_of<T>(pointer: &mut AtomicPtr<T>) -> *mut T {
    #[cfg(feature = "loom")]
    {
        let _ = pointer;
        std::ptr::null_mut()
    }
    #[cfg(not(feature = "loom"))]
    *pointer.get_mut()
}

/// A `static` that a model begins each of its executions with anew.
macro_rules! global {
    ($(#[$attr:meta])* static $name:ident: $type:ty = $init:expr;) => {
        #[cfg(not(any(feature = "loom", feature = "shuttle")))]
        $(#[$attr])* static $name: $type = $init;
        #[cfg(feature = "loom")]
        ::loom::lazy_static! { $(#[$attr])* static ref $name: $type = $init; }
        #[cfg(feature = "shuttle")]
        ::shuttle::lazy_static! { $(#[$attr])* static ref $name: $type = $init; }
    };
}
pub(crate) use global;

/// Stands between two `SeqCst` accesses whose mutual order a proof rests on.
///
/// Nothing but in loom, which takes `SeqCst` accesses for `AcqRel` ones and orders by fences only.
/// The language orders the accesses themselves, and on most machines for less than a fence costs.
#[inline(always)]
pub(crate) fn between_seqcst() {
    #[cfg(feature = "loom")]
    atomic::fence(atomic::Ordering::SeqCst);
}

/// Lets other threads run here in shuttle's schedules, for accesses it does not see.
#[inline(always)]
pub(crate) fn schedule_point() {
    #[cfg(feature = "shuttle")]
    atomic::AtomicBool::new(false).load(atomic::Ordering::Relaxed);
}

/// Looks again and again for as long as that is cheaper than sleeping; whether `done` came true.
#[inline]
pub(crate) fn spin_until(done: impl Fn() -> bool) -> bool {
    // In a model only sleeping is worth looking at.
    for _ in 0..if IS_MODEL { 1 } else { 128 } {
        if done() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}
