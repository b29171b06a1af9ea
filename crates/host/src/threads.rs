//! Threads that work side by side, also in a process that was forked.
//!
//! The pool that all work of a process shares is started once. A process that is forked from this
//! one has the pool, but none of its threads: work that is handed to it waits for ever.

/// Does work that hands parts of itself to the threads of the process.
///
/// In a process that was forked from one that did so, the work has threads of its own, which end
/// with it. Everything that uses the shared pool has to go through here: the process that is the
/// first one to do so has the pool.
pub fn side_by_side<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if has_shared_pool() || rayon::current_thread_index().is_some() {
        return work();
    }
    match rayon::ThreadPoolBuilder::new().build() {
        Ok(pool) => pool.install(work),
        Err(_) => {
            // The system has no more threads: this one does all. It is part of the pool for good.
            let alone = rayon::ThreadPoolBuilder::new().num_threads(1);
            std::mem::forget(alone.use_current_thread().build());
            work()
        }
    }
}

/// Whether the shared pool is of this process, or is not yet started.
fn has_shared_pool() -> bool {
    use std::sync::atomic::{AtomicU32, Ordering};
    // No lock: another thread may hold one when the process is forked.
    static OWNER: AtomicU32 = AtomicU32::new(0);
    let this = std::process::id();
    match OWNER.load(Ordering::Relaxed) {
        0 => {
            // Other threads store the same number.
            OWNER.store(this, Ordering::Relaxed);
            true
        }
        owner => owner == this,
    }
}
