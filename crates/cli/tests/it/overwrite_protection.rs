//! What `mkfs` takes the place of: its own work, and nothing else unless told so; never what is in
//! use.

use crate::support::{Place, extant, extant_with, on_a_terminal, small_plan};
use extant_testkit::lasting_marks::lasting_marks;
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `mkfs` of 4 MiB over what is there.
fn over(image: &str) -> crate::support::Run {
    extant(["mkfs", image, "--size", "4M", "-q"])
}

/// What is there stays, byte for byte, and the message says what it is.
#[track_caller]
fn assert_left(image: &str, says: &str) {
    let before = fs::read(image).unwrap();
    let run = over(image).fails(1);
    assert!(
        run.stderr.contains(says),
        "{} does not say {says:?}",
        run.stderr
    );
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    assert_eq!(fs::read(image).unwrap(), before);
    extant(["mkfs", image, "--size", "4M", "-q", "--force"]).ok();
    assert_clean(Path::new(image));
    over(image).ok();
}

#[test]
fn what_mkfs_has_not_made_is_named_and_left_without_force() {
    let place = Place::new();
    let image = place.arg("image");
    let disk = || {
        fs::write(&image, vec![0; 8 << 20]).unwrap();
        tool("sgdisk").args(["-n", "1:2048:+2M", &image]).ok();
    };
    disk();
    assert_left(&image, "GPT");
    disk();
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .write_all_at(&[0; 1 << 20], 0)
        .unwrap();
    assert_left(&image, "GPT");
    mke2fs(
        Path::new(&image),
        4 << 20,
        &["-t", "ext4", "-L", "precious"],
    );
    assert_left(&image, "an ext4 file system labelled \"precious\"");
    let mut far = vec![0; 1 << 20];
    far[700_000] = 1;
    for (content, says) in [
        (b"a letter\n".to_vec(), "a text file"),
        (far, "not known"),
        (b"\x1f\x8b\x08\0".to_vec(), "gzip"),
        (b"LUKS\xba\xbe\0\x02".to_vec(), "LUKS"),
    ] {
        fs::write(&image, content).unwrap();
        assert_left(&image, says);
    }
    fs::write(place.join("file"), "x").unwrap();
    tool("tar")
        .args(["-cf", &image, "-C"])
        .arg(place.path())
        .arg("file")
        .ok();
    assert_left(&image, "a tar archive");
}

#[test]
fn empty_files_zeros_and_what_mkfs_has_made_are_replaced() {
    let place = Place::new();
    let image = place.arg("image");
    for _ in 0..2 {
        over(&image).ok();
    }
    let from = place.planted("tree", &small_plan());
    for _ in 0..2 {
        extant(["mkfs", &image, "--from", &from, "-q"]).ok();
    }
    // A build that fills its image afterwards runs again.
    extant(["cp", &place.arg("tree"), &format!("{image}:/"), "-r"]).ok();
    over(&image).ok();
    extant_with(["mkfs", &image, "--size", "4M", "-q"], |command| {
        command.env("SOURCE_DATE_EPOCH", "1");
    })
    .ok();
    let chosen = ["--hash-seed", "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e"];
    for _ in 0..2 {
        extant(
            ["mkfs", &image, "--size", "4M", "-q"]
                .into_iter()
                .chain(chosen),
        )
        .ok();
    }
    let run = over(&image).fails(1);
    assert!(
        run.stderr.contains("ext4"),
        "a seed that was chosen has no mark: {}",
        run.stderr
    );
    for content in [Vec::new(), vec![0; 100_000]] {
        fs::write(&image, content).unwrap();
        over(&image).ok();
    }
    fs::remove_file(&image).unwrap();
    File::create(&image).unwrap().set_len(1 << 40).unwrap();
    over(&image).ok();
}

