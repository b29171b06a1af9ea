//! Descending the index of a hashed directory.

use super::Found;
use super::block::Directory;
use super::lookup::search_leaf;
use super::matching::Wanted;
use crate::meta::BlockRef;
use crate::{Error, InPlace, Place, Result};
use extant_format::dir::htree::{DxEntries, DxEntry, DxKind, DxRoot, parse_node};
use extant_format::dir::{HashVersion, NameHash, NameHasher};
use extant_format::{Expected, FormatError, FormatResult, Lblk, Structure};

/// Why the index did not lead to a leaf.
pub(super) enum Fault {
    /// The index cannot be used: its hash is not known, or it contradicts itself.
    Index(Error),
    /// A block could not be read.
    Block(Error),
}

impl From<Error> for Fault {
    fn from(e: Error) -> Self {
        Self::Block(e)
    }
}

impl Fault {
    /// Returns the error, for callers that cannot do without the index.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Index(e) | Self::Block(e) => e,
        }
    }
}

/// What the index says.
pub(super) enum Answer {
    /// The name is here.
    Found(Found),
    /// The directory does not have the name.
    Absent,
    /// The index cannot be used.
    Useless,
}

/// Where the index leads.
pub(super) struct Leaf {
    pub(super) lblk: Lblk,
    /// What it was descended for.
    pub(super) hash: u32,
    /// The hash of the pair behind the one that led here; `None` at the end of the index.
    pub(super) next: Option<u32>,
}

impl Leaf {
    /// Tells whether names of the hash go on in the next leaf.
    pub(super) fn continues(&self) -> bool {
        self.next == Some(self.hash | 1)
    }
}

/// One step down: the pair to follow, and the hash of the one behind it.
struct Down {
    block: Option<Lblk>,
    next: Option<u32>,
}

impl Down {
    fn choose(pairs: &DxEntries<'_>, hash: u32) -> Self {
        let at = pairs.find(hash);
        Self {
            block: pairs.get(at).map(|pair| pair.block),
            next: pairs.get(at + 1).map(|pair| pair.hash),
        }
    }
}

/// Returns the first leaf that may hold a name of the hash that `hash_of` works out. Keeps no
/// block.
pub(super) fn leaf_of(
    dir: &Directory<'_>,
    hash_of: impl FnOnce(&NameHasher) -> u32,
) -> Result<Leaf, Fault> {
    let top = Lblk::new(0);
    let (hash, levels, mut down) = in_index(
        dir,
        top,
        dir.with_block(top, |block| {
            let root = DxRoot::parse(block, &dir.layout, dir.large_dir)?;
            let hash = hash_of(&hasher(dir, root.hash_version)?);
            Ok((
                hash,
                root.indirect_levels,
                Down::choose(&root.entries, hash),
            ))
        })?,
    )?;
    let mut next = down.next;
    for _ in 0..levels {
        let lblk = inside(dir, down.block)?;
        down = in_index(
            dir,
            lblk,
            dir.with_block(lblk, |block| {
                Ok(Down::choose(&parse_node(block, &dir.layout)?, hash))
            })?,
        )?;
        next = down.next.or(next);
    }
    Ok(Leaf {
        lblk: inside(dir, down.block)?,
        hash,
        next,
    })
}

/// Returns what was read from block `lblk` of the index; `None` is a hole.
fn in_index<T>(dir: &Directory<'_>, lblk: Lblk, read: Option<FormatResult<T>>) -> Result<T, Fault> {
    let place = Place::FileBlock(dir.inode.ino(), lblk);
    match read {
        Some(read) => read.in_place(place).map_err(Fault::Index),
        None => Err(Fault::Index(dir.hole(lblk))),
    }
}

/// Returns a block number that a pair gave, if it lies inside the directory.
fn inside(dir: &Directory<'_>, lblk: Option<Lblk>) -> Result<Lblk, Fault> {
    let found = lblk.map_or(u64::MAX, |lblk| lblk.get().into());
    match lblk.filter(|_| found < dir.blocks()) {
        Some(lblk) => Ok(lblk),
        None => {
            let expected = Expected::AtMost(dir.blocks().saturating_sub(1));
            let source = FormatError::new(Structure::DirIndex, "block", found, expected);
            Err(Fault::Index(Error::corrupt(
                Place::Inode(dir.inode.ino()),
                source,
            )))
        }
    }
}

/// One index node on the way down, and the pair that was followed.
pub(super) struct Step {
    pub(super) block: BlockRef,
    pub(super) kind: DxKind,
    pub(super) at: usize,
}

impl Step {
    /// Returns the pairs of the node. It was parsed before: `None` never happens.
    pub(super) fn pairs<'a>(&'a self, dir: &Directory<'_>) -> Option<DxEntries<'a>> {
        match self.kind {
            DxKind::Root => DxRoot::parse(&self.block, &dir.layout, dir.large_dir)
                .ok()
                .map(|root| root.entries),
            DxKind::Inner => parse_node(&self.block, &dir.layout).ok(),
        }
    }
}

/// The way from the root to a leaf, with all nodes on it.
pub(super) struct Way {
    pub(super) steps: Vec<Step>,
    pub(super) leaf: Lblk,
    pub(super) hasher: NameHasher,
    pub(super) levels: u8,
    hash: u32,
}

