//! Behaviour of the crate through its public doors.

mod build;
mod empty_file_systems;
mod examples;
mod failing_flushes;
mod feature_pairs;
mod geometry;
mod memory;
mod source;
mod tables;
