//! Numbers and flags that contradict what is there: whatever they say, what can be reached and read
//! stays, nothing is written over another structure, and e2fsck finds the result clean.

use crate::repair::{Readable, lost, readable, told};
use extant_blockdev::OpenSpec;
use extant_format::superblock::Superblock;
use extant_fsck::repair::{self, Options, Plan};
use extant_testkit::oracle::{self, debugfs, debugfs_write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// An image with some files, one of them called `keep`.
fn made(dir: &Path, size: u64, features: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    if !tree.exists() {
        std::fs::create_dir_all(tree.join("dir/deeper")).unwrap();
        for i in 0..16_usize {
            std::fs::write(
                tree.join(format!("dir/file{i}")),
                vec![i as u8 + 1; 900 * i],
            )
            .unwrap();
        }
        std::fs::write(tree.join("keep"), vec![9; 60_000]).unwrap();
        symlink("dir/file3", tree.join("link")).unwrap();
        symlink("x/".repeat(100), tree.join("slow")).unwrap();
    }
    let path = dir.join("image");
    let options = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-q",
        "-d",
        tree.to_str().unwrap(),
    ];
    let _ = std::fs::remove_file(&path);
    oracle::mke2fs(&path, size, &[&options[..], features].concat());
    if features.iter().any(|option| option.contains("quota")) {
        // What is planted is not counted yet.
        assert!(oracle::e2fsck(&path, &["-fy"]).code <= 1);
    }
    oracle::assert_clean(&path);
    path
}

fn before(path: &Path) -> Readable {
    let found = readable(OpenSpec::read_only(path).open().unwrap());
    assert!(found.len() > 17, "{} files are readable", found.len());
    found
}

fn plan(path: &Path) -> extant_fsck::Result<Plan> {
    let device = OpenSpec::read_write(path).open().unwrap();
    repair::plan(device, Options::default().now(1_700_000_000), &())
}

/// Repairs an image; returns what is wrong with the result: what of `had` is lost, or what e2fsck
/// says.
fn outcome(path: &Path, had: &Readable) -> Result<(), String> {
    let plan = plan(path).map_err(|e| e.to_string())?;
    plan.apply().map_err(|e| e.to_string())?;
    let told = told(&plan);
    let complete = plan.is_complete();
    drop(plan);
    let lost = lost(
        had,
        &readable(OpenSpec::read_only(path).open().unwrap()),
        false,
    );
    let theirs = oracle::e2fsck(path, &["-fn"]);
    if lost.is_empty() && complete && theirs.code == 0 {
        Ok(())
    } else {
        Err(format!("lost {lost:?}\n{told}{theirs}"))
    }
}

fn number(path: &Path, of: &str) -> String {
    let said = debugfs(path, &format!("imap {of}"));
    said.split_whitespace().nth(1).unwrap().to_owned()
}

fn field(path: &Path, name: &str) -> u64 {
    let all = oracle::dumpe2fs_header(path);
    let found = all
        .fields
        .get(name)
        .unwrap_or_else(|| panic!("{name}: {all:?}"));
    found.split_whitespace().next().unwrap().parse().unwrap()
}

