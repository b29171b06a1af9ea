//! Where everything lies: groups, backups, descriptor tables, derived from a superblock.
//!
//! A [`Geometry`] is a handful of numbers from a checked [`Superblock`]. Every function that
//! takes a number from outside (a group, an inode, a block) checks it; none overflows.
//!
//! ```text
//! group with a backup:    superblock | descriptors | reserved descriptors | (bitmaps, inode
//!                         table, wherever the descriptor says) | data
//! group without one:      the same without the first three
//! meta_bg, from meta group first_meta_bg on: one descriptor block in the first, second and
//!                         last group of each meta group, no reserved descriptors
//! ```
//!
//! Source: "Layout", "Block Groups" and "Meta Block Groups" in the kernel's ext4 documentation.

use crate::error::{Expected, FormatError, FormatResult, Structure};
use crate::features::{Compat, Incompat, RoCompat};
use crate::superblock::Superblock;
use crate::types::{BlockSize, Group, Ino, Pblk};
use core::ops::Range;

/// Which groups hold a backup of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backups {
    /// Every group.
    All,
    /// Group 1 and powers of 3, 5 and 7.
    Sparse,
    /// These two (0 means none).
    Two([u32; 2]),
}

/// Positions and sizes of a file system's fixed structures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    block_size: BlockSize,
    blocks_count: u64,
    first_data_block: u32,
    blocks_per_group: u32,
    cluster_bits: u32,
    inodes_per_group: u32,
    inodes_count: u32,
    inode_size: u32,
    inode_table_blocks: u32,
    desc_size: u32,
    groups: u32,
    reserved_gdt_blocks: u32,
    /// Descriptor blocks kept behind superblocks; the rest are spread over meta groups.
    classic_desc_blocks: u32,
    desc_blocks: u32,
    backups: Backups,
    flex_bg_log: Option<u32>,
}

/// Where an inode lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeLocation {
    /// Its group.
    pub group: Group,
    /// Its index in the group's inode bitmap and table.
    pub index: u32,
    /// Block of the group's table that holds it, counted from the table's start.
    pub table_block: u32,
    /// Byte offset inside that block.
    pub offset: u32,
}

fn error(field: &'static str, found: impl Into<u64>, expected: Expected) -> FormatError {
    FormatError::new(Structure::Superblock, field, found.into(), expected)
}

impl Geometry {
    /// Derives the geometry.
    #[must_use]
    pub fn new(sb: &Superblock) -> Self {
        let raw = sb.raw();
        let block_size = sb.block_size();
        let groups = sb.groups_count();
        let desc_size = sb.desc_size();
        let desc_blocks = groups.div_ceil((block_size.bytes() / desc_size).max(1));
        let backups = if sb.has_compat(Compat::SPARSE_SUPER2) {
            Backups::Two(raw.backup_bgs.map(|group| group.get()))
        } else if sb.has_ro_compat(RoCompat::SPARSE_SUPER) {
            Backups::Sparse
        } else {
            Backups::All
        };
        Self {
            block_size,
            blocks_count: sb.blocks_count(),
            first_data_block: raw.first_data_block.get(),
            blocks_per_group: raw.blocks_per_group.get(),
            cluster_bits: sb.cluster_bits(),
            inodes_per_group: raw.inodes_per_group.get(),
            inodes_count: sb.inodes_count(),
            inode_size: sb.inode_size(),
            inode_table_blocks: raw
                .inodes_per_group
                .get()
                .div_ceil((block_size.bytes() / sb.inode_size()).max(1)),
            desc_size,
            groups,
            reserved_gdt_blocks: raw.reserved_gdt_blocks.get().into(),
            classic_desc_blocks: if sb.has_incompat(Incompat::META_BG) {
                raw.first_meta_bg.get().min(desc_blocks)
            } else {
                desc_blocks
            },
            desc_blocks,
            backups,
            flex_bg_log: sb
                .has_incompat(Incompat::FLEX_BG)
                .then(|| raw.log_groups_per_flex.into()),
        }
    }
}

/// Plain numbers.
impl Geometry {
    /// Returns the block size.
    #[must_use]
    pub const fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Returns the blocks in the file system; valid block numbers are below.
    #[must_use]
    pub const fn blocks_count(&self) -> u64 {
        self.blocks_count
    }

