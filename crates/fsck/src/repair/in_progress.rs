//! Writing a plan in steps, so that what a crash leaves is recognised and no worse.
//!
//! What changes of a sound file system is written as a whole instead, where there is room:
//! see [`whole`](super::whole).
//!
//! A file system that is repaired, made larger or smaller, or tuned may say that it was closed. If
//! it still said so between two of the writes, a crash there would leave a mixture that is mounted
//! as if it were sound: the superblock asks for a check before anything else is written. What waits
//! in a journal is brought home by a step of its own, which ends with an empty journal; only then
//! anything is mended. A log that nothing waits in is emptied first. So a crash leaves a journal
//! that is replayed over nothing but what it holds itself, or none. Fast commits may have to wait
//! until what they change is mended: of those the step leaves a journal that has them alone. They
//! hold no blocks, and are replayed over what is there.
//!
//! Where it is known what was in use before, what lies elsewhere is written first, and nothing that
//! was in use is put to another use by the same change. So a file or directory that moves is where
//! it was until its inode is written, which is in one sector.
//!
//! Blocks that are zeroed, and that nothing made use of, are zeroed before the first step.
//!
//! What changes could go through the journal as one transaction, and does not: Linux derives the
//! form of descriptors and the start of checksums from the superblock before it replays, and would
//! go on with what the superblock said before.
//!
//! The superblock may wait in the journal too. It is brought home like all else before the journal
//! is emptied, but for that it still says that something waits: until the journal is empty, that is
//! so.

use super::draft::Changes;
use crate::error::Result;
use extant_blockdev::BlockDevice;
use extant_format::geometry::Geometry;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State, Superblock};
use extant_format::{Group, Pblk};
use std::ops::Range;

/// The byte at which the block with the primary superblock begins.
pub(super) fn primary(block_size: u64) -> u64 {
    SUPERBLOCK_OFFSET / block_size.max(1) * block_size
}

/// The block that begins at byte `offset` and holds the primary superblock, as it is meanwhile;
/// `None` for another block, and where it does not say that all is well: then a check is due
/// anyway.
pub(super) fn marked(offset: u64, block: &[u8]) -> Option<Vec<u8>> {
    changed(offset, block, mark)
}

/// Has a superblock ask for a check; false if it does already.
fn mark(sb: &mut Superblock) -> bool {
    let is_clean = sb.state().contains(State::CLEAN);
    if is_clean {
        sb.set_state((sb.state() - State::CLEAN) | State::ERRORS);
    }
    is_clean
}

/// The block that begins at byte `offset` with the primary superblock in it changed; `None` for a
/// block without it, and where nothing is to change.
fn changed(
    offset: u64,
    block: &[u8],
    change: impl FnOnce(&mut Superblock) -> bool,
) -> Option<Vec<u8>> {
    let at = usize::try_from(SUPERBLOCK_OFFSET.checked_sub(offset)?).ok()?;
    let range = at..at.checked_add(SUPERBLOCK_LEN)?;
    let mut sb = Superblock::parse(block.get(range.clone())?).ok()?;
    if !change(&mut sb) {
        return None;
    }
    let mut changed = block.to_vec();
    changed.get_mut(range)?.copy_from_slice(&sb.encode());
    Some(changed)
}

/// The byte at which the block with the primary superblock begins, and how many bytes of it the
/// device has.
fn primary_of(changes: &Changes) -> (u64, usize) {
    let size = u64::from(changes.block_size());
    let offset = primary(size);
    let len = size.min(changes.base().size().saturating_sub(offset));
    (offset, len as usize)
}

/// The primary superblock's block as a step has it before the journal is emptied: it asks for a
/// check, and says that something waits. `None` for the last step, which finds the journal empty,
/// and for one that empties none.
pub(super) fn before_emptying(changes: &Changes, step: usize) -> Result<Option<Vec<u8>>> {
    let is_held = |offset| changes.is_held(offset);
    if step + 1 >= changes.steps_count() || changes.step_of(step, &is_held).next().is_none() {
        return Ok(None);
    }
    let (offset, len) = primary_of(changes);
    let block = changes.after_step(step, offset, len)?;
    Ok(changed(offset, &block, |sb| {
        sb.set_needs_recovery(true);
        mark(sb);
        true
    }))
}

/// The primary superblock's block as a step leaves it: only the last one may say that all is well.
pub(super) fn after_step(changes: &Changes, step: usize) -> Result<Vec<u8>> {
    let (offset, len) = primary_of(changes);
    let block = changes.after_step(step, offset, len)?;
    let is_last = step + 1 == changes.steps_count();
    Ok(match marked(offset, &block).filter(|_| !is_last) {
        Some(marked) => marked,
        None => block,
    })
}

