//! Directory blocks: how many a directory needs, and their bytes.
//!
//! A directory that fits one block is a plain list. A larger one is hashed, where the file system
//! indexes directories: its entries are sorted by hash and packed into leaves front to back, and
//! the index is built bottom-up, so it is as small and as shallow as it can be.
//!
//! The plan counts, the writer encodes; both walk [`leaves`], so they agree by construction.

use super::{LOST_AND_FOUND, PlaceError, PlaceResult};
use crate::source::{Entry, Tree};
use extant_format::checksum::Crc32c;
use extant_format::dir::entry::{DirBlockBuilder, DirLayout, EntryType, NewEntry};
use extant_format::dir::hash::{NameHash, NameHasher};
use extant_format::dir::htree::{self, DxEntry, DxRootInfo};
use extant_format::{Ino, Lblk};
use std::ops::Range;

/// What all directories of an image have in common.
#[derive(Clone, Debug)]
pub(crate) struct DirRules {
    /// Layout of entries.
    pub(crate) layout: DirLayout,
    /// The hash of names, where directories are indexed.
    pub(crate) hasher: Option<NameHasher>,
    /// Feature `large_dir`.
    pub(crate) large_dir: bool,
}

/// One name, without its bytes: a directory may have millions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) ino: Ino,
    pub(crate) kind: EntryType,
}

/// Everything a directory holds.
#[derive(Clone, Debug)]
pub(crate) struct Listing<'t> {
    pub(crate) ino: Ino,
    pub(crate) parent: Ino,
    /// In the order of `entries`, with a `lost+found` that is none of them.
    pub(crate) names: Vec<Name>,
    pub(crate) tree: &'t Tree,
    pub(crate) entries: &'t [Entry],
    /// Where the `lost+found` is among the names that the tree does not have.
    pub(crate) made: Option<usize>,
}

impl<'t> Listing<'t> {
    /// The bytes of a name.
    fn name(&self, index: usize) -> &'t [u8] {
        let index = match self.made {
            Some(made) if made == index => return LOST_AND_FOUND,
            Some(made) if made < index => index - 1,
            _ => index,
        };
        self.tree.name(&self.entries[index])
    }

    fn all(&self) -> impl Iterator<Item = &'t [u8]> {
        (0..self.names.len()).map(|index| self.name(index))
    }

    fn entry(&self, index: usize) -> NewEntry<'t> {
        let Name { ino, kind } = self.names[index];
        NewEntry::new(ino, self.name(index), kind)
    }
}

/// The place of a name in the index, and in the listing.
#[derive(Clone, Copy, Debug)]
struct Hashed {
    hash: NameHash,
    at: u32,
}

/// The shape of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirShape {
    /// Blocks in all.
    pub(crate) blocks: u32,
    /// Whether it has an index.
    pub(crate) indexed: bool,
}

/// Leaves of a hashed directory: ranges of the sorted names, with the hash each begins at.
struct Leaf {
    names: Range<usize>,
    hash: u32,
}

impl DirRules {
    /// Blocks a directory needs.
    ///
    /// # Errors
    /// [`PlaceError::DirectoryTooLarge`] when the index cannot reach that many blocks.
    pub(crate) fn shape(&self, listing: &Listing<'_>) -> PlaceResult<DirShape> {
        let linear = self.linear_blocks(listing);
        let Some(hasher) = self.hasher.filter(|_| linear > 1) else {
            return Ok(DirShape {
                blocks: linear,
                indexed: false,
            });
        };
        let leaves = leaves(&self.layout, listing, &hashed(listing, &hasher)).len();
        let inner: usize = self.levels(leaves, listing)?.iter().sum();
        Ok(DirShape {
            blocks: (1 + inner + leaves) as u32,
            indexed: true,
        })
    }

    fn linear_blocks(&self, listing: &Listing<'_>) -> u32 {
        let room = self.layout.entries_len();
        let (mut blocks, mut used) = (
            1,
            self.layout.min_rec_len(b".") + self.layout.min_rec_len(b".."),
        );
        for name in listing.all() {
            let need = self.layout.min_rec_len(name);
            if used + need > room {
                blocks += 1;
                used = 0;
            }
            used += need;
        }
        blocks
    }

    /// Inner nodes on each level below the root, top first.
    fn levels(&self, leaves: usize, listing: &Listing<'_>) -> PlaceResult<Vec<usize>> {
        let per_node = htree::node_limit(&self.layout);
        let mut levels = Vec::new();
        let mut below = leaves;
        while below > htree::root_limit(&self.layout) {
            below = below.div_ceil(per_node);
            levels.insert(0, below);
        }
        if levels.len() > usize::from(htree::max_indirect_levels(self.large_dir)) {
            return Err(PlaceError::DirectoryTooLarge {
                ino: listing.ino.get(),
                names: listing.names.len() as u64,
            });
        }
        Ok(levels)
    }

    /// Fills `bytes` with blocks of a directory from its block `lblk` on, and blocks without names
    /// behind its last one.
    ///
    /// # Errors
    /// [`PlaceError::DirectoryTooLarge`]; the shape has been asked before, so it does not happen.
    pub(crate) fn encode(
        &self,
        listing: &Listing<'_>,
        seed: Crc32c,
        lblk: u32,
        bytes: &mut [u8],
    ) -> PlaceResult<()> {
        let shape = self.shape(listing)?;
        let size = self.layout.block_size.len();
        let len = shape.blocks as usize * size;
        let from = len.min(lblk as usize * size);
        let here = (len - from).min(bytes.len());
        let (filled, free) = bytes.split_at_mut(here);
        if here == len {
            self.encode_all(listing, shape, seed, filled)?;
        } else {
            // Only together are they what they shall be.
            let mut all = vec![0; len];
            self.encode_all(listing, shape, seed, &mut all)?;
            filled.copy_from_slice(&all[from..from + here]);
        }
        // Blocks kept in reserve for more names, as lost+found has them.
        for block in free.chunks_exact_mut(size) {
            DirBlockBuilder::new(block, &self.layout).finish(seed);
        }
        Ok(())
    }

