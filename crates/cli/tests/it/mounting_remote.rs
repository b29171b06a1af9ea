//! Mounts of images that are no plain files: behind servers, and in formats of disk images.

use crate::mounting::{extant_that_hears_interrupts, wait_until};
use crate::namespaces::without_copies;
use crate::support::{Place, extant, extant_with};
use extant_testkit::nginx::Nginx;
use extant_testkit::oracle::{assert_clean, debugfs, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::{Background, tool};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A mount, which is gone with this also where a test fails.
struct Mounted(PathBuf);

impl Mounted {
    fn new(place: &Place, image: &str, options: &str) -> Self {
        let point = place.join("mnt");
        fs::create_dir_all(&point).unwrap();
        let text = point.display().to_string();
        extant(["mount", "-o", options, image, &text]).ok();
        Self(point)
    }

    fn unmount(self) {
        extant(["umount", &self.0.display().to_string()]).ok();
    }

    /// Writes a file and makes it durable.
    fn write(&self, name: &str, content: &[u8]) {
        let mut file = File::create(self.0.join(name)).unwrap();
        file.write_all(content).unwrap();
        file.sync_all().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nothing is mounted any more where a test came to its end.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// nbdkit in front of a file: the server, and the address of its export.
fn nbdkit(place: &Place, args: &[&str]) -> (Background, String) {
    let socket = place.arg("socket");
    let mut server = tool("nbdkit")
        .args(["-f", "-U", &socket])
        .args(args)
        .background(&place.join("nbdkit.log"));
    server.wait_for_socket(Path::new(&socket));
    (server, format!("nbd+unix:///?socket={socket}"))
}

/// How many processes have this word and this image in their arguments.
fn processes(role: &str, image: &str) -> usize {
    processes_with(&[role, image]).len()
}

/// The processes with these words in their arguments, as their folders in `/proc`.
fn processes_with(wanted: &[&str]) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.map(|process| process.path())
        .filter(|process| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            wanted.iter().all(|word| words.contains(&word.as_bytes()))
        })
        .collect()
}

fn content(seed: u32) -> Vec<u8> {
    (0..700_000_u32)
        .map(|n| (n.wrapping_mul(seed) >> 5) as u8)
        .collect()
}

#[test]
fn an_export_is_mounted_written_and_let_go_of() {
    require!(Fuse);
    let place = Place::new();
    let image = place.join("img");
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let (server, address) = nbdkit(&place, &["file", &place.arg("img")]);
    let mount = Mounted::new(&place, &address, "");
    assert_eq!(processes("--worker", &address), 1);
    assert_eq!(processes("--carrier", &address), 1);
    mount.write("one", &content(3));
    fs::create_dir(mount.0.join("dir")).unwrap();
    fs::rename(mount.0.join("one"), mount.0.join("dir/two")).unwrap();
    assert_eq!(fs::read(mount.0.join("dir/two")).unwrap(), content(3));
    mount.unmount();
    assert_eq!(
        processes("--carrier", &address),
        0,
        "the export is let go of"
    );
    drop(server);
    assert_clean(&image);
    assert!(debugfs(&image, "ls -l /dir").contains("two"));
}

#[test]
fn what_was_synced_survives_the_death_of_the_server_and_what_was_not_is_an_error() {
    require!(Fuse);
    let place = Place::new();
    let image = place.join("img");
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let (server, address) = nbdkit(&place, &["file", &place.arg("img")]);
    let mount = Mounted::new(&place, &address, "");
    mount.write("synced", &content(5));
    fs::write(mount.0.join("late"), content(7)).unwrap();
    // Nobody listens at the socket any more.
    fs::remove_file(place.join("socket")).unwrap();
    drop(server);
    let late = File::open(mount.0.join("late")).unwrap();
    let failed = late.sync_all().unwrap_err();
    assert!(
        matches!(failed.raw_os_error(), Some(5 | 30)),
        "EIO or EROFS: {failed}"
    );
    drop(late);
    // So it is told at the end, too.
    let run = extant(["umount", &mount.0.display().to_string()]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("may be lost"), "{}", run.stderr);
    drop(mount);
    wait_until("its processes have ended", || {
        processes("--worker", &address) == 0 && processes("--carrier", &address) == 0
    });
    let (server, address) = nbdkit(&place, &["file", &place.arg("img")]);
    let mount = Mounted::new(&place, &address, "");
    assert_eq!(fs::read(mount.0.join("synced")).unwrap(), content(5));
    mount.unmount();
    drop(server);
    assert_clean(&image);
}

#[test]
fn a_disk_in_a_format_is_mounted_and_other_programs_see_what_was_written() {
    require!(Fuse);
    let place = Place::new();
    let raw = place.join("raw");
    mke2fs(&raw, 64 << 20, &["-t", "ext4"]);
    for (format, word) in [("qcow2", "qcow2"), ("vpc", "vhd")] {
        let image = place.arg(&format!("disk.{word}"));
        tool("qemu-img")
            .args(["convert", "-f", "raw", "-O", format])
            .arg(&raw)
            .arg(&image)
            .ok();
        let mount = Mounted::new(&place, &image, "");
        mount.write("written", &content(9));
        mount.unmount();
        assert_eq!(processes("--carrier", &image), 0);
        let back = place.join("back");
        tool("qemu-img")
            .args(["convert", "-f", format, "-O", "raw", &image])
            .arg(&back)
            .ok();
        assert_clean(&back);
        let out = place.join("out");
        debugfs(&back, &format!("dump /written {}", out.display()));
        assert_eq!(fs::read(&out).unwrap(), content(9), "{format}");
    }
}

#[test]
fn a_part_of_a_disk_behind_a_server_is_mounted_for_reading() {
    require!(Fuse);
    let place = Place::new();
    let part = place.join("part");
    mke2fs(&part, 16 << 20, &["-t", "ext4"]);
    let disk = place.join("disk");
    File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    tool("sgdisk")
        .args(["-n", "1:2048:+16M", "-c", "1:root", "-n", "2:0:+1M"])
        .arg(&disk)
        .ok();
    let mut whole = File::options().write(true).open(&disk).unwrap();
    std::io::Seek::seek(&mut whole, std::io::SeekFrom::Start(1 << 20)).unwrap();
    whole.write_all(&fs::read(&part).unwrap()).unwrap();
    let (server, address) = nbdkit(&place, &["-r", "file", &place.arg("disk")]);
    let mount = Mounted::new(&place, &format!("{address}#root"), "ro");
    assert!(mount.0.join("lost+found").is_dir());
    let refused = File::create(mount.0.join("new")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "EROFS");
    mount.unmount();
    // A command line that does not say so is told.
    let point = place.arg("mnt");
    let run = extant(["mount", &format!("{address}#1"), &point]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("reading only"), "{}", run.stderr);
    drop(server);
}

#[test]
fn what_is_behind_http_and_what_is_in_chunks_is_mounted_for_reading() {
    require!(Fuse);
    let place = Place::new();
    fs::create_dir(place.join("source")).unwrap();
    fs::write(place.join("source/file"), content(11)).unwrap();
    let nginx = Nginx::start();
    let image = nginx.root().join("fs.img");
    let source = place.arg("source");
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-d", &source]);
    let store = format!("--store={}", nginx.root().join("default.castr").display());
    tool("casync")
        .args(["make", &store])
        .arg(nginx.root().join("fs.caibx"))
        .arg(&image)
        .ok();
    let index = nginx.root().join("fs.caibx").display().to_string();
    for address in [nginx.url("fs.img"), nginx.url("fs.caibx"), index] {
        let mount = Mounted::new(&place, &address, "ro");
        assert_eq!(processes("--carrier", &address), 1);
        assert_eq!(fs::read(mount.0.join("file")).unwrap(), content(11));
        let refused = File::create(mount.0.join("new")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(30), "EROFS");
        mount.unmount();
        assert_eq!(processes("--carrier", &address), 0, "{address}");
        let point = place.arg("mnt");
        let told = extant(["mount", &address, &point]).fails_somehow().stderr;
        assert!(
            told.contains("convert") || told.contains("in place"),
            "{told}"
        );
    }
    // The processes of a mount leave the folder that it was started in.
    let point = place.join("mnt");
    let run = extant_with(["mount", "-r", "fs.caibx", &place.arg("mnt")], |command| {
        command.current_dir(nginx.root());
        command.env("EXTANT_CHUNK_STORE", "default.castr");
    });
    run.ok();
    let mount = Mounted(point);
    assert_eq!(fs::read(mount.0.join("file")).unwrap(), content(11));
    // The place of the chunks, which may have secrets, is known to the process that reads them.
    for (role, is_told) in [("--carrier", true), ("--worker", false)] {
        let found = processes_with(&[role, &place.arg("mnt")]);
        assert_eq!(found.len(), 1, "{role}");
        let told = fs::read_to_string(found[0].join("environ")).unwrap();
        assert_eq!(told.contains("EXTANT_CHUNK_STORE"), is_told, "{role}");
    }
    mount.unmount();
}

#[test]
fn what_cannot_be_reached_or_mounted_is_refused_once() {
    require!(Fuse);
    let place = Place::new();
    let point = place.join("mnt");
    fs::create_dir(&point).unwrap();
    let point = point.display().to_string();
    let nowhere = format!("nbd+unix:///?socket={}", place.arg("nowhere"));
    let run = extant(["mount", &nowhere, &point]);
    assert_eq!(run.code, 1);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("No such file"), "{}", run.stderr);
    for (image, code, why) in [
        ("fd:0", 2, "by another number"),
        ("fd:77", 1, "no file is open there"),
        ("nbd://", 2, "nbd://"),
    ] {
        let run = extant(["mount", image, &point]);
        assert_eq!(run.code, code, "{}", run.stderr);
        assert!(run.stderr.contains(why), "{}", run.stderr);
    }
    let far = ["mount", "--journal", &nowhere, &nowhere, &point];
    let run = extant(far);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("journal"), "{}", run.stderr);
    assert_eq!(
        fs::read_dir(&point).unwrap().count(),
        0,
        "nothing is mounted"
    );
}

