//! How many blocks, groups and inodes: the superblock of the file system to be.
//!
//! The rules are those `mke2fs` follows, so that the same question gives the same file system:
//! inodes fill their tables, a last group too small to be of use is dropped, reserved descriptors
//! let the file system grow a thousandfold.

use super::{PlanError, PlanResult, features};
use crate::defaults::{
    FormatOptions, InodeDensity, JournalSize, SizeClass, TableInit, default_journal_blocks,
};
use extant_format::BlockSize;
use extant_format::checksum::Crc32c;
use extant_format::features::{Compat, Features, Incompat, RoCompat};
use extant_format::superblock::{MAGIC, RawSuperblock, State, Superblock, SuperblockFlags};

/// Groups in a flexible group when nothing is asked for.
const GROUPS_PER_FLEX: u32 = 16;
/// Blocks in a cluster when nothing is asked for.
const CLUSTER_RATIO: u32 = 16;
/// Most clusters in a group: free counts once had 16 bits.
const CLUSTERS_PER_GROUP_MAX: u32 = (1 << 16) - 8;
/// Most groups: 16 TiB of 1 KiB blocks, 256 TiB of 4 KiB blocks.
const GROUPS_MAX: u32 = 1 << 21;
/// The first inode that is not reserved.
const FIRST_INO: u32 = 11;
/// A last group is dropped unless it has this many blocks beyond its own structures.
const LAST_GROUP_SPARE: u64 = 50;
/// Fewest and most blocks of a journal.
const JOURNAL_MIN: u64 = 1024;
const JOURNAL_MAX: u64 = 10_240_000;
/// What goes where a file system is too small for a journal. `fast_commit` says that one may have
/// such commits, and means nothing without one.
const WITHOUT_JOURNAL: Compat = Compat::HAS_JOURNAL.union(Compat::ORPHAN_FILE);

/// The numbers being worked out.
pub(super) struct Numbers<'a> {
    options: &'a FormatOptions,
    pub(super) features: Features,
    block_size: BlockSize,
    cluster_bits: u32,
    inode_size: u32,
    desc_size: u32,
    /// Whole blocks, or clusters, of the size asked for.
    blocks_asked: u64,
    blocks: u64,
    /// Blocks kept for privileged users: a share of what was asked for, cut whenever a last group
    /// is.
    reserved: u64,
    first_data_block: u32,
    blocks_per_group: u32,
    groups: u32,
    desc_blocks: u32,
    inodes_wanted: u64,
    inodes_per_group: u32,
    reserved_gdt: u32,
    log_flex: u8,
    /// Blocks of the journal, and of its fast-commit area.
    pub(super) journal: Option<(u32, u32)>,
}

fn out_of_range(what: &'static str, asked: impl ToString, limit: impl Into<String>) -> PlanError {
    PlanError::OutOfRange {
        what,
        asked: asked.to_string(),
        limit: limit.into(),
    }
}

impl<'a> Numbers<'a> {
    /// Works out the numbers of `options`.
    pub(super) fn work_out(options: &'a FormatOptions) -> PlanResult<Self> {
        let features = features::resolve(options)?;
        let class = SizeClass::of(options.size);
        let sector = BlockSize::from_bytes(options.sector_size.max(1024)).ok_or_else(|| {
            out_of_range(
                "the sector size",
                options.sector_size,
                "a power of two up to 65536",
            )
        })?;
        let block_size = options.block_size.unwrap_or(
            match options.profile {
                crate::defaults::Profile::Android => BlockSize::K4,
                _ => class.block_size(),
            }
            .max(sector),
        );
        if block_size < sector {
            let limit = format!(
                "no smaller than a sector of the device, which has {} bytes",
                sector.bytes()
            );
            return Err(out_of_range("the block size", block_size.bytes(), limit));
        }
        let mut numbers = Self {
            options,
            features,
            block_size,
            cluster_bits: cluster_bits(options, features, block_size)?,
            inode_size: options.inode_size,
            desc_size: if features.incompat.contains(Incompat::BIT64) {
                64
            } else {
                32
            },
            blocks_asked: 0,
            reserved: 0,
            blocks: options.size / u64::from(block_size.bytes()),
            first_data_block: 0,
            blocks_per_group: 0,
            groups: 0,
            desc_blocks: 0,
            inodes_wanted: 0,
            inodes_per_group: 0,
            reserved_gdt: 0,
            log_flex: 0,
            journal: None,
        };
        numbers.check_options()?;
        numbers.first_data_block =
            u32::from(block_size == BlockSize::MIN && numbers.cluster_bits == 0);
        numbers.blocks = numbers.blocks >> numbers.cluster_bits << numbers.cluster_bits;
        numbers.blocks_asked = numbers.blocks;
        numbers.reserved = numbers.reserved_asked();
        numbers.check_block_count()?;
        numbers.choose_group_size()?;
        numbers.choose_inodes(class)?;
        numbers.choose_groups()?;
        numbers.choose_journal()?;
        Ok(numbers)
    }

