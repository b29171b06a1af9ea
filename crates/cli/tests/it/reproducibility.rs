//! Changes of images that depend on nothing but what goes in.

use crate::support::{Place, copy_of, extant, extant_with, small_plan};
use extant_testkit::oracle::{assert_clean, e2fsck};
use std::path::Path;

/// The moment that stands for now.
const MOMENT: u64 = 1_600_000_000;

/// Changes an image in every way there is, with the clock at [`MOMENT`], and returns its bytes.
fn changed(image: &str, tree: &str) -> Vec<u8> {
    let at = |path: &str| format!("{image}:{path}");
    for line in [
        &["mkdir", &at("/new")][..],
        &["cp", tree, &at("/new/file"), "-r"],
        &["cp", "-a", &format!("{tree}/."), &at("/all")],
        &["cp", "-a", &format!("{tree}/."), &at("/all")],
        &["touch", &at("/new/touched")],
        &["truncate", "-s", "100000", &at("/new/long")],
        &["fallocate", "-l", "20000", &at("/new/kept")],
        &["ln", &at("/etc/hostname"), &at("/new/hard")],
        &["ln", "-sf", "target", &at("/new/hard")],
        &["mv", &at("/usr/lib/sparse"), &at("/new/moved")],
        &["rm", "-r", &at("/usr")],
        &["mkdir", &at("/usr")],
        &["chmod", "700", &at("/etc")],
        &["chown", "5:6", &at("/etc/hostname")],
        &["mknod", &at("/new/pipe"), "p"],
        &["xattr", "set", &at("/etc"), "user.a", "value"],
        &["acl", "set", "u:5:rwx", &at("/etc")],
        &["chattr", "+A", &at("/etc/hostname")],
        &["tune", image, "--label", "other"],
        &["resize", image, "40M"],
    ] {
        let run = extant_with(line, |command| {
            command.env("SOURCE_DATE_EPOCH", MOMENT.to_string());
        });
        run.ok();
    }
    assert_clean(Path::new(image));
    std::fs::read(image).unwrap()
}

#[test]
fn with_a_source_date_the_same_changes_give_the_same_bytes() {
    let place = Place::in_memory();
    let image = place.image(&small_plan(), &["-O", "quota"]);
    let source = place.arg("source");
    // mke2fs counts the quotas before it copies the tree.
    e2fsck(Path::new(&image), &["-fy"]);
    assert_clean(Path::new(&image));
    let before = std::fs::read(&image).unwrap();
    let copies = ["one.img", "two.img"].map(|name| copy_of(&image, &place.arg(name)));
    let [one, two] = copies.each_ref().map(|copy| changed(copy, &source));
    let differs = (0..one.len()).find(|&at| one[at] != two[at]);
    assert!(one.len() == two.len() && differs.is_none(), "{differs:?}");
    assert!(one != before);
    let stat = |path: &str| {
        let run = extant(["stat", "--json", &format!("{}:{path}", copies[0])]).ok();
        run.json()
    };
    let moment = "2020-09-13T12:26:40Z";
    for field in ["atime", "mtime", "ctime", "crtime"] {
        assert_eq!(stat("/new/touched")[field], moment, "{field}");
    }
    // What the source says of later times is held to that moment as well.
    assert_eq!(stat("/all/etc/hostname")["ctime"], moment);
}

#[test]
fn a_source_date_that_is_none_is_refused_before_anything_is_changed() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let before = std::fs::read(&image).unwrap();
    let file = format!("{image}:/etc/hostname");
    for wrong in ["yesterday", "-1", "1.5", "99999999999"] {
        for (line, code) in [
            (&["rm", &file][..], 2),
            (&["touch", &file], 2),
            (&["mkfs", &image, "--force"], 2),
            (&["tune", &image, "--label", "x"], 16),
            (&["resize", &image, "40M"], 16),
            (&["ls", &image], 0),
        ] {
            let run = extant_with(line, |command| {
                command.env("SOURCE_DATE_EPOCH", wrong);
            });
            assert_eq!(run.code, code, "{line:?}: {}", run.stderr);
            assert!(code == 0 || run.stderr.contains(wrong), "{}", run.stderr);
        }
    }
    assert!(std::fs::read(&image).unwrap() == before);
    extant_with(["touch", &file], |command| {
        command.env("SOURCE_DATE_EPOCH", "");
    })
    .ok();
}
