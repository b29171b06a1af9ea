//! Blocks and inodes: which are in use, and what a request gets next.
//!
//! | file | owns |
//! |---|---|
//! | `request` | what is asked for, and what was taken |
//! | `search` | which free blocks a request gets |
//! | `order` | groups by what they have free |
//! | `buddy` | which blocks of 2^k clusters of a group are free |
//! | `blocks` | taking blocks, committing them, giving them back, freeing them |
//! | `exact` | blocks and inodes that somebody else has chosen |
//! | `space` | how many blocks may be taken |
//! | `share` | the user that space is for, and whether it may have the reserve |
//! | `inodes` | taking inodes and freeing them |
//! | `inspect` | a look inside, for tests (feature `inspect`) |
//! | `file` | what is asked of a file that gets blocks |
//! | `prealloc` | blocks for files, and what is kept ready for them |
//! | `orlov` | which group a new inode should have |
//! | `contention` | groups that a CPU avoids for a while because others take inodes there |
//! | `itable` | parts of the inode table that were never written |
//! | `group` | one group in memory |
//! | `load` | the way from the device to a group in memory |
//! | `memory` | which groups stay in memory |
//! | `described` | what the descriptors say, read when the file system is opened |
//! | `fixed` | the blocks of the file system itself |
//! | `baseline` | unimproved forms, to compare with |
//! | `bits` | bitmaps whose images can be kept |
//! | `free_extents` | how the free space lies |
//! | `freed` | blocks freed by transactions that have not committed |
//! | `image` | what commit takes of a group |
//! | `trim` | telling the device of all that is free |
//!
//! # Two bitmaps
//!
//! The *disk bitmap* of a group says what the inodes on the device own. It changes only under a
//! handle and is all that commit encodes. The *allocator bitmap* says what may be handed out: the
//! disk bitmap, and besides what is taken for data still on its way, and what was freed by a
//! transaction that has not committed. It is never encoded.
//!
//! So blocks go through three steps: [`Alloc::take_blocks`] marks them in the allocator bitmap,
//! without a handle; [`Alloc::commit_blocks`] marks them in the disk bitmap, under the handle that
//! also maps them; or they are given back when the [`Taken`] is dropped. Freed blocks leave the
//! disk bitmap at once and the allocator bitmap after the commit.
//!
//! # Locking
//!
//! Each group has a lock of rank `Group`, held for a change of its bits and never across I/O: a
//! group is loaded before it is locked. No function here holds two. Whether a group is worth a look
//! is read from counters without its lock. `freed` has lists of rank `Freed`, one for each CPU.
//!
//! # Invariants
//!
//! - Every bit of the disk bitmap is set in the allocator bitmap too.
//! - A block is in at most one [`Taken`], and then not in the disk bitmap.
//! - Fixed metadata is never taken and never freed.
//! - A damaged group is left alone: nothing is taken from it.

#[cfg(feature = "baseline")]
mod baseline;
mod bits;
mod blocks;
mod buddy;
mod contention;
mod described;
mod exact;
mod file;
mod fixed;
mod free_extents;
mod freed;
mod group;
mod image;
mod inodes;
#[cfg(feature = "inspect")]
mod inspect;
mod itable;
mod load;
mod memory;
mod order;
mod orlov;
mod prealloc;
mod request;
mod search;
mod share;
mod space;
mod trim;

#[cfg(feature = "baseline")]
pub use baseline::Baseline;
pub use file::AllocFile;
pub use free_extents::{ExtentsOfOrder, FreeExtents, for_each_free_run};
#[cfg(feature = "inspect")]
pub use inspect::GroupView;
pub use orlov::Parent;
pub use prealloc::{FAR, FileRequest, FileState};
pub use request::{FreedKind, Request, Taken};
pub use share::Spending;
pub use trim::TrimRange;

use crate::journal::{Journal, NumberList};
use crate::volume::Volume;
use crate::{Error, InPlace, Place, Result};
use contention::ContendedGroups;
use described::Described;
use extant_format::features::Incompat;
use extant_format::group_desc::{GroupDesc, GroupFlags};
use extant_format::{Expected, FormatError, Group, Pblk, Structure};
use extant_sync::{LockClass, Mutex, PerCpu, Rank, ShardedCounter};
use fixed::Fixed;
use freed::Freed;
use group::Slot;
use memory::InMemory;
use order::OrderIndex;
use prealloc::Prealloc;
use space::Space;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The list in which handles register groups.
const GROUPS: NumberList = NumberList::FIRST;

static DESCS: LockClass = LockClass::new("descriptor block", Rank::BufferContent);

/// A block of descriptors as commit last encoded it, once one of its groups is in memory.
type DescBlock = Mutex<Option<Arc<[u8]>>>;

