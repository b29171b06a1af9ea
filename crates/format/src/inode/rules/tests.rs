//! Tests of the rules: what few looks tell agrees with the table.

use super::*;
use crate::Pblk;
use crate::inode::Mode;
use crate::inode::tests::arbitrary_inode;
use crate::superblock::RawSuperblock;
use alloc::vec;
use proptest::prelude::*;

/// The rules where just these features are on, of those that rules ask for.
fn rules(compat: u32, incompat: u32, ro_compat: u32) -> InodeRules {
    let mut raw = RawSuperblock::zeroed();
    raw.magic.set(crate::superblock::MAGIC);
    raw.rev_level.set(1);
    raw.log_block_size.set(2);
    raw.log_cluster_size.set(2);
    raw.blocks_per_group.set(32_768);
    raw.clusters_per_group.set(32_768);
    raw.inodes_per_group.set(8192);
    raw.inodes_count.set(8192);
    raw.blocks_count_lo.set(20_000);
    raw.inode_size.set(256);
    raw.first_ino.set(11);
    let asked = Compat::DIR_INDEX | Compat::EXT_ATTR | Compat::IMAGIC_INODES;
    let numbered = Compat::HAS_JOURNAL | Compat::RESIZE_INODE;
    raw.feature_compat
        .set(compat & asked.bits() | numbered.bits());
    let asked = Incompat::EXTENTS
        | Incompat::EA_INODE
        | Incompat::INLINE_DATA
        | Incompat::ENCRYPT
        | Incompat::CASEFOLD;
    raw.feature_incompat.set(incompat & asked.bits());
    let asked =
        RoCompat::LARGE_FILE | RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM | RoCompat::VERITY;
    raw.feature_ro_compat
        .set(ro_compat & asked.bits() | RoCompat::QUOTA.bits());
    raw.usr_quota_inum.set(3);
    raw.journal_inum.set(8);
    raw.checksum_type = 1;
    let superblock = Superblock::from_raw(raw).unwrap();
    InodeRules::new(&superblock, &Geometry::new(&superblock))
}

#[test]
fn every_rule_has_a_name_of_its_own() {
    for (i, rule) in RULES.iter().enumerate() {
        assert!(
            RULES[..i].iter().all(|other| other.name != rule.name),
            "{rule:?}"
        );
    }
}

/// Features that rules ask for, one bit each in the three words.
const ASKED: [(u32, u32, u32); 12] = [
    (Compat::DIR_INDEX.bits(), 0, 0),
    (Compat::EXT_ATTR.bits(), 0, 0),
    (Compat::IMAGIC_INODES.bits(), 0, 0),
    (0, Incompat::EXTENTS.bits(), 0),
    (0, Incompat::EA_INODE.bits(), 0),
    (0, Incompat::INLINE_DATA.bits(), 0),
    (0, Incompat::ENCRYPT.bits(), 0),
    (0, Incompat::CASEFOLD.bits(), 0),
    (0, 0, RoCompat::LARGE_FILE.bits()),
    (0, 0, RoCompat::HUGE_FILE.bits()),
    (0, 0, RoCompat::METADATA_CSUM.bits()),
    (0, 0, RoCompat::VERITY.bits()),
];

/// The types that a mode can name, and two numbers that are none.
const TYPES: [u16; 9] = [
    0o100_000, 0o040_000, 0o120_000, 0o010_000, 0o020_000, 0o060_000, 0o140_000, 0, 0o170_000,
];

/// Compares what is said quickly of an inode with what the table says.
fn assert_as_the_table_says(rules: &InodeRules, ino: Ino, inode: &Inode, inline: Inline) {
    let subject = rules.subject(ino, inode, inline);
    let refusing = rules
        .broken(&subject)
        .find(|rule| rule.reading != Reading::Shown);
    let said = rules.refusal(ino, inode, inline);
    assert_eq!(
        refusing.map(|rule| rule.evidence(&subject)),
        said,
        "{ino} {inode:?} {inline:?} {rules:?}"
    );
    if rules.is_plain(ino, inode, inline) {
        assert_eq!(said, None);
    }
    // What a check looks for before it asks.
    let is_looked_for = !inode.flags.contains(InodeFlags::INLINE_DATA);
    if rules.is_faultless(ino, inode) {
        let subject = rules.subject(ino, inode, Inline::Missing);
        let broken = rules.broken(&subject).next();
        assert!(
            is_looked_for && broken.is_none(),
            "{broken:?}: {ino} {inode:?} {rules:?}"
        );
    }
}

