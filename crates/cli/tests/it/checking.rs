//! `extant check`: verdicts and exit codes.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, debugfs_write};

#[test]
fn a_sound_image_is_clean_and_a_damaged_one_is_not() {
    let place = Place::new();
    let image = place.join("image");
    let name = image.to_str().unwrap();
    extant(["mkfs", "--size", "32M", "--quiet", name]).ok();
    let sound = extant(["check", name]).ok().text();
    assert!(sound.contains(": clean, 11 inodes in use"), "{sound}");
    assert_eq!(extant(["check", "--quiet", name]).ok().text(), "");
    debugfs_write(&image, &["sif <2> links_count 9"]);
    let damaged = extant(["check", name]);
    assert_eq!(damaged.code, 4, "{}", damaged.stderr);
    let line = "error link-count: inode 2: link count is 9, expected 3\n";
    assert!(damaged.text().contains(line), "{}", damaged.text());
    let lines = extant(["check", "--json", name]).lines();
    assert_eq!(lines[0]["code"], "link-count");
    assert_eq!(lines[0]["inode"], 2);
    assert_eq!(lines.last().unwrap()["clean"], false);
}

#[test]
fn without_a_verdict_the_exit_codes_are_those_of_e2fsck() {
    let place = Place::new();
    let nothing = place.join("nothing");
    std::fs::write(&nothing, vec![0; 1 << 20]).unwrap();
    extant(["check", nothing.to_str().unwrap()]).fails(8);
    extant(["check", "/does/not/exist"]).fails(8);
    extant(["check"]).fails(16);
    extant(["check", "--frobnicate", "x"]).fails(16);
}

#[test]
fn what_the_other_commands_write_is_clean() {
    let place = Place::new();
    let tree = place.join("tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    for i in 0..400 {
        std::fs::write(tree.join(format!("a/b/file {i}")), vec![1; i * 100]).unwrap();
    }
    let tree = tree.to_str().unwrap();
    for options in [
        &[][..],
        &["--block-size", "1K"],
        &["--features", "^has_journal"],
    ] {
        let image = place.join("image");
        let name = image.to_str().unwrap();
        let at = |path: &str| format!("{name}:{path}");
        let mkfs = [&["mkfs", "--size", "64M", "--quiet"], options, &[name]].concat();
        extant(mkfs).ok();
        extant(["cp", "-a", tree, &at("/one")]).ok();
        extant(["cp", "-a", tree, &at("/two")]).ok();
        extant(["check", name]).ok();
        extant(["rm", "-r", &at("/one/a/b")]).ok();
        extant(["mv", &at("/two/a"), &at("/three")]).ok();
        extant(["truncate", "-s", "5K", &at("/three/b/file 399")]).ok();
        extant(["ln", "-s", "three", &at("/link")]).ok();
        extant(["ln", &at("/three/b/file 7"), &at("/hard")]).ok();
        extant(["check", name]).ok();
        assert_clean(&image);
    }
}
