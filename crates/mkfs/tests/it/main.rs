//! Behaviour of the crate through its public doors.

mod source;
