//! One block group in memory: what commit will encode of it, and what may be handed out.
//!
//! A group that was loaded once is remembered: its descriptor is always the newest. Its bitmaps may
//! leave memory while the device, or what waits for its checkpoint, has the same; until they come
//! back the group is *away*. See [`memory`](super::memory). A group that was never loaded is as the
//! device has it.

use super::bits::{Bitmap, is_clear};
use super::buddy::Buddy;
use super::order::{OrderIndex, Standing};
use extant_format::geometry::Geometry;
use extant_format::group_desc::{GroupDesc, GroupFlags};
use extant_format::{Group, Pblk, bitmap};
use extant_sync::{CountedAtomicBool, FirstTouch, LockClass, Mutex, MutexGuard, Rank, RmwClass};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

static BAD: RmwClass = RmwClass::new("damaged group");
static GROUP: LockClass = LockClass::new("group", Rank::Group);
// Held across writes of zeros to the inode table: before groups in the order.
static ZEROING: LockClass = LockClass::new("inode table zeroing", Rank::Locality);

/// What is known of a group without its lock: enough to decide whether to look into it.
///
/// The numbers are stored under the lock of the group, and before that when the descriptors are
/// read. A thread that reads them may be late, never wrong about a group nobody changes.
///
/// Each has a cache line of its own: neighbours are used by different threads.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    group: u32,
    /// Clusters that may be taken.
    free: AtomicU32,
    free_inodes: AtomicU32,
    dirs: AtomicU32,
    /// Damaged: nothing is allocated here.
    bad: CountedAtomicBool,
    loaded: OnceLock<Box<Loaded>>,
}

impl Slot {
    /// The slot of a group that is not in memory.
    pub(super) fn new(group: Group, desc: &GroupDesc) -> Self {
        Self {
            group: group.get(),
            free: AtomicU32::new(desc.free_clusters),
            free_inodes: AtomicU32::new(desc.free_inodes),
            dirs: AtomicU32::new(desc.used_dirs),
            bad: CountedAtomicBool::new(&BAD, false),
            loaded: OnceLock::new(),
        }
    }

    /// Clusters that may be taken, about; 0 in a damaged group.
    pub(super) fn free(&self) -> u32 {
        self.unless_bad(&self.free)
    }

    /// Free inodes, about; 0 in a damaged group.
    pub(super) fn free_inodes(&self) -> u32 {
        self.unless_bad(&self.free_inodes)
    }

    /// Directories, about.
    pub(super) fn dirs(&self) -> u32 {
        self.dirs.load(Ordering::Relaxed)
    }

    fn unless_bad(&self, count: &AtomicU32) -> u32 {
        if self.bad.load(Ordering::Relaxed) {
            0
        } else {
            count.load(Ordering::Relaxed)
        }
    }

    /// The group, if it is in memory.
    pub(super) fn loaded(&self) -> Option<&Loaded> {
        self.loaded.get().map(|loaded| &**loaded)
    }

    /// Puts the group in memory, unless somebody else has done so meanwhile.
    pub(super) fn publish(&self, loaded: Box<Loaded>) -> &Loaded {
        let loaded = self.loaded.get_or_init(|| loaded);
        // Others see what it really has from now on.
        drop(self.lock_remembered(loaded));
        loaded
    }

    /// Nothing is to be allocated here any more, and `index` leads nobody here. Whether that is
    /// new.
    pub(super) fn set_bad(&self, index: &OrderIndex) -> bool {
        let new = !self.bad.swap(true, Ordering::Relaxed);
        if new {
            let guess = Standing::guess(self.free.load(Ordering::Relaxed));
            index.shift(self.group, guess, Standing::default());
        }
        new
    }

    /// Locks the state of a group, to change it; `None` if its bitmaps are away.
    pub(crate) fn lock<'a>(&'a self, loaded: &'a Loaded) -> Option<Locked<'a>> {
        let locked = self.lock_remembered(loaded);
        (!locked.away).then_some(locked)
    }

    /// Takes the lock without waiting: `None` also if another thread holds it.
    pub(super) fn try_lock<'a>(&'a self, loaded: &'a Loaded) -> Option<Locked<'a>> {
        let locked = self.locked(loaded, loaded.state.try_lock()?);
        (!locked.away).then_some(locked)
    }

    /// Locks what is known of a group even while its bitmaps are away: they are empty then.
    pub(super) fn lock_remembered<'a>(&'a self, loaded: &'a Loaded) -> Locked<'a> {
        self.locked(loaded, loaded.state.lock())
    }

