//! Tests of the superblock and of the geometry derived from it, on hand-made records.

use super::*;
use crate::geometry::Geometry;
use crate::group_desc::GroupDesc;
use crate::types::{Group, Ino, Pblk};
use proptest::prelude::*;

/// A sound superblock of 3 groups of 32,768 blocks of 4 KiB.
fn sound() -> RawSuperblock {
    let mut raw = RawSuperblock::zeroed();
    raw.magic.set(MAGIC);
    raw.rev_level.set(1);
    raw.log_block_size.set(2);
    raw.log_cluster_size.set(2);
    raw.blocks_per_group.set(32_768);
    raw.clusters_per_group.set(32_768);
    raw.inodes_per_group.set(8192);
    raw.inodes_count.set(3 * 8192);
    raw.blocks_count_lo.set(2 * 32_768 + 100);
    raw.inode_size.set(256);
    raw.first_ino.set(11);
    raw.desc_size.set(64);
    raw.checksum_type = 1;
    raw.feature_incompat
        .set((Incompat::BIT64 | Incompat::EXTENTS | Incompat::FLEX_BG).bits());
    raw.feature_ro_compat
        .set((RoCompat::METADATA_CSUM | RoCompat::SPARSE_SUPER).bits());
    raw
}

#[test]
fn a_superblock_survives_encode_and_parse() {
    let mut raw = sound();
    raw.reserved[17].set(0xdead_beef);
    raw.feature_compat.set(1 << 30);
    let sb = Superblock::from_raw(raw).unwrap();
    let back = Superblock::parse(&sb.encode()).unwrap();
    assert_eq!(back.raw().reserved[17].get(), 0xdead_beef);
    assert_eq!(back.features().compat.names_of_bits(), ["FEATURE_C30"]);
    assert_eq!(back.encode(), sb.encode());
}

#[test]
fn a_flipped_byte_is_a_checksum_error_that_unverified_parsing_ignores() {
    let mut bytes = Superblock::from_raw(sound()).unwrap().encode();
    bytes[0x78] ^= 1;
    assert!(Superblock::parse(&bytes).unwrap_err().is_checksum());
    assert!(Superblock::parse_unverified(&bytes).is_ok());
}

/// A superblock of revision 0, which has neither features nor a size of inodes.
fn of_revision_0() -> RawSuperblock {
    let mut raw = sound();
    raw.rev_level.set(0);
    raw.feature_compat.set(0);
    raw.feature_incompat.set(0);
    raw.feature_ro_compat.set(0);
    (raw.inode_size, raw.first_ino) = Default::default();
    raw
}

#[test]
fn revision_0_that_gets_features_becomes_revision_1() {
    let old = Superblock::from_raw(of_revision_0()).unwrap();
    let renamed = old.with(|raw| raw.volume_name[0] = b'x').unwrap();
    assert_eq!(renamed.raw().rev_level.get(), 0);
    let large = RoCompat::LARGE_FILE;
    let new = old
        .with(|raw| raw.feature_ro_compat.set(large.bits()))
        .unwrap();
    assert_eq!(new.raw().rev_level.get(), 1);
    assert_eq!(new.features().ro_compat, large);
    assert_eq!((new.inode_size(), new.first_ino()), (128, Ino::new(11)));
    assert_eq!((old.inode_size(), old.first_ino()), (128, Ino::new(11)));
}

#[test]
fn fragments_are_blocks_in_every_revision() {
    for mut raw in [of_revision_0(), sound()] {
        raw.log_cluster_size.set(0);
        let refused = Superblock::from_raw(raw).unwrap_err();
        assert_eq!(refused.field, "log_cluster_size");
    }
}

#[test]
fn feature_flags_of_revision_0_count_unless_inodes_have_another_size() {
    for (size, is_read) in [(0, true), (128, true), (256, false)] {
        let mut raw = of_revision_0();
        raw.feature_incompat.set(Incompat::EXTENTS.bits());
        raw.inode_size.set(size);
        match Superblock::from_raw(raw) {
            Ok(sb) => {
                assert!(is_read, "{size}");
                assert_eq!(sb.inode_size(), 128);
                assert_eq!(sb.features().incompat, Incompat::EXTENTS);
            }
            Err(e) => assert!(!is_read && e.field == "rev_level", "{size}: {e}"),
        }
    }
}

