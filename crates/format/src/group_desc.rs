//! Block group descriptors of 32 and 64 bytes.
//!
//! A [`GroupDesc`] joins the low and high halves. Larger descriptors (`desc_size` up to 1024)
//! keep whatever lies past byte 64.
//!
//! Source: "Block Group Descriptors" in the kernel's ext4 documentation.

use crate::checksum::{Crc32c, crc16};
use crate::error::{Expected, FormatError, FormatResult, Structure};
use crate::geometry::Geometry;
use crate::side_by_side::update_numbered;
use crate::types::{Group, Pblk};
use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a descriptor without the `64bit` feature.
pub const DESC_LEN_32: usize = 32;
/// Bytes in a descriptor that are defined with the `64bit` feature.
pub const DESC_LEN_64: usize = 64;
/// Offset of the 16-bit checksum.
const CHECKSUM_OFFSET: usize = 0x1e;

bitflags! {
    /// Flags of a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table were never written: all inodes are free.
        const INODE_UNINIT = 0x1;
        /// The block bitmap was never written: only fixed metadata is used.
        const BLOCK_UNINIT = 0x2;
        /// The inode table has been zeroed.
        const INODE_ZEROED = 0x4;
        const _ = !0;
    }
}

/// The low 32 bytes, as stored.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLow {
    block_bitmap: U32,
    inode_bitmap: U32,
    inode_table: U32,
    free_blocks: U16,
    free_inodes: U16,
    used_dirs: U16,
    flags: U16,
    exclude_bitmap: U32,
    block_bitmap_csum: U16,
    inode_bitmap_csum: U16,
    itable_unused: U16,
    checksum: U16,
}

/// The high 32 bytes, as stored.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHigh {
    block_bitmap: U32,
    inode_bitmap: U32,
    inode_table: U32,
    free_blocks: U16,
    free_inodes: U16,
    used_dirs: U16,
    itable_unused: U16,
    exclude_bitmap: U32,
    block_bitmap_csum: U16,
    inode_bitmap_csum: U16,
    reserved: U32,
}

const _: () = assert!(core::mem::size_of::<RawLow>() == DESC_LEN_32);
const _: () = assert!(core::mem::size_of::<RawHigh>() == DESC_LEN_64 - DESC_LEN_32);

/// How descriptors of a file system are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescChecksum {
    /// Not at all.
    None,
    /// CRC16 over UUID, group number and descriptor (`uninit_bg`).
    Crc16 {
        /// UUID of the file system.
        uuid: [u8; 16],
    },
    /// Low half of CRC32C over group number and descriptor (`metadata_csum`).
    Crc32c {
        /// Checksum seed of the file system.
        seed: u32,
    },
}

impl DescChecksum {
    /// Returns the checksum of the descriptor of `group`, whose own checksum field is ignored.
    /// `None` if descriptors carry none or `desc` is too short to be one.
    #[must_use]
    pub fn compute(&self, group: Group, desc: &[u8]) -> Option<u16> {
        let (before, rest) = desc.split_at_checked(CHECKSUM_OFFSET)?;
        let after = rest.get(2..)?;
        match self {
            Self::None => None,
            Self::Crc16 { uuid } => Some(crc16(&[uuid, &group.get().to_le_bytes(), before, after])),
            Self::Crc32c { seed } => {
                let state = Crc32c::seeded(*seed);
                let state = match <&[u8; DESC_LEN_64]>::try_from(desc) {
                    Ok(desc) => update_numbered(state, group.get(), &words_without_checksum(desc)),
                    Err(_) => state
                        .update_u32(group.get())
                        .update(before)
                        .update_zeros(2)
                        .update(after),
                };
                Some(state.low16())
            }
        }
    }
}

/// The words of a descriptor, with zeros where its checksum is.
fn words_without_checksum(desc: &[u8; DESC_LEN_64]) -> [u64; DESC_LEN_64 / 8] {
    const AT: usize = CHECKSUM_OFFSET / 8;
    const CHECKSUM: u64 = 0xffff << (CHECKSUM_OFFSET % 8 * 8);
    let (bytes, _) = desc.as_chunks::<8>();
    core::array::from_fn(|at| {
        let word = bytes.get(at).map_or(0, |word| u64::from_le_bytes(*word));
        if at == AT { word & !CHECKSUM } else { word }
    })
}