/// A file or directory of a common kind: a block of content, mapped by one extent.
fn common(file_type: FileType) -> Inode {
    let mut inode = Inode::parse(
        &[0; 256],
        &crate::inode::InodeContext {
            inode_size: 256,
            seed: None,
            ino: Ino::new(12),
            large_dir: false,
            huge_file: true,
        },
    )
    .unwrap();
    inode.mode = Mode::new(file_type, 0o755);
    inode.links = 1;
    inode.size = 4096;
    inode.blocks = 8;
    inode.flags = InodeFlags::EXTENTS;
    let extent = extent::Extent {
        lblk: crate::Lblk::new(0),
        len: 1,
        pblk: Pblk::new(1234),
        unwritten: false,
    };
    extent::build_node(&mut inode.map, extent::Entries::Extents(&[extent])).unwrap();
    inode
}

#[test]
fn common_inodes_are_told_by_few_looks() {
    let rules = rules(u32::MAX, u32::MAX, u32::MAX);
    for file_type in [FileType::Regular, FileType::Directory] {
        let inode = common(file_type);
        assert!(rules.is_plain(Ino::new(12), &inode, Inline::Missing));
        assert!(rules.is_faultless(Ino::new(12), &inode));
    }
}

#[test]
fn few_looks_and_the_table_agree_on_every_pair_of_flags() {
    // All features but one, and one alone.
    let sets = (0..ASKED.len()).flat_map(|at| {
        let others = ASKED.iter().enumerate().filter(move |(n, _)| *n != at);
        let most = others.fold((0, 0, 0), |all, (_, one)| {
            (all.0 | one.0, all.1 | one.1, all.2 | one.2)
        });
        [most, ASKED[at]]
    });
    for features in sets.chain([(0, 0, 0), (u32::MAX, u32::MAX, u32::MAX)]) {
        let rules = rules(features.0, features.1, features.2);
        for (bits, base) in TYPES.iter().flat_map(|bits| {
            let empty = InodeFlags::empty();
            [(*bits, empty), (*bits, InodeFlags::EXTENTS)]
        }) {
            let mut inode = common(FileType::Regular);
            inode.mode = Mode::from_bits(bits | 0o644);
            for (one, other) in (0..32).flat_map(|one| (one..32).map(move |other| (one, other))) {
                inode.flags = base ^ InodeFlags::from_bits_retain(1 << one | 1 << other);
                assert_as_the_table_says(&rules, Ino::new(12), &inode, Inline::Missing);
            }
        }
    }
}

/// Values of a field at whose borders rules change their mind.
fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0u64..200,
        prop::sample::select(vec![
            1024,
            4096,
            8192,
            LARGE - 1,
            LARGE,
            LARGE + 4096,
            extent::LBLK_END << 12,
            (extent::LBLK_END << 12) + 1,
            indirect::blocks_reached(BlockSize::K4) << 12,
            (indirect::blocks_reached(BlockSize::K4) << 12) + 4096,
            u64::MAX,
        ]),
        0u64..1 << 44,
    ]
}

