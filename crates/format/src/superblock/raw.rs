//! The superblock's bytes, field by field.

use crate::types::Ino;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in an inode of revision 0.
pub(super) const INODE_SIZE_REV0: u16 = 128;

/// The 1024 bytes of a superblock. Nothing is checked here; see [`super::Superblock`].
///
/// Names are the kernel documentation's without the `s_` prefix. Times are seconds since 1970;
/// `*_hi` fields extend the field of the same name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    /// Inodes in the file system.
    pub inodes_count: U32,
    /// Blocks in the file system, low 32 bits.
    pub blocks_count_lo: U32,
    /// Blocks only privileged users may take, low 32 bits.
    pub r_blocks_count_lo: U32,
    /// Free blocks, low 32 bits.
    pub free_blocks_count_lo: U32,
    /// Free inodes.
    pub free_inodes_count: U32,
    /// The block that group 0 starts at: 1 with blocks of 1 KiB, otherwise 0.
    pub first_data_block: U32,
    /// Block size is `1024 << log_block_size`.
    pub log_block_size: U32,
    /// Cluster size is `1024 << log_cluster_size`.
    pub log_cluster_size: U32,
    /// Blocks in a group.
    pub blocks_per_group: U32,
    /// Clusters in a group.
    pub clusters_per_group: U32,
    /// Inodes in a group.
    pub inodes_per_group: U32,
    /// Last mount.
    pub mtime: U32,
    /// Last write of the superblock.
    pub wtime: U32,
    /// Mounts since the last check.
    pub mnt_count: U16,
    /// Mounts after which a check is due; negative for never.
    pub max_mnt_count: U16,
    /// 0xef53.
    pub magic: U16,
    /// Clean, with errors, with orphans.
    pub state: U16,
    /// What to do when an error is found.
    pub errors: U16,
    /// Minor revision.
    pub minor_rev_level: U16,
    /// Last check.
    pub lastcheck: U32,
    /// Seconds after which a check is due; 0 for never.
    pub checkinterval: U32,
    /// Operating system that made it.
    pub creator_os: U32,
    /// 0: fixed inode size and no features; 1: everything else.
    pub rev_level: U32,
    /// User that may take reserved blocks.
    pub def_resuid: U16,
    /// Group that may take reserved blocks.
    pub def_resgid: U16,
    /// First inode that is not reserved.
    pub first_ino: U32,
    /// Bytes in an inode.
    pub inode_size: U16,
    /// The group this copy of the superblock lies in.
    pub block_group_nr: U16,
    /// Compatible features.
    pub feature_compat: U32,
    /// Incompatible features.
    pub feature_incompat: U32,
    /// Features compatible with reading.
    pub feature_ro_compat: U32,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// Label, ended by a NUL if shorter.
    pub volume_name: [u8; 16],
    /// Where it was mounted last.
    pub last_mounted: [u8; 64],
    /// Compression algorithms (never used).
    pub algorithm_usage_bitmap: U32,
    /// Blocks to preallocate for files (never used).
    pub prealloc_blocks: u8,
    /// Blocks to preallocate for directories (never used).
    pub prealloc_dir_blocks: u8,
    /// Blocks reserved behind the descriptors for growth.
    pub reserved_gdt_blocks: U16,
    /// UUID of the journal.
    pub journal_uuid: [u8; 16],
    /// Inode of the journal.
    pub journal_inum: U32,
    /// Device number of an external journal.
    pub journal_dev: U32,
    /// Head of the list of orphaned inodes.
    pub last_orphan: U32,
    /// Seed of the directory hash.
    pub hash_seed: [U32; 4],
    /// Default directory hash.
    pub def_hash_version: u8,
    /// 1 if `jnl_blocks` holds a copy of the journal inode's map.
    pub jnl_backup_type: u8,
    /// Bytes in a group descriptor with the `64bit` feature.
    pub desc_size: U16,
    /// Default mount options.
    pub default_mount_opts: U32,
    /// First meta block group.
    pub first_meta_bg: U32,
    /// Creation.
    pub mkfs_time: U32,
    /// Copy of the journal inode: 15 words of its map, then the high and low size.
    pub jnl_blocks: [U32; 17],
    /// Blocks in the file system, high 32 bits.
    pub blocks_count_hi: U32,
    /// Reserved blocks, high 32 bits.
    pub r_blocks_count_hi: U32,
    /// Free blocks, high 32 bits.
    pub free_blocks_count_hi: U32,
    /// Bytes all inodes have past their first 128.
    pub min_extra_isize: U16,
    /// Bytes new inodes should have past their first 128.
    pub want_extra_isize: U16,
    /// Signedness of hashes, development state.
    pub flags: U32,
    /// RAID stride, in blocks.
    pub raid_stride: U16,
    /// Seconds between multiple-mount protection updates.
    pub mmp_update_interval: U16,
    /// The multiple-mount protection block.
    pub mmp_block: U64,
    /// Blocks on all data disks of a stripe.
    pub raid_stripe_width: U32,
    /// Groups in a flexible group, as a logarithm.
    pub log_groups_per_flex: u8,
    /// 1 for CRC32C.
    pub checksum_type: u8,
    /// Encryption version level.
    pub encryption_level: u8,
    /// Padding.
    pub reserved_pad: u8,
    /// KiB written over the file system's life.
    pub kbytes_written: U64,
    /// Inode of the active snapshot (never merged).
    pub snapshot_inum: U32,
    /// Number of the active snapshot (never merged).
    pub snapshot_id: U32,
    /// Blocks reserved for the active snapshot (never merged).
    pub snapshot_r_blocks_count: U64,
    /// Head of the list of snapshots (never merged).
    pub snapshot_list: U32,
    /// Errors seen.
    pub error_count: U32,
    /// First error.
    pub first_error_time: U32,
    /// Inode in the first error.
    pub first_error_ino: U32,
    /// Block in the first error.
    pub first_error_block: U64,
    /// Function that saw the first error.
    pub first_error_func: [u8; 32],
    /// Source line that saw the first error.
    pub first_error_line: U32,
    /// Last error.
    pub last_error_time: U32,
    /// Inode in the last error.
    pub last_error_ino: U32,
    /// Source line that saw the last error.
    pub last_error_line: U32,
    /// Block in the last error.
    pub last_error_block: U64,
    /// Function that saw the last error.
    pub last_error_func: [u8; 32],
    /// Mount options as text.
    pub mount_opts: [u8; 64],
    /// Inode of user quota.
    pub usr_quota_inum: U32,
    /// Inode of group quota.
    pub grp_quota_inum: U32,
    /// Clusters of fixed metadata, or 0 if unknown.
    pub overhead_clusters: U32,
    /// The two groups with backups under `sparse_super2`.
    pub backup_bgs: [U32; 2],
    /// Encryption algorithms in use.
    pub encrypt_algos: [u8; 4],
    /// Salt of the encryption password.
    pub encrypt_pw_salt: [u8; 16],
    /// Inode of lost+found.
    pub lpf_ino: U32,
    /// Inode of project quota.
    pub prj_quota_inum: U32,
    /// Seed of all checksums under `metadata_csum_seed`.
    pub checksum_seed: U32,
    /// High byte of `wtime`.
    pub wtime_hi: u8,
    /// High byte of `mtime`.
    pub mtime_hi: u8,
    /// High byte of `mkfs_time`.
    pub mkfs_time_hi: u8,
    /// High byte of `lastcheck`.
    pub lastcheck_hi: u8,
    /// High byte of `first_error_time`.
    pub first_error_time_hi: u8,
    /// High byte of `last_error_time`.
    pub last_error_time_hi: u8,
    /// Error code of the first error.
    pub first_error_errcode: u8,
    /// Error code of the last error.
    pub last_error_errcode: u8,
    /// Character encoding of file names under `casefold`.
    pub encoding: U16,
    /// Flags of the character encoding.
    pub encoding_flags: U16,
    /// Inode of the orphan file.
    pub orphan_file_inum: U32,
    /// High half of `def_resuid`.
    pub def_resuid_hi: U16,
    /// High half of `def_resgid`.
    pub def_resgid_hi: U16,
    /// Unused.
    pub reserved: [U32; 93],
    /// CRC32C of everything before, under `metadata_csum`.
    pub checksum: U32,
}

impl RawSuperblock {
    /// Makes a superblock of zeros, to be filled in.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Makes a superblock of revision 0 one of revision 1, with the size of inodes and the first
    /// one of users that revision 0 stands for. Linux and e2fsprogs do so before they set a
    /// feature.
    pub fn raise_revision(&mut self) {
        self.rev_level.set(1);
        self.inode_size.set(INODE_SIZE_REV0);
        self.first_ino.set(Ino::FIRST_REV0.get());
    }
}

const _: () = assert!(core::mem::size_of::<RawSuperblock>() == super::SUPERBLOCK_LEN);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, hash_seed) == 0xec);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, jnl_blocks) == 0x10c);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, mount_opts) == 0x200);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, checksum_seed) == 0x270);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, orphan_file_inum) == 0x280);
