//! The end of a mount: what is cleared away, which process waits for which, and what is in the
//! image by then.

use crate::mounting::{Mount, wait_until};
use crate::namespaces::{apart, without_copies};
use crate::support::extant;
use extant_testkit::facility::is_full_run;
use extant_testkit::oracle::{assert_clean, debugfs_write, mke2fs};
use extant_testkit::require;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Arguments of a command that mounts or unmounts.
fn texts(args: &[&Path]) -> Vec<String> {
    args.iter().map(|path| path.display().to_string()).collect()
}

fn mount(image: &Path, point: &Path, options: &str) {
    let both = texts(&[image, point]);
    extant(["mount", "-o", options, &both[0], &both[1]]).ok();
}

fn umount(point: &Path) {
    extant(["umount", &point.display().to_string()]).ok();
}

/// The processes of the mount of this image, by role.
fn processes(role: &str, image: &Path) -> Vec<Pid> {
    let is_meant = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == 0);
        let image = image.as_os_str().as_encoded_bytes();
        words.clone().any(|word| word == role.as_bytes()) && words.any(|word| word == image)
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter(|process| is_meant(&fs::read(process.path().join("cmdline")).unwrap_or_default()))
        .filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?))
        .collect()
}

fn supervisor(image: &Path) -> Pid {
    *processes("--in-background", image)
        .first()
        .expect("a supervisor")
}

/// Stops a process until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(process: Pid) -> Self {
        kill_process(process, Signal::STOP).unwrap();
        let stat = format!("/proc/{}/stat", process.as_raw_nonzero());
        wait_until("it is stopped", || {
            fs::read_to_string(&stat).unwrap().contains(") T ")
        });
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Another mount namespace, with a copy of what is mounted on a directory, until this is dropped.
struct Namespace(Child);