    fn locked<'a>(&'a self, loaded: &'a Loaded, state: MutexGuard<'a, State>) -> Locked<'a> {
        Locked {
            slot: self,
            loaded,
            state,
        }
    }
}

/// A group in memory.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The last transaction that changed it.
    pub(super) touched: FirstTouch,
    /// Where its inode table begins, for good.
    pub(super) inode_table: Pblk,
    state: Mutex<State>,
    /// One thread at a time zeroes a part of the inode table.
    pub(super) zeroing: Mutex<()>,
    /// Whether the bitmaps are away, for a look without the lock. Stored under it.
    away: AtomicBool,
    /// Whether somebody used the bitmaps since they were last considered for leaving.
    used: AtomicBool,
    /// Where others find the group.
    index: Arc<OrderIndex>,
}

impl Loaded {
    pub(super) fn new(state: State, index: &Arc<OrderIndex>) -> Self {
        Self {
            index: Arc::clone(index),
            touched: FirstTouch::new(),
            inode_table: state.desc.inode_table,
            state: Mutex::new(&GROUP, state),
            zeroing: Mutex::new(&ZEROING, ()),
            away: AtomicBool::new(false),
            used: AtomicBool::new(true),
        }
    }

    /// Whether the bitmaps were away a short while ago.
    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Acquire)
    }

    /// Whether somebody used the bitmaps since the last time this was asked.
    pub(super) fn take_used(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        self.used.store(false, Ordering::Relaxed);
        used
    }
}

/// The lock of a group. When it is dropped, others see the new counts.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    slot: &'a Slot,
    loaded: &'a Loaded,
    state: MutexGuard<'a, State>,
}

impl Locked<'_> {
    /// Lets the bitmaps go, if all that is in them can be had again: nothing was taken or freed
    /// that the device does not know of, and the last transaction that changed them is durable,
    /// `durable` being the newest that is. `seal` brings the checksums of the descriptor up to
    /// date.
    pub(super) fn leave(&mut self, durable: u64, seal: impl FnOnce(&mut State)) -> bool {
        let state = &mut *self.state;
        // Each cluster that is free to be taken is free on the device: are there as many, they are
        // the same.
        let same = state.space.free() == state.desc.free_clusters;
        let changed = state.blocks_changed || state.inodes_changed;
        if state.away || changed || !same || self.loaded.touched.last() > durable {
            return false;
        }
        seal(state);
        state.away = true;
        state.left += 1;
        state.blocks = Bitmap::default();
        state.before = Bitmap::default();
        state.inodes = Bitmap::default();
        state.space = Buddy::default();
        self.loaded.away.store(true, Ordering::Release);
        true
    }

    /// Puts bitmaps back, as they were read after they had left `left` times, if they are away
    /// since.
    pub(super) fn come_back(&mut self, read: State, left: u64) -> bool {
        let state = &mut *self.state;
        if !state.away || state.left != left {
            return false;
        }
        state.away = false;
        state.blocks = read.blocks;
        state.before = read.before;
        state.inodes = read.inodes;
        state.space = read.space;
        state.inodes_used_below = 0;
        self.loaded.away.store(false, Ordering::Release);
        true
    }
}

impl std::ops::Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let (slot, state) = (self.slot, &mut *self.state);
        if state.away {
            return;
        }
        if !self.loaded.used.load(Ordering::Relaxed) {
            self.loaded.used.store(true, Ordering::Relaxed);
        }
        let publish = |to: &AtomicU32, value: u32| {
            if to.load(Ordering::Relaxed) != value {
                to.store(value, Ordering::Relaxed);
            }
        };
        publish(&slot.free, state.space.free());
        publish(&slot.free_inodes, state.desc.free_inodes);
        publish(&slot.dirs, state.desc.used_dirs);
        if !std::mem::take(&mut state.moved) {
            return;
        }
        let standing = state.standing.next(&state.space);
        if standing != state.standing {
            self.loaded
                .index
                .shift(slot.group, state.standing, standing);
            state.standing = standing;
        }
    }
}

