//! Disks that a guest has made look like an image of a format, and `--image-format`.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, debugfs, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::{Background, tool};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What a guest writes in front: the header of a qcow2 whose backing file is a secret of the host.
fn deceptive_header(secret: &Path) -> Vec<u8> {
    let name = secret.display().to_string();
    let mut header = vec![0; 112];
    header[..4].copy_from_slice(b"QFI\xfb");
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(4, &3_u32.to_be_bytes());
    put(8, &112_u64.to_be_bytes());
    put(16, &(name.len() as u32).to_be_bytes());
    put(20, &16_u32.to_be_bytes());
    put(24, &(16_u64 << 20).to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    header.extend_from_slice(name.as_bytes());
    header
}

/// A raw disk with an ext4 partition, whose boot sector a guest has written to. The table that says
/// what it is stays: a GPT begins behind it.
fn deceptive_disk(place: &Place, name: &str) -> String {
    let disk = place.arg(name);
    let file = File::create(&disk).expect("a file");
    file.set_len(24 << 20).expect("a size");
    tool("sgdisk").args(["-n", "1:2048:+20M", &disk]).ok();
    let part = place.join("part");
    mke2fs(&part, 20 << 20, &["-t", "ext4"]);
    let bytes = fs::read(&part).expect("a file system");
    file.write_all_at(&bytes, 1 << 20).expect("room");
    let secret = place.join("secret");
    fs::write(&secret, "secret\n".repeat(1000)).expect("a file");
    file.write_all_at(&deceptive_header(&secret), 0)
        .expect("room");
    disk
}

/// The file system in the partition, for programs that know no partitions.
fn part_of(place: &Place, disk: &str) -> std::path::PathBuf {
    let mut bytes = vec![0; 20 << 20];
    let file = File::open(disk).expect("the disk");
    file.read_exact_at(&mut bytes, 1 << 20).expect("the part");
    let part = place.join("part");
    fs::write(&part, bytes).expect("room");
    part
}

/// What every command says of a disk that could be one or the other.
const SAYS: [&str; 2] = ["begins as a qcow2 disk image does", "--image-format raw"];

#[test]
fn every_command_takes_a_disk_for_what_is_said_and_refuses_to_guess() {
    let place = Place::new();
    let disk = deceptive_disk(&place, "disk.img");
    let host = place.arg("host");
    fs::write(&host, "content\n").expect("a file");
    let secret = fs::read(place.join("secret")).expect("the secret");
    let in_disk = |path: &str| format!("{disk}#1:{path}");
    let part = format!("{disk}#1");
    let target = place.arg("target.qcow2");
    let commands: &[&[&str]] = &[
        &["cp", &host, &in_disk("/file")],
        &["cat", &in_disk("/file")],
        &["ls", "-l", &in_disk("/")],
        &["cp", &in_disk("/file"), &place.arg("out")],
        &["mkdir", &in_disk("/dir")],
        &["stat", &in_disk("/dir")],
        &["tar", &part],
        &["df", &part],
        &["map", &part],
        &["info", &disk],
        &["check", &part],
        &["tune", "--label", "said", &part],
        &["resize", "--minimum", &part],
        &["repair", "--no-undo", &part],
        &["replay", &part],
        &["convert", "--partition", "1", &disk, &target, "-q"],
    ];
    for args in commands {
        let before = fs::read(&disk).expect("the disk");
        let run = extant(*args);
        assert!([1, 8].contains(&run.code), "{args:?}: {}", run.stderr);
        for says in SAYS {
            assert!(run.stderr.contains(says), "{args:?}: {}", run.stderr);
        }
        assert!(fs::read(&disk).expect("the disk") == before, "{args:?}");
        // In front of the command and behind it, of all images and of this one.
        let one = format!("{disk}=raw");
        for said in ["raw", &one] {
            let run = extant(["--image-format", said].iter().chain(*args));
            assert!([0, 1].contains(&run.code), "{args:?}: {}", run.stderr);
            let is_again = ["mkdir", "convert"].contains(&args[0]) && said == one;
            assert!(
                run.code == 0 || is_again || args[0] == "repair",
                "{args:?}: {}",
                run.stderr
            );
        }
    }
    assert_eq!(fs::read(place.join("out")).expect("a copy"), b"content\n");
    let part_file = part_of(&place, &disk);
    assert_clean(&part_file);
    assert_eq!(debugfs(&part_file, "cat /file"), "content\n");
    // The part was converted, and no secret went into it.
    tool("qemu-img").args(["check", "-q", &target]).ok();
    let raw = place.arg("raw");
    tool("qemu-img")
        .args(["convert", "-O", "raw", &target, &raw])
        .ok();
    let raw = fs::read(&raw).expect("a file");
    assert!(!raw.windows(32).any(|window| window == &secret[..32]));
    // A file system is made in the partition, and the header in front stays.
    let mkfs = ["mkfs", "--force", "--partition", "1", &disk, "-q"];
    assert!(extant(mkfs).fails(1).stderr.contains(SAYS[0]));
    extant([&mkfs[..], &["--image-format", "raw", "--label", "made"]].concat()).ok();
    assert_clean(&part_of(&place, &disk));
    let head = fs::read(&disk).expect("the disk");
    assert!(head.starts_with(&deceptive_header(&place.join("secret"))));
}

#[test]
fn servers_and_open_files_are_taken_for_what_is_said() {
    let place = Place::new();
    let disk = deceptive_disk(&place, "disk.img");
    let socket = place.arg("socket");
    let mut server: Background = tool("nbdkit")
        .args(["-f", "-U", &socket, "file", &disk])
        .background(&place.join("nbdkit.log"));
    server.wait_for_socket(Path::new(&socket));
    let export = format!("nbd+unix:///?socket={socket}");
    let run = extant(["ls", &format!("{export}#1")]).fails(1);
    assert!(run.stderr.contains(SAYS[0]), "{}", run.stderr);
    for said in ["raw".to_owned(), format!("{export}=raw")] {
        let args = ["ls", "--image-format", &said, &format!("{export}#1")];
        assert_eq!(extant(args).ok().text(), "lost+found\n");
    }
    let copy = place.arg("copy.qcow2");
    extant(["convert", "--source-format", "raw", &export, &copy, "-q"]).ok();
    tool("qemu-img")
        .args(["compare", "-f", "qcow2", "-F", "raw", &copy, &disk])
        .ok();
    let program = env!("CARGO_BIN_EXE_extant");
    let shell = |script: &str| {
        let args = ["-c", script, "sh", program];
        tool("sh").args(args).arg(&disk).run()
    };
    let run = shell("\"$1\" ls fd:3#1 3<\"$2\"");
    assert_eq!(run.code, 1, "{run}");
    let run = shell("\"$1\" ls --image-format raw fd:3#1 3<\"$2\"");
    assert_eq!(
        (run.code, run.text().as_str()),
        (0, "lost+found\n"),
        "{run}"
    );
}

#[test]
fn images_of_one_command_may_be_said_to_be_different() {
    let place = Place::new();
    let disk = deceptive_disk(&place, "disk.img");
    let other = place.arg("other.qcow2");
    extant(["mkfs", &other, "--size", "8M", "-q"]).ok();
    let host = place.arg("host");
    fs::write(&host, "content\n").expect("a file");
    extant(["cp", &host, &format!("{other}:/file")]).ok();
    let (from, to) = (format!("{other}:/file"), format!("{disk}#1:/file"));
    // One word for both fits one of them only.
    let run = extant(["cp", "--image-format", "raw", &from, &to]);
    assert_ne!(run.code, 0);
    let run = extant(["cp", "--image-format", "qcow2", &from, &to]);
    assert_ne!(run.code, 0);
    let one = format!("{disk}=raw");
    extant(["cp", "--image-format", &one, &from, &to]).ok();
    let both = ["--image-format", "qcow2", "--image-format", &one];
    extant(
        ["cat"]
            .iter()
            .chain(&both)
            .chain(&[to.as_str(), from.as_str()]),
    )
    .ok();
    // A slip in the name is no guess.
    let slip = format!("{}=raw", place.arg("disk"));
    let run = extant(["cp", "--image-format", &slip, &from, &to]).fails(2);
    assert!(
        run.stderr.contains("no image of this command"),
        "{}",
        run.stderr
    );
}

#[test]
fn what_was_said_and_is_not_so_is_refused() {
    let place = Place::new();
    let raw = place.arg("raw.img");
    mke2fs(raw.as_ref(), 8 << 20, &["-t", "ext4"]);
    for word in [
        "qcow2",
        "vhd",
        "vhd-fixed",
        "vmdk",
        "simg",
        "gzip",
        "zstd",
        "xz",
    ] {
        let run = extant(["ls", "--image-format", word, &raw]).fails(1);
        assert!(run.stderr.contains("no mark of one"), "{}", run.stderr);
    }
    let run = extant(["ls", "--image-format", "vdi", &raw]).fails(2);
    assert!(
        run.stderr.contains("use one of raw, qcow2"),
        "{}",
        run.stderr
    );
    // With the exit code for command lines that others of the kind have.
    extant(["--image-format", "vdi", "check", &raw]).fails(16);
    extant(["check", "--image-format", "missing=raw", &raw]).fails(16);
    let run = extant(["umount", "--image-format", "raw", &place.arg("")]).fails(2);
    assert!(run.stderr.contains("opens no image"), "{}", run.stderr);
    let new = place.arg("new.img");
    extant(["mkfs", "--image-format", "raw", &new, "--size", "4M"]).fails(2);
    // Each format by its own word, and a fixed VHD by that of both kinds.
    for (word, name) in [
        ("qcow2", "a.qcow2"),
        ("vhd", "a.vhd"),
        ("simg", "a.simg"),
        ("vmdk", "a.vmdk"),
    ] {
        let image = place.arg(name);
        extant(["convert", &raw, &image, "-q"]).ok();
        let run = extant(["ls", "--image-format", word, &image]);
        assert_eq!(run.ok().text(), "lost+found\n");
    }
    let fixed = place.arg("fixed");
    extant(["convert", "--format", "vhd-fixed", &raw, &fixed, "-q"]).ok();
    for word in ["vhd", "vhd-fixed"] {
        extant(["ls", "--image-format", word, &fixed]).ok();
    }
    extant(["ls", "--image-format", "vhd-fixed", &place.arg("a.vhd")]).fails(1);
    // Two options that say it contradict each other.
    let image = place.arg("a.qcow2");
    let target = place.arg("target");
    let args = [
        "convert",
        "--source-format",
        "raw",
        "--image-format",
        "qcow2",
    ];
    let run = extant(args.iter().chain(&[image.as_str(), target.as_str()])).fails(2);
    assert!(run.stderr.contains("contradict"), "{}", run.stderr);
}

#[test]
fn a_fixed_vhd_is_one_whatever_its_guest_wrote_in_front() {
    let place = Place::new();
    let raw = place.arg("raw.img");
    mke2fs(raw.as_ref(), 8 << 20, &["-t", "ext4"]);
    let image = place.arg("disk.vhd");
    extant(["convert", "--format", "vhd-fixed", &raw, &image, "-q"]).ok();
    let file = File::options().write(true).open(&image).expect("it");
    let secret = place.join("secret");
    fs::write(&secret, "secret").expect("a file");
    file.write_all_at(&deceptive_header(&secret), 0)
        .expect("room");
    let info = extant(["info", "--json", &image]).ok().json();
    assert_eq!(info["container"]["format"], "vhd-fixed");
    assert_eq!(extant(["ls", &image]).ok().text(), "lost+found\n");
}

#[test]
fn mounts_take_a_disk_for_what_is_said() {
    require!(Fuse);
    let place = Place::new();
    let disk = deceptive_disk(&place, "disk.img");
    let point = place.arg("mnt");
    fs::create_dir(&point).expect("a directory");
    let part = format!("{disk}#1");
    let run = extant(["mount", &part, &point]).fails(1);
    assert!(run.stderr.contains(SAYS[0]), "{}", run.stderr);
    let ways: [&[&str]; 3] = [
        &["--image-format", "raw"],
        &["-o", "image_format=raw"],
        &["--image-format", &format!("{disk}=raw"), "--no-sandbox"],
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let args = ["mount", &part, &point];
        extant(args.iter().chain(way)).ok();
        fs::write(format!("{point}/file-{n}"), "content").expect("room");
        extant(["umount", &point]).ok();
    }
    let run = extant(["mount", "-o", "image_format=vdi", &part, &point]).fails(2);
    assert!(run.stderr.contains("use one of"), "{}", run.stderr);
    let found = part_of(&place, &disk);
    assert_clean(&found);
    assert_eq!(debugfs(&found, "cat /file-2"), "content");
}
