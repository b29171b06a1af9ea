//! Block and inode bitmaps: bits, runs and checksums.
//!
//! Bit `n` is bit `n % 8` of byte `n / 8`. A set bit means used. In a block bitmap a bit is a
//! cluster; bits past the end of a short last group, and past the inodes of a group, are padding
//! and set.
//!
//! The functions work on plain byte slices, so that a cached block, a block under construction
//! and a test vector are all the same. A bit past the end of the slice reads as set and cannot be
//! changed: what is not there can never be allocated.

use crate::checksum::Crc32c;
use core::ops::Range;

/// Returns whether `bit` is set.
#[inline]
#[must_use]
pub fn test(map: &[u8], bit: u32) -> bool {
    map.get((bit / 8) as usize)
        .is_none_or(|byte| byte & (1 << (bit % 8)) != 0)
}

/// Sets `bit`; whether it was clear before.
#[inline]
pub fn set(map: &mut [u8], bit: u32) -> bool {
    let Some(byte) = map.get_mut((bit / 8) as usize) else {
        return false;
    };
    let mask = 1 << (bit % 8);
    let was_clear = *byte & mask == 0;
    *byte |= mask;
    was_clear
}

/// Clears `bit`; whether it was set before.
#[inline]
pub fn clear(map: &mut [u8], bit: u32) -> bool {
    let Some(byte) = map.get_mut((bit / 8) as usize) else {
        return false;
    };
    let mask = 1 << (bit % 8);
    let was_set = *byte & mask != 0;
    *byte &= !mask;
    was_set
}

/// Sets all bits of the range that lie in the map.
pub fn set_range(map: &mut [u8], bits: Range<u32>) {
    fill_range(map, bits, true);
}

/// Clears all bits of the range that lie in the map.
pub fn clear_range(map: &mut [u8], bits: Range<u32>) {
    fill_range(map, bits, false);
}

fn fill_range(map: &mut [u8], bits: Range<u32>, value: bool) {
    let end = clamp(map, bits.end);
    if bits.start >= end {
        return;
    }
    let (first, last) = ((bits.start / 8) as usize, ((end - 1) / 8) as usize);
    let head = 0xff_u8 << (bits.start % 8);
    let tail = 0xff_u8 >> (7 - (end - 1) % 8);
    let mut apply = |at: usize, mask: u8| {
        if value {
            map[at] |= mask;
        } else {
            map[at] &= !mask;
        }
    };
    if first == last {
        apply(first, head & tail);
        return;
    }
    apply(first, head);
    apply(last, tail);
    map[first + 1..last].fill(if value { 0xff } else { 0 });
}

/// Returns the number of set bits in the range.
#[must_use]
pub fn count_set(map: &[u8], bits: Range<u32>) -> u32 {
    let mut count = 0;
    let mut at = bits.start;
    while at < bits.end {
        if at.is_multiple_of(64) && bits.end - at >= 64 {
            count += word(map, at).count_ones();
            at += 64;
        } else {
            count += u32::from(test(map, at));
            at += 1;
        }
    }
    count
}

/// Returns the number of clear bits in the range.
#[must_use]
pub fn count_clear(map: &[u8], bits: Range<u32>) -> u32 {
    bits.end.saturating_sub(bits.start) - count_set(map, bits)
}

/// Returns the first set bit at or after `from` and before `end`.
#[must_use]
pub fn next_set(map: &[u8], from: u32, end: u32) -> Option<u32> {
    next(map, from, end, 0)
}

/// Returns the bits of the range, of at most 64, the first of them lowest.
#[inline]
#[must_use]
pub fn bits(map: &[u8], range: Range<u32>) -> u64 {
    let len = range.end.saturating_sub(range.start).min(64);
    let base = range.start & !63;
    let skipped = range.start - base;
    let mut bits = word(map, base) >> skipped;
    if skipped + len > 64 {
        // Past the last possible bit there are none: what is not there is set.
        let next = base.checked_add(64).map_or(!0, |next| word(map, next));
        bits |= next << (64 - skipped);
    }
    match len {
        64 => bits,
        len => bits & !(!0 << len),
    }
}

/// Returns the first clear bit at or after `from` and before `end`.
#[must_use]
pub fn next_clear(map: &[u8], from: u32, end: u32) -> Option<u32> {
    // What lies past the end reads as set: no need to walk there.
    next(map, from, end.min(clamp(map, end)), !0)
}

