//! `tune2fs` and `e2label` beside the real ones.

use super::{Links, assert_alike, stderr};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::tool::tool;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Options that both take.
const SETS: &[&str] = &[
    "-L new",
    "-L a-label-that-is-too-long",
    "-U 7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e",
    "-m 1",
    "-m 2.5",
    "-r 100",
    "-c 20 -C 3",
    "-c -1",
    "-i 2w",
    "-i 10d",
    "-i1m",
    "-i 0",
    "-T 20200101",
    "-T 202001011230",
    "-o acl,^user_xattr",
    "-o ^acl,discard",
    "-o journal_data_writeback",
    "-e panic",
    "-e remount-ro",
    "-u 5 -g root",
    "-E stride=4,stripe_width=16",
    "-E mount_opts=noatime",
    "-E test_fs",
    "-M /srv/data",
    "-O ^has_journal",
    "-f -O ^has_journal -L x",
    "-O large_dir",
    "-O metadata_csum_seed",
    "-O verity,stable_inodes",
    "-l",
];

/// What both refuse.
const REFUSED: &[&str] = &[
    "-c x",
    "-i 1x",
    "-m 99",
    "-e nothing",
    "-o nothing",
    "-O nothing",
    "-E nothing",
    "-U nothing",
    "-u no-such-user",
    "-T soon",
    "-j",
    "-J size=4",
    "-I 128",
    "-I 300",
    "-I 256",
    "-I 8192",
    "-J size=4,location=x",
    "-E clear_mmp",
    "-f -E clear_mmp",
    "-Z",
    "",
];

/// What the real one can do and ours refuses.
const NOT_DONE: &[&str] = &["-J device=elsewhere", "-z undo -L x"];

#[test]
fn the_same_options_change_the_same() {
    let links = Links::new();
    let original = links.arg("original");
    mke2fs(Path::new(&original), 64 << 20, &["-t", "ext4", "-L", "old"]);
    for options in SETS {
        let run = |is_ours: bool| {
            let image = links.arg(if is_ours { "ours" } else { "theirs" });
            fs::copy(&original, &image).unwrap();
            let program = links.program("tune2fs", is_ours);
            let args = options.split_whitespace().chain([&*image]);
            (program.args(args).run(), image)
        };
        let ((we, ours), (they, theirs)) = (run(true), run(false));
        assert_eq!((we.code, they.code), (0, 0), "{options}: {we} {they}");
        // The first line is the version.
        let rest = |text: String| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rest(we.text()), rest(they.text()), "{options}");
        assert_alike(Path::new(&ours), Path::new(&theirs), options);
        assert_clean(Path::new(&ours));
    }
}

/// What makes files of the file system's own, or takes them away.
const MADE: &[&str] = &[
    "-j",
    "-J size=8",
    "-Q usrquota",
    "-Q usrquota,grpquota,prjquota",
    "-f -O quota,project",
    "-f -O ^metadata_csum",
    "-f -O orphan_file",
    "-f -O mmp",
    "-E hash_alg=tea",
    "-f -O mmp -E mmp_update_interval=9",
];

#[test]
fn what_makes_files_of_the_file_system_makes_the_same() {
    let links = Links::new();
    let (original, without) = (links.arg("original"), links.arg("without"));
    let options = ["-t", "ext4"];
    mke2fs(Path::new(&original), 64 << 20, &options);
    let options = ["-t", "ext4", "-O", "^has_journal"];
    mke2fs(Path::new(&without), 64 << 20, &options);
    for options in MADE {
        let from = if options.starts_with("-j") || options.starts_with("-J") {
            &without
        } else {
            &original
        };
        let run = |is_ours: bool| {
            let image = links.arg(if is_ours { "ours" } else { "theirs" });
            fs::copy(from, &image).unwrap();
            let program = links.program("tune2fs", is_ours);
            program.args(options.split_whitespace()).arg(&image).ok();
            assert_clean(Path::new(&image));
            let said = tool("dumpe2fs").arg("-h").arg(&image).ok().text();
            let about = [
                "Filesystem features",
                "Total journal size",
                "User quota inode",
                "Group quota inode",
                "Project quota inode",
                "Journal inode",
                "Journal backup",
                "MMP update interval",
                "Default directory hash",
            ];
            let is_told = |line: &&str| about.iter().any(|about| line.starts_with(about));
            let told: Vec<String> = said.lines().filter(is_told).map(str::to_owned).collect();
            told
        };
        assert_eq!(run(true), run(false), "{options}");
    }
}

/// A file system whose multiple-mount protection says that a host has it open, which is gone.
fn left_open(image: &Path) {
    mke2fs(
        image,
        64 << 20,
        &["-t", "ext4", "-b", "4096", "-O", "mmp,^metadata_csum"],
    );
    let about = tool("dumpe2fs").arg("-h").arg(image).ok().text();
    let line = about
        .lines()
        .find(|line| line.starts_with("MMP block number"));
    let block: u64 = line
        .unwrap()
        .split_whitespace()
        .last()
        .unwrap()
        .parse()
        .unwrap();
    let file = fs::File::options().write(true).open(image).unwrap();
    // The sequence number of a check that goes on.
    file.write_all_at(&0xe24d_4d50_u32.to_le_bytes(), block * 4096 + 4)
        .unwrap();
}