    fn check_options(&mut self) -> PlanResult<()> {
        let options = self.options;
        let size = options.inode_size;
        let most = self.block_size.bytes().min(4096);
        if !size.is_power_of_two() || size < 128 || size > most {
            let limit = format!("a power of two from 128 to {most}");
            return Err(out_of_range("the inode size", size, limit));
        }
        if options.label.len() > 16 {
            let label = String::from_utf8_lossy(&options.label);
            return Err(out_of_range("the label", label, "at most 16 bytes"));
        }
        if options.last_mounted.len() > 63 {
            let path = String::from_utf8_lossy(&options.last_mounted);
            return Err(out_of_range("the mount point", path, "at most 63 bytes"));
        }
        let percent = options.reserved_percent.unwrap_or(0.0);
        if !(0.0..=50.0).contains(&percent) {
            return Err(out_of_range(
                "the reserved share",
                percent,
                "0 to 50 percent",
            ));
        }
        if options.root_mode & !0o7777 != 0 {
            let mode = format!("{:o}", options.root_mode);
            return Err(out_of_range("the root mode", mode, "permissions only"));
        }
        if options.backup_supers > 2 {
            return Err(out_of_range(
                "the number of backups",
                options.backup_supers,
                "at most 2",
            ));
        }
        if options.time >= 1 << 34 {
            return Err(out_of_range(
                "the time",
                options.time,
                "before the year 2446",
            ));
        }
        if self.features.incompat.contains(Incompat::FLEX_BG) {
            let groups = options.groups_per_flex.unwrap_or(GROUPS_PER_FLEX);
            if !groups.is_power_of_two() {
                return Err(out_of_range(
                    "the flexible group size",
                    groups,
                    "a power of two",
                ));
            }
            self.log_flex = groups.trailing_zeros() as u8;
        }
        Ok(())
    }

    fn check_block_count(&mut self) -> PlanResult<()> {
        let wide = self.features.incompat.contains(Incompat::BIT64);
        let (most, because) = if wide {
            ((1_u64 << 48) - 1, "block numbers of 48 bits")
        } else {
            (
                u64::from(u32::MAX),
                "block numbers of 32 bits (no 64bit feature)",
            )
        };
        if self.blocks > most {
            return Err(PlanError::TooLarge {
                size: self.options.size,
                limit: most.saturating_mul(self.block_size.bytes().into()),
                because,
            });
        }
        if self.blocks > u32::MAX.into() {
            // The resize inode maps its blocks with 32-bit numbers.
            self.features.compat -= Compat::RESIZE_INODE;
        }
        if self.blocks < 16 {
            return Err(self.too_small("a file system"));
        }
        Ok(())
    }

    fn too_small(&self, what: &'static str) -> PlanError {
        PlanError::TooSmall {
            size: self.options.size,
            what,
        }
    }

