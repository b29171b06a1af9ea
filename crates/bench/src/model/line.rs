//! What it costs to get a cache line that another core has changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{hint, thread};

/// A word with a cache line to itself, and its neighbours too: processors fetch lines in pairs.
#[repr(align(128))]
struct Line(AtomicU64);

/// Exchanges in one round. A round takes well under a millisecond, so that most are not
/// interrupted.
const EXCHANGES: u64 = 2000;
const ROUNDS: usize = 300;

/// Nanoseconds for one line to come over: the median of many rounds in which two threads answer
/// each other.
///
/// Rounds in which the threads share a processor, or lose it, are slower by far and do not move a
/// median.
pub(crate) fn transfer_ns() -> f64 {
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let total = EXCHANGES * ROUNDS as u64;
    let mut rounds = Vec::with_capacity(ROUNDS);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=total {
                wait_for(&there, turn);
                back.0.store(turn, Ordering::Release);
            }
        });
        let mut turn = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..EXCHANGES {
                turn += 1;
                there.0.store(turn, Ordering::Release);
                wait_for(&back, turn);
            }
            // There and back.
            rounds.push(start.elapsed().as_nanos() as f64 / (2 * EXCHANGES) as f64);
        }
    });
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn wait_for(line: &Line, turn: u64) {
    let mut tries = 0_u32;
    while line.0.load(Ordering::Acquire) < turn {
        tries += 1;
        if tries.is_multiple_of(10_000) {
            // The other has no processor, perhaps.
            thread::yield_now();
        }
        hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_takes_some_nanoseconds() {
        let ns = super::transfer_ns();
        assert!(ns > 1.0, "{ns}");
    }
}
