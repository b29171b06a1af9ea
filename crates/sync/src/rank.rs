//! The lock order, and classes of locks.

#[cfg(feature = "lockstat")]
use crate::stat;

/// The place of a lock in the one order in which locks are acquired: lower ranks first.
///
/// The numbers of the documented order are `rank / 10`; ranks between them are its "b" and "c".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Rank {
    /// 1: mount state; every operation holds its sharded read side.
    FsState = 10,
    /// 2: renames that change the shape of the directory tree.
    RenameTopology = 20,
    /// 2b: writing back all files.
    Flush = 25,
    /// 3: an inode's operations. Ancestors first, then ascending inode number.
    InodeOp = 30,
    /// 3b: one name of a directory.
    Name = 32,
    /// 4: page invalidation of an inode against I/O on it.
    PageInval = 40,
    /// 4b, before the folios: the writeback of one file.
    Writeback = 41,
    /// 4b: a folio, in ascending index.
    Folio = 42,
    /// 5: a journal handle. Starting one may sleep for a commit.
    JournalHandle = 50,
    /// 6: an inode's mapping from logical to physical blocks.
    InodeMap = 60,
    /// 6b: the index of a hashed directory.
    DirIndex = 62,
    /// 7: an inode's disk and live state.
    InodeMeta = 70,
    /// 7, after the state: an inode's extended attributes.
    Xattr = 71,
    /// 7b: the orphan list, and the orphan link of every listed inode.
    OrphanList = 72,
    /// 7c: quota records.
    Quota = 74,
    /// 8, before the trees: giving back the preallocations of all files.
    PreallocDiscard = 78,
    /// 8: an inode's tree of preallocations.
    PreallocTree = 80,
    /// 8b: a locality group's preallocations.
    Locality = 82,
    /// 9: a block group's allocator state. A second group only by `try_lock`.
    Group = 90,
    /// 9b: extents freed by transactions that have not committed.
    Freed = 92,
    /// 10: the content of a metadata buffer. Leaf use only.
    BufferContent = 100,
    /// 11: the running transaction.
    JournalRunning = 110,
    /// 12: a bucket of a cache's hash table.
    CacheBucket = 120,
    /// 12, after the bucket: a shard of a cache's replacement list.
    LruShard = 122,
    /// 13: a queue of a device, and locks inside its backend.
    DeviceQueue = 130,
    /// 13b: what is promised to one file.
    Promise = 138,
    /// After everything: state that never leads to another acquisition.
    Leaf = 140,
}

impl Rank {
    /// Whether waiting for a device is forbidden while a lock of this rank is held: whoever
    /// needs the lock would wait for the device too.
    #[must_use]
    pub const fn forbids_device_wait(self) -> bool {
        matches!(
            self,
            Self::Group
                | Self::Freed
                | Self::JournalRunning
                | Self::CacheBucket
                | Self::LruShard
                | Self::DeviceQueue
                | Self::Promise
                | Self::Leaf
        )
    }
}

/// A kind of lock: its name, its rank, and (with `lockstat`) the statistics of all its locks.
///
/// Made once per kind, as a `static`:
///
/// ```
/// use extant_sync::{LockClass, Mutex, Rank};
///
/// static GROUP: LockClass = LockClass::new("group", Rank::Group);
/// let free_blocks = Mutex::new(&GROUP, 32_768_u32);
/// *free_blocks.lock() -= 1;
/// ```
#[derive(Debug)]
pub struct LockClass {
    name: &'static str,
    rank: Rank,
    ascending: bool,
    #[cfg(feature = "lockstat")]
    pub(crate) stats: stat::ClassStats,
}

impl LockClass {
    /// A class whose locks are never held two at a time, except through `try_` forms.
    #[must_use]
    pub const fn new(name: &'static str, rank: Rank) -> Self {
        Self {
            name,
            rank,
            ascending: false,
            #[cfg(feature = "lockstat")]
            stats: stat::ClassStats::new(),
        }
    }

    /// A class of which a thread may hold several locks, acquired through the `_ascending` forms
    /// in ascending key.
    #[must_use]
    pub const fn ascending(name: &'static str, rank: Rank) -> Self {
        Self {
            name,
            rank,
            ascending: true,
            #[cfg(feature = "lockstat")]
            stats: stat::ClassStats::new(),
        }
    }

    /// The name, as it appears in panics and statistics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The rank.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Whether several locks of this class may be held, in ascending key.
    #[must_use]
    pub const fn is_ascending(&self) -> bool {
        self.ascending
    }
}
