//! Mounts by ordinary users in namespaces of their own, as containers have them: without root,
//! without the system's helper, and without a way back out.

use crate::mounting::Mount;
use crate::namespaces;
use crate::support::{Place, ordinary_user};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::assert_clean;
use extant_testkit::require;
use extant_testkit::tool::{Tool, tool};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

/// A program of an ordinary user in a mount namespace of its own.
fn apart(place: &Place) -> Tool {
    // The user's copy of the command, and the folder of the user.
    let _ = ordinary_user(place, "true");
    tool("sh")
        .args(namespaces::apart("exec \"$@\""))
        .args(["-", "setpriv", "--reuid=65534", "--regid=65534"])
        .args(["--clear-groups", "--"])
}

/// Tells whether an ordinary user can make user namespaces, after printing the named skip if not.
fn has_user_namespaces(mount: &Mount) -> bool {
    let tried = apart(&mount.place).args(["unshare", "-Urm", "true"]).run();
    if tried.code == 0 {
        return true;
    }
    let said = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
    let forbids = std::env::var_os("EXTANT_REQUIRE_FACILITIES").is_some_and(|v| v == "1");
    assert!(!forbids, "needs user namespaces ({said}), and may not skip");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    let line = format!("SKIPPED: needs user namespaces ({said}): {test}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

#[test]
fn a_user_mounts_in_a_namespace_without_help() {
    require!(Root, Fuse, LoopDevices, KernelExt4);
    let mount = Mount::new();
    if !has_user_namespaces(&mount) {
        return;
    }
    let place = &mount.place;
    let image = place.join("public/image");
    fs::rename(mount.image(), &image).unwrap();
    fs::create_dir(place.join("public/dir")).unwrap();
    for name in ["image", "dir"] {
        chown(place.join("public").join(name), Some(65534), Some(65534)).unwrap();
    }
    // Root there is the user: what is root's in the image is the user's to change.
    let script = r#"
        set -e
        extant=$1
        cd "$2"
        # Nothing is to be found by a user that has no namespace of its own.
        PATH=/usr/bin:/bin
        umask 022
        for how in image fd:7; do
            exec 7<>image
            "$extant" mount -o "$3" $how dir 2>said
            test ! -s said || { cat said >&2; exit 9; }
            exec 7>&-
            grep -q " $2/dir fuse.extant " /proc/self/mounts
            echo "$how" > "dir/made-$how"
            mkdir -p dir/deep
            ln -sf deep dir/link
            chmod 4750 "dir/made-$how"
            test "$(stat -c %u:%g:%a "dir/made-$how")" = 0:0:4750
            test "$("$extant" mount | grep -c " on $2/dir ")" = 1
            "$extant" umount dir
            ! grep -q " $2/dir " /proc/self/mounts
        done
    "#;
    for options in ["rw", "fakeroot", "uid=0,umask=077"] {
        // What the last one does not let happen is a change of modes.
        let script = match options {
            "rw" | "fakeroot" => script.to_owned(),
            _ => script
                .replace("chmod 4750", "chmod 700")
                .replace("0:0:4750", "0:0:700"),
        };
        let run = apart(place)
            .args(["unshare", "-Urm", "sh", "-c", &script])
            .args(["sh", &place.arg("extant")])
            .args([&place.arg("public"), options])
            .run();
        assert_eq!(run.code, 0, "{options}: {run:?}");
        assert_clean(&image);
        // Nothing is mounted outside.
        assert_eq!(fs::read_dir(place.join("public/dir")).unwrap().count(), 0);
    }
    let seen = KernelMount::mount(Path::new(&image), Mode::ReadOnly, "");
    for how in ["image", "fd:7"] {
        let found = fs::metadata(seen.path().join(format!("made-{how}"))).unwrap();
        assert_eq!((found.uid(), found.gid()), (0, 0));
        let content = fs::read(seen.path().join(format!("made-{how}"))).unwrap();
        assert_eq!(content, format!("{how}\n").as_bytes());
    }
    seen.unmount();
}

#[test]
fn a_user_of_a_machine_mounts_an_open_file_in_the_background() {
    require!(Root, Fuse, LoopDevices, KernelExt4);
    let mount = Mount::new();
    let place = &mount.place;
    ordinary_user(place, "true").ok();
    let (image, point) = (place.join("public/image"), place.join("public/dir"));
    fs::rename(mount.image(), &image).unwrap();
    fs::create_dir(&point).unwrap();
    for path in [&image, &point] {
        chown(path, Some(65534), Some(65534)).unwrap();
    }
    let guard = crate::mount_manners::MountedOn(point);
    // The user may not open it again by its name.
    let script = r#"
        set -e
        cd "$2"
        exec 9<>image
        chmod 000 image
        "$1" mount -o fakeroot fd:9 dir
        exec 9>&-
        mkdir dir/made
        chown 3:4 dir/made
        "$1" umount dir
        chmod 600 image
    "#;
    let no_copies = namespaces::without_copies();
    ordinary_user(place, "sh")
        .args(["-c", script, "sh", &place.arg("extant")])
        .arg(place.arg("public"))
        .ok();
    drop(no_copies);
    drop(guard);
    assert_clean(&image);
    let seen = KernelMount::mount(Path::new(&image), Mode::ReadOnly, "");
    let found = fs::metadata(seen.path().join("made")).unwrap();
    assert_eq!((found.uid(), found.gid()), (3, 4));
    seen.unmount();
}