    /// Returns where group 0 starts.
    #[must_use]
    pub const fn first_data_block(&self) -> Pblk {
        Pblk::new(self.first_data_block as u64)
    }

    /// Returns the number of block groups.
    #[must_use]
    pub const fn groups_count(&self) -> u32 {
        self.groups
    }

    /// Returns all groups, ascending.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = Group> + Clone + use<> {
        (0..self.groups).map(Group::new)
    }

    /// Returns the blocks in every group but perhaps the last.
    #[must_use]
    pub const fn blocks_per_group(&self) -> u32 {
        self.blocks_per_group
    }

    /// Returns the base-2 logarithm of the blocks in a cluster.
    #[must_use]
    pub const fn cluster_bits(&self) -> u32 {
        self.cluster_bits
    }

    /// Returns the clusters in every group but perhaps the last: the bits a block bitmap covers.
    #[must_use]
    pub const fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_bits
    }

    /// Returns the clusters in the file system.
    #[must_use]
    pub const fn clusters_count(&self) -> u64 {
        (self.blocks_count - self.first_data_block as u64).div_ceil(1 << self.cluster_bits)
    }

    /// Returns the inodes in a group.
    #[must_use]
    pub const fn inodes_per_group(&self) -> u32 {
        self.inodes_per_group
    }

    /// Returns the inodes in the file system; valid inode numbers are 1 to this one.
    #[must_use]
    pub const fn inodes_count(&self) -> u32 {
        self.inodes_count
    }

    /// Returns the bytes in an inode.
    #[must_use]
    pub const fn inode_size(&self) -> u32 {
        self.inode_size
    }

    /// Returns the inodes in a block of the inode table.
    #[must_use]
    pub const fn inodes_per_block(&self) -> u32 {
        self.block_size.bytes() / self.inode_size
    }

    /// Returns the blocks in a group's inode table.
    #[must_use]
    pub const fn inode_table_blocks(&self) -> u32 {
        self.inode_table_blocks
    }

    /// Returns the bytes in a group descriptor.
    #[must_use]
    pub const fn desc_size(&self) -> u32 {
        self.desc_size
    }

    /// Returns the descriptors in a block.
    #[must_use]
    pub const fn descs_per_block(&self) -> u32 {
        self.block_size.bytes() / self.desc_size
    }

    /// Returns the blocks that hold all descriptors.
    #[must_use]
    pub const fn desc_blocks(&self) -> u32 {
        self.desc_blocks
    }

    /// Returns the blocks reserved behind the descriptors for growth.
    #[must_use]
    pub const fn reserved_gdt_blocks(&self) -> u32 {
        self.reserved_gdt_blocks
    }

    /// Returns whether bitmaps and inode tables may lie outside their group.
    #[must_use]
    pub const fn has_flex_bg(&self) -> bool {
        self.flex_bg_log.is_some()
    }

    /// Returns the groups in a flexible group: 1 without `flex_bg`.
    #[must_use]
    pub fn groups_per_flex(&self) -> u32 {
        1_u32
            .checked_shl(self.flex_bg_log.unwrap_or(0))
            .unwrap_or(1)
    }
}

/// Groups, blocks and clusters.
impl Geometry {
    fn check_group(&self, group: Group) -> FormatResult<u32> {
        if group.get() < self.groups {
            Ok(group.get())
        } else {
            Err(error(
                "group",
                group.get(),
                Expected::AtMost(u64::from(self.groups) - 1),
            ))
        }
    }

    /// Returns the first block of a group.
    ///
    /// # Errors
    /// There is no such group.
    pub fn group_first_block(&self, group: Group) -> FormatResult<Pblk> {
        let group = self.check_group(group)?;
        Ok(self.first_block_of(group))
    }

    /// For groups known to exist: then the product stays below `blocks_count`.
    fn first_block_of(&self, group: u32) -> Pblk {
        Pblk::new(
            u64::from(self.first_data_block) + u64::from(group) * u64::from(self.blocks_per_group),
        )
    }

    /// Returns the blocks in a group; the last may be short.
    ///
    /// # Errors
    /// There is no such group.
    pub fn blocks_in_group(&self, group: Group) -> FormatResult<u32> {
        let first = self.group_first_block(group)?.get();
        let left = self.blocks_count - first;
        Ok(left.min(self.blocks_per_group.into()) as u32)
    }

