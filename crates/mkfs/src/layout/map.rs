//! An extent tree or an indirect map over blocks that have been placed, built bottom-up.

use super::{Layout, PlanResult};
use extant_format::extent::{self, Entries, Extent, IndexEntry, MAX_WRITTEN_LEN, ROOT_CAPACITY};
use extant_format::inode::{InodeFlags, MAP_BYTES};
use extant_format::{Ino, Lblk, Pblk, indirect};
use std::ops::Range;

/// The map of a file: what the inode holds, and the blocks behind it.
#[derive(Clone, Debug)]
pub struct FileMap {
    /// The inode's map.
    pub root: [u8; MAP_BYTES],
    /// `EXTENTS` or nothing.
    pub flags: InodeFlags,
    /// Index blocks and their content.
    pub nodes: Vec<(Pblk, Vec<u8>)>,
}

/// The extents of a file without holes whose blocks are `runs`, in order.
pub(super) fn extents_of(runs: &[Range<u64>]) -> Vec<Extent> {
    let mut lblk = 0;
    let mut extents = Vec::new();
    for run in runs {
        let mut start = run.start;
        while start < run.end {
            let len = (run.end - start).min(MAX_WRITTEN_LEN.into()) as u32;
            extents.push(Extent {
                lblk: Lblk::new(lblk),
                len,
                pblk: Pblk::new(start),
                unwritten: false,
            });
            lblk += len;
            start += u64::from(len);
        }
    }
    extents
}

impl FileMap {
    const fn empty(flags: InodeFlags) -> Self {
        Self {
            root: [0; MAP_BYTES],
            flags,
            nodes: Vec::new(),
        }
    }

    /// Index blocks an extent tree of `extents` extents needs.
    #[must_use]
    pub fn extent_nodes(layout: &Layout, extents: u64) -> u64 {
        let capacity = u64::from(extent::block_capacity(layout.geometry().block_size()));
        let (mut level, mut nodes) = (extents, 0);
        while level > ROOT_CAPACITY.into() {
            level = level.div_ceil(capacity);
            nodes += level;
        }
        nodes
    }

    /// Pointer blocks an indirect map of the first `blocks` blocks of a file needs.
    #[must_use]
    pub fn indirect_nodes(layout: &Layout, blocks: u64) -> u64 {
        let per_block = u64::from(indirect::pointers_per_block(layout.geometry().block_size()));
        let mut left = blocks.saturating_sub(indirect::DIRECT.into());
        let (mut nodes, mut reach) = (0, 1);
        for depth in 1..=indirect::MAX_LEVELS {
            reach *= per_block;
            let here = left.min(reach);
            let mut level = here;
            for _ in 0..depth {
                level = level.div_ceil(per_block);
                nodes += level;
            }
            left -= here;
        }
        nodes
    }

    /// The extent tree of a file, its index blocks taken from `nodes`
    /// ([`FileMap::extent_nodes`] of them).
    ///
    /// # Errors
    /// An extent the format cannot hold, or too few index blocks.
    pub fn extents(
        layout: &Layout,
        ino: Ino,
        extents: &[Extent],
        nodes: &mut impl Iterator<Item = Pblk>,
    ) -> PlanResult<Self> {
        let size = layout.geometry().block_size();
        let capacity = usize::from(extent::block_capacity(size));
        let seed = layout.inode_context(ino).inode_seed(0);
        let mut map = Self::empty(InodeFlags::EXTENTS);
        let mut node = |entries: Entries<'_>| -> PlanResult<Pblk> {
            let at = nodes.next().ok_or_else(too_few)?;
            let mut block = vec![0; size.len()];
            extent::build_node(&mut block, entries)?;
            if let Some(seed) = seed {
                extent::store_checksum(&mut block, seed)?;
            }
            map.nodes.push((at, block));
            Ok(at)
        };
        if extents.len() <= usize::from(ROOT_CAPACITY) {
            extent::build_node(&mut map.root, Entries::Extents(extents))?;
            return Ok(map);
        }
        let mut level = Vec::new();
        for chunk in extents.chunks(capacity) {
            let child = node(Entries::Extents(chunk))?;
            level.push(IndexEntry {
                lblk: chunk[0].lblk,
                child,
            });
        }
        let mut depth = 1;
        while level.len() > usize::from(ROOT_CAPACITY) {
            let mut above = Vec::new();
            for chunk in level.chunks(capacity) {
                let child = node(Entries::Index(depth, chunk))?;
                above.push(IndexEntry {
                    lblk: chunk[0].lblk,
                    child,
                });
            }
            level = above;
            depth += 1;
        }
        extent::build_node(&mut map.root, Entries::Index(depth, &level))?;
        Ok(map)
    }

    /// The indirect map of a file whose blocks are `blocks` (0 for a hole), its pointer blocks taken
    /// from `nodes` ([`FileMap::indirect_nodes`] of them).
    ///
    /// # Errors
    /// A block past 32 bits, or too few pointer blocks.
    pub fn indirect(
        layout: &Layout,
        blocks: &[u32],
        nodes: &mut impl Iterator<Item = Pblk>,
    ) -> PlanResult<Self> {
        let size = layout.geometry().block_size();
        let per_block = indirect::pointers_per_block(size) as usize;
        let mut map = Self::empty(InodeFlags::empty());
        let mut root = [0; indirect::ROOT_POINTERS];
        let (direct, mut left) = blocks.split_at(blocks.len().min(indirect::DIRECT as usize));
        root[..direct.len()].copy_from_slice(direct);
        let mut reach = 1_usize;
        for depth in 1..=indirect::MAX_LEVELS {
            reach = reach.saturating_mul(per_block);
            let (here, rest) = left.split_at(left.len().min(reach));
            left = rest;
            let mut level = here.to_vec();
            for _ in 0..depth {
                level = map.pointer_level(&level, per_block, size.len(), nodes)?;
            }
            root[indirect::DIRECT as usize + depth - 1] = level.first().copied().unwrap_or(0);
        }
        map.root = indirect::encode_root(&root);
        Ok(map)
    }

    /// Puts `pointers` into blocks of their own; returns those blocks' numbers.
    fn pointer_level(
        &mut self,
        pointers: &[u32],
        per_block: usize,
        block_len: usize,
        nodes: &mut impl Iterator<Item = Pblk>,
    ) -> PlanResult<Vec<u32>> {
        pointers
            .chunks(per_block)
            .map(|chunk| {
                let at = nodes.next().ok_or_else(too_few)?;
                let mut block = vec![0; block_len];
                indirect::encode_pointers(&mut block, chunk);
                self.nodes.push((at, block));
                narrow(at.get())
            })
            .collect()
    }
}

fn too_few() -> super::PlanError {
    super::PlanError::NoSpace {
        what: "the index of a file",
        needed: 1,
        free: 0,
    }
}

/// A block number as an indirect map stores it.
pub(super) fn narrow(block: u64) -> PlanResult<u32> {
    u32::try_from(block).map_err(|_| super::PlanError::Conflict {
        asked: "a file mapped by indirect blocks",
        conflict: "cannot use blocks past 2^32",
    })
}