#[test]
fn a_person_at_a_terminal_is_asked() {
    let place = Place::new();
    let image = place.arg("image");
    fs::write(&image, "a letter\n").unwrap();
    let said = on_a_terminal(&["mkfs", &image, "--size", "4M"]);
    assert!(
        said.contains("contains a text file. Replace it? [y/N]"),
        "{said}"
    );
    assert!(said.contains("left as it is"), "{said}");
    assert_eq!(fs::read(&image).unwrap(), b"a letter\n");
}

#[test]
fn partitions_are_looked_at_like_devices() {
    let place = Place::new();
    let disk = place.arg("disk");
    fs::write(&disk, vec![0; 16 << 20]).unwrap();
    tool("sgdisk").args(["-n", "1:2048:+6M", &disk]).ok();
    let mkfs = |force: bool| {
        let args = ["mkfs", &disk, "--partition", "1", "-q"].into_iter();
        extant(args.chain(force.then_some("--force")))
    };
    let file = OpenOptions::new().write(true).open(&disk).unwrap();
    file.write_all_at(b"anything at all", 3 << 20).unwrap();
    mkfs(false).ok();
    mkfs(false).ok();
    let theirs = place.arg("theirs");
    mke2fs(Path::new(&theirs), 6 << 20, &["-t", "ext4"]);
    file.write_all_at(&fs::read(&theirs).unwrap(), 1 << 20)
        .unwrap();
    assert!(mkfs(false).fails(1).stderr.contains("an ext4 file system"));
    mkfs(true).ok();
    tool("sgdisk").args(["-v", &disk]).ok();
}

#[test]
fn what_is_in_use_is_never_replaced() {
    require!(LoopDevices, KernelExt4);
    let place = Place::new();
    let image = place.arg("image");
    let refused = || {
        for force in [None, Some("--force")] {
            let args = ["mkfs", &image, "--size", "4M", "-q"];
            let run = extant(args.into_iter().chain(force)).fails(1);
            assert!(run.stderr.contains("in use"), "{}", run.stderr);
        }
    };
    over(&image).ok();
    let mount = KernelMount::mount(Path::new(&image), Mode::ReadWrite, "");
    refused();
    mount.unmount();
    let attached = LoopDevice::attach(Path::new(&image), Access::ReadOnly).unwrap();
    refused();
    drop(attached);
    // As our mounts hold their images, and as virtual machines do.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&image)
        .unwrap();
    for how in [FlockOperation::LockShared, FlockOperation::LockExclusive] {
        flock(&file, how).unwrap();
        refused();
    }
    flock(&file, FlockOperation::Unlock).unwrap();
    fcntl_lock(&file, FlockOperation::LockShared).unwrap();
    refused();
    drop(file);
    over(&image).ok();
}

#[test]
fn a_device_with_partitions_is_refused_and_forced_loses_both_copies_of_its_table() {
    require!(LoopDevices);
    let place = Place::new();
    let disk = place.join("disk");
    fs::write(&disk, vec![0; 16 << 20]).unwrap();
    tool("sgdisk").args(["-n", "1:2048:+6M"]).arg(&disk).ok();
    let device = LoopDevice::attach(&disk, Access::ReadWrite).unwrap();
    let path = device.path().display().to_string();
    let run = extant(["mkfs", &path, "-q"]).fails(1);
    assert!(run.stderr.contains("GPT"), "{}", run.stderr);
    extant(["mkfs", &path, "--size", "8M", "-q", "--force"]).ok();
    extant(["mkfs", &path, "--size", "8M", "-q"]).ok();
    drop(device);
    let bytes = fs::read(&disk).unwrap();
    assert!(!bytes.windows(8).any(|eight| eight == b"EFI PART"));
}

