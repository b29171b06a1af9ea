//! Tests of the rules: the quick way agrees with the table.

use super::*;
use crate::Pblk;
use crate::inode::tests::arbitrary_inode;
use crate::superblock::RawSuperblock;
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
    raw.feature_compat.set(compat & asked.bits());
    let asked = Incompat::EXTENTS
        | Incompat::EA_INODE
        | Incompat::INLINE_DATA
        | Incompat::ENCRYPT
        | Incompat::CASEFOLD;
    raw.feature_incompat.set(incompat & asked.bits());
    let asked =
        RoCompat::LARGE_FILE | RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM | RoCompat::VERITY;
    raw.feature_ro_compat.set(ro_compat & asked.bits());
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
            let inline = match read.flags.contains(InodeFlags::INLINE_DATA) {
                true => inline,
                false => Inline::Missing,
            };
            prop_assert_eq!(rules.refusal(Ino::new(12), &read, inline), None);
        }
    }
}
