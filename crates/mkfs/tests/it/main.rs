//! Behaviour of the crate through its public doors.

mod build;
mod empty;
mod examples;
mod geometry;
mod source;
