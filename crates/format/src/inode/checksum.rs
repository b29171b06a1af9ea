//! The checksum of an inode: over its number, its generation and its slot, with both checksum
//! fields taken as zero.

use super::raw::{CHECKSUM_HI_AT, CHECKSUM_LO_AT, RawInode, RawInodeExtra};
use super::{FIXED_BYTES, InodeContext, join16, join32, reaches};
use crate::checksum::Crc32c;
use crate::side_by_side::{Message, SIDE_WORDS, update_each};
use crate::{FormatError, FormatResult, Ino, Structure};
use core::ops::Range;

/// Bytes of an inode on most file systems.
const USUAL_INODE_SIZE: usize = 256;
/// Where the generation lies in the inode.
const GENERATION_AT: usize = core::mem::offset_of!(RawInode, generation);
/// Where the number of bytes of extra fields lies in the inode.
const EXTRA_ISIZE_AT: usize = FIXED_BYTES;

// The checksum fields lie in the two words in the middle, with so many words before as after them.
const _: () = assert!(CHECKSUM_LO_AT / 8 == SIDE_WORDS && CHECKSUM_HI_AT / 8 == SIDE_WORDS + 1);
const _: () = assert!(USUAL_INODE_SIZE == 8 * (2 * SIDE_WORDS + 2));

/// A word without the 16 bits at `at` bytes from the start of the inode.
const fn without(word: [u8; 8], at: usize) -> u64 {
    u64::from_le_bytes(word) & !(0xffff << (at % 8 * 8))
}

/// What the checksum of a slot of the usual size, with a full checksum field, is of.
#[inline]
fn message(owner: u64, words: &[[u8; 8]; USUAL_INODE_SIZE / 8]) -> Option<Message<'_>> {
    let (before, rest) = words.split_first_chunk()?;
    let ([low, high], after) = rest.split_first_chunk()?;
    Some(Message {
        first: owner,
        before,
        between: [
            without(*low, CHECKSUM_LO_AT),
            without(*high, CHECKSUM_HI_AT),
        ],
        after: after.first_chunk()?,
    })
}

/// A slot of the usual size, by words.
#[inline]
fn words(slot: &[u8]) -> Option<&[[u8; 8]; USUAL_INODE_SIZE / 8]> {
    let (words, rest) = slot.as_chunks();
    rest.is_empty().then_some(())?;
    words.try_into().ok()
}

#[inline]
fn field<const LEN: usize>(slot: &[u8], at: usize) -> [u8; LEN] {
    let field = slot.get(at..).and_then(|rest| rest.first_chunk());
    field.copied().unwrap_or([0; LEN])
}

/// Returns which of the slots have the checksum they should have: those of consecutive numbers or
/// any others, looked at together. `false` also for what is seldom, and not looked at here: sizes
/// other than the usual one, short checksums, slots of zeros, file systems without checksums.
/// [`Inode::parse`](super::Inode::parse) says what is the matter with those, if anything.
#[inline]
#[must_use]
pub fn are_sound<const N: usize>(
    slots: [&[u8]; N],
    inos: [Ino; N],
    context: &InodeContext,
) -> [bool; N] {
    static NOTHING: [[u8; 8]; USUAL_INODE_SIZE / 8] = [[0; 8]; USUAL_INODE_SIZE / 8];
    let Some(seed) = context.seed else {
        return [false; N];
    };
    let is_usual = |slot: &[u8]| {
        let extra_isize = u16::from_le_bytes(field(slot, EXTRA_ISIZE_AT));
        slot.len() == USUAL_INODE_SIZE && reaches(extra_isize, CHECKSUM_HI_AT, 2)
    };
    if usize::from(context.inode_size) != USUAL_INODE_SIZE || !slots.iter().all(|s| is_usual(s)) {
        return [false; N];
    }
    let mut messages = [Message {
        first: 0,
        before: const { NOTHING.first_chunk().unwrap() },
        between: [0; 2],
        after: const { NOTHING.first_chunk().unwrap() },
    }; N];
    for ((to, slot), ino) in messages.iter_mut().zip(slots).zip(inos) {
        let generation = u32::from_le_bytes(field(slot, GENERATION_AT));
        let owner = join32(ino.get(), generation);
        match words(slot).and_then(|words| message(owner, words)) {
            Some(message) => *to = message,
            None => return [false; N],
        }
    }
    let computed = update_each(seed, &messages);
    let mut sound = [false; N];
    for ((sound, slot), computed) in sound.iter_mut().zip(slots).zip(computed) {
        let lo = u16::from_le_bytes(field(slot, CHECKSUM_LO_AT));
        let hi = u16::from_le_bytes(field(slot, CHECKSUM_HI_AT));
        *sound = join16(lo, hi) == computed.value();
    }
    sound
}

