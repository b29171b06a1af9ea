//! The files every file system has: root and lost+found, the resize inode, the journal, the
//! multiple-mount protection block and the orphan file. Quota files are in `quota`.

use super::{Draft, PlanError, PlanResult, Usage, group_range};
use crate::maps::{MapError, MapKind, Maps, Run};
use extant_format::checksum::Crc32c;
use extant_format::dir::entry::NewEntry;
use extant_format::dir::{DirBlockBuilder, DirLayout, EntryType};
use extant_format::features::{Compat, Incompat, RoCompat};
use extant_format::inode::{FileType, Inode, InodeFlags};
use extant_format::jbd2::JournalSuperblock;
use extant_format::mmp::{MmpBlock, MmpState};
use extant_format::{Group, Ino, Pblk, indirect, orphan_file};
use std::ops::Range;

/// Bytes lost+found has at least, where that takes no more than twelve blocks.
const LOST_FOUND_BYTES: u64 = 16 << 10;
/// Seconds between updates of the multiple-mount protection block.
const MMP_INTERVAL: u16 = 5;

/// What the first block of a directory starts with: its parent, and subdirectories.
type DirHead<'a> = (Ino, &'a [(Ino, &'a [u8])]);

impl Draft {
    /// Adds the directories of an empty file system: root and lost+found, whose inode is returned.
    ///
    /// # Errors
    /// No space.
    pub fn add_empty_directories(&mut self) -> PlanResult<Ino> {
        let lost_found = self.superblock().first_ino();
        self.take_inode(Ino::ROOT, true)?;
        self.take_inode(lost_found, true)?;
        let options = self.layout().options();
        let (owner, mode) = (options.root_owner, options.root_mode);

        let root_blocks = self.allocate("the root directory", Pblk::new(0), 1)?;
        let entries = [(lost_found, b"lost+found".as_slice())];
        let block = self.directory_block(Ino::ROOT, Some((Ino::ROOT, &entries)));
        self.put_block(Pblk::new(root_blocks[0].start), block);
        let mut root = self.blank_inode(FileType::Directory, mode);
        root.links = 3;
        (root.uid, root.gid) = owner;
        self.finish_file(Ino::ROOT, root, &root_blocks)?;
        self.add_lost_and_found(lost_found)?;
        Ok(lost_found)
    }

    /// Returns the blocks lost+found has.
    #[must_use]
    pub fn lost_and_found_blocks(&self) -> u64 {
        let block = u64::from(self.layout().geometry().block_size().bytes());
        (LOST_FOUND_BYTES / block).clamp(2, indirect::DIRECT.into())
    }

    /// Adds lost+found as inode `ino` (which is taken already) below the root.
    ///
    /// # Errors
    /// No space.
    pub fn add_lost_and_found(&mut self, ino: Ino) -> PlanResult<()> {
        let count = self.lost_and_found_blocks();
        let runs = self.allocate("lost+found", Pblk::new(0), count)?;
        for (index, at) in runs.iter().cloned().flatten().enumerate() {
            let head = (index == 0).then_some((Ino::ROOT, [].as_slice()));
            let block = self.directory_block(ino, head);
            self.put_block(Pblk::new(at), block);
        }
        let mut inode = self.blank_inode(FileType::Directory, 0o700);
        inode.links = 2;
        self.finish_file(ino, inode, &runs)
    }

    /// Returns how directory blocks look here.
    #[must_use]
    pub fn dir_layout(&self) -> DirLayout {
        DirLayout {
            block_size: self.layout().geometry().block_size(),
            file_type: self.superblock().has_incompat(Incompat::FILETYPE),
            checksums: self.superblock().has_metadata_csum(),
            hash_in_entry: false,
            raw_names: false,
            max_inode: Ino::new(self.superblock().inodes_count()),
        }
    }

    /// A block of directory `ino`: with `.`, `..` (the parent given) and some subdirectories, or
    /// free.
    fn directory_block(&self, ino: Ino, head: Option<DirHead<'_>>) -> Vec<u8> {
        let layout = self.dir_layout();
        let mut block = vec![0; layout.block_size.len()];
        let mut builder = DirBlockBuilder::new(&mut block, &layout);
        if let Some((parent, subdirectories)) = head {
            let dots = [(ino, b".".as_slice()), (parent, b"..".as_slice())];
            for (ino, name) in dots.iter().chain(subdirectories) {
                // Four short names fit the smallest block.
                let _ = builder.push(&NewEntry::new(*ino, name, EntryType::Directory));
            }
        }
        let seed = self.layout().inode_context(ino).inode_seed(0);
        builder.finish(seed.unwrap_or(Crc32c::INIT));
        block
    }

    /// Maps `inode` to `runs`, which it fills unless it has a size, and keeps everything.
    pub(super) fn finish_file(
        &mut self,
        ino: Ino,
        mut inode: Inode,
        runs: &[Range<u64>],
    ) -> PlanResult<()> {
        let (kind, flags) = if self.maps_by_extents() {
            (MapKind::Extents, InodeFlags::EXTENTS)
        } else {
            (MapKind::Indirect, InodeFlags::empty())
        };
        let size = self.layout().geometry().block_size();
        let filled = filled(runs);
        let blocks: u64 = filled.iter().map(|run| u64::from(run.len)).sum();

        // How many blocks the map itself takes does not depend on where they lie.
        let mut trial = Maps::new(kind, size);
        let map = trial.add(&filled, || Ok::<u64, MapError>(0))?;
        let count = trial.tree_blocks(map).count() as u64;
        // Right before the data, where a reader passes anyway.
        let goal = Pblk::new(runs.first().map_or(0, |run| run.start.saturating_sub(1)));
        let mut free = self
            .allocate("the map of a file", goal, count)?
            .into_iter()
            .flatten();

        let mut maps = Maps::new(kind, size);
        let map = maps.add(&filled, || {
            let needed = PlanError::NoSpace {
                what: "the map of a file",
                needed: 1,
                free: 0,
            };
            free.next().ok_or(needed)
        })?;
        let seed = self.layout().inode_context(ino).inode_seed(0);
        for (index, tree) in maps.tree_blocks(map) {
            let mut block = vec![0; size.len()];
            maps.encode_tree_block(index, &mut block, seed)?;
            self.put_block(Pblk::new(tree.pblk), block);
        }
        if inode.size == 0 {
            inode.size = blocks * u64::from(size.bytes());
        }
        inode.map = maps.root(map)?;
        inode.flags |= flags;
        self.charge(&mut inode, blocks, count)?;
        self.put_inode(ino, &inode)
    }

    fn charge(&self, inode: &mut Inode, data: u64, nodes: u64) -> PlanResult<()> {
        let huge = self.superblock().has_ro_compat(RoCompat::HUGE_FILE);
        let sectors = self.sectors(data, nodes);
        inode.set_sectors(sectors, self.layout().geometry().block_size(), huge)?;
        Ok(())
    }

    /// Adds the reserved files the features ask for: bad blocks, resize inode, journal,
    /// multiple-mount protection, quota files, orphan file. Quota files have room for the ids of
    /// `usage`; without it they say what the directories of an empty file system use.
    ///
    /// # Errors
    /// No space.
    pub fn add_reserved_files(&mut self, usage: Option<&Usage>) -> PlanResult<()> {
        let mut bad_blocks = self.blank_inode(FileType::Regular, 0);
        bad_blocks.mode = extant_format::inode::Mode::from_bits(0);
        bad_blocks.links = 0;
        bad_blocks.extra_isize = 0;
        bad_blocks.crtime = None;
        self.put_inode(Ino::BAD_BLOCKS, &bad_blocks)?;
        if self.superblock().has_compat(Compat::RESIZE_INODE) {
            self.add_resize_inode()?;
        }
        if let Some((blocks, fast_commit)) = self.layout().journal {
            self.add_journal(blocks, fast_commit)?;
        }
        if self.superblock().has_incompat(Incompat::MMP) {
            self.add_mmp()?;
        }
        if self.keeps_quotas() {
            match usage {
                Some(usage) => self.add_quota_files(usage)?,
                None => self.add_quota_files(&self.usage_of_directories()?)?,
            }
        }
        if self.layout().has_orphan_file() {
            self.add_orphan_file()?;
        }
        Ok(())
    }

    /// The resize inode maps the blocks reserved for descriptors: a double indirect block names
    /// those behind the primary descriptors, and each of these names its copies in the backups.
    fn add_resize_inode(&mut self) -> PlanResult<()> {
        let geometry = self.layout().geometry().clone();
        let block_len = geometry.block_size().len();
        let per_block = indirect::pointers_per_block(geometry.block_size());
        // Behind the fixed metadata of a group that keeps its own.
        let goal = 2
            + geometry.reserved_gdt_blocks()
            + geometry.desc_blocks()
            + geometry.inode_table_blocks();
        let goal = Pblk::new(goal.into());
        let top = self.allocate("the resize inode", goal, 1)?[0].start;
        let primary = geometry.group_header(Group::new(0))?.reserved_gdt;
        let backups: Vec<u64> = geometry
            .groups()
            .skip(1)
            .filter(|group| geometry.has_super(*group))
            .map(|group| u64::from(group.get()) * u64::from(geometry.blocks_per_group()))
            .collect();

        let mut top_pointers = vec![0; per_block as usize];
        for (index, at) in primary.clone().enumerate() {
            let slot = (geometry.desc_blocks() + index as u32) % per_block;
            top_pointers[slot as usize] = narrow(at)?;
            let copies = backups
                .iter()
                .map(|distance| narrow(at + distance))
                .collect::<PlanResult<Vec<u32>>>()?;
            let mut block = vec![0; block_len];
            indirect::encode_pointers(&mut block, &copies);
            self.put_block(Pblk::new(at), block);
        }
        let mut block = vec![0; block_len];
        indirect::encode_pointers(&mut block, &top_pointers);
        self.put_block(Pblk::new(top), block);

        let mut inode = self.blank_inode(FileType::Regular, 0o600);
        let mut root = [0; indirect::ROOT_POINTERS];
        root[indirect::DIRECT as usize + 1] = narrow(top)?;
        inode.map = indirect::encode_root(&root);
        let reach = u64::from(per_block) * u64::from(per_block) + u64::from(per_block);
        inode.size = (reach + u64::from(indirect::DIRECT)) * block_len as u64;
        let reserved = (primary.end - primary.start) * (1 + backups.len() as u64);
        // Each block is charged as a cluster of its own.
        let sectors =
            (reserved + 1) << geometry.cluster_bits() << (geometry.block_size().log2() - 9);
        let huge = self.superblock().has_ro_compat(RoCompat::HUGE_FILE);
        inode.set_sectors(sectors, geometry.block_size(), huge)?;
        self.put_inode(Ino::RESIZE, &inode)
    }

    fn add_journal(&mut self, blocks: u32, fast_commit: u32) -> PlanResult<()> {
        let goal = self.journal_goal()?;
        let runs = self.allocate("the journal", goal, blocks.into())?;
        for run in &runs {
            self.put_zeros(run.clone());
        }
        let block_size = self.layout().geometry().block_size();
        let mut journal = JournalSuperblock::empty(block_size, blocks, [0; 16]);
        // The journal's own feature bit is set by the first mount that uses it.
        journal.fast_commit_blocks = fast_commit;
        let mut first = vec![0; block_size.len()];
        first[..JournalSuperblock::LEN].copy_from_slice(&journal.encode());
        self.put_block(Pblk::new(runs[0].start), first);

        let inode = self.blank_inode(FileType::Regular, 0o600);
        self.finish_file(Ino::JOURNAL, inode, &runs)?;
        self.journal_space = blocks.into();
        self.copy_journal_map()
    }

    /// The superblock keeps a copy of the journal's map, for the day inode 8 is lost.
    fn copy_journal_map(&mut self) -> PlanResult<()> {
        let Some(slot) = self.slot(Ino::JOURNAL) else {
            return Ok(());
        };
        let inode = Inode::parse(slot, &self.layout().inode_context(Ino::JOURNAL))?;
        self.change_superblock(|raw| {
            raw.journal_inum.set(Ino::JOURNAL.get());
            raw.jnl_backup_type = 1;
            for (to, from) in raw.jnl_blocks.iter_mut().zip(inode.map.chunks(4)) {
                to.set(from.try_into().map_or(0, u32::from_le_bytes));
            }
            raw.jnl_blocks[15].set((inode.size >> 32) as u32);
            raw.jnl_blocks[16].set(inode.size as u32);
        })
    }

    /// The journal goes to the middle of the file system, so that no data is far from it: to the
    /// emptiest of the groups around.
    fn journal_goal(&self) -> PlanResult<Pblk> {
        let geometry = self.layout().geometry();
        let groups = geometry.groups_count();
        let first = geometry.first_data_block().get();
        let middle = (geometry.blocks_count() - first) / 2;
        let group = geometry.group_of_block(Pblk::new(middle.max(first)))?.get();
        let flex = geometry.groups_per_flex();
        if !self.maps_by_extents() {
            return Ok(geometry.first_data_block());
        }
        let mut start = group.saturating_sub(1);
        let mut end = (group + 1).min(groups - 1);
        if flex > 1 && group > flex {
            start = group & !(flex - 1);
            while start < groups && self.free_in(Group::new(start))? == 0 {
                start += 1;
            }
            if start == groups {
                start = 0;
            }
            end = (start + 1).min(groups - 1);
        }
        let mut best = start;
        for candidate in start + 1..=end {
            if self.free_in(Group::new(candidate))? > self.free_in(Group::new(best))? {
                best = candidate;
            }
        }
        Ok(Pblk::new(group_range(geometry, Group::new(best))?.start))
    }

    fn add_mmp(&mut self) -> PlanResult<()> {
        let at = self.allocate("multiple-mount protection", Pblk::new(0), 1)?[0].start;
        let record = MmpBlock {
            state: MmpState::Clean,
            time: self.layout().options().time,
            node_name: [0; 64],
            device_name: [0; 32],
            check_interval: MMP_INTERVAL,
        };
        let mut block = vec![0; self.layout().geometry().block_size().len()];
        block[..MmpBlock::LEN].copy_from_slice(&record.encode(self.layout().checksum_seed()));
        self.put_block(Pblk::new(at), block);
        self.change_superblock(|raw| {
            raw.mmp_block.set(at);
            raw.mmp_update_interval.set(MMP_INTERVAL);
        })
    }

    fn add_orphan_file(&mut self) -> PlanResult<()> {
        let ino = self.new_inode(false)?;
        let geometry = self.layout().geometry();
        let (size, ratio) = (geometry.block_size(), 1_u64 << geometry.cluster_bits());
        let blocks = (geometry.blocks_count() / 4096).clamp(32, 512);
        let blocks = blocks.div_ceil(ratio) * ratio;
        let runs = self.allocate("the orphan file", Pblk::new(0), blocks)?;
        for at in runs.iter().cloned().flatten() {
            let seed = self
                .layout()
                .checksum_seed()
                .map(|seed| orphan_file::block_seed(seed, ino, 0, Pblk::new(at)));
            let mut block = vec![0; size.len()];
            orphan_file::encode(&[], &mut block, seed);
            self.put_block(Pblk::new(at), block);
        }
        let inode = self.blank_inode(FileType::Regular, 0o600);
        self.finish_file(ino, inode, &runs)?;
        self.change_superblock(|raw| raw.orphan_file_inum.set(ino.get()))
    }

    pub(super) fn slot(&self, ino: Ino) -> Option<&[u8]> {
        self.records()
            .find(|(number, _)| *number == ino)
            .map(|(_, slot)| slot)
    }
}

/// Runs of blocks as the runs of a file without holes.
fn filled(runs: &[Range<u64>]) -> Vec<Run> {
    let mut lblk = 0;
    runs.iter()
        .map(|run| {
            let len = (run.end - run.start) as u32;
            let placed = Run {
                lblk,
                len,
                pblk: run.start,
            };
            lblk += len;
            placed
        })
        .collect()
}

/// A block number as an indirect map stores it.
fn narrow(block: u64) -> PlanResult<u32> {
    u32::try_from(block).map_err(|_| MapError::BeyondIndirect { block }.into())
}
