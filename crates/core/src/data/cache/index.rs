//! The folios of a file, by number: a tree in which looking takes no lock.
//!
//! The depth of a folio follows from its number, so that small files need one slot. Folios go again
//! when memory is short, and a leaf, which leads to 64 of them, goes with its last one. What leads
//! to leaves stays for as long as the file's cache: 4 KiB for 2 GiB of the file, where any of these
//! were used.
//!
//! # Invariants
//!
//! - `size` is locked to put a folio in or to take one out, and a leaf with it.
//! - A folio is marked as gone, under its lock, before it is taken out. A thread that locks one to
//!   put something into it and finds it gone takes it out itself, if that is left to be done, and
//!   looks again.

use crate::data::cache::folio::Folio;
use extant_sync::{EpochGuard, LockClass, Mutex, Rank, RcuSlot, pin};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

static INDEX: LockClass = LockClass::new("folios of a file", Rank::Leaf);

const LEAF_LOG2: u32 = 6;
const MIDDLE_LOG2: u32 = 9;
const TOP_LOG2: u32 = 8;

/// Bytes of memory of a folio without pages, and of a leaf, with the counts of their users.
const FOLIO_MEMORY: i64 = (size_of::<Folio>() + 2 * size_of::<usize>()) as i64;
const LEAF_MEMORY: i64 = (size_of::<Leaf>() + 2 * size_of::<usize>()) as i64;

struct Leaf([RcuSlot<Folio>; 1 << LEAF_LOG2]);

type Slots<T> = Box<[T]>;
type Middle = Slots<RcuSlot<Leaf>>;
type Upper = Slots<OnceLock<Middle>>;
type Top = Slots<OnceLock<Upper>>;

/// First folio below `middle`, and the first below `top`.
const IN_LEAF: u32 = 1 << LEAF_LOG2;
const IN_MIDDLE: u32 = 1 << (LEAF_LOG2 + MIDDLE_LOG2);

/// Folios, and bytes of memory of these and of what leads to them: how many there are, or how many
/// more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::data) struct Size {
    pub(in crate::data) folios: i64,
    pub(in crate::data) bytes: i64,
}

impl Size {
    fn add(&mut self, other: Self) {
        self.folios += other.folios;
        self.bytes += other.bytes;
    }
}

/// The folios of a file.
#[derive(Debug)]
pub(in crate::data) struct Index {
    /// Folio 0.
    first: RcuSlot<Folio>,
    /// Those below 2^6.
    leaf: RcuSlot<Leaf>,
    /// Those below 2^15.
    middle: OnceLock<Middle>,
    /// All others.
    top: OnceLock<Top>,
    size: Mutex<Size>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            first: RcuSlot::empty(),
            leaf: RcuSlot::empty(),
            middle: OnceLock::new(),
            top: OnceLock::new(),
            size: Mutex::new(&INDEX, Size::default()),
        }
    }
}

/// Returns the place of `index` at a level whose places stand for `2^below` folios each.
fn at(index: u32, below: u32, log2: u32) -> usize {
    (index >> below) as usize & ((1 << log2) - 1)
}

const UPPER_BELOW: u32 = LEAF_LOG2 + MIDDLE_LOG2;
const TOP_BELOW: u32 = UPPER_BELOW + MIDDLE_LOG2;

