//! What a checked superblock says, in types.

use super::{Superblock, blocks_count_of, desc_size_of, features_of, inode_size_of, wide};
use crate::checksum::Crc32c;
use crate::dir::HashVersion;
use crate::error::FormatResult;
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::group_desc::DescChecksum;
use crate::types::{BlockSize, Ino, Pblk};
use bitflags::bitflags;
use zerocopy::little_endian::U32;

bitflags! {
    /// State of the file system.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct State: u16 {
        /// Cleanly unmounted.
        const CLEAN = 0x1;
        /// Errors were found.
        const ERRORS = 0x2;
        /// Orphans are being recovered.
        const ORPHANS = 0x4;
        /// Fast commits are to be replayed (in memory only in the kernel).
        const FAST_COMMIT_REPLAY = 0x20;
        const _ = !0;
    }
}

bitflags! {
    /// The superblock's `flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct SuperblockFlags: u32 {
        /// Directory hashes treat characters as signed.
        const SIGNED_HASH = 0x1;
        /// Directory hashes treat characters as unsigned.
        const UNSIGNED_HASH = 0x2;
        /// Made for testing development code.
        const TEST_FILESYS = 0x4;
        const _ = !0;
    }
}

bitflags! {
    /// Mount options that hold when nothing is asked for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct MountDefaults: u32 {
        /// Print debugging information.
        const DEBUG = 0x1;
        /// New files take the group of their directory.
        const BSD_GROUPS = 0x2;
        /// User extended attributes.
        const USER_XATTR = 0x4;
        /// POSIX access control lists.
        const ACL = 0x8;
        /// 16-bit user and group ids.
        const UID16 = 0x10;
        /// Journal data as well.
        const JOURNAL_DATA = 0x20;
        /// Write data before the transaction that names it.
        const JOURNAL_ORDERED = 0x40;
        /// No order between data and metadata.
        const JOURNAL_WRITEBACK = 0x60;
        /// No write barriers.
        const NO_BARRIER = 0x100;
        /// Check that no metadata block is used as data.
        const BLOCK_VALIDITY = 0x200;
        /// Discard freed blocks.
        const DISCARD = 0x400;
        /// No delayed allocation.
        const NO_DELALLOC = 0x800;
        const _ = !0;
    }
}

/// What happens when an error is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorsBehaviour {
    /// Go on.
    Continue,
    /// Go on, reading only.
    RemountReadOnly,
    /// Stop the machine.
    Panic,
    /// A value this crate does not know; treated like `Continue` by Linux.
    Unknown(u16),
}

impl ErrorsBehaviour {
    /// Returns the stored number.
    #[must_use]
    pub const fn to_raw(self) -> u16 {
        match self {
            Self::Continue => 1,
            Self::RemountReadOnly => 2,
            Self::Panic => 3,
            Self::Unknown(raw) => raw,
        }
    }

    /// Takes the stored number.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Self {
        match raw {
            1 => Self::Continue,
            2 => Self::RemountReadOnly,
            3 => Self::Panic,
            other => Self::Unknown(other),
        }
    }
}

/// The first or the last error the file system remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Seconds since 1970.
    pub time: u64,
    /// The inode involved, 0 if none.
    pub ino: Ino,
    /// The block involved, 0 if none.
    pub block: Pblk,
    /// The function that saw it, NUL-padded.
    pub function: [u8; 32],
    /// The source line that saw it.
    pub line: u32,
    /// The stored error code.
    pub code: u8,
}

fn named(ino: U32) -> Option<Ino> {
    (ino.get() != 0).then(|| Ino::new(ino.get()))
}

fn time(lo: U32, hi: u8) -> u64 {
    u64::from(hi) << 32 | u64::from(lo.get())
}

/// The bytes before the first NUL.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

/// Sizes and counts.
impl Superblock {
    /// Returns the three feature words (all clear in revision 0).
    #[must_use]
    pub fn features(&self) -> Features {
        features_of(&self.raw)
    }

    /// Returns whether all bits of `feature` are on.
    #[must_use]
    pub fn has_compat(&self, feature: Compat) -> bool {
        self.features().compat.contains(feature)
    }

    /// Returns whether all bits of `feature` are on.
    #[must_use]
    pub fn has_incompat(&self, feature: Incompat) -> bool {
        self.features().incompat.contains(feature)
    }

    /// Returns whether all bits of `feature` are on.
    #[must_use]
    pub fn has_ro_compat(&self, feature: RoCompat) -> bool {
        self.features().ro_compat.contains(feature)
    }

