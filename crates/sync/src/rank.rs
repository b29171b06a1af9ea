//! The lock order, and classes of locks.

#[cfg(feature = "lockstat")]
use crate::stat;

/// The place of a lock in the one order in which locks are acquired: lower ranks first.
///
/// The documented order (`docs/design/locking.md`) shows these numbers divided by ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Rank {
    /// Inside the gate of changes, in which every operation is that changes something.
    FsState = 10,
    /// Renames that change the shape of the directory tree.
    RenameTopology = 20,
    /// Writing back all files.
    Flush = 25,
    /// Operations of an inode. Several are locked by a set, which waits for one and tries the rest.
    InodeOp = 30,
    /// One name of a directory.
    Name = 32,
    /// Page invalidation of an inode against I/O on it.
    PageInval = 40,
    /// The writeback of one file.
    Writeback = 41,
    /// A folio, in ascending index.
    Folio = 42,
    /// A journal handle. Starting one may sleep for a commit.
    JournalHandle = 50,
    /// An inode's mapping from logical to physical blocks.
    InodeMap = 60,
    /// The index of a hashed directory.
    DirIndex = 62,
    /// An inode's disk and live state.
    InodeMeta = 70,
    /// An inode's extended attributes.
    Xattr = 71,
    /// The orphan list, and the orphan link of every listed inode.
    OrphanList = 72,
    /// Quota records.
    Quota = 74,
    /// Giving back the preallocations of all files.
    PreallocDiscard = 78,
    /// An inode's tree of preallocations.
    PreallocTree = 80,
    /// A locality group's preallocations.
    Locality = 82,
    /// A block group's allocator state. No function holds two.
    Group = 90,
    /// Extents freed by transactions that have not committed.
    Freed = 92,
    /// The content of a metadata buffer. Leaf use only.
    BufferContent = 100,
    /// The running transaction.
    JournalRunning = 110,
    /// Which thread loads what into a cache.
    CacheLoad = 118,
    /// A bucket of a cache's hash table.
    CacheBucket = 120,
    /// A shard of a cache's replacement list.
    LruShard = 122,
    /// What an undo file keeps of a device, over that device.
    Kept = 124,
    /// What a format of images keeps of itself, over the device that holds it.
    ImageFormat = 126,
    /// A queue of a device, and locks inside its backend.
    DeviceQueue = 130,
    /// What is promised to one file.
    Promise = 138,
    /// After everything: state that never leads to another acquisition.
    Leaf = 140,
}

impl Rank {
    /// Whether waiting for a device is forbidden while a lock of this rank is held: a thread that
    /// needs the lock would wait for the device too.
    #[must_use]
    pub const fn forbids_device_wait(self) -> bool {
        matches!(
            self,
            Self::Group
                | Self::Freed
                | Self::JournalRunning
                | Self::CacheLoad
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
