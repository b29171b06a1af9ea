//! The superblock.
//!
//! [`RawSuperblock`] mirrors the bytes; [`Superblock`] is one whose numbers have been checked
//! against each other, so that what is derived from it ([`Geometry`](crate::geometry::Geometry),
//! checksum seeds) needs no further checks.
//!
//! # Invariants of a `Superblock`
//!
//! - magic, revision, block, cluster, inode and descriptor sizes are in range and agree;
//! - groups are non-empty, no larger than one bitmap block covers, and `inodes_count` is exactly
//!   groups × inodes per group;
//! - reserved inode numbers it names lie in the file system.
//!
//! Free counts, times, state, the orphan list and error records are whatever the disk said: they
//! may be stale after a crash and no address is computed from them. Whether a *feature* is
//! supported is not decided here.
//!
//! Fields this crate does not know survive: the raw bytes are kept and written back.
//!
//! Source: "Super Block" in the kernel's ext4 documentation.

mod journal_device;
mod raw;
#[cfg(test)]
mod tests;
mod view;

pub use journal_device::JournalDevice;
pub use raw::RawSuperblock;
pub use view::{ErrorRecord, ErrorsBehaviour, MountDefaults, State, SuperblockFlags};

use crate::checksum::Crc32c;
use crate::error::{Expected, FormatError, FormatResult, Structure};
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::types::{BlockSize, Group};
use raw::INODE_SIZE_REV0;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes in a superblock.
pub const SUPERBLOCK_LEN: usize = 1024;
/// Byte offset of the primary superblock from the start of the file system.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// The magic number.
pub const MAGIC: u16 = 0xef53;
/// Offset of the checksum inside the superblock; everything before is covered.
const CHECKSUM_OFFSET: usize = SUPERBLOCK_LEN - 4;
/// Most blocks a file system may have: 48-bit block numbers.
const BLOCKS_MAX: u64 = 1 << 48;
/// Largest logarithm of a cluster over 1 KiB: clusters of 512 MiB.
const LOG_CLUSTER_MAX: u32 = 19;

/// A superblock that has been checked. See the module documentation for what holds.
#[derive(Clone)]
pub struct Superblock {
    raw: RawSuperblock,
    block_size: BlockSize,
    groups: u32,
}

impl core::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Superblock")
            .field("uuid", &self.raw.uuid)
            .field("block_size", &self.block_size)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

fn error(field: &'static str, found: impl Into<u64>, expected: Expected) -> FormatError {
    FormatError::new(Structure::Superblock, field, found.into(), expected)
}

/// `Ok` if `found` lies in the closed range.
fn within(field: &'static str, found: impl Into<u64>, min: u64, max: u64) -> FormatResult<()> {
    let found = found.into();
    if (min..=max).contains(&found) {
        Ok(())
    } else {
        Err(error(field, found, Expected::Between(min, max)))
    }
}

impl Superblock {
    /// Reads and checks the superblock in the first 1024 of `bytes`.
    ///
    /// # Errors
    /// The first field that is out of range or does not fit the others; a wrong checksum under
    /// `metadata_csum`.
    pub fn parse(bytes: &[u8]) -> FormatResult<Self> {
        let raw = Self::read_raw(bytes)?;
        if raw.magic.get() == MAGIC {
            verify_checksum(&raw)?;
        }
        Self::from_raw(raw)
    }

    /// Like [`Superblock::parse`], but a wrong checksum is no error: for looking into damaged
    /// images, never for mounting one.
    ///
    /// # Errors
    /// The first field that is out of range or does not fit the others.
    pub fn parse_unverified(bytes: &[u8]) -> FormatResult<Self> {
        Self::from_raw(Self::read_raw(bytes)?)
    }

    fn read_raw(bytes: &[u8]) -> FormatResult<RawSuperblock> {
        RawSuperblock::read_from_prefix(bytes)
            .map(|(raw, _)| raw)
            .map_err(|_| FormatError::short(Structure::Superblock, bytes.len(), SUPERBLOCK_LEN))
    }

    /// Checks a superblock that was filled in by hand. The checksum is not looked at;
    /// [`Superblock::encode`] computes it.
    ///
    /// # Errors
    /// The first field that is out of range or does not fit the others.
    pub fn from_raw(raw: RawSuperblock) -> FormatResult<Self> {
        if raw.magic.get() != MAGIC {
            return Err(error("magic", raw.magic, Expected::Exactly(MAGIC.into())));
        }
        within("rev_level", raw.rev_level, 0, 1)?;
        if raw.rev_level.get() == 0 && !is_possible_revision_0(&raw) {
            let expected = Expected::Said("1, as there are feature flags and a size of inodes");
            return Err(error("rev_level", raw.rev_level, expected));
        }
        let features = features_of(&raw);
        if features.incompat.contains(Incompat::JOURNAL_DEV) {
            return Err(error(
                "feature_incompat",
                raw.feature_incompat,
                Expected::Said("a file system, not an external journal"),
            ));
        }
        within("log_block_size", raw.log_block_size, 0, 6)?;
        let Some(block_size) = BlockSize::from_log2(10 + raw.log_block_size.get()) else {
            return Err(error(
                "log_block_size",
                raw.log_block_size,
                Expected::AtMost(6),
            ));
        };
        check_sizes(&raw, features, block_size)?;
        check_clusters(&raw, features, block_size)?;
        let groups = check_counts(&raw, features, block_size)?;
        check_reserved_inodes(&raw, features)?;
        Ok(Self {
            raw,
            block_size,
            groups,
        })
    }

