//! Checked metadata blocks, through the cache.

use super::Volume;
use crate::meta::BlockRef;
use crate::{Error, InPlace, Place, Result};
use extant_format::{Expected, FormatError, FormatResult, Ino, Pblk, Structure};
use extant_sync::pin;

impl Volume {
    /// A metadata block, read if it is not in memory. `place` is where an error says the block was
    /// found.
    ///
    /// `check` verifies that the content is a sound `what` of inode `owner` (`None` for structures
    /// that belong to no inode). It runs once per load: it must depend on nothing but the bytes,
    /// `what` and `owner`.
    ///
    /// # Errors
    /// What `check` says, at `place`; a block outside the file system; a device that fails.
    pub fn metadata(
        &self,
        block: Pblk,
        place: Place,
        what: Structure,
        owner: Option<Ino>,
        check: impl FnOnce(&[u8]) -> FormatResult<()>,
    ) -> Result<BlockRef> {
        if !self.physical().contains(&block.get()) {
            let last = self.params.end_block.saturating_sub(1);
            let expected = Expected::Between(self.params.first_block, last);
            let source = FormatError::new(what, "block", block.get(), expected);
            return Err(Error::corrupt(place, source));
        }
        let loaded = self.cache.read(block)?;
        if !loaded.is_verified(what, owner) {
            check(&loaded).in_place(place)?;
            loaded.set_verified(what, owner);
        }
        Ok(loaded)
    }

    /// Loads blocks around `block` in one read, if it is not in memory: those of the aligned window
    /// of `window` blocks that holds it and lie in `range`.
    pub fn prefetch_around(&self, block: Pblk, window: u32, range: std::ops::Range<u64>) {
        if self.cache.peek(block, &pin()).is_some() {
            return;
        }
        let window = u64::from(window.max(1));
        let aligned = block.get() / window * window;
        let first = aligned.max(range.start);
        let end = aligned.saturating_add(window).min(range.end);
        let count = end.saturating_sub(first).min(window) as u32;
        if count > 1 {
            self.cache.prefetch(Pblk::new(first), count);
        }
    }
}
