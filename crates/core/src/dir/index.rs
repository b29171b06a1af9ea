//! Splitting a leaf, and the way up: pairs for new blocks in the nodes above.

use super::block::Directory;
use super::growth::Growth;
use super::htree::{Fault, Step, Way, major};
use super::split::{Halves, Item, halve, used};
use crate::{Error, InPlace, Place, Result};
use extant_format::checksum::Crc32c;
use extant_format::dir::NewEntry;
use extant_format::dir::htree::{
    DxEntry, DxKind, encode_node, max_indirect_levels, replace_pairs, set_indirect_levels,
};
use extant_format::{Expected, FormatError, Lblk, Structure};

/// The highest block number that an index can name.
const MAX_LBLK: u32 = 0x0fff_ffff;

/// Returns the leaf that an entry belongs to as two leaves, with the entry in it, and the nodes
/// above.
pub(super) fn split(dir: &Directory<'_>, entry: &NewEntry<'_>) -> Result<Growth> {
    let way = Way::to(dir, |hasher| major(hasher, entry.name)).map_err(Fault::into_error)?;
    let leaf = dir.existing_block(way.leaf)?;
    let place = Place::FileBlock(dir.inode.ino(), way.leaf);
    let mut all = used(&leaf, &dir.layout, 0).in_place(place)?;
    all.push(*entry);
    let items = all.iter().map(|entry| Item::new(&way.hasher, *entry));
    let items: Vec<_> = items.collect();
    let Halves { low, high, hash } = halve(&items, &dir.layout).ok_or(Error::NoSpace)?;
    check_between(dir, &way, hash)?;
    let mut growth = Growth {
        leaf: Some((way.leaf, leaf.clone())),
        ..Growth::default()
    };
    growth.edited.push((leaf, dir.leaf_seal(), low));
    let mut climb = Climb {
        dir,
        growth: &mut growth,
        pair: DxEntry {
            hash,
            block: Lblk::new(0),
        },
    };
    climb.pair.block = climb.create(high, None)?;
    climb.up(&way)?;
    Ok(growth)
}

/// Checks that the new pair fits between its neighbours: it does unless the leaf holds names that
/// the index does not lead to.
fn check_between(dir: &Directory<'_>, way: &Way, hash: u32) -> Result<()> {
    let before = way.steps.iter().rev().find(|step| step.at > 0);
    let before = before.and_then(|step| step.pairs(dir)?.get(step.at));
    let after = way.next(dir);
    let low = before.map_or(0, |pair| pair.hash);
    let high = after.map_or(u32::MAX, |pair| pair.hash);
    if (low..=high).contains(&hash) {
        return Ok(());
    }
    let expected = Expected::Between(low.into(), high.into());
    let source = FormatError::new(Structure::DirIndex, "hash", hash.into(), expected);
    let place = Place::FileBlock(dir.inode.ino(), way.leaf);
    Err(Error::corrupt(place, source))
}

/// The way up from a leaf that was split.
struct Climb<'c, 'd> {
    dir: &'c Directory<'d>,
    growth: &'c mut Growth,
    /// The pair that has to be put behind the one that was followed.
    pair: DxEntry,
}

impl Climb<'_, '_> {
    /// Notes a new block; returns its number.
    fn create(&mut self, data: Box<[u8]>, kind: Option<DxKind>) -> Result<Lblk> {
        let first = self.dir.next_lblk()?.get();
        let lblk = first.saturating_add(self.growth.created.len() as u32);
        if lblk > MAX_LBLK {
            return Err(Error::NoSpace);
        }
        let seal = match kind {
            Some(kind) => self.dir.node_seal(kind),
            None => self.dir.leaf_seal(),
        };
        self.growth.created.push((seal, data));
        Ok(Lblk::new(lblk))
    }

    /// Puts the pair into the lowest node, and goes on above while nodes are full.
    fn up(mut self, way: &Way) -> Result<()> {
        for step in way.steps.iter().rev() {
            let mut pairs: Vec<_> = step
                .pairs(self.dir)
                .map(|pairs| pairs.iter().collect())
                .unwrap_or_default();
            let at = (step.at + 1).min(pairs.len());
            pairs.insert(at, self.pair);
            if pairs.len() <= step.kind.limit(&self.dir.layout) {
                return self.edit(step, &pairs, None);
            }
            match step.kind {
                DxKind::Inner => self.halve(step, pairs)?,
                DxKind::Root => return self.deepen(step, &pairs, way.levels),
            }
        }
        Ok(())
    }

    /// Moves the upper half of a node's pairs to a new node, whose pair goes into the node above.
    fn halve(&mut self, step: &Step, mut pairs: Vec<DxEntry>) -> Result<()> {
        let upper = pairs.split_off(pairs.len() / 2);
        let hash = upper.first().map_or(0, |pair| pair.hash);
        let block = self.node(&upper)?;
        self.edit(step, &pairs, None)?;
        self.pair = DxEntry { hash, block };
        Ok(())
    }

    /// Moves all pairs of the root to a new node, the only one below it.
    fn deepen(&mut self, step: &Step, pairs: &[DxEntry], levels: u8) -> Result<()> {
        if levels >= max_indirect_levels(self.dir.large_dir) {
            return Err(Error::NoSpace);
        }
        let block = self.node(pairs)?;
        self.edit(step, &[DxEntry { hash: 0, block }], Some(levels + 1))
    }

    fn node(&mut self, pairs: &[DxEntry]) -> Result<Lblk> {
        let mut node = self.dir.empty_block();
        if !encode_node(&mut node, &self.dir.layout, pairs, Crc32c::INIT) {
            return Err(Error::NoSpace);
        }
        self.create(node, Some(DxKind::Inner))
    }

    fn edit(&mut self, step: &Step, pairs: &[DxEntry], levels: Option<u8>) -> Result<()> {
        let mut node: Box<[u8]> = step.block.bytes().into();
        if !replace_pairs(&mut node, &self.dir.layout, step.kind, pairs) {
            return Err(Error::NoSpace);
        }
        if let Some(levels) = levels {
            set_indirect_levels(&mut node, levels);
        }
        let seal = self.dir.node_seal(step.kind);
        self.growth.edited.push((step.block.clone(), seal, node));
        Ok(())
    }
}
