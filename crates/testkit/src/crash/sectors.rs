//! Hashes of sectors, and of images as sums of them.
//!
//! The hash of an image is the sum, modulo 2^128, over all its sectors of a hash of place and
//! content, counted from the base image. So an image's hash follows from the sectors it changes, in
//! any order.

use std::collections::HashMap;

use super::{Content, SECTOR};

/// Hash of one sector at its place. Not cryptographic; two lanes make chance collisions unlikely
/// among any number of images a test can look at.
pub(super) fn sector_hash(sector: u64, bytes: &[u8]) -> u128 {
    let mut low = mix(sector ^ 0x243f_6a88_85a3_08d3);
    let mut high = mix(sector ^ 0x1319_8a2e_0370_7344);
    for word in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
        low = (low ^ word)
            .wrapping_mul(0x9fb2_1c65_1e98_df25)
            .rotate_left(23);
        high = (high.rotate_left(29) ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    u128::from(mix(low)) << 64 | u128::from(mix(high))
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// The sectors that the writes in flight touch, numbered, with what the durable image has there.
#[derive(Debug, Default)]
pub(super) struct Touched {
    numbers: HashMap<u64, u32>,
    slots: Vec<Slot>,
    round: u32,
}

#[derive(Debug)]
struct Slot {
    durable: u128,
    round: u32,
    current: u128,
}

impl Touched {
    /// The number of `sector`, which is read from the durable image when it is new.
    pub(super) fn number(&mut self, sector: u64, durable: &Content) -> u32 {
        *self.numbers.entry(sector).or_insert_with(|| {
            let mut bytes = [0; SECTOR];
            durable.read(sector * SECTOR as u64, &mut bytes);
            self.slots.push(Slot {
                durable: sector_hash(sector, &bytes),
                round: 0,
                current: 0,
            });
            (self.slots.len() - 1) as u32
        })
    }

    /// Starts another image: every sector is durable again.
    pub(super) fn start_image(&mut self) {
        self.round += 1;
    }

    /// What it adds to the image's hash that the sector of this number now has content of `hash`.
    pub(super) fn put(&mut self, number: u32, hash: u128) -> u128 {
        let slot = &mut self.slots[number as usize];
        let before = if slot.round == self.round {
            slot.current
        } else {
            slot.durable
        };
        slot.round = self.round;
        slot.current = hash;
        hash.wrapping_sub(before)
    }
}
