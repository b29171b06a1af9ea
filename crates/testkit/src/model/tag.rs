//! File content that says which write it came from.
//!
//! Content is a row of records of 16 bytes at multiples of 16 in the file: a tag, then the
//! record's own place. A tag belongs to one write of one file in its one life, so a stale block is
//! recognised whatever file it turns up in, and a block at the wrong place too.

use std::fmt;

const RECORD: u64 = 16;

/// Names one write: the lane and the number of the operation in it. Never zero as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// Number of the lane.
    pub lane: u16,
    /// Number of the operation in the lane, from 0.
    pub op: u32,
}

const MARK: u16 = 0x7a6d;

impl Tag {
    fn to_bytes(self) -> [u8; 8] {
        let word = u64::from(MARK) << 48 | u64::from(self.lane) << 32 | u64::from(self.op);
        word.to_be_bytes()
    }

    /// Returns the tag and the byte offset in the file that the record at the start of `bytes`
    /// names.
    pub fn read(bytes: &[u8]) -> Option<(Tag, u64)> {
        let word = u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
        let place = u64::from_be_bytes(bytes.get(8..16)?.try_into().ok()?);
        let tag = Tag {
            lane: (word >> 32) as u16,
            op: word as u32,
        };
        (word >> 48 == u64::from(MARK)).then(|| (tag, place.wrapping_mul(RECORD)))
    }

    /// Fills `buf` with what this write puts at byte `offset` of its file.
    pub fn fill(self, offset: u64, buf: &mut [u8]) {
        let tag = self.to_bytes();
        let mut at = 0;
        while at < buf.len() {
            let place = offset + at as u64;
            let mut record = [0; RECORD as usize];
            record[..8].copy_from_slice(&tag);
            record[8..].copy_from_slice(&(place / RECORD).to_be_bytes());
            let within = (place % RECORD) as usize;
            let n = (record.len() - within).min(buf.len() - at);
            buf[at..at + n].copy_from_slice(&record[within..within + n]);
            at += n;
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {} of lane {}", self.op, self.lane)
    }
}

/// Returns what the write called `tag` puts at `offset..offset + len` of its file.
pub fn tagged(tag: Tag, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).expect("a write that fits a test")];
    tag.fill(offset, &mut bytes);
    bytes
}