/// The allocator of a file system open for writing.
#[derive(Debug)]
pub struct Alloc {
    volume: Arc<Volume>,
    journal: Arc<Journal>,
    slots: Box<[Slot]>,
    in_memory: InMemory,
    index: Arc<OrderIndex>,
    desc_blocks: Box<[DescBlock]>,
    fixed: Fixed,
    /// What no file's map may lead to.
    kept: Fixed,
    space: Space,
    /// Clusters that are free on the device and yet somebody's: promised, or kept by their file as
    /// numbers.
    promised: ShardedCounter,
    prealloc: Prealloc,
    freed: Freed,
    #[cfg(feature = "baseline")]
    forms: baseline::Forms,
    /// Free clusters, inodes and directories by the disk bitmaps.
    free: ShardedCounter,
    free_inodes: ShardedCounter,
    dirs: ShardedCounter,
    contended: ContendedGroups,
    /// For generations of new inodes.
    seed: u64,
    generations: PerCpu<AtomicU64>,
}

/// What is free by the disk bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeCounts {
    /// Free blocks.
    pub blocks: u64,
    /// Free inodes.
    pub inodes: u32,
}

/// What the accounting of space holds, in clusters. Sums are exact while nothing goes on.
#[derive(Clone, Copy, Debug)]
pub struct AllocSums {
    /// The lowest count of the places that clusters are granted from.
    pub least: i64,
    /// Clusters that may be granted.
    pub grantable: i64,
    /// Clusters that are free on the device and yet somebody's.
    pub promised: i64,
    /// Freed clusters that wait for a commit.
    pub pending: i64,
}

/// What a caller chooses of an allocator.
#[derive(Clone, Copy, Debug)]
pub struct AllocOptions {
    /// Bytes of memory of all caches, of which bitmaps may have a part.
    pub memory: usize,
    /// Whether the device is told of what is free after each commit.
    pub discard: bool,
}

impl Alloc {
    /// The allocator of `volume`, whose log has been replayed. Reads all descriptors; bitmaps come
    /// in when they are needed.
    ///
    /// # Errors
    /// When the device fails, a descriptor is damaged, or two groups claim one block.
    /// [`Error::Unsupported`] for clusters that cannot be.
    pub fn new(volume: Arc<Volume>, journal: Arc<Journal>, options: AllocOptions) -> Result<Self> {
        let geometry = volume.geometry();
        check_clusters(&volume)?;
        let index = OrderIndex::new(geometry.groups_count() as usize);
        let Described {
            slots,
            fixed,
            free,
            inodes,
            dirs,
        } = Described::read(&volume, &index)?;
        let superblock = volume.superblock();
        let uuid = superblock.uuid();
        // Where the clock stands still, only the count tells one time of use from the next.
        let opened = u64::from(superblock.raw().mnt_count.get());
        let seed = uuid
            .iter()
            .fold(superblock.write_time() ^ opened << 48, |hash, byte| {
                mix(hash ^ u64::from(*byte))
            });
        let in_clusters = |blocks: u64| blocks.div_ceil(volume.cluster_size().blocks().into());
        Ok(Self {
            journal,
            slots: slots.into_boxed_slice(),
            in_memory: InMemory::new(options.memory, volume.block_size()),
            index: Arc::new(index),
            desc_blocks: (0..geometry.desc_blocks())
                .map(|_| Mutex::new(&DESCS, None))
                .collect(),
            kept: fixed.clone(),
            fixed,
            space: Space::new(
                free,
                in_clusters(volume.held_back()),
                in_clusters(volume.held_back_from_all()),
            ),
            promised: ShardedCounter::new(),
            prealloc: Prealloc::new(geometry.groups_count()),
            freed: Freed::new(options.discard),
            #[cfg(feature = "baseline")]
            forms: baseline::Forms::default(),
            free: counter(free),
            free_inodes: counter(inodes),
            dirs: counter(dirs),
            contended: ContendedGroups::new(),
            seed: mix(seed ^ superblock.mount_time()),
            generations: PerCpu::default(),
            volume,
        })
    }

    /// Directories.
    pub fn directories(&self) -> u64 {
        self.dirs.count()
    }

    /// Whether data that was allocated and freed by one transaction can be taken again before it
    /// commits.
    fn reuses_at_once(&self) -> bool {
        #[cfg(feature = "baseline")]
        if self.forms.frees_late() {
            return false;
        }
        // What the device is told of is told after a commit.
        !self.freed.discards()
    }

    fn slot(&self, group: Group) -> Result<&Slot> {
        self.slots.get(group.get() as usize).ok_or_else(|| {
            let last = (self.slots.len() as u64).saturating_sub(1);
            let found = group.get().into();
            let what = Structure::GroupDescriptor;
            let source = FormatError::new(what, "group", found, Expected::AtMost(last));
            Error::corrupt(Place::Group(group), source)
        })
    }

