//! No rings, in a build without the feature `io-uring`: everything is a system call.

use super::jobs::{Job, Outcome, Through};
use std::fs::File;
use std::io;

/// Rings, of which there are none.
#[derive(Debug)]
pub(super) enum Rings {}

impl Rings {
    /// Refuses to make any.
    pub(super) fn new(_: &File, _: Option<&File>) -> io::Result<Self> {
        let why = "this build has no io_uring (feature `io-uring` of extant-blockdev)";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Is never called.
    pub(super) fn run(
        &self,
        _: Through,
        _: &mut [Job<'_, '_>],
        _: impl FnMut(usize, &mut Job<'_, '_>, Outcome) -> bool,
    ) -> io::Result<()> {
        match *self {}
    }
}
