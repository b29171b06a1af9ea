//! Workers that start together, and the time they take.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

static IS_SPREAD: AtomicBool = AtomicBool::new(false);

/// Has workers that start from now on stay on processors, by turns: otherwise a busy machine may
/// run all of them on one, where they meet in what each processor has one of.
pub(crate) fn spread() {
    IS_SPREAD.store(true, Ordering::Relaxed);
}

/// Keeps this thread on the processor of a worker, if workers are spread.
fn stay_on_processor(worker: usize) -> Result<(), String> {
    if !IS_SPREAD.load(Ordering::Relaxed) {
        return Ok(());
    }
    let all = sched_getaffinity(None).map_err(|e| e.to_string())?;
    let count = (all.count() as usize).max(1);
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
    let mut own = CpuSet::new();
    own.set(usable.nth(worker % count).unwrap_or(0));
    sched_setaffinity(None, &own).map_err(|e| e.to_string())
}

/// Runs `work` in as many threads as there are workers, each told its number, and then `finish` in
/// this one. The seconds from the first start to the end of `finish`.
///
/// # Errors
/// The first of the workers', or that of `finish`.
pub(crate) fn timed(
    workers: usize,
    work: impl Fn(usize) -> Result<(), String> + Sync,
    finish: impl FnOnce() -> Result<(), String>,
) -> Result<f64, String> {
    let barrier = Barrier::new(workers);
    let one = |worker| {
        let stays = stay_on_processor(worker);
        barrier.wait();
        stays?;
        // Taken here, not by the thread that waits for all: that one may be woken late.
        let start = Instant::now();
        work(worker).map(|()| start)
    };
    let starts: Vec<Result<Instant, String>> = thread::scope(|scope| {
        let crew: Vec<_> = (0..workers)
            .map(|worker| {
                // Named so that a profile can tell them from what prepares and checks.
                thread::Builder::new()
                    .name("worker".to_owned())
                    .spawn_scoped(scope, move || one(worker))
            })
            .collect();
        crew.into_iter()
            .map(|w| {
                w.map_err(|e| e.to_string())?
                    .join()
                    .unwrap_or_else(|_| Err("a worker panicked".into()))
            })
            .collect()
    });
    let starts = starts.into_iter().collect::<Result<Vec<_>, _>>()?;
    finish()?;
    let first = starts.into_iter().min();
    Ok(first.map_or(0.0, |start| start.elapsed().as_secs_f64()))
}

/// The share of `worker` when `all` things are dealt out: at most one more than any other's.
pub(crate) fn share(all: u64, workers: usize, worker: usize) -> u64 {
    let (workers, worker) = (workers as u64, worker as u64);
    all / workers + u64::from(worker < all % workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_whole() {
        for (all, workers) in [(100_000, 3), (5, 16), (16, 16)] {
            let shares: Vec<u64> = (0..workers).map(|w| share(all, workers, w)).collect();
            assert_eq!(shares.iter().sum::<u64>(), all);
            assert!(shares[0] - shares[workers - 1] <= 1);
        }
    }

    #[test]
    fn a_failing_worker_fails_the_run() {
        let run = timed(
            3,
            |w| if w == 1 { Err("no".into()) } else { Ok(()) },
            || Ok(()),
        );
        assert_eq!(run, Err("no".to_owned()));
    }
}