    fn desc_block(&self, index: u32) -> Result<&DescBlock> {
        self.desc_blocks.get(index as usize).ok_or_else(|| {
            let last = (self.desc_blocks.len() as u64).saturating_sub(1);
            let what = Structure::GroupDescriptor;
            let source = FormatError::new(what, "block", index.into(), Expected::AtMost(last));
            Error::corrupt(Place::Superblock, source)
        })
    }

    /// The descriptor of a group that is not in memory. Its block is from then on.
    fn descriptor(&self, group: Group) -> Result<GroupDesc> {
        let desc = self.volume.stored_group(group)?;
        let index = group.get() / self.volume.geometry().descs_per_block().max(1);
        let block = self.desc_block(index)?;
        if block.lock().is_none() {
            // Not under the lock: this may wait for the device. None of the block's groups has
            // been in memory, so none can have changed.
            let place = self.volume.geometry().desc_block(index);
            let place = place.in_place(Place::Superblock)?;
            let bytes = self.volume.cache().read(place)?;
            block.lock().get_or_insert_with(|| bytes.bytes().into());
        }
        Ok(desc)
    }

    /// Leaves a damaged group alone from now on.
    fn give_up(&self, slot: &Slot, error: &Error) {
        let free = slot.free();
        if slot.set_bad(&self.index) {
            self.journal.report(error);
            self.space.lose(free);
        }
    }
}

impl Alloc {
    /// Free blocks and inodes by the disk bitmaps: exact when no handle is inside.
    pub fn free_counts(&self) -> FreeCounts {
        let inodes = self.free_inodes.count();
        FreeCounts {
            blocks: self.free.count() << self.volume.cluster_size().bits(),
            inodes: u32::try_from(inodes).unwrap_or(u32::MAX),
        }
    }

    /// The sums of the accounting, for tests that require that none was ever overdrawn.
    pub fn space_sums(&self) -> AllocSums {
        AllocSums {
            least: self.space.least(),
            grantable: self.space.total(),
            promised: self.promised.sum(),
            pending: self.freed.pending(),
        }
    }

    /// Blocks that are free by the disk bitmaps and are going to be used by data in memory.
    pub fn promised_blocks(&self) -> u64 {
        self.promised.count() << self.volume.cluster_size().bits()
    }

    /// Notes that `clusters` more are promised, or fewer if it is negative.
    fn note_promised(&self, clusters: i64) {
        self.promised.add(clusters);
    }

    /// The descriptor of a group, if it is in memory and so may be newer than the device's.
    pub fn live_group(&self, group: Group) -> Option<GroupDesc> {
        let slot = self.slot(group).ok()?;
        Some(slot.lock_remembered(slot.loaded()?).desc)
    }

    /// Where the inode table of a group begins, if the group is in memory. Takes no lock.
    pub fn known_inode_table(&self, group: Group) -> Option<Pblk> {
        let slot = self.slot(group).ok()?;
        Some(slot.loaded()?.inode_table)
    }

    /// The block bitmap of a group, as commit would encode it, if the group was ever loaded. May
    /// wait for the device.
    fn live_block_bitmap(&self, group: Group) -> Option<Arc<[u8]>> {
        self.slot(group).ok()?.loaded()?;
        let (_, state) = self.lock_group(group).ok()?;
        Some(state.blocks.image())
    }

    /// The inode bitmap of a group and the number of inodes at the end of its table that were never
    /// used, if the group was ever loaded and so may be newer than on the device. May wait for the
    /// device.
    pub fn live_inode_bitmap(&self, group: Group) -> Option<(Arc<[u8]>, u32)> {
        self.slot(group).ok()?.loaded()?;
        let (_, state) = self.lock_group(group).ok()?;
        let unused = if !state.has_uninit {
            0
        } else if state.desc.flags.contains(GroupFlags::INODE_UNINIT) {
            self.volume.geometry().inodes_per_group()
        } else {
            state.desc.itable_unused
        };
        Some((state.inodes.image(), unused))
    }
}

/// Refuses clusters that no tool makes: files need extents for them, and each has to be whole.
fn check_clusters(volume: &Volume) -> Result<()> {
    let (geometry, size) = (volume.geometry(), volume.cluster_size());
    let is_whole = |block: u64| block & (u64::from(size.blocks()) - 1) == 0;
    let wrong = if size.is_block() {
        return Ok(());
    } else if !volume.superblock().has_incompat(Incompat::EXTENTS) {
        "bigalloc without extents"
    } else if !is_whole(geometry.first_data_block().get()) || !is_whole(geometry.blocks_count()) {
        "bigalloc with clusters that are not whole"
    } else {
        return Ok(());
    };
    Err(Error::Unsupported {
        features: format!("{wrong} (for writing)"),
    })
}

fn counter(value: u64) -> ShardedCounter {
    let counter = ShardedCounter::new();
    counter.add(i64::try_from(value).unwrap_or(i64::MAX));
    counter
}

/// Spreads the bits of a number over all of another.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let value = (value ^ value >> 29).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ value >> 32
}
