//! Reading from and writing to the device at once, with no memory in between
//! ([`DataMode::Through`](crate::fs::DataMode::Through)).

pub(super) mod read;
pub(super) mod write;
