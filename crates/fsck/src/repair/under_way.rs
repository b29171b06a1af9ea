//! What the superblock says while changes are written: that the file system is to be checked.
//!
//! A file system that is made larger or smaller, or tuned, was closed before. If it still said so between two of the
//! writes, a crash there would leave a mixture that is mounted as if it were sound.

use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State, Superblock};

/// The byte at which the block with the primary superblock begins.
pub(super) fn primary(block_size: u64) -> u64 {
    SUPERBLOCK_OFFSET / block_size.max(1) * block_size
}

/// The block that begins at byte `offset` and holds the primary superblock, as it is meanwhile; `None` for another
/// block, and where it does not say that all is well: then a check is due anyway.
pub(super) fn marked(offset: u64, block: &[u8]) -> Option<Vec<u8>> {
    let at = usize::try_from(SUPERBLOCK_OFFSET.checked_sub(offset)?).ok()?;
    let range = at..at.checked_add(SUPERBLOCK_LEN)?;
    let mut sb = Superblock::parse(block.get(range.clone())?).ok()?;
    if sb.needs_recovery() || !sb.state().contains(State::CLEAN) {
        return None;
    }
    sb.set_state((sb.state() - State::CLEAN) | State::ERRORS);
    let mut marked = block.to_vec();
    marked.get_mut(range)?.copy_from_slice(&sb.encode());
    Some(marked)
}
