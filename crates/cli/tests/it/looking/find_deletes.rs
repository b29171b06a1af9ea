//! `extant find -delete`: what goes, and that the image is sound after.

use super::{Looked, plan};
use crate::support::{Place, change, copy_of, extant, small_plan};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::path::Path;

/// What is left in an image below `/tree`: names, kinds, sizes and numbers of names.
fn left(image: &str) -> Vec<String> {
    let mount = KernelMount::mount(Path::new(image), Mode::Untouched, "");
    let tree = mount.join("tree");
    let format = ["-printf", "%P %y %n %l\\n"];
    let listed = tool("find").arg(&tree).args(format).ok().text();
    mount.unmount();
    super::sorted(&listed)
}

#[test]
fn what_find_deletes_on_a_mount_is_deleted_in_the_image() {
    require!(KernelExt4);
    let looked = Looked::with(&plan(), |_| {});
    let (image, place) = (looked.image.clone(), looked.place);
    looked.mount.unmount();
    let all = left(&image);
    for line in [
        "-type f -size +1 -delete",
        "-name nothing -delete",
        "-type d -empty -delete",
        "-type f -links 1 -delete -o -type d -empty -delete",
        "-path */sub/* -delete",
        "-type l -delete -print",
        "( -type p -o -type s -o -type c -o -type b ) -delete",
        "-mindepth 1 -delete",
        "-delete",
    ] {
        let (mine, peers) = (place.arg("mine.img"), place.arg("peers.img"));
        copy_of(&image, &mine);
        copy_of(&image, &peers);
        let words: Vec<&str> = line.split(' ').collect();
        let mount = KernelMount::mount(Path::new(&peers), Mode::ReadWrite, "");
        let tree = mount.join("tree");
        let peer = tool("find").arg(&tree).args(&words).ok().text();
        mount.unmount();
        let start = format!("{mine}:/tree");
        let run = change(&mine, [&["find", &start][..], &words].concat()).ok();
        assert_eq!(run.text().lines().count(), peer.lines().count(), "{line}");
        if line == "-delete" {
            extant(["ls", &start]).fails(1);
            continue;
        }
        let after = left(&mine);
        assert_eq!(after, left(&peers), "{line}");
        assert_eq!(after == all, line == "-name nothing -delete", "{line}");
    }
}

#[test]
fn what_rm_refuses_is_not_deleted() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    // The root has no name; what is in it goes, and the rest is said.
    let run = change(&image, ["find", &image, "-delete"]).fails(1);
    assert!(run.stderr.contains("is not removed"), "{}", run.stderr);
    assert_eq!(extant(["ls", "-A", &image]).ok().text(), "");
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let run = change(
        &image,
        ["find", &image, "-type", "d", "-name", "etc", "-delete"],
    )
    .fails(1);
    assert!(run.stderr.contains("/etc"), "{}", run.stderr);
    assert!(extant(["ls", &image]).ok().text().contains("etc\n"));
    change(&image, ["chattr", "+i", &format!("{image}:/etc/hostname")]).ok();
    let run = change(
        &image,
        ["find", &format!("{image}:/etc"), "-type", "f", "-delete"],
    )
    .fails(1);
    assert!(run.stderr.contains("/etc/hostname"), "{}", run.stderr);
    let rest = extant(["ls", "-A", &format!("{image}:/etc")]).ok().text();
    assert_eq!(rest, "absolute\nhostname\nlink\nup\n");
}

#[test]
fn deleting_needs_an_image_that_is_free_and_whole() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    extant(["find", "--as-is", &image, "-delete"]).fails(2);
    extant(["find", &image, "-name", "x", "-prune", "-o", "-delete"]).fails(2);
    let before = std::fs::read(&image).unwrap();
    extant(["find", &image, "-name", "[", "-o", "-size", "99G", "-print"]).ok();
    assert!(before == std::fs::read(&image).unwrap());
}