    /// Returns the block size.
    #[must_use]
    pub const fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Returns the base-2 logarithm of the blocks in a cluster: 0 without `bigalloc`.
    #[must_use]
    pub fn cluster_bits(&self) -> u32 {
        if self.has_ro_compat(RoCompat::BIGALLOC) {
            self.raw
                .log_cluster_size
                .get()
                .saturating_sub(self.raw.log_block_size.get())
        } else {
            0
        }
    }

    /// Returns the blocks in a cluster.
    #[must_use]
    pub fn cluster_ratio(&self) -> u32 {
        1 << self.cluster_bits()
    }

    /// Returns the clusters in a group.
    #[must_use]
    pub fn clusters_per_group(&self) -> u32 {
        self.raw.blocks_per_group.get() >> self.cluster_bits()
    }

    /// Returns the blocks in the file system.
    #[must_use]
    pub fn blocks_count(&self) -> u64 {
        blocks_count_of(&self.raw, self.features())
    }

    /// Returns the blocks only privileged users may take.
    #[must_use]
    pub fn reserved_blocks_count(&self) -> u64 {
        wide(
            self.raw.r_blocks_count_lo,
            self.raw.r_blocks_count_hi,
            self.features(),
        )
    }

    /// Returns the number of free blocks, as last written; may be stale.
    #[must_use]
    pub fn free_blocks_count(&self) -> u64 {
        wide(
            self.raw.free_blocks_count_lo,
            self.raw.free_blocks_count_hi,
            self.features(),
        )
    }

    /// Returns the inodes in the file system.
    #[must_use]
    pub fn inodes_count(&self) -> u32 {
        self.raw.inodes_count.get()
    }

    /// Returns the number of free inodes, as last written; may be stale.
    #[must_use]
    pub fn free_inodes_count(&self) -> u32 {
        self.raw.free_inodes_count.get()
    }

    /// Returns the block groups.
    #[must_use]
    pub const fn groups_count(&self) -> u32 {
        self.groups
    }

    /// Returns the bytes in an inode.
    #[must_use]
    pub fn inode_size(&self) -> u32 {
        inode_size_of(&self.raw)
    }

    /// Returns the bytes in a group descriptor.
    #[must_use]
    pub fn desc_size(&self) -> u32 {
        desc_size_of(&self.raw, self.features())
    }

    /// Returns the first inode that is not reserved.
    #[must_use]
    pub fn first_ino(&self) -> Ino {
        if self.raw.rev_level.get() == 0 {
            Ino::FIRST_REV0
        } else {
            Ino::new(self.raw.first_ino.get())
        }
    }
}

/// Identity, hashing and checksums.
impl Superblock {
    /// Returns the UUID.
    #[must_use]
    pub const fn uuid(&self) -> [u8; 16] {
        self.raw.uuid
    }

    /// Returns the label, without padding. Any bytes.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        text(&self.raw.volume_name)
    }

    /// Returns the directory it was last mounted on. Any bytes.
    #[must_use]
    pub fn last_mounted(&self) -> &[u8] {
        text(&self.raw.last_mounted)
    }

    /// Returns the mount options stored as text.
    #[must_use]
    pub fn mount_options(&self) -> &[u8] {
        text(&self.raw.mount_opts)
    }

    /// Returns the default mount options stored as bits.
    #[must_use]
    pub fn mount_defaults(&self) -> MountDefaults {
        MountDefaults::from_bits_retain(self.raw.default_mount_opts.get())
    }

    /// Returns the seed of directory hashes. All zero means the hash's own default.
    #[must_use]
    pub fn hash_seed(&self) -> [u32; 4] {
        self.raw.hash_seed.map(|word| word.get())
    }

    /// Returns the hash new directory indexes use, in the form that index roots store; see
    /// [`HashVersion::with_signedness`].
    ///
    /// # Errors
    /// The superblock names a hash this crate does not know. Reading goes on without: each index
    /// names its own.
    pub fn hash_version(&self) -> FormatResult<HashVersion> {
        HashVersion::from_raw(self.raw.def_hash_version)
    }

    /// Returns the flags word.
    #[must_use]
    pub fn flags(&self) -> SuperblockFlags {
        SuperblockFlags::from_bits_retain(self.raw.flags.get())
    }

    /// Returns whether directory hashes treat characters as unsigned.
    #[must_use]
    pub fn hash_is_unsigned(&self) -> bool {
        self.flags().contains(SuperblockFlags::UNSIGNED_HASH)
    }

    /// Returns whether metadata carries CRC32C checksums.
    #[must_use]
    pub fn has_metadata_csum(&self) -> bool {
        self.has_ro_compat(RoCompat::METADATA_CSUM)
    }

    /// Returns the seed of every CRC32C but the superblock's own: stored, or derived from the UUID.
    #[must_use]
    pub fn checksum_seed(&self) -> u32 {
        if self.has_incompat(Incompat::CSUM_SEED) {
            self.raw.checksum_seed.get()
        } else {
            Crc32c::INIT.update(&self.raw.uuid).value()
        }
    }

    /// Returns how group descriptors are checked.
    #[must_use]
    pub fn desc_checksum(&self) -> DescChecksum {
        if self.has_metadata_csum() {
            DescChecksum::Crc32c {
                seed: self.checksum_seed(),
            }
        } else if self.has_ro_compat(RoCompat::GDT_CSUM) {
            DescChecksum::Crc16 {
                uuid: self.raw.uuid,
            }
        } else {
            DescChecksum::None
        }
    }

    /// Returns the name encoding and its flags under `casefold`.
    #[must_use]
    pub fn encoding(&self) -> Option<(u16, u16)> {
        self.has_incompat(Incompat::CASEFOLD)
            .then(|| (self.raw.encoding.get(), self.raw.encoding_flags.get()))
    }
}

