//! `stat`.

use crate::Result;
use crate::fs::Fs;
use crate::inode::{Inode, Metadata};
use extant_format::Ino;

/// Returns what `stat` reports about an inode.
#[must_use]
pub fn stat(fs: &Fs, inode: &Inode) -> Metadata {
    inode.metadata(fs.block_size())
}

/// Returns what `stat` reports about the inode of this number. When it is in memory, no shared
/// memory is written: many threads may look at one inode.
///
/// # Errors
/// As for [`Fs::inode`].
pub fn stat_of(fs: &Fs, ino: Ino) -> Result<Metadata> {
    fs.with_inode(ino, |inode| stat(fs, inode))
}
