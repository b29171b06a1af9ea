//! An image being planned: blocks, inodes and their records on top of a layout.

use super::quota::QuotaFile;
use super::{Layout, PlanError, PlanResult, RunSet, group_range};
use crate::metadata::FormerCopies;
use extant_format::features::{Incompat, RoCompat};
use extant_format::inode::{FileType, Inode, InodeFlags, MAP_BYTES, Mode, Timestamp};
use extant_format::superblock::{RawSuperblock, Superblock};
use extant_format::{Group, Ino, Pblk};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of the largest file that readers without the feature `large_file` understand.
pub(crate) const SMALL_FILE_MAX: u64 = (1 << 31) - 1;

/// A layout being filled. Nothing here touches a device; [`crate::metadata::write_metadata`] writes
/// what has been collected.
#[derive(Clone, Debug)]
pub struct Draft {
    layout: Layout,
    superblock: Superblock,
    space: RunSet,
    /// Blocks of the journal, for the overhead in the superblock.
    pub(super) journal_space: u64,
    inodes: RunSet,
    dirs: BTreeMap<Group, u32>,
    records: BTreeMap<Ino, Vec<u8>>,
    blocks: BTreeMap<Pblk, Vec<u8>>,
    zeroed: Vec<Range<u64>>,
    former_copies: FormerCopies,
    pub(super) quota_files: Vec<QuotaFile>,
}

