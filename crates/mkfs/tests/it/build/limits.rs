//! Where ext4 ends: sizes, attributes and links at the limits, and one beyond.

use super::*;
use extant_mkfs::place::PlaceError;
use extant_mkfs::source::{TarOptions, read_tar_stream};
use extant_testkit::plan::{Content as Planned, SparseForm, TarForm};
use extant_testkit::require;

const TIB: u64 = 1 << 40;

/// A root with one file.
fn with_file(meta: Meta, content: Content<'_>) -> Tree {
    let mut b = builder();
    let file = b.add(meta, content).unwrap();
    b.link(NodeId::ROOT, b"file", file).unwrap();
    b.finish().unwrap()
}

#[test]
fn a_hole_may_be_as_large_as_the_format_allows_and_no_larger() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    let extents = |block: u64| ((1 << 32) - 1) * block;
    // An indirect map reaches 12 blocks, and one, two and three levels of pointers.
    let indirect = |block: u64| {
        let n = block / 4;
        (12 + n + n * n + n * n * n) * block
    };
    for (block, features, limit) in [
        (4096, "", extents(4096)),
        (1024, "", extents(1024)),
        (1024, "^extent,^64bit", indirect(1024)),
        (2048, "^extent,^64bit", indirect(2048)),
    ] {
        println!("blocks of {block}, {features}");
        let variant = Variant::new(block, 256, Profile::Default, features);
        let tree = with_file(plain(0o644), Content::Hole(limit));
        build_clean(&tree, &image, &variant.auto());
        let mount = KernelMount::mount(&image, Mode::Untouched, "");
        assert_eq!(mount.join("file").metadata().unwrap().len(), limit);
        drop(mount);
        let tree = with_file(plain(0o644), Content::Hole(limit + 1));
        let error = try_build(&tree, &image, &variant.auto()).unwrap_err();
        assert!(
            matches!(error, BuildError::Place(PlaceError::FileTooLarge { .. })),
            "{error}"
        );
    }
    // An indirect map of larger blocks ends where the count of its sectors does.
    let variant = Variant::new(4096, 256, Profile::Default, "^extent,^64bit,^huge_file");
    let tree = with_file(plain(0o644), Content::Hole(4 * TIB));
    assert!(try_build(&tree, &image, &variant.auto()).is_err());
    let tree = with_file(plain(0o644), Content::Hole(TIB));
    build_clean(&tree, &image, &variant.auto());
    let mount = KernelMount::mount(&image, Mode::Untouched, "");
    assert_eq!(mount.join("file").metadata().unwrap().len(), TIB);
}

#[test]
fn data_in_the_last_block_a_file_can_have_is_found() {
    use std::os::unix::fs::FileExt;
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    let indirect = |block: u64| {
        let n = block / 4;
        (12 + n + n * n + n * n * n) * block
    };
    for (block, features, size) in [
        (4096, "", ((1 << 32) - 1) * 4096),
        (1024, "", ((1 << 32) - 1) * 1024),
        (1024, "bigalloc", ((1 << 32) - 1) * 1024),
        (1024, "^extent,^64bit", indirect(1024)),
        (2048, "^extent,^64bit", indirect(2048)),
    ] {
        // Pieces in the reach of every level of a map.
        let at = [0, 9, 20, 300, 70_000, 16_000_000].map(|lblk: u64| lblk * block);
        let places = at.into_iter().chain([size - 5000]);
        let content = Planned::sparse(3, size, places.clone().map(|start| (start, 5000)));
        let mut plan = TreePlan::new();
        plan.file("file", content.clone());
        let mut archive = Vec::new();
        plan.write_tar(&mut archive, TarForm::Pax, SparseForm::Pax10)
            .unwrap();
        let stream = std::io::Cursor::new(archive);
        let tree = read_tar_stream(stream, Path::new("-"), &TarOptions::default()).unwrap();
        let variant = Variant::new(block as u32, 256, Profile::Default, features);
        println!("{variant:?}");
        build_clean(&tree, &image, &variant.auto());
        let mount = KernelMount::mount(&image, Mode::Untouched, "");
        let file = std::fs::File::open(mount.join("file")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), size);
        content
            .for_each_chunk(|at, bytes| {
                let mut found = vec![0; bytes.len()];
                file.read_exact_at(&mut found, at)?;
                assert!(found == bytes, "at {at}");
                std::io::Result::Ok(())
            })
            .unwrap();
        let mut hole = vec![1; 9000];
        file.read_exact_at(&mut hole, 100_000).unwrap();
        assert!(hole.iter().all(|b| *b == 0));
    }
}

