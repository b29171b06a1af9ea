//! An inode in memory that can change.

use super::Inode;
use crate::Result;
use crate::journal::{Handle, Seq};
use extant_format::Ino;
use extant_sync::{
    BiasedRwLock, CountedAtomicU64, EpochGuard, FirstTouch, LockClass, Mutex, Rank, RcuCell,
    RmwClass, RwLock, pin,
};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static OP: LockClass = LockClass::ascending("inode op", Rank::InodeOp);
static PAGES: LockClass = LockClass::ascending("inode pages", Rank::PageInval);
static MAP: LockClass = LockClass::new("inode map", Rank::InodeMap);
static META: LockClass = LockClass::ascending("inode meta", Rank::InodeMeta);
static HOLDS: RmwClass = RmwClass::new("inode holds");

/// Set in the count of holds when the inode is leaving memory: nobody can take hold of it any more.
const LEAVING: u64 = 1 << 63;

/// An inode in memory: its newest image, its locks, and who holds on to it.
///
/// The image ([`Inode`]) is immutable; a change publishes another one. So whoever only looks takes
/// no lock, and sees a record that was whole at one moment.
///
/// # Locking
///
/// | lock | rank | guards |
/// |---|---|---|
/// | `op` | InodeOp | operations: shared for reads, writes inside the file and creates and unlinks in a directory; exclusive for what changes the whole |
/// | `pages` | PageInval | shared while physical addresses of its data are in use; exclusive to take blocks away |
/// | `map` | InodeMap | its map from logical to physical blocks: the root in the image and the nodes below |
/// | `meta` | InodeMeta | changes of the image |
pub struct LiveInode {
    ino: Ino,
    image: RcuCell<Arc<Inode>>,
    /// How many [`Held`] there are, and [`LEAVING`].
    holds: CountedAtomicU64,
    op: BiasedRwLock<()>,
    pages: BiasedRwLock<()>,
    map: RwLock<()>,
    /// Odd while the map changes; another even number afterwards.
    map_version: AtomicU64,
    meta: Mutex<()>,
    touched: FirstTouch,
    /// The last transaction that changed something `fdatasync` must make durable.
    datasync: AtomicU64,
}

impl LiveInode {
    pub(super) fn new(image: Arc<Inode>) -> Self {
        Self {
            ino: image.ino(),
            image: RcuCell::new(image),
            holds: CountedAtomicU64::new(&HOLDS, 0),
            op: BiasedRwLock::new(&OP, ()),
            pages: BiasedRwLock::new(&PAGES, ()),
            map: RwLock::new(&MAP, ()),
            map_version: AtomicU64::new(0),
            meta: Mutex::new(&META, ()),
            touched: FirstTouch::new(),
            datasync: AtomicU64::new(0),
        }
    }

    /// Its number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The newest image, borrowed.
    #[inline]
    #[must_use]
    pub fn image<'g>(&'g self, guard: &'g EpochGuard) -> &'g Arc<Inode> {
        self.image.get(guard)
    }