#[test]
fn a_part_of_a_raid_or_a_pool_is_refused_by_its_end_and_forced_is_none_any_more() {
    require!(LoopDevices);
    let place = Place::new();
    let size = 80 << 20;
    for (i, lasting) in lasting_marks(size).into_iter().enumerate() {
        let disk = place.join(&format!("disk{i}"));
        File::create(&disk).unwrap().set_len(size).unwrap();
        let device = LoopDevice::attach(&disk, Access::ReadWrite).unwrap();
        let path = device.path().display().to_string();
        // A mirrored file system lies at the front as if it were alone: also one of our own.
        extant(["mkfs", &path, "--size", "8M", "-q"]).ok();
        let written = OpenOptions::new().write(true).open(&path).unwrap();
        for (at, bytes) in &lasting.places {
            written.write_all_at(bytes, *at).unwrap();
        }
        written.sync_all().unwrap();
        drop(written);
        let said = || {
            tool("wipefs")
                .args(["-n", "-O", "TYPE"])
                .arg(&disk)
                .ok()
                .text()
        };
        assert!(said().contains(lasting.wipefs), "{}", said());
        let run = extant(["mkfs", &path, "--size", "8M", "-q"]).fails(1);
        let is_named = run.stderr.contains("RAID") || run.stderr.contains("ZFS");
        assert!(is_named && run.stderr.contains("--force"), "{}", run.stderr);
        extant(["mkfs", &path, "--size", "8M", "-q", "--force"]).ok();
        rustix::fs::fsync(device.file()).unwrap();
        let said = said();
        let left = said.lines().filter(|line| !line.trim().is_empty());
        let left: Vec<&str> = left.filter(|line| !line.contains("TYPE")).collect();
        assert_eq!(left, ["ext4"], "{}", lasting.wipefs);
        extant(["mkfs", &path, "--size", "8M", "-q"]).ok();
        drop(device);
        fs::remove_file(disk).unwrap();
    }
}

#[test]
fn a_part_of_a_disk_that_is_in_a_raid_is_refused_by_its_end() {
    let place = Place::new();
    let (start, size) = (1 << 20, 80 << 20);
    for lasting in lasting_marks(size) {
        let disk = place.arg("disk");
        let file = File::create(&disk).unwrap();
        file.set_len(start + size + (1 << 20)).unwrap();
        tool("sgdisk").args(["-n", "1:1M:+80M", &disk]).ok();
        for (at, bytes) in &lasting.places {
            file.write_all_at(bytes, start + at).unwrap();
        }
        let args = ["mkfs", &disk, "--partition", "1", "--size", "8M", "-q"];
        let run = extant(args).fails(1);
        assert!(run.stderr.contains("--force"), "{}", run.stderr);
        extant([&args[..], &["--force"]].concat()).ok();
        extant(args).ok();
    }
}

#[test]
fn what_lies_at_the_end_of_a_disk_is_left_alone_by_what_is_made_at_an_offset() {
    let place = Place::new();
    let (start, size) = (1 << 20, 80 << 20);
    for lasting in lasting_marks(size) {
        let disk = place.arg("disk");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&disk).unwrap();
        file.set_len(start + size).unwrap();
        for (at, bytes) in &lasting.places {
            file.write_all_at(bytes, start + at).unwrap();
        }
        let tail = |at: u64| {
            let mut bytes = vec![0; (start + size - at) as usize];
            file.read_exact_at(&mut bytes, at).unwrap();
            bytes
        };
        let before = tail(start + (8 << 20));
        let args = ["mkfs", &disk, "--offset", "1M", "--size", "8M", "-q"];
        for line in [&[&args[..], &["--force"]].concat()[..], &args] {
            extant(line).ok();
            assert!(tail(start + (8 << 20)) == before);
        }
    }
}

#[test]
fn blocks_are_no_smaller_than_the_sectors_of_a_device() {
    require!(LoopDevices, KernelExt4);
    let place = Place::new();
    let disk = place.join("disk");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let text = tool("losetup")
        .args(["-f", "--show", "-b", "4096"])
        .arg(&disk)
        .ok()
        .text();
    let device = text.trim().to_owned();
    let made = extant(["mkfs", &device, "-q"]);
    let small = extant(["mkfs", &device, "-q", "--block-size", "1K"]);
    tool("losetup").args(["-d", &device]).ok();
    made.ok();
    assert_eq!(dumpe2fs_header(&disk).field("Block size"), "4096");
    let run = small.fails(2);
    assert!(run.stderr.contains("sector"), "{}", run.stderr);
}

