//! Which parts of the export may hold anything but zeroes, as the server tells.
//!
//! The server is asked about long stretches, and its last answer is kept until anything is written
//! through this device. What other clients write is their business: an export that several write
//! to at a time needs more than this cache to be sound.

use super::wire::EXTENT_ZERO;
use extant_sync::{LockClass, Mutex, Rank};
use std::ops::Range;

static KNOWN: LockClass = LockClass::new("nbd extents", Rank::Leaf);

/// Bytes that the server is asked about at a time.
const STRETCH: u64 = 1 << 30;

/// What is found at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This may hold anything; the place or something behind it.
    Data(Range<u64>),
    /// Zeroes up to here.
    Zeroes(u64),
}

/// An answer of the server.
#[derive(Debug)]
pub(super) struct Answer {
    range: Range<u64>,
    /// Ascending and not touching.
    data: Vec<Range<u64>>,
}

impl Answer {
    /// Reads the extents from byte `start` on, of a device of `size` bytes.
    pub(super) fn new(start: u64, extents: &[(u32, u32)], size: u64) -> Self {
        let mut data: Vec<Range<u64>> = Vec::new();
        let mut at = start;
        for &(len, flags) in extents {
            let end = (at + u64::from(len)).min(size);
            if flags & EXTENT_ZERO == 0 && at < end {
                match data.last_mut() {
                    Some(last) if last.end == at => last.end = end,
                    _ => data.push(at..end),
                }
            }
            at = end;
        }
        Self {
            range: start..at,
            data,
        }
    }

    /// What is at byte `at`; `None` if that is not part of the answer.
    pub(super) fn look(&self, at: u64, end: u64) -> Option<Found> {
        if !self.range.contains(&at) {
            return None;
        }
        let next = self.data.partition_point(|data| data.end <= at);
        Some(match self.data.get(next) {
            Some(data) if data.start < end => Found::Data(data.start.max(at)..data.end.min(end)),
            _ => Found::Zeroes(self.range.end.min(end)),
        })
    }
}

/// The last answer, and the number of changes that had begun when it was given.
#[derive(Debug)]
pub(super) struct Extents(Mutex<Option<(u64, Answer)>>);

impl Extents {
    pub(super) fn new() -> Self {
        Self(Mutex::new(&KNOWN, None))
    }

    /// What is known to be at byte `at`, when `changes` have begun.
    pub(super) fn look(&self, at: u64, end: u64, changes: u64) -> Option<Found> {
        let known = self.0.lock();
        let (when, answer) = known.as_ref()?;
        (*when == changes).then(|| answer.look(at, end)).flatten()
    }

    /// Keeps an answer that is true as long as no more than `changes` have begun.
    pub(super) fn keep(&self, changes: u64, answer: Answer) {
        *self.0.lock() = Some((changes, answer));
    }

    /// What to ask the server about, to learn what is at byte `at`.
    pub(super) fn stretch(at: u64, size: u64, smallest: u32) -> (u64, u32) {
        let start = at - at % u64::from(smallest);
        (start, (size - start).min(STRETCH) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_what_the_server_does_not_call_zeroes() {
        // Data, a hole that reads as zeroes, a hole that may not, zeroes, data beyond the end.
        let told = [(10, 0), (10, 3), (5, 1), (5, 2), (100, 0)];
        let answer = Answer::new(1000, &told, 1050);
        assert_eq!(answer.data, [1000..1010, 1020..1025, 1030..1050]);
        assert_eq!(answer.look(1000, 1005), Some(Found::Data(1000..1005)));
        assert_eq!(answer.look(1012, 1050), Some(Found::Data(1020..1025)));
        assert_eq!(answer.look(1012, 1016), Some(Found::Zeroes(1016)));
        assert_eq!(answer.look(1026, 1028), Some(Found::Zeroes(1028)));
        assert_eq!(answer.look(1050, 1060), None);
        assert_eq!(answer.look(999, 1060), None);
    }
}
