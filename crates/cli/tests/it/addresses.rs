//! Images named by address, and partitions named with them.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, debugfs, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes of a partition.
const PART: u64 = 24 << 20;

/// A disk with two ext4 partitions, of which the second begins here.
const SECOND: u64 = PART + (1 << 20);

fn disk(place: &Place, name: &str, labels: [&str; 2]) -> String {
    let disk = place.arg(name);
    let file = File::create(&disk).expect("a file");
    file.set_len(2 * PART + (4 << 20)).expect("a size");
    let sector = |byte: u64| byte / 512;
    let first = format!("1:2048:{}", sector(SECOND) - 1);
    let second = format!("2:{}:{}", sector(SECOND), sector(SECOND + PART) - 1);
    let names = [format!("1:{}", labels[0]), format!("2:{}", labels[1])];
    tool("sgdisk")
        .args([
            "-n", &first, "-c", &names[0], "-n", &second, "-c", &names[1], &disk,
        ])
        .ok();
    let part = place.join("part");
    mke2fs(&part, PART, &["-t", "ext4"]);
    let bytes = std::fs::read(&part).expect("a file system");
    for at in [1 << 20, SECOND] {
        file.write_all_at(&bytes, at).expect("room");
    }
    disk
}

/// A partition by itself, for programs that know no partitions.
fn part(place: &Place, disk: &str, number: u64) -> PathBuf {
    let mut bytes = vec![0; PART as usize];
    let at = if number == 1 { 1 << 20 } else { SECOND };
    let file = File::open(disk).expect("the disk");
    file.read_exact_at(&mut bytes, at).expect("the partition");
    let path = place.join("part");
    std::fs::write(&path, bytes).expect("room");
    path
}

#[test]
fn files_are_copied_between_partitions_by_number_and_by_label() {
    let place = Place::new();
    let a = disk(&place, "a.img", ["EFI system", "root"]);
    let b = disk(&place, "b.img", ["old", "new"]);
    let file = place.join("file");
    std::fs::write(&file, "text\n".repeat(9000)).expect("a file");
    let file = file.display().to_string();
    extant(["cp", &file, &format!("{a}#EFI system:/one")]).ok();
    // Between disks, and between partitions of one disk.
    extant(["cp", "-a", &format!("{a}#1:/one"), &format!("{b}#new:/two")]).ok();
    extant([
        "cp",
        "-a",
        &format!("{b}#2:/two"),
        &format!("{b}#old:/three"),
    ])
    .ok();
    for (disk, number, name) in [(&a, 1, "one"), (&b, 2, "two"), (&b, 1, "three")] {
        let part = part(&place, disk, number);
        assert_clean(&part);
        let found = debugfs(&part, &format!("cat /{name}"));
        assert_eq!(found, "text\n".repeat(9000));
    }
    // One partition by two names is one file system, also with the default of the command.
    extant([
        "cp",
        "-a",
        &format!("{b}#1:/three"),
        &format!("{b}#old:/four"),
    ])
    .ok();
    let both = [
        "cp",
        "-a",
        "--partition",
        "1",
        &format!("{b}:/four"),
        &format!("{b}#old:/five"),
    ];
    extant(both).ok();
    assert_clean(&part(&place, &b, 1));
    let list = extant(["ls", &format!("{b}#old")]).ok().text();
    assert_eq!(
        list.split_whitespace().collect::<Vec<_>>(),
        ["five", "four", "lost+found", "three"]
    );
    for (operand, says) in [
        (
            format!("{b}#boot"),
            "no partition with the label \"boot\": it has 1 (\"old\"), 2 (\"new\")",
        ),
        (format!("{b}#3"), "has no partition 3"),
    ] {
        let run = extant(["ls", &operand]).fails(1);
        assert!(run.stderr.contains(says), "{}", run.stderr);
    }
}

