//! What a caller chooses at mount.

use crate::quota::Enforced;
use extant_blockdev::SharedDevice;
use extant_format::superblock::ErrorsBehaviour;
use extant_format::{BlockSize, Pblk};
use std::time::Duration;

/// How to open a file system. Made with [`MountOptions::read_only`] or
/// [`MountOptions::read_write`], changed field by field.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MountOptions {
    /// Whether the file system is opened for reading only.
    pub read_only: bool,
    /// Bytes the caches of metadata and inodes may use together.
    pub memory: usize,
    /// What to do about a journal that was not closed cleanly.
    pub journal: JournalChoice,
    /// The device that holds the journal, where the file system says that it is on one of its own.
    /// It is only read.
    pub journal_device: Option<SharedDevice>,
    /// Which superblock to believe.
    pub superblock: SuperblockChoice,
    /// Whether a device that ends before its file system is read as far as it goes. For opening for
    /// reading only.
    pub cut_short: bool,
    /// Whether a thread commits and checkpoints in the background of a file system open for
    /// writing. Without one that happens in the threads of callers: when they ask for it, and when
    /// the log is full.
    pub background: bool,
    /// Age at which the background thread commits changes that nobody asked to have committed.
    pub commit_interval: Duration,
    /// Which mechanisms work as they did before they were improved.
    #[cfg(feature = "baseline")]
    pub baseline: Baseline,
    /// Whether the device is told what has become free, after the commit that made it so: an image
    /// file gets holes there, a disk may reuse the space.
    pub discard: bool,
    /// How file data gets to the device.
    pub data_mode: DataMode,
    /// Bytes of file data kept in memory, beside [`memory`](Self::memory). By default a quarter of
    /// what the system has.
    pub cache_bytes: Option<usize>,
    /// When reading a file, a directory or a symbolic link notes the time in it.
    pub access_times: AccessTimes,
    /// Whether that is also done for directories.
    pub dir_access_times: bool,
    /// Whether access times stay in memory until the inode changes in another way, everything is
    /// made durable, or the file system is closed (`lazytime` under Linux).
    pub lazy_times: bool,
    /// Whether file data is copied straight between callers and a device that is memory, with no
    /// copy of it kept. [`data_mode`](Self::data_mode) means nothing then.
    pub dax: bool,
    /// Which owners are held to the limits that the quota files say. Use is counted in any case.
    pub quotas: Enforced,
    /// What follows when a structure is found corrupt in the course of a change (`errors=` under
    /// Linux). By default what the superblock says.
    pub errors: Option<ErrorsBehaviour>,
}

/// Which mechanisms work as they did before they were improved.
#[cfg(feature = "baseline")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Baseline {
    /// Those of the allocator.
    pub alloc: crate::alloc::Baseline,
    /// Those of inodes.
    pub inode: crate::inode::Baseline,
    /// Those of file data.
    pub data: crate::data::Baseline,
}

/// When reading notes the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AccessTimes {
    /// Never (`noatime` under Linux). Reading changes nothing then, which is what programs that
    /// work on images want.
    #[default]
    Never,
    /// When the time of the last access lies before the last change, or a day back (`relatime`,
    /// which Linux has as its default).
    Relative,
    /// Each time, as precisely as the clock ticks (`strictatime`).
    Strict,
}

/// How access times are kept, as operations ask for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessPolicy {
    pub(crate) when: AccessTimes,
    pub(crate) dirs: bool,
    pub(crate) lazy: bool,
}

impl AccessPolicy {
    pub(crate) fn of(options: &MountOptions) -> Self {
        Self {
            when: if options.read_only {
                AccessTimes::Never
            } else {
                options.access_times
            },
            dirs: options.dir_access_times,
            lazy: options.lazy_times,
        }
    }
}

/// How file data gets to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DataMode {
    /// Every write goes to the device, and what it changes about the file into a transaction,
    /// before it returns.
    Through,
    /// Writes go to memory. Where new blocks lie is chosen by the write (`nodelalloc` under Linux).
    Placed,
    /// Writes go to memory. Where new blocks lie is chosen when they are written back, all that
    /// there are by then together; until then space is promised (`delalloc` under Linux).
    #[default]
    Delayed,
}

/// What to do about a journal that was not closed cleanly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum JournalChoice {
    /// Replay it: into memory when the file system is opened for reading only.
    #[default]
    Replay,
    /// Show the file system as it lies on the device. It may be inconsistent.
    Ignore,
}

/// Which superblock to believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SuperblockChoice {
    /// The one at byte 1024.
    #[default]
    Primary,
    /// A backup (and the group descriptors after it).
    Backup {
        /// The block that holds it.
        block: Pblk,
        /// The block size of the file system.
        block_size: BlockSize,
    },
}