#[test]
fn standard_output_is_no_place_for_an_image() {
    let place = Place::new();
    let run = extant_with(["mkfs", "-", "--size", "4M"], |command| {
        command.current_dir(place.path());
    })
    .fails(2);
    assert!(run.stderr.contains("./-"), "{}", run.stderr);
    assert!(!place.join("-").exists());
}

#[test]
fn a_file_that_is_open_already_is_looked_at_as_one_with_a_name() {
    let place = Place::new();
    let image = place.arg("image");
    let program = env!("CARGO_BIN_EXE_extant");
    let mkfs = |more: &str| {
        let script = format!("\"$1\" mkfs fd:3 --size 4M -q {more} 3<>\"$2\"");
        tool("sh")
            .args(["-c", &script, "sh", program, &image])
            .run()
    };
    let mut far = vec![0; 8 << 20];
    far[7 << 20] = 1;
    for (content, says) in [
        ("a letter\n".repeat(1 << 20).into_bytes(), "a text file"),
        (far, "not known"),
        (vec![0xf7; 8 << 20], "not known"),
    ] {
        fs::write(&image, &content).unwrap();
        let run = mkfs("");
        let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.code == 1 && stderr.contains(says), "{run}");
        assert!(stderr.contains("--force"), "{run}");
        assert!(fs::read(&image).unwrap() == content);
        assert_eq!(mkfs("--force").code, 0);
        tool("e2fsck").args(["-fn", &image]).ok();
    }
    // Zeros, with holes and without, and its own.
    for holes in [true, false] {
        let file = File::create(&image).unwrap();
        file.set_len(8 << 20).unwrap();
        if !holes {
            file.write_all_at(&vec![0; 8 << 20], 0).unwrap();
        }
        for _ in 0..2 {
            let run = mkfs("");
            assert_eq!(run.code, 0, "{run}");
        }
    }
    // A part of a disk is what it was before: never zero.
    fs::write(&image, vec![0x5a; 8 << 20]).unwrap();
    assert_eq!(mkfs("--offset 1M").code, 0);
}

#[test]
fn a_file_that_appears_while_an_image_is_made_is_left_as_it_is() {
    let place = Place::new();
    let image = place.arg("image");
    fs::create_dir(place.join("tree")).unwrap();
    fs::write(place.join("tree/file"), vec![7; 1 << 20]).unwrap();
    let archive = place.join("archive");
    tool("tar")
        .arg("-cf")
        .arg(&archive)
        .arg("-C")
        .arg(place.join("tree"))
        .arg(".")
        .ok();
    let archive = fs::read(archive).unwrap();
    let (first, rest) = archive.split_at(archive.len() / 2);
    // Where there was no file, and where there was another one.
    for existed in [false, true] {
        for (force, code) in [(false, 1), (true, 0)] {
            let _ = fs::remove_file(&image);
            if existed {
                File::create(&image).unwrap();
            }
            let mut args = vec!["mkfs", &image, "--from", "-", "-q"];
            args.extend(force.then_some("--force"));
            let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
                .args(args)
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            // More than a pipe holds: the source is being read, and the place was looked at before.
            stdin.write_all(first).unwrap();
            fs::write(place.join("other"), "precious\n").unwrap();
            fs::rename(place.join("other"), &image).unwrap();
            stdin.write_all(rest).unwrap();
            drop(stdin);
            let done = child.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(code), "{stderr}");
            if force {
                assert_clean(Path::new(&image));
                continue;
            }
            assert!(
                stderr.contains("became the name of another file"),
                "{stderr}"
            );
            assert!(stderr.contains("nothing is lost"), "{stderr}");
            assert_eq!(fs::read(&image).unwrap(), b"precious\n");
        }
    }
    let mut names: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
    names.retain(|name| name.is_ok());
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn an_offset_inside_of_a_file_system_or_an_image_needs_force() {
    let place = Place::new();
    let image = place.arg("image");
    let mkfs = |offset: &str, force: bool| {
        let args = ["mkfs", &image, "--offset", offset, "--size", "4M", "-q"];
        extant(args.into_iter().chain(force.then_some("--force")))
    };
    extant(["mkfs", &image, "--size", "16M", "-q"]).ok();
    let before = fs::read(&image).unwrap();
    let run = mkfs("4M", false).fails(1);
    assert!(
        run.stderr.contains("a part of an ext4 file system"),
        "{}",
        run.stderr
    );
    assert!(fs::read(&image).unwrap() == before);
    // Behind its end nothing of it is lost.
    let file = OpenOptions::new().write(true).open(&image).unwrap();
    file.set_len(32 << 20).unwrap();
    mkfs("16M", false).ok();
    assert_clean(Path::new(&image));
    mkfs("4M", true).ok();
    fs::write(&image, [&b"LUKS\xba\xbe\0\x02"[..], &[1; 8 << 20]].concat()).unwrap();
    let run = mkfs("1M", false).fails(1);
    assert!(run.stderr.contains("LUKS"), "{}", run.stderr);
}