    /// The bytes to store, with the checksum if the features ask for one. Unknown fields are as
    /// they were read.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_LEN] {
        self.encode_for_group(Group::new(self.raw.block_group_nr.get().into()))
    }

    /// The bytes of the copy that lies in `group`. A copy stores its group's number, or 65,535
    /// if that is larger.
    #[must_use]
    pub fn encode_for_group(&self, group: Group) -> [u8; SUPERBLOCK_LEN] {
        let mut raw = self.raw;
        raw.block_group_nr
            .set(u16::try_from(group.get()).unwrap_or(u16::MAX));
        if self.has_metadata_csum() {
            raw.checksum.set(checksum(&raw));
        }
        let mut bytes = [0; SUPERBLOCK_LEN];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The fields as stored.
    #[must_use]
    pub const fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// This superblock with `change` applied, checked again. One of revision 0 whose feature flags
    /// change becomes one of revision 1, with what revision 0 stands for, as Linux and e2fsprogs
    /// have it.
    ///
    /// # Errors
    /// As for [`Superblock::from_raw`]; the old superblock is then still what it was.
    pub fn with(&self, change: impl FnOnce(&mut RawSuperblock)) -> FormatResult<Self> {
        let mut raw = self.raw;
        change(&mut raw);
        if raw.rev_level.get() == 0 && features_of(&raw) != features_of(&self.raw) {
            raw.raise_revision();
        }
        Self::from_raw(raw)
    }
}

/// Tells whether a superblock that says revision 0 can be one. That revision had no feature words;
/// where there are flags all the same, Linux goes by them, and warns. Another size of inodes than
/// its own was written by revision 1.
fn is_possible_revision_0(raw: &RawSuperblock) -> bool {
    features_of(raw) == Features::default() || matches!(raw.inode_size.get(), 0 | INODE_SIZE_REV0)
}

fn features_of(raw: &RawSuperblock) -> Features {
    Features {
        compat: Compat::from_bits_retain(raw.feature_compat.get()),
        incompat: Incompat::from_bits_retain(raw.feature_incompat.get()),
        ro_compat: RoCompat::from_bits_retain(raw.feature_ro_compat.get()),
    }
}

fn checksum(raw: &RawSuperblock) -> u32 {
    Crc32c::INIT
        .update(&raw.as_bytes()[..CHECKSUM_OFFSET])
        .value()
}

fn verify_checksum(raw: &RawSuperblock) -> FormatResult<()> {
    if !features_of(raw).ro_compat.contains(RoCompat::METADATA_CSUM) {
        return Ok(());
    }
    let (stored, computed) = (raw.checksum.get(), checksum(raw));
    if stored == computed {
        Ok(())
    } else {
        Err(FormatError::checksum(Structure::Superblock, stored, computed).at(CHECKSUM_OFFSET))
    }
}

/// Inode and descriptor sizes, checksum type.
fn check_sizes(raw: &RawSuperblock, features: Features, block: BlockSize) -> FormatResult<()> {
    if raw.rev_level.get() > 0 {
        let size = raw.inode_size.get();
        within("inode_size", size, 128, block.bytes().into())?;
        if !size.is_power_of_two() {
            return Err(error("inode_size", size, Expected::Said("a power of two")));
        }
        if raw.first_ino.get() < 11 {
            return Err(error("first_ino", raw.first_ino, Expected::AtLeast(11)));
        }
    }
    if features.incompat.contains(Incompat::BIT64) {
        let size = raw.desc_size.get();
        within("desc_size", size, 64, 1024)?;
        if !size.is_power_of_two() {
            return Err(error("desc_size", size, Expected::Said("a power of two")));
        }
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) && raw.checksum_type != 1 {
        return Err(error(
            "checksum_type",
            raw.checksum_type,
            Expected::Exactly(1),
        ));
    }
    Ok(())
}