/// Tries requests to debugfs, each on an image of its own.
fn each_is_mended(size: u64, features: &[&str], requests: &[&[&str]]) {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = String::new();
    for requests in requests {
        let path = made(dir.path(), size, features);
        let had = before(&path);
        let keep = number(&path, "/keep");
        let own: Vec<String> = requests
            .iter()
            .map(|text| text.replace("KEEP", &keep))
            .collect();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let said = debugfs_write(&path, &own);
        if let Err(e) = outcome(&path, &had) {
            wrong.push_str(&format!("## {own:?}\n{said}\n{e}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_block_of_multiple_mount_protection_is_not_written_over_other_structures() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = String::new();
    let path = made(dir.path(), 8 << 20, &["-O", "mmp"]);
    let table = *oracle::dumpe2fs(&path).groups[0]
        .inode_table
        .clone()
        .unwrap()
        .start();
    let file: u64 = debugfs(&path, "blocks /keep")
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    // The inode table, the descriptors, a bitmap, a file, the superblock, outside.
    for block in [table, table + 3, 2, table - 1, file, 1, 0, 999_999] {
        let path = made(dir.path(), 8 << 20, &["-O", "mmp"]);
        let had = before(&path);
        // Programs that write wait where the protection is on.
        let mut image = std::fs::read(&path).unwrap();
        let sb = Superblock::parse(&image[1024..2048]).unwrap();
        let sb = sb.with(|raw| raw.mmp_block.set(block)).unwrap();
        image[1024..2048].copy_from_slice(&sb.encode());
        std::fs::write(&path, image).unwrap();
        if let Err(e) = outcome(&path, &had) {
            wrong.push_str(&format!("## block {block}: {e}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_is_no_orphan_file_is_not_emptied_as_one() {
    each_is_mended(
        8 << 20,
        &["-O", "orphan_file"],
        &[
            &["ssv orphan_file_inum 2"],
            &["ssv orphan_file_inum 7"],
            &["ssv orphan_file_inum 8"],
            &["ssv orphan_file_inum 11"],
            &["ssv orphan_file_inum KEEP"],
            &["ssv orphan_file_inum KEEP", "unlink /keep"],
            &["ssv orphan_file_inum 500"],
        ],
    );
}

#[test]
fn what_is_no_quota_file_is_not_written_as_one() {
    let requests: Vec<Vec<String>> = ["usr", "grp", "prj"]
        .iter()
        .flat_map(|kind| {
            let name = |n: &str| vec![format!("ssv {kind}_quota_inum {n}")];
            let nameless = vec![
                format!("ssv {kind}_quota_inum KEEP"),
                "unlink /keep".to_owned(),
            ];
            let numbers = ["2", "5", "7", "8", "11", "KEEP"].map(name);
            numbers.into_iter().chain([nameless])
        })
        .collect();
    let requests: Vec<Vec<&str>> = requests
        .iter()
        .map(|some| some.iter().map(String::as_str).collect())
        .collect();
    let requests: Vec<&[&str]> = requests.iter().map(Vec::as_slice).collect();
    let features = [
        "-O",
        "quota,project",
        "-E",
        "quotatype=usrquota:grpquota:prjquota",
    ];
    each_is_mended(8 << 20, &features, &requests);
}

#[test]
fn what_is_no_journal_is_not_written_as_one() {
    each_is_mended(
        8 << 20,
        &[],
        &[
            &["ssv journal_inum 2"],
            &["ssv journal_inum 7"],
            &["ssv journal_inum 11"],
            &["ssv journal_inum KEEP"],
            &["ssv journal_inum KEEP", "unlink /keep"],
            &["ssv journal_inum 500"],
        ],
    );
}

#[test]
fn blocks_reserved_for_descriptors_are_not_written_over_other_structures() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 8 << 20, &[]);
    let right = field(&path, "Reserved GDT blocks");
    let mut wrong = String::new();
    for blocks in [256, right + 1, right + 5, right - 1, 1, 0] {
        let path = made(dir.path(), 8 << 20, &[]);
        let had = before(&path);
        debugfs_write(&path, &[&format!("ssv reserved_gdt_blocks {blocks}")]);
        if let Err(e) = outcome(&path, &had) {
            wrong.push_str(&format!("## {blocks}: {e}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn inodes_in_use_are_not_taken_for_unused() {
    // Group 0 holds all there is; in the larger image group 1 and others hold some.
    let calc = "set_bg 0 checksum calc";
    each_is_mended(
        8 << 20,
        &[],
        &[
            &["set_bg 0 flags 1", calc],
            &["set_bg 0 flags 3", calc],
            &["set_bg 0 flags 7", calc],
            &["set_bg 0 itable_unused 2048", calc],
            &["set_bg 0 itable_unused 2038", calc],
            &["set_bg 0 itable_unused 2030", calc],
        ],
    );
    each_is_mended(
        24 << 20,
        &["-N", "96"],
        &[
            &["set_bg 1 flags 1", "set_bg 1 checksum calc"],
            &[
                "set_bg 0 flags 3",
                calc,
                "set_bg 1 flags 3",
                "set_bg 1 checksum calc",
            ],
        ],
    );
}

#[test]
fn fields_that_contradict_what_is_reachable_are_what_is_wrong() {
    each_is_mended(
        8 << 20,
        &[],
        &[
            &["ssv first_ino 100"],
            &["ssv first_ino 12"],
            &["ssv first_ino 2000"],
            &["ssv inode_size 128"],
            &["ssv inode_size 512"],
            &["ssv lpf_ino 12"],
            &["ssv overhead_blocks 12345"],
            &["ssv first_meta_bg 1"],
            &["ssv backup_bgs[0] 1"],
            &["feature ^64bit"],
        ],
    );
}

#[test]
fn a_flag_alone_makes_no_file_the_value_of_an_attribute() {
    let flags = |bits: u32| format!("sif /keep flags {bits:#x}");
    let (extents, value) = (0x8_0000, 0x20_0000);
    let own = flags(extents | value);
    let small = "sif /dir/file0 flags 0x280000".to_owned();
    let directory = "sif /dir flags 0x280000".to_owned();
    let link = "sif /link flags 0x200000".to_owned();
    let requests: &[&[&str]] = &[
        &[&own],
        &[&small],
        &[&directory],
        &[&link],
        &[&own, "unlink /keep"],
    ];
    each_is_mended(8 << 20, &[], requests);
    each_is_mended(8 << 20, &["-O", "ea_inode"], requests);
}

#[test]
fn flags_that_change_the_meaning_of_content_lose_none() {
    let bits = [
        0,
        0x4,
        0x800,
        0x1000,
        0x10_0000,
        0x1000_0000,
        0x4000_0000,
        0x8_0000,
    ];
    let requests: Vec<String> = ["/keep", "/dir", "/link", "/dir/file0", "/dir/file1"]
        .iter()
        .flat_map(|path| {
            let base = if *path == "/link" { 0 } else { 0x8_0000_u32 };
            bits.map(|bit| format!("sif {path} flags {:#x}", base ^ bit))
        })
        .collect();
    let requests: Vec<Vec<&str>> = requests.iter().map(|text| vec![text.as_str()]).collect();
    let requests: Vec<&[&str]> = requests.iter().map(Vec::as_slice).collect();
    each_is_mended(8 << 20, &["-O", "ea_inode,inline_data,casefold"], &requests);
}

#[test]
fn a_flag_of_inline_data_alone_cuts_no_file_with_a_map() {
    let paths = [
        "/keep",
        "/dir",
        "/link",
        "/slow",
        "/dir/file0",
        "/dir/file1",
    ];
    let flags = paths.map(|path| format!("sif {path} flags 0x10000000"));
    // A hole is no less content.
    let hole = "sif /dir/file0 size 70000".to_owned();
    let mut requests: Vec<Vec<&str>> = flags.iter().map(|text| vec![text.as_str()]).collect();
    requests.push(vec![&hole, &flags[4]]);
    let requests: Vec<&[&str]> = requests.iter().map(Vec::as_slice).collect();
    let options = ["-O", "^extent,^64bit,inline_data"];
    each_is_mended(8 << 20, &options, &requests);
}

#[test]
fn a_file_with_a_size_that_no_map_reaches_gets_the_one_it_had() {
    // Of 60,000 bytes, and of none.
    let requests: &[&[&str]] = &[
        &["sif /keep size 0x6000000ea60"],
        &["sif /keep size 0xffff0000ea60"],
        &["sif /dir/file0 size 0x60000000000"],
    ];
    for options in [&[][..], &["-O", "^extent,^64bit"]] {
        each_is_mended(8 << 20, options, requests);
    }
}