impl Way {
    /// Returns the way to the first leaf that may hold names of `hash`.
    pub(super) fn to(
        dir: &Directory<'_>,
        hash_of: impl FnOnce(&NameHasher) -> u32,
    ) -> Result<Self, Fault> {
        let lblk = Lblk::new(0);
        let block = dir
            .block(lblk)?
            .ok_or_else(|| Fault::Index(dir.hole(lblk)))?;
        let read = (|| {
            let root = DxRoot::parse(&block, &dir.layout, dir.large_dir)?;
            let hasher = hasher(dir, root.hash_version)?;
            let hash = hash_of(&hasher);
            let at = root.entries.find(hash);
            let child = root.entries.get(at).map(|pair| pair.block);
            Ok((hasher, hash, root.indirect_levels, at, child))
        })();
        let (hasher, hash, levels, at, child) = in_index(dir, lblk, Some(read))?;
        let mut way = Self {
            steps: vec![Step {
                block,
                kind: DxKind::Root,
                at,
            }],
            leaf: lblk,
            hasher,
            levels,
            hash,
        };
        way.down(dir, child, |pairs| pairs.find(hash))?;
        Ok(way)
    }

    /// Goes from the last step down to a leaf, choosing in each node.
    fn down(
        &mut self,
        dir: &Directory<'_>,
        mut child: Option<Lblk>,
        choose: impl Fn(&DxEntries<'_>) -> usize,
    ) -> Result<(), Fault> {
        while self.steps.len() <= usize::from(self.levels) {
            let lblk = inside(dir, child)?;
            let block = dir
                .block(lblk)?
                .ok_or_else(|| Fault::Index(dir.hole(lblk)))?;
            let (at, below) = {
                let pairs = in_index(dir, lblk, Some(parse_node(&block, &dir.layout)))?;
                let at = choose(&pairs);
                (at, pairs.get(at).map(|pair| pair.block))
            };
            child = below;
            self.steps.push(Step {
                block,
                kind: DxKind::Inner,
                at,
            });
        }
        self.leaf = inside(dir, child)?;
        Ok(())
    }

    /// Returns the pair behind the one that leads to the leaf, wherever it is.
    pub(super) fn next(&self, dir: &Directory<'_>) -> Option<DxEntry> {
        self.steps
            .iter()
            .rev()
            .find_map(|step| step.pairs(dir)?.get(step.at + 1))
    }

    /// Returns the lowest hash that the leaf may have.
    pub(super) fn start(&self, dir: &Directory<'_>) -> u32 {
        let steps = self.steps.iter().rev().filter(|step| step.at > 0);
        let pair = |step: &Step| step.pairs(dir)?.get(step.at);
        steps.filter_map(pair).next().map_or(0, |pair| pair.hash)
    }

    /// Goes on to the next leaf, if names of the hash go on there.
    pub(super) fn advance(&mut self, dir: &Directory<'_>) -> Result<bool, Fault> {
        match self.next(dir) {
            Some(pair) if pair.continues(self.hash) => {}
            _ => return Ok(false),
        }
        self.forward(dir)
    }

    /// Goes on to the next leaf, if there is one.
    pub(super) fn forward(&mut self, dir: &Directory<'_>) -> Result<bool, Fault> {
        while let Some(step) = self.steps.last_mut() {
            let at = step.at + 1;
            if let Some(pair) = step.pairs(dir).and_then(|pairs| pairs.get(at)) {
                step.at = at;
                self.down(dir, Some(pair.block), |_| 0)?;
                return Ok(true);
            }
            self.steps.pop();
        }
        Ok(false)
    }
}

/// Searches for a name through the index.
pub(super) fn search(dir: &Directory<'_>, wanted: &Wanted<'_>) -> Result<Answer> {
    match try_search(dir, wanted) {
        Ok(Some(found)) => Ok(Answer::Found(found)),
        Ok(None) => Ok(Answer::Absent),
        Err(Fault::Index(_)) => Ok(Answer::Useless),
        Err(Fault::Block(e)) => Err(e),
    }
}

fn try_search(dir: &Directory<'_>, wanted: &Wanted<'_>) -> Result<Option<Found>, Fault> {
    let leaf = leaf_of(dir, |hasher| major(hasher, wanted.name()))?;
    let first = search_leaf(dir, leaf.lblk, wanted)?;
    if first.is_some() || !leaf.continues() {
        return Ok(first);
    }
    // Every further step must lead to another block of the directory.
    let mut left = dir.blocks();
    let mut way = Way::to(dir, |_| leaf.hash)?;
    while way.advance(dir)? && left > 0 {
        left -= 1;
        if let Some(found) = search_leaf(dir, way.leaf, wanted)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the hash that the index sorts a name by.
pub(super) fn major(hasher: &NameHasher, name: &[u8]) -> u32 {
    let NameHash { major, .. } = hasher.hash(name);
    major
}

/// Returns the hash function of the directory, unless it needs a key.
fn hasher(dir: &Directory<'_>, stored: HashVersion) -> FormatResult<NameHasher> {
    let superblock = dir.fs.superblock();
    // The root stores the signed forms only.
    if stored != stored.stored() {
        let expected = Expected::Said("a hash in its signed form");
        let found = stored.raw().into();
        return Err(FormatError::new(
            Structure::DirIndex,
            "hash_version",
            found,
            expected,
        ));
    }
    let version = stored.with_signedness(superblock.hash_is_unsigned());
    let hasher = NameHasher::new(version, superblock.hash_seed())?;
    Ok(hasher.casefolded(dir.is_casefolded()))
}

/// Returns the hash function of the index, if there is one that can be used.
pub(super) fn index_hasher(dir: &Directory<'_>) -> Result<Option<NameHasher>> {
    let read = dir.with_block(Lblk::new(0), |block| {
        let root = DxRoot::parse(block, &dir.layout, dir.large_dir)?;
        hasher(dir, root.hash_version)
    })?;
    Ok(read.and_then(FormatResult::ok))
}

/// Returns the hash function that new indexes of the file system use, if it is a known one.
pub(super) fn default_hasher(dir: &Directory<'_>) -> Option<NameHasher> {
    let stored = dir.fs.superblock().hash_version().ok()?.stored();
    hasher(dir, stored).ok()
}