/// The state of a group, behind its lock.
#[derive(Debug)]
pub(super) struct State {
    /// The descriptor as commit will encode it, but for checksums.
    pub desc: GroupDesc,
    /// Whether `blocks`, `before`, `space` and `inodes` are not in memory.
    pub(super) away: bool,
    /// How often they have left memory.
    pub(super) left: u64,
    /// Which clusters inodes on the device own.
    pub blocks: Bitmap,
    /// `blocks` as the last transaction left them that commit has taken, which is what a crash may
    /// bring back at the latest.
    pub(super) before: Bitmap,
    /// Which clusters may be handed out: not those of `blocks`, nor the ones taken and not yet
    /// committed, nor the ones freed by transactions that have not committed.
    pub space: Buddy,
    /// Where others find the group, as of the last time its lock was let go.
    pub(super) standing: Standing,
    /// Whether `space` has changed since.
    pub(super) moved: bool,
    /// Which inodes are in use.
    pub inodes: Bitmap,
    /// Whether commit has not yet seen the newest `blocks`.
    pub(super) blocks_changed: bool,
    /// Whether `inodes` changed since the last commit.
    pub(super) inodes_changed: bool,
    /// Inodes below this index are in use, or none that files may have.
    pub(super) inodes_used_below: u32,
    /// Which threads take inodes here.
    pub(super) takers: Takers,
    /// Inodes from the start of the table whose blocks hold records or zeros, not what lay there
    /// before the file system was made.
    pub(super) table_sound: u32,
    /// Whether flags and the count of unused inodes mean anything.
    pub(super) has_uninit: bool,
}

/// Which CPUs take inodes of a group. A block of the inode table that several of them fill at the
/// same time, and all that is kept about its inodes, would go back and forth between their caches.
#[derive(Debug, Default)]
pub(super) struct Takers {
    /// For each CPU the block of the table it took an inode of last, and 1; 0 for none.
    blocks: Vec<u32>,
    last: usize,
    /// Grows when another CPU takes an inode than the last time, and falls when the same one does.
    mixed: u8,
}

impl Takers {
    /// CPUs take turns if more than one in so many inodes is taken by another one than the one
    /// before.
    const ONE_IN: u8 = 5;
    const MANY: u8 = 16;
    const MOST: u8 = 32;

    /// Notes that this CPU took an inode of this block of the table. Whether others take some as
    /// well, in turn with it.
    fn took(&mut self, cpu: usize, block: u32) -> bool {
        if cpu >= self.blocks.len() {
            self.blocks.resize(cpu + 1, 0);
        }
        if let Some(last) = self.blocks.get_mut(cpu) {
            *last = block + 1;
        }
        self.mixed = if self.last == cpu {
            self.mixed.saturating_sub(1)
        } else {
            (self.mixed + Self::ONE_IN - 1).min(Self::MOST)
        };
        self.last = cpu;
        self.are_many()
    }

    /// One of them goes elsewhere. If there are several others, these soon know again.
    pub(super) fn one_left(&mut self) {
        self.mixed = self.mixed.min(Self::MANY - Self::ONE_IN);
    }

    /// Whether inodes are taken by several CPUs in turn.
    fn are_many(&self) -> bool {
        self.mixed >= Self::MANY
    }

    /// Whether another CPU took its last inode from this block.
    fn is_of_another(&self, cpu: usize, block: u32) -> bool {
        let mut others = self.blocks.iter().enumerate().filter(|(at, _)| *at != cpu);
        others.any(|(_, last)| *last == block + 1)
    }
}

impl State {
    /// Marks free clusters as taken, in the allocator bitmap only.
    pub(super) fn take(&mut self, run: &Range<u32>) {
        self.moved = true;
        self.space.take(run);
    }

    /// Marks taken clusters that are not in use on the device as free again.
    pub(super) fn return_taken(&mut self, run: &Range<u32>) {
        debug_assert!(
            is_clear(self.blocks.bits(), run.clone()),
            "given back in use"
        );
        self.moved = true;
        self.space.give(run);
    }

    /// Marks taken clusters as owned on the device.
    pub(super) fn commit(&mut self, run: Range<u32>) {
        debug_assert!(is_clear(self.blocks.bits(), run.clone()), "owned twice");
        let len = run.end - run.start;
        bitmap::set_range(self.edit_blocks(), run);
        self.desc.free_clusters = self.desc.free_clusters.saturating_sub(len);
    }

    /// Marks clusters as owned no longer. They stay taken.
    pub(super) fn release(&mut self, run: Range<u32>) {
        let len = run.end - run.start;
        bitmap::clear_range(self.edit_blocks(), run);
        self.desc.free_clusters += len;
    }

