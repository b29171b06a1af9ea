//! `mkfs --fs-verity`: trees and descriptors beside those of `fsverity`.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, debugfs, dumpe2fs_header};
use extant_testkit::rng::Rng;
use extant_testkit::tool::tool;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Files around the borders of blocks and levels, with holes among them.
const FILES: &[(&str, usize)] = &[
    ("empty", 0),
    ("one", 1),
    ("block", 4096),
    ("more", 4097),
    ("aligned", 65_536),
    ("level", 128 * 4096),
    ("levels", 128 * 4096 + 5),
    ("large", 3_000_000),
];

/// A directory with these files, one that is nothing but a hole, one with holes, and one that gets
/// no tree.
pub(crate) fn source(place: &Place) -> String {
    let dir = place.join("tree");
    fs::create_dir_all(dir.join("sealed")).unwrap();
    let mut rng = Rng::new(11);
    for (name, len) in FILES {
        let mut bytes = vec![0; *len];
        rng.fill(&mut bytes);
        fs::write(dir.join("sealed").join(name), bytes).unwrap();
    }
    let file = |name: &str, len: u64| {
        let file = fs::File::create(dir.join("sealed").join(name)).unwrap();
        file.set_len(len).unwrap();
        file
    };
    // Three levels with blocks of 4 KiB.
    file("hole", 70 << 20);
    let holes = file("holes", 9 << 20);
    holes.write_all_at(&[7; 5000], 1 << 20).unwrap();
    holes.write_all_at(&[8; 12_345], 8 << 20).unwrap();
    fs::write(dir.join("plain"), "plain\n").unwrap();
    place.arg("tree")
}

pub(crate) fn names() -> Vec<&'static str> {
    let names = FILES.iter().map(|(name, _)| *name);
    names.chain(["hole", "holes"]).collect()
}

/// Bytes of a file of an image from byte `from` on, which is past its end, by its map.
fn past_end(image: &str, path: &str, from: u64, len: usize) -> Vec<u8> {
    let block = dumpe2fs_header(Path::new(image)).number("Block size");
    let blocks = from / block..(from + len as u64).div_ceil(block);
    let requests: Vec<String> = blocks.map(|lblk| format!("bmap {path} {lblk}")).collect();
    let said = tool("debugfs")
        .args(["-f", "-", image])
        .input(requests.join("\n") + "\n")
        .ok()
        .text();
    let found: Vec<u64> = said
        .lines()
        .filter(|line| !line.starts_with("debugfs"))
        .map(|line| line.trim().parse().unwrap())
        .collect();
    assert_eq!(found.len(), requests.len(), "{said}");
    let disk = fs::File::open(image).unwrap();
    let mut bytes = Vec::new();
    for pblk in found {
        assert_ne!(pblk, 0, "{path} is mapped there");
        let mut whole = vec![0; block as usize];
        disk.read_exact_at(&mut whole, pblk * block).unwrap();
        bytes.extend(whole);
    }
    bytes.truncate(len);
    bytes
}

/// What `fsverity digest` makes of a file on the host: the digest, the tree, the descriptor.
pub(crate) fn of_fsverity(
    place: &Place,
    file: &Path,
    options: &[&str],
) -> (String, Vec<u8>, Vec<u8>) {
    let (tree, descriptor) = (place.arg("theirs.tree"), place.arg("theirs.descriptor"));
    let said = tool("fsverity")
        .args(["digest", "--compact", &file.display().to_string()])
        .arg(format!("--out-merkle-tree={tree}"))
        .arg(format!("--out-descriptor={descriptor}"))
        .args(options)
        .ok()
        .text();
    let read = |path| fs::read(path).unwrap();
    (said.trim().to_owned(), read(&tree), read(&descriptor))
}

