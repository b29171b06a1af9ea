//! Both ends of an export, where disks say what they are: in front tables of partitions, marks of
//! formats and superblocks with what follows them, behind copies of those and footers.
//!
//! What opens an image looks there again and again, a few bytes at a time. So the first look brings
//! both ends in one round trip, and the others find them in memory.

use super::job::Job;
use std::ops::Range;
use std::sync::OnceLock;

/// Bytes in front: with a superblock the first descriptors of groups.
const HEAD: u64 = 128 << 10;
/// Bytes at the end: a copy of a table of partitions, a footer.
const TAIL: u64 = 32 << 10;

/// What of the ends is in memory.
#[derive(Debug, Default)]
pub(super) struct Ends(OnceLock<[End; 2]>);

/// One of them.
#[derive(Debug)]
pub(super) struct End {
    offset: u64,
    bytes: Vec<u8>,
}

impl End {
    fn of(range: Range<u64>) -> Self {
        Self {
            offset: range.start,
            bytes: vec![0; (range.end - range.start) as usize],
        }
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes.len() as u64
    }
}

impl Ends {
    /// Whether a read of an export of `size` bytes lies in one of them.
    pub(super) fn hold(offset: u64, len: u64, size: u64) -> bool {
        let end = offset.saturating_add(len);
        end <= HEAD.min(size) || offset >= size.saturating_sub(TAIL)
    }

    /// Whether a change of an export of `size` bytes may touch what is kept of it: the end may
    /// begin up to one of the server's blocks earlier, which have 64 KiB at most.
    pub(super) fn touch(offset: u64, len: u64, size: u64) -> bool {
        offset < HEAD || offset.saturating_add(len) > size.saturating_sub(TAIL + (64 << 10))
    }

    /// Room for both ends of an export whose requests are multiples of `smallest` bytes.
    pub(super) fn room(size: u64, smallest: u32) -> [End; 2] {
        let smallest = u64::from(smallest.max(1));
        // All of them are multiples of the largest that the smallest request can be.
        let head = HEAD.min(size);
        let tail = size.saturating_sub(TAIL).max(head);
        [End::of(0..head), End::of(tail - tail % smallest..size)]
    }

    /// The reads that bring them, each of at most `piece` bytes.
    pub(super) fn jobs(room: &mut [End; 2], piece: u32) -> Vec<Job<'_>> {
        let mut jobs = Vec::new();
        for end in room {
            let mut at = end.offset;
            for part in end.bytes.chunks_mut(piece.max(1) as usize) {
                let len = part.len() as u64;
                jobs.push(Job::read(at, vec![part]));
                at += len;
            }
        }
        jobs
    }

    /// Keeps what came.
    pub(super) fn keep(&self, came: [End; 2]) {
        // Of two threads that looked at the same time one is enough.
        let _ = self.0.set(came);
    }

    pub(super) fn are_kept(&self) -> bool {
        self.0.get().is_some()
    }

    /// Fills `buf` with what is in memory; `false` if that is not all of it.
    pub(super) fn fill(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(ends) = self.0.get() else {
            return false;
        };
        let wanted = offset..offset.saturating_add(buf.len() as u64);
        let has_all = |end: &&End| {
            let range = end.range();
            range.start <= wanted.start && wanted.end <= range.end
        };
        let Some(end) = ends.iter().find(has_all) else {
            return false;
        };
        let at = (offset - end.offset) as usize;
        match end.bytes.get(at..at + buf.len()) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_whole_requests_and_lie_in_the_export() {
        for smallest in [1_u32, 512, 4096, 64 << 10] {
            let step = u64::from(smallest);
            for size in [0, 1, 2, 3, 5, 17, 40].map(|n| n * step * 3) {
                let [head, tail] = Ends::room(size, smallest);
                assert_eq!(head.offset, 0);
                assert_eq!(tail.range().end, size);
                for end in [head.range(), tail.range()] {
                    assert!(end.start <= end.end && end.end <= size, "{size} {end:?}");
                    assert!(end.start.is_multiple_of(step) && end.end.is_multiple_of(step));
                }
            }
        }
    }

    #[test]
    fn what_is_said_to_lie_in_the_ends_does() {
        let size = 10 << 20;
        let ends = Ends::default();
        ends.keep(Ends::room(size, 512));
        let edges = [0, 1, HEAD - 1, HEAD, HEAD + 1];
        let edges = edges.into_iter().flat_map(|at| [at, size - at]);
        for at in edges.chain([size - TAIL - 1, size - TAIL, size - TAIL + 1]) {
            for len in [0, 1, 512, 4096] {
                if at + len <= size {
                    let found = ends.fill(at, &mut vec![1; len as usize]);
                    assert_eq!(found, Ends::hold(at, len, size), "{at} {len}");
                }
            }
        }
    }
}
