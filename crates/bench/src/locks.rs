//! Lock statistics per operation, and the bound they put on throughput.
//!
//! A lock that only ever one thread takes costs its neighbours nothing; what counts is a lock that
//! moved between threads (it *bounced*). While one worker holds such a lock no other can, so that
//! the exclusive holds of one operation, added up, are a part of it that no number of cores makes
//! faster: the longest such sum over all classes bounds the rate at 1 / sum. A class may have many
//! locks (one for each directory, group or bucket); the figure then is too pessimistic, because it
//! takes them for one.

use extant_sync::stat::{self, Side, Snapshot};
use std::fmt;

/// What locks cost the operations of one repetition. Displays as a table.
#[derive(Clone, Debug)]
pub(crate) struct LockTable {
    operations: u64,
    snapshot: Snapshot,
    /// Whether what is shared and should not be is a failure.
    is_judged: bool,
}

/// Starts counting anew.
pub(crate) fn start() {
    stat::reset();
}

impl LockTable {
    /// What was counted since [`start`], during so many operations.
    pub(crate) fn take(operations: u64, is_judged: bool) -> Self {
        Self {
            operations: operations.max(1),
            snapshot: stat::snapshot(),
            is_judged,
        }
    }

    /// What was counted, of so many operations.
    pub(crate) fn counted(&self) -> (&Snapshot, u64) {
        (&self.snapshot, self.operations)
    }

    /// Fails if workers share anything but `own`: classes of which each file, thread or CPU has its
    /// own lock or atomic.
    ///
    /// Of these one may bounce in fewer than one of a hundred operations: when a thread was moved
    /// to another CPU, or two take turns on one. Everything else may be used in fewer than one of a
    /// thousand.
    ///
    /// # Errors
    /// What is shared, and the table.
    pub(crate) fn expect_unshared(&self, own: &[&str]) -> Result<(), String> {
        let is_shared = |name: &str, uses: u64, bounces: u64| {
            if own.contains(&name) {
                bounces * 100 >= self.operations
            } else {
                uses * 1000 >= self.operations
            }
        };
        let locks = self.snapshot.locks.iter();
        let locks = locks.filter(|l| is_shared(l.name, l.acquisitions, l.acquisition_bounces));
        let atomics = self.snapshot.atomics.iter();
        let atomics = atomics.filter(|a| is_shared(a.name, a.count, a.bounces));
        let shared: Vec<&str> = locks
            .map(|l| l.name)
            .chain(atomics.map(|a| a.name))
            .collect();
        if shared.is_empty() || !self.is_judged {
            Ok(())
        } else {
            Err(format!("workers share {}\n{self}", shared.join(", ")))
        }
    }

    fn per_operation(&self, value: u64) -> f64 {
        value as f64 / self.operations as f64
    }

