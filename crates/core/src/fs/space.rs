//! What is free: how it lies, whether it waits for a commit, and telling the device of it.

use super::Fs;
use crate::Result;
use crate::alloc::{FreeExtents, TrimRange};

impl Fs {
    /// Tells the device of what is free in a range. Returns how many bytes that were. May wait for
    /// the device, often. Each piece is a change of its own, so that freezing waits for one piece.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) when the device cannot do anything about
    /// it; [`Error::InvalidInput`](crate::Error::InvalidInput) for a range that begins behind the
    /// end or is shorter than a block, or runs longer than a group;
    /// [`Error::ReadOnly`](crate::Error::ReadOnly); when the device fails, or a group is damaged.
    pub fn trim(&self, range: TrimRange) -> Result<u64> {
        let alloc = self.alloc()?;
        let mut bytes = 0;
        for part in alloc.trim_parts(range)? {
            let mut part = part?;
            while !part.is_done() {
                let _changing = self.begin_change()?;
                bytes += alloc.trim_next(&mut part)?;
            }
        }
        Ok(bytes)
    }

    /// Whether space is free that can be used after the next commit only.
    pub(crate) fn is_space_pending(&self) -> bool {
        self.alloc_if_any()
            .is_some_and(|alloc| alloc.pending_free_blocks() > 0)
    }

    /// How the free space lies, by the bitmaps as they are on the device, or will be with what has
    /// changed since: space that is only kept ready for a file counts as free. Reads the bitmap of
    /// each group that is not in memory.
    ///
    /// # Errors
    /// When the device fails, or descriptors or bitmaps break the format.
    pub fn free_extents(&self) -> Result<FreeExtents> {
        FreeExtents::of(self, self.alloc_if_any())
    }
}
