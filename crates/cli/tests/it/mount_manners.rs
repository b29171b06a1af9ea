//! What a mount is to whoever has it: lists of mounts, a service manager, a command that waits, and
//! a user who is not root.

use crate::mounting::{Mount, extant_that_hears_interrupts, wait_until};
use crate::namespaces::without_copies;
use crate::support::{extant, ordinary_user};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::oracle::assert_clean;
use extant_testkit::require;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

fn text(path: &Path) -> String {
    path.to_str().expect("a name that is text").to_owned()
}

/// A directory of which nothing is left mounted, also when the test fails.
pub(crate) struct MountedOn(pub(crate) PathBuf);

impl Drop for MountedOn {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// The lines of `extant mount` that name a directory.
fn listed(point: &str) -> Vec<String> {
    let all = extant(["mount"]).ok().text();
    let of_point = all.lines().filter(|line| line.contains(point));
    of_point.map(str::to_owned).collect()
}

#[test]
fn the_command_alone_lists_what_is_mounted() {
    require!(Fuse);
    let mount = Mount::new();
    let (image, point) = (text(&mount.image()), text(&mount.point()));
    assert_eq!(listed(&point), [""; 0]);
    for (options, access) in [("rw", "rw"), ("ro,no_blkdev", "ro")] {
        extant(["mount", "-o", options, &image, &point]).ok();
        let user = rustix::process::geteuid().as_raw();
        let expected = format!("{image} on {point} ({access},user_id={user})");
        assert_eq!(listed(&point), [expected]);
        let lines = extant(["mount", "--json"]).ok().lines();
        let line = lines
            .iter()
            .find(|line| line["directory"] == point.as_str());
        let expected = serde_json::json!({
            "image": image, "directory": point, "read_only": access == "ro", "uid": user,
        });
        assert_eq!(line, Some(&expected));
        extant(["umount", &point]).ok();
        assert_eq!(listed(&point), [""; 0]);
    }
    // A name that would be two lines is one.
    let odd = MountedOn(mount.place.join("two\nlines"));
    fs::create_dir(&odd.0).unwrap();
    extant(["mount", &image, &text(&odd.0)]).ok();
    let all = extant(["mount"]).ok().text();
    assert!(all.contains("two\\nlines (rw"), "{all}");
    extant(["umount", &text(&odd.0)]).ok();
}

#[test]
fn half_of_a_mount_is_refused_and_not_taken_for_a_list() {
    for args in [
        &["mount", "image"][..],
        &["mount", "-o", "ro"],
        &["mount", "-f"],
        &["mount", "--json", "image", "dir"],
    ] {
        let run = extant(args.iter().copied()).fails(2);
        assert!(!run.stderr.is_empty());
        assert_eq!(run.text(), "");
    }
}

#[test]
fn a_service_manager_is_told_when_a_mount_works_and_when_it_ends() {
    require!(Fuse);
    for options in [&[][..], &["--no-sandbox"]] {
        let mount = Mount::new();
        let name = mount.place.join("manager");
        let manager = UnixDatagram::bind(&name).unwrap();
        manager
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let said = || {
            let mut said = [0; 64];
            let len = manager.recv(&mut said).expect("the manager is told");
            String::from_utf8_lossy(&said[..len]).into_owned()
        };
        let mut child = extant_that_hears_interrupts()
            .args(["mount", "--foreground"])
            .args(options)
            .args([mount.image(), mount.point()])
            .env("NOTIFY_SOCKET", &name)
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        assert_eq!(said(), "READY=1");
        fs::write(mount.at("file"), b"content").expect("it works by then");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        if options.is_empty() {
            assert_eq!(said(), "STOPPING=1");
        }
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_clean(&mount.image());
    }
}

#[test]
fn a_manager_that_does_not_listen_holds_nothing_up() {
    require!(Fuse);
    let mount = Mount::new();
    let mut child = extant_that_hears_interrupts()
        .args(["mount", "--foreground"])
        .args([mount.image(), mount.point()])
        .env("NOTIFY_SOCKET", mount.place.join("nobody"))
        .spawn()
        .unwrap();
    wait_until("it is mounted", || {
        !listed(&text(&mount.point())).is_empty()
    });
    extant(["umount", &text(&mount.point())]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn unmounting_says_what_it_waits_for() {
    require!(Fuse);
    let mut mount = Mount::new();
    mount.serve("no_blkdev");
    fs::write(mount.at("file"), b"content").unwrap();
    let worker = mount.worker();
    kill_process(worker, Signal::STOP).unwrap();
    let point = text(&mount.point());
    let waiting = std::thread::spawn(move || extant(["umount", &point]));
    // The directory is free, and the image is not complete.
    std::thread::sleep(Duration::from_millis(3500));
    assert!(!waiting.is_finished());
    kill_process(worker, Signal::CONT).unwrap();
    let run = waiting.join().unwrap().ok();
    let image = text(&mount.image());
    assert!(
        run.stderr.contains(&format!(
            "waiting until all changes are in {image} (process "
        )),
        "{}",
        run.stderr
    );
    assert_clean(&mount.image());
}

#[test]
fn a_mount_on_a_device_whose_process_was_stopped_stays_and_says_so() {
    require!(Fuse, LoopDevices);
    let mut mount = Mount::new();
    mount.serve("rw");
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let point = text(&mount.point());
    let line = table.lines().find(|line| line.contains(&point)).unwrap();
    assert!(line.contains("fuseblk"), "{line}");
    fs::write(mount.at("file"), b"content").unwrap();
    let worker = mount.worker();
    kill_process(worker, Signal::STOP).unwrap();
    let stat = format!("/proc/{}/stat", worker.as_raw_nonzero());
    wait_until("it is stopped", || {
        fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    // To unmount would wait for it, and nothing could interrupt that but to have it go on.
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| extant(["umount", &point]));
        let start = std::time::Instant::now();
        while !told.is_finished() && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
        }
        kill_process(worker, Signal::CONT).unwrap();
        told.join().unwrap()
    });
    let run = told.fails(1);
    let what = format!("stays mounted: process {} ", worker.as_raw_nonzero());
    assert!(run.stderr.contains(&what), "{}", run.stderr);
    extant(["umount", &point]).ok();
    assert_clean(&mount.image());
}

#[test]
fn a_device_that_only_reads_is_told_with_what_can_still_be_done() {
    require!(Fuse, LoopDevices);
    let mount = Mount::new();
    let device = LoopDevice::attach(&mount.image(), Access::ReadOnly).unwrap();
    let (device, point) = (text(device.path()), text(&mount.point()));
    for args in [
        ["mount", &device, &point],
        ["touch", &format!("{device}:/new"), ""],
    ] {
        let run = extant(args.into_iter().filter(|arg| !arg.is_empty())).fails(1);
        let (said, what) = (&run.stderr, "Reading it may still be possible");
        assert!(said.contains(what), "{args:?}: {said}");
    }
    extant(["mount", "-o", "ro", &device, &point]).ok();
    extant(["umount", &point]).ok();
}

/// A root file system's files, none of which an ordinary user may change.
const ROOTS: &str = "\
mkdir -p etc bin private; echo old > etc/hostname; chmod 600 etc/hostname; echo x > bin/su
chmod 700 private; echo secret > private/key; chmod 000 private/key; chmod 755 . etc bin";

#[test]
fn a_user_changes_files_of_root_where_the_mount_is_told_so() {
    require!(Root, Fuse, LoopDevices, KernelExt4);
    let mount = Mount::new();
    crate::comparing::changed(&text(&mount.image()), ROOTS);
    let place = &mount.place;
    // Makes the place one that a user may enter.
    ordinary_user(place, "true").ok();
    let (image, point) = (place.join("public/image"), place.join("public/root"));
    fs::rename(mount.image(), &image).unwrap();
    fs::create_dir(&point).unwrap();
    for path in [&image, &point] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    let guard = MountedOn(point);
    let (image, point) = (text(&image), text(&guard.0));
    let change = "set -e; cat private/key; echo new > etc/hostname; chown 0:0 bin/su; chmod 4755 bin/su; \
                  rm private/key; echo made > private/made; chown 7:8 private/made; mkdir private/dir; \
                  ln -s dir private/link; chown -h 0:0 private/link; mv etc/hostname etc/name; \
                  chmod 2770 private/dir; chown 0:5 private/dir";
    let as_user = |script: &str| {
        ordinary_user(place, "sh")
            .args(["-c", &format!("cd \"$1\" && {{ {script}; }}"), "sh", &point])
            .run()
    };
    let mounted = |options: &str| {
        ordinary_user(place, "")
            .args(["mount", "-o", options, &image, &point])
            .ok();
    };
    let unmount = || {
        let _no_copies = without_copies();
        ordinary_user(place, "").args(["umount", &point]).ok()
    };

    mounted("rw");
    for line in [
        "cat private/key",
        "echo new > etc/hostname",
        "chown 0:0 bin/su",
    ] {
        assert_ne!(as_user(line).code, 0, "{line}");
    }
    unmount();

    mounted("fakeroot");
    // Root is not that user.
    assert!(fs::read_dir(&point).is_err());
    let done = as_user(change);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout, b"secret\n");
    unmount();

    assert_clean(Path::new(&image));
    let seen = extant_testkit::mount::KernelMount::mount(
        Path::new(&image),
        extant_testkit::mount::Mode::ReadOnly,
        "",
    );
    let stat = |path: &str| {
        use std::os::unix::fs::MetadataExt;
        let about = fs::symlink_metadata(seen.path().join(path)).unwrap();
        (about.uid(), about.gid(), about.mode() & 0o7777)
    };
    assert_eq!(stat("bin/su"), (0, 0, 0o4755));
    assert_eq!(stat("etc/name"), (0, 0, 0o600));
    assert_eq!(stat("private/made").0, 7);
    assert_eq!(stat("private/made").1, 8);
    assert_eq!(stat("private/dir"), (0, 5, 0o2770));
    assert_eq!(stat("private/link"), (0, 0, 0o777));
    assert!(!seen.path().join("private/key").exists());
    let name = fs::read(seen.path().join("etc/name")).unwrap();
    assert_eq!(name, b"new\n");
    seen.unmount();

    let run = extant(["mount", "-o", "fakeroot,allow_other", &image, &point]).fails(2);
    assert!(run.stderr.contains("allow_other"), "{}", run.stderr);
}