/// Compares what an image has behind a file with what `fsverity` makes.
#[track_caller]
pub(crate) fn compare(place: &Place, image: &str, name: &str, options: &[&str]) {
    let host = place.join("tree/sealed").join(name);
    let path = format!("/sealed/{name}");
    let (_, tree, descriptor) = of_fsverity(place, &host, options);
    let size = fs::metadata(&host).unwrap().len();
    let block = dumpe2fs_header(Path::new(image)).number("Block size");
    let start = size.next_multiple_of(65_536);
    assert!(
        past_end(image, &path, start, tree.len()) == tree,
        "{name} {options:?}: the tree"
    );
    let at = (start + tree.len() as u64).next_multiple_of(block);
    assert_eq!(
        past_end(image, &path, at, descriptor.len()),
        descriptor,
        "{name}"
    );
    let end = (at + descriptor.len() as u64 + 4).next_multiple_of(block);
    let last = past_end(image, &path, end - block, block as usize);
    assert_eq!(
        last[last.len() - 4..],
        (descriptor.len() as u32).to_le_bytes()
    );
    let stat = debugfs(Path::new(image), &format!("stat {path}"));
    assert!(stat.contains("Flags: 0x180000"), "{stat}");
    assert!(stat.contains(&format!("Size: {size}\n")), "{stat}");
}

#[test]
fn trees_and_descriptors_are_those_that_fsverity_makes() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let cases: [(&[&str], &[&str]); 6] = [
        (&["--block-size", "4K"], &[]),
        (&["--block-size", "1K"], &["--block-size=1024"]),
        (&["--block-size", "64K"], &[]),
        (
            &["--block-size", "4K", "--fs-verity-hash", "sha512"],
            &["--hash-alg=sha512"],
        ),
        (
            &[
                "--block-size",
                "4K",
                "--fs-verity-salt",
                "5eed00ff",
                "--fs-verity-block-size",
                "1K",
            ],
            &["--salt=5eed00ff", "--block-size=1024"],
        ),
        (
            &["--block-size", "4K", "--features", "bigalloc,^resize_inode"],
            &[],
        ),
    ];
    for (ours, theirs) in cases {
        let mkfs = [
            "mkfs",
            &image,
            "--from",
            &from,
            "--json",
            "--fs-verity",
            "/sealed",
        ];
        let run = extant(mkfs.iter().chain(ours)).ok();
        assert_eq!(run.json()["fs_verity_files"], names().len());
        assert_clean(Path::new(&image));
        extant(["check", &image]).ok();
        assert!(dumpe2fs_header(Path::new(&image)).has_feature("verity"));
        for name in names() {
            compare(&place, &image, name, theirs);
            let back = extant(["cat", &format!("{image}:/sealed/{name}")]).ok();
            let host = fs::read(place.join("tree/sealed").join(name)).unwrap();
            assert!(back.stdout == host, "{name}: content");
        }
        let stat = debugfs(Path::new(&image), "stat /plain");
        assert!(stat.contains("Flags: 0x80000"), "{stat}");
    }
}

#[test]
fn trees_are_part_of_what_dm_verity_hashes() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    // Also where what was there is not zeros.
    let mut noise = vec![0; 40 << 20];
    Rng::new(5).fill(&mut noise);
    for (in_place, options) in [
        (false, &[][..]),
        (false, &["--fs-verity-block-size", "1K"]),
        (true, &["--fs-verity-block-size", "1K"]),
    ] {
        let _ = fs::remove_file(&image);
        let mut mkfs = vec![
            "mkfs",
            &image,
            "--from",
            &from,
            "--json",
            "--block-size",
            "4K",
        ];
        if in_place {
            fs::write(&image, &noise).unwrap();
            mkfs.extend(["--offset", "0", "--force"]);
        }
        mkfs.extend(["--fs-verity", "/sealed", "--dm-verity", "append"]);
        mkfs.extend(options);
        let made = extant(mkfs).ok().json()["dm_verity"].clone();
        tool("veritysetup")
            .args([
                "verify",
                &image,
                &image,
                made["root_hash"].as_str().unwrap(),
            ])
            .arg(format!("--hash-offset={}", made["hash_offset"]))
            .ok();
        for name in names() {
            let theirs = match options {
                [] => &[][..],
                _ => &["--block-size=1024"],
            };
            compare(&place, &image, name, theirs);
        }
    }
}

#[test]
fn trees_stay_where_files_do() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let mkfs = ["mkfs", &image, "--from", &from, "--size", "64M"];
    extant(
        mkfs.iter()
            .chain(&["--block-size", "4K", "--fs-verity", "/sealed"]),
    )
    .ok();
    let compare_all = |image: &str| {
        assert_clean(Path::new(image));
        for name in names() {
            compare(&place, image, name, &[]);
        }
    };
    extant(["resize", &image, "128M"]).ok();
    compare_all(&image);
    extant(["resize", &image, "--minimum"]).ok();
    compare_all(&image);
    let other = place.arg("other.qcow2");
    extant(["convert", &image, &other]).ok();
    let back = place.arg("back.img");
    extant(["convert", &other, &back]).ok();
    compare_all(&back);
    extant(["repair", &back]).ok();
    extant(["mkdir", &format!("{back}:/new")]).ok();
    compare_all(&back);
}

