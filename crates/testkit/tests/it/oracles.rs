//! The oracles see what is there, and complain when something is wrong.

use extant_testkit::crash::{Content, CrashDevice};
use extant_testkit::model::{DataPromise, History, Judge, Lane, Op, Universe, perform_mounted};
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tree::{Entry, Kind};
use extant_testkit::{oracle, require};

#[test]
fn what_e2fsck_would_change_is_not_clean_whatever_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("t.ext4");
    oracle::mke2fs(&image, 8 << 20, &["-t", "ext4"]);
    oracle::check_clean(&image).unwrap();
    // In the future.
    oracle::debugfs_write(&image, &["ssv mtime 20400101000000"]);
    let output = oracle::e2fsck(&image, &["-fn"]);
    assert_eq!(output.code, 0, "{output}");
    assert!(oracle::check_clean(&image).unwrap_err().contains("? no"));
}

#[test]
fn dumpe2fs_fields_and_groups_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("t.ext4");
    oracle::mke2fs(
        &image,
        100 << 20,
        &["-t", "ext4", "-b", "1024", "-L", "a label"],
    );
    let dump = oracle::dumpe2fs(&image);
    assert_eq!(dump.field("Filesystem volume name"), "a label");
    assert_eq!(dump.number("Block count"), 102_400);
    assert_eq!(dump.number("Total journal size"), 4096);
    assert!(dump.has_feature("metadata_csum"));
    assert_eq!(dump.groups.len(), 13);
    let per_group = dump.number("Blocks per group");
    for (n, group) in dump.groups.iter().enumerate() {
        let first = 1 + n as u64 * per_group;
        assert_eq!(group.number, n as u64);
        assert_eq!(*group.blocks.as_ref().unwrap().start(), first);
        assert!(
            group.block_bitmap > 0 && group.inode_bitmap > 0,
            "{group:?}"
        );
        assert!(
            group.inode_table.is_some() && group.checksum.is_some(),
            "{group:?}"
        );
        let has_copy = [0, 1, 3, 5, 7, 9].contains(&n);
        assert_eq!(group.superblock, has_copy.then_some(first), "group {n}");
        assert_eq!(group.descriptors.is_some(), has_copy, "group {n}");
        assert_eq!(group.reserved_gdt.is_some(), has_copy, "group {n}");
        let free: u64 = group
            .free_block_ranges
            .iter()
            .map(|r| r.end() - r.start() + 1)
            .sum();
        assert_eq!(free, group.free_blocks, "group {n}");
    }
    let free: u64 = dump.groups.iter().map(|g| g.free_inodes).sum();
    assert_eq!(free, dump.number("Free inodes"));
    assert!(dump.groups[8].flags.contains("BLOCK_UNINIT"));
}

#[test]
fn dumpe2fs_reads_layouts_without_flex_bg() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("t.ext2");
    oracle::mke2fs(&image, 20 << 20, &["-t", "ext2", "-b", "1024"]);
    let dump = oracle::dumpe2fs(&image);
    assert_eq!(dump.groups.len(), 3);
    for group in &dump.groups {
        let blocks = group.blocks.as_ref().unwrap();
        let table = group.inode_table.as_ref().unwrap();
        assert!(blocks.contains(&group.block_bitmap), "{group:?}");
        assert!(blocks.contains(&group.inode_bitmap), "{group:?}");
        assert!(
            blocks.contains(table.start()) && blocks.contains(table.end()),
            "{group:?}"
        );
    }
}

#[test]
fn e2fsck_finds_a_flipped_count() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("t.ext4");
    oracle::mke2fs(&image, 8 << 20, &["-t", "ext4"]);
    oracle::assert_clean(&image);
    oracle::debugfs_write(&image, &["set_inode_field <2> links_count 7"]);
    assert!(oracle::debugfs(&image, "stat <2>").contains("Links: 7"));
    let report = std::panic::catch_unwind(|| oracle::assert_clean(&image)).unwrap_err();
    let report = report.downcast_ref::<String>().unwrap();
    assert!(report.contains("ref count is 7, should be 3"), "{report}");
}

#[test]
fn a_missing_program_names_its_package() {
    let message =
        std::panic::catch_unwind(|| extant_testkit::tool::tool("no-such-program")).unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("no-such-program is missing: install the package"),
        "{message}"
    );
}

