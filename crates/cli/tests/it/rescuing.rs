//! `log`, `deleted` and `recover`.

use crate::support::{Place, extant};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{debugfs_write, mke2fs};
use extant_testkit::require;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// An image of which Linux has removed `/d`, with a tree below it, and the content of its files.
fn removed_by_linux(place: &Place) -> Vec<(String, Vec<u8>)> {
    let image = place.join("image");
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-b", "1024"]);
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "commit=600");
    // The time of a mount has no parts of a second, and the log has to end behind it.
    std::thread::sleep(Duration::from_millis(1100));
    fs::create_dir_all(mount.join("d/below")).unwrap();
    fs::write(mount.join("stays"), "here\n").unwrap();
    let mut held = Vec::new();
    for (n, path) in ["d/one", "d/below/two", "d/below/three"].iter().enumerate() {
        let bytes: Vec<u8> = (0..40_000_u32)
            .map(|i| (i % 251) as u8 + n as u8 + 1)
            .collect();
        fs::write(mount.join(path), &bytes).unwrap();
        held.push(((*path).to_owned(), bytes));
    }
    fs::set_permissions(mount.join("d/one"), Permissions::from_mode(0o6751)).unwrap();
    symlink("one", mount.join("d/link")).unwrap();
    let kind = rustix::fs::FileType::CharacterDevice;
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let number = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(rustix::fs::CWD, mount.join("d/null"), kind, mode, number).unwrap();
    mount.sync();
    fs::remove_dir_all(mount.join("d")).unwrap();
    mount.unmount();
    held
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            names.insert(path.strip_prefix(dir).unwrap().display().to_string());
            if path.symlink_metadata().unwrap().is_dir() {
                left.push(path);
            }
        }
    }
    names
}