impl Index {
    /// Returns the folio of that number, if there is one.
    #[inline]
    pub(in crate::data) fn get<'g>(
        &'g self,
        index: u32,
        guard: &'g EpochGuard,
    ) -> Option<&'g Folio> {
        self.place(index, guard)?.get(guard)
    }

    /// Returns the folio of that number, to keep, if there is one.
    #[inline]
    pub(in crate::data) fn load(&self, index: u32) -> Option<Arc<Folio>> {
        let guard = pin();
        self.place(index, &guard)?.load(&guard)
    }

    /// Has the processor bring the folio of that number near, which is about to be used.
    #[inline]
    pub(in crate::data) fn prefetch(&self, index: u32, guard: &EpochGuard) {
        if Self::is_near(index) {
            return;
        }
        if let Some(place) = self.place(index, guard) {
            place.prefetch();
        }
    }

    /// Tells whether a folio is one of the first: these are few enough to stay in the caches of a
    /// processor that uses them.
    #[inline]
    pub(in crate::data) fn is_near(index: u32) -> bool {
        index < IN_LEAF
    }

    #[inline]
    fn place<'g>(&'g self, index: u32, guard: &'g EpochGuard) -> Option<&'g RcuSlot<Folio>> {
        if index == 0 {
            return Some(&self.first);
        }
        let leaf = self.leaf_place(index)?.get(guard)?;
        leaf.0.get(at(index, 0, LEAF_LOG2))
    }

    /// Returns where the leaf is that leads to `index`.
    #[inline]
    fn leaf_place(&self, index: u32) -> Option<&RcuSlot<Leaf>> {
        if index < IN_LEAF {
            return Some(&self.leaf);
        }
        let middle = if index < IN_MIDDLE {
            self.middle.get()?
        } else {
            let upper = self.top.get()?.get(at(index, TOP_BELOW, TOP_LOG2))?.get()?;
            upper.get(at(index, UPPER_BELOW, MIDDLE_LOG2))?.get()?
        };
        middle.get(at(index, LEAF_LOG2, MIDDLE_LOG2))
    }

    /// Returns the place of the leaf of a folio, which comes into being if there is none. `size` is
    /// locked, and grows by what came.
    fn leaf_place_made<'a>(&'a self, index: u32, size: &mut Size) -> &'a RcuSlot<Leaf> {
        if index < IN_LEAF {
            return &self.leaf;
        }
        let middle = if index < IN_MIDDLE {
            made(&self.middle, MIDDLE_LOG2, size)
        } else {
            let top = made(&self.top, TOP_LOG2, size);
            let upper = made(&top[at(index, TOP_BELOW, TOP_LOG2)], MIDDLE_LOG2, size);
            let middle = &upper[at(index, UPPER_BELOW, MIDDLE_LOG2)];
            made(middle, MIDDLE_LOG2, size)
        };
        &middle[at(index, LEAF_LOG2, MIDDLE_LOG2)]
    }

    /// Returns the folio of that number, which comes into being if there is none; and how much more
    /// there is for that.
    #[cold]
    pub(in crate::data) fn make(&self, index: u32) -> (Arc<Folio>, Size) {
        let guard = pin();
        // Memory is found before others are kept waiting.
        let new = Arc::new(Folio::new(index));
        let mut size = self.size.lock();
        let mut came = Size::default();
        let leaf = (index != 0).then(|| {
            let place = self.leaf_place_made(index, &mut came);
            place.load(&guard).unwrap_or_else(|| {
                let leaf = Arc::new(Leaf(std::array::from_fn(|_| RcuSlot::empty())));
                place.put(Arc::clone(&leaf), &guard);
                came.bytes += LEAF_MEMORY;
                leaf
            })
        });
        let place = leaf
            .as_ref()
            .map_or(&self.first, |leaf| &leaf.0[at(index, 0, LEAF_LOG2)]);
        let folio = place.load(&guard).unwrap_or_else(|| {
            place.put(Arc::clone(&new), &guard);
            came.add(Size {
                folios: 1,
                bytes: FOLIO_MEMORY,
            });
            new
        });
        size.add(came);
        (folio, came)
    }

    /// Takes out a folio that is gone, unless somebody else has; returns how much less there is, as
    /// a negative size.
    pub(in crate::data) fn remove(&self, folio: &Folio) -> Size {
        let guard = pin();
        let mut size = self.size.lock();
        let mut came = Size::default();
        let index = folio.index();
        let is_it = |found: Option<&Folio>| found.is_some_and(|found| std::ptr::eq(found, folio));
        if let Some(place) = self.place(index, &guard).filter(|p| is_it(p.get(&guard))) {
            place.clear(&guard);
            came.add(Size {
                folios: -1,
                bytes: -FOLIO_MEMORY,
            });
            if index != 0
                && let Some(place) = self.leaf_place(index)
                && let Some(leaf) = place.get(&guard)
                && leaf.0.iter().all(RcuSlot::is_empty)
            {
                place.clear(&guard);
                came.bytes -= LEAF_MEMORY;
            }
        }
        size.add(came);
        came
    }

    /// Returns how much there is. The caller has the index to itself.
    pub(in crate::data) fn size_of_own(&mut self) -> Size {
        *self.size.get_mut()
    }

    /// Returns the folios of `range`, ascending.
    pub(in crate::data) fn folios(&self, range: Range<u64>) -> impl Iterator<Item = Arc<Folio>> {
        let first = range.contains(&0).then(|| self.load(0)).flatten();
        let middle = self.middle.get().into_iter().map(|middle| (0, middle));
        let top = self.top.get().into_iter();
        let in_top = range.clone();
        let upper = top.flat_map(move |top| inside(top, 0, TOP_BELOW, in_top.clone()));
        let upper = upper.filter_map(|(at, upper)| Some((at, upper.get()?)));
        let in_upper = range.clone();
        let middles =
            upper.flat_map(move |(at, upper)| inside(upper, at, UPPER_BELOW, in_upper.clone()));
        let middles = middles.filter_map(|(at, middle)| Some((at, middle.get()?)));
        let in_middle = range.clone();
        let leaves = middle
            .chain(middles)
            .flat_map(move |(at, middle)| inside(middle, at, LEAF_LOG2, in_middle.clone()));
        let leaves = std::iter::once((0, &self.leaf)).chain(leaves);
        let others = leaves.flat_map(move |(at, leaf)| folios_of(leaf, at, range.clone()));
        first.into_iter().chain(others)
    }
}

