//! Descending the index of a hashed directory.

use super::Found;
use super::block::Directory;
use super::lookup::search_leaf;
use super::matching::Wanted;
use crate::Result;
use crate::meta::BlockRef;
use extant_format::Lblk;
use extant_format::dir::htree::{DxEntries, DxRoot, parse_node};
use extant_format::dir::{HashVersion, NameHasher};
use extant_format::features::Incompat;

/// What the index says.
pub(super) enum Answer {
    /// The name is here.
    Found(Found),
    /// The directory does not have the name.
    Absent,
    /// The index cannot be used: its hash is not known, or it contradicts itself.
    Useless,
}

/// One index node on the way down, and the pair that was followed.
struct Step {
    block: BlockRef,
    /// Whether the node is the root, which has another front.
    root: bool,
    at: usize,
}

impl Step {
    /// The pairs of the node. It was parsed before: `None` never happens.
    fn pairs<'a>(&'a self, dir: &Directory<'_>, large_dir: bool) -> Option<DxEntries<'a>> {
        if self.root {
            DxRoot::parse(&self.block, &dir.layout, large_dir)
                .ok()
                .map(|root| root.entries)
        } else {
            parse_node(&self.block, &dir.layout).ok()
        }
    }
}

/// Searches for a name through the index.
pub(super) fn search(dir: &Directory<'_>, wanted: &Wanted<'_>) -> Result<Answer> {
    let large_dir = dir.fs.superblock().has_incompat(Incompat::LARGEDIR);
    let Some(block) = dir.block(Lblk::new(0))? else {
        return Ok(Answer::Useless);
    };
    let Ok(root) = DxRoot::parse(&block, &dir.layout, large_dir) else {
        return Ok(Answer::Useless);
    };
    let Some(hasher) = hasher(dir, root.hash_version) else {
        return Ok(Answer::Useless);
    };
    let hash = hasher.hash(wanted.name()).major;
    let levels = root.indirect_levels;
    let at = root.entries.find(hash);
    let mut next = root.entries.get(at).map(|pair| pair.block);
    let mut path = vec![Step {
        block,
        root: true,
        at,
    }];
    // Every step to the next leaf must lead to another block of the directory.
    let mut leaves_left = dir.blocks();
    let mut first = true;
    loop {
        // Down to a leaf: by hash the first time, then along the left edge.
        while path.len() <= usize::from(levels) {
            let Some(block) = node(dir, next)? else {
                return Ok(Answer::Useless);
            };
            let Ok(pairs) = parse_node(&block, &dir.layout) else {
                return Ok(Answer::Useless);
            };
            let at = if first { pairs.find(hash) } else { 0 };
            next = pairs.get(at).map(|pair| pair.block);
            path.push(Step {
                block,
                root: false,
                at,
            });
        }
        first = false;
        let Some(lblk) = next.filter(|lblk| u64::from(lblk.get()) < dir.blocks()) else {
            return Ok(Answer::Useless);
        };
        match search_leaf(dir, lblk, wanted)? {
            Some(Some(found)) => return Ok(Answer::Found(found)),
            Some(None) => {}
            None => return Ok(Answer::Useless),
        }
        let Some(left) = leaves_left.checked_sub(1) else {
            return Ok(Answer::Useless);
        };
        leaves_left = left;
        match advance(dir, &mut path, large_dir, hash) {
            Some(block) => next = Some(block),
            None => return Ok(Answer::Absent),
        }
    }
}

/// Goes to the pair behind the path, if names of this hash go on there. Returns its block; the
/// path then ends at the node that holds the pair.
fn advance(dir: &Directory<'_>, path: &mut Vec<Step>, large_dir: bool, hash: u32) -> Option<Lblk> {
    while let Some(step) = path.last_mut() {
        let at = step.at + 1;
        if let Some(pair) = step.pairs(dir, large_dir)?.get(at) {
            step.at = at;
            return pair.continues(hash).then_some(pair.block);
        }
        path.pop();
    }
    None
}

/// An inner node of the index; `None` if it lies outside the directory or in a hole.
fn node(dir: &Directory<'_>, lblk: Option<Lblk>) -> Result<Option<BlockRef>> {
    match lblk.filter(|lblk| u64::from(lblk.get()) < dir.blocks()) {
        Some(lblk) => dir.block(lblk),
        None => Ok(None),
    }
}

/// The hash function of the directory, unless it needs a key.
fn hasher(dir: &Directory<'_>, stored: HashVersion) -> Option<NameHasher> {
    let superblock = dir.fs.superblock();
    // The root stores the signed forms only.
    if stored != stored.stored() {
        return None;
    }
    let version = stored.with_signedness(superblock.hash_is_unsigned());
    let hasher = NameHasher::new(version, superblock.hash_seed()).ok()?;
    Some(hasher.casefolded(dir.is_casefolded()))
}