#[test]
fn what_linux_removed_is_listed_and_brought_back() {
    require!(KernelExt4);
    let place = Place::new();
    let held = removed_by_linux(&place);
    let image = place.arg("image");
    let before = fs::read(&image).unwrap();
    let listed = extant(["deleted", "--json", &image]).ok().lines();
    for (path, bytes) in &held {
        let path = format!("/{path}");
        let line = listed.iter().find(|line| line["path"] == path.as_str());
        let line = line.unwrap_or_else(|| panic!("{path}: {listed:?}"));
        assert_eq!(line["verdict"], "whole", "{line}");
        assert_eq!(line["size"], bytes.len(), "{line}");
        assert_eq!(line["source"], "log");
        assert_eq!(line["path_sure"], true);
        assert!(line["deleted"].is_string() && line["as_of"].is_string());
    }
    let below = extant(["deleted", &format!("{image}:/d/below")])
        .ok()
        .text();
    assert_eq!(below.lines().count(), 3, "{below}");
    assert!(below.contains("/d/below/two"), "{below}");

    let out = place.join("out");
    let dir = place.arg("out");
    let told = extant(["recover", &image, "--all", "-d", &dir]).ok().text();
    let sums = "6 brought back: 4 whole, 0 likely, 0 in part, 2 directories; ";
    assert!(told.contains(sums), "{told}");
    for (path, bytes) in &held {
        assert!(fs::read(out.join(path)).unwrap() == *bytes, "{path}");
    }
    let found: Vec<String> = names_in(&out).into_iter().collect();
    // A device is not made, and no file has set-ID bits.
    let expected = [
        "d",
        "d/below",
        "d/below/three",
        "d/below/two",
        "d/link",
        "d/one",
    ];
    assert_eq!(found, expected);
    let mode = fs::metadata(out.join("d/one"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o751);
    assert_eq!(fs::read_link(out.join("d/link")).unwrap(), Path::new("one"));

    // What is there stays as it is.
    fs::write(out.join("d/one"), "mine").unwrap();
    let run = extant(["recover", &image, "/d/one", "-d", &dir]).fails(1);
    assert!(
        run.stderr.contains("nothing is overwritten"),
        "{}",
        run.stderr
    );
    assert_eq!(fs::read(out.join("d/one")).unwrap(), b"mine");
    assert!(
        fs::read(&image).unwrap() == before,
        "the image was written to"
    );
}

#[test]
fn single_files_come_back_by_path_and_by_number() {
    require!(KernelExt4);
    let place = Place::new();
    let held = removed_by_linux(&place);
    let image = place.arg("image");
    let listed = extant(["deleted", "--json", &image]).ok().lines();
    let two = listed.iter().find(|line| line["path"] == "/d/below/two");
    let number = two.unwrap()["inode"].to_string();
    for (what, dir) in [("/d/below/two", "a"), (number.as_str(), "b")] {
        let to = place.arg(dir);
        let done = extant(["recover", "--json", &image, what, "-d", &to])
            .ok()
            .lines();
        assert_eq!(done.len(), 2, "{done:?}");
        assert_eq!(done[0]["to"], format!("{to}/d/below/two"));
        assert_eq!(done[1]["whole"], 1);
        let bytes = fs::read(place.join(dir).join("d/below/two")).unwrap();
        assert!(bytes == held[1].1);
    }
    let run = extant(["recover", &image, "/stays", "-d", &place.arg("c")]).fails(1);
    assert!(
        run.stderr.contains("no deleted file /stays"),
        "{}",
        run.stderr
    );
    let run = extant(["recover", &image, "d/one", "-d", &place.arg("c")]).fails(2);
    assert!(run.stderr.contains("paths begin with /"), "{}", run.stderr);
    let run = extant(["deleted", "--superblock", "auto", &image]).fails(2);
    assert!(run.stderr.contains("--superblock"), "{}", run.stderr);
}

#[test]
fn what_was_given_away_in_part_is_left_out_unless_it_is_asked_for() {
    require!(KernelExt4);
    let place = Place::new();
    let image = place.join("image");
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-b", "1024"]);
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "commit=600");
    let bytes: Vec<u8> = (0..30 << 20).map(|i: u32| (i % 251) as u8 + 1).collect();
    fs::write(mount.join("large"), &bytes).unwrap();
    mount.sync();
    fs::remove_file(mount.join("large")).unwrap();
    mount.sync();
    fs::write(mount.join("other"), vec![0xEE; 34 << 20]).unwrap();
    mount.unmount();
    let (image, dir) = (place.arg("image"), place.arg("out"));
    let listed = extant(["deleted", "--json", &image]).ok().lines();
    let line = listed.iter().find(|line| line["path"] == "/large").unwrap();
    assert_eq!(line["verdict"], "partly", "{line}");
    let lost = line["lost_blocks"].as_u64().unwrap();
    assert!(lost > 0 && lost < line["blocks"].as_u64().unwrap());

    let run = extant(["recover", &image, "/large", "-d", &dir]).fails(1);
    assert!(run.stderr.contains("were given away"), "{}", run.stderr);
    assert!(names_in(&place.join("out")).is_empty());
    extant(["recover", &image, "/large", "--partial", "-d", &dir]).ok();
    let found = fs::read(place.join("out/large.partial")).unwrap();
    assert_eq!(found.len(), bytes.len());
    // What is not zeros in the place of a lost block is what it was.
    let mut zeros = 0;
    for (found, held) in found.chunks(1024).zip(bytes.chunks(1024)) {
        if found.iter().all(|byte| *byte == 0) {
            zeros += 1;
        } else {
            assert!(found == held);
        }
    }
    assert_eq!(zeros, lost);
}

#[test]
fn nothing_is_made_outside_of_the_directory() {
    require!(KernelExt4);
    let place = Place::new();
    let held = removed_by_linux(&place);
    let image = place.arg("image");
    // A link where a directory is to be: it is not followed.
    fs::create_dir_all(place.join("out")).unwrap();
    fs::create_dir(place.join("elsewhere")).unwrap();
    symlink(place.join("elsewhere"), place.join("out/d")).unwrap();
    let run = extant(["recover", &image, "--all", "-d", &place.arg("out")]).fails(1);
    assert!(run.stderr.contains("d is no directory"), "{}", run.stderr);
    assert!(names_in(&place.join("elsewhere")).is_empty());
    drop(held);

    // Nor are two files of one name put over each other.
    let image = place.join("twice");
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "commit=600");
    for content in ["first", "second"] {
        fs::write(mount.join("same"), content).unwrap();
        // Another number for the next.
        fs::write(mount.join(format!("after-{content}")), content).unwrap();
        mount.sync();
        fs::remove_file(mount.join("same")).unwrap();
        fs::write(mount.join(format!("takes-{content}")), content).unwrap();
        mount.sync();
    }
    mount.unmount();
    let image = place.arg("twice");
    let run = extant(["recover", &image, "--all", "-d", &place.arg("both")]).ok();
    let found = names_in(&place.join("both"));
    let same: Vec<_> = found
        .iter()
        .filter(|name| name.starts_with("same"))
        .collect();
    assert_eq!(same.len(), 2, "{found:?}\n{}", run.text());
}

