//! `extant mkfs --from IMAGE`: images made by others, and what Linux shows of the new ones.

use crate::support::{Place, as_mke2fs_keeps, extant, extant_with, seen_by_linux, small_plan};
use extant_testkit::images::{ImageSpec, corpus};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::oracle::{assert_clean, debugfs, debugfs_write, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::rng::seed_from_env;
use extant_testkit::tool::tool;
use extant_testkit::torture::random_plan;
use extant_testkit::tree::{Compare, Holes};
use std::path::Path;

/// Images of the corpus that an ordinary run takes.
const SPECS: usize = 4;

/// What one image must have of another.
fn all_of(block_size: u64) -> Compare {
    Compare {
        atime: true,
        ctime: true,
        holes: Holes::NoneLost(block_size),
        ..Compare::default()
    }
}

#[test]
fn every_kind_of_image_is_a_source() {
    require!(LoopDevices, KernelExt4);
    let all = std::env::var("EXTANT_CORPUS").is_ok_and(|v| v == "all");
    let seed = seed_from_env("image sources");
    let mut specs = corpus();
    let start = seed as usize % specs.len();
    specs.rotate_left(start);
    // These are among them each time.
    let inline = |spec: &ImageSpec| !spec.has("inline_data");
    specs.sort_by_key(|spec| (inline(spec), !spec.dirty));
    let count = if all { specs.len() } else { SPECS };
    for (number, spec) in specs.iter().enumerate().take(count) {
        println!("seed {seed}: {}", spec.name);
        let image = spec.build();
        let before = std::fs::read(image.path()).expect("an image");
        let place = Place::new();
        let (from, new) = (image.path().display().to_string(), place.arg("new.img"));
        let is_small = spec.block_size == 1024 && number % 2 == 1;
        let block_size = if is_small { 1024 } else { 4096 };
        let block = block_size.to_string();
        let mut features = "ea_inode".to_owned();
        if number == 1 {
            features.push_str(",inline_data");
        }
        let run = extant([
            "mkfs",
            &new,
            "--from",
            &from,
            "--block-size",
            &block,
            "--features",
            &features,
        ]);
        run.ok();
        assert_clean(Path::new(&new));
        let compare = Compare {
            whole_seconds: spec.inode_size == 128,
            ..all_of(block_size.max(spec.block_size))
        };
        image.tree().assert_same(&seen_by_linux(&new), &compare);
        assert!(
            before == std::fs::read(image.path()).expect("an image"),
            "{}",
            spec.name
        );
    }
}

#[test]
fn a_random_tree_goes_from_image_to_image() {
    require!(LoopDevices, KernelExt4, Root);
    let seed = seed_from_env("image to image");
    let place = Place::in_memory();
    let plan = random_plan(seed, 300);
    let source = place.planted("source", &plan);
    let (one, two) = (place.arg("one.img"), place.arg("two.img"));
    extant(["mkfs", &one, "--from", &source, "--features", "ea_inode"]).ok();
    let steps = [(&one, &two, "1K"), (&two, &one, "4K")];
    let shown = seen_by_linux(&one);
    for (from, to, block) in steps {
        let all = [
            "mkfs",
            to,
            "--from",
            from,
            "--block-size",
            block,
            "--features",
            "ea_inode",
        ];
        extant(all).ok();
        assert_clean(Path::new(to));
        shown.assert_same(&seen_by_linux(to), &all_of(4096));
    }
}

#[test]
fn an_image_of_mke2fs_and_paths_in_it_join_other_sources() {
    require!(LoopDevices, KernelExt4, Root);
    let place = Place::in_memory();
    let plan = small_plan();
    let old = place.image(&plan, &[]);
    let new = place.arg("new.img");
    extant(["mkfs", &new, "--from", &old]).ok();
    assert_clean(Path::new(&new));
    plan.expected()
        .assert_same(&seen_by_linux(&new), &as_mke2fs_keeps());

    let mut over = TreePlan::new();
    over.dir("lib");
    over.file("lib/new", Content::filled(9, 70_000));
    over.file("lib/libtwo.so.6", Content::filled(10, 40));
    let over = place.planted("over", &over);
    let usr = format!("{old}:/usr");
    let args = [
        "mkfs",
        &new,
        "--from",
        &usr,
        "--from",
        &over,
        "--exclude",
        "sparse",
    ];
    extant(args.iter().chain(&["--owner", "7:8"])).ok();
    assert_clean(Path::new(&new));
    let listed = extant(["ls", "-R", "--json", &new]).ok().lines();
    let has = |path: &str| listed.iter().any(|line| line["path"] == path);
    assert!(has("/lib/new") && has("/lib/again") && has("/pipe"));
    assert!(!has("/lib/sparse") && !has("/etc"));
    assert!(
        listed
            .iter()
            .all(|line| line["path"] == "/lost+found" || line["uid"] == 7)
    );
    let two = extant(["cat", &format!("{new}:/lib/libtwo.so.6")]).ok();
    assert_eq!(two.stdout.len(), 40);
    let ino = |path: &str| {
        let line = listed.iter().find(|line| line["path"] == path);
        line.map(|line| line["ino"].clone())
    };
    assert_eq!(ino("/lib/again"), ino("/lib/libone.so"));
}

#[test]
fn flags_and_times_of_creation_are_kept() {
    let place = Place::new();
    let (old, new) = (place.arg("old.img"), place.arg("new.img"));
    mke2fs(Path::new(&old), 8 << 20, &["-t", "ext4"]);
    std::fs::write(place.join("text"), "some text").expect("a file");
    let write = format!("write {} text", place.arg("text"));
    debugfs_write(
        Path::new(&old),
        &[
            &write,
            "mkdir dir",
            // Append only and no dump, beside extents.
            "sif text flags 0x80060",
            "sif dir flags 0x90040",
            "sif text crtime @0x12345678",
        ],
    );
    extant(["mkfs", &new, "--from", &old]).ok();
    assert_clean(Path::new(&new));
    let text = debugfs(Path::new(&new), "stat text");
    assert!(text.contains("Flags: 0x80060"), "{text}");
    assert!(text.contains("crtime: 0x12345678"), "{text}");
    let dir = debugfs(Path::new(&new), "stat dir");
    assert!(dir.contains("Flags: 0x90040"), "{dir}");
}

#[test]
fn what_a_new_image_cannot_have_is_refused_by_name() {
    let place = Place::new();
    let (old, new) = (place.arg("old.img"), place.arg("new.img"));
    std::fs::write(place.join("text"), "some text").expect("a file");
    let write = format!("write {} text", place.arg("text"));
    for (feature, flags, says) in [
        ("encrypt", "0x80800", "encrypted"),
        ("verity", "0x180000", "fs-verity"),
    ] {
        mke2fs(Path::new(&old), 8 << 20, &["-t", "ext4", "-O", feature]);
        let flags = format!("sif dir/text flags {flags}");
        debugfs_write(
            Path::new(&old),
            &["mkdir dir", "cd dir", &write, "cd /", &flags],
        );
        let run = extant(["mkfs", &new, "--from", &old]).fails(1);
        let named = run.stderr.contains("/dir/text") && run.stderr.contains(says);
        assert!(named && run.stderr.contains("--exclude"), "{}", run.stderr);
        assert!(!Path::new(&new).exists());
        extant(["mkfs", &new, "--from", &old, "--exclude", "text"]).ok();
        assert_clean(Path::new(&new));
        std::fs::remove_file(&new).expect("it was made");
    }
    mke2fs(Path::new(&old), 8 << 20, &["-t", "ext4"]);
    debugfs_write(Path::new(&old), &[&write]);
    let file = extant(["mkfs", &new, "--from", &format!("{old}:/text")]).fails(1);
    assert!(file.stderr.contains("no directory"), "{}", file.stderr);
    let none = extant(["mkfs", &new, "--from", &format!("{old}:/none")]).fails(1);
    assert!(none.stderr.contains("/none"), "{}", none.stderr);
    extant(["mkfs", &old, "--from", &format!("{old}:/"), "--force"]).fails(2);
    let missing = format!("{}:/srv", place.arg("missing.img"));
    extant(["mkfs", &new, "--from", &missing]).fails(1);
    let damaged = place.arg("damaged.img");
    std::fs::copy(&old, &damaged).expect("a copy");
    debugfs_write(Path::new(&damaged), &["sif <2> block[5] 0xffffff"]);
    let run = extant(["mkfs", &new, "--from", &damaged]).fails(1);
    assert!(run.stderr.contains("damaged.img"), "{}", run.stderr);
    assert!(!Path::new(&new).exists());
}

#[test]
fn other_disks_and_partitions_are_sources() {
    let place = Place::new();
    let old = place.image(&small_plan(), &[]);
    let disk = place.arg("disk.img");
    let file = std::fs::File::create(&disk).expect("a file");
    file.set_len(40 << 20).expect("a size");
    drop(file);
    let table = b"label: dos\nstart=2048, size=4096\nstart=8192, size=65536\n".to_vec();
    tool("sfdisk").args(["-q", &disk]).input(table).ok();
    let (input, output) = (format!("if={old}"), format!("of={disk}"));
    tool("dd")
        .args([&input, &output, "bs=4M", "oflag=seek_bytes", "seek=4194304"])
        .args(["conv=notrunc"])
        .ok();
    let qcow = place.arg("old.qcow2");
    tool("qemu-img")
        .args(["convert", "-O", "qcow2", &old, &qcow])
        .ok();
    let packed = place.arg("old.img.gz");
    let gzip = tool("gzip").args(["-c", &old]).ok().stdout;
    std::fs::write(&packed, gzip).expect("a file");
    let made = |from: &str, new: &str| {
        let new = place.arg(new);
        let run = extant_with(["mkfs", &new, "--from", from, "-q"], |command| {
            command.env("SOURCE_DATE_EPOCH", "1000000000");
        });
        run.ok();
        std::fs::read(&new).expect("an image")
    };
    let plain = made(&old, "new.img");
    assert!(plain == made(&format!("{disk}#2:/"), "of-partition.img"));
    assert!(plain == made(&format!("{disk}#2"), "of-the-same.img"));
    assert!(plain == made(&qcow, "of-qcow2.img"));
    assert!(plain == made(&format!("{packed}:/"), "of-gzip.img"));
    let run = extant(["mkfs", &place.arg("x"), "--from", &disk]).fails(1);
    assert!(run.stderr.contains('#'), "{}", run.stderr);
}

/// A disk of 40 MiB with two partitions of 16, each with a file system.
fn disk_of_two(place: &Place, source: &str) -> String {
    let disk = place.arg("disk.img");
    let file = std::fs::File::create(&disk).expect("a file");
    file.set_len(40 << 20).expect("a size");
    let table = b"label: dos\nstart=2048, size=32768\nstart=36864, size=32768\n".to_vec();
    tool("sfdisk").args(["-q", &disk]).input(table).ok();
    for part in ["#1", "#2"] {
        extant(["mkfs", &format!("{disk}{part}"), "--from", source, "-q"]).ok();
    }
    disk
}

/// Asserts that an image is not made of such a source, and a file stays as it is.
fn assert_no_source(target: &[&str], from: &str, file: &str) {
    let before = std::fs::read(file).expect("a disk");
    let args = ["mkfs", "--force", "--from", from];
    let run = extant(args.iter().chain(target)).fails(2);
    assert!(run.stderr.contains("source as well"), "{}", run.stderr);
    let is_left = before == std::fs::read(file).expect("a disk");
    assert!(is_left, "{target:?} from {from}");
}

#[test]
fn what_is_written_in_place_is_no_source_by_any_name() {
    let place = Place::new();
    let source = place.planted("source", &small_plan());
    let disk = disk_of_two(&place, &source);
    let [hard, soft, qcow, tar] =
        ["hard.img", "soft.img", "disk.qcow2", "tar.tar"].map(|name| place.arg(name));
    std::fs::hard_link(&disk, &hard).expect("a link");
    std::os::unix::fs::symlink(&disk, &soft).expect("a link");
    let first = format!("{disk}#1");
    for from in [&disk, &hard, &soft] {
        let from = format!("{from}#1:/");
        assert_no_source(&[&first], &from, &disk);
        assert_no_source(&[&disk, "--partition", "1"], &from, &disk);
        assert_no_source(&[&disk, "--offset", "1M"], &from, &disk);
        assert_no_source(&[&disk, "--offset", "16M"], &from, &disk);
    }
    tool("qemu-img")
        .args(["convert", "-O", "qcow2", &disk, &qcow])
        .ok();
    let inside = format!("{qcow}#1");
    assert_no_source(&[&inside], &format!("{inside}:/"), &qcow);
    tool("tar").args(["-C", &source, "-cf", &tar, "."]).ok();
    let other = place.arg("other.tar");
    std::fs::hard_link(&tar, &other).expect("a link");
    assert_no_source(&[&tar, "--offset", "0"], &other, &tar);

    // Another partition is another place, and a new file takes the name of an old one at the end.
    let second = format!("{disk}#2");
    for from in [&disk, &hard] {
        extant([
            "mkfs",
            "-q",
            &second,
            "--from",
            &format!("{from}#1:/"),
            "--force",
        ])
        .ok();
        extant(["check", "-q", &second]).ok();
    }
    extant([
        "mkfs",
        "-q",
        &hard,
        "--from",
        &format!("{disk}#2:/"),
        "--force",
    ])
    .ok();
    assert_clean(Path::new(&hard));
    extant(["check", "-q", &second]).ok();
}

#[test]
fn an_export_that_is_written_is_no_source() {
    let place = Place::new();
    let source = place.planted("source", &small_plan());
    let disk = disk_of_two(&place, &source);
    let [socket, other] = ["socket", "other"].map(|name| place.arg(name));
    let mut server = tool("nbdkit")
        .args(["-f", "-U", &socket, "file", &disk])
        .background(&place.join("nbdkit.log"));
    server.wait_for_socket(Path::new(&socket));
    std::os::unix::fs::symlink(&socket, &other).expect("a link");
    let of = |socket: &str, part: &str| format!("nbd+unix:///?socket={socket}{part}");
    let (first, second) = (of(&socket, "#1"), of(&socket, "#2"));
    for from in [&socket, &other] {
        assert_no_source(&[&first], &format!("{}:/", of(from, "#1")), &disk);
        let whole = of(&socket, "");
        assert_no_source(&[&whole], &format!("{}:/", of(from, "#1")), &disk);
        extant([
            "mkfs",
            "-q",
            &second,
            "--from",
            &format!("{}:/", of(from, "#1")),
            "--force",
        ])
        .ok();
    }
    drop(server);
    extant(["check", "-q", &format!("{disk}#2")]).ok();
}

#[test]
fn a_loop_device_lies_in_its_file() {
    require!(LoopDevices);
    let place = Place::new();
    let source = place.planted("source", &small_plan());
    let disk = disk_of_two(&place, &source);
    let device = LoopDevice::attach(Path::new(&disk), Access::ReadOnly).expect("a device");
    let device = device.path().display().to_string();
    let first = format!("{disk}#1");
    assert_no_source(&[&first], &format!("{device}#1:/"), &disk);
    let second = format!("{disk}#2");
    extant([
        "mkfs",
        "-q",
        &second,
        "--from",
        &format!("{device}#1:/"),
        "--force",
    ])
    .ok();
    extant(["check", "-q", &second]).ok();
    let part = LoopDevice::attach_at(Path::new(&disk), 18 << 20, Access::ReadWrite);
    let part = part.expect("a device");
    let part = part.path().display().to_string();
    assert_no_source(&[&part], &format!("{disk}#2:/"), &disk);
}