/// A group descriptor, with the halves of its fields joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GroupDesc {
    /// Block of the block bitmap.
    pub block_bitmap: Pblk,
    /// Block of the inode bitmap.
    pub inode_bitmap: Pblk,
    /// First block of the inode table.
    pub inode_table: Pblk,
    /// Free clusters in the group.
    pub free_clusters: u32,
    /// Free inodes in the group.
    pub free_inodes: u32,
    /// Directories in the group.
    pub used_dirs: u32,
    /// Flags.
    pub flags: GroupFlags,
    /// Snapshot exclude bitmap (never merged); kept as read.
    pub exclude_bitmap: u64,
    /// Checksum of the block bitmap; 16 bits with descriptors of 32 bytes.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap; 16 bits with descriptors of 32 bytes.
    pub inode_bitmap_csum: u32,
    /// Inodes at the end of the group's table that were never used.
    pub itable_unused: u32,
    /// The last word of a 64-byte descriptor; kept as read.
    pub reserved: u32,
}

/// A group's descriptor as it lies, and how far it can be trusted.
#[derive(Clone, Copy, Debug)]
pub struct GroupState {
    /// The numbers as they are stored; zeros where there were too few bytes.
    pub desc: GroupDesc,
    /// The checksum is right, so that flags and numbers which save work may be believed. Never
    /// where descriptors have none.
    pub trusted: bool,
    /// Bitmaps and table lie inside the file system.
    pub located: bool,
}

/// What is wrong with a group's descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupFaults {
    /// Its checksum.
    pub checksum: Option<FormatError>,
    /// Where bitmaps and table are said to lie.
    pub location: Option<FormatError>,
}

impl GroupState {
    /// Reads the descriptor of `group` as well as it can be read, and returns what is wrong with
    /// it.
    #[must_use]
    pub fn read(
        bytes: &[u8],
        group: Group,
        checksum: &DescChecksum,
        geometry: &Geometry,
    ) -> (Self, GroupFaults) {
        let desc = GroupDesc::parse_unverified(bytes).unwrap_or_default();
        let faults = GroupFaults {
            checksum: GroupDesc::parse(bytes, group, checksum).err(),
            location: desc.validate(group, geometry).err(),
        };
        let state = Self {
            desc,
            trusted: *checksum != DescChecksum::None && faults.checksum.is_none(),
            located: faults.location.is_none(),
        };
        (state, faults)
    }

    /// Returns whether the descriptor has the flags, and can be believed.
    #[must_use]
    pub fn says(&self, flags: GroupFlags) -> bool {
        self.trusted && self.desc.flags.contains(flags)
    }

    /// Returns how many inodes at the end of the table were never used, as far as that can be
    /// believed.
    #[must_use]
    pub fn unused_inodes(&self) -> u32 {
        if self.trusted {
            self.desc.itable_unused
        } else {
            0
        }
    }
}

fn join(lo: impl Into<u32>, hi: impl Into<u32>) -> u32 {
    lo.into() | hi.into() << 16
}

fn block(lo: U32, hi: U32) -> u64 {
    u64::from(hi.get()) << 32 | u64::from(lo.get())
}

impl GroupDesc {
    /// Reads the descriptor of `group` from exactly its bytes and checks its checksum.
    ///
    /// The numbers are as stored: see [`GroupDesc::validate`] and [`GroupDesc::validate_counts`].
    ///
    /// # Errors
    /// Too few bytes, or a wrong checksum.
    pub fn parse(bytes: &[u8], group: Group, checksum: &DescChecksum) -> FormatResult<Self> {
        let (desc, stored) = Self::split(bytes)?;
        if let Some(computed) = checksum.compute(group, bytes)
            && computed != stored
        {
            return Err(FormatError::checksum(
                Structure::GroupDescriptor,
                stored.into(),
                computed.into(),
            )
            .at(CHECKSUM_OFFSET));
        }
        Ok(desc)
    }

