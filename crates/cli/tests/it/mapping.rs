//! `map`: every block accounted for.

use crate::support::{Place, extant, small_plan};
use extant_testkit::oracle::{assert_clean, debugfs, dumpe2fs_header};
use extant_testkit::tool::tool;
use std::os::unix::fs::FileExt;

#[test]
fn every_block_is_in_exactly_one_run_and_free_ones_are_those_of_dumpe2fs() {
    for options in [
        &["-b", "4096"][..],
        &["-b", "1024"],
        &["-b", "1024", "-O", "^extent,^64bit"],
    ] {
        let place = Place::new();
        let image = place.image(&small_plan(), options);
        let map = extant(["map", "--json", &image]).ok().json();
        let blocks = map["blocks"].as_u64().unwrap();
        let mut at = 0;
        let mut free = 0;
        for run in map["runs"].as_array().unwrap() {
            assert_eq!(run["start"], at);
            let len = run["len"].as_u64().unwrap();
            at += len;
            if run["kind"] == "free" {
                free += len;
            }
        }
        assert_eq!(at, blocks);
        let dump = dumpe2fs_header(&place.join("fs.img"));
        assert_eq!(free, dump.number("Free blocks"), "{options:?}");
        assert_eq!(blocks, dump.number("Block count"));
    }
}

#[test]
fn the_text_names_what_blocks_are_used_for() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let text = extant(["map", &image]).ok().text();
    for kind in [
        "superblock",
        "inode tables",
        "journal",
        "directories",
        "file data",
        "free",
    ] {
        assert!(text.contains(kind), "{kind}:\n{text}");
    }
}

#[test]
fn the_picture_is_a_drawing_with_a_legend() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    extant(["map", &image, "--svg", &place.arg("map.svg")]).ok();
    let svg = std::fs::read_to_string(place.join("map.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns="));
    assert!(svg.ends_with("</svg>\n"));
    for part in [
        "fs.img",
        "group 0",
        "<title>journal, from block ",
        "journal",
        "file data",
        "free",
        "<rect",
    ] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn a_file_is_shown_with_its_holes() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let map = extant(["map", "--json", &format!("{image}:/usr/lib/sparse")])
        .ok()
        .json();
    let pieces = map["extents"].as_array().unwrap();
    let states: Vec<_> = pieces
        .iter()
        .map(|p| p["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["data", "hole", "data", "hole"]);
    let mut at = 0;
    for piece in pieces {
        assert_eq!(piece["offset"], at);
        at += piece["len"].as_u64().unwrap();
    }
    assert_eq!(at, 4 << 20);
    extant(["map", &format!("{image}:/usr/lib/sparse")]).ok();
}

#[test]
fn a_directory_is_shown_and_what_has_no_content_is_refused() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-b", "1024"]);
    let map = extant(["map", "--json", &format!("{image}:/usr/lib")]);
    let map = map.ok().json();
    let blocks = debugfs(&place.join("fs.img"), "blocks /usr/lib");
    let first = blocks.split_whitespace().next().unwrap();
    let at = map["extents"][0]["device_offset"].as_u64().unwrap();
    assert_eq!((at / 1024).to_string(), first);
    assert_eq!(map["size"], map["extents"][0]["len"]);
    extant(["map", &format!("{image}:/usr/pipe")]).fails(1);
}

#[test]
fn a_block_is_told_by_its_use_and_by_the_file_that_has_it() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-b", "1024"]);
    let blocks = debugfs(&place.join("fs.img"), "blocks /usr/lib/libtwo.so.6");
    let second = blocks.split_whitespace().nth(1).unwrap();
    let args = ["map", "--json", "--block", second, "--block", "1", &image];
    let told = extant(args).ok().lines();
    assert_eq!(told.len(), 2);
    assert_eq!(told[0]["block"].to_string(), second);
    assert_eq!(told[0]["path"], "/usr/lib/libtwo.so.6");
    let ino = told[0]["inode"].as_u64().unwrap();
    assert_eq!(
        told[0]["used_for"],
        format!("data of inode {ino}, its block 1")
    );
    assert_eq!(told[1]["used_for"], "superblock");
    assert!(told[1].get("path").is_none());
    let text = extant(["map", "--block", "32767", "--block", "32768", &image]);
    let text = text.ok().text();
    assert_eq!(
        text,
        "block 32767: nothing\nblock 32768: outside of the file system\n"
    );
    // It is about whole images, as they lie.
    let inside = format!("{image}:/usr");
    for refused in [
        &["map", "--block", "1", &inside][..],
        &["map", "--block", "1", "--mend", &image],
        &["map", "--block", "1", "--superblock", "auto", &image],
        &["map", "--block", "1", "--used", &image],
    ] {
        extant(refused).fails(2);
    }
}

#[test]
fn bmaptool_copies_the_blocks_that_are_used_and_compares_them() {
    for options in [&["-b", "4096"][..], &["-b", "1024"]] {
        let place = Place::new();
        let image = place.image(&small_plan(), options);
        let used = extant(["map", "--used", "--json", &image]).ok().json();
        let dump = dumpe2fs_header(&place.join("fs.img"));
        let in_use = dump.number("Block count") - dump.number("Free blocks");
        assert_eq!(used["used_blocks"], in_use);
        let runs = used["runs"].as_array().unwrap();
        let sum: u64 = runs.iter().filter_map(|run| run["len"].as_u64()).sum();
        assert_eq!(sum, in_use);
        let text = extant(["map", "--used", &image]).ok().text();
        assert!(text.starts_with(&format!("{in_use} of ")), "{text}");

        let map = extant(["map", "--used", "--bmap", &image]).ok().stdout;
        std::fs::write(place.join("fs.bmap"), map).unwrap();
        let (map, copy) = (place.arg("fs.bmap"), place.arg("copy.img"));
        let args = ["copy", "--bmap", &map, &image, &copy];
        tool("bmaptool").args(args).ok();
        assert_clean(copy.as_ref());
        let list = |image: &str| extant(["tar", image]).ok().stdout;
        assert!(list(&image) == list(&copy));
        // What is damaged is noticed.
        let file = std::fs::File::options().write(true).open(&image).unwrap();
        let block = used["block_size"].as_u64().unwrap();
        let last = runs.last().and_then(|run| run["start"].as_u64()).unwrap();
        file.write_all_at(b"damage", last * block + 17).unwrap();
        assert_ne!(tool("bmaptool").args(args).run().code, 0);
    }
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    assert_eq!(extant(["map", "--bmap", &image]).code, 2);
    extant(["map", "--used", &format!("{image}:/etc/hostname")]).fails(2);
}
