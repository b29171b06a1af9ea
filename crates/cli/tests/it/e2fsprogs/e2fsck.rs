//! `e2fsck` and `fsck.ext4` beside the real ones.

use super::{Links, stderr};
use crate::support::small_plan;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{
    assert_clean, debugfs, debugfs_write, dumpe2fs_header, e2fsck, mke2fs,
};
use extant_testkit::require;
use std::fs;
use std::path::Path;

/// The last line of what was printed, which has the sums.
fn sums(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

#[test]
fn sound_file_systems_have_the_sums_of_e2fsck() {
    let links = Links::new();
    let source = links.place.planted("source", &small_plan());
    for kind in [
        "-L label",
        "-O ^extent,^64bit -b 1024",
        "-O bigalloc",
        "-O ^has_journal,inline_data",
    ] {
        let image = links.arg("image");
        let mut options = vec!["-t", "ext4", "-d", &source];
        options.extend(kind.split_whitespace());
        mke2fs(Path::new(&image), 64 << 20, &options);
        for args in [
            "-n",
            "-p",
            "-y",
            "-fn",
            "-f -p",
            "-fy",
            "-a -f",
            "-fy -E nodiscard",
        ] {
            let text = |is_ours| {
                let program = links.program("fsck.ext4", is_ours);
                let done = program.args(args.split_whitespace().chain([&*image])).ok();
                sums(&done.text()).to_owned()
            };
            assert_eq!(text(true), text(false), "{kind} {args}");
        }
        assert_clean(Path::new(&image));
    }
}

#[test]
fn files_in_pieces_are_counted_as_e2fsck_counts_them() {
    require!(Root, LoopDevices, KernelExt4);
    let links = Links::new();
    for kind in ["-b 1024", "-O ^extent,^64bit -b 1024", "-b 4096"] {
        let image = links.arg("image");
        let options: Vec<&str> = ["-t", "ext4"].into_iter().chain(kind.split(' ')).collect();
        mke2fs(Path::new(&image), 64 << 20, &options);
        let mount = KernelMount::mount(Path::new(&image), Mode::ReadWrite, "");
        let file = |n: u32| mount.path().join(n.to_string());
        for n in 0..200 {
            fs::write(file(n), vec![1; 40_000]).unwrap();
        }
        for n in (0..200).step_by(2) {
            fs::remove_file(file(n)).unwrap();
        }
        for n in 200..206 {
            fs::write(file(n), vec![2; 3_000_000]).unwrap();
        }
        mount.unmount();
        let text = |is_ours| {
            let done = links.program("e2fsck", is_ours).args(["-fn", &image]).ok();
            sums(&done.text()).to_owned()
        };
        let (ours, theirs) = (text(true), text(false));
        assert_eq!(ours, theirs, "{kind}");
        assert!(!ours.contains("(0.0%"), "{ours}");
    }
}

#[test]
fn damage_is_told_and_mended_with_the_codes_of_e2fsck() {
    let links = Links::new();
    let source = links.place.planted("source", &small_plan());
    let original = links.arg("original");
    mke2fs(
        Path::new(&original),
        32 << 20,
        &["-t", "ext4", "-L", "lab", "-d", &source],
    );
    debugfs_write(
        Path::new(&original),
        &[
            "sif /etc/hostname links_count 5",
            "ssv free_blocks_count 77",
            "freeb 5000 10",
        ],
    );
    for (args, code) in [("-fn", 4), ("-p", 0), ("-fp", 1), ("-fy", 1), ("-y -f", 1)] {
        let run = |is_ours: bool| {
            let image = links.arg(if is_ours { "ours" } else { "theirs" });
            fs::copy(&original, &image).unwrap();
            let program = links.program("e2fsck", is_ours);
            let args = args.split_whitespace().chain([&*image]);
            (program.args(args).run(), image)
        };
        let ((we, ours), (they, _)) = (run(true), run(false));
        assert_eq!((we.code, they.code), (code, code), "{args}: {we} {they}");
        match code {
            1 => {
                assert_clean(Path::new(&ours));
                assert_eq!(sums(&we.text()), sums(&they.text()), "{args}");
                let again = links.ours("e2fsck").args(["-fp", &ours]).run();
                assert_eq!(again.code, 0, "{again}");
            }
            4 => {
                let warning = "lab: ********** WARNING: Filesystem still has errors **********";
                assert!(we.text().contains(warning), "{we}");
                assert!(fs::read(&ours).unwrap() == fs::read(&original).unwrap());
            }
            _ => {}
        }
    }
}

#[test]
fn what_asks_for_a_check_gets_one_and_it_is_noted() {
    let links = Links::new();
    let original = links.arg("original");
    for (changes, is_due) in [
        (&["ssv state 0"][..], true),
        (&["ssv state 3"], true),
        (&["ssv max_mnt_count 5", "ssv mnt_count 5"], true),
        (
            &["ssv checkinterval 86400", "ssv lastcheck 1600000000"],
            true,
        ),
        (&["ssv max_mnt_count 5", "ssv mnt_count 4"], false),
        (&["ssv mtime 1700000000", "ssv lastcheck 1600000000"], false),
    ] {
        mke2fs(Path::new(&original), 8 << 20, &["-t", "ext4", "-L", "lab"]);
        debugfs_write(Path::new(&original), changes);
        let run = |is_ours: bool| {
            let image = links.arg(if is_ours { "ours" } else { "theirs" });
            fs::copy(&original, &image).unwrap();
            let done = links.program("e2fsck", is_ours).args(["-p", &image]).run();
            let is_forced = done.text().contains("check forced");
            let is_skipped = done.text().contains("lab: clean, ");
            assert_eq!(
                (is_forced, is_skipped),
                (is_due, !is_due),
                "{changes:?}: {done}"
            );
            image
        };
        let (ours, _) = (run(true), run(false));
        if is_due {
            let header = dumpe2fs_header(Path::new(&ours));
            assert_eq!(header.number("Mount count"), 0);
            assert_eq!(header.field("Filesystem state"), "clean");
            let real = e2fsck(Path::new(&ours), &["-p"]);
            assert!(real.text().contains("clean, "), "{changes:?}: {real}");
        }
    }
}

#[test]
fn an_error_that_only_the_journal_remembers_asks_for_a_check() {
    let links = Links::new();
    let original = links.arg("original");
    mke2fs(Path::new(&original), 16 << 20, &["-t", "ext4", "-L", "lab"]);
    let map = debugfs(Path::new(&original), "blocks <8>");
    let first: usize = map.split_whitespace().next().unwrap().parse().unwrap();
    let mut bytes = fs::read(&original).unwrap();
    // The log's errno, as Linux stores it; blocks have 1 KiB.
    let at = first * 1024 + 0x20;
    assert_eq!(bytes[at - 0x20..at - 0x1c], [0xc0, 0x3b, 0x39, 0x98]);
    bytes[at..at + 4].copy_from_slice(&(-5_i32).to_be_bytes());
    // A log that no Linux has mounted has no checksums.
    assert_eq!(bytes[first * 1024 + 0x50], 0);
    fs::write(&original, bytes).unwrap();
    let run = |is_ours: bool| {
        let image = links.arg(if is_ours { "ours" } else { "theirs" });
        fs::copy(&original, &image).unwrap();
        let done = links.program("e2fsck", is_ours).args(["-p", &image]).run();
        let said = "lab contains a file system with errors, check forced.";
        assert!(done.text().contains(said), "{done}");
        (done, image)
    };
    let ((we, ours), _) = (run(true), run(false));
    assert_eq!(we.code, 1, "{we}");
    assert_clean(Path::new(&ours));
    let again = links.ours("e2fsck").args(["-p", &ours]).run();
    assert_eq!(again.code, 0, "{again}");
    assert!(again.text().contains("lab: clean, "), "{again}");
}

#[test]
fn what_is_not_done_is_named() {
    let links = Links::new();
    let image = links.arg("image");
    mke2fs(Path::new(&image), 64 << 20, &["-t", "ext4", "-b", "1024"]);
    for (args, code) in [
        (&["-f", &*image][..], 8),
        (&["-n", "-y", &image], 8),
        (&["-c", "-y", &image], 16),
        (&["-k", "-y", &image], 16),
        (&["-E", "nothing", "-n", &image], 16),
        (&["-Z", &image], 16),
        (&["-n"], 16),
        (&["-n", "/nonexistent"], 8),
        (&["-p", "LABEL=root"], 8),
        (&["-p", "UUID=7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e"], 8),
        (&["-n", "-C", "x", &image], 16),
        (&["-n", "-C", "-1", &image], 0),
        (&["-n", "-b", "8194", &image], 8),
        (&["-n", "-b", "8193", "-B", "4096", &image], 8),
        (&["-n", "-b", "8193", "-B", "1024", &image], 0),
        (&["-V"], 0),
    ] {
        let done = links.ours("e2fsck").args(args).run();
        assert_eq!(done.code, code, "{args:?}: {done}");
        assert!(
            code == 0 || stderr(&done).contains("e2fsck: "),
            "{args:?}: {done}"
        );
        assert!(!done.text().contains("sound superblock"), "{done}");
    }
    // A superblock that is gone comes from a copy.
    debugfs_write(Path::new(&image), &["ssv inodes_per_group 7"]);
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024..2048].fill(0);
    fs::write(&image, bytes).unwrap();
    let mended = links
        .ours("fsck.ext4")
        .args(["-y", "-b", "8193", &image])
        .run();
    assert_eq!(mended.code, 1, "{mended}");
    assert_clean(Path::new(&image));
}