    /// Reads as [`GroupDesc::parse`] does, without looking at the checksum.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn parse_unverified(bytes: &[u8]) -> FormatResult<Self> {
        Ok(Self::split(bytes)?.0)
    }

    fn split(bytes: &[u8]) -> FormatResult<(Self, u16)> {
        let Ok((low, rest)) = RawLow::read_from_prefix(bytes) else {
            return Err(FormatError::short(
                Structure::GroupDescriptor,
                bytes.len(),
                DESC_LEN_32,
            ));
        };
        let high = RawHigh::read_from_prefix(rest).map_or_else(|_| RawHigh::new_zeroed(), |h| h.0);
        let desc = Self {
            block_bitmap: Pblk::new(block(low.block_bitmap, high.block_bitmap)),
            inode_bitmap: Pblk::new(block(low.inode_bitmap, high.inode_bitmap)),
            inode_table: Pblk::new(block(low.inode_table, high.inode_table)),
            free_clusters: join(low.free_blocks, high.free_blocks),
            free_inodes: join(low.free_inodes, high.free_inodes),
            used_dirs: join(low.used_dirs, high.used_dirs),
            flags: GroupFlags::from_bits_retain(low.flags.get()),
            exclude_bitmap: block(low.exclude_bitmap, high.exclude_bitmap),
            block_bitmap_csum: join(low.block_bitmap_csum, high.block_bitmap_csum),
            inode_bitmap_csum: join(low.inode_bitmap_csum, high.inode_bitmap_csum),
            itable_unused: join(low.itable_unused, high.itable_unused),
            reserved: high.reserved.get(),
        };
        Ok((desc, low.checksum.get()))
    }

    /// Writes the descriptor of `group` into exactly its bytes (32, or `desc_size` with the
    /// `64bit` feature), with its checksum. Bytes past the 64th stay what they are.
    ///
    /// With 32 bytes the high halves are not stored.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn encode(
        &self,
        bytes: &mut [u8],
        group: Group,
        checksum: &DescChecksum,
    ) -> FormatResult<()> {
        let len = bytes.len();
        let low = RawLow {
            block_bitmap: U32::new(self.block_bitmap.get() as u32),
            inode_bitmap: U32::new(self.inode_bitmap.get() as u32),
            inode_table: U32::new(self.inode_table.get() as u32),
            free_blocks: U16::new(self.free_clusters as u16),
            free_inodes: U16::new(self.free_inodes as u16),
            used_dirs: U16::new(self.used_dirs as u16),
            flags: U16::new(self.flags.bits()),
            exclude_bitmap: U32::new(self.exclude_bitmap as u32),
            block_bitmap_csum: U16::new(self.block_bitmap_csum as u16),
            inode_bitmap_csum: U16::new(self.inode_bitmap_csum as u16),
            itable_unused: U16::new(self.itable_unused as u16),
            checksum: U16::ZERO,
        };
        if low.write_to_prefix(bytes).is_err() {
            return Err(FormatError::short(
                Structure::GroupDescriptor,
                len,
                DESC_LEN_32,
            ));
        }
        if let Some(rest) = bytes.get_mut(DESC_LEN_32..DESC_LEN_64) {
            rest.copy_from_slice(self.high().as_bytes());
        }
        if let Some(value) = checksum.compute(group, bytes) {
            bytes[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn high(&self) -> RawHigh {
        let upper = |value: u32| U16::new((value >> 16) as u16);
        let wide = |value: u64| U32::new((value >> 32) as u32);
        RawHigh {
            block_bitmap: wide(self.block_bitmap.get()),
            inode_bitmap: wide(self.inode_bitmap.get()),
            inode_table: wide(self.inode_table.get()),
            free_blocks: upper(self.free_clusters),
            free_inodes: upper(self.free_inodes),
            used_dirs: upper(self.used_dirs),
            itable_unused: upper(self.itable_unused),
            exclude_bitmap: wide(self.exclude_bitmap),
            block_bitmap_csum: upper(self.block_bitmap_csum),
            inode_bitmap_csum: upper(self.inode_bitmap_csum),
            reserved: U32::new(self.reserved),
        }
    }

    /// Checks that the bitmaps and the inode table of `group` lie in the file system (in the
    /// group itself without `flex_bg`), clear of the superblock and the primary descriptors.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn validate(&self, group: Group, geometry: &Geometry) -> FormatResult<()> {
        let (first, last) = if geometry.has_flex_bg() {
            (
                geometry.first_data_block().get(),
                geometry.blocks_count() - 1,
            )
        } else {
            (
                geometry.group_first_block(group)?.get(),
                geometry.group_last_block(group)?.get(),
            )
        };
        // The primary superblock and its descriptors can be nobody else's.
        let first = first.max(geometry.primary_metadata_end());
        let table = u64::from(geometry.inode_table_blocks());
        for (field, block, len) in [
            ("block_bitmap", self.block_bitmap, 1),
            ("inode_bitmap", self.inode_bitmap, 1),
            ("inode_table", self.inode_table, table),
        ] {
            let most = (last + 1).saturating_sub(len);
            if !(first..=most).contains(&block.get()) {
                return Err(Self::error(
                    field,
                    block.get(),
                    Expected::Between(first, most),
                ));
            }
        }
        Ok(())
    }

    /// Checks that no count exceeds what the group has.
    ///
    /// Counts may be wrong without anything else being wrong: a reader can do without them.
    ///
    /// # Errors
    /// The first count that is too large.
    pub fn validate_counts(&self, group: Group, geometry: &Geometry) -> FormatResult<()> {
        let inodes = geometry.inodes_per_group();
        for (field, found, most) in [
            (
                "free_blocks_count",
                self.free_clusters,
                geometry.clusters_in_group(group)?,
            ),
            ("free_inodes_count", self.free_inodes, inodes),
            ("used_dirs_count", self.used_dirs, inodes),
            ("itable_unused", self.itable_unused, inodes),
        ] {
            if found > most {
                return Err(Self::error(
                    field,
                    found.into(),
                    Expected::AtMost(most.into()),
                ));
            }
        }
        Ok(())
    }

    fn error(field: &'static str, found: u64, expected: Expected) -> FormatError {
        FormatError::new(Structure::GroupDescriptor, field, found, expected)
    }

    /// Returns whether `computed` is the stored checksum of the block bitmap, as far as descriptors
    /// of `desc_size` bytes store it.
    #[must_use]
    pub fn block_bitmap_csum_matches(&self, computed: u32, desc_size: u32) -> bool {
        bitmap_csum_matches(self.block_bitmap_csum, computed, desc_size)
    }

    /// Returns whether `computed` is the stored checksum of the inode bitmap, as far as descriptors
    /// of `desc_size` bytes store it.
    #[must_use]
    pub fn inode_bitmap_csum_matches(&self, computed: u32, desc_size: u32) -> bool {
        bitmap_csum_matches(self.inode_bitmap_csum, computed, desc_size)
    }
}

fn bitmap_csum_matches(stored: u32, computed: u32, desc_size: u32) -> bool {
    let mask = if desc_size as usize >= DESC_LEN_64 {
        u32::MAX
    } else {
        0xffff
    };
    (stored ^ computed) & mask == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_number_and_bytes_whatever_the_length() {
        let bytes: [u8; 128] = core::array::from_fn(|i| (i * 7 + 3) as u8);
        let checksum = DescChecksum::Crc32c { seed: 0x1234_5678 };
        for (len, number) in [(32, 0), (63, 9), (64, 0x00c0_ffee), (65, 1), (128, 7)] {
            let mut cleared = bytes;
            cleared[CHECKSUM_OFFSET] = 0;
            cleared[CHECKSUM_OFFSET + 1] = 0;
            let state = Crc32c::seeded(0x1234_5678).update_u32(number);
            let expected = state.update(&cleared[..len]).low16();
            let computed = checksum.compute(Group::new(number), &bytes[..len]);
            assert_eq!(computed, Some(expected), "{len}");
        }
        assert_eq!(checksum.compute(Group::new(0), &bytes[..31]), None);
    }
}