#[test]
fn a_protected_file_is_not_written_to_but_moved_and_deleted() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let mkfs = ["mkfs", &image, "--from", &from, "--size", "64M"];
    extant(
        mkfs.iter()
            .chain(&["--block-size", "4K", "--fs-verity", "/sealed"]),
    )
    .ok();
    let large = format!("{image}:/sealed/large");
    for refused in [
        &["truncate", "-s", "5", &large][..],
        &["fallocate", "-l", "1M", &large],
        &["write", "--append", &large],
    ] {
        let run = crate::support::extant_with(refused, |command| {
            command.write_stdin("more");
        });
        let said = run.fails(1).stderr;
        assert!(said.contains("/sealed/large"), "{said}");
        assert!(said.contains("not permitted"), "{said}");
    }
    compare(&place, &image, "large", &[]);
    // Others are written to.
    extant(["truncate", "-s", "5", &format!("{image}:/plain")]).ok();
    let moved = format!("{image}:/moved");
    extant(["mv", &large, &moved]).ok();
    extant(["mv", &moved, &large]).ok();
    compare(&place, &image, "large", &[]);
    extant(["rm", "-r", &format!("{image}:/sealed")]).ok();
    assert_clean(Path::new(&image));
    let free = |image: &str| dumpe2fs_header(Path::new(image)).number("Free blocks");
    let empty = place.arg("empty.img");
    let mkfs = [
        "mkfs",
        &empty,
        "--from",
        &from,
        "--size",
        "64M",
        "--exclude",
        "/sealed",
    ];
    extant(mkfs.iter().chain(&["--block-size", "4K"])).ok();
    assert!(
        free(&image).abs_diff(free(&empty)) <= 2,
        "blocks past the end are given back"
    );
}

#[test]
fn files_are_named_by_patterns_and_by_lists() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let list = place.arg("list");
    fs::write(&list, "# comment\n\n/plain\nsealed/one\n").unwrap();
    let mkfs = ["mkfs", &image, "--from", &from];
    let counted = |options: &[&str]| {
        let run = extant(mkfs.iter().chain(options).chain(&["--json"])).ok();
        run.json()["fs_verity_files"].as_u64().unwrap()
    };
    assert_eq!(counted(&["--fs-verity", "one"]), 1);
    assert_eq!(counted(&["--fs-verity", "l*"]), 3);
    assert_eq!(
        counted(&["--fs-verity", "/plain", "--fs-verity", "/sealed/one"]),
        2
    );
    assert_eq!(
        counted(&["--fs-verity-list", &list, "--fs-verity", "one"]),
        2
    );
    let threads = ["1", "3"].map(|threads| {
        let image = place.arg(threads);
        crate::support::extant_with(
            [
                "mkfs",
                &image,
                "--from",
                &from,
                "--fs-verity",
                "*",
                "--threads",
                threads,
            ],
            |command| {
                command.env("SOURCE_DATE_EPOCH", "1000000000");
            },
        )
        .ok();
        fs::read(&image).unwrap()
    });
    assert!(threads[0] == threads[1]);

    let refused = |code: i32, options: &[&str]| {
        let _ = fs::remove_file(&image);
        let run = extant(mkfs.iter().chain(options)).fails(code);
        assert!(!Path::new(&image).exists(), "{options:?}");
        run.stderr
    };
    let said = refused(1, &["--fs-verity", "/nothing"]);
    assert!(said.contains("--fs-verity /nothing"), "{said}");
    fs::write(&list, "/plain\n/sealed\n").unwrap();
    let said = refused(1, &["--fs-verity-list", &list]);
    assert!(said.contains("line 2"), "{said}");
    let sealed = ["--fs-verity", "/sealed"];
    for wrong in [
        &["--features", "^extent,^64bit"][..],
        &["--profile", "grub"],
        &["--block-size", "1K", "--fs-verity-block-size", "4K"],
        &["--fs-verity-block-size", "3000"],
        &["--fs-verity-hash", "md5"],
        &["--fs-verity-salt", "5"],
    ] {
        refused(2, &[&sealed, wrong].concat());
    }
    let long = "ab".repeat(33);
    refused(2, &["--fs-verity", "/sealed", "--fs-verity-salt", &long]);
    refused(2, &["--fs-verity-salt", "ab"]);
}

