//! Writes of parts of the server's blocks: what else is in a block is read, and the whole of it
//! written.
//!
//! # Invariants
//! - While a thread of this process changes a part of a block, no other one changes another part of
//!   it, over whatever device of the same export: each would put back what the other has changed.
//! - What fills whole blocks goes to the server as it is, and waits for nobody. It overlaps with no
//!   change of a part, by the rule of the trait.

use super::device::NbdDevice;
use crate::{AlignedBuf, DeviceResult};
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::OnceLock;

static TAKEN: LockClass = LockClass::new("nbd parts of blocks", Rank::Leaf);

/// Blocks, of all exports, of which threads change parts: by the export's identity and first byte.
struct Turns {
    taken: Mutex<HashSet<(u64, u64)>>,
    left: Condvar,
}

fn turns() -> &'static Turns {
    static TURNS: OnceLock<Turns> = OnceLock::new();
    TURNS.get_or_init(|| Turns {
        taken: Mutex::new(&TAKEN, HashSet::new()),
        left: Condvar::new(),
    })
}

/// A number for the export of this name: the same one for each device of it.
pub(super) fn identity(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// The server's blocks of which writes change a part, by their first bytes, as they were read and
/// with what was put into them. Nobody else changes a part of one until this is dropped.
#[derive(Default)]
pub(super) struct Parts {
    identity: u64,
    blocks: BTreeMap<u64, AlignedBuf>,
}

impl Parts {
    /// Takes the turn at blocks, all of them together.
    fn take(identity: u64, blocks: BTreeMap<u64, AlignedBuf>) -> Self {
        if !blocks.is_empty() {
            let turns = turns();
            let mut taken = turns.taken.lock();
            while blocks.keys().any(|at| taken.contains(&(identity, *at))) {
                turns.left.wait(&mut taken);
            }
            taken.extend(blocks.keys().map(|at| (identity, *at)));
        }
        Self { identity, blocks }
    }

    /// Puts into the blocks what a write changes there.
    pub(super) fn put(&mut self, offset: u64, buf: &[u8]) {
        let end = offset + buf.len() as u64;
        for (at, block) in self.blocks.range_mut(..end) {
            let (from, to) = (offset.max(*at), end.min(at + block.len() as u64));
            if from < to {
                let part = &buf[(from - offset) as usize..(to - offset) as usize];
                block[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
            }
        }
    }

    /// The blocks with their first bytes, ascending.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.blocks.iter().map(|(at, block)| (*at, &block[..]))
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if !self.blocks.is_empty() {
            let turns = turns();
            let mut taken = turns.taken.lock();
            for at in self.blocks.keys() {
                taken.remove(&(self.identity, *at));
            }
            drop(taken);
            turns.left.notify_all();
        }
    }
}

impl NbdDevice {
    /// The blocks of which writes, given by offset and length, change a part. All are read with one
    /// batch.
    ///
    /// # Errors
    /// That of the first block that cannot be read.
    pub(super) fn parts(&self, writes: impl Iterator<Item = (u64, u64)>) -> DeviceResult<Parts> {
        let smallest = u64::from(self.pool.export().smallest);
        let mut blocks = BTreeMap::new();
        for (offset, len) in writes.filter(|(_, len)| *len > 0) {
            for byte in [offset, offset + len] {
                if !byte.is_multiple_of(smallest) {
                    let room = AlignedBuf::zeroed(smallest as usize);
                    blocks.insert(byte - byte % smallest, room);
                }
            }
        }
        let mut parts = Parts::take(self.identity, blocks);
        let mut jobs = Vec::new();
        for (at, block) in &mut parts.blocks {
            self.read_jobs(*at, std::iter::once(&mut block[..]), &mut jobs);
        }
        if !jobs.is_empty() {
            self.perform(&mut jobs)?;
        }
        drop(jobs);
        Ok(parts)
    }

    /// The bytes of a write that fill whole blocks, and where they begin.
    pub(super) fn whole_blocks<'b>(&self, offset: u64, buf: &'b [u8]) -> (u64, &'b [u8]) {
        let range = self.inside(offset, buf.len() as u64);
        if range.is_empty() {
            return (offset, &[]);
        }
        let bytes = (range.start - offset) as usize..(range.end - offset) as usize;
        (range.start, &buf[bytes])
    }

    /// The blocks of the server that lie in a range as a whole.
    fn inside(&self, offset: u64, len: u64) -> Range<u64> {
        let smallest = u64::from(self.pool.export().smallest);
        let end = offset + len;
        offset.next_multiple_of(smallest)..end - end % smallest
    }

    /// Writes buffers one after the other to a range that does not fit the server's blocks.
    ///
    /// # Errors
    /// That of the first request that failed.
    pub(super) fn write_parts(&self, offset: u64, bufs: &[&[u8]]) -> DeviceResult<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let mut parts = self.parts(std::iter::once((offset, len)))?;
        let whole = self.inside(offset, len);
        let (mut at, mut middle) = (offset, Vec::with_capacity(bufs.len()));
        for buf in bufs {
            parts.put(at, buf);
            let end = at + buf.len() as u64;
            let (from, to) = (whole.start.max(at), whole.end.min(end));
            if from < to {
                middle.push(&buf[(from - at) as usize..(to - at) as usize]);
            }
            at = end;
        }
        let (mut jobs, piece) = (Vec::new(), self.piece());
        self.write_jobs(whole.start, middle.into_iter(), piece, &mut jobs);
        for (at, block) in parts.blocks() {
            self.write_jobs(at, std::iter::once(block), piece, &mut jobs);
        }
        self.perform(&mut jobs)
    }
}
