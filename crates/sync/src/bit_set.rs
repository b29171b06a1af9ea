//! A set of small numbers that threads change and search without a lock.
//!
//! # Protocol
//!
//! Bits lie in words, and each word has a bit in a summary that says whether it has any. The
//! summary is a hint that must not go missing for good:
//!
//! | insert | remove |
//! |---|---|
//! | set the bit in its word | clear the bit in its word |
//! | if the word was 0, set its summary bit | if the word is 0 now, clear its summary bit |
//! | | look at the word again; if it is not 0, set the summary bit |
//!
//! # Invariants
//!
//! - When nobody changes the set, each word that is not 0 has its summary bit. While a number of
//!   the same word is being removed, a search may miss one that is being inserted, or was just now.
//! - A search never finds what was not in the set at some moment of it.

use crate::backend::atomic::Ordering;
use crate::{CountedAtomicU64, RmwClass};

/// Bits in a word.
const BITS: usize = 64;

/// A set of numbers below a limit.
///
/// ```
/// use extant_sync::{AtomicBitSet, RmwClass};
///
/// static MEMBER: RmwClass = RmwClass::new("example set");
/// let set = AtomicBitSet::new(&MEMBER, 100_000);
/// set.insert(77_000);
/// assert_eq!(set.next(5), Some(77_000));
/// set.remove(77_000);
/// assert_eq!(set.next(5), None);
/// ```
#[derive(Debug)]
pub struct AtomicBitSet {
    words: Box<[CountedAtomicU64]>,
    summary: Box<[CountedAtomicU64]>,
}

impl AtomicBitSet {
    /// The empty set, for numbers below `limit`. Changes count in `class`.
    #[must_use]
    pub fn new(class: &'static RmwClass, limit: usize) -> Self {
        let words = limit.div_ceil(BITS);
        let zeros = |count: usize| {
            (0..count)
                .map(|_| CountedAtomicU64::new(class, 0))
                .collect()
        };
        Self {
            words: zeros(words),
            summary: zeros(words.div_ceil(BITS)),
        }
    }

    /// Puts `number` into the set. One past the limit is ignored.
    pub fn insert(&self, number: usize) {
        self.insert_into(number / BITS, 1 << (number % BITS));
    }

    /// Puts numbers that lie side by side into the set, with one change for all of them: bit `n`
    /// of `which` stands for `first + n`, where `first` is rounded down to a multiple of 64. Words
    /// past the limit are ignored.
    pub fn insert_all(&self, first: usize, which: u64) {
        if which != 0 {
            self.insert_into(first / BITS, which);
        }
    }

    fn insert_into(&self, word: usize, which: u64) {
        let Some(bits) = self.words.get(word) else {
            return;
        };
        if bits.fetch_or(which, Ordering::AcqRel) == 0 {
            self.note(word);
        }
    }

    /// Takes `number` out of the set.
    pub fn remove(&self, number: usize) {
        let word = number / BITS;
        let Some(bits) = self.words.get(word) else {
            return;
        };
        let bit = 1 << (number % BITS);
        if bits.fetch_and(!bit, Ordering::AcqRel) & !bit != 0 {
            return;
        }
        if let Some(summary) = self.summary.get(word / BITS) {
            summary.fetch_and(!(1 << (word % BITS)), Ordering::AcqRel);
        }
        // A thread that set a bit meanwhile may have set the summary before it was cleared. Then
        // its word is seen here, as the clearing read what that one wrote.
        if bits.load(Ordering::Acquire) != 0 {
            self.note(word);
        }
    }

    /// Says in the summary that `word` has bits.
    fn note(&self, word: usize) {
        if let Some(summary) = self.summary.get(word / BITS) {
            summary.fetch_or(1 << (word % BITS), Ordering::AcqRel);
        }
    }

    /// Whether `number` is in the set.
    #[must_use]
    pub fn contains(&self, number: usize) -> bool {
        let bits = self.words.get(number / BITS);
        bits.is_some_and(|bits| bits.load(Ordering::Acquire) & 1 << (number % BITS) != 0)
    }

    /// The smallest number of the set that is not below `from`.
    #[must_use]
    pub fn next(&self, from: usize) -> Option<usize> {
        let word = from / BITS;
        let first = self.words.get(word)?.load(Ordering::Acquire) & u64::MAX << (from % BITS);
        if first != 0 {
            return Some(word * BITS + first.trailing_zeros() as usize);
        }
        let mut word = word + 1;
        loop {
            let noted = self.summary.get(word / BITS)?.load(Ordering::Acquire);
            let noted = noted & u64::MAX << (word % BITS);
            if noted == 0 {
                word = (word / BITS + 1) * BITS;
                continue;
            }
            word = word / BITS * BITS + noted.trailing_zeros() as usize;
            let bits = self.words.get(word)?.load(Ordering::Acquire);
            if bits != 0 {
                return Some(word * BITS + bits.trailing_zeros() as usize);
            }
            // About to be cleared in the summary.
            word += 1;
        }
    }
}