#[test]
fn a_file_beyond_2_gib_brings_the_feature_it_needs() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    let variant = Variant::new(1024, 256, Profile::Default, "none,filetype").without_journal();
    for (size, has) in [((1 << 31) - 1, false), (1 << 31, true)] {
        let tree = with_file(plain(0o644), Content::Hole(size));
        build_clean(&tree, &image, &variant.auto());
        let dump = oracle::dumpe2fs_header(&image);
        let features = &dump.fields["Filesystem features"];
        assert_eq!(features.contains("large_file"), has, "{features}");
        let mount = KernelMount::mount(&image, Mode::Untouched, "");
        assert_eq!(mount.join("file").metadata().unwrap().len(), size);
    }
}

#[test]
fn attributes_bring_the_feature_they_need() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    for inode in [128, 256] {
        for (len, has) in [(None, false), (Some(10), true), (Some(600), true)] {
            let meta = len.map_or(plain(0o644), |len| with_value("user.note", len));
            let tree = with_file(meta, Content::Inline(b"x"));
            let variant = Variant::new(1024, inode, Profile::Default, "none,filetype");
            build_clean(&tree, &image, &variant.without_journal().auto());
            let dump = oracle::dumpe2fs_header(&image);
            let features = &dump.fields["Filesystem features"];
            assert_eq!(features.contains("ext_attr"), has, "{features}");
            let found = mounted(&image);
            assert_eq!(found.get("file").unwrap().xattrs.len(), usize::from(has));
        }
    }
}

#[test]
fn symbolic_links_of_every_length_come_back() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    for (block, features) in [
        (1024, ""),
        (4096, ""),
        (4096, "^extent,^64bit"),
        (4096, "bigalloc"),
    ] {
        let longest = (block as usize).min(4096) - 1;
        let mut b = builder();
        let lengths = [1, 58, 59, 60, 61, 500, longest - 1, longest];
        for len in lengths {
            // Attributes move nothing else about.
            for value in [0, 700] {
                let mut meta = plain(0o777);
                if value > 0 {
                    meta.xattrs.push(Xattr {
                        name: b"trusted.x".as_slice().into(),
                        value: vec![len as u8; value].into(),
                    });
                }
                let target = vec![b't'; len];
                let link = b.add(meta, Content::Symlink(&target)).unwrap();
                let name = format!("{len}-{value}");
                b.link(NodeId::ROOT, name.as_bytes(), link).unwrap();
            }
        }
        let tree = b.finish().unwrap();
        let variant = Variant::new(block, 256, Profile::Default, features);
        build_clean(&tree, &image, &variant.auto());
        let mount = KernelMount::mount(&image, Mode::Untouched, "");
        for len in lengths {
            for value in [0, 700] {
                let target = std::fs::read_link(mount.join(format!("{len}-{value}"))).unwrap();
                assert_eq!(target.as_os_str().len(), len);
            }
        }
    }
    let target = vec![b't'; 1024];
    let tree = with_file(plain(0o777), Content::Symlink(&target));
    let variant = Variant::new(1024, 256, Profile::Default, "");
    let error = try_build(&tree, &image, &variant.auto()).unwrap_err();
    assert!(
        matches!(error, BuildError::Place(PlaceError::SymlinkTooLong { .. })),
        "{error}"
    );
}

fn with_value(name: &str, len: usize) -> Meta {
    let mut meta = plain(0o644);
    meta.xattrs.push(Xattr {
        name: name.as_bytes().into(),
        value: (0..len).map(|n| (n * 7 + n / 256) as u8).collect(),
    });
    meta
}