    /// Cuts clusters that were just released into those that the running transaction has allocated,
    /// and others.
    pub(super) fn split_by_age(
        &mut self,
        run: Range<u32>,
        mut each: impl FnMut(&mut Self, Range<u32>, bool),
    ) {
        let mut at = run.start;
        while at < run.end {
            let before = self.before.bits();
            let is_new = !bitmap::test(before, at);
            let end = if is_new {
                bitmap::next_set(before, at, run.end)
            } else {
                bitmap::next_clear(before, at, run.end)
            };
            let end = end.unwrap_or(run.end);
            each(self, at..end, is_new);
            at = end;
        }
    }

    fn edit_blocks(&mut self) -> &mut [u8] {
        self.blocks_changed = true;
        self.desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        self.blocks.edit()
    }

    /// The first free inode from index `lowest` on; if several CPUs take inodes here, none of a
    /// block of the inode table that another one is filling, while there are others.
    pub(super) fn find_inode(
        &mut self,
        lowest: u32,
        geometry: &Geometry,
        cpu: usize,
    ) -> Option<u32> {
        let inodes = geometry.inodes_per_group();
        let per_block = geometry.inodes_per_block().max(1);
        let mut from = lowest.max(self.inodes_used_below);
        let first = bitmap::next_clear(self.inodes.bits(), from, inodes)?;
        // Nobody need look at those below again.
        self.inodes_used_below = first;
        if !self.takers.are_many() {
            return Some(first);
        }
        for _ in 0..=self.takers.blocks.len() {
            let index = bitmap::next_clear(self.inodes.bits(), from, inodes);
            match index.filter(|index| self.takers.is_of_another(cpu, index / per_block)) {
                Some(index) => from = (index / per_block + 1).saturating_mul(per_block),
                None => return index.or(Some(first)),
            }
        }
        Some(first)
    }

    /// Marks a free inode as used. Whether other CPUs take inodes here as well, in turn with this
    /// one.
    pub(super) fn take_inode(
        &mut self,
        index: u32,
        lowest: u32,
        is_dir: bool,
        geometry: &Geometry,
        cpu: usize,
    ) -> bool {
        let per_block = geometry.inodes_per_block().max(1);
        let met = self.takers.took(cpu, index / per_block);
        self.inodes_changed = true;
        bitmap::set(self.inodes.edit(), index);
        if index == lowest.max(self.inodes_used_below) {
            self.inodes_used_below = index + 1;
        }
        let desc = &mut self.desc;
        desc.free_inodes = desc.free_inodes.saturating_sub(1);
        desc.used_dirs += u32::from(is_dir);
        if !self.has_uninit {
            // Nobody believes what was never used, and e2fsck finds fault with inodes there.
            desc.itable_unused = 0;
            desc.flags
                .remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
            return met;
        }
        // As Linux does: a group with inodes has both bitmaps.
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            self.blocks_changed = true;
        }
        let inodes = geometry.inodes_per_group();
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            desc.flags.remove(GroupFlags::INODE_UNINIT);
            desc.itable_unused = inodes;
        }
        desc.itable_unused = desc.itable_unused.min(inodes.saturating_sub(index + 1));
        met
    }

    /// Marks an inode as free.
    pub(super) fn free_inode(&mut self, index: u32, is_dir: bool) {
        self.inodes_changed = true;
        bitmap::clear(self.inodes.edit(), index);
        self.inodes_used_below = self.inodes_used_below.min(index);
        self.desc.free_inodes += 1;
        self.desc.used_dirs = self.desc.used_dirs.saturating_sub(is_dir.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_the_inode_table_are_kept_apart_only_while_cpus_take_turns() {
        let mut takers = Takers::default();
        for _ in 0..100 {
            takers.took(0, 3);
        }
        // A thread that moves to another CPU now and then.
        for _ in 0..10 {
            for cpu in [1, 0] {
                for _ in 0..20 {
                    takers.took(cpu, 3);
                    assert!(!takers.are_many());
                }
            }
        }
        for _ in 0..10 {
            takers.took(0, 3);
            takers.took(1, 4);
        }
        assert!(takers.are_many());
        assert!(takers.is_of_another(0, 4) && takers.is_of_another(1, 3));
        assert!(!takers.is_of_another(0, 3) && !takers.is_of_another(0, 5));
        for _ in 0..100 {
            takers.took(1, 4);
        }
        assert!(!takers.are_many());
    }
}
