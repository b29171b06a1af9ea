//! The directory that `e2fsck` puts finds into: made where the source has none, taken as it is
//! where it has one.

use super::*;
use extant_mkfs::place::PlaceError;
use extant_testkit::oracle::debugfs;
use extant_testkit::require;

/// A root with a `lost+found` that holds this many files, and a neighbour before and behind it.
fn source(files: usize) -> Tree {
    let mut b = builder();
    let found = b.add(plain(0o750), Content::Directory).unwrap();
    b.link(NodeId::ROOT, b"lost+found", found).unwrap();
    for name in ["before", "zebra"] {
        let dir = b.add(plain(0o755), Content::Directory).unwrap();
        b.link(NodeId::ROOT, name.as_bytes(), dir).unwrap();
        let file = b.add(plain(0o644), Content::Inline(name.as_bytes()));
        b.link(dir, b"file", file.unwrap()).unwrap();
    }
    for n in 0..files {
        let name = format!("#{n:06}-a-name-that-takes-some-space");
        let file = b.add(plain(0o600), Content::Inline(name.as_bytes()));
        b.link(found, name.as_bytes(), file.unwrap()).unwrap();
    }
    b.finish().unwrap()
}

#[test]
fn an_own_lost_and_found_keeps_its_files_and_its_room() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    for files in [0, 1, 100, 400, 2000] {
        for (block, features) in [(1024, ""), (4096, ""), (1024, "^dir_index")] {
            println!("{files} files, blocks of {block}, {features}");
            let variant = Variant::new(block, 256, Profile::Default, features);
            build_clean(&source(files), &image, &variant.auto());
            assert!(debugfs(&image, "stat /lost+found").starts_with("Inode: 11 "));
            let found = mounted(&image);
            let entry = found.get("lost+found").unwrap();
            assert_eq!(entry.mode, 0o750);
            let inside = found
                .entries
                .keys()
                .filter(|p| p.starts_with(b"lost+found/"));
            assert_eq!(inside.count(), files);
            assert_eq!(found.get("zebra/file").unwrap().mode, 0o644);
        }
    }
}

#[test]
fn a_made_lost_and_found_is_roots_and_empty() {
    require!(KernelExt4);
    let dir = scratch();
    let image = dir.path().join("image");
    let mut b = builder();
    let file = b.add(plain(0o644), Content::Inline(b"x")).unwrap();
    b.link(NodeId::ROOT, b"x", file).unwrap();
    build_clean(&b.finish().unwrap(), &image, &auto());
    let found = mounted(&image);
    let entry = found.get("lost+found").unwrap();
    assert_eq!((entry.mode, entry.uid, entry.gid), (0o700, 0, 0));
    assert_eq!(found.get("").unwrap().nlink, 3);
    assert_eq!(found.len(), 3);
}

#[test]
fn a_file_called_lost_and_found_is_refused() {
    let dir = scratch();
    let image = dir.path().join("image");
    for content in [Content::Inline(b"mine"), Content::Symlink(b"elsewhere")] {
        let mut b = builder();
        let file = b.add(plain(0o644), content).unwrap();
        b.link(NodeId::ROOT, b"lost+found", file).unwrap();
        let error = try_build(&b.finish().unwrap(), &image, &auto()).unwrap_err();
        assert!(
            matches!(error, BuildError::Place(PlaceError::LostAndFound { .. })),
            "{error}"
        );
        assert!(!image.exists());
    }
}

#[test]
fn lost_and_found_is_an_ordinary_name_elsewhere() {
    let dir = scratch();
    let mut b = builder();
    let sub = b.add(plain(0o755), Content::Directory).unwrap();
    b.link(NodeId::ROOT, b"sub", sub).unwrap();
    let file = b.add(plain(0o644), Content::Inline(b"mine")).unwrap();
    b.link(sub, b"lost+found", file).unwrap();
    build_clean(&b.finish().unwrap(), &dir.path().join("image"), &auto());
}
