//! The mark of an image of which a part is put back.
//!
//! Between the first and the last write of taking changes back, an image is a mixture that nothing
//! can make sense of but the undo file: a repair would choose among what is there, and give up a
//! journal whose blocks are not all back. So the superblock has a feature meanwhile that nothing
//! knows. Linux does not mount it, and e2fsck and all commands here refuse it.

use crate::error::{Error, Result};
use extant_format::features::Incompat;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State, Superblock};
use extant_format::waiting;

/// The feature of an image of which a part is put back. No other program gives it a meaning.
const HALF_WAY: u32 = 1 << 30;

/// Refuses an image of which a part is put back, or in which changes wait to be put in place.
pub(crate) fn refuse(sb: &Superblock) -> Result<()> {
    if sb.features().incompat.bits() & waiting::FEATURE != 0 {
        return Err(Error::Refused {
            why: "changes that were made as a whole wait here to be put in place, which `extant replay` does"
                .to_owned(),
        });
    }
    if sb.features().incompat.bits() & HALF_WAY == 0 {
        return Ok(());
    }
    Err(Error::Refused {
        why: "taking changes back was cut off here, and the image is neither what it was nor what it became: \
              run `extant revert` again with the same undo file"
            .to_owned(),
    })
}

/// The block that begins at byte `offset` of the device, and holds the primary superblock, with the
/// mark; `None` for another block, and for a superblock that is none. `file` is the number of the
/// undo file, if it has one: it lies meanwhile where the block of the last error does, so that no
/// other undo file goes on with this one's work.
pub(crate) fn marked(offset: u64, block: &[u8], file: Option<u64>) -> Option<Vec<u8>> {
    let at = usize::try_from(SUPERBLOCK_OFFSET.checked_sub(offset)?).ok()?;
    let range = at..at.checked_add(SUPERBLOCK_LEN)?;
    let sb = Superblock::parse(block.get(range.clone())?).ok()?;
    let bits = (sb.features().incompat | Incompat::from_bits_retain(HALF_WAY)).bits();
    let with_mark = sb.with(|raw| {
        raw.feature_incompat.set(bits);
        if let Some(file) = file {
            raw.last_error_block.set(file);
        }
    });
    let mut sb = with_mark.ok()?;
    sb.set_state((sb.state() - State::CLEAN) | State::ERRORS);
    let mut changed = block.to_vec();
    changed.get_mut(range)?.copy_from_slice(&sb.encode());
    Some(changed)
}
