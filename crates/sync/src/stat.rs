//! Lock statistics: per lock class acquisitions, contentions, wait and hold times; per class of
//! shared atomics their read-modify-writes.
//!
//! The columns are those of the kernel's `/proc/lock_stat` (Documentation/locking/lockstat.rst),
//! with times in nanoseconds, and one difference: an acquisition "bounces" when another *thread*
//! acquired the same lock last, so that the figure does not depend on where threads happen to run.
//! It is what an operation costs its neighbours: a lock that only ever one thread uses never
//! bounces.
//!
//! Without the `lockstat` feature everything here is empty and costs nothing; [`enabled`] says
//! which. Recording is spread over shards: it does not add contention of its own.

use std::fmt;

#[cfg(feature = "lockstat")]
mod record;
#[cfg(feature = "lockstat")]
pub(crate) use record::{ClassStats, Hold, RmwStats, Use, Uses};

/// Whether statistics are compiled in.
#[must_use]
pub const fn enabled() -> bool {
    cfg!(feature = "lockstat")
}

/// Statistics of all classes that were used since the start or the last [`reset`].
///
/// Taken while others work, the figures of one class may be off by what happens meanwhile.
#[must_use]
pub fn snapshot() -> Snapshot {
    #[cfg(feature = "lockstat")]
    return record::snapshot();
    #[cfg(not(feature = "lockstat"))]
    Snapshot::default()
}

/// Sets all statistics to zero.
pub fn reset() {
    #[cfg(feature = "lockstat")]
    record::reset();
}

/// Number and length of some intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many intervals.
    pub count: u64,
    /// The shortest, in nanoseconds; 0 if there is none.
    pub min_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// All together, in nanoseconds.
    pub total_ns: u64,
}

impl Times {
    /// The mean length in nanoseconds; 0 if there is no interval.
    #[must_use]
    pub fn avg_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }
}

/// How the locks of a class were acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Side {
    /// Alone: mutexes, and the write side of reader-writer locks.
    Exclusive,
    /// The read side of reader-writer locks.
    Shared,
}

/// Statistics of one side of a lock class.
#[derive(Clone, Debug)]
pub struct LockSnapshot {
    /// Name of the class.
    pub name: &'static str,
    /// Which side.
    pub side: Side,
    /// Acquisitions that had to wait and whose lock was last acquired by another thread.
    pub contention_bounces: u64,
    /// Acquisitions of a lock that was last acquired by another thread.
    pub acquisition_bounces: u64,
    /// All acquisitions.
    pub acquisitions: u64,
    /// The acquisitions of each lock squared, added up. `acquisitions`² / `squares` is the number
    /// of locks that the class would have if all were used alike; see [`meetings`].
    pub squares: u64,
    /// Acquisitions that had to wait (`count`), and how long.
    pub wait: Times,
    /// Completed holds, and how long.
    pub hold: Times,
}

/// Statistics of one class of shared atomics.
#[derive(Clone, Debug)]
pub struct RmwSnapshot {
    /// Name of the class.
    pub name: &'static str,
    /// Read-modify-writes.
    pub count: u64,
    /// Those of an atomic that another thread had changed last.
    pub bounces: u64,
    /// Those of each atomic squared, added up, as in [`LockSnapshot::squares`].
    pub squares: u64,
}

/// The chance that two threads use the same lock (or atomic) of a class: 1 if there is one only, 0
/// if each has its own, 1 / n if all use n alike.
///
/// `alone` and `together` are uses and sum of their squares with one thread and with `threads`, of
/// which each does what the one did. Of two uses one in `threads` pairs is by the same thread,
/// which meets itself as it does alone; the rest of what is seen is meetings of different ones.
#[must_use]
pub fn meetings(alone: (u64, u64), together: (u64, u64), threads: usize) -> f64 {
    let same = |(uses, squares): (u64, u64)| squares as f64 / (uses as f64 * uses as f64).max(1.0);
    let own = 1.0 / threads.max(1) as f64;
    if threads < 2 {
        return 0.0;
    }
    ((same(together) - own * same(alone)) / (1.0 - own)).clamp(0.0, 1.0)
}

/// Statistics of all classes. Displays as a table.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Per side of each lock class that was acquired, most waited-for first, then most acquired.
    pub locks: Vec<LockSnapshot>,
    /// Per class of shared atomics, most used first.
    pub atomics: Vec<RmwSnapshot>,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const COLUMNS: [&str; 12] = [
            "con-bounces",
            "contentions",
            "waittime-min",
            "waittime-max",
            "waittime-total",
            "waittime-avg",
            "acq-bounces",
            "acquisitions",
            "holdtime-min",
            "holdtime-max",
            "holdtime-total",
            "holdtime-avg",
        ];
        if !enabled() {
            return f.write_str("lock statistics are not compiled in (feature `lockstat`)\n");
        }
        write!(f, "{:>24}", "class name")?;
        for column in COLUMNS {
            write!(f, " {column:>14}")?;
        }
        writeln!(f)?;
        for lock in &self.locks {
            let suffix = match lock.side {
                Side::Exclusive => "",
                Side::Shared => "-R",
            };
            write!(
                f,
                "{:>24}",
                format_args!("{}{suffix}", lock.name).to_string()
            )?;
            for value in [
                lock.contention_bounces,
                lock.wait.count,
                lock.wait.min_ns,
                lock.wait.max_ns,
                lock.wait.total_ns,
                lock.wait.avg_ns(),
                lock.acquisition_bounces,
                lock.acquisitions,
                lock.hold.min_ns,
                lock.hold.max_ns,
                lock.hold.total_ns,
                lock.hold.avg_ns(),
            ] {
                write!(f, " {value:>14}")?;
            }
            writeln!(f)?;
        }
        if !self.atomics.is_empty() {
            writeln!(
                f,
                "{:>24} {:>14} {:>14}",
                "shared atomic", "rmws", "bounces"
            )?;
            for atomic in &self.atomics {
                let (count, bounces) = (atomic.count, atomic.bounces);
                writeln!(f, "{:>24} {count:>14} {bounces:>14}", atomic.name)?;
            }
        }
        Ok(())
    }
}