    fn encode_all(
        &self,
        listing: &Listing<'_>,
        shape: DirShape,
        seed: Crc32c,
        bytes: &mut [u8],
    ) -> PlaceResult<()> {
        bytes.fill(0);
        match self.hasher.filter(|_| shape.indexed) {
            Some(hasher) => self.encode_hashed(listing, &hasher, seed, bytes),
            None => {
                self.encode_linear(listing, seed, bytes);
                Ok(())
            }
        }
    }

    fn encode_linear(&self, listing: &Listing<'_>, seed: Crc32c, bytes: &mut [u8]) {
        let mut blocks = bytes.chunks_exact_mut(self.layout.block_size.len());
        let Some(first) = blocks.next() else { return };
        let mut block = DirBlockBuilder::new(first, &self.layout);
        put(
            &mut block,
            &NewEntry::new(listing.ino, b".", EntryType::Directory),
        );
        put(
            &mut block,
            &NewEntry::new(listing.parent, b"..", EntryType::Directory),
        );
        for index in 0..listing.names.len() {
            let entry = listing.entry(index);
            if !block.push(&entry) {
                block.finish(seed);
                let Some(next) = blocks.next() else { return };
                block = DirBlockBuilder::new(next, &self.layout);
                put(&mut block, &entry);
            }
        }
        block.finish(seed);
    }

    fn encode_hashed(
        &self,
        listing: &Listing<'_>,
        hasher: &NameHasher,
        seed: Crc32c,
        bytes: &mut [u8],
    ) -> PlaceResult<()> {
        let names = hashed(listing, hasher);
        let leaves = leaves(&self.layout, listing, &names);
        let levels = self.levels(leaves.len(), listing)?;
        let inner: usize = levels.iter().sum();
        let size = self.layout.block_size.len();

        for (block, leaf) in bytes[(1 + inner) * size..]
            .chunks_exact_mut(size)
            .zip(&leaves)
        {
            let mut builder = DirBlockBuilder::new(block, &self.layout);
            for name in &names[leaf.names.clone()] {
                put(&mut builder, &listing.entry(name.at as usize));
            }
            builder.finish(seed);
        }

        let mut below: Vec<DxEntry> = leaves
            .iter()
            .enumerate()
            .map(|(i, leaf)| DxEntry {
                hash: leaf.hash,
                block: Lblk::new((1 + inner + i) as u32),
            })
            .collect();
        let mut level_end = 1 + inner;
        for nodes in levels.iter().rev() {
            let start = level_end - nodes;
            let mut above = Vec::with_capacity(*nodes);
            for (i, entries) in below.chunks(htree::node_limit(&self.layout)).enumerate() {
                let block = &mut bytes[(start + i) * size..][..size];
                let fits = htree::encode_node(block, &self.layout, entries, seed);
                debug_assert!(fits, "nodes are cut to size");
                above.push(DxEntry {
                    hash: entries[0].hash,
                    block: Lblk::new((start + i) as u32),
                });
            }
            below = above;
            level_end = start;
        }
        let info = DxRootInfo {
            ino: listing.ino,
            parent: listing.parent,
            hash_version: hasher.version(),
            indirect_levels: levels.len() as u8,
        };
        let fits = htree::encode_root(&mut bytes[..size], &self.layout, &info, &below, seed);
        debug_assert!(fits, "levels are added until the root holds the rest");
        Ok(())
    }
}

/// Adds an entry that the shape has made room for.
fn put(block: &mut DirBlockBuilder<'_>, entry: &NewEntry<'_>) {
    let fits = block.push(entry);
    debug_assert!(fits, "the shape counts with the same lengths");
}

/// Names with their hashes, in the order of the index; names decide between equal hashes, so that
/// the result does not depend on the order given.
fn hashed(listing: &Listing<'_>, hasher: &NameHasher) -> Vec<Hashed> {
    let hash = |(at, name)| Hashed {
        hash: hasher.hash(name),
        at,
    };
    let mut names: Vec<Hashed> = (0..).zip(listing.all()).map(hash).collect();
    let name = |hashed: &Hashed| listing.name(hashed.at as usize);
    names.sort_unstable_by(|a, b| a.hash.cmp(&b.hash).then_with(|| name(a).cmp(name(b))));
    names
}

/// Cuts sorted names into leaves. A leaf that begins inside a run of equal hashes says so in the
/// low bit of its hash.
fn leaves(layout: &DirLayout, listing: &Listing<'_>, names: &[Hashed]) -> Vec<Leaf> {
    let room = layout.entries_len();
    let mut leaves: Vec<Leaf> = vec![Leaf {
        names: 0..0,
        hash: 0,
    }];
    let mut used = 0;
    for (i, name) in names.iter().enumerate() {
        let hash = name.hash.major;
        let need = layout.min_rec_len(listing.name(name.at as usize));
        if used + need > room {
            let continued = names[i - 1].hash.major == hash;
            leaves.push(Leaf {
                names: i..i,
                hash: hash | u32::from(continued),
            });
            used = 0;
        }
        used += need;
        if let Some(leaf) = leaves.last_mut() {
            leaf.names.end = i + 1;
        }
    }
    leaves
}