#[test]
fn who_had_it_open_is_forgotten_when_that_is_asked_for() {
    let links = Links::new();
    let original = links.arg("original");
    left_open(Path::new(&original));
    for is_ours in [true, false] {
        let image = links.arg(if is_ours { "ours" } else { "theirs" });
        fs::copy(&original, &image).unwrap();
        let run = |options: &[&str]| {
            let program = links.program("tune2fs", is_ours);
            program.args(options).arg(&image).run()
        };
        assert_eq!(run(&["-L", "new"]).code, 1);
        assert_eq!(run(&["-E", "clear_mmp"]).code, 1);
        assert!(fs::read(&image).unwrap() == fs::read(&original).unwrap());
        let done = run(&["-f", "-E", "clear_mmp"]);
        assert_eq!(done.code, 0, "{done}");
        assert_clean(Path::new(&image));
        assert_eq!(run(&["-L", "new"]).code, 0);
        assert_clean(Path::new(&image));
    }
}

#[test]
fn a_check_that_is_asked_for_comes() {
    let links = Links::new();
    let original = links.arg("original");
    mke2fs(Path::new(&original), 64 << 20, &["-t", "ext4"]);
    let mut told = Vec::new();
    for is_ours in [true, false] {
        let image = links.arg(if is_ours { "ours" } else { "theirs" });
        fs::copy(&original, &image).unwrap();
        let program = links.program("tune2fs", is_ours);
        let done = program.args(["-E", "force_fsck"]).arg(&image).ok();
        let said = tool("dumpe2fs").arg("-h").arg(&image).ok().text();
        let state = said
            .lines()
            .find(|line| line.starts_with("Filesystem state"));
        told.push((
            state.unwrap().to_owned(),
            done.text()
                .lines()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        ));
        // Without being forced to, e2fsck looks.
        let check = tool("e2fsck").args(["-p", &image]).run();
        assert!(
            check.text().contains("contains a file system with errors"),
            "{check}"
        );
        assert_clean(Path::new(&image));
    }
    assert_eq!(told[0], told[1]);
}

#[test]
fn what_is_not_done_is_named_and_nothing_is_written() {
    let links = Links::new();
    let image = links.arg("image");
    mke2fs(Path::new(&image), 64 << 20, &["-t", "ext4"]);
    let before = fs::read(&image).unwrap();
    for options in REFUSED {
        let args: Vec<&str> = options.split_whitespace().chain([&*image]).collect();
        let they = tool("tune2fs").args(&args).run();
        let we = links.ours("tune2fs").args(&args).run();
        assert_eq!((we.code, they.code), (1, 1), "{options}: {we} {they}");
        assert!(stderr(&we).contains("tune2fs: "), "{options}: {we}");
    }
    for options in NOT_DONE {
        let args = options.split_whitespace().chain([&*image]);
        let we = links.ours("tune2fs").args(args).run();
        assert_eq!(we.code, 1, "{options}: {we}");
        assert!(stderr(&we).contains("tune2fs: "), "{options}: {we}");
    }
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn labels_are_told_and_changed() {
    let links = Links::new();
    let image = links.arg("image");
    mke2fs(Path::new(&image), 64 << 20, &["-t", "ext4", "-L", "old"]);
    let label = |is_ours| links.program("e2label", is_ours).arg(&image).ok().text();
    assert_eq!(
        (label(true), label(false)),
        ("old\n".into(), "old\n".into())
    );
    for (new, expected) in [
        ("new", "new\n"),
        ("", "\n"),
        ("0123456789abcdefg", "0123456789abcdef\n"),
    ] {
        let set = links.ours("e2label").args([&*image, new]).ok();
        let is_cut = stderr(&set).contains("Warning: label too long, truncating.");
        assert_eq!(is_cut, new.len() > 16, "{set}");
        assert_eq!(
            (label(true), label(false)),
            (expected.into(), expected.into())
        );
    }
    assert_clean(Path::new(&image));
    for args in [
        &[][..],
        &["a", "b", "c"],
        &["/nonexistent"],
        &["/nonexistent", "x"],
    ] {
        let refused = links.ours("e2label").args(args).run();
        assert_eq!(refused.code, 1, "{refused}");
        assert!(stderr(&refused).starts_with("e2label: "), "{refused}");
    }
    let offset = links.arg("disk");
    let mut disk = vec![0; 1 << 20];
    disk.extend(fs::read(&image).unwrap());
    fs::write(&offset, disk).unwrap();
    let told = links
        .ours("e2label")
        .arg(format!("{offset}?offset=1M"))
        .ok();
    assert_eq!(told.text(), "0123456789abcdef\n");
}