/// What is written together. Descriptors may get another form, and be found by copies alone until
/// the superblock follows: so these are whole before the others are written, and after all that
/// either leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    /// Blocks that nothing used before, where that is known: nothing leads there yet.
    Fresh,
    Rest,
    /// Copies of the superblock and of the descriptors.
    Copies,
    /// The descriptors themselves.
    Descriptors,
}

/// Where descriptors and copies lie, in bytes, as the superblock says that is written.
#[derive(Debug, Default)]
struct Headers {
    own: Range<u64>,
    copies: Vec<Range<u64>>,
}

impl Headers {
    fn of(changes: &Changes) -> Result<Self> {
        let last = changes.steps_count().saturating_sub(1);
        let bytes = changes.after_step(last, SUPERBLOCK_OFFSET, SUPERBLOCK_LEN)?;
        let mut headers = Self::default();
        // A superblock that is none has no say.
        let Ok(sb) = Superblock::parse(&bytes) else {
            return Ok(headers);
        };
        let geo = Geometry::new(&sb);
        let shift = geo.block_size().log2();
        for group in geo.groups().filter(|group| geo.has_super(*group)) {
            let Ok(header) = geo.group_header(group) else {
                continue;
            };
            let end = header.descs.end << shift;
            if group == Group::new(0) {
                headers.own = header.descs.start << shift..end;
            } else {
                let start = header.super_block.map_or(header.descs.start, Pblk::get);
                headers.copies.push(start << shift..end);
            }
        }
        Ok(headers)
    }

    fn layer(&self, offset: u64) -> Layer {
        if self.own.contains(&offset) {
            return Layer::Descriptors;
        }
        let at = self.copies.partition_point(|copy| copy.end <= offset);
        match self.copies.get(at) {
            Some(copy) if copy.contains(&offset) => Layer::Copies,
            _ => Layer::Rest,
        }
    }
}

/// Writes all changes and makes them durable: see [`super::Plan::apply`].
pub(super) fn write(changes: &Changes) -> Result<()> {
    changes.copy_contents()?;
    if (0..changes.steps_count()).all(|step| changes.is_idle(step)) {
        return Ok(());
    }
    let device = changes.base();
    let (primary, len) = primary_of(changes);
    // Before the mark is on the device, from which blocks come that no step changes.
    let superblocks = (0..changes.steps_count())
        .map(|step| Ok((before_emptying(changes, step)?, after_step(changes, step)?)))
        .collect::<Result<Vec<_>>>()?;
    let headers = Headers::of(changes)?;
    let mut now = vec![0; len];
    device.read_at(primary, &mut now)?;
    if let Some(marked) = marked(primary, &now) {
        device.write_at(primary, &marked)?;
        device.flush()?;
    }
    changes.zero_parts()?;
    for (step, (before, after)) in superblocks.into_iter().enumerate() {
        let is_first = |offset| changes.is_first(offset);
        write_some(changes, step, &is_first)?;
        let is_held = |offset| changes.is_held(offset);
        let layer_of = |offset| match headers.layer(offset) {
            Layer::Rest if changes.is_fresh(offset) => Layer::Fresh,
            layer => layer,
        };
        for layer in [Layer::Fresh, Layer::Rest, Layer::Copies, Layer::Descriptors] {
            write_some(changes, step, &|offset| {
                let is_other = offset != primary && !is_first(offset) && !is_held(offset);
                is_other && layer_of(offset) == layer
            })?;
        }
        // The journal may hold the superblock: emptied before that is durable, it would be lost.
        if let Some(block) = before {
            put(&**device, primary, &block)?;
        }
        write_some(changes, step, &is_held)?;
        put(&**device, primary, &after)?;
    }
    Ok(())
}

/// Writes those of the blocks of a step, by the byte at which they begin, and makes them durable.
fn write_some(changes: &Changes, step: usize, are: &dyn Fn(u64) -> bool) -> Result<()> {
    let device = changes.base();
    let mut is_written = false;
    for change in changes.step_of(step, are) {
        let change = change?;
        device.write_at(change.offset, &change.after)?;
        is_written = true;
    }
    if is_written {
        device.flush()?;
    }
    Ok(())
}

/// Writes a block, and makes it durable, unless it is there.
fn put(device: &dyn BlockDevice, offset: u64, block: &[u8]) -> Result<()> {
    let mut now = vec![0; block.len()];
    device.read_at(offset, &mut now)?;
    if now != block {
        device.write_at(offset, block)?;
        device.flush()?;
    }
    Ok(())
}
