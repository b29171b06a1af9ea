//! `mkfs --dm-verity`: hash trees beside those of `veritysetup`.

use crate::support::{Place, Run, extant, extant_with, small_plan};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::oracle::{assert_clean, debugfs_write, dumpe2fs_header};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::tool::{Output, tool};
use extant_testkit::tree::Tree;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A tree of small files and of one with some hundred blocks.
fn source(place: &Place) -> String {
    let mut plan = small_plan();
    plan.file("large", extant_testkit::plan::Content::filled(9, 3_000_000));
    place.planted("tree", &plan)
}

fn made(run: &Run) -> Value {
    run.json()["dm_verity"].clone()
}

fn text<'v>(tree: &'v Value, field: &str) -> &'v str {
    tree[field].as_str().unwrap()
}

fn number(tree: &Value, field: &str) -> u64 {
    tree[field].as_u64().unwrap()
}

/// What `veritysetup verify` says of data and a tree.
fn verified(data: &str, hashes: &str, tree: &Value) -> Output {
    tool("veritysetup")
        .args(["verify", data, hashes, text(tree, "root_hash")])
        .arg(format!("--hash-offset={}", number(tree, "hash_offset")))
        .run()
}

#[track_caller]
fn assert_verified(data: &str, hashes: &str, tree: &Value) {
    let said = verified(data, hashes, tree);
    assert_eq!(said.code, 0, "{said}");
}

/// The tree that `veritysetup format` makes with the same options, and its root hash.
fn of_veritysetup(place: &Place, data: &str, tree: &Value) -> (Vec<u8>, String) {
    let file = place.arg("theirs");
    let _ = fs::remove_file(&file);
    let salt = match text(tree, "salt") {
        "" => "-",
        salt => salt,
    };
    let said = tool("veritysetup")
        .args(["format", data, &file])
        .arg(format!("--salt={salt}"))
        .arg(format!("--uuid={}", text(tree, "uuid")))
        .arg(format!("--hash={}", text(tree, "hash_algorithm")))
        .arg(format!("--data-blocks={}", number(tree, "data_blocks")))
        .arg(format!(
            "--data-block-size={}",
            number(tree, "data_block_size")
        ))
        .arg(format!(
            "--hash-block-size={}",
            number(tree, "hash_block_size")
        ))
        .ok()
        .text();
    let root = said.lines().find(|line| line.starts_with("Root hash:"));
    let root = root.unwrap().split_whitespace().last().unwrap();
    (fs::read(file).unwrap(), root.to_owned())
}

