//! Laying out entries anew: one leaf packed, or made into two.

use super::htree::major;
use extant_format::dir::{DirBlockBuilder, DirEntry, DirLayout, NameHasher, NewEntry, entries};
use extant_format::{FormatResult, Ino};

/// An entry to be laid out, and what the index sorts it by.
pub(super) struct Item<'a> {
    hash: u32,
    entry: NewEntry<'a>,
}

impl<'a> Item<'a> {
    pub(super) fn new(hasher: &NameHasher, entry: NewEntry<'a>) -> Self {
        Self {
            hash: major(hasher, entry.name),
            entry,
        }
    }
}

/// Two leaves made of one.
pub(super) struct Halves {
    /// The lower hashes.
    pub(super) low: Box<[u8]>,
    /// The higher ones.
    pub(super) high: Box<[u8]>,
    /// What the index says of the second: its lowest hash, and in the low bit whether names of that
    /// hash end the first.
    pub(super) hash: u32,
}

/// Returns the entries of a block, behind the first `skip` that are in use.
pub(super) fn used<'a>(
    block: &'a [u8],
    layout: &DirLayout,
    skip: usize,
) -> FormatResult<Vec<NewEntry<'a>>> {
    let new = |(entry, ino): (DirEntry<'a>, Ino)| NewEntry {
        ino,
        name: entry.name,
        file_type: entry.file_type,
        hash: entry.hash,
    };
    entries(block, layout)
        .filter_map(|entry| match entry {
            Ok(entry) => entry.ino.map(|ino| Ok((entry, ino))),
            Err(e) => Some(Err(e)),
        })
        .skip(skip)
        .map(|entry| entry.map(new))
        .collect()
}

/// Returns the block with all its free space together, in it `extra`; `None` if that does not fit
/// even so.
///
/// Entries keep their order.
///
/// # Errors
/// When a record of the block breaks the format.
pub(super) fn pack(
    block: &[u8],
    layout: &DirLayout,
    extra: &NewEntry<'_>,
) -> FormatResult<Option<Box<[u8]>>> {
    let mut all = used(block, layout, 0)?;
    all.push(*extra);
    Ok(build(all.iter(), layout))
}

/// Returns a block of these entries; `None` if they do not fit.
fn build<'a>(all: impl Iterator<Item = &'a NewEntry<'a>>, layout: &DirLayout) -> Option<Box<[u8]>> {
    let mut block = vec![0; layout.block_size.len()].into_boxed_slice();
    let mut builder = DirBlockBuilder::new(&mut block, layout);
    for entry in all {
        if !builder.push(entry) {
            return None;
        }
    }
    builder.finish_unsealed();
    Some(block)
}

