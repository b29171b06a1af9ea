//! Space and inode counts.

use crate::Result;
use crate::fs::{Fs, StatFs};
use extant_format::features::Compat;

/// Longest name of a directory entry, in bytes.
const NAME_LEN: u32 = extant_format::NAME_MAX as u32;

impl Fs {
    /// Space and inodes. The group descriptors are what counts, not the superblock, whose numbers
    /// may be older: the first call reads all of them, and later ones give the same answer. On a
    /// file system open for writing the allocator has counted them. Space that was promised to
    /// data still in memory is not free; what is only kept ready for files that may grow is.
    ///
    /// # Errors
    /// When the device fails or a descriptor breaks the format.
    pub fn statfs(&self) -> Result<StatFs> {
        let mut counted = match self.space.get() {
            Some(counted) => counted.clone(),
            None => {
                let counted = self.count()?;
                // Lost to another thread that counted the same: nothing to do.
                let _ = self.space.set(counted.clone());
                counted
            }
        };
        if let Some(alloc) = self.alloc_if_any() {
            let now = alloc.free_counts();
            // What data in memory is going to use is free on the device only.
            counted.free = now.blocks.saturating_sub(alloc.promised_blocks());
            counted.available = counted.free.saturating_sub(self.held_back());
            counted.available_to_root = counted.free.saturating_sub(self.held_back_from_all());
            counted.free_inodes = now.inodes.into();
            counted.directories = alloc.directories();
        }
        Ok(counted)
    }

    /// Of `free` blocks, those that unprivileged users may take.
    fn available(&self, free: u64) -> u64 {
        free.saturating_sub(self.superblock().reserved_blocks_count())
    }

    fn count(&self) -> Result<StatFs> {
        let mut clusters = 0u64;
        let mut free_inodes = 0u64;
        let mut directories = 0u64;
        // What may change is asked of the allocator.
        if self.alloc_if_any().is_none() {
            self.for_each_group(|_, desc| {
                clusters += u64::from(desc.free_clusters);
                free_inodes += u64::from(desc.free_inodes);
                directories += u64::from(desc.used_dirs);
            })?;
        }
        let total = self.geometry().blocks_count();
        let blocks = total.saturating_sub(self.overhead());
        let free = clusters
            .saturating_mul(1 << self.geometry().cluster_bits())
            .min(total);
        Ok(StatFs {
            block_size: self.block_size(),
            blocks,
            free,
            available: self.available(free),
            available_to_root: free.saturating_sub(self.held_back_from_all()),
            inodes: self.geometry().inodes_count().into(),
            free_inodes,
            directories,
            name_len: NAME_LEN,
            uuid: self.superblock().uuid(),
        })
    }

    /// Blocks of fixed metadata: as the superblock says, or added up.
    fn overhead(&self) -> u64 {
        if let Some(clusters) = self.superblock().overhead_clusters() {
            return u64::from(clusters) << self.geometry().cluster_bits();
        }
        let headers: u64 = self
            .geometry()
            .groups_with_headers()
            .filter_map(|group| self.geometry().group_header(group).ok())
            .map(|header| header.blocks())
            .sum();
        let per_group = 2 + u64::from(self.geometry().inode_table_blocks());
        self.geometry().first_data_block().get()
            + headers
            + per_group * u64::from(self.geometry().groups_count())
            + self.journal_blocks()
    }

    fn journal_blocks(&self) -> u64 {
        if !self.superblock().has_compat(Compat::HAS_JOURNAL) {
            return 0;
        }
        self.superblock()
            .journal_ino()
            .and_then(|ino| self.inode(ino).ok())
            .map_or(0, |journal| self.block_size().blocks_for(journal.size()))
    }
}
