//! What opening for writing asks for before it needs it, where a request takes a round trip.
//!
//! What it reads leads from one to the next: descriptors, inodes, what these refer to. Of each all
//! is known that is needed next, and what the first changes need: so each comes as one batch.
//!
//! All of it is hints: what cannot be read shows when it is needed.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::map::{self, Runs, Target};
use extant_format::indirect::encode_root;
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
        // The superblock has a copy of the journal's map.
        let backup = superblock.journal_backup();
        let journal_front = backup.and_then(|(map, _)| map::first_block(&encode_root(&map)));
        let blocks = of_inodes.flatten().map(Pblk::new);
        let blocks = blocks.chain(bitmaps).chain(journal_front).collect();
        self.cache().prefetch_all(blocks);

        let inode = |ino: Option<Ino>| self.inode(ino?).ok();
        let (root, journal, orphan_file) =
            (inode(Some(Ino::ROOT)), inode(journal), inode(orphan_file));
        if let Some(front) = journal_front
            && journal
                .as_ref()
                .and_then(|inode| map::first_block(&inode.disk().map))
                != Some(front)
        {
            // The copy is old: that block may be anything, which is not kept here.
            self.cache().discard(front);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MountOptions;
    use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
    use extant_sync::pin;
    use extant_testkit::crash::{Content, FaultDevice};
    use extant_testkit::oracle::mke2fs;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    /// Opens a copy of an image for writing, far away, and looks at what is in memory then.
    fn look(image: &Path) {
        let device = FaultDevice::new(Content::of_file(image).open()).far(32);
        let options = MountOptions::read_write().background(false);
        let fs = Fs::open(Arc::new(device), options).expect("it opens");
        let journal = fs.superblock().journal_ino().expect("a journal");
        let journal = fs.inode(journal).expect("an inode");
        let front = map::first_block(&journal.disk().map).expect("the front of the journal");
        let backup = fs.superblock().journal_backup().expect("a copy of its map");
        let told = map::first_block(&encode_root(&backup.0));
        for block in [Some(front), told].into_iter().flatten() {
            // The log is written past memory, and so may that block be which an old copy names.
            assert!(fs.cache().peek(block, &pin()).is_none(), "{block:?}");
        }
        fs.close().expect("it closes");
    }

    #[test]
    fn an_old_copy_of_the_journals_map_leaves_nothing_in_memory() {
        let dir = tempfile::TempDir::new().expect("a directory");
        let image = dir.path().join("image");
        for kind in ["ext4", "ext3"] {
            mke2fs(&image, 32 << 20, &["-t", kind, "-b", "1024"]);
            let file = std::fs::File::options().read(true).write(true).open(&image);
            let file = file.expect("a file");
            let mut bytes = [0; SUPERBLOCK_LEN];
            let at = SUPERBLOCK_OFFSET;
            file.read_exact_at(&mut bytes, at).expect("a superblock");
            let superblock = Superblock::parse(&bytes).expect("a superblock");
            let good = superblock.journal_backup().expect("a copy").0;
            let first = |map: &[u32; 15]| map::first_block(&encode_root(map));
            assert!(first(&good).is_some(), "{kind}");
            for (number, right) in good.into_iter().enumerate() {
                for value in [0, 1, 0xf30a, right ^ 0x155, u32::MAX] {
                    let old = superblock.with(|raw| raw.jnl_blocks[number].set(value));
                    let old = old.expect("a superblock");
                    file.write_all_at(&old.encode(), at).expect("room");
                    look(&image);
                }
            }
        }
    }
}