#[test]
fn a_tree_is_the_one_that_veritysetup_makes() {
    let place = Place::in_memory();
    let from = source(&place);
    let (image, file) = (place.arg("root.img"), place.arg("root.verity"));
    let cases: [&[&str]; 7] = [
        &[],
        &["--block-size", "1K"],
        &["--block-size", "64K", "--size", "64M"],
        &["--block-size", "4K", "--dm-verity-hash", "sha512"],
        &[
            "--dm-verity-salt",
            "none",
            "--dm-verity-hash-block-size",
            "1K",
        ],
        &[
            "--block-size",
            "4K",
            "--dm-verity-salt",
            "5eed",
            "--dm-verity-data-block-size",
            "512",
        ],
        // A large part that nobody writes.
        &["--size", "600M"],
    ];
    for options in cases {
        for apart in [false, true] {
            let to = if apart { file.as_str() } else { "append" };
            let mkfs = ["mkfs", &image, "--from", &from, "--json", "--dm-verity", to];
            let run = extant(mkfs.iter().chain(options)).ok();
            let tree = made(&run);
            let size = run.json()["size"].as_u64().unwrap();
            let header = dumpe2fs_header(Path::new(&image));
            assert_eq!(
                size,
                header.number("Block count") * header.number("Block size")
            );
            assert_eq!(
                number(&tree, "data_blocks") * number(&tree, "data_block_size"),
                size
            );
            assert_clean(Path::new(&image));
            let (theirs, root) = of_veritysetup(&place, &image, &tree);
            assert_eq!(text(&tree, "root_hash"), root, "{options:?}");
            let (ours, hashes) = if apart {
                assert_eq!(number(&tree, "hash_offset"), 0);
                assert_eq!(fs::metadata(&image).unwrap().len(), size);
                (fs::read(&file).unwrap(), &file)
            } else {
                assert_eq!(number(&tree, "hash_offset"), size);
                let whole = fs::read(&image).unwrap();
                (whole[size as usize..].to_vec(), &image)
            };
            assert_verified(&image, hashes, &tree);
            assert_eq!(ours[..512], theirs[..512], "{options:?}: the superblock");
            // Behind a file system, the tree begins at the next block of hashes.
            let block = number(&tree, "hash_block_size") as usize;
            let before = (size as usize + 512).next_multiple_of(block) - size as usize;
            let start = if apart { block } else { before };
            assert!(ours[start..] == theirs[block..], "{options:?}: the tree");
            assert_eq!(
                number(&tree, "hash_offset") + ours.len() as u64,
                number(&tree, "end")
            );
        }
    }
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let place = Place::in_memory();
    let image = place.arg("root.img");
    let run = extant([
        "mkfs",
        &image,
        "--size",
        "8M",
        "--dm-verity",
        "append",
        "--json",
    ])
    .ok();
    let tree = made(&run);
    assert_verified(&image, &image, &tree);
    let end = number(&tree, "end");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&image)
        .unwrap();
    for at in [0, 1024, 5 << 20, (8 << 20) - 1, end - 4096] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        assert_ne!(verified(&image, &image, &tree).code, 0, "byte {at}");
        file.write_all_at(&byte, at).unwrap();
    }
    assert_verified(&image, &image, &tree);
}