    /// Returns the last block of a group.
    ///
    /// # Errors
    /// There is no such group.
    pub fn group_last_block(&self, group: Group) -> FormatResult<Pblk> {
        let first = self.group_first_block(group)?.get();
        Ok(Pblk::new(
            first + u64::from(self.blocks_in_group(group)?) - 1,
        ))
    }

    /// Returns the clusters in a group; a partial last cluster counts.
    ///
    /// # Errors
    /// There is no such group.
    pub fn clusters_in_group(&self, group: Group) -> FormatResult<u32> {
        // By a shift, as this is asked of every group when a file system is opened.
        let round_up = (1_u64 << self.cluster_bits) - 1;
        let blocks = u64::from(self.blocks_in_group(group)?);
        Ok(((blocks + round_up) >> self.cluster_bits) as u32)
    }

    /// Returns whether `len` blocks from `start` lie in the file system (and past the boot block).
    #[must_use]
    pub fn contains(&self, start: Pblk, len: u64) -> bool {
        start.get() >= self.first_data_block.into()
            && start
                .get()
                .checked_add(len)
                .is_some_and(|end| end <= self.blocks_count)
    }

    /// Returns the group a block lies in.
    ///
    /// # Errors
    /// The block is not in the file system.
    pub fn group_of_block(&self, block: Pblk) -> FormatResult<Group> {
        Ok(self.split_block(block)?.0)
    }

    /// Returns the group a block lies in, and its distance in blocks from the group's start.
    ///
    /// # Errors
    /// The block is not in the file system.
    pub fn split_block(&self, block: Pblk) -> FormatResult<(Group, u32)> {
        if !self.contains(block, 1) {
            return Err(error(
                "block",
                block.get(),
                Expected::Between(self.first_data_block.into(), self.blocks_count - 1),
            ));
        }
        let relative = block.get() - u64::from(self.first_data_block);
        let per_group = u64::from(self.blocks_per_group);
        Ok((
            Group::new((relative / per_group) as u32),
            (relative % per_group) as u32,
        ))
    }

    /// Returns the group of a block and the bit of its cluster in the group's bitmap.
    ///
    /// # Errors
    /// The block is not in the file system.
    pub fn bitmap_position(&self, block: Pblk) -> FormatResult<(Group, u32)> {
        let (group, offset) = self.split_block(block)?;
        Ok((group, offset >> self.cluster_bits))
    }

    /// Returns the first block of a cluster of a group.
    ///
    /// # Errors
    /// There is no such group or cluster.
    pub fn cluster_first_block(&self, group: Group, cluster: u32) -> FormatResult<Pblk> {
        let first = self.group_first_block(group)?.get();
        let clusters = self.clusters_in_group(group)?;
        if cluster >= clusters {
            return Err(error(
                "cluster",
                cluster,
                Expected::AtMost(u64::from(clusters) - 1),
            ));
        }
        Ok(Pblk::new(first + (u64::from(cluster) << self.cluster_bits)))
    }
}

/// Inodes.
impl Geometry {
    /// Returns where an inode lies.
    ///
    /// # Errors
    /// There is no such inode.
    pub fn locate_inode(&self, ino: Ino) -> FormatResult<InodeLocation> {
        if ino.get() == 0 || ino.get() > self.inodes_count {
            return Err(error(
                "inode",
                ino.get(),
                Expected::Between(1, self.inodes_count.into()),
            ));
        }
        let index = (ino.get() - 1) % self.inodes_per_group;
        let per_block = self.inodes_per_block();
        Ok(InodeLocation {
            group: Group::new((ino.get() - 1) / self.inodes_per_group),
            index,
            table_block: index / per_block,
            offset: index % per_block * self.inode_size,
        })
    }

    /// Returns the byte position of an inode from the start of the file system, given its group's
    /// table.
    ///
    /// # Errors
    /// There is no such inode, or the position does not fit 64 bits.
    pub fn inode_position(&self, ino: Ino, table: Pblk) -> FormatResult<u64> {
        let at = self.locate_inode(ino)?;
        table
            .checked_add(at.table_block.into())
            .and_then(|block| self.block_size.offset_of(block))
            .and_then(|position| position.checked_add(at.offset.into()))
            .ok_or_else(|| {
                FormatError::new(
                    Structure::GroupDescriptor,
                    "inode_table",
                    table.get(),
                    Expected::AtMost(self.blocks_count - 1),
                )
            })
    }

