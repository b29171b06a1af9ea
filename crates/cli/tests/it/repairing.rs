//! `extant repair`: dry runs, undo files and exit codes.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, debugfs_write};

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
