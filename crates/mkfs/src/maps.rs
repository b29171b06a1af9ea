//! Which blocks hold which file: runs, and the blocks of the tree or indirect map above them.
//!
//! All maps share a few vectors; a file keeps two ranges of them. A tree block keeps what it
//! points at, not its bytes: they are made when it is written.

use extant_format::checksum::Crc32c;
use extant_format::extent::{self, Entries, Extent, IndexEntry};
use extant_format::indirect::{self, DIRECT};
use extant_format::{BlockSize, FormatError, Lblk, Pblk};
use std::ops::Range;

/// What a map cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MapError {
    /// A logical block beyond what the map reaches.
    #[error("block {block} of a file is beyond the {reach} blocks its map can reach")]
    Unmappable { block: u64, reach: u64 },
    /// A physical block that an indirect map cannot name.
    #[error("block {block} cannot be named in an indirect map, which has 32 bits")]
    BeyondIndirect { block: u64 },
    /// A number that does not fit the format.
    #[error(transparent)]
    Format(#[from] FormatError),
}

type MapResult<T> = Result<T, MapError>;

/// Logical blocks that lie in one run on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// First logical block.
    pub(crate) lblk: u32,
    /// Number of blocks.
    pub(crate) len: u32,
    /// First physical block.
    pub(crate) pblk: u64,
}

/// A block of an extent tree or of an indirect map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeBlock {
    /// Where it lies.
    pub(crate) pblk: u64,
    /// First logical block it is about.
    lblk: u32,
    /// What it points at: runs (level 0) or tree blocks of the level below.
    first: u32,
    len: u32,
    level: u8,
}

/// The map of one file: ranges of the shared vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileMap {
    runs: (u32, u32),
    tree: (u32, u32),
    /// Levels above the runs that are blocks of their own.
    levels: u8,
}

/// How files are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Extent trees.
    Extents,
    /// Indirect maps of ext2 and ext3.
    Indirect,
}

/// All maps of an image.
#[derive(Debug)]
pub(crate) struct Maps {
    kind: MapKind,
    block_size: BlockSize,
    runs: Vec<Run>,
    tree: Vec<TreeBlock>,
}

impl Maps {
    /// No maps yet.
    pub(crate) fn new(kind: MapKind, block_size: BlockSize) -> Self {
        Self {
            kind,
            block_size,
            runs: Vec::new(),
            tree: Vec::new(),
        }
    }

    /// The runs of a file.
    pub(crate) fn runs(&self, map: FileMap) -> &[Run] {
        &self.runs[map.runs.0 as usize..map.runs.1 as usize]
    }

    /// The numbers of the runs of a file.
    pub(crate) fn run_numbers(&self, map: FileMap) -> Range<u32> {
        map.runs.0..map.runs.1
    }

    /// The run with a number.
    pub(crate) fn run(&self, number: u32) -> Run {
        self.runs[number as usize]
    }

    /// The map that consists of this run alone, and the run, if it begins with the first block.
    pub(crate) fn one_run(&self, number: u32) -> Option<(FileMap, Run)> {
        let run = *self.runs.get(number as usize)?;
        let map = FileMap {
            runs: (number, number + 1),
            ..FileMap::default()
        };
        (run.lblk == 0).then_some((map, run))
    }

    /// Where a tree block lies.
    pub(crate) fn tree_block(&self, index: u32) -> u64 {
        self.tree[index as usize].pblk
    }

