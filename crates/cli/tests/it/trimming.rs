//! `extant trim`: what is given back, judged by e2fsck, Linux and what the host says is allocated.

use crate::support::{Place, copy_of, extant, faithful, seen_by_linux};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{assert_clean, debugfs_write, dumpe2fs_header, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::Compare;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Layouts that say in different ways what is in use.
const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-g", "2048"],
    &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,^uninit_bg",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "2048",
        "-O",
        "^metadata_csum,uninit_bg,^flex_bg",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "meta_bg,^resize_inode,mmp",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "sparse_super2,orphan_file,fast_commit",
    ],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext2", "-b", "4096", "-I", "128"],
];

/// An image without a hole, in which files were made and half of them removed.
fn used_image(place: &Place, options: &[&str]) -> String {
    let image = place.join("image");
    fs::write(&image, vec![0xa5; (64 * MIB) as usize]).unwrap();
    let all = [options, &["-E", "nodiscard", "-N", "8000"]].concat();
    tool("mke2fs").args(["-F", "-q"]).args(all).arg(&image).ok();
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
    let at = |n: u32| mount.path().join(format!("file{n}"));
    for n in 0..400 {
        fs::write(at(n), vec![n as u8 | 1; 40_000 + n as usize]).unwrap();
    }
    for n in (0..400).filter(|n| n % 20 != 0) {
        fs::remove_file(at(n)).unwrap();
    }
    mount.unmount();
    assert_clean(&image);
    image.display().to_string()
}

fn allocated(image: &str) -> u64 {
    File::open(image).unwrap().sync_all().unwrap();
    fs::metadata(image).unwrap().blocks() * 512
}

/// Bytes of blocks in use, as dumpe2fs counts them.
fn in_use(image: &Path) -> u64 {
    let header = dumpe2fs_header(image);
    let number = |field: &str| header.field(field).parse::<u64>().unwrap();
    (number("Block count") - number("Free blocks")) * number("Block size")
}

/// Linux writes to it, through its log, and what it had is there.
fn lives_on(image: &str) {
    let was = seen_by_linux(image);
    let mount = KernelMount::mount(Path::new(image), Mode::ReadWrite, "");
    for n in 0..300 {
        fs::create_dir(mount.path().join(format!("dir{n}"))).unwrap();
        fs::write(mount.path().join(format!("dir{n}/file")), vec![9; 5_000]).unwrap();
    }
    for n in 0..300 {
        fs::remove_dir_all(mount.path().join(format!("dir{n}"))).unwrap();
    }
    mount.unmount();
    assert_clean(Path::new(image));
    was.assert_same(
        &seen_by_linux(image),
        &Compare {
            root: false,
            ..faithful()
        },
    );
}

#[test]
fn what_is_not_in_use_becomes_holes_and_everything_else_stays() {
    require!(Root, LoopDevices, KernelExt4);
    for options in KINDS {
        let place = Place::new();
        let image = used_image(&place, options);
        let path = Path::new(&image);
        let was = seen_by_linux(&image);
        let bytes = fs::read(path).unwrap();
        let before = allocated(&image);
        assert!(before >= 64 * MIB);

        let dry = extant(["trim", "--dry-run", "--json", &image]).ok().json();
        assert!(fs::read(path).unwrap() == bytes, "{options:?}");
        let said = extant(["trim", "--json", &image]).ok().json();
        let number = |name: &str| said[name].as_u64().unwrap();
        assert_eq!(said["given_back"], dry["given_back"], "{options:?}");
        let parts = number("free_blocks") + number("inode_tables") + number("log");
        assert_eq!(number("given_back"), parts);
        assert_eq!(number("allocated"), allocated(&image));
        assert!(number("allocated_before") >= 64 * MIB);

        assert_clean(path);
        extant(["check", &image]).ok();
        was.assert_same(&seen_by_linux(&image), &Compare::same_image());
        // 8,000 inodes take 1 or 2 MB, of which a few dozen blocks are in use; blocks of the host
        // may be larger.
        let has_log = options.get(1) != Some(&"ext2");
        assert!(number("inode_tables") > 700_000, "{options:?}: {said}");
        assert_eq!(number("log") >= 1000 * 1024, has_log, "{options:?}: {said}");
        let given = number("inode_tables") + number("log");
        let most = in_use(path) - given + 400 * 4096;
        let now = allocated(&image);
        assert!(
            now <= most,
            "{options:?}: {now} bytes, and at most {most} are in use"
        );

        let again = extant(["trim", &image]).ok().text();
        let small = again.contains("nothing to give back") || allocated(&image) == now;
        assert!(small, "{again}");
        lives_on(&image);
    }
}

#[test]
fn a_journal_is_replayed_before_anything_is_given_back() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let image = used_image(&place, KINDS[0]);
    let path = Path::new(&image);
    let mount = KernelMount::mount(path, Mode::ReadWrite, "");
    fs::write(mount.path().join("durable"), vec![5; 300_000]).unwrap();
    fs::remove_file(mount.path().join("file0")).unwrap();
    mount.sync();
    fs::remove_file(mount.path().join("file20")).unwrap();
    mount.shutdown(Shutdown::FlushLog);
    assert!(
        dumpe2fs_header(path)
            .field("Filesystem features")
            .contains("needs_recovery")
    );
    let run = extant(["trim", "--dry-run", &image]).fails(1);
    assert!(run.stderr.contains("not closed"), "{}", run.stderr);
    let copy = copy_of(&image, &place.arg("copy"));
    KernelMount::mount(Path::new(&copy), Mode::ReadWrite, "").unmount();
    let was = seen_by_linux(&copy);
    let said = extant(["trim", "--json", &image]).ok().json();
    assert_eq!(said["replayed"], true);
    assert_clean(path);
    was.assert_same(&seen_by_linux(&image), &faithful());
    let file = extant(["cat", &format!("{image}:/durable")]).ok().stdout;
    assert!(file == vec![5; 300_000]);
    lives_on(&image);
}

