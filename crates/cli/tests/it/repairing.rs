//! `extant repair`: dry runs, undo files and exit codes.

use crate::support::{Place, extant};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::oracle::{assert_clean, debugfs_write};
use extant_testkit::require;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[test]
fn a_repair_is_shown_made_and_taken_back() {
    let place = Place::new();
    let image = place.join("image");
    let name = image.to_str().unwrap();
    extant(["mkfs", "--size", "32M", "--quiet", name]).ok();
    let nothing = extant(["repair", name]).ok().text();
    assert!(nothing.contains("clean, nothing to do"), "{nothing}");

    debugfs_write(&image, &["sif <2> links_count 9", "setb 5000"]);
    let damaged = std::fs::read(&image).unwrap();
    let line = "link-count: inode 2: link count is 3, was 9\n";
    let shown = extant(["repair", "--dry-run", "--verbose", name]);
    assert_eq!(shown.code, 4, "{}", shown.stderr);
    assert!(shown.text().contains(line), "{}", shown.text());
    assert!(shown.text().contains(" -> "), "{}", shown.text());
    assert!(
        shown.text().contains("would be clean: "),
        "{}",
        shown.text()
    );
    assert!(
        std::fs::read(&image).unwrap() == damaged,
        "a dry run writes nothing"
    );

    let undo = place.arg("undo");
    let made = extant(["repair", "--undo", &undo, name]);
    assert_eq!(made.code, 1, "{}", made.stderr);
    assert!(made.text().contains(line), "{}", made.text());
    assert_clean(&image);
    extant(["check", name]).ok();
    let lines = extant(["repair", "--json", name]).ok().lines();
    assert_eq!(lines.last().unwrap()["clean"], true);

    extant(["repair", "--revert", &undo, name]).ok();
    assert!(
        std::fs::read(&image).unwrap() == damaged,
        "every byte is back"
    );
    // An undo file is not written over.
    extant(["repair", "--undo", &undo, name]).fails(8);
    assert!(std::fs::read(&image).unwrap() == damaged);
}

#[test]
fn what_cannot_be_repaired_has_the_exit_codes_of_e2fsck() {
    let place = Place::new();
    let nothing = place.join("nothing");
    std::fs::write(&nothing, vec![0; 1 << 20]).unwrap();
    extant(["repair", nothing.to_str().unwrap()]).fails(8);
    extant(["repair", "/does/not/exist"]).fails(8);
    extant(["repair"]).fails(16);
    extant(["repair", "-n", "--undo", "x", "y"]).fails(16);
}

/// An image of which more than sums is wrong, and what it holds.
fn damaged(image: &Path) -> Vec<u8> {
    extant(["mkfs", "--size", "16M", "--quiet", image.to_str().unwrap()]).ok();
    debugfs_write(image, &["sif <2> links_count 9"]);
    std::fs::read(image).unwrap()
}

#[test]
fn a_repair_keeps_what_was_there_beside_the_image_and_never_over_an_older_file() {
    let place = Place::new();
    let image = place.join("it's an image");
    let before = damaged(&image);
    let name = image.to_str().unwrap();
    let made = extant(["repair", name]);
    assert_eq!(made.code, 1, "{}", made.stderr);
    let undo = PathBuf::from(format!("{name}.undo"));
    let kept = std::fs::read(&undo).unwrap();
    let mode = std::fs::metadata(&undo).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "what an image holds is for its owner");
    let after = std::fs::read(&image).unwrap();
    // The command that is shown is the one that takes it back.
    let text = made.text();
    let (_, command) = text.split_once("to take it back: extant ").expect(&text);
    let script = format!("exec \"$0\" {command}");
    let run = |script: &str| {
        let done = extant_testkit::tool::tool("bash").arg("-c").arg(script);
        done.arg(env!("CARGO_BIN_EXE_extant")).ok();
    };
    run(&script);
    assert!(
        std::fs::read(&image).unwrap() == before,
        "every byte is back"
    );

    let again = extant(["repair", "--json", name]);
    assert_eq!(again.code, 1, "{}", again.stderr);
    let second = format!("{name}.undo.1");
    assert_eq!(again.lines().last().unwrap()["undo"], second);
    assert!(
        std::fs::read(&undo).unwrap() == kept,
        "the older file is as it was"
    );
    assert!(std::fs::read(&image).unwrap() == after);
    extant(["repair", "--revert", &second, name]).ok();
    assert!(std::fs::read(&image).unwrap() == before);

    assert_eq!(extant(["repair", "--no-undo", "--quiet", name]).code, 1);
    assert!(!Path::new(&format!("{name}.undo.2")).exists());
    extant(["repair", name]).ok();
    assert!(
        !Path::new(&format!("{name}.undo.2")).exists(),
        "there was nothing to keep"
    );
}

#[test]
fn where_nothing_can_be_kept_beside_the_image_a_repair_asks() {
    let place = Place::new();
    // With ".undo" behind it, no name can be that long.
    let image = place.join(&"n".repeat(252));
    let before = damaged(&image);
    let name = image.to_str().unwrap();
    let asked = extant(["repair", name]).fails(8);
    assert!(asked.stderr.contains("--no-undo"), "{}", asked.stderr);
    assert!(std::fs::read(&image).unwrap() == before);
    let undo = place.arg("undo");
    assert_eq!(extant(["repair", "--undo", &undo, name]).code, 1);
    extant(["repair", "--revert", &undo, name]).ok();
    assert!(std::fs::read(&image).unwrap() == before);
    assert_eq!(extant(["repair", "--no-undo", name]).code, 1);
    assert_clean(&image);
    // Sums are no loss.
    debugfs_write(&image, &["ssv free_blocks_count 7"]);
    assert_eq!(extant(["repair", name]).code, 1);
    assert_clean(&image);
    extant(["repair", "--no-undo", "--undo", "x", name]).fails(16);
    extant(["repair", "--allow-loss", "--revert", "x", name]).fails(16);
}

#[test]
fn a_device_is_repaired_with_an_undo_file_or_expressly_without() {
    require!(Root, LoopDevices);
    let place = Place::new();
    let image = place.join("image");
    let before = damaged(&image);
    let device = LoopDevice::attach(&image, Access::ReadWrite).unwrap();
    let name = device.path().to_str().unwrap();
    let asked = extant(["repair", name]).fails(8);
    assert!(asked.stderr.contains("--undo FILE"), "{}", asked.stderr);
    assert!(!Path::new(&format!("{name}.undo")).exists());
    assert!(std::fs::read(&image).unwrap() == before);
    let undo = place.arg("undo");
    assert_eq!(extant(["repair", "--undo", &undo, name]).code, 1);
    extant(["repair", "--revert", &undo, name]).ok();
    assert_eq!(extant(["repair", "--no-undo", name]).code, 1);
    drop(device);
    assert_clean(&image);
}
