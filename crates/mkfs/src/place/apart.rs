//! Metadata first, and data in regions behind it.

use super::regions::{self, Chunk, Regions};
use super::space::Space;
use super::{MapKind, PlaceResult, Placed, Placer, about};
use crate::source::{FileType, NodeId};

/// Of so many blocks of metadata one is left free behind them, and at least so many behind
/// all. What comes behind begins at multiples of so many.
const GAP_SHARE: u64 = 8;
const GAP_STEP: u64 = 16;
const ROOM_MIN: u64 = 32;

impl Placer<'_> {
    /// Places everything but data first, with gaps where numbers have them, and then data in
    /// regions.
    pub(super) fn place_apart(&mut self, chunk: Chunk) -> PlaceResult<()> {
        let mut files = regions::files(self.tree, &self.plan.shape);
        let mut before = 0;
        for id in self.tree.ids() {
            if self.plan.numbering.begins_stretch(id) {
                let taken = self.plan.space.used() - before;
                self.plan.space.skip(taken / GAP_SHARE, GAP_STEP);
                before = self.plan.space.used();
            }
            let placed = match self.tree.kind(id) {
                FileType::Regular => {
                    self.check_limits(id)?;
                    self.with_attrs(id, Placed::default())?
                }
                _ => self.place(id)?,
            };
            self.note(id, &placed);
            self.place_lost_found(id)?;
        }
        let maps: u64 = files.iter().map(|&id| self.map_blocks_at_most(id)).sum();
        let inodes = self.plan.attrs.inodes().iter();
        let values: u64 = inodes
            .map(|inode| self.plan.shape.block_size.blocks_for(inode.len))
            .map(|blocks| 1 + blocks.div_ceil(self.plan.shape.cluster_blocks()))
            .sum();
        let room = self.plan.space.used() / GAP_SHARE + ROOM_MIN + maps + values;
        let dense = Space::dense(Vec::new());
        let space = std::mem::replace(&mut self.plan.space, dense);
        self.plan.space = space.set_apart(room, chunk);
        let mut regions = Regions::new(self.tree);
        for id in files.drain(..) {
            let stored = self.tree.extents(id).map(|extent| extent.len).sum();
            if regions.begins(id, stored) {
                self.plan.space.begin_region();
            }
            let ino = self.plan.numbering.ino(id);
            let Placed { map, charged, .. } = self.place_file(id, ino)?;
            let plan = &mut self.plan;
            let about = about(self.tree, id, &plan.attrs, &plan.shape);
            let before = plan.nodes.get(id, about, &plan.maps);
            let placed = Placed {
                map,
                charged: before.charged + charged,
                ..before
            };
            plan.nodes.put(id, &placed, about, &plan.maps);
        }
        Ok(())
    }

    /// The most blocks that the map of a file takes, but for the few that an extent tree needs
    /// where free space is cut.
    fn map_blocks_at_most(&self, id: NodeId) -> u64 {
        let extents = self.tree.extents(id);
        match self.plan.shape.map_kind {
            MapKind::Extents if extents.len() <= 2 => 0,
            MapKind::Extents => 2 + extents.len() as u64 / 64,
            MapKind::Indirect => {
                let blocks = self
                    .plan
                    .shape
                    .block_size
                    .blocks_for(self.tree.node(id).size);
                let per_block = u64::from(self.plan.shape.block_size.bytes() / 4);
                match blocks {
                    0..=12 => 0,
                    blocks => 4 + blocks.div_ceil(per_block) * 2,
                }
            }
        }
    }
}
