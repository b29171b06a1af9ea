//! What is read in sequence, and how far ahead of it to read.
//!
//! A reader that goes on where it ended gets as much read ahead as it has read so far, up to a
//! limit: what is fetched in vain is never more than what was wanted.

use std::ops::Range;

/// Readers that are followed at the same time.
const MOST: usize = 16;

/// One reader's place.
#[derive(Debug, Clone)]
struct Stream {
    /// Where it goes on if it is sequential, in bytes.
    next: u64,
    /// Bytes read in sequence.
    read: u64,
    /// Up to where reading ahead was begun.
    ahead: u64,
    last_use: u64,
}

/// The readers of one device.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    clock: u64,
    /// How far a reader may be from where it ended and still be the same one: a piece.
    near: u64,
    /// The most bytes to read ahead.
    most: u64,
}

impl Streams {
    pub(crate) fn new(near: u64, most: u64) -> Self {
        Self {
            streams: Vec::new(),
            clock: 0,
            near,
            most,
        }
    }

    /// Notes a read, and returns what to read ahead, if anything.
    pub(crate) fn note(&mut self, read: &Range<u64>) -> Option<Range<u64>> {
        self.clock += 1;
        let clock = self.clock;
        let near = self.near;
        let found = self.streams.iter_mut().find(|stream| {
            read.end > stream.next
                && read.start <= stream.next.saturating_add(near)
                && read.start.saturating_add(near) >= stream.next
        });
        let Some(stream) = found else {
            let known = |s: &Stream| read.end <= s.next && read.end.saturating_add(near) >= s.next;
            if !self.streams.iter().any(known) {
                self.begin(read);
            }
            return None;
        };
        stream.read += read.end - stream.next;
        stream.next = read.end;
        stream.last_use = clock;
        let window = stream.read.min(self.most);
        // In large portions: not before half of the window is used up.
        let from = stream.ahead.max(read.end);
        if stream.read < near || from - read.end > window / 2 {
            return None;
        }
        stream.ahead = read.end.saturating_add(window);
        (from < stream.ahead).then_some(from..stream.ahead)
    }

    fn begin(&mut self, read: &Range<u64>) {
        if self.streams.len() == MOST {
            let oldest = (0..MOST).min_by_key(|&at| self.streams[at].last_use);
            self.streams.swap_remove(oldest.unwrap_or(0));
        }
        self.streams.push(Stream {
            next: read.end,
            read: read.end - read.start,
            ahead: 0,
            last_use: self.clock,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Streams;

    #[test]
    fn a_sequential_reader_gets_as_much_as_it_read_and_no_more_than_the_limit() {
        let mut streams = Streams::new(64, 1000);
        let mut ahead_to = 0;
        let mut portions = 0;
        for at in 0..200_u64 {
            if let Some(range) = streams.note(&(at * 32..at * 32 + 32)) {
                assert_eq!(range.start, ahead_to.max(at * 32 + 32));
                ahead_to = range.end;
                portions += 1;
            }
            let end = at * 32 + 32;
            assert!(ahead_to <= end + end.min(1000), "at {at}");
        }
        assert!(ahead_to > 200 * 32);
        assert!(portions < 40, "{portions} portions");
    }

    #[test]
    fn readers_here_and_there_get_nothing() {
        let mut streams = Streams::new(64, 1000);
        for at in 0..100_u64 {
            let start = at * 7919 % 100 * 10_000;
            assert_eq!(streams.note(&(start..start + 32)), None);
        }
    }

    #[test]
    fn two_readers_at_once_are_both_followed() {
        let mut streams = Streams::new(64, 1000);
        let mut found = [0, 0];
        for at in 0..50_u64 {
            for (reader, base) in [(0, 0), (1, 1_000_000)] {
                let start = base + at * 32;
                found[reader] += usize::from(streams.note(&(start..start + 32)).is_some());
            }
        }
        assert!(found[0] > 0 && found[1] > 0, "{found:?}");
    }
}