#[test]
fn a_name_of_an_encrypted_directory_leads_nowhere_else() {
    let place = Place::new();
    let image = place.join("image");
    mke2fs(&image, 16 << 20, &["-t", "ext2", "-b", "1024"]);
    fs::write(place.join("content"), "hello\n").unwrap();
    let put = format!("write {} secret/abcdefgh/pwned", place.arg("content"));
    let requests = [
        "mkdir secret",
        "mkdir secret/abcdefgh",
        put.as_str(),
        "rm secret/abcdefgh/pwned",
        "set_inode_field secret flags 0x800",
    ];
    debugfs_write(&image, &requests);
    // An encrypted name may have any bytes; what is below this one is in clear.
    let mut bytes = fs::read(&image).unwrap();
    let names = bytes.windows(8).enumerate();
    let found = names.filter(|(_, bytes)| bytes == b"abcdefgh");
    let found: Vec<usize> = found.map(|(at, _)| at).collect();
    assert_eq!(found.len(), 1);
    bytes[found[0]..found[0] + 8].copy_from_slice(b"../../up");
    fs::write(&image, bytes).unwrap();

    let dir = place.arg("out/deep");
    let told = extant([
        "recover",
        "--json",
        &place.arg("image"),
        "--all",
        "-d",
        &dir,
    ])
    .ok();
    let lines = told.lines();
    let (file, sums) = (&lines[0], lines.last().unwrap());
    assert!(file["path"].is_null(), "{file}");
    assert_eq!(sums["likely"], 1, "{sums}");
    let found: Vec<String> = names_in(&place.join("out")).into_iter().collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0], "deep");
    assert!(found[1].starts_with("deep/inode-"), "{found:?}");
    assert_eq!(
        fs::read(place.join("out").join(&found[1])).unwrap(),
        b"hello\n"
    );
}

#[test]
fn the_log_is_shown_as_text_and_as_json() {
    require!(KernelExt4);
    let place = Place::new();
    removed_by_linux(&place);
    let image = place.arg("image");
    let lines = extant(["log", "--json", &image]).ok().lines();
    assert_eq!(lines[0]["journal"]["block_size"], 1024);
    assert_eq!(lines[0]["journal"]["start"], 0);
    let first = &lines[1];
    assert_eq!(first["state"], "old");
    assert!(first["committed"].as_str().unwrap().ends_with('Z'));
    let blocks = first["blocks"].as_array().unwrap();
    assert!(blocks.iter().all(|block| block["checksum"] == "right"));
    let used = |what: &str| {
        blocks
            .iter()
            .any(|block| block["used_for"].as_str().unwrap().starts_with(what))
    };
    for what in [
        "superblock",
        "group descriptors",
        "block bitmap",
        "inode table",
        "directory 2",
    ] {
        assert!(used(what), "{what}: {blocks:?}");
    }
    let text = extant(["log", &image]).ok().text();
    assert!(
        text.contains("journal in the file system") && text.contains("directory 2, its block 0 /")
    );
    let brief = extant(["log", "--brief", &image]).ok().text();
    assert!(brief.lines().count() < 12, "{brief}");
    let block = blocks[0]["block"].to_string();
    let only = extant(["log", "--json", "--block", &block, &image])
        .ok()
        .lines();
    let homes = only[1..]
        .iter()
        .flat_map(|line| line["blocks"].as_array().unwrap());
    assert!(
        homes
            .into_iter()
            .all(|home| home["block"] == blocks[0]["block"])
    );
    let tid = first["tid"].to_string();
    let only = extant(["log", "--json", "--tid", &tid, &image])
        .ok()
        .lines();
    assert_eq!(only.len(), 2);

    // Without a journal there is none to show, and nothing is sure.
    let plain = place.join("plain");
    mke2fs(&plain, 16 << 20, &["-t", "ext2"]);
    debugfs_write(&plain, &["write /etc/hostname name", "rm name"]);
    let plain = place.arg("plain");
    let run = extant(["log", &plain]).fails(1);
    assert!(run.stderr.contains("has no journal"), "{}", run.stderr);
    let run = extant(["deleted", &plain]).ok();
    assert!(
        run.stderr.contains("nothing is sure: there is no journal"),
        "{}",
        run.stderr
    );
    assert!(run.text().starts_with("likely"), "{}", run.text());
}