impl Namespace {
    fn new(point: &Path) -> Self {
        let mut child = Command::new("sh")
            .args(apart("echo here; read word"))
            .arg(point)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        Self(child)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Computes, on all processors if all tests are run, until this is dropped.
struct Load(std::sync::Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Load {
    fn new() -> Self {
        let is_over = std::sync::Arc::new(AtomicBool::new(false));
        let threads = if is_full_run() {
            std::thread::available_parallelism().map_or(2, usize::from)
        } else {
            1
        };
        let threads = (0..threads).map(|_| {
            let is_over = std::sync::Arc::clone(&is_over);
            std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {})
        });
        let threads = threads.collect();
        Self(is_over, threads)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn what_is_left_of_a_mount_never_clears_the_one_that_comes_after_it() {
    require!(Fuse);
    let rounds = if is_full_run() { 500 } else { 8 };
    let dir = Mount::new();
    let (first, second) = (dir.image(), dir.place.join("second"));
    mke2fs(&second, 64 << 20, &["-t", "ext4"]);
    let point = dir.point();
    let _load = Load::new();
    let mut written: [Vec<String>; 2] = Default::default();
    let images = [&first, &second];
    let detach = || rustix::mount::unmount(&point, UnmountFlags::NOFOLLOW).unwrap();
    let mut write = |image: usize, name: String| {
        fs::write(point.join(&name), &name).unwrap();
        written[image].push(name);
    };
    for round in 0..rounds {
        // Without a block device the end is not waited for by umount, which leaves more room for
        // races.
        let options = ["rw", "no_blkdev"][round / 4 % 2];
        let (old, new) = (round % 2, (round + 1) % 2);
        mount(images[old], &point, options);
        write(old, format!("before-{round}"));
        match round % 4 {
            // One after the other.
            0 => {
                umount(&point);
                mount(images[old], &point, options);
                write(old, format!("after-{round}"));
            }
            // The supervisor comes too late.
            1 => {
                let stopped = Stopped::new(supervisor(images[old]));
                detach();
                mount(images[old], &point, options);
                write(old, format!("after-{round}"));
                let late = stopped.0;
                drop(stopped);
                wait_until("the old supervisor is gone", || {
                    !processes("--in-background", images[old]).contains(&late)
                });
                write(old, format!("later-{round}"));
            }
            // The old mount lives on elsewhere, and ends when another one is in its place.
            2 => {
                let namespace = Namespace::new(&point);
                let run = extant(["umount", &point.display().to_string()]).fails(1);
                assert!(
                    run.stderr.contains("another mount namespace"),
                    "{}",
                    run.stderr
                );
                mount(images[new], &point, options);
                write(new, format!("other-{round}"));
                drop(namespace);
                wait_until("the old mount is over", || {
                    processes("--in-background", images[old]).is_empty()
                });
                write(new, format!("later-{round}"));
            }
            // As by umount(8), and the next one at once.
            _ => {
                detach();
                mount(images[old], &point, options);
                write(old, format!("after-{round}"));
            }
        }
        umount(&point);
        let below = fs::read_dir(&point).unwrap().count();
        assert_eq!(below, 0, "round {round}: files below the mount");
        for image in images {
            assert_eq!(processes("mount", image), [], "round {round}");
        }
    }
    for (image, names) in images.into_iter().zip(&written) {
        assert_clean(image);
        mount(image, &point, "ro");
        for name in names {
            assert_eq!(fs::read_to_string(point.join(name)).unwrap(), *name);
        }
        umount(&point);
    }
}

#[test]
fn a_dead_mount_is_cleared_away_and_nothing_else() {
    require!(Fuse);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    mount(&image, &point, "rw");
    // Something else lies on it by then.
    rustix::mount::mount("tmpfs", &point, "tmpfs", MountFlags::empty(), None).unwrap();
    let worker = processes("--worker", &image);
    kill_process(worker[0], Signal::KILL).unwrap();
    wait_until("the supervisor is gone", || {
        processes("mount", &image).is_empty()
    });
    fs::write(point.join("file"), b"of the tmpfs").unwrap();
    dir.detach();
    // What was below is dead, and says so.
    assert!(fs::read_dir(&point).is_err());
    let run = extant(["umount", &point.display().to_string()]).fails(1);
    assert!(run.stderr.contains("may not be in it"), "{}", run.stderr);
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
}

#[test]
fn umount_says_when_the_process_that_keeps_the_mount_cannot_end() {
    require!(Fuse);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    mount(&image, &point, "rw");
    let stopped = Stopped::new(supervisor(&image));
    let run = extant(["umount", &point.display().to_string()]).fails(1);
    let number = stopped.0.as_raw_nonzero();
    let says = format!("kill -CONT {number}");
    assert!(run.stderr.contains(&says), "{}", run.stderr);
    drop(stopped);
    wait_until("it ends then", || processes("mount", &image).is_empty());
    assert_clean(&image);
}

#[test]
fn sync_makes_what_was_written_to_roots_mount_durable() {
    require!(Fuse);
    require!(LoopDevices);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    // Nothing is committed because of its age.
    mount(&image, &point, "commit=900");
    fs::create_dir(dir.at("dir")).unwrap();
    fs::write(dir.at("dir/file"), vec![b'x'; 100_000]).unwrap();
    rustix::fs::syncfs(File::open(&point).unwrap()).unwrap();
    fs::write(dir.at("later"), b"").unwrap();
    let worker = processes("--worker", &image);
    kill_process(worker[0], Signal::KILL).unwrap();
    wait_until("nothing is left", || processes("mount", &image).is_empty());
    mount(&image, &point, "rw");
    assert_eq!(fs::read(dir.at("dir/file")).unwrap(), vec![b'x'; 100_000]);
    assert!(!dir.at("later").exists(), "the test is not sharp");
    umount(&point);
    assert_clean(&image);
}

#[test]
fn umount_of_roots_mount_returns_when_the_image_is_complete() {
    require!(Fuse);
    require!(LoopDevices);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    for round in 0..5 {
        mount(&image, &point, "rw");
        let file = format!("file-{round}");
        fs::write(dir.at(&file), vec![b'x'; 5_000_000]).unwrap();
        rustix::mount::unmount(&point, UnmountFlags::NOFOLLOW).unwrap();
        // Not even a moment later.
        let copy = dir.place.join("copy");
        fs::copy(&image, &copy).unwrap();
        assert_clean(&copy);
        let run = extant(["cat", &format!("{}:/{file}", copy.display())]).ok();
        assert_eq!(run.stdout.len(), 5_000_000);
    }
    // Nothing of the device is left either.
    wait_until("the loop device is free", || loops_over(&image).is_empty());
}

/// The loop devices over this file.
pub(crate) fn loops_over(image: &Path) -> Vec<PathBuf> {
    let behind = |device: &Path| fs::read_to_string(device.join("loop/backing_file")).ok();
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    devices
        .map(|device| device.path())
        .filter(|device| behind(device).is_some_and(|file| Path::new(file.trim_end()) == image))
        .collect()
}

#[test]
fn a_mount_without_a_block_device_is_asked_for_by_an_option() {
    require!(Fuse);
    require!(LoopDevices);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    for (options, kind, loops) in [("rw", "fuseblk.extant", 1), ("no_blkdev", "fuse.extant", 0)] {
        mount(&image, &point, options);
        let table = fs::read_to_string("/proc/mounts").unwrap();
        let line = table
            .lines()
            .find(|line| line.contains(point.to_str().unwrap()))
            .unwrap();
        assert_eq!(line.split(' ').nth(2), Some(kind), "{line}");
        assert_eq!(loops_over(&image).len(), loops);
        umount(&point);
    }
}

#[test]
fn a_mount_that_was_begun_for_reading_stays_so_and_ends_well() {
    require!(Fuse);
    require!(LoopDevices);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    // What is in the journal is not its business.
    debugfs_write(&image, &["feature needs_recovery"]);
    let content = fs::read(&image).unwrap();
    for (options, remounts) in [("ro", false), ("ro,no_blkdev", true)] {
        mount(&image, &point, options);
        let remounted = rustix::mount::mount_remount(&point, MountFlags::empty(), "");
        assert_eq!(remounted.is_ok(), remounts, "{options}: {remounted:?}");
        let error = File::create(dir.at("file")).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        umount(&point);
        assert!(
            fs::read(&image).unwrap() == content,
            "the image was written to"
        );
    }
}

/// The title of a process in lists of processes: its arguments.
fn title(process: Pid) -> Vec<String> {
    let line = fs::read(format!("/proc/{}/cmdline", process.as_raw_nonzero())).unwrap();
    let line = String::from_utf8(line).unwrap();
    let words = line.strip_suffix('\0').expect("an end").split('\0');
    words.map(str::to_owned).collect()
}

/// The name of a process in lists of processes, and those of its threads.
fn names(process: Pid) -> (String, Vec<String>) {
    let process = process.as_raw_nonzero();
    let name = |of: &Path| {
        let name = fs::read_to_string(of.join("comm")).unwrap();
        name.trim_end().to_owned()
    };
    let own = PathBuf::from(format!("/proc/{process}"));
    let threads = fs::read_dir(own.join("task")).unwrap();
    let threads = threads.map(|thread| name(&thread.unwrap().path()));
    (name(&own), threads.collect())
}

#[test]
fn the_processes_of_a_mount_have_its_name_and_the_worker_nothing_of_the_callers_environment() {
    require!(Fuse);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    let status = Command::new(env!("CARGO_BIN_EXE_extant"))
        .current_dir(image.parent().unwrap())
        .args(["mount", "-o", "noatime", "image", "dir"])
        .env("SECRET_TOKEN", "hunter2")
        .env("TZ", "UTC")
        .status()
        .unwrap();
    assert!(status.success());
    let (supervisor, worker) = (supervisor(&image), processes("--worker", &image)[0]);
    let ends = texts(&[&image, &point]);
    for (process, thread) in [(supervisor, "extant-worker"), (worker, "extant-fuse-0")] {
        assert_eq!(names(process).0, "extant");
        // A thread takes its name when it first runs.
        wait_until("all threads but the first have names of their own", || {
            let (_, threads) = names(process);
            let unnamed = threads.iter().filter(|name| *name == "extant").count();
            unnamed == 1 && threads.iter().any(|name| name == thread)
        });
        let title = title(process);
        assert_eq!(title[..2], ["extant", "mount"]);
        assert!(title.ends_with(&ends), "{title:?}");
        assert!(!title.concat().contains("hunter2"), "{title:?}");
    }
    let environment = fs::read(format!("/proc/{}/environ", worker.as_raw_nonzero())).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("hunter2"), "{environment}");
    assert!(environment.contains("TZ=UTC"), "{environment}");
    umount(&point);
}

#[test]
fn a_mount_in_the_foreground_has_its_name_whatever_the_program_is_called() {
    require!(Fuse);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    let renamed = dir.place.join("exe");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &renamed).unwrap();
    for options in [&["--foreground"][..], &["--foreground", "--no-sandbox"]] {
        let mut child = Command::new(&renamed)
            .arg("mount")
            .args(options)
            .args([&image, &point])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_there = || extant(["stats", &point.display().to_string()]).code == 0;
        wait_until("it works", is_there);
        let process = Pid::from_child(&child);
        assert_eq!(names(process).0, "extant");
        assert!(title(process).ends_with(&texts(&[&image, &point])));
        for worker in processes("--worker", &image) {
            assert_eq!(names(worker).0, "extant");
        }
        umount(&point);
        assert!(child.wait().unwrap().success());
    }
    assert_clean(&image);
}

#[test]
fn an_image_that_somebody_else_writes_is_not_waited_for_without_end() {
    require!(Fuse);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    let both = texts(&[&image, &point]);
    let mut file = File::options().write(true).open(&image).unwrap();
    file.write_all(b"").unwrap();
    file.lock().unwrap();
    let run = extant(["mount", &both[0], &both[1]]).fails(1);
    assert!(run.stderr.contains("open elsewhere"), "{}", run.stderr);
    // One that ends soon is waited for.
    let ends = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(file);
    });
    mount(&image, &point, "rw");
    ends.join().unwrap();
    umount(&point);
}

