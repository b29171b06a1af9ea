//! Where data begins anew: regions of files that begin at places where chunks do.
//!
//! Programs that ship an image as chunks of a fixed size, or keep several versions of one, look for
//! equal chunks. Data in one dense row moves altogether when a file is added. So the files of a
//! tree are cut into regions, each of which begins with a new chunk: what is added moves what is
//! behind it in its own region, and all other regions by whole chunks or not at all. Where a region
//! ends is said by names and sizes of files, as in content-defined chunking, so that it ends in the
//! same place in the next build. The files of each source come in a row, those of the first source
//! first: images on one base have its regions in common.

use super::Shape;
use crate::source::{FileType, NodeId, Tree};

/// Fewest and most bytes of a region, unless one file has more.
const REGION_MIN: u64 = 3 << 19;
const REGION_MAX: u64 = 8 << 20;
/// In so many bytes there is one file whose name says that a region begins. So few, and so little
/// before one counts, that what was added is soon forgotten: the next region begins where it did.
const REGION_MARK: u64 = 3 << 20;
/// Files of fewer bytes count as this many.
const MARK_LEAST: u64 = 4 << 10;
/// The bytes of a chunk, from the best.
pub(crate) const CHUNKS: [u64; 2] = [512 << 10, 64 << 10];
/// Fewest chunks of data for which regions are made.
const CHUNKS_MIN: u64 = 4;
/// Of so many bytes of a chunk, one stays free behind a region at least.
const SLACK_SHARE: u64 = 16;

/// Numbers that follow from the names of nodes, as by chance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks<'t> {
    tree: &'t Tree,
}

impl<'t> Marks<'t> {
    pub(crate) fn new(tree: &'t Tree) -> Self {
        Self { tree }
    }

    /// The number of a node's own name and its directory's.
    pub(crate) fn of(&self, id: NodeId) -> u32 {
        let parent = self.tree.first_name(self.tree.node(id).parent());
        let name = self.tree.first_name(id);
        // FNV-1a, and a last step that spreads the bits.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for &byte in parent.iter().chain(b"/").chain(name) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }
}

/// Cuts files into regions, in the order in which they are placed.
#[derive(Debug)]
pub(crate) struct Regions<'t> {
    marks: Marks<'t>,
    tree: &'t Tree,
    bytes: u64,
    source: Option<u32>,
}

impl<'t> Regions<'t> {
    pub(crate) fn new(tree: &'t Tree) -> Self {
        Self {
            marks: Marks::new(tree),
            tree,
            bytes: 0,
            source: None,
        }
    }

    /// Whether a file with so many bytes stored begins a region.
    pub(crate) fn begins(&mut self, id: NodeId, stored: u64) -> bool {
        let source = Some(self.tree.rows.source(id));
        let is_other = self.source != source;
        let is_marked = || {
            let least = stored.max(MARK_LEAST);
            u64::from(self.marks.of(id)) % REGION_MARK < least
        };
        let ends = is_other
            || self.bytes + stored > REGION_MAX && self.bytes > 0
            || self.bytes >= REGION_MIN && is_marked();
        if ends {
            self.bytes = 0;
            self.source = source;
        }
        self.bytes += stored;
        ends
    }
}

/// Regular files with something stored, or with a hash tree, in the order in which they are placed.
pub(crate) fn files(tree: &Tree, shape: &Shape) -> Vec<NodeId> {
    let is_sealed = |id| shape.seals.as_ref().is_some_and(|seals| seals.contains(id));
    let has_blocks = |id| tree.file_row(id).is_some() || is_sealed(id);
    let mut files: Vec<NodeId> = tree
        .ids()
        .filter(|id| tree.kind(*id) == FileType::Regular && has_blocks(*id))
        .collect();
    if tree.stores.len() > 1 {
        files.sort_by_key(|id| tree.rows.source(*id));
    }
    files
}

/// A chunk size with which a tree will have room for regions, from the best; none if it will have
/// none.
pub(crate) fn chunks(tree: &Tree, shape: &Shape) -> impl Iterator<Item = Chunk> + use<> {
    let bits = shape.block_size.log2() + shape.cluster_bits;
    let units = |bytes: u64| bytes.div_ceil(1 << bits);
    let stored: u64 = tree
        .ids()
        .flat_map(|id| tree.extents(id))
        .map(|e| e.len)
        .sum();
    let data: u64 = files(tree, shape)
        .into_iter()
        .map(|id| tree.extents(id).map(|e| units(e.len)).sum::<u64>())
        .sum();
    let directories = tree
        .ids()
        .filter(|id| tree.kind(*id) == FileType::Directory)
        .count() as u64;
    let free: u64 = shape.free.iter().map(|run| run.end - run.start).sum();
    let runs = shape.free.len() as u64;
    let left = free.saturating_sub(data + directories + directories / 8);
    let sources = tree.stores.len() as u64;
    let phase = shape.first_data_block >> shape.cluster_bits;
    CHUNKS.into_iter().filter_map(move |bytes| {
        let chunk = Chunk {
            units: bytes >> bits,
            phase,
        };
        if chunk.units < 2 || stored < bytes * CHUNKS_MIN {
            return None;
        }
        // Half a chunk and the slack of it behind each region, and two where free space is cut.
        let regions = stored / (REGION_MIN + REGION_MARK) * 5 / 4 + sources;
        let needed = regions * (chunk.units / 2 + chunk.slack()) + 2 * runs.min(8) * chunk.units;
        (needed <= left).then_some(chunk)
    })
}

/// A chunk in allocation units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) units: u64,
    /// The address of unit 0.
    phase: u64,
}

impl Chunk {
    #[cfg(test)]
    pub(crate) const fn new(units: u64, phase: u64) -> Self {
        Self { units, phase }
    }

    /// The first unit at or after `unit` that begins a chunk.
    pub(crate) const fn after(self, unit: u64) -> u64 {
        (unit + self.phase).next_multiple_of(self.units) - self.phase
    }

    /// The last unit at or before `unit` that begins a chunk, if there is one.
    pub(crate) const fn before(self, unit: u64) -> Option<u64> {
        let address = unit + self.phase;
        (address - address % self.units).checked_sub(self.phase)
    }

    /// Units that stay free behind a region at least.
    pub(crate) const fn slack(self) -> u64 {
        self.units / SLACK_SHARE
    }
}
