//! Tests of the engine through its public doors.

mod gauntlet;
mod hostile;
mod meta_cache;
mod opening;
mod reading;
mod support;
