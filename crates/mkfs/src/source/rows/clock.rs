//! Times, compact.

use super::super::error::SourceResult;
use super::super::model::{Times, Timestamp};
use super::count;

/// Times in eight bytes each, and those that files have beside the last change.
#[derive(Debug)]
pub(super) struct Clock {
    /// Access, change and creation. Row 0 stands for three that are as the last change is.
    others: Vec<[u64; 3]>,
    /// What eight bytes cannot hold.
    odd: Vec<Timestamp>,
}

impl Clock {
    /// Bits of the seconds, counted from the first one that ext4 knows.
    const BITS: u32 = 34;
    const FIRST: i64 = i32::MIN as i64;
    /// In the place of nanoseconds: the rest is a place in `odd`.
    const ODD: u32 = 1_000_000_000;

    /// A clock with nothing in it.
    pub(super) fn new() -> Self {
        Self {
            others: vec![[0; 3]],
            odd: Vec::new(),
        }
    }

    pub(super) fn pack(&mut self, time: Timestamp) -> u64 {
        let secs = time.secs.checked_sub(Self::FIRST);
        let secs = secs.and_then(|secs| u64::try_from(secs).ok());
        match secs.filter(|secs| *secs < 1 << Self::BITS && time.nanos < Self::ODD) {
            Some(secs) => u64::from(time.nanos) << Self::BITS | secs,
            None => {
                if self.odd.last() != Some(&time) {
                    self.odd.push(time);
                }
                u64::from(Self::ODD) << Self::BITS | (self.odd.len() as u64 - 1)
            }
        }
    }

    pub(super) fn unpack(&self, packed: u64) -> Timestamp {
        let nanos = (packed >> Self::BITS) as u32;
        let low = packed & ((1 << Self::BITS) - 1);
        if nanos == Self::ODD {
            return self.odd[low as usize];
        }
        Timestamp {
            secs: low as i64 + Self::FIRST,
            nanos,
        }
    }

    /// The last change, and the row of the others.
    pub(super) fn pack_all(&mut self, times: &Times) -> SourceResult<(u64, u32)> {
        let mtime = times.mtime();
        let packed = self.pack(mtime);
        let others = [times.atime(), times.ctime(), times.crtime()];
        if others == [mtime; 3] {
            return Ok((packed, 0));
        }
        let others = others.map(|time| self.pack(time));
        if self.others.len() == 1 || self.others.last() != Some(&others) {
            count("times", self.others.len())?;
            self.others.push(others);
        }
        Ok((packed, self.others.len() as u32 - 1))
    }

    pub(super) fn unpack_all(&self, mtime: u64, others: u32) -> Times {
        let mtime = self.unpack(mtime);
        if others == 0 {
            return Times::all(mtime);
        }
        let [atime, ctime, crtime] = self.others[others as usize].map(|time| self.unpack(time));
        Times::new(atime, mtime, ctime, crtime)
    }

    /// Forgets the other times, which no node has any more.
    pub(super) fn forget_others(&mut self) {
        self.others = vec![[0; 3]];
    }

    /// Memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.others.capacity() * size_of::<[u64; 3]>()
            + self.odd.capacity() * size_of::<Timestamp>()
    }
}