/// The checksum of a slot with both checksum fields taken as zero.
fn checksum(slot: &[u8], seed: Crc32c, ino: Ino, generation: u32, extra_isize: u16) -> Crc32c {
    let has_hi = slot.len() > FIXED_BYTES && reaches(extra_isize, CHECKSUM_HI_AT, 2);
    // The usual size is quicker in words than in pieces.
    if has_hi
        && let Some(words) = words(slot)
        && let Some(message) = message(join32(ino.get(), generation), words)
    {
        let [computed] = update_each(seed, &[message]);
        return computed;
    }
    let part = |range: Range<usize>| slot.get(range).unwrap_or(&[]);
    let mut state = seed
        .update_u32(ino.get())
        .update_u32(generation)
        .update(part(0..CHECKSUM_LO_AT))
        .update_zeros(2)
        .update(part(CHECKSUM_LO_AT + 2..FIXED_BYTES));
    if slot.len() > FIXED_BYTES {
        state = state.update(part(FIXED_BYTES..CHECKSUM_HI_AT));
        state = if has_hi {
            state
                .update_zeros(2)
                .update(part(CHECKSUM_HI_AT + 2..slot.len()))
        } else {
            state.update(part(CHECKSUM_HI_AT..slot.len()))
        };
    }
    state
}

#[inline]
pub(super) fn verify_checksum(
    slot: &[u8],
    raw: &RawInode,
    extra: &RawInodeExtra,
    seed: Crc32c,
    ino: Ino,
) -> FormatResult<()> {
    let extra_isize = extra.extra_isize.get();
    let computed = checksum(slot, seed, ino, raw.generation.get(), extra_isize);
    let wide = slot.len() > FIXED_BYTES && reaches(extra_isize, CHECKSUM_HI_AT, 2);
    let (stored, computed) = if wide {
        (
            join16(raw.checksum_lo.get(), extra.checksum_hi.get()),
            computed.value(),
        )
    } else {
        (raw.checksum_lo.get().into(), computed.low16().into())
    };
    if stored == computed || slot.iter().all(|&byte| byte == 0) {
        Ok(())
    } else {
        Err(FormatError::checksum(Structure::Inode, stored, computed))
    }
}

/// Computes the checksum of a slot anew, whatever else the slot says: also of an inode that is not
/// in use. A slot of zeros stays as it is, since it never was an inode.
pub fn seal_slot(slot: &mut [u8], seed: Crc32c, ino: Ino) {
    if slot.iter().all(|&byte| byte == 0) {
        return;
    }
    let generation = u32::from_le_bytes(field(slot, GENERATION_AT));
    let extra_isize = if slot.len() > FIXED_BYTES {
        u16::from_le_bytes(field(slot, EXTRA_ISIZE_AT))
    } else {
        0
    };
    store_checksum(slot, seed, ino, generation, extra_isize);
}

pub(super) fn store_checksum(
    slot: &mut [u8],
    seed: Crc32c,
    ino: Ino,
    generation: u32,
    extra_isize: u16,
) {
    let value = checksum(slot, seed, ino, generation, extra_isize).value();
    let wide = slot.len() > FIXED_BYTES && reaches(extra_isize, CHECKSUM_HI_AT, 2);
    if let Some(lo) = slot.get_mut(CHECKSUM_LO_AT..CHECKSUM_LO_AT + 2) {
        lo.copy_from_slice(&(value as u16).to_le_bytes());
    }
    if wide && let Some(hi) = slot.get_mut(CHECKSUM_HI_AT..CHECKSUM_HI_AT + 2) {
        hi.copy_from_slice(&((value >> 16) as u16).to_le_bytes());
    }
}
