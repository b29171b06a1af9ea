//! How a file is written: what lies between writes, and how far they go ahead. Hints, of which
//! updates may be lost.

use crate::data::cache::folio::FOLIO_BYTES;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A write that begins this many bytes ahead of the one before is one here and there.
const FAR: u64 = 1 << 20;
/// Writes with holes between them after which more of these are expected.
const STRIDES: u32 = 4;
/// The longest of these holes, in blocks.
const MOST_STRIDE: u32 = 64;

/// How a file is written.
#[derive(Debug)]
pub(in crate::data) struct WritePattern {
    /// The byte at which the last write ended.
    next: AtomicU64,
    /// How often in a row a write left a hole behind the one before and went on further ahead.
    strides: AtomicU32,
    /// The block behind the last one that got its place in a write.
    stride_from: AtomicU32,
}

impl WritePattern {
    /// Makes that of a file that has not been written to.
    pub(super) fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            strides: AtomicU32::new(0),
            stride_from: AtomicU32::new(0),
        }
    }

    /// Notes a write of bytes `from..to`. Returns whether what lies around these is not likely to
    /// be written soon: they begin a little ahead of where the last one ended, or the file is
    /// small.
    pub(in crate::data) fn note_write(&self, from: u64, to: u64) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        self.next.store(to, Ordering::Relaxed);
        to <= FOLIO_BYTES as u64 || from > next && from - next < FAR
    }

    /// Notes that blocks `lblk..end` get their places in a write. Returns whether writes have been
    /// leaving holes between each other for some time, and went on ahead.
    pub(in crate::data) fn note_stride(&self, lblk: u32, end: u32) -> bool {
        let from = self.stride_from.load(Ordering::Relaxed);
        self.stride_from.store(end, Ordering::Relaxed);
        let strides = match lblk.checked_sub(from) {
            Some(1..=MOST_STRIDE) => self.strides.load(Ordering::Relaxed).saturating_add(1),
            _ => 0,
        };
        self.strides.store(strides, Ordering::Relaxed);
        strides >= STRIDES
    }
}