#[test]
fn commands_about_whole_images_take_partitions() {
    let place = Place::new();
    let disk = disk(&place, "disk", ["boot", "root"]);
    let root = format!("{disk}#root");
    extant(["check", &root]).ok();
    extant(["tune", "--label", "mine", &root]).ok();
    extant(["resize", &root, "20M"]).ok();
    assert_eq!(extant(["repair", "--no-undo", &root]).code, 0);
    extant(["replay", &root]).ok();
    let info = extant(["info", "--json", &root]).ok().json();
    assert_eq!(
        (&info["label"], &info["size"]),
        (&"mine".into(), &(20 << 20).into())
    );
    let whole = extant(["info", "--json", &disk]).ok().json();
    assert_eq!(whole["partitions"][1]["name"], "root");
    assert_eq!(whole["partitions"][1]["label"], "mine");
    assert_clean(&part(&place, &disk, 2));
    // The table is as it was, and so is the other partition.
    tool("sgdisk").args(["-v", &disk]).ok();
    let before = part(&place, &disk, 1);
    let before = std::fs::read(before).expect("the partition");
    extant(["mkfs", "--force", &root, "--label", "made"]).ok();
    assert!(std::fs::read(part(&place, &disk, 1)).expect("the partition") == before);
    assert_clean(&part(&place, &disk, 2));
    tool("sgdisk").args(["-v", &disk]).ok();
}

#[test]
fn a_partition_in_a_container_is_changed_in_place() {
    let place = Place::new();
    let raw = disk(&place, "raw", ["boot", "root"]);
    let qcow2 = place.arg("disk.qcow2");
    tool("qemu-img")
        .args(["convert", "-O", "qcow2", &raw, &qcow2])
        .ok();
    extant(["mkdir", &format!("{qcow2}#root:/made")]).ok();
    extant([
        "mkfs",
        "--force",
        &format!("{qcow2}#boot"),
        "--label",
        "fresh",
    ])
    .ok();
    tool("qemu-img").args(["check", &qcow2]).ok();
    tool("qemu-img")
        .args(["convert", "-O", "raw", &qcow2, &raw])
        .ok();
    assert_clean(&part(&place, &raw, 1));
    assert!(debugfs(&part(&place, &raw, 2), "ls -p /").contains("made"));
    let info = extant(["info", "--json", &qcow2]).ok().json();
    assert_eq!(info["container"]["format"], "qcow2");
    assert_eq!(info["partitions"][0]["label"], "fresh");
    let run = extant(["mkfs", "--format", "raw", &format!("{qcow2}#boot")]).fails(2);
    assert!(
        run.stderr.contains("in the format it has"),
        "{}",
        run.stderr
    );
}

#[test]
fn an_inherited_descriptor_is_an_image() {
    let place = Place::new();
    let image = place.join("image");
    mke2fs(&image, 16 << 20, &["-t", "ext4"]);
    let program = env!("CARGO_BIN_EXE_extant");
    let shell = |script: &str| {
        let args = ["-c", script, "sh", program];
        tool("sh").args(args).arg(&image).run()
    };
    let run =
        shell("echo text | \"$1\" write fd:3:/file 3<>\"$2\" && \"$1\" cat fd:4:/file 4<\"$2\"");
    assert_eq!((run.code, run.text().as_str()), (0, "text\n"), "{run}");
    let run = shell("\"$1\" check fd:0 <\"$2\" && \"$1\" tune --label x fd:9 9<>\"$2\"");
    assert_eq!(run.code, 0, "{run}");
    let run = shell("\"$1\" cp fd:3:/file \"$2\":/copy 3<\"$2\"");
    assert_eq!(run.code, 0, "{run}");
    assert_clean(&image);
    assert_eq!(debugfs(&image, "cat /copy"), "text\n");
    let run = shell("\"$1\" mkfs --force fd:5 --label made 5<>\"$2\" && \"$1\" info fd:0 <\"$2\"");
    assert!(run.code == 0 && run.text().contains("label made"), "{run}");
    assert_clean(&image);
    for (script, code, says) in [
        ("\"$1\" touch fd:3:/x 3<\"$2\"", 1, "open for reading only"),
        ("\"$1\" touch fd:3:/x 3>>\"$2\"", 1, "not open for reading"),
        ("\"$1\" ls fd:77", 1, "no file is open there"),
        ("\"$1\" mount fd:0 /mnt <\"$2\"", 2, "by another number"),
        ("flock -s 3; \"$1\" touch fd:3:/x", 1, "locked for reading"),
    ] {
        let script = if script.starts_with("flock") {
            format!("exec 3<>\"$2\"; {script}")
        } else {
            script.to_owned()
        };
        let run = shell(&script);
        let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.code == code && stderr.contains(says), "{script}: {run}");
    }
    assert_clean(&image);
}

