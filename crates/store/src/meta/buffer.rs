//! A block's content, and what is known about it.

use super::OpenBlock;
use crate::meta::{Seal, Seq};
use extant_format::{Ino, Pblk, Structure};
use extant_sync::{
    CountedAtomicBool, FirstTouch, LockClass, Mutex, PerCpu, Rank, RmwClass, shard_count,
};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

static SPARE: LockClass = LockClass::new("spare blocks", Rank::Leaf);
static USED: RmwClass = RmwClass::new("meta used bit");

/// The place of a buffer that is in no ring.
const NOWHERE: u32 = u32::MAX;

/// Most bytes of memory without a block that are kept for each CPU: each change of a block needs
/// some, a commit as much as the blocks it completes have, and a checkpoint frees as much at once.
const MAX_SPARE: usize = 16 << 20;
/// The part of the cache's budget that all of them may have.
const SPARE_PART: usize = 16;

/// Where buffers come from: for each CPU one that those made there refer to, so that what they
/// share stays in its caches.
#[derive(Debug)]
pub(super) struct Homes(PerCpu<Arc<Home>>);

/// What the buffers made on one CPU share.
#[derive(Debug)]
pub(super) struct Home {
    /// Memory of buffers that are gone.
    spare: Mutex<Vec<Box<[u8]>>>,
    /// Most bytes of it.
    most: usize,
}

impl Homes {
    /// For a cache that keeps `budget` bytes.
    pub(super) fn new(budget: usize) -> Self {
        let most = (budget / SPARE_PART / shard_count().max(1)).min(MAX_SPARE);
        Self(PerCpu::new(|_| {
            Arc::new(Home {
                spare: Mutex::new(&SPARE, Vec::new()),
                most,
            })
        }))
    }

    /// That of this CPU.
    pub(super) fn local(&self) -> &Arc<Home> {
        self.0.local()
    }

    /// How many buffers have not been freed, and how much content besides.
    pub(super) fn live(&self) -> u64 {
        // All but the one reference from here are theirs.
        let counts = self.0.iter().map(Arc::strong_count);
        counts.map(|count| count.saturating_sub(1) as u64).sum()
    }
}

impl Home {
    /// A copy of `content`.
    pub(super) fn copy(&self, content: &[u8]) -> Box<[u8]> {
        // Nobody waits for memory that may as well come from elsewhere.
        let spare = self.spare.try_lock().and_then(|mut spare| spare.pop());
        match spare {
            Some(mut data) if data.len() == content.len() => {
                data.copy_from_slice(content);
                data
            }
            _ => content.into(),
        }
    }

    fn keep(&self, data: Box<[u8]>) {
        if let Some(mut spare) = self.spare.try_lock()
            && (spare.len() + 1) * data.len() <= self.most
        {
            spare.push(data);
        }
    }
}

/// Bytes of a block that are not (or not yet) an image in the cache.
#[derive(Debug)]
pub struct Content {
    data: Box<[u8]>,
    home: Arc<Home>,
}

impl Content {
    pub(super) fn copy(content: &[u8], home: &Arc<Home>) -> Self {
        Self {
            data: home.copy(content),
            home: home.clone(),
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.home.keep(std::mem::take(&mut self.data));
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.data
    }
}

impl DerefMut for Content {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

/// A cached block.
pub(super) struct Buffer {
    block: Pblk,
    data: Box<[u8]>,
    /// What the content was verified as: see [`BlockRef::is_verified`]. 0 for nothing.
    verified: AtomicU64,
    /// Whether anybody asked for the block since the clock's hand came by.
    used: CountedAtomicBool,
    /// Where the buffer is in its ring. Changed under the ring's lock only.
    ring_at: AtomicU32,
    home: Arc<Home>,
    /// The last transaction in which a record inside the block was registered. Handed on from image
    /// to image; what is lost in between only makes a transaction take the block for two.
    records: FirstTouch,
    /// The transaction that wrote this image; [`Seq::NONE`] for one that was loaded.
    seq: Seq,
    seal: Seal,
    /// Where the block is changed in place, if it is: this image is older.
    open: OnceLock<Weak<OpenBlock>>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.keep(std::mem::take(&mut self.data));
    }
}

impl Buffer {
    /// Notes a use. Stores only if the clock's hand came by since the last one.
    #[inline]
    pub(super) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the block was used since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed)
    }

    /// The place in the ring, if the buffer is in it. Under the ring's lock.
    pub(super) fn ring_at(&self) -> Option<usize> {
        let at = self.ring_at.load(Ordering::Relaxed);
        (at != NOWHERE).then_some(at as usize)
    }

    /// Whether the block is changed in place, so that there is more to it than this image.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.get().is_some()
    }

    /// Where the block is changed in place, if it is.
    pub(super) fn open(&self) -> Option<Arc<OpenBlock>> {
        self.open.get()?.upgrade()
    }

    /// Notes the place in the ring. Under the ring's lock.
    pub(super) fn set_ring_at(&self, at: Option<usize>) {
        let at = at.and_then(|at| u32::try_from(at).ok()).unwrap_or(NOWHERE);
        self.ring_at.store(at, Ordering::Relaxed);
    }
}

