//! Behaviour of the crate through its public doors.

mod empty;
mod source;
