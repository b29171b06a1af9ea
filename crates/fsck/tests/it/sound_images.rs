//! Images as mke2fs makes them, in every form it knows.

use crate::support::{assert_clean, check};
use extant_testkit::oracle;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn plant(tree: &Path) {
    fs::create_dir_all(tree.join("deep/er/and/deeper")).unwrap();
    for i in 0..1200 {
        let dir = tree.join(if i % 2 == 0 { "deep" } else { "deep/er" });
        fs::write(dir.join(format!("file number {i}")), vec![i as u8; i * 7]).unwrap();
    }
    let large = vec![7; 3 << 20];
    fs::write(tree.join("large"), large).unwrap();
    symlink("deep/er", tree.join("short")).unwrap();
    symlink("x/".repeat(200), tree.join("long")).unwrap();
    symlink("y/".repeat(60), tree.join("middle")).unwrap();
    fs::hard_link(tree.join("large"), tree.join("deep/link")).unwrap();
}

const FORMS: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "2048", "-O", "^flex_bg"],
    &["-t", "ext4", "-b", "4096", "-O", "^resize_inode,meta_bg"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^resize_inode,meta_bg",
        "-g",
        "1024",
    ],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg,^64bit"],
    &["-t", "ext4", "-I", "128"],
    &["-t", "ext4", "-I", "1024", "-O", "inline_data"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "inline_data,ea_inode,large_dir",
    ],
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "65536"],
    &["-t", "ext4", "-O", "quota,project"],
    &["-t", "ext4", "-I", "512", "-O", "quota,inline_data"],
    &[
        "-t",
        "ext4",
        "-O",
        "orphan_file,metadata_csum_seed,fast_commit",
    ],
    &["-t", "ext4", "-O", "sparse_super2"],
    &["-t", "ext4", "-O", "^has_journal,^dir_index,^filetype"],
    &["-t", "ext4", "-O", "casefold,encrypt,stable_inodes,verity"],
    &["-t", "ext2"],
    &["-t", "ext2", "-r", "0"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext3", "-I", "128", "-b", "1024"],
    &[
        "-t",
        "ext4",
        "-E",
        "lazy_itable_init=1,packed_meta_blocks=1",
    ],
    &["-t", "ext4", "-b", "8192"],
    &["-t", "ext4", "-b", "65536"],
];

#[test]
fn what_mke2fs_makes_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    plant(&tree);
    let mut wrong = String::new();
    for form in FORMS {
        let image = dir.path().join("image");
        let mut options = form.to_vec();
        options.extend(["-d", tree.to_str().unwrap(), "-q"]);
        oracle::mke2fs(&image, 256 << 20, &options);
        if form.iter().any(|word| word.contains("quota")) {
            // mke2fs counts before it fills.
            assert!(oracle::e2fsck(&image, &["-fy"]).code <= 1);
        }
        oracle::assert_clean(&image);
        let report = check(&image, false);
        if !report.is_clean() {
            let problems = crate::support::problems(&report);
            wrong.push_str(&format!("{form:?}:\n{problems}"));
        }
        assert!(report.totals.inodes > 1200, "{form:?}: {:?}", report.totals);
        fs::remove_file(&image).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_huge_sparse_file_system_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let options = [
        "-t",
        "ext4",
        "-q",
        "-E",
        "lazy_itable_init=1",
        "-O",
        "^has_journal",
    ];
    oracle::mke2fs(&image, 2 << 40, &options);
    assert_clean("2 TiB", &check(&image, false));
}