    fn choose_group_size(&mut self) -> PlanResult<()> {
        let most = (self.block_size.bytes() * 8).min(CLUSTERS_PER_GROUP_MAX);
        let clusters = match self.options.blocks_per_group {
            None => most,
            Some(blocks) => {
                let clusters = blocks >> self.cluster_bits;
                if clusters < 256 || clusters > most || blocks % (8 << self.cluster_bits) != 0 {
                    let limit = format!(
                        "a multiple of {} from {} to {}",
                        8 << self.cluster_bits,
                        256 << self.cluster_bits,
                        u64::from(most) << self.cluster_bits
                    );
                    return Err(out_of_range("the group size", blocks, limit));
                }
                clusters
            }
        };
        self.blocks_per_group = clusters
            .checked_mul(1 << self.cluster_bits)
            .ok_or_else(|| {
                out_of_range(
                    "the cluster size",
                    u64::from(self.block_size.bytes()) << self.cluster_bits,
                    "a group must have fewer than 2^32 blocks",
                )
            })?;
        Ok(())
    }

    fn choose_inodes(&mut self, class: SizeClass) -> PlanResult<()> {
        // Of what was asked for, which need not be whole clusters.
        let block = u64::from(self.block_size.bytes());
        let bytes = self.options.size / block * block;
        let cluster = u64::from(self.block_size.bytes()) << self.cluster_bits;
        let wanted = match self.options.inodes {
            InodeDensity::Count(count) => u64::from(count),
            InodeDensity::Ratio(ratio) => {
                if !(1024..=1 << 26).contains(&ratio) {
                    return Err(out_of_range(
                        "the bytes for each inode",
                        ratio,
                        "1024 to 67108864",
                    ));
                }
                bytes / u64::from(ratio)
            }
            InodeDensity::BySize => bytes / u64::from(class.inode_ratio()).max(cluster),
        };
        if wanted > u32::MAX.into() && !self.features.incompat.contains(Incompat::BIT64) {
            return Err(out_of_range(
                "the number of inodes",
                wanted,
                "at most 4294967295",
            ));
        }
        let wanted = wanted.min(u32::MAX.into());
        if wanted.saturating_mul(self.inode_size.into()) >= bytes {
            let limit = format!("they would fill {bytes} bytes; ask for fewer or smaller ones");
            return Err(out_of_range("the number of inodes", wanted, limit));
        }
        // Groups have multiples of eight, rounded down.
        self.inodes_wanted = wanted.max(u64::from(FIRST_INO + 1).next_multiple_of(8));
        Ok(())
    }

    /// Groups, inodes in each, reserved descriptors; drops a last group that is too small.
    fn choose_groups(&mut self) -> PlanResult<()> {
        loop {
            let blocks = self.blocks - u64::from(self.first_data_block);
            let groups = blocks.div_ceil(self.blocks_per_group.into());
            if groups > GROUPS_MAX.into() {
                return Err(PlanError::TooLarge {
                    size: self.options.size,
                    limit: u64::from(GROUPS_MAX)
                        * u64::from(self.blocks_per_group)
                        * u64::from(self.block_size.bytes()),
                    because: "every group is planned in memory; larger blocks make fewer groups",
                });
            }
            self.groups = groups as u32;
            self.desc_blocks = self
                .groups
                .div_ceil(self.block_size.bytes() / self.desc_size);
            if !self.choose_inodes_per_group()? {
                continue;
            }
            self.reserved_gdt = self.reserved_gdt_blocks();
            if self.reserved_gdt + self.desc_blocks > self.blocks_per_group / 4 * 3 {
                // Copies of the descriptors would fill groups: spread one copy over meta groups.
                self.features.incompat |= Incompat::META_BG;
                self.features.compat -= Compat::RESIZE_INODE;
                // mke2fs leaves the number that was asked for, which e2fsck then wants to be 0.
                self.reserved_gdt = 0;
            }
            if !self.drop_last_group()? {
                return Ok(());
            }
        }
    }

