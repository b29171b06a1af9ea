//! Looking up and listing the entries of a quota file.

use super::leaf::Leaf;
use super::{BLOCK_LEN, DEPTH, QuotaBlock, QuotaEntry, QuotaInfo, ROOT, reference_at};
use crate::bytes::le32;
use crate::{Expected, FormatError, FormatResult, Structure};
use core::ops::ControlFlow;

/// A reader of the blocks of a quota file.
pub trait QuotaBlocks {
    /// Why a block could not be read, or what is wrong with it.
    type Error;

    /// Reads a block of the file.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&mut self, block: u32) -> Result<QuotaBlock, Self::Error>;

    /// The error for a block that breaks the format.
    fn corrupt(&self, block: u32, source: FormatError) -> Self::Error;
}

/// Adds the block to an error of its content.
pub(super) fn in_block<B: QuotaBlocks, T>(
    blocks: &B,
    block: u32,
    result: FormatResult<T>,
) -> Result<T, B::Error> {
    result.map_err(|source| blocks.corrupt(block, source))
}

/// The number that a node has at byte `at`: of a block below it, or 0.
pub(super) fn below<B: QuotaBlocks>(
    blocks: &B,
    info: &QuotaInfo,
    node: (u32, &QuotaBlock),
    at: usize,
) -> Result<u32, B::Error> {
    let next = le32(node.1, at);
    in_block(blocks, node.0, info.check_link("reference", next, at))?;
    Ok(next)
}

/// Reads a leaf that the tree leads to for `id`, and finds the entry in it.
pub(super) fn leaf_of<B: QuotaBlocks>(
    blocks: &mut B,
    info: &QuotaInfo,
    block: u32,
    id: u32,
) -> Result<(Leaf, usize, QuotaEntry), B::Error> {
    let bytes = blocks.read(block)?;
    let leaf = in_block(blocks, block, Leaf::parse(bytes, info))?;
    let found = leaf.entry_of(id).ok_or_else(|| {
        let expected = Expected::Said("entries to hold the id that the tree leads here for");
        FormatError::new(Structure::Quota, "id", u64::from(id), expected)
    });
    let (place, entry) = in_block(blocks, block, found)?;
    Ok((leaf, place, entry))
}

/// Returns the entry of `id`, if the file has one. Reads at most five blocks.
///
/// # Errors
/// When a block cannot be read or breaks the format.
pub fn find<B: QuotaBlocks>(
    blocks: &mut B,
    info: &QuotaInfo,
    id: u32,
) -> Result<Option<QuotaEntry>, B::Error> {
    let mut block = ROOT;
    for level in 0..DEPTH {
        let node = blocks.read(block)?;
        block = below(blocks, info, (block, &node), reference_at(id, level))?;
        if block == 0 {
            return Ok(None);
        }
    }
    leaf_of(blocks, info, block, id).map(|(_, _, entry)| Some(entry))
}

/// Calls `visit` with every entry, in the order of ids, until it breaks.
///
/// Work and memory are bounded by the blocks the file really has, also if it is hostile: every way
/// through the tree must end at an entry of its own.
///
/// # Errors
/// When a block cannot be read or breaks the format; `visit` was called with the entries before it.
pub fn for_each<B: QuotaBlocks>(
    blocks: &mut B,
    info: &QuotaInfo,
    visit: &mut dyn FnMut(&QuotaEntry) -> ControlFlow<()>,
) -> Result<(), B::Error> {
    node(blocks, info, (ROOT, 0, 0), visit).map(|_| ())
}

/// Visits what is below a node at `(block, level)`, to which the bytes of `prefix` lead.
fn node<B: QuotaBlocks>(
    blocks: &mut B,
    info: &QuotaInfo,
    (block, level, prefix): (u32, u32, u32),
    visit: &mut dyn FnMut(&QuotaEntry) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, B::Error> {
    let bytes = blocks.read(block)?;
    let mut is_empty = true;
    for digit in 0..BLOCK_LEN as u32 / 4 {
        let next = below(blocks, info, (block, &bytes), digit as usize * 4)?;
        if next == 0 {
            continue;
        }
        is_empty = false;
        let id = prefix << 8 | digit;
        let flow = if level + 1 == DEPTH {
            visit(&leaf_of(blocks, info, next, id)?.2)
        } else {
            node(blocks, info, (next, level + 1, id), visit)?
        };
        if flow.is_break() {
            return Ok(flow);
        }
    }
    if is_empty && block != ROOT {
        let expected = Expected::AtLeast(1);
        let error = FormatError::new(Structure::Quota, "references", 0, expected);
        return Err(blocks.corrupt(block, error));
    }
    Ok(ControlFlow::Continue(()))
}
