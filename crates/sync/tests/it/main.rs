//! Tests of `extant-sync` through its public door.
//!
//! Random tests print their seed; `EXTANT_SEED=N` repeats a run.
// Real threads: nothing here for a build that a model checker runs.
#![cfg(not(any(feature = "loom", feature = "shuttle")))]

mod biased;
mod bit_set;
mod counter;
mod join_gate;
mod leaders;
mod list;
mod order;
mod rcu_map;
mod rng;
#[cfg(feature = "lockstat")]
mod stat;

/// The seed for a random test, printed so that a failure can be repeated.
fn seed(test: &str) -> u64 {
    let seed = match std::env::var("EXTANT_SEED") {
        Ok(text) => text.parse().expect("EXTANT_SEED is a number"),
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |d| d.as_nanos() as u64),
    };
    println!("{test}: EXTANT_SEED={seed}");
    seed
}