/// Returns the folios of a leaf that lie in `range`.
fn folios_of(leaf: &RcuSlot<Leaf>, at: u64, range: Range<u64>) -> Vec<Arc<Folio>> {
    let guard = pin();
    let Some(leaf) = leaf.get(&guard) else {
        return Vec::new();
    };
    let all = inside(&leaf.0, at, 0, range);
    all.filter_map(|(_, place)| place.load(&guard)).collect()
}

/// Returns a level of `2^log2` places, which comes into being, and adds to `size`, if it is not
/// there.
fn made<'a, T: Default>(level: &'a OnceLock<Slots<T>>, log2: u32, size: &mut Size) -> &'a Slots<T> {
    level.get_or_init(|| {
        size.bytes += (size_of::<T>() << log2) as i64;
        (0..1 << log2).map(|_| T::default()).collect()
    })
}

/// Returns the places, of those from folio `at` on, which stand for `2^below` folios each, that
/// have to do with `range`, and the first folio of each.
fn inside<T>(
    places: &[T],
    at: u64,
    below: u32,
    range: Range<u64>,
) -> impl Iterator<Item = (u64, &T)> {
    let first = range.start.saturating_sub(at) >> below;
    let end = range.end.saturating_sub(at).div_ceil(1 << below);
    let last = end.min(places.len() as u64);
    (first..last).filter_map(move |i| Some((at + (i << below), places.get(i as usize)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_of_any_number_are_found_again_come_in_order_and_go() {
        let mut index = Index::default();
        let mut size = Size::default();
        let numbers = [0, 1, 63, 64, 65, 1000, 32767, 32768, 1 << 24, u32::MAX];
        for number in numbers {
            assert!(index.load(number).is_none());
            let (folio, came) = index.make(number);
            assert_eq!((folio.index(), came.folios), (number, 1));
            size.add(came);
        }
        for number in numbers {
            let (folio, came) = index.make(number);
            assert_eq!(came, Size::default());
            assert!(Arc::ptr_eq(&folio, &index.load(number).unwrap()));
        }
        let found = |range| -> Vec<u32> { index.folios(range).map(|f| f.index()).collect() };
        assert_eq!(found(0..1 << 32), numbers);
        assert_eq!(found(64..32768), [64, 65, 1000, 32767]);
        for range in [0..1, 1..64, 63..66, 32768..1 << 24, 1 << 24..1 << 32, 5..5] {
            let expected = numbers.iter().filter(|n| range.contains(&u64::from(**n)));
            assert!(expected.eq(&found(range.clone())), "{range:?}");
        }
        for number in numbers {
            let folio = index.load(number).unwrap();
            let gone = index.remove(&folio);
            assert_eq!(gone.folios, -1);
            size.add(gone);
            assert_eq!(index.remove(&folio), Size::default());
            assert!(index.load(number).is_none());
            // One that came in its place is another.
            let (new, came) = index.make(number);
            assert_eq!(index.remove(&folio), Size::default());
            size.add(came);
            size.add(index.remove(&new));
        }
        assert_eq!(index.folios(0..1 << 32).count(), 0);
        assert_eq!(size, index.size_of_own());
        // Two levels for folios below 2^15 and up to 2^24, another two for the last.
        assert!(size.folios == 0 && size.bytes < 64 << 10, "{size:?}");
    }
}
