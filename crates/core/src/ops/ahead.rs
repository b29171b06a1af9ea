//! What a walk asks for before it needs it, where a request takes a round trip.
//!
//! All of it is hints: what cannot be read shows when it is needed. They cost reads that a device
//! at hand need not make, so a caller asks [`in_flight`] first.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::{dir, map};
use extant_format::Ino;
use std::sync::Arc;

/// Inodes whose records are asked for together.
const TOGETHER: usize = 4096;

/// How many requests are worth having under way at once; 1 where the device answers at once, so
/// that nothing need be asked for ahead.
pub fn in_flight(fs: &Fs) -> usize {
    fs.device().in_flight().max(1)
}

/// Brings the records of inodes into memory, as those of a directory's entries.
pub fn inodes_ahead(fs: &Fs, inos: &[Ino]) {
    for some in inos.chunks(TOGETHER) {
        fs.inodes_ahead(some);
    }
}

/// What of inodes is asked for ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// The first blocks of directories.
    Directories,
    /// Those, and the nodes below the roots of maps.
    Maps,
    /// The nodes below the roots of maps, and blocks of attributes.
    Attributes,
}

/// Brings what inodes refer to into memory.
pub fn content_ahead<'a>(
    fs: &Fs,
    inodes: impl Iterator<Item = &'a Arc<Inode>> + Clone,
    what: Ahead,
) {
    let mut blocks = Vec::new();
    for inode in inodes.clone() {
        if what != Ahead::Directories || inode.is_dir() {
            map::nodes_below_root(inode, |block| blocks.push(block));
        }
        if what == Ahead::Attributes && inode.disk().file_acl.get() != 0 {
            blocks.push(inode.disk().file_acl);
        }
    }
    fs.cache().prefetch_all(blocks);
    if what != Ahead::Attributes {
        dir::read_ahead(fs, inodes.map(|inode| &**inode));
    }
}
