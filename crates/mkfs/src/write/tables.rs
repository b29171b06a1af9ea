//! Inode tables, group by group.

use crate::write::{InodeEncoder, Sink, WriteResult};
use extant_format::{BlockSize, Ino, Pblk};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::ops::Range;

/// Where inode tables lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableShape<'f> {
    pub(crate) block_size: BlockSize,
    pub(crate) inode_size: u16,
    pub(crate) inodes_per_group: u32,
    /// First block of the table of each group that has inodes in use.
    pub(crate) tables: &'f [Pblk],
}

/// Inodes encoded and written together: a table is worked on in stretches of this many blocks.
const STRETCH_BLOCKS: u32 = 64;

/// Fills `buffer`, which is zero, with the slots of `inos`, one after the other. `fixed` fills the
/// slots of inodes that are not of the source.
///
/// # Errors
/// A number that does not fit the format.
pub(crate) fn fill_slots(
    encoder: &InodeEncoder<'_>,
    inos: Range<u32>,
    inode_size: u16,
    fixed: &dyn Fn(Ino, &mut [u8]) -> WriteResult<bool>,
    buffer: &mut [u8],
) -> WriteResult<()> {
    let slots = buffer.chunks_exact_mut(usize::from(inode_size));
    for (ino, slot) in inos.zip(slots) {
        if !fixed(Ino::new(ino), slot)? {
            encoder.encode(Ino::new(ino), slot)?;
        }
    }
    Ok(())
}

/// Writes the inodes of `inos` into their tables. `fixed` fills the slots of inodes that are not
/// of the source (the journal and its like).
///
/// # Errors
/// A number that does not fit the format, or a device that fails.
pub(crate) fn write_tables(
    encoder: &InodeEncoder<'_>,
    shape: TableShape<'_>,
    inos: Range<u32>,
    fixed: &(dyn Fn(Ino, &mut [u8]) -> WriteResult<bool> + Sync),
    sink: Sink<'_>,
) -> WriteResult<()> {
    let per_block = shape.block_size.bytes() / u32::from(shape.inode_size);
    let stretch = STRETCH_BLOCKS * per_block;
    (0..shape.tables.len() as u32)
        .into_par_iter()
        .try_for_each(|group| {
            let first = group * shape.inodes_per_group + 1;
            let end = (first + shape.inodes_per_group).min(inos.end);
            let mut buffer = vec![0; STRETCH_BLOCKS as usize * shape.block_size.len()];
            for start in (first..end).step_by(stretch as usize) {
                let count = stretch.min(end - start);
                buffer.fill(0);
                let inos = start..start + count;
                fill_slots(encoder, inos, shape.inode_size, fixed, &mut buffer)?;
                let blocks = count.div_ceil(per_block) as usize;
                let pblk =
                    shape.tables[group as usize].get() + u64::from((start - first) / per_block);
                sink.write(
                    pblk << shape.block_size.log2(),
                    &buffer[..blocks * shape.block_size.len()],
                )?;
            }
            Ok(())
        })
}