/// Lays out entries in two leaves by hash, balanced by their bytes. `None` if they do not fit or
/// are fewer than two.
///
/// Names of one hash stay together unless they fill more than one leaf. In each leaf entries keep
/// their order, which mostly is that in which they came: a removal of files in that order finds
/// each at the beginning of its leaf.
pub(super) fn halve(items: &[Item<'_>], layout: &DirLayout) -> Option<Halves> {
    let numbered = items.iter().zip(0..);
    let mut by_hash: Vec<Key> = numbered.map(|(item, at)| (item.hash, at)).collect();
    by_hash.sort_unstable();
    let at = cut(items, &by_hash, layout)?;
    let (low, high) = by_hash.split_at_checked(at)?;
    let first = *high.first()?;
    let continued = low.last()?.0 == first.0;
    let half = |is_high: bool| {
        let numbered = items.iter().zip(0..);
        let chosen = numbered.filter(|(item, at)| ((item.hash, *at) >= first) == is_high);
        build(chosen.map(|(item, _)| &item.entry), layout)
    };
    Some(Halves {
        low: half(false)?,
        high: half(true)?,
        hash: first.0 | u32::from(continued),
    })
}

/// The hash of an item, and which one it is.
type Key = (u32, u32);

/// Returns where to cut items, whose keys are sorted: between different hashes if both sides fit
/// then, and so that the larger side is as small as it can be.
fn cut(items: &[Item<'_>], by_hash: &[Key], layout: &DirLayout) -> Option<usize> {
    let len = |item: &Item<'_>| layout.min_rec_len(item.entry.name);
    let total: usize = items.iter().map(len).sum();
    let mut low = 0;
    let mut best = None;
    for (at, pair) in by_hash.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        low += items.get(before.1 as usize).map_or(0, len);
        let larger = low.max(total - low);
        let cost = (before.0 == after.0, larger);
        if larger <= layout.entries_len() && best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, at + 1));
        }
    }
    best.map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_format::BlockSize;
    use extant_format::dir::{EntryType, HashVersion};
    use extant_testkit::rng::{Rng, seed_from_env};
    use std::collections::BTreeSet;

    fn layout(checksums: bool) -> DirLayout {
        DirLayout {
            block_size: BlockSize::from_log2(10).unwrap(),
            file_type: true,
            checksums,
            hash_in_entry: false,
            raw_names: false,
            max_inode: Ino::new(1 << 20),
        }
    }

    fn names(block: &[u8], layout: &DirLayout) -> Vec<Vec<u8>> {
        let all = used(block, layout, 0).unwrap();
        all.iter().map(|entry| entry.name.to_vec()).collect()
    }

    #[test]
    fn halves_are_in_order_balanced_and_complete() {
        let seed = seed_from_env("halves");
        let mut rng = Rng::new(seed);
        let hasher = NameHasher::new(HashVersion::HalfMd4, [1, 2, 3, 4]).unwrap();
        for _ in 0..500 {
            let layout = layout(rng.one_in(2));
            let (mut all, mut total) = (BTreeSet::new(), 0);
            let longest = *rng.pick(&[8, 40, 255]);
            while total <= layout.entries_len() {
                let mut name = vec![0; rng.between(1, longest) as usize];
                for byte in &mut name {
                    *byte = rng.between(97, 122) as u8;
                }
                if all.insert(name.clone()) {
                    total += layout.min_rec_len(&name);
                }
            }
            let items: Vec<_> = all
                .iter()
                .map(|name| {
                    let entry = NewEntry::new(Ino::new(12), name, EntryType::Regular);
                    Item::new(&hasher, entry)
                })
                .collect();
            let halves = halve(&items, &layout).unwrap();
            let (low, high) = (names(&halves.low, &layout), names(&halves.high, &layout));
            // The order they came in.
            assert!(low.is_sorted() && high.is_sorted());
            let both: BTreeSet<_> = low.iter().chain(&high).cloned().collect();
            assert_eq!((both.len(), both), (low.len() + high.len(), all));
            assert_eq!(halves.hash & 1, 0);
            assert!(low.iter().all(|name| major(&hasher, name) < halves.hash));
            assert!(high.iter().all(|name| major(&hasher, name) >= halves.hash));
            let bytes = |names: &[Vec<u8>]| -> usize {
                names.iter().map(|name| layout.min_rec_len(name)).sum()
            };
            // No further apart than the entry in the middle.
            assert!(bytes(&low).abs_diff(bytes(&high)) <= 264);
        }
    }

    #[test]
    fn only_a_hash_that_fills_a_leaf_goes_on_in_the_next() {
        let layout = layout(true);
        let long = [b'x'; 240];
        let item = |hash| Item {
            hash,
            entry: NewEntry::new(Ino::new(12), &long, EntryType::Regular),
        };
        // Three fit a leaf.
        let same = halve(&[item(4), item(4), item(4), item(4)], &layout).unwrap();
        assert_eq!(same.hash, 5);
        let uneven = halve(&[item(4), item(8), item(8), item(8)], &layout).unwrap();
        assert_eq!(uneven.hash, 8);
        assert_eq!(names(&uneven.low, &layout).len(), 1);
        assert!(halve(&[item(4)], &layout).is_none());
    }

    #[test]
    fn packing_joins_the_free_space() {
        let layout = layout(true);
        let mut block = vec![0; 1024];
        let mut builder = DirBlockBuilder::new(&mut block, &layout);
        let names: Vec<_> = (0..50_u32).map(|i| format!("name{i:04}")).collect();
        for name in &names {
            let entry = NewEntry::new(Ino::new(12), name.as_bytes(), EntryType::Regular);
            assert!(builder.push(&entry));
        }
        builder.finish_unsealed();
        for name in names.iter().step_by(2) {
            use extant_format::dir::edit;
            let spot = edit::find(&block, &layout, name.as_bytes())
                .unwrap()
                .unwrap();
            edit::remove(&mut block, &layout, &spot);
        }
        let long = [b'y'; 250];
        let extra = NewEntry::new(Ino::new(13), &long, EntryType::Regular);
        let need = layout.min_rec_len(&long);
        let packed = pack(&block, &layout, &extra).unwrap().unwrap();
        assert_eq!(used(&packed, &layout, 0).unwrap().len(), 26);
        assert!(
            extant_format::dir::edit::find_room(&packed, &layout, need)
                .unwrap()
                .is_some()
        );
        assert_eq!(used(&packed, &layout, 24).unwrap().len(), 2);
    }
}