/// A file of random bytes, in which an image is made in place.
fn noise(path: &Path, len: usize) {
    let mut bytes = vec![0; len];
    Rng::new(7).fill(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_was_there_before_is_hashed_where_an_image_is_made_in_place() {
    let place = Place::in_memory();
    let from = source(&place);
    let (disk, part) = (place.arg("disk.img"), place.arg("part.img"));
    for options in [&[][..], &["--size", "16M"]] {
        noise(&place.join("disk.img"), 40 << 20);
        let mkfs = ["mkfs", &disk, "--offset", "1M", "--from", &from, "--json"];
        let mkfs = mkfs.iter().chain(["--dm-verity", "append"].iter());
        let run = extant(mkfs.chain(options)).ok();
        let tree = made(&run);
        // Without a size, file system and tree fill the room together.
        let room = 39_u64 << 20;
        let end = number(&tree, "end");
        if options.is_empty() {
            assert!((room - (64 << 10)..=room).contains(&end), "{end} of {room}");
        } else {
            assert_eq!(number(&tree, "hash_offset"), 16 << 20);
        }
        let whole = fs::read(&disk).unwrap();
        assert_eq!(whole.len(), 40 << 20);
        fs::write(&part, &whole[1 << 20..]).unwrap();
        assert_verified(&part, &part, &tree);
        let (theirs, root) = of_veritysetup(&place, &part, &tree);
        assert_eq!(text(&tree, "root_hash"), root);
        let offset = number(&tree, "hash_offset") as usize;
        assert!(whole[(1 << 20) + offset..][..theirs.len()] == theirs[..]);
    }
}

#[test]
fn a_device_is_filled_by_file_system_and_tree() {
    require!(Root, LoopDevices);
    let place = Place::in_memory();
    let from = source(&place);
    noise(&place.join("disk.img"), 24 << 20);
    let device = LoopDevice::attach(&place.join("disk.img"), Access::ReadWrite).unwrap();
    let path = device.path().display().to_string();
    let mkfs = ["mkfs", &path, "--from", &from, "--size", "20M", "--json"];
    let run = extant(mkfs.iter().chain(["--dm-verity", "append"].iter())).ok();
    let tree = made(&run);
    assert_eq!(number(&tree, "hash_offset"), 20 << 20);
    assert_verified(&path, &path, &tree);
    let empty = ["mkfs", &path, "--force", "--json", "--dm-verity", "append"];
    let tree = made(&extant(empty).ok());
    assert!(number(&tree, "end") <= 24 << 20);
    assert!(number(&tree, "end") > (24 << 20) - (64 << 10));
    assert_verified(&path, &path, &tree);
    let too_large = [
        "mkfs",
        &path,
        "--force",
        "--size",
        "24M",
        "--dm-verity",
        "append",
    ];
    extant(too_large).fails(1);
}

#[test]
fn a_disk_in_a_format_has_its_tree() {
    let place = Place::in_memory();
    let from = source(&place);
    for (name, format) in [("d.qcow2", "qcow2"), ("d.vhd", "vpc"), ("d.vmdk", "vmdk")] {
        let (disk, raw) = (place.arg(name), place.arg("raw.img"));
        let mkfs = ["mkfs", &disk, "--from", &from, "--size", "16M", "--json"];
        let run = extant(mkfs.iter().chain(["--dm-verity", "append"].iter())).ok();
        tool("qemu-img")
            .args(["convert", "-f", format, "-O", "raw", &disk, &raw])
            .ok();
        assert_verified(&raw, &raw, &made(&run));
    }
    let (disk, raw) = (place.arg("d.simg"), place.arg("raw.img"));
    let mkfs = [
        "mkfs",
        &disk,
        "--from",
        &from,
        "--json",
        "--dm-verity",
        "append",
    ];
    let run = extant(mkfs).ok();
    let _ = fs::remove_file(&raw);
    tool("simg2img").args([&disk, &raw]).ok();
    assert_verified(&raw, &raw, &made(&run));
}

#[test]
fn the_same_source_gives_the_same_root_hash() {
    let place = Place::in_memory();
    let from = source(&place);
    let mut seen = Vec::new();
    for threads in ["1", "2", "5"] {
        let image = place.arg(&format!("{threads}.img"));
        let mkfs = [
            "mkfs",
            &image,
            "--from",
            &from,
            "--threads",
            threads,
            "--json",
        ];
        let mkfs = mkfs.iter().chain(["--dm-verity", "append"].iter());
        let run = extant_with(mkfs, |command| {
            command.env("SOURCE_DATE_EPOCH", "1000000000");
        });
        seen.push((made(&run.ok()), fs::read(&image).unwrap()));
    }
    assert!(seen.iter().all(|one| *one == seen[0]));
    // The salt follows from the UUID alone.
    let uuid = "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e";
    let salts = ["a.img", "b.img"].map(|name| {
        let image = place.arg(name);
        let mkfs = ["mkfs", &image, "--size", "2M", "--uuid", uuid, "--json"];
        let run = extant(mkfs.iter().chain(["--dm-verity", "append"].iter()));
        text(&made(&run.ok()), "salt").to_owned()
    });
    assert_eq!(salts[0], salts[1]);
    assert_eq!(salts[0].len(), 64);
    assert_ne!(salts[0], text(&seen[0].0, "salt"));
}

#[test]
fn people_are_told_the_root_hash() {
    let place = Place::in_memory();
    let image = place.arg("root.img");
    let run = extant(["mkfs", &image, "--size", "4M", "--dm-verity", "append"]).ok();
    let told = run.text();
    let of = |what: &str| {
        let line = told
            .lines()
            .find(|line| line.starts_with(what))
            .expect(what);
        line[what.len()..]
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    };
    let (root, offset) = (of("dm-verity root hash: "), of("dm-verity hash offset: "));
    assert_eq!((root.len(), offset.as_str()), (64, "4194304"));
    assert_eq!(of("dm-verity salt: ").len(), 64);
    tool("veritysetup")
        .args(["verify", &image, &image, &root])
        .arg(format!("--hash-offset={offset}"))
        .ok();
}

#[test]
fn what_cannot_be_is_refused_and_what_is_there_is_kept() {
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let refused = |options: &[&str]| {
        let mkfs = ["mkfs", &image, "--from", &from];
        let run = extant(mkfs.iter().chain(options)).fails(2);
        assert!(!place.join("root.img").exists(), "{options:?}");
        run.stderr
    };
    let append = ["--dm-verity", "append"];
    let with = |more: &[&'static str]| [&append[..], more].concat();
    let said = refused(&with(&[
        "--block-size",
        "1K",
        "--dm-verity-data-block-size",
        "4K",
    ]));
    assert!(said.contains("at most 1024 bytes"), "{said}");
    for wrong in [
        &["--dm-verity-data-block-size", "1000"][..],
        &["--dm-verity-hash-block-size", "128K"],
        &["--dm-verity-hash", "md5"],
        &["--dm-verity-salt", "xyz"],
    ] {
        refused(&with(wrong));
    }
    let long = "ab".repeat(257);
    refused(&["--dm-verity", "append", "--dm-verity-salt", &long]);
    refused(&["--dm-verity-salt", "ab"]);
    refused(&["--dm-verity", &image]);
    refused(&["--dm-verity", &from]);

    let precious = place.arg("precious");
    fs::write(&precious, "text\n").unwrap();
    let mkfs = ["mkfs", &image, "--from", &from, "--dm-verity", &precious];
    extant(mkfs).fails(1);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "text\n");
    assert!(!place.join("root.img").exists());
    extant(mkfs.iter().chain(&["--force"])).ok();
    assert!(fs::read(&precious).unwrap().starts_with(b"verity\0\0"));
    // A tree may take the place of the one before.
    extant(mkfs).ok();
}

#[test]
fn a_tree_replaces_no_disk_unless_forced() {
    let place = Place::in_memory();
    let from = source(&place);
    let (image, disk) = (place.arg("root.img"), place.arg("disk.img"));
    let mkfs = ["mkfs", &image, "--from", &from, "--dm-verity", &disk];
    let assert_kept = |what: &str| {
        let before = fs::read(&disk).unwrap();
        let said = extant(mkfs).fails(1).stderr;
        assert!(said.contains("disk.img is "), "{what}: {said}");
        assert!(said.contains("a hash tree would"), "{what}: {said}");
        assert!(fs::read(&disk).unwrap() == before, "{what}");
        assert!(!place.join("root.img").exists(), "{what}");
    };
    extant(["mkfs", "-q", &disk, "--from", &from, "--size", "16M"]).ok();
    assert_kept("an image that was just made");
    extant(["mkdir", &format!("{disk}:/precious")]).ok();
    assert_kept("an image with files of its own");
    fs::remove_file(&disk).unwrap();
    tool("qemu-img")
        .args(["create", "-f", "qcow2", &disk, "16M"])
        .ok();
    assert_kept("a disk of a virtual machine");
    extant(mkfs.iter().chain(&["--force"])).ok();
    assert!(fs::read(&disk).unwrap().starts_with(b"verity\0\0"));
}

#[test]
fn a_failed_build_leaves_no_tree() {
    let place = Place::in_memory();
    let from = source(&place);
    let (image, file) = (place.arg("root.img"), place.arg("root.verity"));
    let mkfs = [
        "mkfs",
        &image,
        "--from",
        &from,
        "--size",
        "1M",
        "--dm-verity",
        &file,
    ];
    extant(mkfs).fails(1);
    let mut names: Vec<_> = fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["tree"]);
}

#[test]
fn linux_mounts_through_dm_verity_and_refuses_what_was_changed() {
    require!(KernelExt4, DmVerity);
    let place = Place::in_memory();
    let from = source(&place);
    let image = place.arg("root.img");
    let mkfs = [
        "mkfs",
        &image,
        "--from",
        &from,
        "--json",
        "--dm-verity",
        "append",
    ];
    let tree = made(&extant(mkfs).ok());
    let device = LoopDevice::attach(Path::new(&image), Access::ReadOnly).unwrap();
    let path = device.path().display().to_string();
    let opened = extant_testkit::verity::Opened::new(
        &path,
        &path,
        text(&tree, "root_hash"),
        number(&tree, "hash_offset"),
    );
    let at = place.join("mnt");
    fs::create_dir(&at).unwrap();
    let at = at.display().to_string();
    let device = opened.path().display().to_string();
    tool("mount").args(["-o", "ro", &device, &at]).ok();
    let found = Tree::snapshot(Path::new(&at));
    tool("umount").arg(&at).ok();
    let mut plan = small_plan();
    plan.file("large", extant_testkit::plan::Content::filled(9, 3_000_000));
    plan.expected().assert_same(
        &found,
        &extant_testkit::tree::Compare {
            ignore: vec![b"lost+found".to_vec()],
            ..extant_testkit::tree::Compare::default()
        },
    );
}

/// An image without a tree, and one of the same source with one in the file `made.verity`.
fn with_and_without(place: &Place, options: &[&str]) -> (String, Vec<u8>) {
    let from = source(place);
    let (image, file) = (place.arg("old.img"), place.arg("made.verity"));
    let mkfs = ["mkfs", "-q", &image, "--from", &from, "--dm-verity", &file];
    extant(mkfs.iter().chain(options)).ok();
    let tree = fs::read(file).unwrap();
    (image, tree)
}

#[test]
fn an_image_that_exists_gets_the_tree_that_it_would_have_been_made_with() {
    let place = Place::in_memory();
    let cases: [(&[&str], &[&str]); 4] = [
        (&[], &[]),
        (&["--block-size", "1K"], &[]),
        (
            &["--block-size", "4K", "--size", "300M"],
            &["--dm-verity-hash", "sha512", "--dm-verity-salt", "5eed"],
        ),
        (
            &["--block-size", "64K", "--size", "64M"],
            &[
                "--dm-verity-data-block-size",
                "512",
                "--dm-verity-hash-block-size",
                "1K",
            ],
        ),
    ];
    for (round, (options, of_tree)) in cases.into_iter().enumerate() {
        let place = Place::in_memory();
        let all = [options, of_tree].concat();
        let (image, expected) = with_and_without(&place, &all);
        let before = fs::read(&image).unwrap();
        let file = place.arg("new.verity");
        let args = ["verity", &image, "--json", "--dm-verity", &file];
        let run = extant(args.iter().chain(of_tree)).ok();
        assert!(fs::read(&file).unwrap() == expected, "{options:?}");
        assert!(fs::read(&image).unwrap() == before);
        assert_verified(&image, &file, &made(&run));
        // Behind it the tree is another one by its place only.
        let args = ["verity", &image, "--json", "--dm-verity", "append"];
        let append = || made(&extant(args.iter().chain(of_tree)).ok());
        let tree = append();
        assert_eq!(before.len() as u64, number(&tree, "hash_offset"));
        assert_eq!(text(&tree, "root_hash"), text(&made(&run), "root_hash"));
        let whole = fs::read(&image).unwrap();
        assert!(whole[..before.len()] == before);
        assert_eq!(whole.len() as u64, number(&tree, "end"));
        assert_verified(&image, &image, &tree);
        assert_clean(Path::new(&image));
        // Again, over the tree that is there.
        assert_eq!(append(), tree);
        assert!(fs::read(&image).unwrap() == whole);
        // One thread makes the same.
        if round == 0 {
            fs::remove_file(&file).unwrap();
            let args = ["verity", &image, "--threads", "1", "--dm-verity", &file];
            extant(args).ok();
            assert!(fs::read(&file).unwrap() == expected);
        }
    }
    // An image of mke2fs, on whose room a partition ends.
    let theirs = place.arg("theirs.img");
    let from = source(&place);
    tool("mke2fs")
        .args(["-q", "-t", "ext4", "-d", &from, &theirs, "20M"])
        .ok();
    let file = fs::File::options().write(true).open(&theirs).unwrap();
    file.set_len(24 << 20).unwrap();
    drop(file);
    let tree = made(&extant(["verity", &theirs, "--json", "--dm-verity", "append"]).ok());
    assert_verified(&theirs, &theirs, &tree);
    assert_eq!(fs::metadata(&theirs).unwrap().len(), 24 << 20);
}

#[test]
fn what_cannot_have_a_tree_is_refused_and_stays_as_it_is() {
    let place = Place::in_memory();
    let (image, _) = with_and_without(&place, &["--size", "16M"]);
    let file = place.arg("new.verity");
    let refused = |code: i32, args: &[&str], words: &str| {
        let before = fs::read(&image).unwrap();
        let all = [&["verity", &image], args].concat();
        let run = extant(all).fails(code);
        assert!(run.stderr.contains(words), "{}", run.stderr);
        assert!(fs::read(&image).unwrap() == before);
        assert!(!Path::new(&file).exists());
    };
    refused(2, &[], "--dm-verity FILE");
    refused(2, &["--dm-verity", &image], "names the image");
    let salt = "00".repeat(257);
    let large = ["--dm-verity", &file, "--dm-verity-salt", &salt];
    refused(2, &large, "at most 256 bytes");
    // Something behind the file system.
    let open = || fs::File::options().write(true).open(&image).unwrap();
    open().write_all_at(b"precious", (16 << 20) + 5000).unwrap();
    refused(1, &["--dm-verity", "append"], "--force");
    let forced = ["verity", &image, "--dm-verity", "append", "--json", "-f"];
    let tree = made(&extant(forced).ok());
    assert_verified(&image, &image, &tree);
    // Behind a tree that another one takes the place of.
    let end = fs::metadata(&image).unwrap().len();
    open().write_all_at(b"precious", end + 100).unwrap();
    let larger = ["--dm-verity", "append", "--dm-verity-hash", "sha512"];
    refused(1, &larger, "--force");
    open().set_len(end).unwrap();
    let larger = [&["verity", &image, "--json"], &larger[..]].concat();
    let tree = made(&extant(larger).ok());
    assert_verified(&image, &image, &tree);
    open().set_len(16 << 20).unwrap();
    // A file that is no tree.
    fs::write(place.join("precious"), "text").unwrap();
    let precious = place.arg("precious");
    refused(1, &["--dm-verity", &precious], "precious");
    // A part of a disk that ends with its file system.
    let disk = place.arg("disk.img");
    fs::copy(&image, &disk).unwrap();
    let run = extant(["verity", &disk, "--offset", "0", "--dm-verity", "append"]).fails(1);
    assert!(run.stderr.contains("extant resize"), "{}", run.stderr);
    // A file system that was not closed, and one that is cut short.
    debugfs_write(Path::new(&image), &["set_super_value state 2"]);
    refused(1, &["--dm-verity", &file], "extant repair");
    debugfs_write(Path::new(&image), &["set_super_value state 1"]);
    debugfs_write(Path::new(&image), &["feature needs_recovery"]);
    refused(1, &["--dm-verity", &file], "extant replay");
    open().set_len(10 << 20).unwrap();
    debugfs_write(Path::new(&image), &["feature -needs_recovery"]);
    refused(1, &["--dm-verity", &file], "only");
    // Features that nothing knows, and that of an image of which a part is put back.
    open().set_len(16 << 20).unwrap();
    let whole = fs::read(&image).unwrap();
    for (feature, words) in [
        ("FEATURE_I27", "FEATURE_I27"),
        ("FEATURE_I30", "extant revert"),
    ] {
        fs::write(&image, &whole).unwrap();
        debugfs_write(Path::new(&image), &[&format!("feature {feature}")]);
        refused(1, &["--dm-verity", &file], words);
        refused(1, &["--dm-verity", "append"], words);
    }
}
