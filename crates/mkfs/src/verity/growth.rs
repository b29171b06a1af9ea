//! A tree of hashes that grows from its leaves, in any order and from any thread.
//!
//! A block of hashes is written, and its own hash put into the level above, when its last hash is
//! known. Blocks that are not full wait in a table.

use extant_blockdev::DeviceResult;
use extant_sync::{AtomicBitSet, LockClass, Mutex, Rank, RmwClass};
use extant_verity::{Digest, Salted, Shape};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::collections::HashMap;
use std::fmt;

static OPEN: LockClass = LockClass::new("open blocks of hashes", Rank::Leaf);
static ROOT: LockClass = LockClass::new("root hash", Rank::Leaf);
static DONE: RmwClass = RmwClass::new("blocks of hashes that are done");

/// Tables of open blocks, so that threads seldom meet.
const SHARDS: usize = 16;
/// Blocks of level 0 that one thread completes at a time; they are written together where all of
/// them are the same.
const BATCH: u64 = 256;

/// Writes a block of the tree, by its number from the beginning of the tree.
pub(crate) type WriteBlock<'w> = &'w (dyn Fn(u64, &[u8]) -> DeviceResult<()> + Sync);

/// What the hashes of blocks are that nobody has put.
pub(crate) enum Missing<'a> {
    /// The blocks have this hash.
    Same(Digest),
    /// This says it of each.
    Found(&'a (dyn Fn(u64) -> DeviceResult<Digest> + Sync)),
}

/// A tree that grows.
pub(crate) struct Growth {
    shape: Shape,
    salted: Salted,
    block_len: usize,
    open: [Mutex<HashMap<(usize, u64), Open>>; SHARDS],
    /// Blocks of level 0 that are written.
    done: AtomicBitSet,
    root: Mutex<Option<Digest>>,
}

impl fmt::Debug for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Growth")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// A block of hashes of which some are known.
struct Open {
    bytes: Vec<u8>,
    /// Which ones, a bit for each.
    set: Vec<u64>,
    count: u64,
}

impl Open {
    fn new(block_len: usize, arity: u64) -> Self {
        Self {
            bytes: vec![0; block_len],
            set: vec![0; arity.div_ceil(64) as usize],
            count: 0,
        }
    }

    fn has(&self, slot: usize) -> bool {
        self.set[slot / 64] & 1 << (slot % 64) != 0
    }

    /// Puts a hash, and returns whether there was none.
    fn put(&mut self, slot: usize, digest: &Digest) -> bool {
        let is_new = !self.has(slot);
        let bytes = digest.as_bytes();
        self.bytes[slot * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
        self.set[slot / 64] |= 1 << (slot % 64);
        self.count += u64::from(is_new);
        is_new
    }
}

impl Growth {
    /// A tree of this shape, with blocks of `block_len` bytes.
    pub(crate) fn new(shape: Shape, salted: Salted, block_len: usize) -> Self {
        let done = AtomicBitSet::new(&DONE, shape.blocks_of(0) as usize);
        Self {
            shape,
            salted,
            block_len,
            open: std::array::from_fn(|_| Mutex::new(&OPEN, HashMap::new())),
            done,
            root: Mutex::new(&ROOT, None),
        }
    }

    /// What hashes blocks.
    pub(crate) const fn salted(&self) -> &Salted {
        &self.salted
    }

    /// Puts the hashes of blocks of data that follow one another from `first` on, and writes blocks
    /// of the tree that are full now. Returns whether none of them had a hash.
    ///
    /// # Errors
    /// What writing a block gives that is full now.
    pub(crate) fn put(
        &self,
        first: u64,
        digests: &[Digest],
        write: WriteBlock<'_>,
    ) -> DeviceResult<bool> {
        self.put_at(0, first, digests, write)
    }

    /// Whether the hash of a block of data is known.
    pub(crate) fn has(&self, leaf: u64) -> bool {
        if self.shape.levels() == 0 {
            return self.root.lock().is_some();
        }
        let (block, slot) = (leaf / self.shape.arity(), leaf % self.shape.arity());
        self.done.contains(block as usize)
            || self
                .shard(0, block)
                .lock()
                .get(&(0, block))
                .is_some_and(|open| open.has(slot as usize))
    }

    fn shard(&self, level: usize, block: u64) -> &Mutex<HashMap<(usize, u64), Open>> {
        &self.open[(level + block as usize) % SHARDS]
    }