#[test]
fn a_disk_is_not_replaced_where_a_name_was_forgotten_or_exchanged() {
    let place = Place::new();
    let (image, other) = (place.arg("image"), place.arg("other"));
    let from = place.planted("tree", &small_plan());
    for path in [&image, &other] {
        extant(["mkfs", path, "--from", &from, "-q"]).ok();
    }
    let qcow2 = place.arg("qcow2");
    tool("qemu-img")
        .args(["convert", "-O", "qcow2", &other, &qcow2])
        .ok();
    let inside = format!("{image}:/etc/hostname");
    for (args, says) in [
        (&["cp", &inside, &other][..], "other:/ to copy into it"),
        (&["cp", "-a", &inside, &qcow2], "QCOW"),
        (&["tar", &image, "-o", &other], "an archive would take"),
        (&["map", &image, "--svg", &image], "a picture would take"),
    ] {
        let before = [&image, &other, &qcow2].map(|path| fs::read(path).unwrap());
        let run = extant(args).fails(1);
        assert!(run.stderr.contains(says), "{}", run.stderr);
        let after = [&image, &other, &qcow2].map(|path| fs::read(path).unwrap());
        assert!(before == after, "{args:?}");
    }
    // A disk may take the place of a disk, and a file that of a file.
    extant(["cp", &other, &format!("{image}:/disk")]).ok();
    extant(["cp", &format!("{image}:/disk"), &other]).ok();
    assert_clean(Path::new(&other));
    let file = place.arg("file");
    for _ in 0..2 {
        extant(["cp", &inside, &file]).ok();
        extant(["tar", &image, "-o", &file]).ok();
    }
}

#[test]
fn what_was_put_into_an_image_is_not_lost_to_convert() {
    let place = Place::new();
    let (image, qcow2) = (place.arg("image"), place.arg("qcow2"));
    extant(["mkfs", &qcow2, "--format", "qcow2", "--size", "8M", "-q"]).ok();
    extant(["mkfs", &image, "--size", "4M", "-q"]).ok();
    let convert = |force: bool| {
        let args = ["convert", &qcow2, &image, "--format", "raw", "-q"];
        extant(args.into_iter().chain(force.then_some("--force")))
    };
    // As it was made.
    convert(false).ok();
    assert_eq!(fs::metadata(&image).unwrap().len(), 8 << 20);
    let dir = format!("{image}:/dir");
    extant_with(["mkdir", &dir], |command| {
        command.env("SOURCE_DATE_EPOCH", "1900000000");
    })
    .ok();
    let before = fs::read(&image).unwrap();
    let run = convert(false).fails(1);
    assert!(run.stderr.contains("was changed"), "{}", run.stderr);
    assert!(fs::read(&image).unwrap() == before);
    convert(true).ok();
}