impl Draft {
    /// Makes an image with nothing but fixed metadata; the reserved inodes are taken.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        let mut inodes = RunSet::new();
        inodes.insert(1..u64::from(layout.superblock().first_ino().get()));
        Self {
            superblock: layout.superblock().clone(),
            space: layout.space().clone(),
            journal_space: 0,
            inodes,
            dirs: BTreeMap::new(),
            records: BTreeMap::new(),
            blocks: BTreeMap::new(),
            zeroed: Vec::new(),
            former_copies: FormerCopies::default(),
            quota_files: Vec::new(),
            layout,
        }
    }

    /// Returns the layout it stands on.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the superblock as far as it is known; free counts come last.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Changes the superblock.
    ///
    /// # Errors
    /// The change breaks the format.
    pub fn change_superblock(&mut self, change: impl FnOnce(&mut RawSuperblock)) -> PlanResult<()> {
        self.superblock = self.superblock.with(change)?;
        Ok(())
    }

    /// Returns the blocks taken so far.
    #[must_use]
    pub const fn space(&self) -> &RunSet {
        &self.space
    }

    /// Returns the inodes taken so far.
    #[must_use]
    pub const fn inodes(&self) -> &RunSet {
        &self.inodes
    }

    /// Returns the number of free blocks.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        let geometry = self.layout.geometry();
        let all = geometry.first_data_block().get()..geometry.blocks_count();
        all.end - all.start - self.space.count_in(all)
    }

    /// Returns the number of free blocks of a group.
    ///
    /// # Errors
    /// There is no such group.
    pub fn free_in(&self, group: Group) -> PlanResult<u64> {
        let range = group_range(self.layout.geometry(), group)?;
        Ok(range.end - range.start - self.space.count_in(range))
    }

    /// Returns the runs of free blocks of a group.
    ///
    /// # Errors
    /// There is no such group.
    pub fn free_runs(&self, group: Group) -> PlanResult<Vec<Range<u64>>> {
        let range = group_range(self.layout.geometry(), group)?;
        Ok(self.space.gaps_in(range).collect())
    }

    /// Takes `blocks` blocks, the first free ones at or after `goal`, from there to the end and
    /// then from the start. Under `bigalloc` whole clusters are taken; the runs returned hold
    /// exactly `blocks` blocks.
    ///
    /// # Errors
    /// [`PlanError::NoSpace`], naming `what`.
    pub fn allocate(
        &mut self,
        what: &'static str,
        goal: Pblk,
        blocks: u64,
    ) -> PlanResult<Vec<Range<u64>>> {
        let geometry = self.layout.geometry();
        let (first, end) = (geometry.first_data_block().get(), geometry.blocks_count());
        let mask = (1_u64 << geometry.cluster_bits()) - 1;
        // Clusters start at multiples of their size.
        let goal = goal.get().clamp(first, end) & !mask | first & mask;
        let mut left = blocks;
        let mut runs = Vec::new();
        let behind = self.space.gaps_in(goal..end);
        for gap in behind.chain(self.space.gaps_in(first..goal)) {
            if left == 0 {
                break;
            }
            let len = left.min(gap.end - gap.start);
            runs.push(gap.start..gap.start + len);
            left -= len;
        }
        if left > 0 {
            return Err(PlanError::NoSpace {
                what,
                needed: blocks,
                free: self.free_blocks(),
            });
        }
        for run in &runs {
            let end = (run.end + mask) & !mask;
            self.space.insert(run.start..end.max(run.end));
        }
        Ok(runs)
    }

    /// Takes these blocks.
    ///
    /// # Errors
    /// [`PlanError::NoSpace`] if any is taken already or outside the file system.
    pub fn take(&mut self, what: &'static str, run: Range<u64>) -> PlanResult<()> {
        let needed = run.end.saturating_sub(run.start);
        let inside = self
            .layout
            .geometry()
            .contains(Pblk::new(run.start), needed);
        if !inside || self.space.touches(run.clone()) {
            return Err(PlanError::NoSpace {
                what,
                needed,
                free: self.free_blocks(),
            });
        }
        self.space.insert(run);
        Ok(())
    }

    /// Takes the first free inode.
    ///
    /// # Errors
    /// There is none left.
    pub fn new_inode(&mut self, is_dir: bool) -> PlanResult<Ino> {
        let count = u64::from(self.superblock.inodes_count());
        let first = self
            .inodes
            .first_gap(1, count + 1, 1, count + 1)
            .and_then(|ino| u32::try_from(ino).ok())
            .ok_or(PlanError::NoSpace {
                what: "an inode",
                needed: 1,
                free: 0,
            })?;
        let ino = Ino::new(first);
        self.take_inode(ino, is_dir)?;
        Ok(ino)
    }

    /// Takes this inode (a reserved one may be taken again, to say that it is a directory).
    ///
    /// # Errors
    /// There is no such inode.
    pub fn take_inode(&mut self, ino: Ino, is_dir: bool) -> PlanResult<()> {
        let group = self.layout.geometry().locate_inode(ino)?.group;
        self.inodes
            .insert(u64::from(ino.get())..u64::from(ino.get()) + 1);
        if is_dir {
            *self.dirs.entry(group).or_default() += 1;
        }
        Ok(())
    }

    /// Takes a run of inodes, `dirs` of each group's being directories.
    ///
    /// For callers that number a whole tree themselves and write their inode tables themselves.
    pub fn take_inodes(&mut self, run: Range<u32>, dirs: &BTreeMap<Group, u32>) {
        self.inodes.insert(run.start.into()..run.end.into());
        for (group, count) in dirs {
            *self.dirs.entry(*group).or_default() += count;
        }
    }

    /// Keeps the record of an inode for its table.
    ///
    /// # Errors
    /// There is no such inode, or a number does not fit the format.
    pub fn put_inode(&mut self, ino: Ino, inode: &Inode) -> PlanResult<()> {
        if inode.size > SMALL_FILE_MAX {
            // Also where it was asked not to be on: the file system's own files need it, as Linux
            // turns it on for any file.
            self.change_superblock(|raw| {
                let bits = raw.feature_ro_compat.get() | RoCompat::LARGE_FILE.bits();
                raw.feature_ro_compat.set(bits);
            })?;
        }
        let context = self.layout.inode_context(ino);
        let mut slot = vec![0; usize::from(context.inode_size)];
        inode.encode(&mut slot, &context)?;
        self.put_slot(ino, slot)
    }

    /// Keeps the bytes of an inode's slot for its table.
    ///
    /// # Errors
    /// There is no such inode.
    pub fn put_slot(&mut self, ino: Ino, slot: Vec<u8>) -> PlanResult<()> {
        self.layout.geometry().locate_inode(ino)?;
        self.records.insert(ino, slot);
        Ok(())
    }

    /// Keeps the content of a block.
    pub fn put_block(&mut self, at: Pblk, content: Vec<u8>) {
        self.blocks.insert(at, content);
    }

    /// Notes blocks that must read as zero, and are not written otherwise.
    pub fn put_zeros(&mut self, run: Range<u64>) {
        self.zeroed.push(run);
    }

    /// Returns an inode of this type with one name, no content, and the time of creation.
    #[must_use]
    pub fn blank_inode(&self, file_type: FileType, permissions: u16) -> Inode {
        let time = Timestamp::from_secs(self.layout.options().time as i64);
        let large = self.layout.geometry().inode_size() > 128;
        Inode {
            mode: Mode::new(file_type, permissions),
            uid: 0,
            gid: 0,
            size: 0,
            links: 1,
            blocks: 0,
            flags: InodeFlags::empty(),
            atime: time,
            ctime: time,
            mtime: time,
            crtime: large.then_some(time),
            dtime: 0,
            generation: 0,
            file_acl: Pblk::new(0),
            version: 0,
            project: None,
            extra_isize: if large { 32 } else { 0 },
            map: [0; MAP_BYTES],
        }
    }

    /// Returns the sectors that `data` blocks and `nodes` index blocks cost a file: whole clusters.
    #[must_use]
    pub fn sectors(&self, data: u64, nodes: u64) -> u64 {
        let geometry = self.layout.geometry();
        let bits = geometry.cluster_bits();
        let blocks = (data.div_ceil(1 << bits) << bits) + (nodes.div_ceil(1 << bits) << bits);
        blocks << (geometry.block_size().log2() - 9)
    }

    pub(crate) fn dirs_in(&self, group: Group) -> u32 {
        self.dirs.get(&group).copied().unwrap_or(0)
    }

    /// Gives up the records kept so far, for callers that write the tables themselves.
    pub(crate) fn take_records(&mut self) -> BTreeMap<Ino, Vec<u8>> {
        std::mem::take(&mut self.records)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (Ino, &[u8])> {
        self.records
            .iter()
            .map(|(ino, slot)| (*ino, slot.as_slice()))
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Pblk, &[u8])> {
        self.blocks
            .iter()
            .map(|(at, block)| (*at, block.as_slice()))
    }

    /// The content of a block that was kept.
    pub(crate) fn block(&self, at: Pblk) -> Option<&[u8]> {
        self.blocks.get(&at).map(Vec::as_slice)
    }

    pub(crate) fn zeroed(&self) -> &[Range<u64>] {
        &self.zeroed
    }

    /// Has copies of an older image stay that are still true.
    pub(crate) fn keep_copies(&mut self, copies: FormerCopies) {
        self.former_copies = copies;
    }

    pub(crate) fn former_copies(&self) -> &FormerCopies {
        &self.former_copies
    }

    /// Clusters of fixed metadata, boot block and journal included.
    pub(crate) fn overhead_clusters(&self) -> u64 {
        let geometry = self.layout.geometry();
        let all = 0..geometry.blocks_count();
        let blocks = u64::from(geometry.first_data_block().get() > 0)
            + self.layout.space().count_in(all)
            + self.journal_space;
        blocks >> geometry.cluster_bits()
    }

    /// Returns whether new directories and files are mapped by extents.
    #[must_use]
    pub fn maps_by_extents(&self) -> bool {
        self.superblock.has_incompat(Incompat::EXTENTS)
    }
}
