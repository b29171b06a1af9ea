//! Tests of `extant-sync` through its public door.

mod counter;
mod order;
#[cfg(feature = "lockstat")]
mod stat;