    /// The tree blocks of a file, with the index that
    /// [`encode_tree_block`](Self::encode_tree_block) takes.
    pub(crate) fn tree_blocks(&self, map: FileMap) -> impl Iterator<Item = (u32, TreeBlock)> + '_ {
        (map.tree.0..map.tree.1).map(|i| (i, self.tree[i as usize]))
    }

    /// Adds the map of a file from its runs in ascending logical order, taking blocks for the
    /// tree from `block`.
    ///
    /// # Errors
    /// Those of `block`, and [`MapError::Unmappable`] beyond the reach of an indirect map.
    pub(crate) fn add<E: From<MapError>>(
        &mut self,
        runs: &[Run],
        block: impl FnMut() -> Result<u64, E>,
    ) -> Result<FileMap, E> {
        let first_run = self.runs.len() as u32;
        match self.kind {
            MapKind::Extents => self.runs.extend(runs.iter().flat_map(|run| split(*run))),
            MapKind::Indirect => self.runs.extend(runs),
        }
        let first_tree = self.tree.len() as u32;
        let runs = (first_run, self.runs.len() as u32);
        let levels = match self.kind {
            MapKind::Extents => self.grow_extent_tree(runs, block)?,
            MapKind::Indirect => self.grow_indirect_map(runs, block)?,
        };
        // Those that are empty are all the same.
        let range = |from, to| if from == to { (0, 0) } else { (from, to) };
        Ok(FileMap {
            runs: range(runs.0, runs.1),
            tree: range(first_tree, self.tree.len() as u32),
            levels,
        })
    }

    fn grow_extent_tree<E>(
        &mut self,
        runs: (u32, u32),
        mut block: impl FnMut() -> Result<u64, E>,
    ) -> Result<u8, E> {
        let capacity = u32::from(extent::block_capacity(self.block_size));
        let mut below = runs;
        let mut level = 0;
        while below.1 - below.0 > u32::from(extent::ROOT_CAPACITY) {
            let start = self.tree.len() as u32;
            let mut first = below.0;
            while first < below.1 {
                let len = capacity.min(below.1 - first);
                let lblk = self.first_lblk(level, first);
                self.tree.push(TreeBlock {
                    pblk: block()?,
                    lblk,
                    first,
                    len,
                    level,
                });
                first += len;
            }
            below = (start, self.tree.len() as u32);
            level += 1;
        }
        Ok(level)
    }

    fn first_lblk(&self, level: u8, index: u32) -> u32 {
        if level == 0 {
            self.runs[index as usize].lblk
        } else {
            self.tree[index as usize].lblk
        }
    }

    /// Logical blocks under one block of an indirect map at `level`.
    fn indirect_span(&self, level: u8) -> u64 {
        let per_block = u64::from(indirect::pointers_per_block(self.block_size));
        per_block.saturating_pow(u32::from(level) + 1)
    }

    /// First logical block under the root pointer of `level` (0: single indirect).
    fn indirect_base(&self, level: u8) -> u64 {
        u64::from(DIRECT) + (0..level).map(|l| self.indirect_span(l)).sum::<u64>()
    }

    fn grow_indirect_map<E: From<MapError>>(
        &mut self,
        runs: (u32, u32),
        mut block: impl FnMut() -> Result<u64, E>,
    ) -> Result<u8, E> {
        if let Some(last) = self.runs[runs.0 as usize..runs.1 as usize].last() {
            let end = u64::from(last.lblk) + u64::from(last.len);
            let reach = indirect::blocks_reached(self.block_size);
            if end > reach {
                return Err(MapError::Unmappable {
                    block: end - 1,
                    reach,
                }
                .into());
            }
        }
        let mut levels = 0;
        for root in 0..indirect::MAX_LEVELS as u8 {
            let base = self.indirect_base(root);
            let area = base..base + self.indirect_span(root);
            let mut below = self.leaves_of_indirect(runs, area, &mut block)?;
            if below.is_empty() {
                continue;
            }
            for level in 1..=root {
                below = self.indirect_level(base, level, below, &mut block)?;
            }
            levels = root + 1;
        }
        Ok(levels)
    }

    /// Blocks of pointers to data for the mapped part of `area`.
    fn leaves_of_indirect<E: From<MapError>>(
        &mut self,
        runs: (u32, u32),
        area: Range<u64>,
        block: &mut impl FnMut() -> Result<u64, E>,
    ) -> Result<Range<u32>, E> {
        let span = self.indirect_span(0);
        let start = self.tree.len() as u32;
        for i in runs.0..runs.1 {
            let run = self.runs[i as usize];
            let from = u64::from(run.lblk).max(area.start);
            let to = (u64::from(run.lblk) + u64::from(run.len)).min(area.end);
            if from >= to {
                continue;
            }
            let mut at = area.start + (from - area.start) / span * span;
            while at < to {
                match self.tree[start as usize..].last_mut() {
                    Some(last) if u64::from(last.lblk) == at => last.len += 1,
                    _ => {
                        let pblk = pointer(block()?)?;
                        let lblk = at as u32;
                        self.tree.push(TreeBlock {
                            pblk,
                            lblk,
                            first: i,
                            len: 1,
                            level: 0,
                        });
                    }
                }
                at += span;
            }
        }
        Ok(start..self.tree.len() as u32)
    }

    /// Blocks of pointers to the blocks `below`, which start at `base`.
    fn indirect_level<E: From<MapError>>(
        &mut self,
        base: u64,
        level: u8,
        below: Range<u32>,
        block: &mut impl FnMut() -> Result<u64, E>,
    ) -> Result<Range<u32>, E> {
        let span = self.indirect_span(level);
        let start = self.tree.len() as u32;
        for i in below {
            let at = base + (u64::from(self.tree[i as usize].lblk) - base) / span * span;
            match self.tree[start as usize..].last_mut() {
                Some(last) if u64::from(last.lblk) == at => last.len += 1,
                _ => {
                    let pblk = pointer(block()?)?;
                    self.tree.push(TreeBlock {
                        pblk,
                        lblk: at as u32,
                        first: i,
                        len: 1,
                        level,
                    });
                }
            }
        }
        Ok(start..self.tree.len() as u32)
    }

    /// The 60 bytes of the inode's map.
    ///
    /// # Errors
    /// A block number that the format cannot hold.
    pub(crate) fn root(&self, map: FileMap) -> MapResult<[u8; 60]> {
        match self.kind {
            MapKind::Extents => {
                let mut root = [0; 60];
                if map.levels == 0 {
                    extent::build_node(&mut root, Entries::Extents(&self.extents(map.runs)))?;
                } else {
                    let top = self.top_level(map);
                    let entries = self.index_entries(top);
                    extent::build_node(&mut root, Entries::Index(map.levels.into(), &entries))?;
                }
                Ok(root)
            }
            MapKind::Indirect => {
                let mut pointers = [0u32; indirect::ROOT_POINTERS];
                for run in self.runs(map) {
                    for (slot, n) in
                        (run.lblk..DIRECT.min(run.lblk.saturating_add(run.len))).zip(0..)
                    {
                        pointers[slot as usize] = pointer(run.pblk + n)? as u32;
                    }
                }
                for (_, block) in self.tree_blocks(map) {
                    if u64::from(block.lblk) == self.indirect_base(block.level) {
                        // The block that starts the area of its level is its root, unless it
                        // hangs under a higher one; higher levels come later and start elsewhere.
                        pointers[DIRECT as usize + usize::from(block.level)] = block.pblk as u32;
                    }
                }
                Ok(indirect::encode_root(&pointers))
            }
        }
    }

    fn extents(&self, runs: (u32, u32)) -> Vec<Extent> {
        self.runs[runs.0 as usize..runs.1 as usize]
            .iter()
            .map(|run| Extent {
                lblk: Lblk::new(run.lblk),
                len: run.len,
                pblk: Pblk::new(run.pblk),
                unwritten: false,
            })
            .collect()
    }

    fn top_level(&self, map: FileMap) -> (u32, u32) {
        let blocks = &self.tree[map.tree.0 as usize..map.tree.1 as usize];
        let above = blocks.iter().filter(|b| b.level + 1 == map.levels).count() as u32;
        (map.tree.1 - above, map.tree.1)
    }

    fn index_entries(&self, blocks: (u32, u32)) -> Vec<IndexEntry> {
        self.tree[blocks.0 as usize..blocks.1 as usize]
            .iter()
            .map(|b| IndexEntry {
                lblk: Lblk::new(b.lblk),
                child: Pblk::new(b.pblk),
            })
            .collect()
    }

    /// Makes the bytes of tree block `index` in `bytes`, a whole block.
    ///
    /// # Errors
    /// A block number that the format cannot hold.
    pub(crate) fn encode_tree_block(
        &self,
        index: u32,
        bytes: &mut [u8],
        inode_seed: Option<Crc32c>,
    ) -> MapResult<()> {
        let block = self.tree[index as usize];
        let below = (block.first, block.first + block.len);
        match (self.kind, block.level) {
            (MapKind::Extents, level) => {
                if level == 0 {
                    extent::build_node(bytes, Entries::Extents(&self.extents(below)))?;
                } else {
                    let entries = self.index_entries(below);
                    extent::build_node(bytes, Entries::Index(level.into(), &entries))?;
                }
                if let Some(seed) = inode_seed {
                    extent::store_checksum(bytes, seed)?;
                }
            }
            (MapKind::Indirect, level) => {
                indirect::encode_pointers(bytes, &self.indirect_pointers(block, level, below)?);
            }
        }
        Ok(())
    }

    fn indirect_pointers(
        &self,
        block: TreeBlock,
        level: u8,
        below: (u32, u32),
    ) -> MapResult<Vec<u32>> {
        let mut pointers = vec![0u32; indirect::pointers_per_block(self.block_size) as usize];
        let base = u64::from(block.lblk);
        let below = below.0 as usize..below.1 as usize;
        if level > 0 {
            let span = self.indirect_span(level - 1);
            for child in &self.tree[below] {
                pointers[((u64::from(child.lblk) - base) / span) as usize] = child.pblk as u32;
            }
        } else {
            let end = base + self.indirect_span(0);
            for run in &self.runs[below] {
                let start = u64::from(run.lblk);
                for at in start.max(base)..(start + u64::from(run.len)).min(end) {
                    pointers[(at - base) as usize] = pointer(run.pblk + (at - start))? as u32;
                }
            }
        }
        Ok(pointers)
    }
}