#[test]
fn secrets_of_an_address_stand_in_no_arguments() {
    require!(Fuse);
    let place = Place::new();
    let point = place.join("mnt");
    fs::create_dir(&point).unwrap();
    // A server that takes a request and never answers.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let address = format!("http://user:secret@{at}/disk?sign=secret");
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
    let mut child = command
        .args(["mount", "-r", &address])
        .arg(&point)
        .spawn()
        .unwrap();
    let started = server.accept().unwrap();
    let arguments = |id: &std::ffi::OsStr| {
        fs::read(Path::new("/proc").join(id).join("cmdline")).unwrap_or_default()
    };
    let ours = child.id().to_string();
    let others: Vec<Vec<u8>> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|process| process.file_name())
        .filter(|id| id.to_str() != Some(&ours))
        .map(|id| arguments(&id))
        .filter(|line| {
            let at = at.to_string();
            line.windows(at.len()).any(|part| part == at.as_bytes())
        })
        .collect();
    assert!(others.len() >= 2, "the supervisor and the carrier");
    for line in others {
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(!line.contains("secret"), "{line}");
    }
    drop(started);
    drop(server);
    assert!(!child.wait().unwrap().success());
}

#[test]
fn a_signal_ends_a_mount_that_waits_for_a_server() {
    require!(Fuse);
    let place = Place::new();
    let point = place.join("mnt");
    fs::create_dir(&point).unwrap();
    for (foreground, sandbox, signal) in [
        (true, true, Signal::TERM),
        (true, true, Signal::INT),
        (true, false, Signal::TERM),
        (false, true, Signal::TERM),
        (false, true, Signal::INT),
        (false, false, Signal::INT),
    ] {
        // It takes requests and never answers: the limit of time is half a minute.
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/disk", server.local_addr().unwrap());
        let mut command = extant_that_hears_interrupts();
        command.args(["mount", "-r", &address]).arg(&point);
        command.args(foreground.then_some("--foreground"));
        command.args((!sandbox).then_some("--no-sandbox"));
        let mut child = command.spawn().unwrap();
        let client = server.accept().unwrap();
        let begun = Instant::now();
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        let ended = begun.elapsed();
        assert!(ended < Duration::from_secs(3), "{ended:?}");
        wait_until("its processes have ended", || {
            let roles = ["--carrier", "--worker", "--in-background"];
            roles.iter().all(|role| processes(role, &address) == 0)
        });
        let ended = begun.elapsed();
        assert!(ended < Duration::from_secs(8), "{ended:?}");
        drop(client);
        assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
    }
}

