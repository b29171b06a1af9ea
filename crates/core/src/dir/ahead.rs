//! Blocks of several directories that are read together before these are listed.

use super::block::Directory;
use crate::fs::Fs;
use crate::inode::Inode;

/// Most blocks that are asked for together.
const MOST: usize = 4096;

/// Brings the first blocks of directories into memory with one batch of reads. A hint; what is no
/// directory is passed over.
pub(crate) fn read_ahead<'a>(fs: &Fs, inodes: impl Iterator<Item = &'a Inode>) {
    let mut blocks = Vec::new();
    for inode in inodes.filter(|inode| inode.is_dir()) {
        if let Ok(dir) = Directory::new(fs, inode)
            && blocks.len() < MOST
        {
            dir.add_first_blocks(&mut blocks);
        }
    }
    fs.cache().prefetch_all(blocks);
}
