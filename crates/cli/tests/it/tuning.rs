//! `extant tune`, beside `tune2fs` on a copy.

use crate::support::{Place, copy_of, extant, small_plan};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, mke2fs};
use extant_testkit::tool::tool;
use std::path::Path;

/// What changes by itself: times, sums, and what counts writes.
const LIVING: &[&str] = &[
    "Last write time",
    "Checksum",
    "Lifetime writes",
    "Last checked",
];

/// What `dumpe2fs -h` says that is different in two images.
pub(crate) fn differences(ours: &Path, theirs: &Path) -> Vec<String> {
    let lines = |image: &Path| -> Vec<String> {
        let said = tool("dumpe2fs").arg("-h").arg(image).ok().text();
        let wanted = |line: &&str| !LIVING.iter().any(|living| line.starts_with(living));
        said.lines().filter(wanted).map(str::to_owned).collect()
    };
    let (ours, theirs) = (lines(ours), lines(theirs));
    let only = |a: &[String], b: &[String], whose: &str| -> Vec<String> {
        let missing = a.iter().filter(|line| !b.contains(line));
        missing.map(|line| format!("{whose}: {line}")).collect()
    };
    [only(&ours, &theirs, "ours"), only(&theirs, &ours, "theirs")].concat()
}

#[test]
fn what_is_set_is_what_tune2fs_sets() {
    let place = Place::new();
    let base = place.image(&small_plan(), &[]);
    let cases: &[(&[&str], &[&str])] = &[
        (&["--label", "a label"], &["-L", "a label"]),
        (&["--reserved-percent", "2"], &["-m", "2"]),
        (&["--reserved-blocks", "123"], &["-r", "123"]),
        (&["--reserved-user", "70000"], &["-u", "70000"]),
        (&["--reserved-group", "7"], &["-g", "7"]),
        (&["--errors", "remount-ro"], &["-e", "remount-ro"]),
        (&["--errors", "panic"], &["-e", "panic"]),
        (&["--max-mounts", "20"], &["-c", "20"]),
        (&["--check-interval", "30"], &["-i", "30d"]),
        (
            &["--mount-options", "^acl,discard"],
            &["-o", "^acl,discard"],
        ),
        (
            &["--mount-options", "journal_data"],
            &["-o", "journal_data"],
        ),
        (&["--features", "large_dir"], &["-O", "large_dir"]),
        (&["--features", "ea_inode"], &["-O", "ea_inode"]),
        (&["--features", "^has_journal"], &["-O", "^has_journal"]),
    ];
    let mut wrong = String::new();
    for (ours, theirs) in cases {
        let (a, b) = (
            copy_of(&base, &place.arg("a")),
            copy_of(&base, &place.arg("b")),
        );
        extant([&["tune"], *ours, &[a.as_str()]].concat()).ok();
        tool("tune2fs").args(*theirs).arg(&b).ok();
        assert_clean(Path::new(&a));
        extant(["check", &a]).ok();
        let different = differences(Path::new(&a), Path::new(&b));
        if !different.is_empty() {
            wrong.push_str(&format!("{ours:?}: {different:#?}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn another_uuid_is_that_of_tune2fs_checksums_and_all() {
    let place = Place::new();
    let uuid = "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e";
    for (options, number) in [
        ("orphan_file", 256),
        ("inline_data,^extent,^64bit", 512),
        ("metadata_csum_seed", 256),
        ("^metadata_csum", 128),
    ] {
        let _ = std::fs::remove_dir_all(place.join("source"));
        let size = number.to_string();
        let base = place.image(&small_plan(), &["-O", options, "-I", &size]);
        let ours = copy_of(&base, &place.arg("ours"));
        let theirs = copy_of(&base, &place.arg("theirs"));
        extant(["tune", "--uuid", uuid, &ours]).ok();
        tool("tune2fs").args(["-f", "-U", uuid]).arg(&theirs).ok();
        assert_clean(Path::new(&ours));
        extant(["check", &ours]).ok();
        let header = dumpe2fs_header(Path::new(&ours));
        assert_eq!(header.field("Filesystem UUID"), uuid);
        let different = differences(Path::new(&ours), Path::new(&theirs));
        assert!(different.is_empty(), "{options}: {different:#?}");
        // Back again: every checksum is what it was.
        let before = std::fs::read(&base).unwrap();
        let old = dumpe2fs_header(Path::new(&base))
            .field("Filesystem UUID")
            .to_owned();
        extant(["tune", "--uuid", &old, &ours]).ok();
        let after = std::fs::read(&ours).unwrap();
        let blocks = before.chunks(1024).zip(after.chunks(1024));
        let differ = blocks.filter(|(a, b)| a != b).count();
        // The superblock and its copies have a time of writing.
        assert!(differ <= 8, "{options}: {differ} KiB differ");
    }
}

#[test]
fn checksums_can_keep_their_start_and_get_it_back() {
    let place = Place::new();
    let base = place.image(&small_plan(), &["-O", "^metadata_csum_seed"]);
    let uuid = "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e";
    let features = |image: &str| {
        let header = dumpe2fs_header(Path::new(image));
        header.has_feature("metadata_csum_seed")
    };
    let image = copy_of(&base, &place.arg("a"));
    extant([
        "tune",
        "--features",
        "metadata_csum_seed",
        "--uuid",
        uuid,
        &image,
    ])
    .ok();
    assert!(features(&image));
    assert_clean(Path::new(&image));
    extant(["tune", "--features", "^metadata_csum_seed", &image]).ok();
    assert!(!features(&image));
    assert_clean(Path::new(&image));
    extant(["check", &image]).ok();
}

#[test]
fn what_is_not_possible_is_refused_and_changes_nothing() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let before = std::fs::read(&image).unwrap();
    for (options, code) in [
        (&["--features", "^extents"][..], 8),
        (&["--features", "bigalloc"], 8),
        (&["--features", "frobnication"], 16),
        (&["--mount-options", "frobnication"], 16),
        (&["--label", "more than sixteen bytes"], 8),
        (&["--reserved-percent", "51"], 16),
        (&["--reserved-blocks", "99999999"], 8),
        (&["--uuid", "7c1f"], 16),
    ] {
        extant([&["tune"], options, &[image.as_str()]].concat()).fails(code);
        assert!(std::fs::read(&image).unwrap() == before, "{options:?}");
    }
    let undo = place.arg("undo");
    extant(["tune", "--label", "x", "--undo", &undo, &image]).ok();
    extant(["repair", "--revert", &undo, &image]).ok();
    assert!(
        std::fs::read(&image).unwrap() == before,
        "every byte is back"
    );
}

/// What `dumpe2fs` says of all groups.
fn groups(image: &Path) -> Vec<String> {
    let said = tool("dumpe2fs").arg(image).ok().text();
    let groups = said.lines().skip_while(|line| !line.starts_with("Group 0"));
    let without_sum = |line: &str| line.split(" csum ").next().unwrap_or(line).to_owned();
    groups.map(without_sum).collect()
}

#[test]
fn another_uuid_leaves_groups_as_they_are_that_have_sums_of_it() {
    let place = Place::new();
    let image = place.join("fs.img");
    let source = place.join("source");
    std::fs::create_dir(&source).unwrap();
    for i in 0..700 {
        std::fs::write(source.join(format!("file{i}")), "from another life").unwrap();
    }
    let options = ["-t", "ext4", "-b", "1024", "-N", "1024", "-O"];
    let source = source.to_str().unwrap();
    let all = [&options[..], &["^metadata_csum,uninit_bg", "-d", source]].concat();
    mke2fs(&image, 64 << 20, &all);
    // The tables keep their old inodes, which groups say are not in use.
    let lazy = "nodiscard,lazy_itable_init=1,lazy_journal_init=1";
    let tail = ["^metadata_csum,uninit_bg", "-E", lazy];
    let output = tool("mke2fs")
        .args(["-q", "-F"])
        .args([&options[..], &tail].concat())
        .arg(&image);
    output.ok();
    assert_clean(&image);
    let (ours, theirs) = (place.arg("ours"), place.arg("theirs"));
    std::fs::copy(&image, &ours).unwrap();
    std::fs::copy(&image, &theirs).unwrap();
    let uuid = "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e";
    extant(["tune", "--uuid", uuid, &ours]).ok();
    tool("tune2fs").args(["-f", "-U", uuid]).arg(&theirs).ok();
    assert_clean(Path::new(&ours));
    assert_eq!(groups(Path::new(&ours)), groups(Path::new(&theirs)));
    let different = differences(Path::new(&ours), Path::new(&theirs));
    assert!(different.is_empty(), "{different:#?}");
}

#[test]
fn another_uuid_is_refused_where_keys_may_come_from_it() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-O", "encrypt,stable_inodes"]);
    let before = std::fs::read(&image).unwrap();
    let uuid = "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e";
    extant(["tune", "--uuid", uuid, &image]).fails(8);
    extant(["tune", "--uuid", "random", &image]).fails(8);
    assert!(std::fs::read(&image).unwrap() == before);
    extant(["tune", "--list", "--label", "x", &image]).fails(16);
}