/// State, times and error records.
impl Superblock {
    /// Returns the state bits.
    #[must_use]
    pub fn state(&self) -> State {
        State::from_bits_retain(self.raw.state.get())
    }

    /// Returns what to do when an error is found.
    #[must_use]
    pub fn errors_behaviour(&self) -> ErrorsBehaviour {
        ErrorsBehaviour::from_raw(self.raw.errors.get())
    }

    /// Returns whether the journal must be replayed before the file system can be read.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.has_incompat(Incompat::RECOVER)
    }

    /// Returns the last mount, seconds since 1970.
    #[must_use]
    pub fn mount_time(&self) -> u64 {
        time(self.raw.mtime, self.raw.mtime_hi)
    }

    /// Returns the last write of the superblock, seconds since 1970.
    #[must_use]
    pub fn write_time(&self) -> u64 {
        time(self.raw.wtime, self.raw.wtime_hi)
    }

    /// Creation, seconds since 1970.
    #[must_use]
    pub fn mkfs_time(&self) -> u64 {
        time(self.raw.mkfs_time, self.raw.mkfs_time_hi)
    }

    /// Returns the last check, seconds since 1970.
    #[must_use]
    pub fn last_check(&self) -> u64 {
        time(self.raw.lastcheck, self.raw.lastcheck_hi)
    }

    /// Returns the user and group that may take reserved blocks.
    #[must_use]
    pub fn reserved_for(&self) -> (u32, u32) {
        let join = |hi: u16, lo: u16| u32::from(hi) << 16 | u32::from(lo);
        (
            join(self.raw.def_resuid_hi.get(), self.raw.def_resuid.get()),
            join(self.raw.def_resgid_hi.get(), self.raw.def_resgid.get()),
        )
    }

    /// Returns the first error on record.
    #[must_use]
    pub fn first_error(&self) -> Option<ErrorRecord> {
        let raw = &self.raw;
        let time = time(raw.first_error_time, raw.first_error_time_hi);
        (time != 0).then(|| ErrorRecord {
            time,
            ino: Ino::new(raw.first_error_ino.get()),
            block: Pblk::new(raw.first_error_block.get()),
            function: raw.first_error_func,
            line: raw.first_error_line.get(),
            code: raw.first_error_errcode,
        })
    }

    /// Returns the latest error on record.
    #[must_use]
    pub fn last_error(&self) -> Option<ErrorRecord> {
        let raw = &self.raw;
        let time = time(raw.last_error_time, raw.last_error_time_hi);
        (time != 0).then(|| ErrorRecord {
            time,
            ino: Ino::new(raw.last_error_ino.get()),
            block: Pblk::new(raw.last_error_block.get()),
            function: raw.last_error_func,
            line: raw.last_error_line.get(),
            code: raw.last_error_errcode,
        })
    }

    /// Errors counted.
    #[must_use]
    pub fn error_count(&self) -> u32 {
        self.raw.error_count.get()
    }
}

/// Inodes and blocks the superblock names.
impl Superblock {
    /// Returns the journal's inode; `None` without an internal journal.
    #[must_use]
    pub fn journal_ino(&self) -> Option<Ino> {
        named(self.raw.journal_inum).filter(|_| self.has_compat(Compat::HAS_JOURNAL))
    }