#[test]
fn impossible_numbers_are_refused_by_name() {
    type Breakage = (&'static str, fn(&mut RawSuperblock));
    let cases: &[Breakage] = &[
        ("magic", |r| r.magic.set(0)),
        ("rev_level", |r| r.rev_level.set(2)),
        ("rev_level", |r| r.rev_level.set(0)),
        ("log_block_size", |r| r.log_block_size.set(7)),
        ("inode_size", |r| r.inode_size.set(0)),
        ("inode_size", |r| r.inode_size.set(384)),
        ("inode_size", |r| r.inode_size.set(8192)),
        ("first_ino", |r| r.first_ino.set(2)),
        ("desc_size", |r| r.desc_size.set(32)),
        ("desc_size", |r| r.desc_size.set(96)),
        ("checksum_type", |r| r.checksum_type = 2),
        ("log_cluster_size", |r| r.log_cluster_size.set(3)),
        ("blocks_per_group", |r| r.blocks_per_group.set(0)),
        ("blocks_per_group", |r| r.blocks_per_group.set(32_769)),
        ("inodes_per_group", |r| r.inodes_per_group.set(1)),
        ("inodes_per_group", |r| r.inodes_per_group.set(40_000)),
        ("first_data_block", |r| r.first_data_block.set(1)),
        ("blocks_count", |r| r.blocks_count_lo.set(0)),
        ("blocks_count", |r| r.blocks_count_hi.set(!0)),
        ("inodes_count", |r| r.inodes_count.set(8192)),
        ("reserved_gdt_blocks", |r| r.reserved_gdt_blocks.set(1025)),
        ("log_groups_per_flex", |r| r.log_groups_per_flex = 32),
        ("feature_incompat", |r| r.feature_incompat.set(0x8)),
        ("journal_inum", |r| {
            r.feature_compat.set(0x4);
            r.journal_inum.set(!0);
        }),
    ];
    for (field, change) in cases {
        let mut raw = sound();
        change(&mut raw);
        let error = Superblock::from_raw(raw).unwrap_err();
        assert_eq!(error.field, *field, "{error}");
    }
}

#[test]
fn groups_blocks_and_inodes_outside_the_file_system_are_errors() {
    let geometry = Geometry::new(&Superblock::from_raw(sound()).unwrap());
    assert_eq!(geometry.groups_count(), 3);
    assert_eq!(geometry.blocks_in_group(Group::new(2)), Ok(100));
    assert!(geometry.blocks_in_group(Group::new(3)).is_err());
    assert!(geometry.group_of_block(Pblk::new(65_636)).is_err());
    assert_eq!(
        geometry.split_block(Pblk::new(65_635)),
        Ok((Group::new(2), 99))
    );
    assert!(geometry.locate_inode(Ino::new(0)).is_err());
    assert!(geometry.locate_inode(Ino::new(3 * 8192 + 1)).is_err());
    let last = geometry.locate_inode(Ino::new(3 * 8192)).unwrap();
    assert_eq!((last.group, last.index), (Group::new(2), 8191));
    assert_eq!((last.table_block, last.offset), (511, 15 * 256));
    assert!(
        geometry
            .inode_position(Ino::ROOT, Pblk::new(u64::MAX))
            .is_err()
    );
    assert!(!geometry.contains(Pblk::new(u64::MAX), u64::MAX));
}

#[test]
fn descriptors_that_point_outside_are_refused() {
    let geometry = Geometry::new(&Superblock::from_raw(sound()).unwrap());
    let good = GroupDesc {
        block_bitmap: Pblk::new(10),
        inode_bitmap: Pblk::new(11),
        inode_table: Pblk::new(12),
        ..GroupDesc::default()
    };
    let group = Group::new(0);
    assert_eq!(good.validate(group, &geometry), Ok(()));
    for (field, desc) in [
        (
            "block_bitmap",
            GroupDesc {
                block_bitmap: Pblk::new(0),
                ..good
            },
        ),
        (
            "block_bitmap",
            GroupDesc {
                block_bitmap: Pblk::new(1),
                ..good
            },
        ),
        (
            "inode_bitmap",
            GroupDesc {
                inode_bitmap: Pblk::new(65_636),
                ..good
            },
        ),
        (
            "inode_table",
            GroupDesc {
                inode_table: Pblk::new(65_636 - 511),
                ..good
            },
        ),
        (
            "inode_table",
            GroupDesc {
                inode_table: Pblk::new(u64::MAX),
                ..good
            },
        ),
    ] {
        assert_eq!(desc.validate(group, &geometry).unwrap_err().field, field);
    }
    let many = GroupDesc {
        free_clusters: 32_769,
        ..good
    };
    assert!(many.validate_counts(group, &geometry).is_err());
}

/// Walks everything a geometry can be asked, within a bound.
fn exercise(sb: &Superblock) {
    let geometry = Geometry::new(sb);
    let groups = geometry
        .groups()
        .take(40)
        .chain(geometry.groups().rev().take(40));
    for group in groups.chain([Group::new(u32::MAX)]) {
        let _ = geometry.group_header(group).map(|h| (h.end(), h.blocks()));
        let _ = geometry.desc_position(group);
        let _ = geometry.super_block(group);
        let _ = geometry.group_last_block(group);
        let _ = geometry.clusters_in_group(group);
        let _ = geometry
            .inode_at(group, geometry.inodes_per_group() - 1)
            .unwrap_or_default();
        let desc = GroupDesc::default();
        let _ = desc.validate(group, &geometry);
        let _ = desc.validate_counts(group, &geometry);
    }
    let is_headed = |group: &Group| {
        let header = geometry.group_header(*group);
        header.is_ok_and(|header| header.blocks() > 0)
    };
    let headed = geometry.groups().take(200).filter(is_headed);
    let found = geometry.groups_with_headers();
    assert!(headed.eq(found.take_while(|group| group.get() < 200)));
    let last = geometry.desc_blocks().saturating_sub(1);
    let _ = (geometry.desc_block(last), geometry.desc_block(u32::MAX));
    let _ = geometry
        .bitmap_position(Pblk::new(geometry.blocks_count() - 1))
        .unwrap();
    let _ = geometry.locate_inode(Ino::new(sb.inodes_count())).unwrap();
    let _ = (
        sb.features().names(),
        sb.reserved_blocks_count(),
        sb.journal_backup(),
    );
}

#[test]
fn arbitrary_superblocks_never_panic() {
    // The bytes patch a sound superblock, so that most get past the first checks.
    bolero::check!()
        .with_type::<std::vec::Vec<(u16, u8)>>()
        .for_each(|patches| {
            let mut raw = sound();
            let bytes = raw.as_mut_bytes();
            for (at, value) in patches.iter().take(24) {
                bytes[usize::from(at % 1024)] = *value;
            }
            if let Ok(sb) = Superblock::from_raw(raw) {
                exercise(&sb);
            }
            let _ = Superblock::parse(raw.as_bytes());
        });
}

#[test]
fn arbitrary_bytes_never_panic() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let _ = Superblock::parse(bytes);
        let _ = GroupDesc::parse_unverified(bytes);
        let sum = crate::group_desc::DescChecksum::Crc16 { uuid: [7; 16] };
        let _ = GroupDesc::parse(bytes, Group::new(1), &sum);
    });
}

