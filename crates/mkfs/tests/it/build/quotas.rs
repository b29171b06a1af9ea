//! Quota files of images that are filled: they say what owners use from the start, as e2fsck and
//! the owners' files have it.

use super::*;
use extant_mkfs::FsVerity;
use extant_testkit::oracle::debugfs;

/// Files of many owners, some with attribute values that they share.
fn tree(owners: u32, value: usize) -> Tree {
    let mut b = builder();
    let mut put = |parent, name: String, meta: Meta, content: Content<'_>| {
        let id = b.add(meta, content).unwrap();
        b.link(parent, name.as_bytes(), id).unwrap();
        id
    };
    let of = |uid, gid, mode| Meta {
        uid,
        gid,
        ..plain(mode)
    };
    let dir = put(
        NodeId::ROOT,
        "dir".to_owned(),
        of(70_000, 9, 0o755),
        Content::Directory,
    );
    for n in 0..owners {
        // Ids whose bytes differ at each place.
        let meta = of(n.wrapping_mul(0x0101_0201), n / 3, 0o644);
        let bytes = vec![n as u8; n as usize % 7 * 700];
        put(dir, format!("f{n}"), meta, Content::Inline(&bytes));
    }
    for n in 0..5_u8 {
        let mut meta = of(5, 6, 0o644);
        meta.xattrs = vec![
            Xattr {
                name: b"user.large".as_slice().into(),
                value: vec![n / 2; value].into(),
            },
            Xattr {
                name: b"user.small".as_slice().into(),
                value: vec![n; 200].into(),
            },
        ];
        put(dir, format!("x{n}"), meta, Content::Inline(&[n; 100]));
    }
    let link = "t".repeat(80);
    put(
        dir,
        "link".to_owned(),
        of(7, 7, 0o777),
        Content::Symlink(link.as_bytes()),
    );
    put(
        dir,
        "hole".to_owned(),
        of(8, 8, 0o644),
        Content::Hole(9 << 20),
    );
    b.finish().unwrap()
}

/// The row of an owner, as debugfs lists it: space in bytes and inodes.
fn used(image: &Path, kind: &str, id: u32) -> Option<(u64, u64)> {
    let text = debugfs(image, &format!("list_quota {kind}"));
    let rows = text.lines().skip(1).map(|row| {
        let numbers = row
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(u64::MAX));
        numbers.collect::<Vec<_>>()
    });
    let mut rows = rows.filter(|row| row.first() == Some(&u64::from(id)));
    rows.next().map(|row| (row[1], row[4]))
}

#[test]
fn quota_files_say_what_owners_use_from_the_start() {
    let dir = scratch();
    let image = dir.path().join("image");
    let default = |block, features| Variant::new(block, 256, Profile::Default, features);
    for (owners, variant) in [
        (3000, default(1024, "quota,project")),
        (300, default(4096, "quota,project,ea_inode,orphan_file")),
        (60, default(1024, "quota,bigalloc,ea_inode").clusters(8192)),
        (60, default(2048, "quota,^extent,^64bit,^has_journal")),
        (
            0,
            Variant::new(1024, 128, Profile::Linux310, "quota,ext_attr"),
        ),
    ] {
        println!("{owners} owners, {variant:?}");
        // Some have room in no block.
        let large = 2 * variant.block as usize;
        let value = if variant.has("ea_inode") { large } else { 500 };
        build_clean(&tree(owners, value), &image, &variant.auto());
        // A long link has a block; a hole has none.
        let block = u64::from(variant.cluster.unwrap_or(variant.block));
        assert_eq!(used(&image, "user", 7), Some((block, 1)));
        assert_eq!(used(&image, "group", 8).map(|(space, _)| space), {
            let others = (24..27).filter(|n| *n < owners).map(|n| n % 7 * 700);
            let blocks = others.map(|bytes| u64::from(bytes).div_ceil(block));
            Some(blocks.sum::<u64>() * block)
        });
        let values = if variant.has("ea_inode") { 2 } else { 1 };
        let (_, inodes) = used(&image, "user", 5).unwrap();
        assert_eq!(inodes, 5 * values, "{variant:?}");
        if variant.has("project") {
            let all = u64::from(owners) + 10;
            let (_, inodes) = used(&image, "project", 0).unwrap();
            let values = if variant.has("ea_inode") { 5 } else { 0 };
            assert_eq!(inodes, all + values);
        } else {
            assert_eq!(used(&image, "project", 0), None);
        }
    }
}

#[test]
fn hash_trees_and_a_lost_and_found_of_the_source_are_charged_to_their_owners() {
    let dir = scratch();
    let image = dir.path().join("image");
    let mut b = builder();
    for (name, uid, content) in [
        ("lost+found", 40, Content::Directory),
        ("sealed", 41, Content::Inline(&[3; 9000])),
    ] {
        let meta = Meta {
            uid,
            ..plain(0o755)
        };
        let id = b.add(meta, content).unwrap();
        b.link(NodeId::ROOT, name.as_bytes(), id).unwrap();
    }
    let mut options = with(
        Variant::new(4096, 256, Profile::Default, "quota").format(0),
        Size::Auto(Headroom::ForChanges),
    );
    options.format.quotas = Some([true, false, false]);
    let tree = b.finish().unwrap();
    build_clean(&tree, &image, &options);
    assert_eq!(used(&image, "user", 41), Some((3 * 4096, 1)));
    assert_eq!(used(&image, "user", 0), Some((4096, 1)));
    assert_eq!(used(&image, "group", 0), None);
    let sealed = tree.child(NodeId::ROOT, b"sealed").unwrap();
    options.fs_verity = Some(FsVerity::new([sealed]));
    build_clean(&tree, &image, &options);
    let (space, inodes) = used(&image, "user", 41).unwrap();
    assert!(space > 3 * 4096 && inodes == 1, "{space} {inodes}");
}
