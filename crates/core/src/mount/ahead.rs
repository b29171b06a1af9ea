//! What opening for writing asks for before it needs it, where a request takes a round trip.
//!
//! What it reads leads from one to the next: descriptors, inodes, what these refer to. Of each all
//! is known that is needed next, and what the first changes need: so each comes as one batch.
//!
//! All of it is hints: what cannot be read shows when it is needed.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::map::{self, Runs, Target};
use extant_format::{Group, Ino, Pblk};
use std::sync::Arc;

/// Bytes of bitmaps that come along: those of the first groups.
const BITMAP_BYTES: u32 = 128 << 10;
/// Blocks of the orphan file, and of the root, that come along at most.
const MOST_ORPHAN_BLOCKS: u64 = 64;
const MOST_ROOT_BLOCKS: u64 = 32;

impl Fs {
    /// Brings into memory what opening for writing reads, and bitmaps of the first groups.
    pub(super) fn opening_ahead(&self) {
        if self.device().in_flight() < 2 {
            return;
        }
        let most = BITMAP_BYTES / 2 / self.block_size().bytes();
        let groups = self.geometry().groups_count().min(most.max(1));
        let groups = (0..groups).map(Group::new);
        let superblock = self.superblock();
        let journal = superblock.journal_ino();
        let orphan_file = superblock.orphan_file_ino();
        let all = [Some(Ino::ROOT), journal, orphan_file];
        let of_inodes = all.iter().flatten();
        let of_inodes = of_inodes.filter_map(|ino| self.inode_blocks_around(*ino).ok());
        let of_groups = groups.filter_map(|group| self.stored_group(group).ok());
        let bitmaps = of_groups.flat_map(|desc| self.stored_bitmaps(&desc));
        let blocks = of_inodes.flatten().map(Pblk::new).chain(bitmaps).collect();
        self.cache().prefetch_all(blocks);

        let inode = |ino: Option<Ino>| self.inode(ino?).ok();
        let (root, journal, orphan_file) =
            (inode(Some(Ino::ROOT)), inode(journal), inode(orphan_file));
        let mut blocks = Vec::new();
        self.add_first_blocks(journal.as_ref(), 1, &mut blocks);
        self.add_first_blocks(orphan_file.as_ref(), MOST_ORPHAN_BLOCKS, &mut blocks);
        self.add_first_blocks(root.as_ref(), MOST_ROOT_BLOCKS, &mut blocks);
        self.cache().prefetch_all(blocks);
    }

    /// Adds where the first blocks of a file lie, or what leads there.
    fn add_first_blocks(&self, inode: Option<&Arc<Inode>>, count: u64, blocks: &mut Vec<Pblk>) {
        let Some(inode) = inode.filter(|inode| !inode.is_inline()) else {
            return;
        };
        let before = blocks.len();
        map::nodes_below_root(inode, |block| blocks.push(block));
        if blocks.len() > before {
            return;
        }
        let count = inode.size_in_blocks(self.block_size()).min(count);
        for run in Runs::over(self, inode, 0..count) {
            let Ok(run) = run else { return };
            if let Target::Written(first) = run.target {
                let run = first.get()..first.get().saturating_add(run.len);
                blocks.extend(run.map(Pblk::new));
            }
        }
    }
}