/// Runs a script, which may unmount, with the program, a file and a directory as its arguments.
fn shell(script: &str, file: &str, point: &str) -> String {
    let run = tool("sh").args([
        "-ec",
        script,
        "sh",
        env!("CARGO_BIN_EXE_extant"),
        file,
        point,
    ]);
    let _no_copies = without_copies();
    run.ok().text()
}

#[test]
fn a_file_that_is_open_is_mounted_whatever_it_is_called() {
    require!(Fuse);
    let place = Place::new();
    let image = place.join("img");
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let mount = Mounted(place.join("mnt"));
    fs::create_dir(&mount.0).unwrap();
    let (image, point) = (place.arg("img"), place.arg("mnt"));
    let kept = format!("{image}.kept");
    // Nothing leads to it by the name it was opened by, while it is mounted and unmounted.
    let script = r#"
        exec 3<>"$2"
        mv "$2" "$2.kept"
        "$1" mount fd:3 "$3"
        echo text > "$3/file"
        ! "$1" touch "$2.kept:/other" 2> "$2.said"
        grep -q 'open elsewhere' "$2.said"
        "$1" umount "$3"
        "$1" touch "$2.kept:/after"
        "$1" cat fd:3:/file
    "#;
    assert_eq!(shell(script, &image, &point), "text\n");
    assert_clean(Path::new(&kept));
    assert!(debugfs(Path::new(&kept), "ls /").contains("after"));
    // The mount outlives the shell that opened the file, and may read only.
    shell(r#""$1" mount fd:5 "$3" -o ro 5<"$2""#, &kept, &point);
    assert_eq!(fs::read(mount.0.join("file")).unwrap(), b"text\n");
    mount.unmount();
}

#[test]
fn an_open_file_in_a_format_is_for_the_carrier_alone() {
    require!(Fuse);
    let place = Place::new();
    let raw = place.join("raw");
    mke2fs(&raw, 64 << 20, &["-t", "ext4"]);
    let (image, point) = (place.arg("disk.qcow2"), place.arg("mnt"));
    let convert = tool("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2"]);
    convert.arg(&raw).arg(&image).ok();
    let mount = Mounted(place.join("mnt"));
    fs::create_dir(&mount.0).unwrap();
    shell(r#"exec 7<>"$2"; "$1" mount fd:7 "$3""#, &image, &point);
    let has_it = |role: &str| {
        let found = processes_with(&[role, "fd:7", &point]);
        let [process] = &found[..] else {
            panic!("one {role}: {found:?}");
        };
        let files = fs::read_dir(process.join("fd")).unwrap();
        files
            .filter_map(|file| fs::read_link(file.unwrap().path()).ok())
            .any(|file| file == Path::new(&image))
    };
    assert!(has_it("--carrier"));
    assert!(!has_it("--worker"), "it has the disk, and not the file");
    mount.write("written", &content(9));
    mount.unmount();
    tool("qemu-img").args(["check", &image]).ok();
    let back = place.join("back");
    let convert = tool("qemu-img").args(["convert", "-f", "qcow2", "-O", "raw"]);
    convert.arg(&image).arg(&back).ok();
    assert_clean(&back);
    let out = place.join("out");
    debugfs(&back, &format!("dump /written {}", out.display()));
    assert_eq!(fs::read(&out).unwrap(), content(9));
}