#[test]
fn the_lock_of_an_opener_stays_where_the_system_does_not_tell_of_it() {
    require!(Root);
    let place = Place::new();
    let image = place.join("image");
    mke2fs(&image, 16 << 20, &["-t", "ext4"]);
    let program = env!("CARGO_BIN_EXE_extant");
    let script = "exec 3<>\"$2\"; flock $3 3; mount -t tmpfs none /proc || exit 9
        \"$1\" ls fd:3 || exit 8
        \"$1\" touch fd:3:/x; code=$?
        flock -n $4 \"$2\" -c true && echo lost
        exit $code";
    // The opener's lock, and the one that it keeps others from.
    for (own, other) in [("-x", "-s"), ("-s", "-x")] {
        let run = tool("sh")
            .args(crate::namespaces::apart(script))
            .args(["sh", program])
            .arg(&image)
            .args([own, other])
            .run();
        let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(
            run.code == 1 && stderr.contains("have /proc there"),
            "{run}"
        );
        assert_eq!(run.text(), "lost+found\n", "{run}");
    }
    assert_clean(&image);
}

#[test]
fn what_is_recognised_and_not_read_is_named_with_what_to_do() {
    let place = Place::new();
    let raw = place.arg("raw");
    File::create(&raw)
        .and_then(|file| file.set_len(4 << 20))
        .expect("a file");
    for format in ["vdi", "vhdx", "vmdk", "qed", "parallels"] {
        tool("qemu-img")
            .args([
                "convert",
                "-f",
                "raw",
                "-O",
                format,
                &raw,
                &place.arg(format),
            ])
            .ok();
    }
    std::fs::create_dir(place.join("tree")).expect("a directory");
    std::fs::write(place.join("tree/file"), "text").expect("a file");
    tool("mksquashfs")
        .args([&place.arg("tree"), &place.arg("squashfs"), "-quiet"])
        .ok();
    tool("bsdtar")
        .args([
            "-C",
            &place.arg("tree"),
            "--format=iso9660",
            "-cf",
            &place.arg("iso"),
            ".",
        ])
        .ok();
    // Marks of what no program at hand makes.
    let marked = |name: &str, at: u64, mark: &[u8]| {
        let file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .open(place.join(name));
        let file = file.expect("a file");
        file.set_len(4 << 20).expect("a size");
        file.write_all_at(mark, at).expect("room");
    };
    marked("luks", 0, b"LUKS\xba\xbe");
    marked("xfs", 0, b"XFSB");
    marked("btrfs", 0x10040, b"_BHRfS_M");
    for (name, content, says) in [
        ("vdi", Some("vdi"), "nbd"),
        ("vhdx", Some("vhdx"), "nbd"),
        ("qed", Some("qed"), "nbd"),
        ("parallels", Some("parallels"), "nbd"),
        ("vmdk", None, "qemu-nbd"),
        ("squashfs", Some("squashfs"), "unsquashfs"),
        ("iso", Some("iso9660"), "bsdtar"),
        ("luks", Some("luks"), "cryptsetup"),
        ("xfs", Some("xfs"), "mount it"),
        ("btrfs", Some("btrfs"), "mount it"),
    ] {
        let image = place.arg(name);
        for command in [&["ls"][..], &["check"], &["tune", "--list"]] {
            let run = extant(command.iter().copied().chain([image.as_str()])).fails_somehow();
            assert!(run.stderr.contains(says), "{command:?}: {}", run.stderr);
        }
        if let Some(content) = content {
            let info = extant(["info", "--json", &image]).ok().json();
            assert_eq!(info["content"], content, "{info}");
            assert!(
                extant(["info", &image]).ok().text().contains(says),
                "{name}"
            );
        }
    }
}

