//! Mounts that show other owners and modes than are stored, and users that are mapped.

use crate::other_users::as_number;
use crate::support::Image;
use crate::syscalls::map_users;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::require;
use rustix::fs::XattrFlags;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree};
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const USER: u32 = 1005;
const LIST: &str = "system.posix_acl_access";
/// What `u::rw-,u:5:rw-,g::---,m::rw-,o::---` is.
const VALUE: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 5, 0, 0, 0, 4, 0, 0, 0, 255, 255, 255,
    255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

/// Owner, group and permissions.
fn about(path: &Path) -> (u32, u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

fn make(path: &Path, mode: u32, owner: u32) {
    fs::write(path, b"content").unwrap();
    chown(path, Some(owner), Some(owner + 1)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_is_shown_is_checked_and_what_is_stored_stays() {
    require!(Fuse, KernelExt4);
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount("");
    make(&mount.at("secret"), 0o600, 7);
    make(&mount.at("program"), 0o4711, 7);
    fs::create_dir(mount.at("dir")).unwrap();
    chown(mount.at("dir"), Some(30), Some(40)).unwrap();
    rustix::fs::setxattr(mount.at("secret"), LIST, &VALUE, XattrFlags::empty()).unwrap();
    mount.unmount();

    let mount = image.mount("uid=1005,gid=1006,umask=027,allow_other");
    let [secret, program, dir] = ["secret", "program", "dir"].map(|name| mount.at(name));
    assert_eq!(about(&secret), (1005, 1006, 0o640));
    assert_eq!(about(&program), (1005, 1006, 0o750));
    assert_eq!(about(&dir), (1005, 1006, 0o750));
    // So it is when the kernel has it of a listing.
    for entry in fs::read_dir(mount.path()).unwrap() {
        let found = entry.unwrap().metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (1005, 1006));
    }
    let refused = |e: std::io::Error| {
        assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{e}");
    };
    as_number(USER + 100, || {
        refused(fs::read(&secret).unwrap_err());
        refused(fs::write(dir.join("theirs"), b"").unwrap_err());
    });
    as_number(USER, || {
        assert_eq!(fs::read(&secret).unwrap(), b"content");
        fs::write(&secret, b"changed").unwrap();
        fs::write(dir.join("made"), b"made").unwrap();
        fs::create_dir(dir.join("below")).unwrap();
        fs::set_permissions(dir.join("made"), Permissions::from_mode(0o750)).unwrap();
        // What the view shows can be asked for, and nothing else.
        chown(&secret, Some(USER), None).unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o640)).unwrap();
        refused(fs::set_permissions(&secret, Permissions::from_mode(0o666)).unwrap_err());
    });
    refused(chown(&secret, Some(0), Some(0)).unwrap_err());
    assert_eq!(about(&dir.join("made")), (1005, 1006, 0o750));
    let list = rustix::fs::getxattr(&secret, LIST, &mut [0; 100][..]);
    assert_eq!(list, Err(rustix::io::Errno::NODATA));
    assert_eq!(rustix::fs::listxattr(&secret, &mut [0_u8; 100][..]), Ok(0));
    let set = rustix::fs::setxattr(&secret, LIST, &VALUE, XattrFlags::empty());
    assert_eq!(set, Err(rustix::io::Errno::OPNOTSUPP));
    mount.unmount();
    image.assert_clean();

    let seen = KernelMount::mount(&image.path(), Mode::ReadOnly, "");
    let stored = |name: &str| about(&seen.path().join(name));
    // The list has the group's bits be its mask.
    assert_eq!(stored("secret"), (7, 8, 0o660));
    assert_eq!(stored("program"), (7, 8, 0o4711));
    assert_eq!(stored("dir"), (30, 40, 0o755));
    assert_eq!(stored("dir/made"), (30, 40, 0o755));
    assert_eq!(stored("dir/below"), (30, 40, 0o755));
    let content = fs::read(seen.path().join("secret")).unwrap();
    assert_eq!(content, b"changed");
    let mut list = [0; 100];
    let len = rustix::fs::getxattr(seen.path().join("secret"), LIST, &mut list[..]).unwrap();
    assert_eq!(list[..len], VALUE);
    seen.unmount();
}

