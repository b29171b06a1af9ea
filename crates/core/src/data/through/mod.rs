//! Writing to the device at once, with no memory in between
//! ([`DataMode::Through`](crate::fs::DataMode::Through)).

pub(super) mod write;
