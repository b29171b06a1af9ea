//! A small generator of random numbers: the same seed gives the same run on every machine.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

/// Splitmix64 (Steele, Lea, Flood 2014): any seed is a good seed.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Returns a generator that starts at `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product is uniform enough for tests.
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Returns true once in `n` calls, on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of `choices`.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// Brings `items` into another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Returns the seed of a random test: `EXTANT_SEED` when set; otherwise made from the name of the
/// test and the text `EXTANT_SEED_FROM` when that is set (the whole test run sets it to a sum of
/// the code, so that a run and its repetition do the same); otherwise from the clock. It is
/// printed, so that a failing run can be repeated.
///
/// # Panics
///
/// When `EXTANT_SEED` is not a number (decimal or `0x` hexadecimal).
pub fn seed_from_env(test: &str) -> u64 {
    let number = |text: String| {
        text.strip_prefix("0x")
            .map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16))
            .unwrap_or_else(|e| panic!("EXTANT_SEED={text}: {e}"))
    };
    let of_text = |text: String| {
        let mut hasher = DefaultHasher::new();
        (text, test).hash(&mut hasher);
        hasher.finish()
    };
    let clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64)
    };
    let given = std::env::var("EXTANT_SEED").ok().map(number);
    let derived = || std::env::var("EXTANT_SEED_FROM").ok().map(of_text);
    let seed = given.or_else(derived).unwrap_or_else(clock);
    println!("{test}: seed {seed:#x} (repeat with EXTANT_SEED={seed:#x})");
    seed
}
