//! The folios of a file, by number: a tree whose slots are filled once, so that looking takes no lock.
//!
//! Folios stay for as long as the file's cache; what memory pressure takes are their pages. The depth of
//! a folio follows from its number, so that small files need one slot.

use super::folio::Folio;
use extant_sync::ShardedCounter;
use std::ops::Range;
use std::sync::OnceLock;

const LEAF_LOG2: u32 = 6;
const MIDDLE_LOG2: u32 = 9;
const TOP_LOG2: u32 = 8;

type Slots<T> = Box<[OnceLock<Box<T>>]>;
type Leaf = Slots<Folio>;
type Middle = Slots<Leaf>;
type Upper = Slots<Middle>;
type Top = Slots<Upper>;

/// First folio below `middle`, and the first below `top`.
const IN_LEAF: u32 = 1 << LEAF_LOG2;
const IN_MIDDLE: u32 = 1 << (LEAF_LOG2 + MIDDLE_LOG2);

/// The folios of a file.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Folio 0.
    first: OnceLock<Box<Folio>>,
    /// Those below 2^6.
    leaf: OnceLock<Box<Leaf>>,
    /// Those below 2^15.
    middle: OnceLock<Box<Middle>>,
    /// All others.
    top: OnceLock<Box<Top>>,
}

fn slots<T>(log2: u32) -> Slots<T> {
    (0..1 << log2).map(|_| OnceLock::new()).collect()
}

/// The slot of `index` at a level whose slots stand for `2^below` folios each.
fn at(index: u32, below: u32, log2: u32) -> usize {
    (index >> below) as usize & ((1 << log2) - 1)
}

const UPPER_BELOW: u32 = LEAF_LOG2 + MIDDLE_LOG2;
const TOP_BELOW: u32 = UPPER_BELOW + MIDDLE_LOG2;

impl Index {
    /// The folio of that number, if there is one.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Folio> {
        if index == 0 {
            return self.first.get().map(Box::as_ref);
        }
        let leaf = if index < IN_LEAF {
            self.leaf.get()?
        } else {
            let middle = if index < IN_MIDDLE {
                self.middle.get()?
            } else {
                let upper = self.top.get()?.get(at(index, TOP_BELOW, TOP_LOG2))?.get()?;
                upper.get(at(index, UPPER_BELOW, MIDDLE_LOG2))?.get()?
            };
            middle.get(at(index, LEAF_LOG2, MIDDLE_LOG2))?.get()?
        };
        leaf.get(at(index, 0, LEAF_LOG2))?.get().map(Box::as_ref)
    }

    /// The folio of that number, which comes into being, and is counted in `made`, if there is none.
    #[inline]
    pub(super) fn get_or_make(&self, index: u32, made: &ShardedCounter) -> &Folio {
        match self.get(index) {
            Some(folio) => folio,
            None => self.make(index, made),
        }
    }

    #[cold]
    fn make(&self, index: u32, made: &ShardedCounter) -> &Folio {
        let mut is_new = false;
        let folio = self.made(index, || {
            is_new = true;
            Box::new(Folio::new(index))
        });
        // Not while others wait for the slot.
        if is_new {
            made.inc();
        }
        folio
    }

    fn made(&self, index: u32, new: impl FnOnce() -> Box<Folio>) -> &Folio {
        if index == 0 {
            return self.first.get_or_init(new);
        }
        let leaf = if index < IN_LEAF {
            self.leaf.get_or_init(|| Box::new(slots(LEAF_LOG2)))
        } else {
            let middle = if index < IN_MIDDLE {
                self.middle.get_or_init(|| Box::new(slots(MIDDLE_LOG2)))
            } else {
                let top = self.top.get_or_init(|| Box::new(slots(TOP_LOG2)));
                let upper = top[at(index, TOP_BELOW, TOP_LOG2)]
                    .get_or_init(|| Box::new(slots(MIDDLE_LOG2)));
                upper[at(index, UPPER_BELOW, MIDDLE_LOG2)]
                    .get_or_init(|| Box::new(slots(MIDDLE_LOG2)))
            };
            middle[at(index, LEAF_LOG2, MIDDLE_LOG2)].get_or_init(|| Box::new(slots(LEAF_LOG2)))
        };
        leaf[at(index, 0, LEAF_LOG2)].get_or_init(new)
    }

    /// The folios of `range`, ascending.
    pub(super) fn folios(&self, range: Range<u64>) -> impl Iterator<Item = &Folio> {
        let (start, end) = (range.start, range.end);
        let leaf = self.leaf.get().into_iter().map(|leaf| (0, leaf));
        let middle = self.middle.get().into_iter().map(|middle| (0, middle));
        let top = self.top.get().into_iter();
        let upper = top.flat_map(move |top| inside(top, 0, TOP_BELOW, start..end));
        let in_top = upper.flat_map(move |(at, upper)| inside(upper, at, UPPER_BELOW, start..end));
        let leaves = middle
            .chain(in_top)
            .flat_map(move |(at, middle)| inside(middle, at, LEAF_LOG2, start..end));
        let others = leaf
            .chain(leaves)
            .flat_map(move |(at, leaf)| inside(leaf, at, 0, start..end));
        let first = self.first.get().into_iter();
        first
            .chain(others.map(|(_, folio)| folio))
            .map(Box::as_ref)
            .filter(move |folio| range.contains(&folio.index().into()))
    }
}

/// The slots in use of those from folio `at` on, which stand for `2^below` folios each, that have to do with `range`,
/// and the first folio of each.
fn inside<T>(
    slots: &[OnceLock<T>],
    at: u64,
    below: u32,
    range: Range<u64>,
) -> impl Iterator<Item = (u64, &T)> {
    let first = range.start.saturating_sub(at) >> below;
    let end = range.end.saturating_sub(at).div_ceil(1 << below);
    let last = end.min(slots.len() as u64);
    (first..last).filter_map(move |i| {
        let slot = slots.get(i as usize)?.get()?;
        Some((at + (i << below), slot))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_of_any_number_are_found_again_and_come_in_order() {
        let index = Index::default();
        let made = ShardedCounter::new();
        let numbers = [0, 1, 63, 64, 65, 1000, 32767, 32768, 1 << 24, u32::MAX];
        for number in numbers {
            assert!(index.get(number).is_none());
            assert_eq!(index.get_or_make(number, &made).index(), number);
        }
        for number in numbers {
            assert_eq!(index.get(number).map(Folio::index), Some(number));
            assert!(std::ptr::eq(
                index.get_or_make(number, &made),
                index.get(number).unwrap()
            ));
        }
        let all: Vec<u32> = index.folios(0..1 << 32).map(Folio::index).collect();
        assert_eq!(all, numbers);
        assert_eq!(made.sum(), numbers.len() as i64);
        let some: Vec<u32> = index.folios(64..32768).map(Folio::index).collect();
        assert_eq!(some, [64, 65, 1000, 32767]);
        for range in [0..1, 1..64, 63..66, 32768..1 << 24, 1 << 24..1 << 32, 5..5] {
            let found: Vec<u32> = index.folios(range.clone()).map(Folio::index).collect();
            let expected = numbers.iter().filter(|n| range.contains(&u64::from(**n)));
            assert!(expected.eq(&found), "{range:?}: {found:?}");
        }
    }
}
