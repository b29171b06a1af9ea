//! What a ring of io_uring is given, and what it gives back.

use std::io::{self, IoSlice, IoSliceMut};

/// Which of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Through {
    /// The page cache.
    Cache = 0,
    /// Past it.
    Direct = 1,
}

/// One piece of work.
#[derive(Debug)]
pub(super) enum Job<'b, 's> {
    Read(u64, &'b mut [u8]),
    Write(u64, &'b [u8]),
    ReadMany(u64, &'b mut [IoSliceMut<'s>]),
    WriteMany(u64, &'b [IoSlice<'s>]),
    /// A barrier: see [`Request`](crate::Request).
    Flush,
}

/// How a job ended.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "io-uring"),
    expect(dead_code, reason = "no job is begun")
)]
pub(super) enum Outcome {
    /// So many bytes were transferred, which may be fewer than asked for.
    Moved(usize),
    Failed(io::Error),
    /// Not begun: something before a barrier failed.
    Cancelled,
}