/// A block of metadata that is borrowed from the cache. See [`BlockRef`].
#[derive(Clone, Copy)]
pub struct Peeked<'g>(pub(super) &'g Buffer);

impl Peeked<'_> {
    /// Whether this is the same load of the same block.
    #[must_use]
    pub fn same_load(&self, other: &BlockRef) -> bool {
        std::ptr::eq(self.0, &raw const *other.0)
    }

    /// As [`BlockRef::seq`].
    #[inline]
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.0.seq
    }

    /// Whether transaction `seq` has registered a record inside the block.
    #[inline]
    pub fn has_records_of(&self, seq: Seq) -> bool {
        self.0.records.last() == seq.get()
    }

    /// As [`BlockRef::is_verified`].
    #[inline]
    #[must_use]
    pub fn is_verified(&self, what: Structure, owner: Option<Ino>) -> bool {
        self.0.verified.load(Ordering::Relaxed) == seal(what, owner)
    }
}

impl Deref for Peeked<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0.data
    }
}

impl fmt::Debug for Peeked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peeked").field(&self.0.block).finish()
    }
}

/// A block of metadata, shared with the cache and cheap to clone.
///
/// Its content never changes, and stays available for as long as the handle lives, even if the
/// cache forgets the block meanwhile.
#[derive(Clone)]
pub struct BlockRef(Arc<Buffer>);

impl BlockRef {
    /// A block that was loaded.
    pub(super) fn new(block: Pblk, data: Box<[u8]>, home: &Arc<Home>) -> Self {
        Self::written(block, data, home, Seq::NONE, Seal::Plain, None)
    }

    /// An image that transaction `seq` wrote, which takes over what is known of `old`, the image
    /// before it.
    pub(super) fn written(
        block: Pblk,
        data: Box<[u8]>,
        home: &Arc<Home>,
        seq: Seq,
        seal: Seal,
        old: Option<&Self>,
    ) -> Self {
        let records = FirstTouch::new();
        if let Some(last) = old.map(|old| old.0.records.last()).filter(|last| *last > 0) {
            records.touch(last);
        }
        Self(Arc::new(Buffer {
            block,
            data,
            seq,
            seal,
            records,
            verified: AtomicU64::new(old.map_or(0, Self::verified)),
            // What is asked for once only makes way first.
            used: CountedAtomicBool::new(&USED, false),
            ring_at: AtomicU32::new(NOWHERE),
            home: home.clone(),
            open: OnceLock::new(),
        }))
    }

    pub(super) fn of(buffer: Arc<Buffer>) -> Self {
        Self(buffer)
    }

    pub(super) fn buffer(&self) -> &Buffer {
        &self.0
    }

    pub(super) fn shared(&self) -> Arc<Buffer> {
        Arc::clone(&self.0)
    }

    /// Whether nobody but the cache (its table and its ring) holds the block.
    pub(super) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.0) <= 2
    }

    /// Whether both are the same load of the same block.
    #[must_use]
    pub fn same_load(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Which block this is.
    #[inline]
    #[must_use]
    pub fn block(&self) -> Pblk {
        self.0.block
    }

    /// The content, one block long.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.data
    }

    /// The transaction that wrote this image, [`Seq::NONE`] for one that came from the device.
    #[inline]
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.0.seq
    }

    /// How commit completes the image. The checksum inside [`BlockRef::bytes`] is old until then.
    #[inline]
    #[must_use]
    pub fn seal(&self) -> Seal {
        self.0.seal
    }

    /// Notes that the block is changed in place from now on; `false` if somebody else does that
    /// already.
    pub(super) fn set_open(&self, block: &Arc<OpenBlock>) -> bool {
        self.0.open.set(Arc::downgrade(block)).is_ok()
    }

    /// What remembers that a record inside the block was registered in a transaction.
    pub fn records(&self) -> &FirstTouch {
        &self.0.records
    }

    /// What the content was verified as, to hand on to the next image.
    fn verified(&self) -> u64 {
        self.0.verified.load(Ordering::Relaxed)
    }

    /// Whether the content was found to be a sound `what` of inode `owner` (`None` for structures
    /// that belong to no inode) since it was loaded, so that its checksum need not be computed
    /// again.
    ///
    /// A block that a hostile image uses as two structures, or for two inodes, is verified anew
    /// for each.
    #[inline]
    #[must_use]
    pub fn is_verified(&self, what: Structure, owner: Option<Ino>) -> bool {
        self.0.verified.load(Ordering::Relaxed) == seal(what, owner)
    }

    /// Notes that the content is a sound `what` of `owner`.
    #[inline]
    pub fn set_verified(&self, what: Structure, owner: Option<Ino>) {
        // The content was published before and does not change: there is nothing to order.
        self.0.verified.store(seal(what, owner), Ordering::Relaxed);
    }
}

/// A number that is different for different arguments, and never 0.
fn seal(what: Structure, owner: Option<Ino>) -> u64 {
    let owner = owner.map_or(0, Ino::get);
    ((what as u64 + 1) << 32) | u64::from(owner)
}

impl Deref for BlockRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0.data
    }
}

impl AsRef<[u8]> for BlockRef {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.0.data
    }
}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockRef")
            .field("block", &self.0.block)
            .field("len", &self.0.data.len())
            .finish()
    }
}
