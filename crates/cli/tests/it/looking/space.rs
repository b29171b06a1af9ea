//! `extant du` beside du(1).

use super::{Looked, extant_plain, plan, sorted};
use crate::support::{Place, extant, small_plan};
use extant_testkit::require;

#[test]
fn space_is_counted_as_du_does() {
    require!(KernelExt4);
    // Which directory a file with names in two of them is counted in depends on their order.
    let plan = plan().filtered(|node| node.path != b"tree/again");
    let looked = Looked::with(&plan, |_| {});
    for options in [
        "",
        "-a",
        "-s",
        "-c",
        "-h",
        "-ah",
        "-sh",
        "-x",
        "-d0",
        "-d1",
        "-d2",
        "-ad1",
        "-ac",
        "-sc",
        "--apparent-size",
        "-a --apparent-size",
        "-b",
        "-ab",
        "-h --apparent-size",
        "--inodes",
        "-a --inodes",
        "-sc --inodes",
    ] {
        for operands in [
            &["@/tree"][..],
            &["@/tree/sub", "@/tree/old", "@/tree/sub/deep"],
            &["@/tree/sub/deep", "@/tree", "@/tree/a", "@/tree/Empty2"],
            &["@/tree/link", "@/tree/null", "@/tree/sparse"],
        ] {
            let options: Vec<&str> = options.split(' ').filter(|word| !word.is_empty()).collect();
            let in_mount: Vec<String> = operands.iter().map(|o| looked.in_mount(o)).collect();
            let mut peer = vec!["du"];
            peer.extend(&options);
            peer.extend(in_mount.iter().map(String::as_str));
            let peer = looked.peer(&peer);
            assert_eq!(peer.code, 0, "{}", peer.stderr);
            let peer = peer.text().replace(&looked.mounted(), "");
            let mut mine = vec!["du".to_owned()];
            mine.extend(options.iter().map(|word| (*word).to_owned()));
            mine.extend(operands.iter().map(|o| looked.in_image(o)));
            let mine = extant_plain(&mine).ok().text();
            assert_eq!(
                comparable(&mine),
                comparable(&peer),
                "{options:?} {operands:?}"
            );
        }
    }
}

/// Lines in order. Which of its names a file is counted by depends on the order of a directory: it
/// is told by what it takes up only.
fn comparable(text: &str) -> Vec<String> {
    let of = |line: String| match line.rsplit_once('/') {
        Some((_, "a" | "Empty2")) => {
            let amount = line.split('\t').next().unwrap_or_default();
            format!("{amount}\ta file with two names")
        }
        _ => line,
    };
    let mut lines: Vec<String> = sorted(text).into_iter().map(of).collect();
    lines.sort();
    lines
}

#[test]
fn json_has_all_sums_of_each_directory() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let lines = extant(["du", "--json", "-c", &image]).ok().lines();
    let total = lines.last().unwrap();
    assert_eq!(total["total"], true);
    let root = &lines[lines.len() - 2];
    assert_eq!(root["path"], "/");
    for field in ["space", "bytes", "inodes"] {
        assert_eq!(root[field], total[field], "{field}");
    }
    // One inode has two names.
    let names = extant(["find", &image, "-print0"]).ok().stdout;
    let names = names.iter().filter(|byte| **byte == 0).count() as u64;
    assert_eq!(root["inodes"].as_u64(), Some(names - 1));
    let run = extant([
        "du",
        "-s",
        &format!("{image}:/nothing"),
        &format!("{image}:/etc"),
    ])
    .fails(1);
    assert!(run.text().ends_with("\t/etc\n"), "{}", run.text());
    extant(["du", "-as", &image]).fails(2);
}