prop_compose! {
    fn any_desc()(
        blocks in any::<[u64; 3]>(), counts in any::<[u32; 4]>(), flags: u16,
        sums in any::<[u32; 3]>(), exclude_bitmap: u64,
    ) -> GroupDesc {
        GroupDesc {
            block_bitmap: Pblk::new(blocks[0]),
            inode_bitmap: Pblk::new(blocks[1]),
            inode_table: Pblk::new(blocks[2]),
            free_clusters: counts[0],
            free_inodes: counts[1],
            used_dirs: counts[2],
            flags: crate::group_desc::GroupFlags::from_bits_retain(flags),
            exclude_bitmap,
            block_bitmap_csum: sums[0],
            inode_bitmap_csum: sums[1],
            itable_unused: counts[3],
            reserved: sums[2],
        }
    }
}

proptest! {
    #[test]
    fn descriptors_survive_encode_and_parse(desc in any_desc(), group: u32, seed: u32) {
        use crate::group_desc::DescChecksum;
        for sum in [
            DescChecksum::None,
            DescChecksum::Crc16 { uuid: [3; 16] },
            DescChecksum::Crc32c { seed },
        ] {
            for len in [64, 128] {
                let mut bytes = alloc::vec![0x5a; len];
                desc.encode(&mut bytes, Group::new(group), &sum).unwrap();
                prop_assert_eq!(GroupDesc::parse(&bytes, Group::new(group), &sum), Ok(desc));
                prop_assert!(bytes[64..].iter().all(|b| *b == 0x5a));
                if sum != DescChecksum::None {
                    bytes[5] ^= 0x10;
                    let broken = GroupDesc::parse(&bytes, Group::new(group), &sum);
                    prop_assert!(broken.unwrap_err().is_checksum());
                }
            }
            let mut short = [0; 32];
            desc.encode(&mut short, Group::new(group), &sum).unwrap();
            let low = GroupDesc::parse(&short, Group::new(group), &sum).unwrap();
            prop_assert_eq!(low.block_bitmap.get(), desc.block_bitmap.get() & 0xffff_ffff);
            prop_assert_eq!(low.itable_unused, desc.itable_unused & 0xffff);
        }
    }
}
