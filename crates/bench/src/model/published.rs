//! The published collapse that the simulation has to reproduce before its predictions count.

use super::simulate::{self, Operation, Shared};

/// `fallocate2` of Linux before its allocator lost the global lock: operations per second of each
/// of so many containers (cover letter of the series "ext4: better scalability for ext4 block
/// allocation", 2025).
pub(crate) const UNIMPROVED: [(u32, f64); 7] = [
    (1, 295_287.0),
    (2, 70_665.0),
    (4, 33_865.0),
    (8, 19_387.0),
    (16, 10_104.0),
    (32, 5_588.0),
    (64, 3_588.0),
];

/// What reproduces the published figures best.
pub(crate) struct Fit {
    /// One operation: some work of its own, then one lock for all.
    pub(crate) operation: Operation,
    /// Worker count, published and simulated operations per second of each worker.
    pub(crate) points: Vec<(u32, f64, f64)>,
}

impl Fit {
    /// How far the simulation is from the published figures at worst, as a factor above 1.
    pub(crate) fn worst(&self) -> f64 {
        let off = |&(_, published, simulated): &(u32, f64, f64)| {
            (published / simulated).max(simulated / published)
        };
        self.points.iter().map(off).fold(1.0, f64::max)
    }
}

/// Finds how long the lock is held and how much moves with it, given what one container alone does.
///
/// The machine is not here, so only the sum of what moves is known: lines are counted at `LINE_NS`
/// each.
pub(crate) fn fit() -> Fit {
    const LINE_NS: f64 = 100.0;
    let alone = 1e9 / UNIMPROVED[0].1;
    let operation = |hold: f64, lines: f64| Operation {
        think_ns: alone - hold,
        shared: vec![Shared {
            name: "one lock for all".to_owned(),
            places: 1.0,
            visits: 1.0,
            hold_ns: hold,
            lines,
            keeps: false,
        }],
    };
    let simulated = |operation: &Operation| -> Vec<(u32, f64, f64)> {
        let of = |&(workers, published): &(u32, f64)| {
            let rate = simulate::rate(operation, workers, LINE_NS) / f64::from(workers);
            (workers, published, rate)
        };
        UNIMPROVED.iter().map(of).collect()
    };
    let miss = |points: &[(u32, f64, f64)]| -> f64 {
        points.iter().map(|p| (p.1 / p.2).ln().powi(2)).sum()
    };
    // Coarse steps first, then finer ones around the best.
    let (mut hold, mut lines) = (alone / 2.0, 30.0);
    let (mut hold_step, mut lines_step) = (alone / 8.0, 8.0);
    let mut best = miss(&simulated(&operation(hold, lines)));
    for _ in 0..3 {
        let (hold_from, lines_from) = (hold, lines);
        for i in -3..=3 {
            for j in -3..=3 {
                let tried_hold = hold_from + f64::from(i) * hold_step;
                let tried_lines = lines_from + f64::from(j) * lines_step;
                if !(50.0..alone).contains(&tried_hold) || tried_lines < 0.0 {
                    continue;
                }
                let off = miss(&simulated(&operation(tried_hold, tried_lines)));
                if off < best {
                    (best, hold, lines) = (off, tried_hold, tried_lines);
                }
            }
        }
        hold_step /= 3.0;
        lines_step /= 3.0;
    }
    let operation = operation(hold, lines);
    Fit {
        points: simulated(&operation),
        operation,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_lock_whose_lines_move_collapses_as_published() {
        let fit = super::fit();
        for (workers, published, simulated) in &fit.points {
            println!("{workers:>3} {published:>10.0} {simulated:>10.0}");
        }
        println!("{:?}", fit.operation);
        assert!(fit.worst() < 1.5, "{:?}", fit.points);
        // A second worker costs the first more than half of its speed.
        assert!(fit.points[1].2 * 2.0 < fit.points[0].2 * 0.75);
    }
}
