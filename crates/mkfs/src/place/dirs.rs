//! Directory blocks: how many a directory needs, and their bytes.
//!
//! A directory that fits one block is a plain list. A larger one is hashed, where the file system
//! indexes directories: its entries are sorted by hash and packed into leaves front to back, and
//! the index is built bottom-up, so it is as small and as shallow as it can be.
//!
//! The plan counts, the writer encodes; both walk [`leaves`], so they agree by construction.

use super::{LOST_AND_FOUND, Numbering, PlaceError, PlaceResult};
use crate::source::{Entry, Tree};
use extant_format::checksum::Crc32c;
use extant_format::dir::entry::{DirBlockBuilder, DirLayout, EntryType, NewEntry};
use extant_format::dir::hash::{HashVersion, NameHash, NameHasher};
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

/// Everything a directory holds. There may be millions of names, so none is copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing<'t> {
    pub(crate) ino: Ino,
    pub(crate) parent: Ino,
    pub(crate) tree: &'t Tree,
    pub(crate) numbering: &'t Numbering,
    pub(crate) entries: &'t [Entry],
    /// Where among the names a `lost+found` is that the tree does not have.
    pub(crate) made: Option<usize>,
}

impl<'t> Listing<'t> {
    /// The number of names.
    fn len(&self) -> usize {
        self.entries.len() + usize::from(self.made.is_some())
    }

    /// An entry of the tree; `None` is the `lost+found` that it does not have.
    fn at(&self, index: usize) -> Option<&'t Entry> {
        let index = match self.made {
            Some(made) if made == index => return None,
            Some(made) if made < index => index - 1,
            _ => index,
        };
        Some(&self.entries[index])
    }

    /// The bytes of a name.
    fn name(&self, index: usize) -> &'t [u8] {
        match self.at(index) {
            Some(entry) => self.tree.name(entry),
            None => LOST_AND_FOUND,
        }
    }

    fn all(&self) -> impl Iterator<Item = &'t [u8]> {
        let listing = *self;
        (0..self.len()).map(move |index| listing.name(index))
    }

    fn entry(&self, index: usize) -> NewEntry<'t> {
        let Some(entry) = self.at(index) else {
            let ino = self.numbering.lost_found_ino();
            return NewEntry::new(ino, LOST_AND_FOUND, EntryType::Directory);
        };
        let kind = EntryType::of(self.tree.kind(entry.node()));
        let ino = self.numbering.ino(entry.node());
        NewEntry::new(ino, self.tree.name(entry), kind)
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
        let linear = self.linear_starts(listing).len();
        let Some(hasher) = self.hasher.filter(|_| linear > 1) else {
            return Ok(DirShape {
                blocks: linear as u32,
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
                names: listing.len() as u64,
            });
        }
        Ok(levels)
    }

    /// Lays a directory out, so that its blocks can be made.
    ///
    /// # Errors
    /// [`PlaceError::DirectoryTooLarge`]; the shape has been asked before, so it does not happen.
    pub(crate) fn lay_out<'a>(&'a self, listing: &'a Listing<'a>) -> PlaceResult<LaidOut<'a>> {
        let starts = self.linear_starts(listing);
        let form = match self.hasher.filter(|_| starts.len() > 1) {
            None => Form::Linear(starts),
            Some(hasher) => Form::Hashed(self.index(listing, &hasher)?),
        };
        Ok(LaidOut {
            layout: &self.layout,
            listing,
            form,
        })
    }

    /// The first name in each block of a directory that has no index.
    fn linear_starts(&self, listing: &Listing<'_>) -> Vec<u32> {
        let room = self.layout.entries_len();
        let mut used = self.layout.min_rec_len(b".") + self.layout.min_rec_len(b"..");
        let mut starts = vec![0];
        for (index, name) in (0..).zip(listing.all()) {
            let need = self.layout.min_rec_len(name);
            if used + need > room {
                starts.push(index);
                used = 0;
            }
            used += need;
        }
        starts
    }

    fn index(&self, listing: &Listing<'_>, hasher: &NameHasher) -> PlaceResult<Indexed> {
        let names = hashed(listing, hasher);
        let leaves = leaves(&self.layout, listing, &names);
        let counts = self.levels(leaves.len(), listing)?;
        let inner: usize = counts.iter().sum();
        let mut below: Vec<DxEntry> = leaves
            .iter()
            .enumerate()
            .map(|(i, leaf)| DxEntry {
                hash: leaf.hash,
                block: Lblk::new((1 + inner + i) as u32),
            })
            .collect();
        let per_node = htree::node_limit(&self.layout);
        let mut levels = Vec::with_capacity(counts.len());
        let mut level_end = 1 + inner;
        for nodes in counts.iter().rev() {
            let start = level_end - nodes;
            let above = below
                .chunks(per_node)
                .enumerate()
                .map(|(i, entries)| DxEntry {
                    hash: entries[0].hash,
                    block: Lblk::new((start + i) as u32),
                });
            let above = above.collect();
            levels.push(Level {
                start,
                entries: std::mem::replace(&mut below, above),
            });
            level_end = start;
        }
        levels.reverse();
        Ok(Indexed {
            version: hasher.version(),
            per_node,
            names,
            leaves,
            root: below,
            levels,
            inner,
        })
    }
}