    /// Whether the group size could stay as it was.
    fn choose_inodes_per_group(&mut self) -> PlanResult<bool> {
        let mut wanted = self.inodes_wanted.div_ceil(self.groups.into());
        if wanted > u64::from(self.block_size.bytes()) * 8 {
            // More inodes than a bitmap covers: smaller groups, so that there are more of them.
            if self.blocks_per_group >> self.cluster_bits < 256 {
                return Err(out_of_range(
                    "the number of inodes",
                    self.inodes_wanted,
                    "groups cannot hold that many",
                ));
            }
            self.blocks_per_group -= 8 << self.cluster_bits;
            // What was cut off as a last group too small may be part of one now.
            self.blocks = self.blocks_asked;
            return Ok(false);
        }
        let per_block = self.block_size.bytes() / self.inode_size;
        // Free counts once had 16 bits.
        wanted = wanted.min(u64::from((1 << 16) - per_block));
        loop {
            // Fill the table's blocks, in multiples of eight for the bitmap.
            let filled = (wanted as u32).div_ceil(per_block) * per_block;
            self.inodes_per_group = filled.max(8) & !7;
            let total = u64::from(self.inodes_per_group) * u64::from(self.groups);
            if total <= u32::MAX.into() {
                return Ok(true);
            }
            if wanted <= 1 {
                return Err(out_of_range(
                    "the number of inodes",
                    total,
                    "at most 4294967295",
                ));
            }
            wanted -= 1;
        }
    }

    fn inode_table_blocks(&self) -> u32 {
        self.inodes_per_group
            .div_ceil(self.block_size.bytes() / self.inode_size)
    }

    fn reserved_gdt_blocks(&self) -> u32 {
        if !self.features.compat.contains(Compat::RESIZE_INODE) {
            return 0;
        }
        let asked = self.asked_gdt_blocks();
        if asked > 0 {
            return asked;
        }
        let per_block = u64::from(self.block_size.bytes() / self.desc_size);
        let limit = self.blocks.saturating_mul(1024).min(u32::MAX.into());
        let groups = limit
            .saturating_sub(self.first_data_block.into())
            .div_ceil(self.blocks_per_group.into());
        let blocks = groups
            .div_ceil(per_block)
            .saturating_sub(self.desc_blocks.into());
        // One indirect block maps them all.
        blocks.min(u64::from(self.block_size.bytes() / 4)) as u32
    }

    /// The blocks that a limit to growing asks for, as mke2fs counts them: in groups of the size
    /// that was asked for or is usual, whatever they come to be. Where that is none, there is no
    /// limit.
    fn asked_gdt_blocks(&self) -> u32 {
        let Some(limit) = self.options.resize_limit else {
            return 0;
        };
        let size = self.block_size.bytes();
        let per_group = self.options.blocks_per_group.unwrap_or(size * 8).max(1);
        let desc_blocks = |blocks: u64| {
            let groups = blocks.div_ceil(per_group.into());
            groups.div_ceil((size / self.desc_size).into())
        };
        let then = desc_blocks(limit / u64::from(size));
        let more = then.saturating_sub(desc_blocks(self.blocks_asked));
        // One indirect block maps them all.
        more.min((size / 4).into()) as u32
    }

    /// Whether the last group was too small and is gone.
    fn drop_last_group(&mut self) -> PlanResult<bool> {
        let last = self.groups - 1;
        let mut overhead = u64::from(2 + self.inode_table_blocks());
        if self.has_backup(last) {
            overhead += 1 + u64::from(self.desc_blocks) + u64::from(self.reserved_gdt);
        }
        if overhead > self.blocks_per_group.into() {
            return Err(out_of_range(
                "the number of inodes",
                self.inodes_wanted,
                "their table does not fit a group",
            ));
        }
        let rest =
            (self.blocks - u64::from(self.first_data_block)) % u64::from(self.blocks_per_group);
        if rest == 0 {
            return Ok(false);
        }
        if self.groups == 1 {
            return if rest < overhead {
                Err(self.too_small("the inode table"))
            } else {
                Ok(false)
            };
        }
        if rest >= overhead + LAST_GROUP_SPARE {
            return Ok(false);
        }
        self.blocks -= rest;
        let asked = self.options.size / u64::from(self.block_size.bytes());
        let share = u128::from(self.reserved_asked()) * u128::from(self.blocks) / u128::from(asked);
        self.reserved = share as u64;
        Ok(true)
    }

