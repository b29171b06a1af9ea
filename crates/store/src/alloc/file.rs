//! A file as the allocator sees it.

use super::FileState;
use crate::volume::Cluster;
use extant_format::Ino;
use std::ops::Range;
use std::sync::Arc;

/// What the allocator asks of a file for which it takes blocks. The layers above answer, which know
/// inodes and maps.
pub trait AllocFile {
    /// The file's inode.
    fn ino(&self) -> Ino;

    /// Whether the map holds block numbers of more than 32 bits.
    fn has_extents(&self) -> bool;

    /// What the allocator remembers of the file.
    fn state(&self) -> &Arc<FileState>;

    /// The part of `window`, in logical clusters, that lies in the same hole of the map as `lblk`,
    /// and where its first cluster joins what is mapped before or behind the hole. A hint: all of
    /// `window` and nothing where the map cannot tell. `lblk` is in the result.
    fn hole(&self, lblk: u32, window: Range<u32>) -> (Range<u32>, Option<Cluster>);
}