/// Where block `lblk` of a file lies in an image with blocks of 4 KiB.
fn place_of(image: &str, path: &str, lblk: u64) -> u64 {
    let said = debugfs(Path::new(image), &format!("bmap {path} {lblk}"));
    said.trim().parse::<u64>().unwrap() * 4096
}

fn flip(image: &str, at: u64) {
    let disk = fs::File::options()
        .read(true)
        .write(true)
        .open(image)
        .unwrap();
    let mut byte = [0];
    disk.read_exact_at(&mut byte, at).unwrap();
    disk.write_all_at(&[byte[0] ^ 0x80], at).unwrap();
}

#[test]
fn what_differs_from_its_hashes_is_not_given_out() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let mkfs = ["mkfs", &image, "--from", &from, "--block-size", "4K"];
    extant(mkfs.iter().chain(&["--fs-verity", "/sealed"])).ok();
    let cat = |name: &str| extant(["cat", "--verify", &format!("{image}:/sealed/{name}")]);
    for name in names() {
        let host = fs::read(place.join("tree/sealed").join(name)).unwrap();
        assert!(cat(name).ok().stdout == host, "{name}");
    }
    let stat = |name: &str| extant(["stat", "--json", &format!("{image}:{name}")]).ok();
    let (digest, ..) = of_fsverity(&place, &place.join("tree/sealed/large"), &[]);
    let shown = stat("/sealed/large").lines()[0]["fs_verity"].clone();
    assert_eq!(shown, format!("sha256:{digest}"));
    assert!(stat("/plain").lines()[0].get("fs_verity").is_none());
    let plain = extant(["cat", "--verify", &format!("{image}:/plain")]).ok();
    assert_eq!(plain.text(), "plain\n");
    let out = |name: &str| place.join(name);
    let copy = |to: &str| {
        let to = out(to).display().to_string();
        extant(["cp", "-r", "--verify", &format!("{image}:/"), &to])
    };
    copy("before").ok();
    let archive = place.arg("archive.tar");
    let tar = || extant(["tar", "--verify", &image, "-o", &archive]);
    tar().ok();
    let check = || extant(["check", "--verity", &image]);
    check().ok();

    // Content, a block of hashes of data, the root of the tree, the descriptor and its length.
    let start = 3_000_000_u64.next_multiple_of(65_536) / 4096;
    let blocks = 3_000_000_u64.div_ceil(4096);
    let tree = 1 + blocks.div_ceil(128);
    for (lblk, within, said) in [
        (300, 17, "at byte 1228800 is not what fs-verity protects"),
        (start, 5, "not those that lead to its root hash"),
        (start + 2, 5, "not those that lead to its root hash"),
        (start + tree, 16, "not those that lead to its root hash"),
        (start + tree, 0, "unknown version"),
        (start + tree, 9, "is that of a file of"),
        (start + tree, 4095, "cannot have"),
    ] {
        let at = place_of(&image, "/sealed/large", lblk) + within;
        flip(&image, at);
        let run = cat("large").fails(1);
        assert!(run.stderr.contains("/sealed/large: "), "{}", run.stderr);
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
        let host = fs::read(place.join("tree/sealed/large")).unwrap();
        assert!(host.starts_with(&run.stdout), "nothing else is given out");
        assert!(check().code == 4, "block {lblk}, byte {within}");
        // Without being asked, nothing is compared.
        extant(["cat", &format!("{image}:/sealed/large")]).ok();
        extant(["check", &image]).ok();
        flip(&image, at);
    }
    cat("large").ok();

    flip(&image, place_of(&image, "/sealed/large", 300));
    let said = copy("after").fails(1).stderr;
    assert!(
        said.contains("/sealed/large: its content at byte 1228800"),
        "{said}"
    );
    assert!(!out("after/sealed/large").exists());
    let host = fs::read(place.join("tree/sealed/holes")).unwrap();
    assert!(fs::read(out("after/sealed/holes")).unwrap() == host);
    fs::remove_file(&archive).unwrap();
    tar().fails(1);
    assert!(!Path::new(&archive).exists());
    extant(["cp", "--verify", &image, &format!("{image}:/x")]).fails(2);
}