    /// The share of what was asked for that is kept for privileged users.
    fn reserved_asked(&self) -> u64 {
        let options = self.options;
        let percent = options
            .reserved_percent
            .unwrap_or(options.profile.reserved_percent());
        let asked = options.size / u64::from(self.block_size.bytes());
        (percent * asked as f64 / 100.0) as u64
    }

    /// Whether the last group has a backup superblock, while the superblock is not made yet.
    fn has_backup(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            return self.sparse_super2_backups().contains(&group);
        }
        let power_of = |base: u32| {
            std::iter::successors(Some(base), |n| n.checked_mul(base)).any(|power| power == group)
        };
        !self.features.ro_compat.contains(RoCompat::SPARSE_SUPER)
            || group == 1
            || [3, 5, 7].into_iter().any(power_of)
    }

    fn sparse_super2_backups(&self) -> [u32; 2] {
        let wanted = self.options.backup_supers;
        [
            u32::from(wanted >= 1 && self.groups > 1),
            if wanted >= 2 && self.groups > 2 {
                self.groups - 1
            } else {
                0
            },
        ]
    }

    fn choose_journal(&mut self) -> PlanResult<()> {
        if !self.features.compat.contains(Compat::HAS_JOURNAL) {
            return Ok(());
        }
        let total = match self.options.journal {
            JournalSize::None => return Ok(()),
            JournalSize::BySize => match default_journal_blocks(self.blocks) {
                Some(blocks) => blocks,
                None => {
                    self.features.compat -= WITHOUT_JOURNAL;
                    return Ok(());
                }
            },
            // Whatever was asked for: so small a file system has none.
            JournalSize::Bytes(_) if default_journal_blocks(self.blocks).is_none() => {
                self.features.compat -= WITHOUT_JOURNAL;
                return Ok(());
            }
            JournalSize::Bytes(bytes) => {
                let blocks = bytes / u64::from(self.block_size.bytes());
                if !(JOURNAL_MIN..=JOURNAL_MAX).contains(&blocks) || blocks > self.blocks / 2 {
                    let block = u64::from(self.block_size.bytes());
                    let limit = format!(
                        "{} to {} bytes, and no more than half of the file system",
                        JOURNAL_MIN * block,
                        JOURNAL_MAX * block
                    );
                    return Err(out_of_range("the journal size", bytes, limit));
                }
                blocks as u32
            }
        };
        // A share of the usual size, whatever is asked for.
        let fast_commit = if self.features.compat.contains(Compat::FAST_COMMIT) {
            default_journal_blocks(self.blocks).unwrap_or(total) / 64
        } else {
            0
        };
        self.journal = Some((total + fast_commit, fast_commit));
        Ok(())
    }

    /// The superblock: everything but free counts and what reserved files add.
    pub(super) fn superblock(&self) -> PlanResult<Superblock> {
        let options = self.options;
        let mut raw = RawSuperblock::zeroed();
        raw.magic.set(MAGIC);
        raw.rev_level.set(1);
        raw.creator_os.set(0);
        self.set_sizes(&mut raw);
        raw.feature_compat.set(self.features.compat.bits());
        raw.feature_incompat.set(self.features.incompat.bits());
        raw.feature_ro_compat.set(self.features.ro_compat.bits());

        raw.state.set(State::CLEAN.bits());
        raw.errors.set(options.errors.to_raw());
        raw.max_mnt_count.set(u16::MAX);
        raw.default_mount_opts.set(options.mount_defaults.bits());
        let (time, time_hi) = (options.time as u32, (options.time >> 32) as u8);
        (raw.wtime_hi, raw.lastcheck_hi, raw.mkfs_time_hi) = (time_hi, time_hi, time_hi);
        raw.wtime.set(time);
        raw.lastcheck.set(time);
        raw.mkfs_time.set(time);

        raw.uuid = options.uuid;
        raw.volume_name[..options.label.len()].copy_from_slice(&options.label);
        raw.last_mounted[..options.last_mounted.len()].copy_from_slice(&options.last_mounted);
        for (word, bytes) in raw.hash_seed.iter_mut().zip(options.hash_seed.chunks(4)) {
            word.set(bytes.try_into().map_or(0, u32::from_le_bytes));
        }
        raw.def_hash_version = 1;
        raw.flags.set(SuperblockFlags::SIGNED_HASH.bits());
        if self.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            raw.checksum_type = 1;
        }
        if self.features.incompat.contains(Incompat::CSUM_SEED) {
            raw.checksum_seed
                .set(Crc32c::INIT.update(&options.uuid).value());
        }
        if self.features.incompat.contains(Incompat::ENCRYPT) {
            // AES-256-XTS for contents, AES-256-CTS for names.
            raw.encrypt_algos = [1, 4, 0, 0];
            raw.encrypt_pw_salt = options.hash_seed;
        }
        if self.features.incompat.contains(Incompat::CASEFOLD) {
            // UTF-8, Unicode 12.1.
            raw.encoding.set(1);
        }
        Ok(Superblock::from_raw(raw)?)
    }

    fn set_sizes(&self, raw: &mut RawSuperblock) {
        let options = self.options;
        let log_block = self.block_size.log2() - 10;
        raw.log_block_size.set(log_block);
        raw.log_cluster_size.set(log_block + self.cluster_bits);
        raw.blocks_count_lo.set(self.blocks as u32);
        raw.blocks_count_hi.set((self.blocks >> 32) as u32);
        raw.first_data_block.set(self.first_data_block);
        raw.blocks_per_group.set(self.blocks_per_group);
        raw.clusters_per_group
            .set(self.blocks_per_group >> self.cluster_bits);
        raw.inodes_per_group.set(self.inodes_per_group);
        raw.inodes_count.set(self.inodes_per_group * self.groups);
        raw.first_ino.set(FIRST_INO);
        raw.inode_size.set(self.inode_size as u16);
        if self.inode_size > 128 {
            raw.min_extra_isize.set(32);
            raw.want_extra_isize.set(32);
        }
        if self.desc_size > 32 {
            raw.desc_size.set(self.desc_size as u16);
        }
        raw.reserved_gdt_blocks.set(self.reserved_gdt as u16);
        raw.log_groups_per_flex = self.log_flex;
        raw.raid_stride.set(options.stride.unwrap_or(0));
        raw.raid_stripe_width.set(options.stripe_width.unwrap_or(0));
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            for (to, group) in raw.backup_bgs.iter_mut().zip(self.sparse_super2_backups()) {
                to.set(group);
            }
        }
        // The end may lie before what was asked for, of which this is a share; more than a half is
        // none that Linux takes.
        let reserved = self.reserved.min(self.blocks / 2);
        raw.r_blocks_count_lo.set(reserved as u32);
        raw.r_blocks_count_hi.set((reserved >> 32) as u32);
    }

    /// Whether every inode table is zero and may say so.
    pub(super) fn tables_are_zeroed(&self) -> bool {
        self.options.table_init == TableInit::Full
    }
}

fn cluster_bits(
    options: &FormatOptions,
    features: Features,
    block_size: BlockSize,
) -> PlanResult<u32> {
    if !features.ro_compat.contains(RoCompat::BIGALLOC) {
        return Ok(0);
    }
    let bytes = options
        .cluster_size
        .unwrap_or(block_size.bytes() * CLUSTER_RATIO);
    let least = block_size.bytes();
    if !bytes.is_power_of_two() || bytes < least || bytes > 1 << 29 {
        let limit = format!("a power of two from {least} to 536870912");
        return Err(out_of_range("the cluster size", bytes, limit));
    }
    Ok(bytes.trailing_zeros() - block_size.log2())
}
