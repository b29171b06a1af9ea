//! Tests of extent nodes: what is refused, what is found, and what survives encoding.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const PHYSICAL: Range<u64> = 1..1 << 48;

/// Sorted extents that do not overlap.
fn extents(most: usize) -> impl Strategy<Value = Vec<Extent>> {
    let one = (
        0u32..5000,
        1u32..=MAX_WRITTEN_LEN,
        1u64..1 << 47,
        any::<bool>(),
    );
    proptest::collection::vec(one, 0..=most).prop_map(|parts| {
        let mut next = 0;
        parts
            .into_iter()
            .map(|(gap, len, start, unwritten)| {
                let len = if unwritten {
                    len.min(MAX_UNWRITTEN_LEN)
                } else {
                    len
                };
                let lblk = next + gap;
                next = lblk + len;
                Extent {
                    lblk: Lblk::new(lblk),
                    len,
                    pblk: Pblk::new(start),
                    unwritten,
                }
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn a_leaf_survives_encoding_and_finds_every_block(extents in extents(84), probe in any::<u32>()) {
        let mut block = vec![0xee; 1024];
        build_node(&mut block, Entries::Extents(&extents)).unwrap();
        let seed = Crc32c::INIT.update(b"seed");
        store_checksum(&mut block, seed).unwrap();
        verify_checksum(&block, seed).unwrap();
        let node = ExtentNode::parse(&block).unwrap();
        node.validate(&NodeContext::root(PHYSICAL)).unwrap();
        prop_assert_eq!(node.extents().collect::<Vec<_>>(), extents.clone());
        let span = extents.last().map_or(1, |last| last.end() as u32 + 10);
        let lblk = Lblk::new(probe % span);
        let expected = extents.iter().rposition(|extent| extent.lblk <= lblk);
        prop_assert_eq!(node.search(lblk), expected);
    }

    #[test]
    fn extents_put_in_place_are_as_if_the_leaf_were_built_anew(
        old in extents(84),
        new in extents(3),
        at in any::<proptest::sample::Index>(),
        count in 0_usize..3,
    ) {
        let mut block = vec![0xee; 1024];
        build_node(&mut block, Entries::Extents(&old)).unwrap();
        let start = at.index(old.len() + 1);
        let replaced = start..start + count;
        let put = put_extents(&mut block, replaced.clone(), &new);
        let fits = replaced.end <= old.len() && old.len() - count + new.len() <= 84;
        prop_assert_eq!(put.is_ok(), fits);
        let mut expected = old.clone();
        if fits {
            expected.splice(replaced, new);
        }
        let mut anew = vec![0; 1024];
        build_node(&mut anew, Entries::Extents(&expected)).unwrap();
        prop_assert_eq!(block, anew);
    }

    #[test]
    fn an_index_survives_encoding(firsts in proptest::collection::btree_set(any::<u32>(), 1..=4), child in 1u64..1 << 48) {
        let index: Vec<_> = firsts
            .iter()
            .map(|&lblk| IndexEntry { lblk: Lblk::new(lblk), child: Pblk::new(child) })
            .collect();
        let mut root = [0; ROOT_BYTES];
        build_node(&mut root, Entries::Index(3, &index)).unwrap();
        let node = ExtentNode::parse(&root).unwrap();
        prop_assert_eq!(node.header().max, ROOT_CAPACITY);
        node.validate(&NodeContext::root(PHYSICAL)).unwrap();
        prop_assert_eq!(node.index_entries().collect::<Vec<_>>(), index);
    }

    #[test]
    fn a_flipped_bit_of_a_block_is_noticed(extents in extents(84), bit in 0usize..1024 * 8) {
        let mut block = vec![0; 1024];
        build_node(&mut block, Entries::Extents(&extents)).unwrap();
        store_checksum(&mut block, Crc32c::INIT).unwrap();
        block[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(verify_checksum(&block, Crc32c::INIT).is_err());
    }
}

fn leaf(extents: &[Extent]) -> [u8; ROOT_BYTES] {
    let mut root = [0; ROOT_BYTES];
    build_node(&mut root, Entries::Extents(extents)).unwrap();
    root
}

fn run(lblk: u32, len: u32, pblk: u64) -> Extent {
    Extent {
        lblk: Lblk::new(lblk),
        len,
        pblk: Pblk::new(pblk),
        unwritten: false,
    }
}

#[test]
fn entries_that_lie_are_refused_with_their_place() {
    let context = NodeContext::root(10..1000);
    let check = |root: &[u8]| ExtentNode::parse(root).unwrap().validate(&context);
    let overlap = check(&leaf(&[run(0, 10, 10), run(9, 1, 100)])).unwrap_err();
    assert_eq!((overlap.field, overlap.at), ("block", Some(24)));
    let outside = check(&leaf(&[run(0, 10, 995)])).unwrap_err();
    assert_eq!(outside.expected, Expected::Between(10, 990));
    assert!(check(&leaf(&[run(0, 1, 9)])).is_err());
    assert!(check(&leaf(&[run(u32::MAX, 2, 100)])).is_err());
    assert!(check(&leaf(&[run(u32::MAX, 1, 100)])).is_err());
    check(&leaf(&[run(u32::MAX - 1, 1, 100)])).unwrap();
    check(&leaf(&[])).unwrap();
}

#[test]
fn a_child_stays_in_its_parents_range_and_one_level_down() {
    let index = [5, 50].map(|lblk| IndexEntry {
        lblk: Lblk::new(lblk),
        child: Pblk::new(20),
    });
    let mut root = [0; ROOT_BYTES];
    build_node(&mut root, Entries::Index(1, &index)).unwrap();
    let parent = ExtentNode::parse(&root).unwrap();
    let context = parent
        .child_context(0, &NodeContext::root(1..1000))
        .unwrap();
    assert_eq!(context.logical, 5..50);
    let check = |root: &[u8]| {
        let node = ExtentNode::parse(root).unwrap();
        let (all, again) = (node.validate(&context), node.fits(&context));
        assert_eq!(all.is_ok(), again.is_ok(), "validated once, fits as well");
        all
    };
    check(&leaf(&[run(5, 45, 100)])).unwrap();
    assert!(check(&leaf(&[run(5, 46, 100)])).is_err());
    assert!(check(&leaf(&[run(4, 1, 100)])).is_err());
    assert!(check(&leaf(&[])).is_err());
    assert_eq!(check(&root).unwrap_err().field, "depth");
}

#[test]
fn the_longest_written_extent_is_not_taken_for_an_unwritten_one() {
    let root = leaf(&[run(0, MAX_WRITTEN_LEN, 1)]);
    let extent = ExtentNode::parse(&root).unwrap().extent(0).unwrap();
    assert_eq!((extent.len, extent.unwritten), (32768, false));
}

#[test]
fn capacities_are_those_of_the_format() {
    assert_eq!(block_capacity(BlockSize::MIN), 84);
    assert_eq!(block_capacity(BlockSize::K4), 340);
    assert_eq!(block_capacity(BlockSize::MAX), 5460);
}

#[test]
fn arbitrary_bytes_never_panic() {
    bolero::check!()
        .with_type::<(Vec<u8>, u32)>()
        .for_each(|(bytes, lblk)| {
            let mut bytes = bytes.clone();
            // Most inputs should get past the magic.
            if let Some(magic) = bytes.first_chunk_mut::<2>() {
                *magic = MAGIC.to_le_bytes();
            }
            let _ = verify_checksum(&bytes, Crc32c::INIT);
            let Ok(node) = ExtentNode::parse(&bytes) else {
                return;
            };
            let context = NodeContext::root(1..1 << 40);
            let _ = node.validate(&context);
            if let Some(i) = node.search(Lblk::new(*lblk)) {
                let _ = node.child_context(i, &context);
                let _ = node.extent(i).map(|extent| extent.end());
            }
        });
}
