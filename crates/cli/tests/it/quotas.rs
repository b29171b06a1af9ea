//! `quota`.

use crate::support::{Place, extant};
use extant_testkit::oracle::{debugfs, e2fsck, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use std::path::Path;

/// An image with a file of user 7 and group 8, which e2fsck has counted.
pub(crate) fn counted(place: &Place, features: &str) -> String {
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
    // A user without files uses nothing.
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

/// The row of an owner as debugfs lists it: space, soft and hard limit in KiB, inodes, soft and
/// hard limit.
fn row(image: &str, kind: &str, id: u32) -> Vec<u64> {
    let listed = debugfs(Path::new(image), &format!("list_quota {kind}"));
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let mut rows = listed.lines().skip(1).map(numbers);
    let found = rows.find(|row| row[0] == u64::from(id));
    found.map_or_else(Vec::new, |row| row[1..].to_vec())
}

#[test]
fn limits_are_set_one_by_one_and_taken_away() {
    require!(Root);
    let place = Place::new();
    let image = counted(&place, "quota,project");
    let set = |args: &str| {
        let words = ["quota", &image].into_iter().chain(args.split(' '));
        extant(words.collect::<Vec<_>>())
    };
    let user = |id: &str| {
        let shown = extant(["quota", "--json", "-u", "--id", id, &image]).ok();
        shown.json()["user"]["entries"][0].clone()
    };
    set("--user --id 7 --space-soft 1M --space-hard 1.5G").ok();
    set("-u --id 7 --inode-hard 20").ok();
    let seven = user("7");
    assert_eq!(seven["space_soft"], 1 << 20);
    assert_eq!(seven["space_hard"], 3 << 29);
    assert_eq!(seven["inode_hard"], 20);
    assert!(seven["inode_soft"].is_null() && seven["space_grace_ends"].is_null());
    let theirs = row(&image, "user", 7);
    assert_eq!(theirs[1..], [1 << 10, 3 << 19, 1, 0, 20], "{theirs:?}");
    // More is in use than that: the time of grace begins. A user without files gets limits, too.
    set("-u --id 7 --space-soft 100K --space-hard 0").ok();
    let seven = user("7");
    assert!(seven["space_hard"].is_null());
    assert!(seven["space_grace_ends"].as_u64().unwrap() > 1_700_000_000);
    set("-g -p --id 4000000000 --inode-soft 3").ok();
    for kind in ["group", "project"] {
        let theirs = row(&image, kind, 4_000_000_000);
        assert_eq!(theirs[1..], [0, 0, 0, 3, 0], "{kind}: {theirs:?}");
    }
    set("-u -g --space-grace 12h --inode-grace 90").ok();
    set("-g --space-grace 1w").ok();
    let all = extant(["quota", "--json", &image]).ok().json();
    let graces = |kind: &str| {
        ["space", "inode"].map(|side| all[kind][format!("{side}_grace_seconds")].as_u64().unwrap())
    };
    assert_eq!(graces("user"), [12 * 3600, 90]);
    assert_eq!(graces("group"), [7 * 86_400, 90]);
    assert_eq!(graces("project"), [7 * 86_400, 7 * 86_400]);
    let run = e2fsck(Path::new(&image), &["-fn"]);
    assert_eq!(run.code, 0, "{run}");

    for (args, advice) in [
        ("--id 7 --space-hard 1M", "whose limits"),
        ("-u --space-hard 1M", "--id"),
        ("-u --id 7 --space-grace 1d", "cannot be used with"),
        ("-u --id 7 --space-hard 1X", "is not a size"),
        ("-u --space-grace 3y", "such as 7d"),
        ("-u --space-grace 99999999w", "49710 days"),
        ("-u --id 7 --space-hard 1M --json", "for showing"),
    ] {
        let run = set(args).fails(2);
        assert!(run.stderr.contains(advice), "{args}: {}", run.stderr);
    }
    let image = counted(&Place::new(), "quota");
    let run = extant(["quota", &image, "-p", "--id", "1", "--inode-hard", "5"]);
    assert!(run.code == 1, "{}", run.stderr);
}

#[test]
fn files_are_given_to_projects() {
    require!(Root);
    let place = Place::new();
    let mut plan = TreePlan::new();
    plan.dir("srv");
    plan.dir("srv/in");
    for name in ["srv/one", "srv/in/two", "apart"] {
        plan.file(name, Content::filled(9, 200_000));
    }
    plan.symlink("srv/link", "/apart");
    let image = place.image(&plan, &["-O", "quota,project"]);
    assert!(e2fsck(Path::new(&image), &["-fy"]).code <= 1);
    let inside = |path: &str| format!("{image}:{path}");
    extant(["chattr", "-R", "-p", "42", "+P", &inside("/srv")]).ok();
    extant(["chattr", "--project", "7", &inside("/apart")]).ok();
    extant(["mkdir", &inside("/srv/in/later")]).ok();
    let project = |path: &str| {
        let shown = debugfs(Path::new(&image), &format!("stat {path}"));
        let number = shown.split("Project:").nth(1).unwrap();
        number
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u32>()
            .unwrap()
    };
    for (path, expected) in [
        ("/srv", 42),
        ("/srv/one", 42),
        ("/srv/in/two", 42),
        ("/srv/in/later", 42),
        ("/apart", 7),
        ("/", 0),
    ] {
        assert_eq!(project(path), expected, "{path}");
    }
    let listed = extant(["lsattr", "-p", &inside("/srv")]).ok().text();
    let line = listed
        .lines()
        .find(|line| line.ends_with("/srv/in"))
        .unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words[0] == "42" && words[1].contains('P'), "{line}");
    let count = |id: &str| {
        let shown = extant(["quota", "--json", "-p", "--id", id, &image]).ok();
        shown.json()["project"]["entries"][0]["inodes"].clone()
    };
    assert_eq!([count("42"), count("7")], [5, 1]);
    let run = e2fsck(Path::new(&image), &["-fn"]);
    assert_eq!(run.code, 0, "{run}");
    // A name may not carry a file into a directory of another project.
    extant(["ln", &inside("/apart"), &inside("/srv/apart")]).fails(1);

    extant(["chattr", "+i", &inside("/apart")]).ok();
    extant(["chattr", "-p", "8", &inside("/apart")]).fails(1);
    extant(["chattr", "-p", "8", "-i", &inside("/apart")]).ok();
    assert_eq!(project("/apart"), 8);
    extant(["chattr", "-p", "8"]).fails(2);
    extant(["chattr", "-p", "8", "+i"]).fails(2);
    extant(["chattr", "-p", "x", &inside("/apart")]).fails(2);
    let plain = place.join("plain.img");
    mke2fs(&plain, 4 << 20, &["-t", "ext4"]);
    let run = extant(["chattr", "-p", "8", &format!("{}:/", plain.display())]).fails(1);
    assert!(run.stderr.contains("project"), "{}", run.stderr);
}
