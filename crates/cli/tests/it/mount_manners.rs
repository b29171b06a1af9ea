//! What a mount says to whoever looks after it: lists of mounts, a service manager, and a command
//! that waits.

use crate::mounting::{Mount, extant_that_hears_interrupts, wait_until};
use crate::support::extant;
use extant_testkit::oracle::assert_clean;
use extant_testkit::require;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

fn text(path: &Path) -> String {
    path.to_str().expect("a name that is text").to_owned()
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
    let odd = mount.place.join("two\nlines");
    fs::create_dir(&odd).unwrap();
    extant(["mount", &image, odd.to_str().unwrap()]).ok();
    let all = extant(["mount"]).ok().text();
    assert!(all.contains("two\\nlines (rw"), "{all}");
    extant(["umount", odd.to_str().unwrap()]).ok();
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
