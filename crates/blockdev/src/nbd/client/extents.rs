//! Which parts of the export may hold anything but zeroes, as the server tells.
//!
//! The server is asked about long stretches, and its last answer is kept until anything is written
//! through this device. What other clients write is their business: an export that several write
//! to at a time needs more than this cache to be sound.
//!
//! Blocks of [`GRAIN`] bytes that are not zeroes as a whole count as data. So an answer leads on by
//! that much at least, also one that tells of extents of single bytes.

use super::wire::EXTENT_ZERO;
use extant_sync::{LockClass, Mutex, Rank};
use std::ops::Range;

static KNOWN: LockClass = LockClass::new("nbd extents", Rank::Leaf);

/// Bytes of the blocks that are told apart: those of most file systems, or larger ones.
const GRAIN: u64 = 4096;

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
    /// Whole blocks, but for the end of the device; ascending and not touching.
    data: Vec<Range<u64>>,
}

impl Answer {
    /// Reads the extents from byte `start` on, a multiple of [`GRAIN`], of a device of `size`
    /// bytes.
    pub(super) fn new(start: u64, extents: &[(u32, u32)], size: u64) -> Self {
        let mut data: Vec<Range<u64>> = Vec::new();
        let mut add = |from: u64, to: u64| {
            let from = from - from % GRAIN;
            let to = to.next_multiple_of(GRAIN).min(size);
            match data.last_mut() {
                Some(last) if last.end >= from => last.end = last.end.max(to),
                _ => data.push(from..to),
            }
        };
        let mut at = start;
        for &(len, flags) in extents {
            let end = (at + u64::from(len)).min(size);
            if flags & EXTENT_ZERO == 0 && at < end {
                add(at, end);
            }
            at = end;
        }
        // Of the last block nothing may be known but its beginning.
        if at < size && !at.is_multiple_of(GRAIN) {
            add(at, at + 1);
            at = at.next_multiple_of(GRAIN).min(size);
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
        let start = at - at % u64::from(smallest).max(GRAIN);
        (start, (size - start).min(STRETCH) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u32 = 1024;

    fn answer(told: &[(u32, u32)], size: u64) -> Answer {
        Answer::new(1 << 20, told, size)
    }

    #[test]
    fn data_is_what_the_server_does_not_call_zeroes() {
        // Data, a hole that reads as zeroes, a hole that may not, zeroes, data beyond the end.
        let told = [(8 * K, 0), (8 * K, 3), (4 * K, 1), (4 * K, 2), (100 * K, 0)];
        let at = |k: u64| (1 << 20) + k * 1024;
        let answer = answer(&told, at(30));
        assert_eq!(
            answer.data,
            [at(0)..at(8), at(16)..at(20), at(24)..at(30)],
            "to the end of the device"
        );
        let data = |from: u64, to: u64| Some(Found::Data(from..to));
        assert_eq!(answer.look(at(0), at(5)), data(at(0), at(5)));
        assert_eq!(answer.look(at(9), at(30)), data(at(16), at(20)));
        assert_eq!(answer.look(at(9), at(12)), Some(Found::Zeroes(at(12))));
        assert_eq!(answer.look(at(21), at(23)), Some(Found::Zeroes(at(23))));
        assert_eq!(answer.look(at(30), at(40)), None);
        assert_eq!(answer.look(at(0) - 1, at(40)), None);
    }

    #[test]
    fn extents_of_single_bytes_count_as_blocks() {
        let size = 1 << 30;
        let start = 1 << 20;
        // Data and zeroes in turn are one piece of data.
        let told: Vec<_> = (0..9000).map(|n| (1, 3 * (n % 2))).collect();
        let answer = answer(&told, size);
        let all = start..start + 12288;
        assert!(matches!(&answer.data[..], [data] if *data == all));
        assert_eq!(answer.range, all);
        // Of a block of which only the first byte is known to be zero, nothing is known.
        let answer = Answer::new(start, &[(1, 3)], size);
        assert_eq!(
            answer.look(start, size),
            Some(Found::Data(start..start + 4096))
        );
        let answer = Answer::new(start, &[(4097, 3)], size);
        assert_eq!(
            answer.look(start, size),
            Some(Found::Data(start + 4096..start + 8192))
        );
    }
}