#[test]
fn a_set_of_attributes_shared_by_thousands_is_stored_once_for_each_1024() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    for features in ["", "ea_inode", "bigalloc,ea_inode"] {
        for len in [500, 20_000] {
            if len > 4000 && features.is_empty() {
                continue;
            }
            let mut b = builder();
            for n in 0..2500 {
                let mut meta = with_value("user.shared", len);
                if n % 3 == 0 {
                    // Another set with the same large value.
                    meta.xattrs.push(Xattr {
                        name: b"user.third".as_slice().into(),
                        value: b"3".as_slice().into(),
                    });
                }
                let file = b.add(meta, Content::Hole(0)).unwrap();
                b.link(NodeId::ROOT, format!("{n}").as_bytes(), file)
                    .unwrap();
            }
            let variant = Variant::new(4096, 256, Profile::Default, features);
            let report = build_clean(&b.finish().unwrap(), &image, &variant.auto());
            assert!(report.size < 16 * MIB, "{} bytes", report.size);
            let found = mounted(&image);
            let expected = &with_value("user.shared", len).xattrs[0];
            for n in 0..2500 {
                let entry = found.get(format!("{n}")).unwrap();
                assert_eq!(entry.xattrs[b"user.shared".as_slice()], *expected.value);
                assert_eq!(entry.xattrs.len(), 1 + usize::from(n % 3 == 0));
            }
            // Taking users away one by one keeps the counts right.
            let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
            for n in 0..1500 {
                std::fs::remove_file(mount.join(format!("{n}"))).unwrap();
            }
            mount.unmount();
            oracle::assert_clean(&image);
        }
    }
}

#[test]
fn attribute_values_are_refused_where_linux_could_not_read_them() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    let build = |features, name: &str, len| {
        let tree = with_file(with_value(name, len), Content::Hole(0));
        let variant = Variant::new(4096, 256, Profile::Default, features);
        try_build(&tree, &image, &variant.auto())
    };
    build("ea_inode", "user.large", 65_536).unwrap();
    oracle::assert_clean(&image);
    let value = mounted(&image).get("file").unwrap().xattrs[b"user.large".as_slice()].clone();
    assert_eq!(value.len(), 65_536);
    for (features, name, len, word) in [
        ("ea_inode", "user.large", 65_537, "64 KiB"),
        ("", "user.large", 5000, "ea_inode"),
        ("", "nowhere.name", 5, "namespace"),
        ("", &format!("user.{}", "n".repeat(252)), 5, "name"),
        ("", "system.posix_acl_access", 5, "acl"),
    ] {
        let error = build(features, name, len).unwrap_err();
        assert!(
            matches!(error, BuildError::Place(PlaceError::Xattr { .. })),
            "{error}"
        );
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.to_string().contains("file"), "{error}");
    }
}

#[test]
fn device_numbers_beyond_the_format_are_refused() {
    let dir = scratch();
    let image = dir.path().join("image");
    let device = |major, minor| {
        let kind = FileType::CharDevice;
        with_file(plain(0o600), Content::Device { kind, major, minor })
    };
    build_clean(&device(4095, (1 << 20) - 1), &image, &auto());
    std::fs::remove_file(&image).unwrap();
    for (major, minor) in [(4096, 0), (0, 1 << 20)] {
        let error = try_build(&device(major, minor), &image, &auto()).unwrap_err();
        assert!(error.to_string().contains("device number"), "{error}");
        assert!(!image.exists());
    }
}

#[test]
fn times_beyond_the_inode_become_the_nearest_it_can_hold() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    let far = |sec| {
        Meta::plain(
            0o644,
            Times::all(Timestamp {
                secs: sec,
                nanos: 5,
            }),
        )
    };
    for (inode, sec, held) in [
        (128, 1 << 31, (1 << 31) - 1),
        (128, -(1 << 31) - 1, -(1 << 31)),
        (256, 1 << 40, (1 << 34) - (1 << 31) - 1),
        (256, -(1 << 40), -(1 << 31)),
    ] {
        let variant = Variant::new(1024, inode, Profile::Default, "");
        let tree = with_file(far(sec), Content::Hole(0));
        build_clean(&tree, &image, &variant.auto());
        assert_eq!(mounted(&image).get("file").unwrap().mtime.sec, held);
    }
}