    /// Returns the inode at `index` of a group.
    ///
    /// # Errors
    /// There is no such group or index.
    pub fn inode_at(&self, group: Group, index: u32) -> FormatResult<Ino> {
        let group = self.check_group(group)?;
        if index >= self.inodes_per_group {
            return Err(error(
                "inode index",
                index,
                Expected::AtMost(u64::from(self.inodes_per_group) - 1),
            ));
        }
        // Below inodes_count, which is 32 bits wide and groups × inodes_per_group.
        Ok(Ino::new(group * self.inodes_per_group + index + 1))
    }
}

/// Superblocks and descriptors.
impl Geometry {
    /// Returns whether a group holds a superblock: the primary one or a backup.
    #[must_use]
    pub fn has_super(&self, group: Group) -> bool {
        let group = group.get();
        if group == 0 {
            return true;
        }
        match self.backups {
            Backups::All => true,
            Backups::Two(two) => two.contains(&group),
            // All of these are odd.
            Backups::Sparse => {
                group % 2 == 1
                    && (group == 1 || [3, 5, 7].iter().any(|base| is_power_of(group, *base)))
            }
        }
    }

    /// Returns the groups with a superblock or a block of descriptors, ascending. All others begin
    /// with neither, which [`Geometry::group_header`] would say of each of them.
    pub fn groups_with_headers(&self) -> impl Iterator<Item = Group> + use<'_> {
        let (mut with_super, mut with_descs) = (self.next_super(0), self.next_in_meta_bg(0));
        core::iter::from_fn(move || {
            let group = with_super.min(with_descs);
            if with_super == group {
                with_super = self.next_super(group.saturating_add(1));
            }
            if with_descs == group {
                with_descs = self.next_in_meta_bg(group.saturating_add(1));
            }
            (group < self.groups).then(|| Group::new(group))
        })
    }

    /// The first group from `from` on with a superblock; none of the file system if there is none.
    fn next_super(&self, from: u32) -> u32 {
        if from == 0 {
            return 0;
        }
        let next = match self.backups {
            Backups::All => Some(from),
            Backups::Two(two) => two.into_iter().filter(|group| *group >= from).min(),
            Backups::Sparse if from == 1 => Some(1),
            Backups::Sparse => {
                let power = |base: u32| {
                    let mut powers =
                        core::iter::successors(Some(base), |power| power.checked_mul(base));
                    powers.find(|power| *power >= from)
                };
                [3, 5, 7].into_iter().filter_map(power).min()
            }
        };
        next.unwrap_or(u32::MAX)
    }

    /// The first group from `from` on with a block of descriptors that is placed by meta groups;
    /// none of the file system if there is none.
    fn next_in_meta_bg(&self, from: u32) -> u32 {
        let per_block = self.descs_per_block();
        if self.classic_desc_blocks >= self.desc_blocks || per_block == 0 {
            return u32::MAX;
        }
        // Below the number of groups, as there is a block of descriptors that begins with it.
        let from = from.max(self.classic_desc_blocks * per_block);
        match from % per_block {
            0 | 1 => from,
            place => from.saturating_add(per_block - 1 - place),
        }
    }

    /// Returns the block with a group's copy of the superblock, and the copy's byte offset inside
    /// it.
    ///
    /// # Errors
    /// There is no such group.
    pub fn super_block(&self, group: Group) -> FormatResult<(Pblk, u32)> {
        let first = self.group_first_block(group)?;
        if group.get() > 0 {
            return Ok((first, 0));
        }
        if self.block_size == BlockSize::MIN {
            Ok((Pblk::new(1), 0))
        } else {
            Ok((first, 1024))
        }
    }

    /// The block that holds the primary superblock.
    fn primary_super_block(&self) -> u64 {
        u64::from(self.block_size == BlockSize::MIN)
    }

    /// Returns the block after the primary superblock and the descriptors behind it.
    #[must_use]
    pub fn primary_metadata_end(&self) -> u64 {
        self.primary_super_block() + 1 + u64::from(self.classic_desc_blocks)
    }

    /// Returns the number of descriptor blocks that lie behind every superblock; all of them
    /// without `meta_bg`.
    #[must_use]
    pub const fn classic_desc_blocks(&self) -> u32 {
        self.classic_desc_blocks
    }

    /// Whether the descriptors of `group` are placed by meta groups.
    fn in_meta_bg(&self, group: u32) -> bool {
        group / self.descs_per_block() >= self.classic_desc_blocks
    }

    /// Returns the block that holds the descriptors number `index * descs_per_block()` and
    /// following.
    ///
    /// # Errors
    /// There is no such descriptor block.
    pub fn desc_block(&self, index: u32) -> FormatResult<Pblk> {
        if index >= self.desc_blocks {
            return Err(error(
                "descriptor block",
                index,
                Expected::AtMost(u64::from(self.desc_blocks) - 1),
            ));
        }
        if index < self.classic_desc_blocks {
            return Ok(Pblk::new(self.primary_super_block() + 1 + u64::from(index)));
        }
        let group = index * self.descs_per_block();
        self.meta_desc_block(group)
    }

    /// Where `group`, the first, second or last of a meta group, keeps its descriptor block.
    fn meta_desc_block(&self, group: u32) -> FormatResult<Pblk> {
        let first = self.group_first_block(Group::new(group))?.get();
        let mut skip = u64::from(self.has_super(Group::new(group)));
        if group == 0 && self.block_size == BlockSize::MIN && self.first_data_block == 0 {
            // Clusters above 1 KiB: block 0 is the boot block, the superblock is block 1.
            skip += 1;
        }
        let block = Pblk::new(first + skip);
        if self.contains(block, 1) {
            Ok(block)
        } else {
            Err(error(
                "blocks_count",
                self.blocks_count,
                Expected::AtLeast(block.get() + 1),
            ))
        }
    }

    /// Returns the block with the descriptor of `group`, and the descriptor's byte offset inside
    /// it.
    ///
    /// # Errors
    /// There is no such group.
    pub fn desc_position(&self, group: Group) -> FormatResult<(Pblk, u32)> {
        let group = self.check_group(group)?;
        let per_block = self.descs_per_block();
        Ok((
            self.desc_block(group / per_block)?,
            group % per_block * self.desc_size,
        ))
    }

    /// Returns what a group's own superblock and descriptor copies occupy.
    ///
    /// # Errors
    /// There is no such group.
    pub fn group_header(&self, group: Group) -> FormatResult<GroupHeader> {
        let number = self.check_group(group)?;
        let first = self.first_block_of(number).get();
        let has_super = self.has_super(group);
        // The boot block in front of the superblock (blocks of 1 KiB, larger clusters).
        let boot = u64::from(number == 0 && self.primary_super_block() > first);
        let super_block = has_super.then(|| Pblk::new(first + boot));
        let after_super = first + if has_super { boot + 1 } else { 0 };
        let (descs, first_desc, reserved) = if self.in_meta_bg(number) {
            let place = number % self.descs_per_block();
            let holds = place <= 1 || place == self.descs_per_block() - 1;
            let index = number / self.descs_per_block();
            (u32::from(holds), index, 0)
        } else if has_super {
            (self.classic_desc_blocks, 0, self.reserved_gdt_blocks)
        } else {
            (0, 0, 0)
        };
        Ok(GroupHeader {
            super_block,
            descs: after_super..after_super + u64::from(descs),
            first_desc,
            reserved_gdt: after_super + u64::from(descs)
                ..after_super + u64::from(descs) + u64::from(reserved),
            start: first,
        })
    }
}

/// The superblock and descriptor copies at the start of a group. Block numbers may exceed the
/// file system if its last group is too short to hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The block of the superblock or its backup.
    pub super_block: Option<Pblk>,
    /// The blocks with descriptors.
    pub descs: Range<u64>,
    /// Index of the first of these descriptor blocks in the whole table.
    pub first_desc: u32,
    /// The blocks reserved for more descriptors.
    pub reserved_gdt: Range<u64>,
    start: u64,
}

impl GroupHeader {
    /// Returns the first block after the header.
    #[must_use]
    pub const fn end(&self) -> Pblk {
        Pblk::new(self.reserved_gdt.end)
    }

    /// Returns the blocks from the group's start to the end of the header.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.reserved_gdt.end - self.start
    }
}

fn is_power_of(number: u32, base: u32) -> bool {
    let mut power = base;
    while power < number {
        let Some(next) = power.checked_mul(base) else {
            return false;
        };
        power = next;
    }
    power == number
}
