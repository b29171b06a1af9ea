//! Protocols without locks, under every schedule and every value that a load may see on a machine
//! with weak memory. Each case is small: two or three threads that do what matters once.
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "loom's threads share one of the system's, and its cells report misuse themselves"
)]

mod biased;
mod bit_set;
mod first_touch;
mod in_flight;
mod inode_table;
mod join_gate;
mod pending;
mod rcu_map;
mod slots;