/// A run cut into pieces that an extent can hold.
fn split(run: Run) -> impl Iterator<Item = Run> {
    (0..run.len)
        .step_by(extent::MAX_WRITTEN_LEN as usize)
        .map(move |from| Run {
            lblk: run.lblk + from,
            len: (run.len - from).min(extent::MAX_WRITTEN_LEN),
            pblk: run.pblk + u64::from(from),
        })
}

/// A block number that an indirect map can hold.
fn pointer(pblk: u64) -> MapResult<u64> {
    if pblk > u64::from(u32::MAX) {
        Err(MapError::BeyondIndirect { block: pblk })
    } else {
        Ok(pblk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_format::extent::ExtentNode;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const BLOCK: BlockSize = BlockSize::MIN;

    /// The blocks of a map as they would be on a device.
    struct Device {
        root: [u8; 60],
        blocks: HashMap<u64, Vec<u8>>,
    }

    fn mapped(kind: MapKind, runs: &[Run]) -> (Device, u64) {
        let mut maps = Maps::new(kind, BLOCK);
        // Another file first, so that the ranges do not start at zero.
        let mut next = 1_000_000;
        let mut block = || {
            next += 1;
            Ok::<u64, MapError>(next)
        };
        let other: Vec<Run> = (0..9)
            .map(|i| Run {
                lblk: i * 20,
                len: 1,
                pblk: 7,
            })
            .collect();
        maps.add(&other, &mut block).unwrap();
        let map = maps.add(runs, &mut block).unwrap();
        let mut blocks = HashMap::new();
        for (index, tree) in maps.tree_blocks(map) {
            let mut bytes = vec![0; BLOCK.len()];
            maps.encode_tree_block(index, &mut bytes, None).unwrap();
            blocks.insert(tree.pblk, bytes);
        }
        (
            Device {
                root: maps.root(map).unwrap(),
                blocks,
            },
            maps.tree_blocks(map).count() as u64,
        )
    }

    fn walk_extents(device: &Device, bytes: &[u8], found: &mut Vec<(u32, u64)>) {
        let node = ExtentNode::parse(bytes).unwrap();
        if node.is_leaf() {
            for e in node.extents() {
                found.extend((0..e.len).map(|i| (e.lblk.get() + i, e.pblk.get() + u64::from(i))));
            }
        } else {
            for entry in node.index_entries() {
                walk_extents(device, &device.blocks[&entry.child.get()], found);
            }
        }
    }

    fn walk_indirect(device: &Device, lblk: u32) -> Option<u64> {
        let path = indirect::IndirectPath::to(Lblk::new(lblk), BLOCK)?;
        let root = indirect::root_pointers(device.root[..].try_into().unwrap());
        let mut pointer = root[path.root()];
        for step in path.steps() {
            if pointer == 0 {
                return None;
            }
            pointer = indirect::pointer(&device.blocks[&u64::from(pointer)], *step as usize);
        }
        (pointer != 0).then_some(pointer.into())
    }

    fn any_runs() -> impl Strategy<Value = Vec<Run>> {
        prop::collection::vec((1u32..3000, 1u32..600), 0..300).prop_map(|list| {
            let (mut lblk, mut pblk) = (0, 100);
            list.into_iter()
                .map(|(gap, len)| {
                    lblk += gap - 1;
                    let run = Run { lblk, len, pblk };
                    lblk += len + 1;
                    pblk += u64::from(len) + 1;
                    run
                })
                .collect()
        })
    }

    fn expected(runs: &[Run]) -> Vec<(u32, u64)> {
        runs.iter()
            .flat_map(|r| (0..r.len).map(|i| (r.lblk + i, r.pblk + u64::from(i))))
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn an_extent_tree_maps_what_was_put_in(runs in any_runs()) {
            let (device, _) = mapped(MapKind::Extents, &runs);
            let mut found = Vec::new();
            walk_extents(&device, &device.root, &mut found);
            prop_assert_eq!(found, expected(&runs));
        }

        #[test]
        fn an_indirect_map_maps_what_was_put_in(runs in any_runs()) {
            let (device, blocks) = mapped(MapKind::Indirect, &runs);
            prop_assert_eq!(blocks as usize, device.blocks.len());
            for (lblk, pblk) in expected(&runs) {
                prop_assert_eq!(walk_indirect(&device, lblk), Some(pblk));
            }
            for run in &runs {
                let after = run.lblk + run.len;
                if !runs.iter().any(|r| (r.lblk..r.lblk + r.len).contains(&after)) {
                    prop_assert_eq!(walk_indirect(&device, after), None);
                }
            }
        }
    }

    #[test]
    fn a_long_run_is_cut_to_what_an_extent_can_hold() {
        let (device, _) = mapped(
            MapKind::Extents,
            &[Run {
                lblk: 5,
                len: 100_000,
                pblk: 9,
            }],
        );
        let mut found = Vec::new();
        walk_extents(&device, &device.root, &mut found);
        assert_eq!(found.len(), 100_000);
        assert_eq!(found.last(), Some(&(100_004, 100_008)));
    }

    #[test]
    fn a_block_beyond_32_bits_is_refused_in_an_indirect_map() {
        let mut maps = Maps::new(MapKind::Indirect, BLOCK);
        let runs = [Run {
            lblk: 0,
            len: 1,
            pblk: 1 << 32,
        }];
        let map = maps.add(&runs, || Ok::<u64, MapError>(1)).unwrap();
        assert!(matches!(
            maps.root(map),
            Err(MapError::BeyondIndirect { .. })
        ));
    }
}
