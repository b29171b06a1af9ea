//! Records that are read together before they are needed one by one: where a request takes a round
//! trip, many inodes of a directory come with one.

use super::load::READAHEAD_BYTES;
use crate::fs::Fs;
use extant_format::{Ino, Pblk};
use extant_sync::pin;
use std::ops::Range;

impl Fs {
    /// Brings the parts of the inode tables into memory that have the records of these inodes, with
    /// one batch of reads; the descriptors that say where these lie, with another one before. A
    /// hint.
    pub(crate) fn inodes_ahead(&self, inos: &[Ino]) {
        let geometry = self.geometry();
        let missing = || {
            let in_memory = |ino: Ino| self.inode_table().peek(ino, &pin()).is_some();
            inos.iter().copied().filter(move |ino| !in_memory(*ino))
        };
        let located = |ino| geometry.locate_inode(ino).ok();
        self.groups_ahead(missing().filter_map(located).map(|at| at.group));
        let mut windows: Vec<Range<u64>> = Vec::new();
        for ino in missing() {
            let located = self.locate_inode(ino);
            let window =
                located.and_then(|(block, _)| self.table_window(ino, block, READAHEAD_BYTES));
            let Ok(range) = window else { continue };
            if windows.last() != Some(&range) {
                windows.push(range);
            }
        }
        let blocks = windows.into_iter().flatten().map(Pblk::new).collect();
        self.cache().prefetch_all(blocks);
    }
}
