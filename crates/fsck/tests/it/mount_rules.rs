//! Fields with which Linux does not mount a file system: found, and mended so that it does.

use crate::support::{problems, repair_whole};
use extant_blockdev::OpenSpec;
use extant_fsck::{Code, Options, Report};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{self, debugfs, debugfs_write, mke2fs};
use extant_testkit::require;
use std::path::{Path, PathBuf};

/// Bytes in a block of the images.
const BLOCK: usize = 1024;

/// An image without checksums, changed at these bytes.
fn image(dir: &Path, features: &str, changes: &[(usize, &[u8])]) -> PathBuf {
    let path = dir.join("image");
    let features = format!("^metadata_csum,^uninit_bg,{features}");
    let block = if features.contains("encrypt") {
        "4096"
    } else {
        "1024"
    };
    let options = ["-t", "ext4", "-b", block, "-J", "size=4", "-O", &features];
    mke2fs(&path, 12 << 20, &options);
    poke(&path, changes);
    path
}

fn poke(path: &Path, changes: &[(usize, &[u8])]) {
    let mut bytes = std::fs::read(path).unwrap();
    for (at, new) in changes {
        bytes[*at..*at + new.len()].copy_from_slice(new);
    }
    std::fs::write(path, bytes).unwrap();
}

fn judged(path: &Path) -> Report {
    let device = OpenSpec::read_only(path).open().unwrap();
    extant_fsck::check(device, Options::default(), &()).unwrap()
}

fn linux_mounts(path: &Path) -> bool {
    KernelMount::try_mount(path, Mode::ReadOnly, "").is_ok()
}

/// Expects that Linux refuses it, that the check says why, and that a repair makes it right.
fn is_found_and_mended(what: &str, path: &Path, code: Code) {
    assert!(!linux_mounts(path), "{what}: Linux mounts it");
    let report = judged(path);
    assert!(report.has(code), "{what}: {}", problems(&report));
    assert!(!report.is_clean(), "{what}");
    repair_whole(what, path);
    assert!(linux_mounts(path), "{what}: Linux does not mount it");
}

#[test]
fn what_linux_does_not_mount_for_a_field_of_the_superblock_is_found_and_mended() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let fields: &[(&str, &str, usize, &[u8])] = &[
        ("a hash for names", "64bit", 0xFC, &[7]),
        ("least extra fields", "64bit", 0x15C, &[200, 0]),
        ("wanted extra fields", "64bit", 0x15E, &[0, 1]),
        ("the maker", "64bit", 0x48, &[1]),
        ("the device of a journal", "64bit", 0xE4, &[1]),
        ("the level of encryption", "encrypt", 0x176, &[1]),
    ];
    for (what, features, at, value) in fields {
        let path = image(dir.path(), features, &[(1024 + at, value)]);
        is_found_and_mended(what, &path, Code::SuperblockField);
    }
}

#[test]
fn a_log_that_is_shorter_than_linux_wants_it_is_found_and_made_longer() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    for (what, at, value) in [
        ("its length", 0x10, 1000u32),
        ("its first block", 0x14, 3500),
    ] {
        let path = image(dir.path(), "64bit", &[]);
        let list = debugfs(&path, "blocks <8>");
        let first: usize = list.split_whitespace().next().unwrap().parse().unwrap();
        poke(&path, &[(first * BLOCK + at, &value.to_be_bytes())]);
        is_found_and_mended(what, &path, Code::JournalSuperblock);
    }
}

#[test]
fn a_superblock_is_judged_as_it_lies_before_the_journal_is_replayed() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "64bit", &[]);
    let copy = dir.path().join("superblock");
    std::fs::write(&copy, &std::fs::read(&path).unwrap()[1024..2048]).unwrap();
    let write = format!("jw -b 1 {}", copy.display());
    debugfs_write(&path, &["jo", &write, "jc"]);
    assert!(judged(&path).is_clean());
    poke(&path, &[(1024 + 0x48, &[1])]);
    is_found_and_mended("the maker", &path, Code::SuperblockField);
}

#[test]
fn fast_commits_without_room_in_the_journal_are_found_and_turned_off() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "^fast_commit",
    ];
    mke2fs(&path, 12 << 20, &options);
    debugfs_write(&path, &["feature fast_commit"]);
    is_found_and_mended("fast_commit", &path, Code::SuperblockField);
}

/// Linux takes over how names are hashed before it replays: it would not find them until the next
/// mount.
#[test]
fn names_are_hashed_as_before_the_journal_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), "64bit", &[]);
    let copy = dir.path().join("superblock");
    std::fs::write(&copy, &std::fs::read(&path).unwrap()[1024..2048]).unwrap();
    let write = format!("jw -b 1 {}", copy.display());
    debugfs_write(&path, &["jo", &write, "jc"]);
    assert!(judged(&path).is_clean());
    poke(&path, &[(1024 + 0xEC, &[1, 2, 3])]);
    let report = judged(&path);
    assert!(report.has(Code::SuperblockField), "{}", problems(&report));
    repair_whole("repaired", &path);
}

#[test]
fn an_index_that_names_a_hash_of_unsigned_letters_is_found_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("many")).unwrap();
    for n in 0..60 {
        let name = format!("{n}{}", "n".repeat(90));
        std::fs::write(tree.join("many").join(name), "").unwrap();
    }
    let path = dir.path().join("image");
    let tree = tree.display().to_string();
    let features = "^metadata_csum,^uninit_bg,^has_journal";
    let options = ["-t", "ext4", "-b", "1024", "-O", features, "-d", &tree];
    mke2fs(&path, 4 << 20, &options);
    assert!(oracle::e2fsck(&path, &["-fyD"]).code <= 1);
    assert!(judged(&path).is_clean());
    let list = debugfs(&path, "blocks /many");
    let root: usize = list.split_whitespace().next().unwrap().parse().unwrap();
    poke(&path, &[(root * BLOCK + 0x1C, &[4])]);
    assert_ne!(oracle::e2fsck(&path, &["-fn"]).code, 0);
    assert!(judged(&path).has(Code::DirIndex));
    repair_whole("repaired", &path);
}