/// A directory whose blocks can be made, one by one.
pub(crate) struct LaidOut<'a> {
    layout: &'a DirLayout,
    listing: &'a Listing<'a>,
    form: Form,
}

enum Form {
    /// The first name in each block.
    Linear(Vec<u32>),
    Hashed(Indexed),
}

/// A directory with an index: the root, inner nodes level by level from the top, and leaves.
struct Indexed {
    version: HashVersion,
    /// Entries of a node.
    per_node: usize,
    names: Vec<Hashed>,
    leaves: Vec<Leaf>,
    root: Vec<DxEntry>,
    levels: Vec<Level>,
    /// Nodes of all levels.
    inner: usize,
}

/// Inner nodes of one level.
struct Level {
    /// The block of the first one.
    start: usize,
    /// The entries of all of them.
    entries: Vec<DxEntry>,
}

impl LaidOut<'_> {
    /// Fills `bytes` with blocks of the directory from its block `lblk` on, and blocks without
    /// names behind its last one.
    pub(crate) fn encode(&self, seed: Crc32c, lblk: u32, bytes: &mut [u8]) {
        let blocks = bytes.chunks_exact_mut(self.layout.block_size.len());
        for (number, block) in (lblk as usize..).zip(blocks) {
            match &self.form {
                Form::Linear(starts) => self.encode_linear(starts, number, seed, block),
                Form::Hashed(indexed) => self.encode_hashed(indexed, number, seed, block),
            }
        }
    }

    fn encode_linear(&self, starts: &[u32], number: usize, seed: Crc32c, block: &mut [u8]) {
        let listing = self.listing;
        let mut builder = DirBlockBuilder::new(block, self.layout);
        if number == 0 {
            for (ino, name) in [(listing.ino, &b"."[..]), (listing.parent, b"..")] {
                put(
                    &mut builder,
                    &NewEntry::new(ino, name, EntryType::Directory),
                );
            }
        }
        // Blocks kept in reserve for more names, as lost+found has them, have no names.
        let end = |at: usize| {
            starts
                .get(at)
                .map_or(listing.len(), |start| *start as usize)
        };
        for index in end(number)..end(number + 1) {
            put(&mut builder, &listing.entry(index));
        }
        builder.finish(seed);
    }

    fn encode_hashed(&self, index: &Indexed, number: usize, seed: Crc32c, block: &mut [u8]) {
        if number == 0 {
            block.fill(0);
            let info = DxRootInfo {
                ino: self.listing.ino,
                parent: self.listing.parent,
                hash_version: index.version,
                indirect_levels: index.levels.len() as u8,
            };
            let fits = htree::encode_root(block, self.layout, &info, &index.root, seed);
            debug_assert!(fits, "levels are added until the root holds the rest");
            return;
        }
        if number <= index.inner {
            block.fill(0);
            let level = index.levels.iter().rfind(|level| level.start <= number);
            let nodes = level.map(|level| (number - level.start, &level.entries));
            let entries = nodes.and_then(|(at, all)| all.chunks(index.per_node).nth(at));
            let entries = entries.unwrap_or_default();
            let fits = htree::encode_node(block, self.layout, entries, seed);
            debug_assert!(fits, "nodes are cut to size");
            return;
        }
        let mut builder = DirBlockBuilder::new(block, self.layout);
        if let Some(leaf) = index.leaves.get(number - 1 - index.inner) {
            for name in &index.names[leaf.names.clone()] {
                put(&mut builder, &self.listing.entry(name.at as usize));
            }
        }
        builder.finish(seed);
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
