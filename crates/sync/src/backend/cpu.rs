//! The CPU a thread runs on.

use std::cell::Cell;

/// Uses of a cached CPU number before it is read anew.
const REFRESH_AFTER: u32 = 256;

thread_local! {
    /// The CPU number and how often it may still be used.
    static CPU: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

#[inline]
pub(crate) fn cpu_hint() -> usize {
    // During the end of a thread the cell may be gone: any shard will do.
    CPU.try_with(|cell| {
        let (cpu, left) = cell.get();
        if left > 0 {
            cell.set((cpu, left - 1));
            cpu as usize
        } else {
            refresh(cell)
        }
    })
    .unwrap_or(0)
}

#[cold]
fn refresh(cell: &Cell<(u32, u32)>) -> usize {
    let cpu = current();
    cell.set((u32::try_from(cpu).unwrap_or(0), REFRESH_AFTER));
    cpu
}

/// The CPU that the system says.
#[cfg(target_os = "linux")]
fn current() -> usize {
    rustix::thread::sched_getcpu()
}

/// A number that a thread keeps, where the system does not tell the CPU in one way for all
/// processors: it spreads threads as well, though not by where they run.
#[cfg(not(target_os = "linux"))]
fn current() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(0)
}
