//! A part of an inode table, around the cache: for a listing of many directories, which looks at
//! their records alone. What lies between these would only fill the cache.

use super::Inode;
use crate::Result;
use crate::fs::Fs;
use extant_format::{Ino, Pblk};
use std::ops::Range;

/// Bytes that are read at once: records of some directories, where these lie beside each other.
const BYTES: u32 = 16 << 10;

/// Blocks of the inode tables of one file system, which does not change.
#[derive(Debug, Default)]
pub(crate) struct TableWindow {
    bytes: Vec<u8>,
    blocks: Range<u64>,
}

impl TableWindow {
    /// Returns an inode that a directory gives a name.
    ///
    /// # Errors
    /// As for [`Fs::named_inode`].
    pub(crate) fn named_inode(&mut self, fs: &Fs, ino: Ino) -> Result<Inode> {
        match self.slot(fs, ino) {
            Some(slot) => fs.parse_named_inode(ino, slot),
            // Says what is wrong.
            None => fs.named_inode(ino).map(|inode| Inode::clone(&inode)),
        }
    }

    /// Returns the record of an inode and what follows it in its block, if that can be read.
    fn slot(&mut self, fs: &Fs, ino: Ino) -> Option<&[u8]> {
        let (block, offset) = fs.locate_inode(ino).ok()?;
        let size = fs.block_size();
        if !self.blocks.contains(&block.get()) {
            let blocks = fs.table_window(ino, block, BYTES).ok()?;
            let physical = fs.physical();
            if blocks.start < physical.start || blocks.end > physical.end {
                return None;
            }
            self.blocks = 0..0;
            let len = usize::try_from(blocks.end.checked_sub(blocks.start)?).ok()?;
            self.bytes.resize(len * size.len(), 0);
            let offset = size.offset_of(Pblk::new(blocks.start))?;
            let read = fs.device().read_at(offset, &mut self.bytes);
            read.ok()?;
            self.blocks = blocks;
        }
        let index = usize::try_from(block.get() - self.blocks.start).ok()?;
        let block = self
            .bytes
            .get(index * size.len()..(index + 1) * size.len())?;
        block.get(offset..)
    }
}
