//! The footer of a VHD and the header of a dynamic one: fields, checksums, geometry.

use crate::CreateHow;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a sector.
pub(super) const SECTOR: u64 = 512;

/// What a footer begins with.
pub(super) const COOKIE: &[u8; 8] = b"conectix";

/// What the header of a dynamic disk begins with.
const HEADER_COOKIE: &[u8; 8] = b"cxsparse";

/// The version of both structures.
const VERSION: u32 = 0x0001_0000;

/// An offset that says that there is nothing.
const NOWHERE: u64 = u64::MAX;

/// Seconds from 1970 to 2000, from where a VHD counts.
const EPOCH: u64 = 946_684_800;

/// Sectors that the largest geometry has: 65,535 cylinders, 16 heads, 255 sectors.
const MOST_BY_GEOMETRY: u64 = 65_535 * 16 * 255;

/// Programs that mean the size in the footer, not the product of the geometry. QEMU decides by this
/// field, and these are the ones it takes so.
const EXACT: [&[u8; 4]; 6] = [b"qem2", b"win ", b"d2v ", b"tap\0", b"CTXS", b"wa\0\0"];

/// What kind of disk it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskType {
    Fixed = 2,
    Dynamic = 3,
    Differencing = 4,
}

/// The last sector of every VHD, and the first of a dynamic one.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Footer {
    cookie: [u8; 8],
    features: U32,
    version: U32,
    data_offset: U64,
    time: U32,
    creator: [u8; 4],
    creator_version: U32,
    creator_host: [u8; 4],
    original_size: U64,
    current_size: U64,
    cylinders: U16,
    heads: u8,
    sectors: u8,
    kind: U32,
    checksum: U32,
    uuid: [u8; 16],
    saved: u8,
    reserved: [u8; 427],
}

impl Footer {
    /// The footer of a new disk of `size` bytes.
    pub(super) fn new(kind: DiskType, size: u64, how: &CreateHow) -> Self {
        let (cylinders, heads, sectors) = geometry(size / SECTOR);
        let time = how.time.saturating_sub(EPOCH);
        let mut footer = Self {
            cookie: *COOKIE,
            // A bit that is always set.
            features: U32::new(2),
            version: U32::new(VERSION),
            data_offset: U64::new(match kind {
                DiskType::Fixed => NOWHERE,
                _ => SECTOR,
            }),
            time: U32::new(u32::try_from(time).unwrap_or(u32::MAX)),
            // The size is exact.
            creator: *b"qem2",
            creator_version: U32::new(VERSION),
            creator_host: *b"Wi2k",
            original_size: U64::new(size),
            current_size: U64::new(size),
            cylinders: U16::new(cylinders),
            heads,
            sectors,
            kind: U32::new(kind as u32),
            checksum: U32::ZERO,
            uuid: how
                .uuid
                .unwrap_or_else(|| uuid::Uuid::new_v4().into_bytes()),
            saved: 0,
            reserved: [0; 427],
        };
        footer.checksum = U32::new(checksum(footer.as_bytes()));
        footer
    }

    /// Takes a sector apart. What is wrong is said in words.
    pub(super) fn parse(sector: &[u8; SECTOR as usize]) -> Result<Self, String> {
        // A footer is as long as a sector.
        let footer: Self = zerocopy::transmute!(*sector);
        if footer.cookie != *COOKIE {
            return Err("the mark is missing".to_owned());
        }
        check_sum(footer.as_bytes(), footer.checksum, 64)?;
        check_version(footer.version)?;
        Ok(footer)
    }

    pub(super) fn kind(&self) -> Option<DiskType> {
        Some(match self.kind.get() {
            2 => DiskType::Fixed,
            3 => DiskType::Dynamic,
            4 => DiskType::Differencing,
            _ => return None,
        })
    }

    /// Whether it is that of a fixed disk with so many bytes in front of it.
    pub(super) fn is_fixed_of(&self, bytes: u64) -> bool {
        self.kind() == Some(DiskType::Fixed) && bytes > 0 && self.current_size() == bytes
    }

    pub(super) fn kind_number(&self) -> u32 {
        self.kind.get()
    }

    /// Where the header of a dynamic disk is, in bytes.
    pub(super) fn data_offset(&self) -> u64 {
        self.data_offset.get()
    }

    /// The size in the footer, in bytes, whatever the geometry says.
    pub(super) fn current_size(&self) -> u64 {
        self.current_size.get()
    }

    /// Bytes of the disk. Some programs go by the geometry, some by the size: QEMU tells them apart
    /// by the name of the program that made the image, and so is done here.
    pub(super) fn disk_size(&self) -> u64 {
        let by_geometry =
            u64::from(self.cylinders.get()) * u64::from(self.heads) * u64::from(self.sectors);
        let is_exact = EXACT.iter().any(|name| **name == self.creator);
        if is_exact || by_geometry == MOST_BY_GEOMETRY {
            self.current_size.get() / SECTOR * SECTOR
        } else {
            by_geometry * SECTOR
        }
    }
}

