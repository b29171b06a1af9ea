//! Images that want to write outside the destination.

use crate::support::{Place, extant, small_plan};
use extant_testkit::oracle::debugfs_write;
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::tool::tool;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A directory that nothing may be written to.
fn outside(place: &Place) -> String {
    let outside = place.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), "untouched").unwrap();
    outside.display().to_string()
}

#[track_caller]
fn assert_untouched(outside: &str) {
    let names: Vec<_> = std::fs::read_dir(outside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["precious"]);
    let content = std::fs::read(Path::new(outside).join("precious")).unwrap();
    assert_eq!(content, b"untouched");
}

/// An image where `xx` is a symbolic link to `target` and also a directory with a file `precious`.
fn image_with_collision(place: &Place, target: &str, link_first: bool) -> String {
    let image = place.image(&TreePlan::new(), &["-O", "^metadata_csum"]);
    std::fs::write(place.join("content"), "hostile").unwrap();
    let link = format!("symlink x1 {target}");
    let write = format!("write {} x2/precious", place.arg("content"));
    let directory = ["mkdir x2", &write];
    let mut requests = directory.to_vec();
    requests.insert(if link_first { 0 } else { 2 }, &link);
    debugfs_write(Path::new(&image), &requests);
    patch(&image, b"\x02\x07x1", b"\x02\x07xx");
    patch(&image, b"\x02\x02x2", b"\x02\x02xx");
    image
}

/// Replaces the first occurrence of some bytes in an image.
fn patch(image: &str, old: &[u8], new: &[u8]) {
    let mut bytes = std::fs::read(image).unwrap();
    let at = bytes
        .windows(old.len())
        .position(|window| window == old)
        .expect("the bytes are there");
    bytes[at..at + old.len()].copy_from_slice(new);
    std::fs::write(image, bytes).unwrap();
}

#[test]
fn a_link_and_a_directory_of_one_name_lead_nowhere() {
    for link_first in [true, false] {
        let place = Place::new();
        let outside = outside(&place);
        let image = image_with_collision(&place, &outside, link_first);
        let run = extant(["cp", "-a", &image, &place.arg("out")]).fails(1);
        assert!(run.stderr.contains("twice"), "{}", run.stderr);
        assert_untouched(&outside);
    }
}

#[test]
fn links_of_the_image_are_copied_and_not_followed() {
    let place = Place::new();
    let outside = outside(&place);
    let mut plan = small_plan();
    plan.symlink("out", outside.clone());
    plan.symlink("far", "../../../../../../../../etc");
    let image = place.image(&plan, &[]);
    extant(["cp", "-a", &image, &place.arg("copy")]).ok();
    extant(["cp", "-a", &image, &place.arg("copy")]).ok();
    let link = std::fs::read_link(place.join("copy/out")).unwrap();
    assert_eq!(link, Path::new(&outside));
    assert_untouched(&outside);
}

#[test]
fn links_in_the_destination_are_not_followed() {
    let place = Place::new();
    let outside = outside(&place);
    let mut plan = TreePlan::new();
    plan.dir("dir");
    plan.file("dir/precious", Content::filled(1, 100));
    plan.file("file", Content::filled(2, 100));
    let image = place.image(&plan, &[]);
    std::fs::create_dir(place.join("out")).unwrap();
    symlink(&outside, place.join("out/dir")).unwrap();
    symlink(Path::new(&outside).join("precious"), place.join("out/file")).unwrap();
    let run = extant(["cp", "-a", &image, &place.arg("out")]).fails(1);
    assert!(run.stderr.contains("dir"), "{}", run.stderr);
    assert_untouched(&outside);
    let file = place.join("out/file").symlink_metadata().unwrap();
    assert!(file.is_file(), "the link was replaced, not written through");
}

#[test]
fn names_that_are_paths_are_refused() {
    for (planted, hostile) in [("AABB", "../B"), ("AA", ".."), ("AAA", "a/b")] {
        let place = Place::new();
        let mut plan = TreePlan::new();
        plan.dir("d");
        plan.file(format!("d/{planted}"), Content::filled(1, 100));
        plan.file("d/sound", Content::filled(2, 100));
        let image = place.image(&plan, &["-O", "^metadata_csum"]);
        let entry = |name: &str| [&[name.len() as u8, 1], name.as_bytes()].concat();
        patch(&image, &entry(planted), &entry(hostile));
        std::fs::create_dir(place.join("in")).unwrap();
        extant(["cp", "-a", &image, &place.arg("in/out")]).fails(1);
        let made: Vec<_> = std::fs::read_dir(place.join("in"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(made, ["out"], "{hostile}");
        extant(["tar", &image, "-o", &place.arg("out.tar")]).fails(1);
        if place.join("out.tar").exists() {
            // What is in it is what can be unpacked.
            let names = tool("tar")
                .arg("-tf")
                .arg(place.join("out.tar"))
                .ok()
                .text();
            assert!(!names.contains(hostile), "{names}");
            // No directory has a `/` in a name: its block is read up to there at most.
            let is_read = !hostile.contains('/');
            assert!(!is_read || names.contains("sound"), "{names}");
        }
    }
}

#[test]
fn a_directory_in_two_places_does_not_make_an_endless_tree() {
    let place = Place::new();
    let mut plan = TreePlan::new();
    plan.dir("a");
    plan.dir("a/b");
    plan.file("a/b/file", Content::filled(1, 100));
    let image = place.image(&plan, &[]);
    debugfs_write(Path::new(&image), &["ln a a/b/again"]);
    for args in [
        vec!["cp", "-a", &image, &place.arg("out")],
        vec!["find", &image],
        vec!["tree", &image],
        vec!["ls", "-R", &image],
        vec!["tar", &image, "-o", &place.arg("out.tar")],
    ] {
        let run = extant(&args).fails(1);
        assert!(run.stderr.contains("second place"), "{}", run.stderr);
    }
    assert!(place.join("out/a/b/file").is_file());
}

#[test]
fn messages_do_not_carry_escape_sequences() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let run = extant(["cat", &format!("{image}:/\x1b[31mred")]).fails(1);
    assert!(!run.stderr.contains('\x1b'), "{:?}", run.stderr);
    assert!(run.stderr.contains("\\x1b[31mred"), "{}", run.stderr);
}
