//! Reading and writing over what memory has already, which is most of what happens to files in use:
//! under one epoch guard, with no count of references, and never waiting.
//!
//! Where it takes more than that nothing is done here, and [`live`](crate::data::buffered::read) or
//! [`buffered`](crate::data::buffered) do it.

use crate::data::cache::folio::{FOLIO_BYTES, mask_of_bytes};
use crate::data::cache::index::Index;
use crate::data::cache::number;
use crate::data::io::WriteIo;
use crate::fs::Fs;
use crate::inode::Held;
use extant_sync::{EpochGuard, pin};
use std::ops::Range;

/// Returns where `len` bytes from `offset` on lie in their folio, if they lie in one.
#[inline]
fn inside(offset: u64, len: usize) -> Option<Range<usize>> {
    let at = offset as usize & (FOLIO_BYTES - 1);
    (len > 0 && len <= FOLIO_BYTES - at).then(|| at..at + len)
}

/// Reads from byte `offset` of a file. Returns how much was read.
#[inline]
pub(in crate::data) fn read(fs: &Fs, held: &Held, offset: u64, buf: &mut [u8]) -> Option<usize> {
    let file = held.file_cache()?;
    let guard = pin();
    let image = held.image(&guard);
    if !image.has_plain_content() {
        return None;
    }
    let left = file.size_with(image).saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    let bytes = inside(offset, len)?;
    let state = file.index.get(number(offset), &guard)?.try_read()?;
    let blocks = mask_of_bytes(&bytes, fs.block_size().log2());
    if state.uptodate & blocks != blocks {
        return None;
    }
    state.copy_out(bytes.start, &mut buf[..len]);
    Some(len)
}

impl WriteIo<'_> {
    /// Writes at byte `offset` of the file, inside it. Returns how much was written, which is all.
    /// `op` is held.
    #[inline]
    pub(in crate::data) fn write_over(
        &self,
        offset: u64,
        data: &[u8],
        guard: &EpochGuard,
    ) -> Option<usize> {
        let bytes = inside(offset, data.len())?;
        let index = number(offset);
        let folio = self.cache.index.get(index, guard)?;
        if !Index::is_near(index) {
            folio.prefetch(bytes.start, bytes.len());
        }
        let mut state = folio.try_write()?;
        let blocks = mask_of_bytes(&bytes, self.log2);
        // A folio that was taken out of the index has nothing in it.
        if state.uptodate & state.known() & blocks != blocks || !state.covers(&bytes) {
            return None;
        }
        folio.note_use();
        state.copy_in(bytes.start, data);
        self.set_dirty(folio, &mut state, blocks);
        Some(data.len())
    }
}
