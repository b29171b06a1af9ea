//! Behaviour of the crate through its public doors.

mod build;
mod empty;
mod geometry;
mod source;