#[test]
fn the_kernel_and_e2fsck_recover_the_same_legal_tree() {
    require!(KernelExt4);
    let seed = seed_from_env("the_kernel_and_e2fsck_recover_the_same_legal_tree");
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().expect("a directory");
    for (round, universe) in [Universe::small(), Universe::wide(2, 3)].iter().enumerate() {
        let image = dir.path().join("image");
        oracle::mke2fs(&image, 64 << 20, &["-t", "ext4"]);
        let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
        // The device only keeps the marks.
        let device = CrashDevice::over(Content::zeros(4096));
        let mut lane = Lane::new(0, "");
        for _ in 0..150 {
            let op = universe.random(&mut rng, lane.state());
            let perform = |op: &Op, tag| perform_mounted(mount.path(), "", op, tag);
            lane.run(Some(&device), op, perform).expect("as expected");
        }
        mount.shutdown(Shutdown::Now);
        let copies = ["kernel", "e2fsck"].map(|name| {
            let copy = dir.path().join(name);
            std::fs::copy(&image, &copy).expect("a copy");
            copy
        });
        let kernel = oracle::kernel_recover(&copies[0]).expect("the kernel recovers");
        oracle::e2fsck_recover(&copies[1]).expect("e2fsck recovers");
        let e2fsck = oracle::kernel_reads(&copies[1]).expect("a clean image");
        let both = [("the kernel", &kernel.tree), ("e2fsck", &e2fsck.tree)];
        oracle::same_recovery(&both).expect("the same tree");

        // Linux delays allocation.
        let history = History::new(seed, vec![lane]).promising(DataPromise::Delayed);
        let log = device.log();
        let judge = Judge::new(&history, &log);
        let verdict = judge.point(log.events().len(), &kernel.found);
        println!("round {round}: {verdict:?} of {}", history.lanes()[0].len());
        verdict.expect("what the kernel left is legal");

        let mut other = e2fsck.tree;
        other.insert("stranger", Entry::new(Kind::Directory));
        let why = oracle::same_recovery(&[("the kernel", &kernel.tree), ("we", &other)])
            .expect_err("one more directory");
        assert!(
            why.contains("the kernel and we recover different trees"),
            "{why}"
        );
    }
}

#[test]
fn recovery_that_repairs_what_no_journal_explains_is_refused() {
    let image = tempfile::NamedTempFile::new().expect("a file");
    oracle::mke2fs(image.path(), 16 << 20, &["-t", "ext4"]);
    oracle::e2fsck_recover(image.path()).expect("a clean image");
    oracle::debugfs_write(image.path(), &["set_inode_field <2> links_count 9"]);
    let why = oracle::e2fsck_recover(image.path()).expect_err("a wrong link count");
    assert!(why.contains("ref count"), "{why}");
}

#[test]
fn a_log_that_nobody_announces_is_for_those_who_compare() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name);
    let image = place("image");
    oracle::mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
    std::fs::create_dir(mount.path().join("d")).expect("a directory");
    mount.shutdown(Shutdown::FlushLog);
    oracle::debugfs_write(&image, &["feature -needs_recovery"]);
    let copy = place("copy");
    std::fs::copy(&image, &copy).expect("a copy");
    let why = oracle::e2fsck_recover(&image).expect_err("nobody announced the log");
    assert!(why.contains("needs_recovery flag is clear"), "{why}");
    oracle::e2fsck_recover_beside(&copy).expect("the log says what was done");
    let found = oracle::kernel_reads(&copy).expect("a clean image");
    assert!(found.tree.entries.contains_key(&b"d"[..]));
}

/// Made by Linux alone, so that nobody takes it for a fault of ours.
#[test]
fn e2fsck_is_not_asked_about_truncated_files_in_clusters() {
    require!(KernelExt4);
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name);
    let image = place("image");
    let options = ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"];
    oracle::mke2fs(&image, 16 << 20, &options);
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
    std::fs::write(mount.path().join("f"), [7; 10_024]).expect("a file");
    mount.unmount();
    let stat = oracle::debugfs(&image, "stat f");
    let ino = stat.split_whitespace().nth(1).expect("Inode: N");
    let orphan = format!("ssv last_orphan {ino}");
    oracle::debugfs_write(&image, &["set_inode_field f size 3000", &orphan]);
    std::fs::copy(&image, place("kernel")).expect("a copy");
    let report = oracle::e2fsck_recover(&image).expect_err("mended since: ask it");
    assert!(
        oracle::e2fsck_truncates_clusters(&image, &report),
        "{report}"
    );
    assert!(!oracle::e2fsck_truncates_clusters(&image, "Pass 1"));
    oracle::kernel_recover(&place("kernel")).expect("the kernel truncates it");
}
