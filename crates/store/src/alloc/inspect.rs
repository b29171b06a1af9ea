//! A look inside the allocator, for tests that compare it with models (feature `inspect`).

use super::Alloc;
use crate::Result;
use extant_format::Group;
use std::ops::Range;

/// What a group holds, at one moment.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// The bitmap of clusters in use on the device.
    pub disk: Box<[u8]>,
    /// The bitmap of clusters that must not be handed out.
    pub taken: Box<[u8]>,
    /// The bitmap of inodes in use.
    pub inodes: Box<[u8]>,
    /// Runs of clusters that may be handed out.
    pub free_runs: Vec<Range<u32>>,
    /// Whether each cluster may be handed out.
    pub is_free: Vec<bool>,
    /// Clusters that may be handed out.
    pub free: u32,
    /// Free clusters by the descriptor.
    pub free_by_descriptor: u32,
    /// Whether the checksum of `disk` is known.
    pub has_checksum: bool,
}

impl Alloc {
    /// Loads a group, if it is not in memory, and copies what it holds.
    ///
    /// # Errors
    /// When there is no such group, the device fails, or the group is damaged.
    pub fn inspect_group(&self, group: Group) -> Result<GroupView> {
        let state = loop {
            let (slot, loaded) = self.load_group(group)?;
            // Its bitmaps may have left memory since.
            if let Some(state) = slot.lock(loaded) {
                break state;
            }
        };
        let disk = state.blocks.bits();
        let clusters = state.space.clusters();
        Ok(GroupView {
            taken: state.space.used(disk.len()),
            disk: disk.into(),
            inodes: state.inodes.bits().into(),
            free_runs: state.space.runs(0..clusters).collect(),
            is_free: (0..clusters).map(|bit| state.space.is_free(bit)).collect(),
            free: state.space.free(),
            free_by_descriptor: state.desc.free_clusters,
            has_checksum: state.blocks.has_checksum(),
        })
    }

    /// Counts the clusters that can be granted.
    pub fn clusters_to_grant(&self) -> i64 {
        self.space.total()
    }

    /// Counts the groups whose bitmaps are in memory, and says how many there are at most.
    pub fn groups_in_memory(&self) -> (usize, usize) {
        self.in_memory.count()
    }
}