/// Memory that caches use unless the caller says otherwise.
const DEFAULT_MEMORY: usize = 64 << 20;
/// When changes are committed unless the caller says otherwise: as Linux does.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

impl MountOptions {
    /// Options to open for reading, with everything else at its default.
    #[must_use]
    pub fn read_only() -> Self {
        Self {
            read_only: true,
            memory: DEFAULT_MEMORY,
            journal: JournalChoice::default(),
            journal_device: None,
            superblock: SuperblockChoice::default(),
            cut_short: false,
            background: true,
            commit_interval: COMMIT_INTERVAL,
            #[cfg(feature = "baseline")]
            baseline: Baseline::default(),
            discard: false,
            data_mode: DataMode::default(),
            cache_bytes: None,
            access_times: AccessTimes::default(),
            dir_access_times: true,
            lazy_times: false,
            dax: false,
            quotas: Enforced::default(),
            errors: None,
        }
    }

    /// Options to open for reading and writing, with everything else at its default.
    #[must_use]
    pub fn read_write() -> Self {
        Self {
            read_only: false,
            ..Self::read_only()
        }
    }

    /// Sets whether there is a background thread.
    #[must_use]
    pub fn background(mut self, on: bool) -> Self {
        self.background = on;
        self
    }

    /// Sets the age at which changes are committed.
    #[must_use]
    pub fn commit_interval(mut self, age: Duration) -> Self {
        self.commit_interval = age;
        self
    }

    /// Sets the budget of the cache, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets whether the device is told what is free.
    #[must_use]
    pub fn discard(mut self, on: bool) -> Self {
        self.discard = on;
        self
    }

    /// Sets the way of file data to the device.
    #[must_use]
    pub fn data_mode(mut self, mode: DataMode) -> Self {
        self.data_mode = mode;
        self
    }

    /// Sets whether writes go to memory and blocks get their places later, or by the
    /// write.
    #[must_use]
    pub fn delalloc(self, on: bool) -> Self {
        self.data_mode(if on {
            DataMode::Delayed
        } else {
            DataMode::Placed
        })
    }

    /// Sets the budget of file data in memory, in bytes.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Sets when times of access are kept.
    #[must_use]
    pub fn access_times(mut self, when: AccessTimes) -> Self {
        self.access_times = when;
        self
    }

    /// Sets whether directories have times of access (`nodiratime` under Linux).
    #[must_use]
    pub fn dir_access_times(mut self, on: bool) -> Self {
        self.dir_access_times = on;
        self
    }

    /// Sets whether times of access stay in memory at first.
    #[must_use]
    pub fn lazy_times(mut self, on: bool) -> Self {
        self.lazy_times = on;
        self
    }

    /// Sets whether a device that is memory is accessed directly (`dax` under Linux): file data
    /// is copied straight between callers and the device. Opening any other device so is an error.
    ///
    /// ```
    /// use extant_core::fs::MountOptions;
    ///
    /// let options = MountOptions::read_write().dax(true);
    /// assert!(options.dax);
    /// ```
    #[must_use]
    pub fn dax(mut self, on: bool) -> Self {
        self.dax = on;
        self
    }

    /// Sets which kinds of owners are held to their limits (`usrquota`, `grpquota` and `prjquota`
    /// under Linux). Opening a file system for writing that does not count one of them is an error.
    /// An operation that [acts](crate::ops::OpContext) as user 0, or for nobody, is held to none.
    #[must_use]
    pub fn quotas(mut self, enforced: Enforced) -> Self {
        self.quotas = enforced;
        self
    }

    /// Sets another behaviour when a structure is found corrupt than the superblock asks for.
    #[must_use]
    pub fn errors(mut self, behaviour: Option<ErrorsBehaviour>) -> Self {
        self.errors = behaviour;
        self
    }

    /// Sets what becomes of the journal.
    #[must_use]
    pub fn journal(mut self, choice: JournalChoice) -> Self {
        self.journal = choice;
        self
    }

    /// Sets the device of an external journal, which is replayed into memory if the file system was
    /// not closed cleanly. For opening for reading.
    #[must_use]
    pub fn journal_device(mut self, device: SharedDevice) -> Self {
        self.journal_device = Some(device);
        self
    }

    /// Sets which superblock is read.
    #[must_use]
    pub fn superblock(mut self, choice: SuperblockChoice) -> Self {
        self.superblock = choice;
        self
    }

    /// Accepts a device that ends before its file system, and reads it as far as it goes, or
    /// refuses it. What lies behind the end is an error of the device when it is asked for. Means
    /// nothing for opening for writing, which refuses such a device in any case.
    #[must_use]
    pub fn cut_short(mut self, accepted: bool) -> Self {
        self.cut_short = accepted;
        self
    }
}