    /// The newest image, to keep.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> Arc<Inode> {
        Arc::clone(self.image.get(&pin()))
    }

    /// The lock of operations.
    #[must_use]
    pub(crate) fn op(&self) -> &BiasedRwLock<()> {
        &self.op
    }

    /// The lock that keeps blocks of the file where they are.
    #[must_use]
    pub(crate) fn pages(&self) -> &BiasedRwLock<()> {
        &self.pages
    }

    /// The lock of the map.
    #[must_use]
    pub(crate) fn map(&self) -> &RwLock<()> {
        &self.map
    }

    /// Counts changes of the map, so that who reads it without the lock can tell that it changed
    /// meanwhile: odd during a change. Stored by whoever holds the map's lock exclusively.
    #[must_use]
    pub(crate) fn map_version(&self) -> &AtomicU64 {
        &self.map_version
    }

    pub(crate) fn touched(&self) -> &FirstTouch {
        &self.touched
    }

    /// The last transaction that changed the inode in any way; [`Seq::NONE`] if none has since it
    /// was loaded.
    #[must_use]
    pub(crate) fn last_seq(&self) -> Seq {
        Seq::new(self.touched.last())
    }

    /// The last transaction that changed what reading the data back needs: size or map.
    #[must_use]
    pub(crate) fn datasync_seq(&self) -> Seq {
        Seq::new(self.datasync.load(Ordering::Acquire))
    }

    /// Changes the record: `edit` gets a copy of the image, which becomes the newest image in the
    /// transaction of `handle`.
    ///
    /// # Errors
    /// When the inode cannot be registered; `edit` is not called then.
    pub(crate) fn update<R>(
        self: &Arc<Self>,
        handle: &Handle<'_>,
        edit: impl FnOnce(&mut Inode) -> R,
    ) -> Result<R> {
        // Before the lock: it may wait for the device.
        handle.touch_inode(self)?;
        let changing = self.meta.lock();
        let mut image = Inode::clone(&self.snapshot());
        let map_or_size = (image.disk.size, image.disk.map);
        let result = edit(&mut image);
        if map_or_size != (image.disk.size, image.disk.map) {
            self.datasync.store(handle.seq().get(), Ordering::Release);
        }
        self.image.replace(Arc::new(image), &pin());
        drop(changing);
        Ok(result)
    }

    /// Takes hold, unless the inode is leaving memory.
    pub(super) fn try_hold(self: &Arc<Self>) -> Option<Held> {
        let mut count = self.holds.load(Ordering::Relaxed);
        while count & LEAVING == 0 {
            match self.holds.compare_exchange_weak(
                count,
                count + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return Some(Held {
                        live: Arc::clone(self),
                        counts: true,
                    });
                }
                Err(now) => count = now,
            }
        }
        None
    }

    /// Claims the inode for its way out of memory, if nobody holds it. From then on nobody can.
    pub(crate) fn claim_if_unheld(&self) -> bool {
        self.claim_if(0)
    }

    /// The same for whoever has the only hold, which the claim ends: the [`Held`] must not be
    /// dropped but given to [`Held::claim_last`].
    fn claim_if(&self, holds: u64) -> bool {
        self.holds
            .compare_exchange(holds, LEAVING, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether the inode is leaving memory, or has left it.
    #[must_use]
    pub(crate) fn is_leaving(&self) -> bool {
        self.holds.load(Ordering::Acquire) & LEAVING != 0
    }

    /// How many hold it.
    #[must_use]
    pub(crate) fn holds(&self) -> u64 {
        self.holds.load(Ordering::Acquire) & !LEAVING
    }
}

impl std::fmt::Debug for LiveInode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveInode")
            .field("ino", &self.ino)
            .finish_non_exhaustive()
    }
}

/// A hold on an inode: while there is one the inode stays in memory, and if its last name goes its
/// content stays until the last hold is gone. What an open file has.
///
/// Dropping the last hold of an inode without names deletes it, so a hold must not be dropped under
/// a handle or a lock; [`Fs::release`](crate::fs::Fs::release) is what the end of a hold does.
#[derive(Debug)]
pub struct Held {
    live: Arc<LiveInode>,
    /// Whether dropping this gives a hold back.
    counts: bool,
}

impl Held {
    /// The inode, shared.
    #[must_use]
    pub(crate) fn live(&self) -> &Arc<LiveInode> {
        &self.live
    }

    /// Gives the hold up and claims the inode for its way out of memory, if this is the only hold.
    ///
    /// # Errors
    /// The hold itself, when there are others.
    pub(crate) fn claim_last(mut self) -> std::result::Result<Arc<LiveInode>, Self> {
        if self.live.claim_if(1) {
            self.counts = false;
            Ok(Arc::clone(&self.live))
        } else {
            Err(self)
        }
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        // There is a hold already, so nobody can claim the inode.
        self.live.holds.fetch_add(1, Ordering::Relaxed);
        Self {
            live: Arc::clone(&self.live),
            counts: true,
        }
    }
}

impl Deref for Held {
    type Target = LiveInode;

    fn deref(&self) -> &LiveInode {
        &self.live
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // TODO(inode): the last hold of an inode without names hands it to the deletion.
        if self.counts {
            self.live.holds.fetch_sub(1, Ordering::Release);
        }
    }
}