#[test]
fn what_is_not_sound_or_not_ours_alone_is_refused_and_stays() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let image = used_image(&place, KINDS[0]);
    let damaged = copy_of(&image, &place.arg("damaged"));
    // A file's block that the bitmap has as free.
    let map = extant(["map", "--json", &format!("{damaged}:/file20")])
        .ok()
        .json();
    let block = map["extents"][0]["device_offset"].as_u64().unwrap() / 4096;
    debugfs_write(Path::new(&damaged), &[&format!("freeb {block}")]);
    let text = place.arg("text");
    fs::write(&text, "a letter\n".repeat(1000)).unwrap();
    let simg = place.arg("simg");
    tool("img2simg").args([&image, &simg]).ok();
    for (image, says) in [
        (&damaged, "not sound"),
        (&text, "a text file"),
        (&simg, "Android"),
        (&place.arg("none"), "No such file"),
    ] {
        let before = fs::read(image).ok();
        let run = extant(["trim", image]).fails(1);
        assert!(run.stderr.contains(says), "{}", run.stderr);
        assert!(fs::read(image).ok() == before, "{image}");
    }
    let mount = KernelMount::mount(Path::new(&image), Mode::ReadWrite, "");
    let run = extant(["trim", &image]).fails(1);
    assert!(
        run.stderr.contains("in use") || run.stderr.contains("mounted"),
        "{}",
        run.stderr
    );
    mount.unmount();
    let file = File::options().read(true).write(true).open(&image).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    extant(["trim", &image]).fails(1);
    drop(file);
    extant(["trim", &image]).ok();
}

#[test]
fn space_is_given_back_through_partitions_formats_devices_and_servers() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let image = used_image(&place, KINDS[0]);
    let was = seen_by_linux(&image);
    let least = 40 * MIB;
    let fell = |name: &str, before: u64, image: &str| {
        let now = allocated(image);
        assert!(now + least < before, "{name}: {before} bytes became {now}");
    };

    // Behind a table of partitions.
    let disk = place.arg("disk");
    let file = File::create(&disk).unwrap();
    file.set_len(68 * MIB).unwrap();
    tool("sgdisk").args(["-n", "1:2048:+65M", &disk]).ok();
    file.write_all_at(&fs::read(&image).unwrap(), MIB).unwrap();
    let before = allocated(&disk);
    extant(["trim", &format!("{disk}#1")]).ok();
    fell("a partition", before, &disk);
    extant(["check", "--partition", "1", &disk]).ok();

    // In a qcow2 image.
    let qcow2 = place.arg("qcow2");
    tool("qemu-img")
        .args(["convert", "-O", "qcow2", "-S", "0", &image, &qcow2])
        .ok();
    let before = allocated(&qcow2);
    let said = extant(["trim", "--json", &qcow2]).ok().json();
    assert!(said["free_blocks"].as_u64().unwrap() > least);
    fell("qcow2", before, &qcow2);
    tool("qemu-img").args(["check", &qcow2]).ok();
    let back = place.arg("back");
    tool("qemu-img")
        .args(["convert", "-O", "raw", &qcow2, &back])
        .ok();
    assert_clean(Path::new(&back));
    was.assert_same(&seen_by_linux(&back), &Compare::same_image());

    // On an NBD server.
    let served = copy_of(&image, &place.arg("served"));
    let before = allocated(&served);
    let socket = place.join("socket");
    let nbdkit = tool("nbdkit").args(["-f", "-U"]).arg(&socket);
    let mut server = nbdkit
        .args(["file", &served])
        .background(&place.join("log"));
    server.wait_for_socket(&socket);
    let address = format!("nbd+unix:///?socket={}", socket.display());
    extant(["trim", &address]).ok();
    drop(server);
    fell("nbd", before, &served);
    assert_clean(Path::new(&served));
    was.assert_same(&seen_by_linux(&served), &Compare::same_image());

    // On a loop device, which passes discards on.
    let below = copy_of(&image, &place.arg("below"));
    let before = allocated(&below);
    let device = LoopDevice::attach(Path::new(&below), Access::ReadWrite).unwrap();
    extant(["trim", &device.path().display().to_string()]).ok();
    drop(device);
    fell("a device", before, &below);
    assert_clean(Path::new(&below));
    was.assert_same(&seen_by_linux(&below), &Compare::same_image());
}

#[test]
fn a_new_image_has_nothing_to_give_back() {
    let place = Place::new();
    let image = place.arg("image");
    extant(["mkfs", &image, "--size", "64M", "-q"]).ok();
    let said = extant(["trim", &image]).ok().text();
    assert!(said.ends_with(": nothing to give back\n"), "{said}");
    mke2fs(Path::new(&image), 32 * MIB, &["-t", "ext4"]);
    extant(["trim", &image]).ok();
    assert_clean(Path::new(&image));
}
