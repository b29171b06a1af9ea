//! Readers that read a file on and on, and how far ahead of them to read.
//!
//! All of it is hints: what is lost when two meet makes a read smaller or larger than it should be.

use crate::data::cache::folio::FOLIO_BYTES;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Folios that are read at once at most.
pub(in crate::data) const MOST_FOLIOS: u32 = 16;
/// Readers of a file that are told apart.
const STREAMS: usize = 4;

/// A reader that reads on, or may.
#[derive(Debug, Default)]
struct Stream {
    /// Where what was read for it ends: where it misses something next, if it reads on.
    next: AtomicU64,
    /// Folios that were read together for it; 0 if it has not read on so far.
    window: AtomicU32,
}

impl Stream {
    fn goes_on_at(&self, offset: u64) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        offset >= next && offset - next < FOLIO_BYTES as u64
    }
}

/// The readers of a file.
#[derive(Debug, Default)]
pub(in crate::data) struct Streams {
    all: [Stream; STREAMS],
    /// Whose place somebody new takes.
    turn: AtomicU32,
}

/// A reader that misses something.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct Reader<'s> {
    stream: &'s Stream,
    /// How many folios to read at once, this read included; 0 for what was asked for only.
    pub(in crate::data) window: u32,
}

impl Streams {
    /// Finds the reader that misses what lies at byte `offset`.
    pub(in crate::data) fn reader(&self, offset: u64) -> Reader<'_> {
        if let Some(stream) = self.all.iter().find(|stream| stream.goes_on_at(offset)) {
            let window = stream.window.load(Ordering::Relaxed);
            let window = (window * 2).clamp(1, MOST_FOLIOS);
            stream.window.store(window, Ordering::Relaxed);
            return Reader { stream, window };
        }
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        let turns = (0..STREAMS).map(|i| &self.all[(turn as usize + i) % STREAMS]);
        // A reader here and there takes no place of one that reads on, if there is another.
        let idle = |stream: &&Stream| stream.window.load(Ordering::Relaxed) == 0;
        let stream = turns.clone().find(idle);
        let stream = stream.unwrap_or(&self.all[turn as usize % STREAMS]);
        stream.window.store(0, Ordering::Relaxed);
        Reader { stream, window: 0 }
    }

    /// Notes that the reader that goes on at `offset` comes to `next` without missing anything: a
    /// hole.
    pub(in crate::data) fn pass(&self, offset: u64, next: u64) {
        if let Some(stream) = self.all.iter().find(|stream| stream.goes_on_at(offset)) {
            stream.next.store(next, Ordering::Relaxed);
        }
    }
}

impl Reader<'_> {
    /// Notes where what was read for it ends, in bytes.
    pub(in crate::data) fn note(self, next: u64) {
        self.stream.next.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_told_apart_and_those_who_read_on_are_not_forgotten_for_others() {
        let streams = Streams::default();
        let folio = FOLIO_BYTES as u64;
        let read = |offset: u64| {
            let reader = streams.reader(offset);
            reader.note(offset + folio * u64::from(reader.window.max(1)));
            reader.window
        };
        let starts = [1 << 30, 2 << 30, 3 << 30];
        let mut next = starts;
        let mut windows = Vec::new();
        for step in 0..7 {
            for next in &mut next {
                let window = read(*next);
                *next += folio * u64::from(window.max(1));
                windows.push(window);
            }
            // Another one reads here and there.
            assert_eq!(read((50 + 3 * step) << 30), 0);
        }
        let of_all = [0, 1, 2, 4, 8, 16, 16].map(|window| [window; 3]);
        assert_eq!(windows, of_all.concat());
        streams.pass(next[1], 5 << 35);
        assert_eq!(streams.reader(5 << 35).window, MOST_FOLIOS);
    }
}