#[test]
fn addresses_that_name_nothing_are_usage_errors_and_servers_that_are_not_there_failures() {
    let place = Place::new();
    for (address, says) in [
        ("nbd:///x", "the host is missing"),
        ("nbd+unix:///x", "the socket is missing"),
        ("s3://bucket", "names no object"),
        ("rbd://pool/image", "qemu-nbd"),
        ("nbd://[::1]/x#", "partition behind # is missing"),
    ] {
        for command in ["ls", "info", "df"] {
            let run = extant([command, address]).fails(2);
            assert!(run.stderr.contains(says), "{}", run.stderr);
        }
        assert_eq!(extant(["check", address]).fails_somehow().code, 8);
        let run = extant(["cp", &format!("{address}:/x"), &place.arg("out")]).fails(2);
        assert!(run.stderr.contains(says), "{}", run.stderr);
    }
    let gone = format!("nbd+unix:///?socket={}", place.arg("gone"));
    extant(["ls", &gone]).fails(1);
    extant(["mkfs", &gone]).fails(1);
    extant(["check", &gone]).fails(8);
    extant(["mount", &gone, "/mnt"]).fails(1);
    let run = extant(["cp", &place.arg("x"), &gone]).fails(2);
    assert!(run.stderr.contains("is an image: write"), "{}", run.stderr);
    let image = place.join("image");
    mke2fs(&image, 16 << 20, &["-t", "ext4"]);
    let image = image.display().to_string();
    let run = extant(["ls", "--journal", "nbd:///x", &image]).fails(2);
    assert!(run.stderr.contains("the host is missing"), "{}", run.stderr);
}

/// Unmounts also when a test fails.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // It may be unmounted already.
        let _ = tool("umount").args(["-l"]).arg(&self.0).run();
    }
}

#[test]
fn a_partition_is_mounted_by_its_label() {
    require!(Fuse);
    let place = Place::new();
    let disk = disk(&place, "disk", ["boot", "root"]);
    let before = std::fs::read(part(&place, &disk, 1)).expect("the partition");
    let point = place.join("point");
    std::fs::create_dir(&point).expect("a directory");
    let mounted = Mounted(point.clone());
    let at = point.display().to_string();
    extant(["mount", &format!("{disk}#root"), &at]).ok();
    std::fs::write(point.join("file"), "by the mount").expect("a file");
    extant(["umount", &at]).ok();
    drop(mounted);
    let found = part(&place, &disk, 2);
    assert_clean(&found);
    assert_eq!(debugfs(&found, "cat /file"), "by the mount");
    assert!(std::fs::read(part(&place, &disk, 1)).expect("the partition") == before);
    // In a disk that lies in a container, too.
    let qcow2 = place.arg("disk.qcow2");
    tool("qemu-img")
        .args(["convert", "-O", "qcow2", &disk, &qcow2])
        .ok();
    let mounted = Mounted(point.clone());
    extant(["mount", &format!("{qcow2}#root"), &at]).ok();
    let found = std::fs::read(point.join("file")).expect("a file");
    assert_eq!(found, b"by the mount");
    extant(["umount", &at]).ok();
    drop(mounted);
}