#[test]
fn new_files_have_the_group_of_their_directory_where_that_is_asked_for() {
    require!(Fuse);
    let image = Image::new(16 << 20, &[]);
    for (options, group) in [("", 0), ("grpid", 40)] {
        let mount = image.mount(options);
        let dir = mount.at(&format!("dir-{group}"));
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(30), Some(40)).unwrap();
        fs::write(dir.join("made"), b"").unwrap();
        assert_eq!(about(&dir.join("made")), (0, group, 0o644));
        mount.unmount();
    }
    image.assert_clean();
}

/// Tells whether user namespaces can be made, after printing the named skip if not.
fn has_user_namespaces() -> bool {
    let tried = Command::new("unshare").args(["--user", "true"]).output();
    let tried = tried.expect("unshare (util-linux) is installed");
    if tried.status.success() {
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

/// A process in a user namespace of its own, which is there as long as this is.
struct Namespace(Child);

impl Namespace {
    /// Makes one in which `count` users from `stored` on are those from `shown` on outside.
    fn new(stored: u32, shown: u32, count: u32) -> Self {
        let child = Command::new("unshare")
            .args(["--user", "sleep", "600"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let namespace = Self(child);
        let own = fs::read_link("/proc/self/ns/user").unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while fs::read_link(namespace.path("ns/user")).unwrap() == own {
            assert!(Instant::now() < end, "there is no namespace after a minute");
            std::thread::sleep(Duration::from_millis(2));
        }
        for map in ["uid_map", "gid_map"] {
            fs::write(namespace.path(map), format!("{stored} {shown} {count}")).unwrap();
        }
        namespace
    }

    fn path(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.0.id())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A mount that goes with the test.
struct Attached<'a>(&'a Path);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn users_are_mapped_where_the_mount_lets_them_be() {
    require!(Fuse, Root);
    if !has_user_namespaces() {
        return;
    }
    let image = Image::new(16 << 20, &[]);
    let other = tempfile::tempdir().unwrap();
    let namespace = Namespace::new(0, 2000, 1000);
    let users = File::open(namespace.path("ns/user")).unwrap();
    // A mount of what is mounted, in which users are mapped.
    let mapped = |mount: &Path| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(rustix::fs::CWD, mount, flags).unwrap();
        map_users(&tree, &users)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tree, "", rustix::fs::CWD, other.path(), flags).unwrap();
        Ok(Attached(other.path()))
    };
    for options in [
        "allow_other",
        "allow_other,idmap,writeback_cache",
        "allow_other,idmap",
    ] {
        let mount = image.mount(options);
        let file = mount.at(&format!("file-{options}"));
        make(&file, 0o640, 5);
        fs::set_permissions(mount.path(), Permissions::from_mode(0o777)).unwrap();
        let attached = mapped(mount.path());
        if options == "allow_other" {
            assert_eq!(attached.err(), Some(rustix::io::Errno::INVAL));
            mount.unmount();
            continue;
        }
        let attached = attached.unwrap();
        let seen = other.path().join(file.file_name().unwrap());
        let made = other.path().join(format!("made-{options}"));
        assert_eq!(about(&seen), (2005, 2006, 0o640));
        as_number(2005, || {
            assert_eq!(fs::read(&seen).unwrap(), b"content");
            fs::write(&seen, b"changed").unwrap();
            fs::write(&made, b"made").unwrap();
            fs::set_permissions(&made, Permissions::from_mode(0o700)).unwrap();
            chown(&made, None, Some(2005)).unwrap();
            let file = File::open(&made).unwrap();
            let flags = rustix::fs::ioctl_getflags(&file).unwrap();
            let more = flags | rustix::fs::IFlags::NODUMP;
            rustix::fs::ioctl_setflags(&file, more).unwrap();
            // That takes a right that only root has.
            let sealed = flags | rustix::fs::IFlags::IMMUTABLE;
            assert!(rustix::fs::ioctl_setflags(&file, sealed).is_err());
        });
        as_number(2007, || {
            assert!(fs::write(&seen, b"worse").is_err());
            assert!(fs::set_permissions(&made, Permissions::from_mode(0o777)).is_err());
        });
        // Nobody is user 0 there.
        assert!(File::create_new(other.path().join("nobodys")).is_err());
        assert_eq!(about(&made), (2005, 2005, 0o700));
        assert_eq!(about(&mount.at(&format!("made-{options}"))), (5, 5, 0o700));
        assert_eq!(fs::read(&file).unwrap(), b"changed");
        fs::write(mount.at("roots"), b"beside").unwrap();
        assert_eq!(about(&mount.at("roots")), (0, 0, 0o644));
        drop(attached);
        mount.unmount();
        image.assert_clean();
    }
}