    /// The class with the most exclusive hold time per operation among those that bounced in more
    /// than one of a thousand acquisitions, and that time in nanoseconds.
    fn longest_shared_hold(&self) -> Option<(&'static str, f64)> {
        let locks = self.snapshot.locks.iter();
        locks
            .filter(|l| l.side == Side::Exclusive)
            .filter(|l| l.acquisition_bounces * 1000 > l.acquisitions)
            .map(|l| (l.name, self.per_operation(l.hold.total_ns)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl fmt::Display for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>26} {:>9} {:>10} {:>12} {:>11} {:>12} {:>11} {:>11}",
            "lock class",
            "acq/op",
            "bounces/op",
            "contended/op",
            "wait ns/op",
            "hold ns/op",
            "hold avg ns",
            "hold max ns"
        )?;
        for lock in &self.snapshot.locks {
            let suffix = if lock.side == Side::Shared { "-R" } else { "" };
            writeln!(
                f,
                "{:>26} {:>9.3} {:>10.4} {:>12.5} {:>11.1} {:>12.1} {:>11} {:>11}",
                format!("{}{suffix}", lock.name),
                self.per_operation(lock.acquisitions),
                self.per_operation(lock.acquisition_bounces),
                self.per_operation(lock.wait.count),
                self.per_operation(lock.wait.total_ns),
                self.per_operation(lock.hold.total_ns),
                lock.hold.avg_ns(),
                lock.hold.max_ns,
            )?;
        }
        writeln!(
            f,
            "{:>26} {:>9} {:>10}",
            "shared atomic", "rmw/op", "bounces/op"
        )?;
        for atomic in &self.snapshot.atomics {
            writeln!(
                f,
                "{:>26} {:>9.3} {:>10.4}",
                atomic.name,
                self.per_operation(atomic.count),
                self.per_operation(atomic.bounces)
            )?;
        }
        let acquisitions: u64 = self.snapshot.locks.iter().map(|l| l.acquisitions).sum();
        let rmws: u64 = self.snapshot.atomics.iter().map(|a| a.count).sum();
        writeln!(
            f,
            "all: {:.2} acquisitions and {:.2} shared read-modify-writes per operation",
            self.per_operation(acquisitions),
            self.per_operation(rmws)
        )?;
        match self.longest_shared_hold() {
            Some((name, ns)) if ns > 0.0 => writeln!(
                f,
                "bound: {:.0} operations/s, from {ns:.0} ns per operation under {name:?}, taken for one lock",
                1e9 / ns
            ),
            _ => writeln!(f, "bound: none, no lock moved between workers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_sync::stat::{LockSnapshot, RmwSnapshot, Times};

    fn lock(name: &'static str, side: Side, bounces: u64, total_ns: u64) -> LockSnapshot {
        LockSnapshot {
            name,
            side,
            contention_bounces: 0,
            acquisition_bounces: bounces,
            acquisitions: 1000,
            squares: 1_000_000,
            wait: Times::default(),
            hold: Times {
                count: 1000,
                min_ns: 1,
                max_ns: total_ns,
                total_ns,
            },
        }
    }

    #[test]
    fn what_is_shared_is_named_but_for_what_each_has_of_its_own_and_keeps() {
        let shared = |operations, bounces, own: &[&str]| {
            let table = LockTable {
                operations,
                is_judged: true,
                snapshot: Snapshot {
                    locks: vec![lock("own", Side::Shared, bounces, 1)],
                    atomics: vec![RmwSnapshot {
                        name: "rare",
                        count: 9,
                        bounces: 9,
                        squares: 81,
                    }],
                },
            };
            let found = table.expect_unshared(own).err()?;
            Some(found.lines().next()?.to_owned())
        };
        assert_eq!(shared(10_000, 99, &["own"]), None);
        let own = Some("workers share own".to_owned());
        assert_eq!(shared(10_000, 100, &["own"]), own);
        assert_eq!(shared(10_000, 0, &[]), own);
        let rare = Some("workers share rare".to_owned());
        assert_eq!(shared(9_000, 0, &["own"]), rare);
        assert_eq!(shared(9_000, 0, &["own", "rare"]), None);
    }

    #[test]
    fn the_bound_comes_from_the_longest_exclusive_hold_that_moved_between_threads() {
        let table = LockTable {
            operations: 100,
            is_judged: true,
            snapshot: Snapshot {
                locks: vec![
                    lock("private", Side::Exclusive, 0, 900_000),
                    lock("read", Side::Shared, 500, 800_000),
                    lock("short", Side::Exclusive, 500, 10_000),
                    lock("long", Side::Exclusive, 500, 50_000),
                ],
                atomics: vec![RmwSnapshot {
                    name: "counter",
                    count: 200,
                    bounces: 0,
                    squares: 40_000,
                }],
            },
        };
        assert_eq!(table.longest_shared_hold(), Some(("long", 500.0)));
        let text = table.to_string();
        assert!(text.contains("bound: 2000000 operations/s"), "{text}");
        assert!(
            text.contains("40.00 acquisitions and 2.00 shared"),
            "{text}"
        );
    }
}