/// Finds a set bit of `map ^ flip`.
fn next(map: &[u8], from: u32, end: u32, flip: u64) -> Option<u32> {
    let mut at = from;
    while at < end {
        let base = at & !63;
        let bits = (word(map, base) ^ flip) & (!0 << (at - base));
        if bits != 0 {
            let found = base + bits.trailing_zeros();
            return (found < end).then_some(found);
        }
        at = base.checked_add(64)?;
    }
    None
}

/// 64 bits starting at `base`, a multiple of 64; what lies past the end reads as set.
#[inline]
fn word(map: &[u8], base: u32) -> u64 {
    let start = (base / 8) as usize;
    let tail = map.get(start..).unwrap_or_default();
    if let Some(bytes) = tail.first_chunk::<8>() {
        return u64::from_le_bytes(*bytes);
    }
    let mut bytes = [0xff; 8];
    bytes[..tail.len()].copy_from_slice(tail);
    u64::from_le_bytes(bytes)
}

fn clamp(map: &[u8], bit: u32) -> u32 {
    let bits = (map.len() as u64).saturating_mul(8);
    u64::from(bit).min(bits) as u32
}

/// Returns the runs of clear bits in `bits`, ascending.
pub fn clear_runs(map: &[u8], bits: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
    let mut at = bits.start;
    core::iter::from_fn(move || {
        let start = next_clear(map, at, bits.end)?;
        let end = next_set(map, start, bits.end).unwrap_or(bits.end);
        at = end;
        Some(start..end)
    })
}

/// Sets every bit from `valid` to the end of the map: the padding of a short group.
pub fn set_padding(map: &mut [u8], valid: u32) {
    let end = clamp(map, u32::MAX);
    set_range(map, valid..end);
}

/// Returns whether every bit from `valid` to the end of the map is set.
#[must_use]
pub fn padding_is_set(map: &[u8], valid: u32) -> bool {
    next_clear(map, valid, clamp(map, u32::MAX)).is_none()
}

/// Returns the checksum of a block or inode bitmap that covers `bits` clusters or inodes per group,
/// under `metadata_csum`: all 32 bits; descriptors of 32 bytes store the low half.
///
/// Bytes past the end of a short slice do not take part.
#[must_use]
pub fn checksum(seed: u32, map: &[u8], bits: u32) -> u32 {
    let len = (bits as usize / 8).min(map.len());
    Crc32c::seeded(seed).update(&map[..len]).value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn naive(map: &[u8], bits: Range<u32>) -> Vec<u32> {
        bits.filter(|b| test(map, *b)).collect()
    }

    proptest! {
        #[test]
        fn ranges_do_what_single_bits_do(
            mut map in proptest::collection::vec(any::<u8>(), 0..40),
            a in 0_u32..400, b in 0_u32..400, value: bool,
        ) {
            let mut slow = map.clone();
            for bit in a..b {
                if value { set(&mut slow, bit); } else { clear(&mut slow, bit); }
            }
            fill_range(&mut map, a..b, value);
            prop_assert_eq!(map, slow);
        }

        #[test]
        fn searches_and_counts_agree_with_looking_at_every_bit(
            map in proptest::collection::vec(any::<u8>(), 0..40),
            from in 0_u32..400, end in 0_u32..400,
        ) {
            let ones = naive(&map, from..end);
            prop_assert_eq!(count_set(&map, from..end), ones.len() as u32);
            prop_assert_eq!(next_set(&map, from, end), ones.first().copied());
            prop_assert_eq!(
                next_clear(&map, from, end),
                (from..end).find(|b| !test(&map, *b))
            );
            let short = from..end.clamp(from, from + 64);
            let together = bits(&map, short.clone());
            for bit in 0..64 {
                let expected = bit < short.end - from && test(&map, from + bit);
                prop_assert_eq!(together >> bit & 1 == 1, expected, "{}", bit);
            }
            let free: Vec<u32> = clear_runs(&map, from..end).flatten().collect();
            prop_assert_eq!(free.len() as u32, count_clear(&map, from..end));
            prop_assert!(free.iter().all(|b| !test(&map, *b)));
        }
    }

    #[test]
    fn bits_past_the_end_are_used_for_ever() {
        let mut map = vec![0; 2];
        assert!(test(&map, 16));
        assert!(!set(&mut map, 16));
        assert!(!clear(&mut map, u32::MAX));
        assert_eq!(next_clear(&map, 16, u32::MAX), None);
        set_padding(&mut map, 11);
        assert_eq!(map, [0, 0xf8]);
        assert!(padding_is_set(&map, 11));
        assert!(!padding_is_set(&map, 10));
    }
}
