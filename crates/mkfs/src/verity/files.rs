//! fs-verity: which files get trees, where those lie, and hashing files while they are written.

use super::HashAlgorithm;
use super::growth::{Growth, Missing};
use crate::place::{Content, Placement};
use crate::source::{NodeId, Tree};
use crate::write::{Progress, Sink, WriteResult};
use extant_blockdev::DeviceResult;
use extant_format::BlockSize;
use extant_sync::atomic::Ordering;
use extant_sync::{CountedAtomicU64, LockClass, Mutex, Rank, RmwClass};
use extant_verity::fs::{
    BLOCK_LOG2, DESCRIPTOR_LEN, Descriptor, SALT_MAX, descriptor_place, salted, shape, tree_start,
};
use extant_verity::{Digest, Salted, Shape};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

static GROWING: LockClass = LockClass::new("growing tree of a file", Rank::Leaf);
static LEFT: RmwClass = RmwClass::new("blocks of a file that are not hashed");

/// Bytes of a block where none is asked for and the file system has larger ones: what `fsverity`
/// takes, and a page of most machines.
const BLOCK_SIZE: u32 = 4096;

/// Hash trees of fs-verity for some regular files. Made with [`FsVerity::new`], changed field by
/// field.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FsVerity {
    /// The hash function.
    pub algorithm: HashAlgorithm,
    /// What is hashed in front of each block, at most 32 bytes.
    pub salt: Vec<u8>,
    /// Bytes of a block. If `None`, a block of the file system, and at most 4096.
    pub block_size: Option<u32>,
    files: Arc<BTreeSet<NodeId>>,
}

impl FsVerity {
    /// Takes the regular files of a tree that get one; others among them get none.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = NodeId>) -> Self {
        Self {
            algorithm: HashAlgorithm::default(),
            salt: Vec::new(),
            block_size: None,
            files: Arc::new(files.into_iter().collect()),
        }
    }
}

/// Hash trees of files that cannot be made as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FsVerityError {
    /// A block size that the format or the file system does not have.
    #[error(
        "fs-verity cannot have blocks of {asked} bytes here: use a power of two from 1024 to {most}, \
         the block size of the file system"
    )]
    BlockSize {
        /// The size in bytes.
        asked: u32,
        /// Bytes of a block of the file system.
        most: u32,
    },
    /// The salt is too long.
    #[error("a salt of fs-verity has at most 32 bytes, and this one has {found}")]
    Salt {
        /// Its length in bytes.
        found: usize,
    },
    /// Files of ext2 and ext3 have no place for a tree.
    #[error("fs-verity needs files that are mapped by extents: turn the feature extent on")]
    Indirect,
    /// An image that is made while it is read.
    #[error("an image that is made when it is read cannot have fs-verity: all of it would be read")]
    Served,
}

/// Which files get trees in a file system with blocks of a known size, and how.
#[derive(Clone, Debug)]
pub(crate) struct Seals {
    files: Arc<BTreeSet<NodeId>>,
    algorithm: HashAlgorithm,
    salt: Vec<u8>,
    block_log2: u32,
    fs_block_log2: u32,
}

impl Seals {
    /// Checks what is asked for.
    pub(crate) fn new(
        asked: &FsVerity,
        block_size: BlockSize,
        by_extents: bool,
    ) -> Result<Self, FsVerityError> {
        let most = block_size.bytes();
        let size = asked.block_size.unwrap_or_else(|| most.min(BLOCK_SIZE));
        let has_it = size.is_power_of_two() && BLOCK_LOG2.contains(&size.ilog2());
        if !has_it || size > most {
            return Err(FsVerityError::BlockSize { asked: size, most });
        }
        let found = asked.salt.len();
        if found > SALT_MAX {
            return Err(FsVerityError::Salt { found });
        }
        if !by_extents {
            return Err(FsVerityError::Indirect);
        }
        Ok(Self {
            files: Arc::clone(&asked.files),
            algorithm: asked.algorithm,
            salt: asked.salt.clone(),
            block_log2: size.ilog2(),
            fs_block_log2: block_size.log2(),
        })
    }

