//! `quota`.

use crate::support::{Place, extant};
use extant_testkit::oracle::{debugfs, e2fsck, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use std::path::Path;

/// An image with a file of user 7 and group 8, which e2fsck has counted.
fn counted(place: &Place, features: &str) -> String {
    let mut plan = TreePlan::new();
    plan.file("theirs", Content::filled(9, 200_000)).owner(7, 8);
    let image = place.image(&plan, &["-O", features]);
    let run = e2fsck(Path::new(&image), &["-fy"]);
    assert!(run.code <= 1, "{run}");
    image
}

#[test]
fn quota_shows_what_the_image_counts() {
    require!(Root);
    let place = Place::new();
    let image = counted(&place, "quota,project");
    let all = extant(["quota", "--json", &image]).ok().json();
    for (kind, ids) in [
        ("user", vec![0, 7]),
        ("group", vec![0, 8]),
        ("project", vec![0]),
    ] {
        let entries = all[kind]["entries"].as_array().unwrap();
        let listed = debugfs(Path::new(&image), &format!("list_quota {kind}"));
        let rows: Vec<Vec<u64>> = listed
            .lines()
            .skip(1)
            .map(|line| {
                line.split_whitespace()
                    .map(|n| n.parse().unwrap())
                    .collect()
            })
            .collect();
        let row = |entry: &serde_json::Value| {
            assert!(entry["space_hard"].is_null() && entry["inode_soft"].is_null());
            ["id", "space", "inodes"].map(|key| entry[key].as_u64().unwrap())
        };
        let ours: Vec<[u64; 3]> = entries.iter().map(row).collect();
        let theirs: Vec<[u64; 3]> = rows.iter().map(|row| [row[0], row[1], row[4]]).collect();
        assert_eq!(ours, theirs, "{kind}");
        assert_eq!(
            ours.iter().map(|row| row[0]).collect::<Vec<_>>(),
            ids,
            "{kind}"
        );
        assert_eq!(all[kind]["space_grace_seconds"], 7 * 24 * 3600);
    }
    let one = extant(["quota", "--json", "--user", "--id", "7", &image])
        .ok()
        .json();
    assert_eq!(one["user"]["entries"][0], all["user"]["entries"][1]);
    assert!(one["group"].is_null());
    let text = extant(["quota", "-g", &image]).ok().text();
    let line = text.lines().find(|line| line.starts_with("8 ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["8", "196", "KiB", "-", "-", "1", "-", "-"]);
    // Who has nothing uses nothing.
    let none = extant(["quota", "--json", "-p", "--id", "5", &image])
        .ok()
        .json();
    assert_eq!(none["project"]["entries"][0]["space"], 0);
}

#[test]
fn what_is_not_counted_is_said() {
    require!(Root);
    let place = Place::new();
    let image = counted(&place, "quota");
    let both = extant(["quota", "--json", &image]).ok().json();
    assert!(both["user"].is_object() && both["project"].is_null());
    let run = extant(["quota", "--project", &image]).fails(1);
    let expected = "the image does not count what projects use";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
    extant(["quota", &format!("{image}:/theirs")]).fails(2);
    let plain = place.join("plain.img");
    mke2fs(&plain, 4 << 20, &["-t", "ext4"]);
    let run = extant(["quota", plain.to_str().unwrap()]).fails(1);
    assert!(run.stderr.contains("no feature quota"), "{}", run.stderr);
}

#[test]
fn what_is_changed_is_counted() {
    require!(Root);
    let place = Place::new();
    let image = counted(&place, "quota");
    let before = extant(["quota", "--json", &image]).ok().json();
    extant(["mkdir", &format!("{image}:/new")]).ok();
    extant(["rm", &format!("{image}:/theirs")]).ok();
    let after = extant(["quota", "--json", &image]).ok().json();
    let inodes = |quota: &serde_json::Value, user: usize| {
        quota["user"]["entries"][user]["inodes"].as_u64().unwrap()
    };
    assert_eq!(inodes(&after, 0), inodes(&before, 0) + 1);
    assert_eq!([inodes(&before, 1), inodes(&after, 1)], [1, 0]);
    assert_eq!(after["user"]["entries"][1]["space"], 0);
    let run = e2fsck(Path::new(&image), &["-fn"]);
    assert_eq!(run.code, 0, "{run}");
}