#[test]
fn umount_does_not_wait_for_whoever_has_the_image_next() {
    require!(Fuse);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    mount(&image, &point, "no_blkdev");
    let other = File::open(&image).unwrap();
    let next = std::thread::spawn(move || {
        // Waits until the mount lets go of it.
        rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
        other
    });
    // From another network namespace what the mount's processes show of themselves cannot be seen.
    let no_copies = without_copies();
    let status = Command::new("unshare")
        .args(["--net", env!("CARGO_BIN_EXE_extant"), "umount"])
        .arg(&point)
        .status();
    drop(no_copies);
    assert!(status.unwrap().success());
    assert_eq!(processes("--worker", &image), []);
    drop(next.join().unwrap());
    wait_until("the supervisor is gone", || {
        processes("mount", &image).is_empty()
    });
    assert_clean(&image);
}

#[test]
fn a_mount_that_fails_for_want_of_descriptors_leaves_nothing_behind() {
    require!(Fuse);
    let dir = Mount::new();
    let (image, point) = (dir.image(), dir.point());
    let is_mounted = || {
        let table = fs::read_to_string("/proc/mounts").unwrap();
        table.contains(point.to_str().unwrap())
    };
    let (mut failed, mut worked) = (0, 0);
    // What is inherited takes some of them.
    for most in (4..40).chain([400]) {
        let script = format!(
            "ulimit -n {most}; exec \"$0\" mount --no-sandbox -o no_blkdev,threads=2 \"$@\""
        );
        let run = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_extant")])
            .args([&image, &point])
            .output()
            .unwrap();
        if run.status.success() {
            worked += 1;
            umount(&point);
        } else {
            failed += 1;
            assert!(!run.stderr.is_empty(), "it says why");
        }
        assert!(!is_mounted(), "with {most} descriptors");
        wait_until("its processes are gone", || {
            processes("mount", &image).is_empty()
        });
        if worked > 3 {
            break;
        }
    }
    assert!(failed > 3 && worked > 0, "{failed} {worked}");
    assert_clean(&image);
}