/// The header of a dynamic disk.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    cookie: [u8; 8],
    data_offset: U64,
    table_offset: U64,
    version: U32,
    entries: U32,
    block_size: U32,
    checksum: U32,
    parent_uuid: [u8; 16],
    parent_time: U32,
    reserved: U32,
    parent_name: [u8; 512],
    parent_locators: [u8; 192],
    reserved_end: [u8; 256],
}

/// Bytes of the header.
pub(super) const HEADER: usize = size_of::<Header>();

impl Header {
    /// The header of a new disk, with its table at byte `table_offset`.
    pub(super) fn new(table_offset: u64, entries: u32, block_size: u32) -> Self {
        let mut header = Self {
            cookie: *HEADER_COOKIE,
            data_offset: U64::new(NOWHERE),
            table_offset: U64::new(table_offset),
            version: U32::new(VERSION),
            entries: U32::new(entries),
            block_size: U32::new(block_size),
            checksum: U32::ZERO,
            parent_uuid: [0; 16],
            parent_time: U32::ZERO,
            reserved: U32::ZERO,
            parent_name: [0; 512],
            parent_locators: [0; 192],
            reserved_end: [0; 256],
        };
        header.checksum = U32::new(checksum(header.as_bytes()));
        header
    }

    /// Takes the bytes of a header apart. What is wrong is said in words.
    pub(super) fn parse(bytes: &[u8; HEADER]) -> Result<Self, String> {
        let header: Self = zerocopy::transmute!(*bytes);
        if header.cookie != *HEADER_COOKIE {
            return Err("the mark of the header is missing".to_owned());
        }
        check_sum(header.as_bytes(), header.checksum, 36)?;
        check_version(header.version)?;
        Ok(header)
    }

    /// Where the table of blocks is, in bytes.
    pub(super) fn table_offset(&self) -> u64 {
        self.table_offset.get()
    }

    /// Entries of the table.
    pub(super) fn entries(&self) -> u32 {
        self.entries.get()
    }

    /// Bytes of a block.
    pub(super) fn block_size(&self) -> u32 {
        self.block_size.get()
    }
}

/// The one's complement of the sum of all bytes; those of the checksum itself are zero.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(0, |sum: u32, &byte| sum.wrapping_add(u32::from(byte)))
}

/// Compares the checksum, whose four bytes are at `at`.
fn check_sum(bytes: &[u8], stored: U32, at: usize) -> Result<(), String> {
    let own = bytes[at..at + 4]
        .iter()
        .fold(0, |sum: u32, &byte| sum + u32::from(byte));
    let computed = checksum(bytes).wrapping_add(own);
    let stored = stored.get();
    if stored == computed {
        Ok(())
    } else {
        Err(format!(
            "the checksum is {stored:#010x}, and {computed:#010x} was expected"
        ))
    }
}

fn check_version(version: U32) -> Result<(), String> {
    if version.get() >> 16 == VERSION >> 16 {
        Ok(())
    } else {
        Err(format!(
            "the version is {:#x}, and 0x10000 was expected",
            version.get()
        ))
    }
}

/// Cylinders, heads and sectors of a disk of so many sectors, as in the specification's appendix.
/// Their product is at most the number of sectors.
fn geometry(sectors: u64) -> (u16, u8, u8) {
    let sectors = sectors.min(MOST_BY_GEOMETRY);
    let (mut by_track, mut heads, mut tracks);
    if sectors >= 65_535 * 16 * 63 {
        (by_track, heads) = (255, 16);
        tracks = sectors / by_track;
    } else {
        by_track = 17;
        tracks = sectors / by_track;
        heads = tracks.div_ceil(1024).max(4);
        if tracks >= heads * 1024 || heads > 16 {
            (by_track, heads) = (31, 16);
            tracks = sectors / by_track;
        }
        if tracks >= heads * 1024 {
            (by_track, heads) = (63, 16);
            tracks = sectors / by_track;
        }
    }
    // Each fits: at most 65,535 cylinders follow from the limit of sectors.
    ((tracks / heads) as u16, heads as u8, by_track as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometries_are_those_that_qemu_gives() {
        // From footers that `qemu-img create -f vpc -o force_size=off` wrote: the sectors of the
        // file, and what the footer says of them.
        for (sectors, expected) in [
            (68, (1, 4, 17)),
            (10_268, (151, 4, 17)),
            (131_104, (964, 8, 17)),
            (2_097_648, (2081, 16, 63)),
        ] {
            assert_eq!(geometry(sectors), expected);
        }
        assert_eq!(geometry(1 << 32), (65_535, 16, 255));
    }

    #[test]
    fn structures_have_their_sizes_and_places() {
        assert_eq!((size_of::<Footer>(), HEADER), (512, 1024));
        assert_eq!(std::mem::offset_of!(Footer, checksum), 64);
        assert_eq!(std::mem::offset_of!(Header, checksum), 36);
        let footer = Footer::new(DiskType::Fixed, 4096, &CreateHow::default());
        let mut sector: [u8; 512] = zerocopy::transmute!(footer);
        assert!(Footer::parse(&sector).is_ok());
        for at in 0..sector.len() {
            sector[at] ^= 0x41;
            assert!(Footer::parse(&sector).is_err(), "byte {at}");
            sector[at] ^= 0x41;
        }
    }
}
