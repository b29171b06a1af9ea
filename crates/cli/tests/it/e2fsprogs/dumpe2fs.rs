//! `dumpe2fs` beside the real one: the same text.

use super::{Links, stderr};
use crate::support::small_plan;
use extant_testkit::oracle::{debugfs_write, mke2fs};
use extant_testkit::tool::tool;
use std::path::Path;

/// File systems of all kinds.
const KINDS: &[&str] = &[
    "-t ext4",
    "-t ext2 -b 1024",
    "-t ext3 -L label -M /srv/x",
    "-t ext4 -O ^64bit,^metadata_csum,uninit_bg,bigalloc,quota,orphan_file,casefold,inline_data",
    "-t ext4 -O ^flex_bg,meta_bg,^resize_inode,sparse_super2 -b 1024",
    "-t ext4 -O metadata_csum_seed,orphan_file,project,verity,encrypt -E stride=4,stripe-width=8",
    "-t ext4 -O fast_commit,mmp -e panic -m 0 -I 512",
    "-t ext4 -O ^has_journal -U clear -b 4096 -g 8192",
    "-t ext4 -O none",
    "-t ext4 -O ^extent,^64bit,^resize_inode",
];

#[test]
fn every_line_is_that_of_dumpe2fs() {
    let links = Links::new();
    let image = links.arg("image");
    let source = links.place.planted("source", &small_plan());
    for kind in KINDS {
        let mut options: Vec<&str> = kind.split_whitespace().collect();
        options.extend(["-d", &source]);
        mke2fs(Path::new(&image), 80 << 20, &options);
        for option in ["", "-h", "-x", "-b", "-hx"] {
            let args: Vec<&str> = [option, &image]
                .into_iter()
                .filter(|a| !a.is_empty())
                .collect();
            let text = |is_ours| {
                let text = links.program("dumpe2fs", is_ours).args(&args).ok().text();
                text.lines().map(str::to_owned).collect::<Vec<_>>()
            };
            let (ours, theirs) = (text(true), text(false));
            for (at, (our, their)) in ours.iter().zip(&theirs).enumerate() {
                assert_eq!(our, their, "{kind} {option}, line {}", at + 1);
            }
            assert_eq!(ours.len(), theirs.len(), "{kind} {option}: {ours:#?}");
        }
    }
}

#[test]
fn remembered_errors_and_other_settings_are_shown_as_dumpe2fs_does() {
    let links = Links::new();
    let image = links.arg("image");
    mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4"]);
    tool("tune2fs")
        .args([
            "-c20",
            "-C",
            "3",
            "-i",
            "2w",
            "-o",
            "discard,journal_data",
            "-E",
        ])
        .args([
            "mount_opts=noatime,test_fs",
            "-u",
            "65534",
            "-g",
            "4242",
            &image,
        ])
        .ok();
    debugfs_write(
        Path::new(&image),
        &[
            "ssv state 3",
            "ssv error_count 2",
            "ssv first_error_time 1700000000",
            "ssv first_error_func some_function",
            "ssv first_error_line 17",
            "ssv first_error_ino 12",
            "ssv last_error_time 1700000001",
            "ssv last_error_func another",
            "ssv last_error_line 18",
            "ssv last_error_block 99",
            "ssv mtime 1600000000",
            "ssv kbytes_written 123456789",
        ],
    );
    let text = |is_ours| {
        links
            .program("dumpe2fs", is_ours)
            .args(["-h", &image])
            .ok()
            .text()
    };
    assert_eq!(text(true), text(false));
    let list = |is_ours| {
        links
            .program("tune2fs", is_ours)
            .args(["-l", &image])
            .ok()
            .text()
    };
    let rest = |text: String| text.split_once('\n').map(|(_, rest)| rest.to_owned());
    assert_eq!(rest(list(true)), rest(list(false)));
}

#[test]
fn bad_blocks_are_shown() {
    let links = Links::new();
    let (image, list) = (links.arg("image"), links.arg("list"));
    let many: String = (9000..9400).map(|n| format!("{}\n", n + n % 3)).collect();
    for (kind, blocks) in [
        ("-b 1024", "5000\n5001\n7003\n"),
        ("-b 4096", "3000\n"),
        ("-O ^extent,^64bit -b 1024", &many),
    ] {
        std::fs::write(&list, blocks).unwrap();
        let mut options: Vec<&str> = kind.split_whitespace().collect();
        options.extend(["-t", "ext4", "-l", &list]);
        mke2fs(Path::new(&image), 16 << 20, &options);
        for option in ["-b", "-h", "-f"] {
            let text = |is_ours| {
                let program = links.program("dumpe2fs", is_ours);
                program.args([option, &image]).ok().text()
            };
            let rest = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(rest(text(true)), rest(text(false)), "{kind} {option}");
        }
        let told = links.ours("dumpe2fs").args(["-b", &image]).ok();
        let first = blocks.lines().next().unwrap();
        assert!(told.text().contains(first), "{kind}: {told}");
    }
}

#[test]
fn what_is_not_shown_is_named() {
    let links = Links::new();
    let image = links.arg("image");
    mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4"]);
    for args in [
        &["-i", &*image][..],
        &["-o", "superblock=8193", &image],
        &["-Z", &image],
        &[],
    ] {
        let refused = links.ours("dumpe2fs").args(args).run();
        assert_eq!(refused.code, 1, "{refused}");
        assert!(stderr(&refused).contains("dumpe2fs: "), "{refused}");
    }
    std::fs::write(&image, "nothing").unwrap();
    let nothing = links.ours("dumpe2fs").arg(&image).run();
    assert_eq!(nothing.code, 1, "{nothing}");
    let version = links.ours("dumpe2fs").arg("-V").ok();
    assert!(
        stderr(&version).starts_with("dumpe2fs 1.47.0 (extant "),
        "{version}"
    );
}
