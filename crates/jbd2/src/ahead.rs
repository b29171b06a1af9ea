//! Reading ahead in a log whose device is far: where each request takes a round trip, records that
//! are looked at one after the other come in large parts, and what came is kept for the next pass.
//!
//! # Invariants
//! - What is kept is bounded; of a log that is larger the rest is read again by each pass.
//! - What cannot be read is left to the reader that needs it, and gets the error.
//! - Only blocks of the log are read, none that lie between its runs.

use crate::log::Log;
use extant_blockdev::Request;
use std::collections::BTreeMap;

/// Bytes of a piece, the unit that is kept.
const PIECE: usize = 256 << 10;
/// Pieces that come together at first, and as a pass goes on in the log.
const FIRST: u32 = 4;
const MOST: u32 = 32;
/// Bytes that are kept at most, besides the pieces that came last.
const MOST_KEPT: usize = 64 << 20;

/// What was read of a log.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Blocks of a piece.
    blocks: u32,
    kept: BTreeMap<u32, Box<[u8]>>,
    kept_bytes: usize,
    /// What came last and has no room among what is kept.
    last: BTreeMap<u32, Box<[u8]>>,
    /// The piece behind those that came last, and how many come next from there on.
    next: u32,
    together: u32,
}

impl Ahead {
    /// For a log with blocks of so many bytes.
    pub(crate) fn new(block_len: usize) -> Self {
        Self {
            blocks: (PIECE / block_len.max(1)).max(1) as u32,
            kept: BTreeMap::new(),
            kept_bytes: 0,
            last: BTreeMap::new(),
            next: 0,
            together: FIRST,
        }
    }

    /// The piece that has journal block `block`, if it was read: its first block, and its bytes.
    pub(crate) fn piece(&self, block: u32) -> Option<(u32, &[u8])> {
        let number = block / self.blocks;
        let found = self.kept.get(&number).or_else(|| self.last.get(&number));
        found.map(|bytes| (number * self.blocks, &**bytes))
    }

    /// Reads the piece that has journal block `block`, and those that a pass through the log needs
    /// next, with one batch of reads. A hint.
    pub(crate) fn read(&mut self, log: &Log<'_>, block: u32) {
        let number = block / self.blocks;
        let goes_on = (self.next..self.next.saturating_add(self.together)).contains(&number);
        let first = if goes_on {
            self.together = (self.together * 2).min(MOST);
            self.next
        } else {
            self.together = FIRST;
            number
        };
        let pieces = log.superblock().max_len.div_ceil(self.blocks);
        self.next = first.saturating_add(self.together).min(pieces);
        self.last.clear();
        let missing = (first..self.next).filter(|piece| !self.kept.contains_key(piece));
        let missing: Vec<u32> = missing.collect();
        for (number, bytes) in fetch(log, self.blocks, &missing) {
            if self.kept_bytes + bytes.len() > MOST_KEPT {
                self.last.insert(number, bytes);
            } else {
                self.kept_bytes += bytes.len();
                self.kept.insert(number, bytes);
            }
        }
    }
}

/// Reads pieces of so many blocks together. Those that cannot be read are left out.
fn fetch(log: &Log<'_>, blocks: u32, numbers: &[u32]) -> Vec<(u32, Box<[u8]>)> {
    let size = log.superblock().block_size;
    let mut requests = Vec::new();
    let mut parts = Vec::new();
    for number in numbers {
        let first = number.saturating_mul(blocks);
        let end = first.saturating_add(blocks).min(log.superblock().max_len);
        let before = requests.len();
        let mut at = first;
        while at < end {
            let Ok((offset, together)) = log.map().offset(at, size) else {
                break;
            };
            let here = together.min(end - at).max(1);
            requests.push(Request::read(offset, here as usize * size.len()));
            at += here;
        }
        if at < end {
            requests.truncate(before);
        }
        parts.push((*number, requests.len() - before));
    }
    let mut done = log.device().submit(requests).wait().into_iter();
    let mut fetched = Vec::new();
    for (number, count) in parts {
        let mut piece = Some(Vec::new()).filter(|_| count > 0);
        for done in done.by_ref().take(count) {
            let read = done.result.ok().and_then(|()| done.request.into_read_buf());
            match (&mut piece, read) {
                (Some(piece), Some(bytes)) => piece.extend_from_slice(&bytes),
                _ => piece = None,
            }
        }
        fetched.extend(piece.map(|piece| (number, piece.into_boxed_slice())));
    }
    fetched
}