/// Clusters, blocks and inodes of a group, and where group 0 starts.
fn check_clusters(raw: &RawSuperblock, features: Features, block: BlockSize) -> FormatResult<()> {
    let bits = u64::from(block.bytes()) * 8;
    let blocks_per_group = u64::from(raw.blocks_per_group.get());
    let mut ratio = 1;
    if features.ro_compat.contains(RoCompat::BIGALLOC) {
        let (block_log, cluster_log) = (raw.log_block_size.get(), raw.log_cluster_size.get());
        within(
            "log_cluster_size",
            cluster_log,
            block_log.into(),
            LOG_CLUSTER_MAX.into(),
        )?;
        ratio = 1_u64 << (cluster_log - block_log);
        within("clusters_per_group", raw.clusters_per_group, 1, bits)?;
        let expected = u64::from(raw.clusters_per_group.get()) * ratio;
        if blocks_per_group != expected {
            return Err(error(
                "blocks_per_group",
                blocks_per_group,
                Expected::Exactly(expected),
            ));
        }
    } else {
        if raw.log_cluster_size != raw.log_block_size {
            return Err(error(
                "log_cluster_size",
                raw.log_cluster_size,
                Expected::Exactly(raw.log_block_size.get().into()),
            ));
        }
        within("blocks_per_group", raw.blocks_per_group, 1, bits)?;
    }

    let inodes_per_block = u64::from(block.bytes() / inode_size_of(raw));
    within(
        "inodes_per_group",
        raw.inodes_per_group,
        inodes_per_block,
        bits,
    )?;
    // The first KiB is left to boot loaders; with blocks (and clusters) of 1 KiB that is block 0.
    let first = u64::from(ratio == 1 && block == BlockSize::MIN);
    let found = u64::from(raw.first_data_block.get());
    if found != first {
        return Err(error("first_data_block", found, Expected::Exactly(first)));
    }
    Ok(())
}

fn inode_size_of(raw: &RawSuperblock) -> u32 {
    if raw.rev_level.get() == 0 {
        INODE_SIZE_REV0.into()
    } else {
        raw.inode_size.get().into()
    }
}

fn desc_size_of(raw: &RawSuperblock, features: Features) -> u32 {
    if features.incompat.contains(Incompat::BIT64) {
        raw.desc_size.get().into()
    } else {
        32
    }
}

fn blocks_count_of(raw: &RawSuperblock, features: Features) -> u64 {
    wide(raw.blocks_count_lo, raw.blocks_count_hi, features)
}

/// Joins the halves of a block count; the high one counts only with the `64bit` feature.
fn wide(
    lo: zerocopy::little_endian::U32,
    hi: zerocopy::little_endian::U32,
    features: Features,
) -> u64 {
    let hi = if features.incompat.contains(Incompat::BIT64) {
        hi.get()
    } else {
        0
    };
    u64::from(hi) << 32 | u64::from(lo.get())
}

/// Blocks, groups, inodes, descriptor blocks; returns the number of groups.
fn check_counts(raw: &RawSuperblock, features: Features, block: BlockSize) -> FormatResult<u32> {
    let blocks = blocks_count_of(raw, features);
    let first = u64::from(raw.first_data_block.get());
    // The superblock itself must lie inside.
    within("blocks_count", blocks, first.max(1) + 1, BLOCKS_MAX)?;
    let groups = (blocks - first).div_ceil(raw.blocks_per_group.get().into());
    let inodes_per_group = u64::from(raw.inodes_per_group.get());
    let Ok(groups) = u32::try_from(groups) else {
        let most = (u64::from(u32::MAX)) * u64::from(raw.blocks_per_group.get());
        return Err(error("blocks_count", blocks, Expected::AtMost(most)));
    };
    let inodes = u64::from(groups).saturating_mul(inodes_per_group);
    if u64::from(raw.inodes_count.get()) != inodes {
        return Err(error(
            "inodes_count",
            raw.inodes_count,
            Expected::Exactly(inodes),
        ));
    }
    let reserved_max = u64::from(block.bytes() / 4);
    within(
        "reserved_gdt_blocks",
        raw.reserved_gdt_blocks,
        0,
        reserved_max,
    )?;
    if features.incompat.contains(Incompat::META_BG) {
        let per_block = block.bytes() / desc_size_of(raw, features);
        let desc_blocks = groups.div_ceil(per_block.max(1));
        within("first_meta_bg", raw.first_meta_bg, 0, desc_blocks.into())?;
    }
    if features.incompat.contains(Incompat::FLEX_BG) {
        within("log_groups_per_flex", raw.log_groups_per_flex, 0, 31)?;
    }
    Ok(groups)
}

/// Inode numbers the superblock names must exist.
fn check_reserved_inodes(raw: &RawSuperblock, features: Features) -> FormatResult<()> {
    let most = u64::from(raw.inodes_count.get());
    if raw.rev_level.get() > 0 {
        within("first_ino", raw.first_ino, 11, most.max(11))?;
    }
    if features.compat.contains(Compat::HAS_JOURNAL) {
        within("journal_inum", raw.journal_inum, 0, most)?;
    }
    if features.compat.contains(Compat::ORPHAN_FILE) {
        within("orphan_file_inum", raw.orphan_file_inum, 0, most)?;
    }
    if features.ro_compat.contains(RoCompat::QUOTA) {
        within("usr_quota_inum", raw.usr_quota_inum, 0, most)?;
        within("grp_quota_inum", raw.grp_quota_inum, 0, most)?;
        within("prj_quota_inum", raw.prj_quota_inum, 0, most)?;
    }
    Ok(())
}
