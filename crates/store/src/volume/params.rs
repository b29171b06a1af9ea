//! What every operation asks of the superblock and the device, worked out once.

use extant_blockdev::SharedDevice;
use extant_format::BlockSize;
use extant_format::checksum::Crc32c;
use extant_format::features::{Incompat, RoCompat};
use extant_format::geometry::Geometry;
use extant_format::superblock::Superblock;

/// Params of the superblock and of the device that every operation asks for, worked out once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Params {
    pub(super) block_size: BlockSize,
    pub(super) inode_size: u16,
    pub(super) seed: Option<Crc32c>,
    pub(super) large_dir: bool,
    pub(super) huge_file: bool,
    pub(super) counts_usage: bool,
    pub(super) first_block: u64,
    pub(super) end_block: u64,
    pub(super) sector: u32,
}

impl Params {
    pub(super) fn new(superblock: &Superblock, geometry: &Geometry, device: &SharedDevice) -> Self {
        Self {
            sector: device.logical_sector(),
            block_size: superblock.block_size(),
            // At most the block size, and checked to be at most 64 KiB less one by the format.
            inode_size: u16::try_from(superblock.inode_size()).unwrap_or(u16::MAX),
            seed: superblock
                .has_metadata_csum()
                .then(|| Crc32c::seeded(superblock.checksum_seed())),
            large_dir: superblock.has_incompat(Incompat::LARGEDIR),
            huge_file: superblock.has_ro_compat(RoCompat::HUGE_FILE),
            counts_usage: superblock.has_ro_compat(RoCompat::QUOTA),
            // The superblock's own block belongs to nobody else.
            first_block: geometry.first_data_block().get().saturating_add(1),
            end_block: geometry.blocks_count(),
        }
    }
}