    /// Returns whether the journal lies on another device.
    #[must_use]
    pub fn has_external_journal(&self) -> bool {
        self.has_compat(Compat::HAS_JOURNAL)
            && self.raw.journal_inum.get() == 0
            && (self.raw.journal_dev.get() != 0 || self.raw.journal_uuid != [0; 16])
    }

    /// Returns the copy of the journal inode's map and its size in bytes, if the superblock keeps
    /// one.
    #[must_use]
    pub fn journal_backup(&self) -> Option<([u32; 15], u64)> {
        if self.raw.jnl_backup_type != 1 {
            return None;
        }
        let mut map = [0; 15];
        for (to, from) in map.iter_mut().zip(&self.raw.jnl_blocks) {
            *to = from.get();
        }
        let size = u64::from(self.raw.jnl_blocks[15].get()) << 32
            | u64::from(self.raw.jnl_blocks[16].get());
        Some((map, size))
    }

    /// Head of the on-disk list of orphans; `None` if it is empty. Not checked: the list is read
    /// only after replay.
    #[must_use]
    pub fn orphan_list_head(&self) -> Option<Ino> {
        named(self.raw.last_orphan)
    }

    /// Returns the orphan file's inode.
    #[must_use]
    pub fn orphan_file_ino(&self) -> Option<Ino> {
        named(self.raw.orphan_file_inum).filter(|_| self.has_compat(Compat::ORPHAN_FILE))
    }

    /// Returns the inodes of user, group and project quota.
    #[must_use]
    pub fn quota_inodes(&self) -> [Option<Ino>; 3] {
        let raw = &self.raw;
        [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum]
            .map(|ino| named(ino).filter(|_| self.has_ro_compat(RoCompat::QUOTA)))
    }

    /// Returns the multiple-mount protection block.
    #[must_use]
    pub fn mmp_block(&self) -> Option<Pblk> {
        self.has_incompat(Incompat::MMP)
            .then(|| Pblk::new(self.raw.mmp_block.get()))
    }

    /// Returns the clusters of fixed metadata, if the superblock knows.
    #[must_use]
    pub fn overhead_clusters(&self) -> Option<u32> {
        let clusters = self.raw.overhead_clusters.get();
        (clusters != 0).then_some(clusters)
    }
}

/// Changes of what varies while a file system lives. Addresses and sizes change only through
/// [`Superblock::with`].
impl Superblock {
    /// Stores the number of free blocks.
    pub fn set_free_blocks_count(&mut self, blocks: u64) {
        self.raw.free_blocks_count_lo.set(blocks as u32);
        self.raw.free_blocks_count_hi.set((blocks >> 32) as u32);
    }

    /// Stores the number of free inodes.
    pub fn set_free_inodes_count(&mut self, inodes: u32) {
        self.raw.free_inodes_count.set(inodes);
    }

    /// Stores the state bits.
    pub fn set_state(&mut self, state: State) {
        self.raw.state.set(state.bits());
    }

    /// Stores the time of the last write, seconds since 1970.
    pub fn set_write_time(&mut self, seconds: u64) {
        self.raw.wtime.set(seconds as u32);
        self.raw.wtime_hi = (seconds >> 32) as u8;
    }

    /// Stores the time of the last mount, seconds since 1970.
    pub fn set_mount_time(&mut self, seconds: u64) {
        self.raw.mtime.set(seconds as u32);
        self.raw.mtime_hi = (seconds >> 32) as u8;
    }

    /// Marks the journal as needing replay, or not.
    pub fn set_needs_recovery(&mut self, on: bool) {
        let mut incompat = Incompat::from_bits_retain(self.raw.feature_incompat.get());
        incompat.set(Incompat::RECOVER, on);
        self.raw.feature_incompat.set(incompat.bits());
    }

    /// Marks the orphan file as possibly holding orphans, or not.
    pub fn set_orphan_present(&mut self, on: bool) {
        let mut ro = RoCompat::from_bits_retain(self.raw.feature_ro_compat.get());
        ro.set(RoCompat::ORPHAN_PRESENT, on);
        self.raw.feature_ro_compat.set(ro.bits());
    }

    /// Stores the head of the list of orphans.
    pub fn set_orphan_list_head(&mut self, ino: Option<Ino>) {
        self.raw.last_orphan.set(ino.map_or(0, Ino::get));
    }
}
