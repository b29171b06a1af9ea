//! dm-verity over a file system that exists: all of it is read.

use super::device::{DmVerity, DmVerityError, DmVerityReport, Plan, Tail, write_error};
use super::growth::{Growth, Missing, WriteBlock};
use crate::image::{BuildError, threads_of};
use crate::write::Progress;
use extant_blockdev::{BlockDevice, DeviceResult};
use extant_format::superblock::Superblock;
use extant_verity::{Digest, dm};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::num::NonZero;

/// Bytes that are read at once, a multiple of every block.
const PIECE: u64 = 1 << 20;

/// A hash tree for dm-verity over a file system that exists.
#[derive(Clone, Debug)]
pub struct DmVerityOver {
    plan: Plan,
    data_len: u64,
}

impl DmVerityOver {
    /// Plans the tree over the file system with this superblock.
    ///
    /// # Errors
    /// [`DmVerityError`] for block sizes and salts that the format does not have, and for blocks of
    /// data that are larger than those of the file system.
    pub fn new(asked: &DmVerity, superblock: &Superblock) -> Result<Self, DmVerityError> {
        let block_size = superblock.block_size();
        let blocks = superblock.blocks_count();
        Ok(Self {
            plan: Plan::new(asked, superblock.uuid(), block_size.bytes(), blocks)?,
            data_len: blocks << block_size.log2(),
        })
    }

    /// Returns the bytes of the file system, which are those that are hashed.
    #[must_use]
    pub const fn data_len(&self) -> u64 {
        self.data_len
    }

    /// Returns the bytes of the image with its tree, where that lies behind the file system;
    /// otherwise those of the file system.
    #[must_use]
    pub fn image_len(&self) -> u64 {
        self.plan.image_len(self.data_len)
    }

    /// Returns where a tree ends that lies behind the file system already, in bytes of the image;
    /// `None` if `head`, the bytes behind the file system, do not begin with its superblock, or if
    /// it is of other data.
    #[must_use]
    pub fn former_end(&self, head: &[u8]) -> Option<u64> {
        let superblock = dm::Superblock::decode(head)?;
        let data = superblock
            .data_blocks
            .checked_mul(superblock.data_block_size.into())?;
        (data == self.data_len).then(|| superblock.end(self.data_len))
    }

    /// Reads the file system and writes the tree, to the same device or to its own file: first the
    /// tree, and once that is durable its superblock. A file of its own appears when it is
    /// complete. `threads` work on it, one for each processor if `None`. What changes meanwhile
    /// makes a tree that does not agree with it.
    ///
    /// # Errors
    /// What reading and writing give. The file system is as it was then.
    pub fn make(
        &self,
        device: &dyn BlockDevice,
        threads: Option<NonZero<usize>>,
        progress: &dyn Progress,
    ) -> Result<DmVerityReport, BuildError> {
        threads_of(threads)?.install(|| {
            let tail = self.plan.tail()?;
            let target = tail.as_ref().map_or(device, Tail::device);
            progress.start(self.data_len);
            let report = self.write(device, target, progress).map_err(write_error)?;
            if let Some(tail) = tail {
                tail.commit()?;
            }
            Ok(report)
        })
    }

    fn write(
        &self,
        device: &dyn BlockDevice,
        target: &dyn BlockDevice,
        progress: &dyn Progress,
    ) -> DeviceResult<DmVerityReport> {
        let put = |block: u64, bytes: &[u8]| self.plan.put_block(target, block, bytes);
        let root = self.hash(device, &put, progress)?;
        target.flush()?;
        self.plan.put_superblock(target)?;
        target.flush()?;
        Ok(self.plan.report(root.as_ref()))
    }

    /// Hashes all blocks, and returns the root hash.
    fn hash(
        &self,
        device: &dyn BlockDevice,
        write: WriteBlock<'_>,
        progress: &dyn Progress,
    ) -> DeviceResult<Option<Digest>> {
        let leaves = self.plan.leaves(write);
        let (shape, salted) = (leaves.shape.clone(), leaves.salted.clone());
        let growth = Growth::new(shape, salted, leaves.hash_block_len);
        let zeros = (vec![0; 1 << leaves.block_log2], leaves.zeros());
        let hash = |block: &[u8]| {
            let is_zeros = block == zeros.0;
            if is_zeros {
                zeros.1
            } else {
                leaves.salted.hash(block)
            }
        };
        let pieces = (0..self.data_len.div_ceil(PIECE)).into_par_iter();
        pieces.try_for_each_init(Vec::new, |bytes, number| {
            let start = number * PIECE;
            bytes.resize((self.data_len - start).min(PIECE) as usize, 0);
            device.read_at(start, bytes)?;
            let blocks = bytes.chunks_exact(1 << leaves.block_log2);
            let digests: Vec<Digest> = blocks.map(hash).collect();
            growth.put(start >> leaves.block_log2, &digests, write)?;
            progress.advance(bytes.len() as u64);
            Ok(())
        })?;
        // Nothing is missing.
        growth.finish(&Missing::Same(zeros.1), write)
    }
}
