//! The blocks that are in no use because the disk is bad there: the map of inode 1 has them.

use extant_core::fs::Fs;
use extant_format::{Ino, Pblk};
use std::io;

/// Where the record of an inode has its flags, and where its map.
const FLAGS_AT: usize = 0x20;
const MAP_AT: usize = 0x28;
/// The map is an extent tree.
const EXTENTS: u32 = 0x8_0000;
/// Block numbers in the record: those of blocks, then one of each level of indirect blocks.
const DIRECT: usize = 12;
const LEVELS: usize = 3;

/// What walks the map.
struct Walk<'w> {
    fs: &'w Fs,
    show: &'w mut dyn FnMut(u64) -> io::Result<()>,
    /// Block numbers that may still come: no map has more than the file system has blocks.
    left: u64,
}

/// Shows each bad block, in the order of the map.
pub(super) fn each(
    fs: &Fs,
    show: &mut dyn FnMut(u64) -> io::Result<()>,
) -> Result<(), Box<dyn std::error::Error>> {
    let (block, at) = fs.locate_inode(Ino::BAD_BLOCKS)?;
    let bytes = read(fs, block.get())?;
    let record = bytes.get(at..).unwrap_or_default();
    let mut flags = numbers(record.get(FLAGS_AT..).unwrap_or_default());
    if flags.next().unwrap_or(0) & EXTENTS != 0 {
        return Err("the list of bad blocks has an extent tree, where only a map is read".into());
    }
    let map = numbers(record.get(MAP_AT..).unwrap_or_default());
    let mut walk = Walk {
        fs,
        show,
        left: fs.superblock().blocks_count(),
    };
    for (place, block) in map.take(DIRECT + LEVELS).enumerate() {
        let level = place.saturating_sub(DIRECT - 1);
        walk.number(block, level)?;
    }
    Ok(())
}

impl Walk<'_> {
    /// Takes a block number that is `level` levels above those of bad blocks.
    fn number(&mut self, block: u32, level: usize) -> Result<(), Box<dyn std::error::Error>> {
        if block == 0 {
            return Ok(());
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or("there are too many bad blocks")?;
        if level == 0 {
            return Ok((self.show)(block.into())?);
        }
        let bytes = read(self.fs, block.into())?;
        for block in numbers(&bytes) {
            self.number(block, level - 1)?;
        }
        Ok(())
    }
}

/// The little-endian numbers in a block.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (numbers, _) = bytes.as_chunks();
    numbers.iter().map(|number| u32::from_le_bytes(*number))
}

fn read(fs: &Fs, block: u64) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut bytes = vec![0; fs.block_size().len()];
    let offset = fs.block_size().offset_of(Pblk::new(block));
    fs.device()
        .read_at(offset.unwrap_or(u64::MAX), &mut bytes)?;
    Ok(bytes)
}