    /// Whether a regular file gets a tree.
    pub(crate) fn contains(&self, id: NodeId) -> bool {
        self.files.contains(&id)
    }

    /// The logical blocks of the tree and the descriptor of a file of `size` bytes.
    pub(crate) fn blocks(&self, size: u64) -> Range<u64> {
        let (_, length) = self.descriptor_place(size);
        let log2 = self.fs_block_log2;
        tree_start(size) >> log2..length.div_ceil(1 << log2)
    }

    fn shape(&self, size: u64) -> Shape {
        shape(self.algorithm, self.block_log2, size)
    }

    /// Where the tree of a file ends.
    fn tree_end(&self, size: u64) -> u64 {
        tree_start(size) + (self.shape(size).blocks() << self.block_log2)
    }

    /// Where the descriptor is, and its length.
    fn descriptor_place(&self, size: u64) -> (u64, u64) {
        let tree_len = self.tree_end(size) - tree_start(size);
        descriptor_place(size, tree_len, DESCRIPTOR_LEN as u64, self.fs_block_log2)
    }
}

/// Hashes files while they are written, and writes their trees and descriptors.
pub(crate) struct Sealer<'p> {
    tree: &'p Tree,
    placement: &'p Placement,
    seals: &'p Seals,
    salted: Salted,
    zeros: Digest,
    sink: Sink<'p>,
    progress: &'p dyn Progress,
    files: HashMap<NodeId, Waiting>,
}

/// A file that is not complete.
struct Waiting {
    /// Nothing of it is stored.
    is_hole: bool,
    /// Blocks of the file system that were not hashed.
    left: CountedAtomicU64,
    /// There from the first block on, and until the last.
    growth: Mutex<Option<Arc<Growth>>>,
}

impl<'p> Sealer<'p> {
    /// One for the files of a placement that get trees; `None` if none does.
    pub(crate) fn new(
        tree: &'p Tree,
        placement: &'p Placement,
        sink: Sink<'p>,
        progress: &'p dyn Progress,
    ) -> Option<Self> {
        let seals = placement.shape.seals.as_ref()?;
        let mut blocks: HashMap<NodeId, u64> = HashMap::new();
        for piece in placement.pieces() {
            match piece.content {
                Content::File { node, .. } if seals.contains(node) => {
                    *blocks.entry(node).or_default() += u64::from(piece.blocks);
                }
                Content::Seal { node, .. } => {
                    blocks.entry(node).or_default();
                }
                _ => {}
            }
        }
        let files = blocks.into_iter().map(|(node, blocks)| {
            let waiting = Waiting {
                is_hole: blocks == 0,
                left: CountedAtomicU64::new(&LEFT, blocks),
                growth: Mutex::new(&GROWING, None),
            };
            (node, waiting)
        });
        let salted = salted(seals.algorithm, &seals.salt);
        Some(Self {
            tree,
            placement,
            seals,
            zeros: salted.hash(&vec![0; 1 << seals.block_log2]),
            salted,
            sink,
            progress,
            files: files.collect(),
        })
    }

