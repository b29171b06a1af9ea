//! CRC32C of several messages at once.
//!
//! A processor that has an instruction for CRC32C begins one in each cycle, and takes three for it;
//! in one message each needs the result of the one before. So several messages of the same length
//! take turns, and together take hardly longer than one. Where there is no such instruction, or no
//! `std` to ask for it with, they are taken one by one.
#![allow(unsafe_code)]

use crate::checksum::Crc32c;

/// Words of 8 bytes in front of those of a message that stand for others, and behind them.
pub(crate) const SIDE_WORDS: usize = 15;

/// A message of words of 8 bytes each, which lie here and there.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    /// Its first bytes.
    pub(crate) first: u64,
    /// Those that follow.
    pub(crate) before: &'a [[u8; 8]; SIDE_WORDS],
    /// What stands where the message has other bytes than memory.
    pub(crate) between: [u64; 2],
    /// The last ones.
    pub(crate) after: &'a [[u8; 8]; SIDE_WORDS],
}

/// The states after `messages`, each of which begins with `state`.
#[inline]
pub(crate) fn update_each<const N: usize>(
    state: Crc32c,
    messages: &[Message<'_>; N],
) -> [Crc32c; N] {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the one thing that the function asks of its caller is that there is this feature.
        return unsafe { with_instruction(state.value(), messages) }.map(Crc32c::seeded);
    }
    one_by_one(state, messages)
}

/// The state after the bytes of one word.
#[inline]
pub(crate) fn update_word(state: Crc32c, word: u64) -> Crc32c {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: as in `update_each`.
        let after = unsafe { core::arch::x86_64::_mm_crc32_u64(state.value().into(), word) };
        return Crc32c::seeded(after as u32);
    }
    state.update(&word.to_le_bytes())
}

/// The state after a number and eight words: for descriptors, of which opening a large file system
/// adds up many, and a call for each piece costs more than the piece.
#[inline]
pub(crate) fn update_numbered(state: Crc32c, number: u32, words: &[u64; 8]) -> Crc32c {
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    if std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: as in `update_each`.
        let after = unsafe { numbered_with_instruction(state.value(), number, words) };
        return Crc32c::seeded(after);
    }
    numbered_in_one_piece(state, number, words)
}

fn numbered_in_one_piece(state: Crc32c, number: u32, words: &[u64; 8]) -> Crc32c {
    let mut bytes = [0; 4 + 8 * 8];
    if let Some((first, rest)) = bytes.split_first_chunk_mut() {
        *first = number.to_le_bytes();
        for (bytes, word) in rest.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
    state.update(&bytes)
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[target_feature(enable = "sse4.2")]
fn numbered_with_instruction(state: u32, number: u32, words: &[u64; 8]) -> u32 {
    use core::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};
    let state = u64::from(_mm_crc32_u32(state, number));
    let state = words
        .iter()
        .fold(state, |state, word| _mm_crc32_u64(state, *word));
    // The upper half of what the instruction leaves is zero.
    state as u32
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[target_feature(enable = "sse4.2")]
fn with_instruction<const N: usize>(state: u32, messages: &[Message<'_>; N]) -> [u32; N] {
    use core::arch::x86_64::_mm_crc32_u64 as add;
    let mut states = [u64::from(state); N];
    for (state, message) in states.iter_mut().zip(messages) {
        *state = add(*state, message.first);
    }
    for at in 0..SIDE_WORDS {
        for (state, message) in states.iter_mut().zip(messages) {
            *state = add(*state, u64::from_le_bytes(message.before[at]));
        }
    }
    for at in 0..2 {
        for (state, message) in states.iter_mut().zip(messages) {
            *state = add(*state, message.between[at]);
        }
    }
    for at in 0..SIDE_WORDS {
        for (state, message) in states.iter_mut().zip(messages) {
            *state = add(*state, u64::from_le_bytes(message.after[at]));
        }
    }
    // The upper half of what the instruction leaves is zero.
    states.map(|state| state as u32)
}

fn one_by_one<const N: usize>(state: Crc32c, messages: &[Message<'_>; N]) -> [Crc32c; N] {
    messages.map(|message| {
        let [low, high] = message.between.map(u64::to_le_bytes);
        state
            .update(&message.first.to_le_bytes())
            .update(message.before.as_flattened())
            .update(&low)
            .update(&high)
            .update(message.after.as_flattened())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// A message as one piece: the reference takes it from there.
    fn bytes(message: &Message<'_>) -> Vec<u8> {
        let mut bytes = message.first.to_le_bytes().to_vec();
        bytes.extend(message.before.as_flattened());
        bytes.extend(message.between.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(message.after.as_flattened());
        bytes
    }

    proptest! {
        #[test]
        fn all_ways_agree_with_the_library(
            seed: u32,
            firsts: [u64; 4],
            betweens: [[u64; 2]; 4],
            sides in proptest::collection::vec(any::<[[u8; 8]; SIDE_WORDS]>(), 8),
            number: u32,
            words: [u64; 8],
        ) {
            let messages: [_; 4] = core::array::from_fn(|n| Message {
                first: firsts[n],
                before: &sides[2 * n],
                between: betweens[n],
                after: &sides[2 * n + 1],
            });
            let state = Crc32c::seeded(seed);
            let expected = messages.map(|message| state.update(&bytes(&message)));
            prop_assert_eq!(update_each(state, &messages), expected);
            prop_assert_eq!(one_by_one(state, &messages), expected);
            prop_assert_eq!(
                update_word(state, firsts[0]),
                state.update(&firsts[0].to_le_bytes())
            );
            let after = words
                .iter()
                .fold(state.update_u32(number), |state, word| state.update(&word.to_le_bytes()));
            prop_assert_eq!(update_numbered(state, number, &words), after);
            prop_assert_eq!(numbered_in_one_piece(state, number, &words), after);
            let [first, ..] = messages;
            prop_assert_eq!(update_each(state, &[first]), [expected[0]]);
        }
    }

    #[test]
    fn the_published_vector_of_zeros_comes_out() {
        // RFC 3720, B.4: 32 bytes of zeros give 0x8a9136aa; here with 232 more of them.
        let zeros = [[0; 8]; SIDE_WORDS];
        let message = Message {
            first: 0,
            before: &zeros,
            between: [0; 2],
            after: &zeros,
        };
        let short = Crc32c::INIT.update_zeros(32);
        assert_eq!(!short.value(), 0x8a91_36aa);
        let expected = short.update_zeros(232);
        assert_eq!(update_each(Crc32c::INIT, &[message; 3]), [expected; 3]);
    }
}
