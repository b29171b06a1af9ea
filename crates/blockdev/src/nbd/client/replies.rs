//! Replies as the reading thread takes them apart: bytes of the stream, and what has come of a
//! reply so far.

use super::stream::Stream;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bytes that are read ahead: some short replies, and little of a long one.
const AHEAD: usize = 16 << 10;

/// The stream of replies. The thread that has it reads.
#[derive(Debug)]
pub(super) struct Reader {
    ahead: Box<[u8]>,
    have: Range<usize>,
    /// When the message that has begun must be complete.
    over: Option<Instant>,
    has_begun: bool,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            ahead: vec![0; AHEAD].into(),
            have: 0..0,
            over: None,
            has_begun: false,
        }
    }

    /// Whether nothing is read ahead.
    pub(super) fn is_empty(&self) -> bool {
        self.have.is_empty()
    }

    /// Says that the next byte is the first of a message.
    pub(super) fn begin(&mut self) {
        self.over = None;
        self.has_begun = !self.have.is_empty();
    }

    /// Fills `buf`. The server must send something within `limit`, and a whole message within four
    /// times that. Before a message has begun, `more` may prolong the time when it is over.
    pub(super) fn read(
        &mut self,
        stream: &Stream,
        mut buf: &mut [u8],
        limit: Duration,
        more: impl Fn() -> Option<Duration>,
    ) -> io::Result<()> {
        loop {
            let count = self.have.len().min(buf.len());
            let (now, rest) = buf.split_at_mut(count);
            now.copy_from_slice(&self.ahead[self.have.start..self.have.start + count]);
            self.have.start += count;
            buf = rest;
            if buf.is_empty() {
                return Ok(());
            }
            let is_long = buf.len() >= AHEAD;
            let to = if is_long { &mut *buf } else { &mut *self.ahead };
            match stream.recv(to) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.has_begun = true;
                    if is_long {
                        buf = &mut buf[count..];
                    } else {
                        self.have = 0..count;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(stream, limit, &more)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn wait(
        &mut self,
        stream: &Stream,
        limit: Duration,
        more: impl Fn() -> Option<Duration>,
    ) -> io::Result<()> {
        let mut left = limit;
        if self.has_begun {
            let now = Instant::now();
            let over = *self.over.get_or_insert(now + 4 * limit);
            left = left.min(over.saturating_duration_since(now));
        }
        loop {
            if let (true, _) = stream.wait(true, false, left)? {
                return Ok(());
            }
            left = match more() {
                Some(more) if !self.has_begun => more,
                _ => return Err(io::ErrorKind::TimedOut.into()),
            };
        }
    }
}

/// What has come of a reply.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Which parts of a read have come, ascending and not touching.
    covered: Vec<Range<u32>>,
    /// Chunks so far.
    pub(super) chunks: u32,
    /// The first error that was told.
    pub(super) error: Option<(u32, String)>,
    /// Parts that another thread than the one that asked has read.
    pub(super) parts: Vec<(u32, Part)>,
    /// Extents, where these were asked for.
    pub(super) extents: Option<Vec<(u32, u32)>>,
}

/// A part of a read, kept for the thread that asked.
#[derive(Debug)]
pub(super) enum Part {
    Bytes(Vec<u8>),
    Zeroes(u32),
}

impl Progress {
    /// Notes that a part has come. `false` if some of it has come before.
    pub(super) fn cover(&mut self, part: Range<u32>) -> bool {
        let at = self.covered.partition_point(|range| range.end < part.start);
        match self.covered.get_mut(at) {
            Some(next) if next.end == part.start => {
                let end = part.end;
                let follows = self.covered.get(at + 1).map(|range| range.start);
                if follows.is_some_and(|start| start < end) {
                    return false;
                }
                self.covered[at].end = end;
                if follows == Some(end) {
                    self.covered[at].end = self.covered.remove(at + 1).end;
                }
                true
            }
            Some(next) if next.start < part.end => false,
            Some(next) if next.start == part.end => {
                next.start = part.start;
                true
            }
            _ => {
                self.covered.insert(at, part);
                true
            }
        }
    }

    /// Whether all of a read of `len` bytes has come.
    pub(super) fn is_whole(&self, len: u32) -> bool {
        matches!(&self.covered[..], [one] if *one == (0..len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join_and_overlaps_are_noticed() {
        let mut progress = Progress::default();
        assert!(progress.cover(10..20));
        assert!(progress.cover(30..40));
        assert!(!progress.cover(15..16));
        assert!(!progress.cover(19..31));
        assert!(!progress.cover(20..31));
        assert!(!progress.cover(5..11));
        assert!(!progress.cover(39..50));
        assert!(progress.cover(20..30));
        assert!(!progress.is_whole(40));
        assert!(progress.cover(0..5));
        assert!(progress.cover(5..10));
        assert!(progress.is_whole(40));
        assert!(!progress.cover(0..1));
    }
}
