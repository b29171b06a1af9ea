//! Directories with very many entries.
//!
//! The sizes are smaller than the format's limits allow unless `EXTANT_FULL=1` asks for more.

use super::*;
use extant_testkit::require;
use extant_testkit::rng::Rng;

/// A directory `many` with this many empty files, names of mixed lengths.
fn files(count: usize) -> Tree {
    let mut b = builder();
    let dir = b.add(plain(0o755), Content::Directory).unwrap();
    b.link(NodeId::ROOT, b"many", dir).unwrap();
    for n in 0..count {
        let file = b.add(plain(0o644), Content::Hole(0)).unwrap();
        b.link(dir, name(n).as_bytes(), file).unwrap();
    }
    b.finish().unwrap()
}

fn name(n: usize) -> String {
    format!("{n:06}-{}", "n".repeat(n % 23))
}

/// Looks names up in a fresh mount, and counts what is listed.
fn check_lookups(image: &Path, count: usize) {
    let mount = KernelMount::mount(image, Mode::Untouched, "");
    let mut rng = Rng::new(5);
    for _ in 0..500 {
        let n = rng.below(count as u64) as usize;
        let path = mount.join("many").join(name(n));
        assert!(path.symlink_metadata().is_ok(), "{}", path.display());
    }
    for n in [0, 1, count - 1] {
        assert!(mount.join("many").join(name(n)).exists());
    }
    assert!(!mount.join("many").join(name(count)).exists());
    let listed = std::fs::read_dir(mount.join("many")).unwrap().count();
    assert_eq!(listed, count);
}

#[test]
fn an_indexed_directory_finds_every_name() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    let (large, small) = if in_full() {
        (300_000, 100_000)
    } else {
        (30_000, 20_000)
    };
    for (count, block, features) in [
        (small, 1024, ""),
        (large, 4096, ""),
        (small, 2048, "^metadata_csum,^64bit"),
        (3000, 1024, "^dir_index"),
        (small, 1024, "large_dir"),
    ] {
        let started = std::time::Instant::now();
        let variant = Variant::new(block, 256, Profile::Default, features);
        build_clean(&files(count), &image, &variant.auto());
        let built = started.elapsed();
        check_lookups(&image, count);
        println!(
            "{count} files, blocks of {block}, {features}: {built:?}, {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn a_directory_of_every_size_around_the_limits_of_its_levels_is_sound() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    // Blocks of 1 KiB hold about 30 of these names: one block, the first index, its root full.
    for count in [0, 1, 20, 21, 30, 31, 32, 33, 60, 61, 3500, 3700, 3900, 4100] {
        let variant = Variant::new(1024, 256, Profile::Default, "");
        build_clean(&files(count), &image, &variant.auto());
        let mount = KernelMount::mount(&image, Mode::Untouched, "");
        for n in 0..count {
            assert!(mount.join("many").join(name(n)).exists(), "{n} of {count}");
        }
    }
}

/// A directory `many` with this many empty directories.
fn directories(count: usize) -> Tree {
    let mut b = builder();
    let dir = b.add(plain(0o755), Content::Directory).unwrap();
    b.link(NodeId::ROOT, b"many", dir).unwrap();
    for n in 0..count {
        let sub = b.add(plain(0o755), Content::Directory).unwrap();
        b.link(dir, name(n).as_bytes(), sub).unwrap();
    }
    b.finish().unwrap()
}

#[test]
fn more_subdirectories_than_links_can_count_show_as_one_link() {
    require!(KernelExt4);
    use std::os::unix::fs::MetadataExt;
    let dir = scratch();
    let image = dir.path().join("image");
    // The limit is 65,000 links, two of them the directory's own.
    for (count, links) in [(64_998, 65_000), (64_999, 1), (65_536, 1)] {
        if !in_full() && count == 65_536 {
            continue;
        }
        let started = std::time::Instant::now();
        let variant = Variant::new(1024, 128, Profile::Default, "");
        build_clean(&directories(count), &image, &variant.auto());
        let mount = KernelMount::mount(&image, Mode::Untouched, "");
        let many = mount.join("many");
        assert_eq!(many.metadata().unwrap().nlink(), links);
        assert!(many.join(name(count - 1)).is_dir());
        let listed = std::fs::read_dir(&many).unwrap().count();
        assert_eq!(listed, count);
        println!("{count} directories: {:?}", started.elapsed());
    }
}

#[test]
fn a_root_with_as_many_subdirectories_counts_its_lost_and_found() {
    let dir = scratch();
    let image = dir.path().join("image");
    let mut b = builder();
    for n in 0..64_998 {
        let sub = b.add(plain(0o755), Content::Directory).unwrap();
        b.link(NodeId::ROOT, name(n).as_bytes(), sub).unwrap();
    }
    let tree = b.finish().unwrap();
    let variant = Variant::new(4096, 128, Profile::Default, "");
    build_clean(&tree, &image, &variant.auto());
    // Without the feature there is one too many.
    let variant = Variant::new(4096, 128, Profile::Default, "^dir_nlink");
    let error = try_build(&tree, &image, &variant.auto()).unwrap_err();
    assert!(error.to_string().contains("dir_nlink"), "{error}");
}

#[test]
fn many_names_of_one_file_are_counted_up_to_the_limit() {
    require!(KernelExt4);
    use std::os::unix::fs::MetadataExt;
    let dir = scratch();
    let image = dir.path().join("image");
    let linked = |count: usize| {
        let mut b = builder();
        let file = b.add(plain(0o644), Content::Inline(b"one")).unwrap();
        for n in 0..count {
            b.link(NodeId::ROOT, name(n).as_bytes(), file).unwrap();
        }
        b.finish().unwrap()
    };
    build_clean(&linked(65_000), &image, &auto());
    let mount = KernelMount::mount(&image, Mode::Untouched, "");
    assert_eq!(mount.join(name(77)).metadata().unwrap().nlink(), 65_000);
    drop(mount);
    let error = try_build(&linked(65_001), &image, &auto()).unwrap_err();
    assert!(error.to_string().contains("65000"), "{error}");
}