    /// Takes the hashes of blocks of a file from block `lblk` of the file system on. What is past
    /// the end of the file is zeros.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn note(&self, node: NodeId, lblk: u32, bytes: &[u8]) -> WriteResult<()> {
        let Some(waiting) = self.files.get(&node) else {
            return Ok(());
        };
        let (log2, fs_log2) = (self.seals.block_log2, self.seals.fs_block_log2);
        let size = self.tree.node(node).size;
        let first = u64::from(lblk) << (fs_log2 - log2);
        let leaves = size.div_ceil(1 << log2).saturating_sub(first);
        let digests: Vec<Digest> = bytes
            .chunks(1 << log2)
            .take(usize::try_from(leaves).unwrap_or(usize::MAX))
            .map(|block| self.salted.hash(block))
            .collect();
        let growth = Arc::clone(
            waiting
                .growth
                .lock()
                .get_or_insert_with(|| Arc::new(self.growth(size))),
        );
        let write = |block, bytes: &[u8]| self.write_tree(node, block, bytes);
        growth.put(first, &digests, &write)?;
        drop(growth);
        let blocks = (bytes.len() >> fs_log2) as u64;
        if waiting.left.fetch_sub(blocks, Ordering::AcqRel) == blocks {
            self.finish(node, waiting)?;
        }
        Ok(())
    }

    /// Completes files of which nothing is stored. Comes when all data was written.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn finish_empty(&self) -> WriteResult<()> {
        self.files
            .par_iter()
            .filter(|(_, waiting)| waiting.is_hole)
            .try_for_each(|(node, waiting)| self.finish(*node, waiting))
    }

    fn growth(&self, size: u64) -> Growth {
        let block_len = 1 << self.seals.block_log2;
        Growth::new(self.seals.shape(size), self.salted.clone(), block_len)
    }

    fn finish(&self, node: NodeId, waiting: &Waiting) -> WriteResult<()> {
        let seals = self.seals;
        let size = self.tree.node(node).size;
        let growth = waiting.growth.lock().take();
        let growth = growth.unwrap_or_else(|| Arc::new(self.growth(size)));
        let write = |block, bytes: &[u8]| self.write_tree(node, block, bytes);
        let root = growth.finish(&Missing::Same(self.zeros), &write)?;
        let none = Digest::of(&[0; 64][..seals.algorithm.digest_len()]);
        let descriptor = Descriptor {
            algorithm: seals.algorithm,
            block_log2: seals.block_log2,
            data_size: size,
            root_hash: root.or(none).unwrap_or(self.zeros),
            salt: seals.salt.clone(),
        };
        let from = seals.tree_end(size);
        let (start, length) = seals.descriptor_place(size);
        let mut bytes = vec![0; (length - from) as usize];
        let at = (start - from) as usize;
        bytes[at..at + DESCRIPTOR_LEN].copy_from_slice(&descriptor.encode());
        bytes.extend((DESCRIPTOR_LEN as u32).to_le_bytes());
        self.write_file(node, from, &bytes)?;
        let blocks = seals.blocks(size);
        self.progress
            .advance((blocks.end - blocks.start) << seals.fs_block_log2);
        Ok(())
    }

    fn write_tree(&self, node: NodeId, block: u64, bytes: &[u8]) -> DeviceResult<()> {
        let size = self.tree.node(node).size;
        self.write_file(
            node,
            tree_start(size) + (block << self.seals.block_log2),
            bytes,
        )
    }

    /// Writes where a file is mapped from byte `offset` on.
    fn write_file(&self, node: NodeId, offset: u64, bytes: &[u8]) -> DeviceResult<()> {
        let log2 = self.seals.fs_block_log2;
        let map = self.placement.placed(self.tree, node).map;
        let runs = self.placement.maps.runs(map);
        let (mut at, mut rest) = (offset, bytes);
        let lblk = at >> log2;
        let first = runs.partition_point(|run| u64::from(run.lblk) + u64::from(run.len) <= lblk);
        for run in &runs[first..] {
            if rest.is_empty() {
                break;
            }
            let start = u64::from(run.lblk) << log2;
            let end = (u64::from(run.lblk) + u64::from(run.len)) << log2;
            let (now, later) = rest.split_at(rest.len().min((end - at) as usize));
            self.sink
                .device
                .write_at((run.pblk << log2) + (at - start), now)?;
            at += now.len() as u64;
            rest = later;
        }
        debug_assert!(rest.is_empty(), "a tree is mapped");
        Ok(())
    }
}