/// The part of a map in an inode: trees of one level and more, some damaged, pointers, and text.
fn maps() -> impl Strategy<Value = [u8; crate::inode::MAP_BYTES]> {
    let extent = (
        0u32..40,
        0u32..4,
        prop_oneof![0u64..30_000, Just(0), Just(19_999)],
    );
    let word = prop::sample::select(vec![0u16, 1, 4, 5, 0x7fff, 0x8000, 0x8001, 0xffff, 0xf30a]);
    let tree = (
        prop::collection::vec(extent, 0..=4),
        prop_oneof![4 => Just(0u16), 1 => 0u16..7],
        prop::option::weighted(0.3, (0usize..30, word)),
    );
    let tree = tree.prop_map(|(extents, depth, damage)| {
        let mut map = [0; crate::inode::MAP_BYTES];
        let mut put = |at: usize, bytes: &[u8]| map[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &extent::MAGIC.to_le_bytes());
        put(2, &(extents.len() as u16).to_le_bytes());
        put(4, &extent::ROOT_CAPACITY.to_le_bytes());
        put(6, &depth.to_le_bytes());
        let mut next = 0;
        for (at, (gap, len, start)) in extents.into_iter().enumerate() {
            let at = 12 * (at + 1);
            put(at, &(next + gap).to_le_bytes());
            put(at + 4, &(len as u16).to_le_bytes());
            put(at + 8, &(start as u32).to_le_bytes());
            next += gap + len;
        }
        if let Some((at, word)) = damage {
            put(at * 2, &word.to_le_bytes());
        }
        map
    });
    prop_oneof![
        4 => tree,
        1 => prop::collection::vec(0u32..25_000, 15).prop_map(|pointers| {
            indirect::encode_root(&pointers.try_into().unwrap())
        }),
        1 => Just([0; crate::inode::MAP_BYTES]),
        1 => (0usize..60).prop_map(|len| {
            let mut map = [0; crate::inode::MAP_BYTES];
            map[..len].fill(b'x');
            map
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn few_looks_and_the_table_agree(
        mut inode in arbitrary_inode(),
        features in (any::<u32>(), any::<u32>(), any::<u32>()),
        has_extents in prop::bool::weighted(0.8),
        bits in prop_oneof![2 => Just(TYPES[0]), 2 => Just(TYPES[1]), 1 => prop::sample::select(&TYPES)],
        links in 0u16..3,
        blocks in prop::sample::select(vec![0u64, 8, 32, 64]),
        flags in prop::collection::vec(0u32..32, 0..3),
        size in sizes(),
        attributes in prop::sample::select(vec![0u64, 0, 0, 1, 2, 19_999, 20_000, 1 << 47]),
        map in maps(),
        ino in prop::sample::select(vec![1u32, 2, 3, 4, 7, 8, 9, 10, 11, 12, 5000]),
        known in 0usize..3,
    ) {
        let incompat = if has_extents { features.1 | Incompat::EXTENTS.bits() } else { features.1 };
        let rules = rules(features.0, incompat, features.2);
        inode.mode = Mode::from_bits(bits | 0o644);
        (inode.links, inode.blocks, inode.size, inode.map) = (links, blocks, size, map);
        inode.file_acl = Pblk::new(attributes);
        let tree = if map.starts_with(&extent::MAGIC.to_le_bytes()) { InodeFlags::EXTENTS } else { InodeFlags::empty() };
        inode.flags = flags.iter().fold(tree, |all, bit| {
            all ^ InodeFlags::from_bits_retain(1 << bit)
        });
        let inline = match (inode.flags.contains(InodeFlags::INLINE_DATA), known) {
            (_, 0) => Inline::Unknown,
            (true, 1) => Inline::Stored(60),
            _ => Inline::Missing,
        };
        assert_as_the_table_says(&rules, Ino::new(ino), &inode, inline);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_passes_quickly_breaks_no_rule_that_refuses(
        mut inode in arbitrary_inode(),
        features in (any::<u32>(), any::<u32>(), any::<u32>()),
        few in prop::collection::vec(0u32..32, 0..3),
        simple in (any::<bool>(), 0u64..1 << 44, 0u64..10),
        known in 0usize..3,
    ) {
        let rules = rules(features.0, features.1, features.2);
        inode.flags = few.iter().fold(InodeFlags::EXTENTS, |all, bit| {
            all ^ InodeFlags::from_bits_retain(1 << bit)
        });
        inode.size = simple.1;
        inode.file_acl = Pblk::new(simple.2);
        inode.map = [0; crate::inode::MAP_BYTES];
        if simple.0 {
            crate::extent::build_node(&mut inode.map, crate::extent::Entries::Extents(&[])).unwrap();
        }
        let inline = match (inode.flags.contains(InodeFlags::INLINE_DATA), known) {
            (_, 0) => Inline::Unknown,
            (true, 1) => Inline::Stored(60),
            _ => Inline::Missing,
        };
        let subject = rules.subject(Ino::new(12), &inode, inline);
        let refused = rules.broken(&subject).find(|rule| rule.reading != Reading::Shown);
        let said = rules.refusal(Ino::new(12), &inode, inline);
        prop_assert_eq!(refused.map(|rule| rule.evidence(&subject)), said);
        if refused.is_none() && inline != Inline::Unknown {
            let mut read = inode.clone();
            rules.as_read(&mut read, inline);
            let inline = if read.flags.contains(InodeFlags::INLINE_DATA) { inline } else { Inline::Missing };
            prop_assert_eq!(rules.refusal(Ino::new(12), &read, inline), None);
        }
    }
}