    fn put_at(
        &self,
        level: usize,
        first: u64,
        digests: &[Digest],
        write: WriteBlock<'_>,
    ) -> DeviceResult<bool> {
        if level >= self.shape.levels() {
            let Some(last) = digests.last() else {
                return Ok(true);
            };
            return Ok(self.root.lock().replace(*last).is_none());
        }
        let arity = self.shape.arity();
        let (mut at, mut rest) = (first, digests);
        let mut are_new = true;
        while !rest.is_empty() {
            let slot = at % arity;
            let (now, later) = rest.split_at(rest.len().min((arity - slot) as usize));
            are_new &= self.put_in((level, at / arity), slot as usize, now, write)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(are_new)
    }

    fn put_in(
        &self,
        (level, block): (usize, u64),
        slot: usize,
        digests: &[Digest],
        write: WriteBlock<'_>,
    ) -> DeviceResult<bool> {
        let full = {
            let mut open = self.shard(level, block).lock();
            if level == 0 && self.done.contains(block as usize) {
                return Ok(false);
            }
            let entry = open
                .entry((level, block))
                .or_insert_with(|| Open::new(self.block_len, self.shape.arity()));
            let mut are_new = true;
            for (slot, digest) in (slot..).zip(digests) {
                are_new &= entry.put(slot, digest);
            }
            if !are_new {
                return Ok(false);
            }
            if entry.count < self.shape.children_of(level, block) {
                return Ok(true);
            }
            if level == 0 {
                self.done.insert(block as usize);
            }
            open.remove(&(level, block))
        };
        if let Some(full) = full {
            self.close(level, block, &full.bytes, write)?;
        }
        Ok(true)
    }

    /// Writes a block that is full, and puts its hash into the level above.
    fn close(
        &self,
        level: usize,
        block: u64,
        bytes: &[u8],
        write: WriteBlock<'_>,
    ) -> DeviceResult<()> {
        write(self.shape.start_of(level) + block, bytes)?;
        self.put_at(level + 1, block, &[self.salted.hash(bytes)], write)?;
        Ok(())
    }

    /// Puts the hashes of all blocks that have none, and returns the root hash; of a tree over
    /// nothing there is none.
    ///
    /// # Errors
    /// What `missing` gives, and what writing does.
    pub(crate) fn finish(
        &self,
        missing: &Missing<'_>,
        write: WriteBlock<'_>,
    ) -> DeviceResult<Option<Digest>> {
        if self.shape.leaves() == 1 && !self.has(0) {
            self.put(0, &[missing.of(0)?], write)?;
        }
        let blocks = self.shape.blocks_of(0);
        let same = self.same(missing);
        let batch = |batch| {
            let first = batch * BATCH;
            let blocks = first..blocks.min(first + BATCH);
            self.finish_batch(blocks, missing, same.as_ref(), write)
        };
        extant_host::side_by_side(|| {
            (0..blocks.div_ceil(BATCH))
                .into_par_iter()
                .try_for_each(batch)
        })?;
        Ok(*self.root.lock())
    }

    /// The bytes of as many blocks as a batch has without a hash that was put, and the hash of each
    /// of them, where all are the same.
    fn same(&self, missing: &Missing<'_>) -> Option<(Vec<u8>, Digest)> {
        let Missing::Same(digest) = missing else {
            return None;
        };
        let mut block = Open::new(self.block_len, self.shape.arity());
        for slot in 0..self.shape.arity() as usize {
            block.put(slot, digest);
        }
        let above = self.salted.hash(&block.bytes);
        let count = BATCH.min(self.shape.blocks_of(0)) as usize;
        Some((block.bytes.repeat(count), above))
    }

    fn finish_batch(
        &self,
        blocks: std::ops::Range<u64>,
        missing: &Missing<'_>,
        same: Option<&(Vec<u8>, Digest)>,
        write: WriteBlock<'_>,
    ) -> DeviceResult<()> {
        // Blocks without any hash, before the one that is looked at.
        let mut alike = blocks.start..blocks.start;
        for block in blocks {
            let open = self.shard(0, block).lock().remove(&(0, block));
            let is_done = self.done.contains(block as usize);
            let is_full = self.shape.children_of(0, block) == self.shape.arity();
            if !is_done && open.is_none() && is_full && same.is_some() {
                alike.end = block + 1;
                continue;
            }
            self.write_alike(&alike, same, write)?;
            alike = block + 1..block + 1;
            if !is_done {
                self.complete(block, open, missing, write)?;
            }
        }
        self.write_alike(&alike, same, write)
    }

    fn write_alike(
        &self,
        blocks: &std::ops::Range<u64>,
        same: Option<&(Vec<u8>, Digest)>,
        write: WriteBlock<'_>,
    ) -> DeviceResult<()> {
        let count = (blocks.end - blocks.start) as usize;
        let Some((bytes, digest)) = same.filter(|_| count > 0) else {
            return Ok(());
        };
        let first = self.shape.start_of(0) + blocks.start;
        write(first, &bytes[..count * self.block_len])?;
        self.put_at(1, blocks.start, &vec![*digest; count], write)?;
        Ok(())
    }

    /// Puts what is missing in a block of level 0, and writes it.
    fn complete(
        &self,
        block: u64,
        open: Option<Open>,
        missing: &Missing<'_>,
        write: WriteBlock<'_>,
    ) -> DeviceResult<()> {
        let mut open = open.unwrap_or_else(|| Open::new(self.block_len, self.shape.arity()));
        for slot in 0..self.shape.children_of(0, block) {
            if !open.has(slot as usize) {
                let digest = missing.of(block * self.shape.arity() + slot)?;
                open.put(slot as usize, &digest);
            }
        }
        self.done.insert(block as usize);
        self.close(0, block, &open.bytes, write)
    }
}

impl Missing<'_> {
    fn of(&self, leaf: u64) -> DeviceResult<Digest> {
        match self {
            Self::Same(digest) => Ok(*digest),
            Self::Found(find) => find(leaf),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_verity::Algorithm;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    static WRITTEN: LockClass = LockClass::new("written in a test", Rank::Leaf);

    /// The blocks of a tree and its root hash, made level by level.
    fn plainly(leaves: &[Digest], shape: &Shape, salted: &Salted) -> (Vec<Vec<u8>>, Digest) {
        let mut levels = Vec::new();
        let mut hashes = leaves.to_vec();
        for _ in 0..shape.levels() {
            let blocks: Vec<Vec<u8>> = hashes
                .chunks(shape.arity() as usize)
                .map(|part| {
                    let mut block: Vec<u8> = part
                        .iter()
                        .flat_map(|hash| hash.as_bytes().to_vec())
                        .collect();
                    block.resize(1024, 0);
                    block
                })
                .collect();
            hashes = blocks.iter().map(|block| salted.hash(block)).collect();
            levels.push(blocks);
        }
        levels.reverse();
        (levels.concat(), hashes[0])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_order_of_hashes_does_not_matter_and_what_is_missing_is_the_same(
            known in prop::collection::vec(any::<bool>(), 1..12_000),
            seed in any::<u64>(),
        ) {
            let salted = Salted::new(Algorithm::Sha256, b"salt");
            let zero = salted.hash(b"zero");
            let leaf = |at: usize| salted.hash(&at.to_le_bytes());
            let leaves: Vec<Digest> = known
                .iter()
                .enumerate()
                .map(|(at, known)| if *known { leaf(at) } else { zero })
                .collect();
            let shape = Shape::new(leaves.len() as u64, 5);
            let (expected, root) = plainly(&leaves, &shape, &salted);
            let mut order: Vec<usize> = (0..known.len()).filter(|&at| known[at]).collect();
            order.sort_by_key(|at| salted.hash(&(*at as u64 ^ seed).to_le_bytes()).to_string());
            let written = Mutex::new(&WRITTEN, BTreeMap::new());
            let write = |first: u64, bytes: &[u8]| {
                for (block, bytes) in (first..).zip(bytes.chunks(1024)) {
                    let before = written.lock().insert(block, bytes.to_vec());
                    assert!(before.is_none(), "block {block} is written once");
                }
                Ok(())
            };
            let growth = Growth::new(shape, salted.clone(), 1024);
            for at in order {
                assert!(growth.put(at as u64, &[leaf(at)], &write).unwrap());
                assert!(growth.has(at as u64));
                assert!(!growth.put(at as u64, &[leaf(at)], &write).unwrap());
            }
            let found = growth.finish(&Missing::Same(zero), &write).unwrap();
            prop_assert_eq!(found, Some(root));
            let written: Vec<Vec<u8>> = written.into_inner().into_values().collect();
            prop_assert_eq!(written, expected);
        }
    }
}
