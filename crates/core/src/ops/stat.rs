//! `stat`.

use crate::fs::Fs;
use crate::inode::{Inode, Metadata};

/// What `stat` reports about an inode.
#[must_use]
pub fn stat(fs: &Fs, inode: &Inode) -> Metadata {
    inode.metadata(fs.block_size())
}
