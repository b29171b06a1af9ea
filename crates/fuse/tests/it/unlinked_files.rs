//! What is used on after its name is gone, and what is for reading only.

use crate::support::Image;
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn an_open_file_without_a_name_stays_and_its_space_returns_when_it_is_closed() {
    require!(Fuse);
    let image = Image::new(64 << 20, &[]);
    let mount = image.mount("");
    let free = |path: &std::path::Path| rustix::fs::statvfs(path).unwrap().f_bfree;
    fs::write(mount.at("first"), b"makes the directory what it is").unwrap();
    let before = free(mount.path());
    let path = mount.at("file");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    let content = vec![9; 3 << 20];
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    // Its number is nobody else's as long as it is open.
    let number = file.metadata().unwrap().ino();
    for n in 0..50 {
        let other = mount.at(&format!("other-{n}"));
        fs::write(&other, b"").unwrap();
        assert_ne!(fs::metadata(&other).unwrap().ino(), number);
        fs::remove_file(&other).unwrap();
    }
    let mut back = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut back).unwrap();
    assert!(back == content);
    assert!(free(mount.path()) + 700 < before);
    drop(file);
    // The kernel tells of it later, but before it gives the mount up.
    mount.unmount();
    image.assert_clean();
    let mount = image.mount("");
    assert!(free(mount.path()) + 8 >= before);
    mount.unmount();
}

#[test]
fn a_replaced_file_and_a_removed_directory_can_be_used_by_who_has_them() {
    require!(Fuse);
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount("");
    fs::write(mount.at("old"), b"old").unwrap();
    fs::write(mount.at("new"), b"new").unwrap();
    let mut old = File::open(mount.at("old")).unwrap();
    fs::rename(mount.at("new"), mount.at("old")).unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    assert_eq!(fs::read(mount.at("old")).unwrap(), b"new");

    fs::create_dir(mount.at("dir")).unwrap();
    let dir = File::open(mount.at("dir")).unwrap();
    fs::remove_dir(mount.at("dir")).unwrap();
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let made = rustix::fs::openat(&dir, "x", flags, rustix::fs::Mode::RUSR);
    assert_eq!(made.unwrap_err(), rustix::io::Errno::NOENT);
    drop((dir, old));
    mount.unmount();
    image.assert_clean();
}

#[test]
fn what_was_closed_just_before_the_end_without_a_name_is_deleted() {
    require!(Fuse);
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount("");
    let file = File::create(mount.at("file")).unwrap();
    fs::remove_file(mount.at("file")).unwrap();
    file.set_len(100_000).unwrap();
    drop(file);
    mount.unmount();
    image.assert_clean();
}

#[test]
fn a_mount_for_reading_changes_nothing() {
    require!(Fuse);
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount("");
    fs::write(mount.at("file"), b"content").unwrap();
    mount.unmount();
    let before = fs::read(image.path()).unwrap();
    let mount = image.mount("ro");
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"content");
    let refused = fs::write(mount.at("file"), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(fs::remove_file(mount.at("file")).is_err());
    mount.unmount();
    assert!(fs::read(image.path()).unwrap() == before);
}

#[test]
fn a_directory_that_is_mounted_on_is_refused() {
    require!(Fuse);
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount("ro");
    let e = extant_fuse::check_point(mount.path()).unwrap_err();
    assert!(e.to_string().contains("extant umount"), "{e}");
    let e = extant_fuse::check_point(&image.path()).unwrap_err();
    assert!(e.to_string().contains("not a directory"), "{e}");
    mount.unmount();
    let e = extant_fuse::check_point(&image.path().join("none")).unwrap_err();
    assert!(e.to_string().contains("make it first"), "{e}");
}

/// The kernel tells names apart, and must not go by what it remembers of another spelling.
#[test]
fn a_name_is_gone_in_every_spelling_and_there_in_every_spelling() {
    require!(Fuse);
    let image = Image::new(16 << 20, &["-O", "casefold", "-E", "encoding=utf8"]);
    {
        let fs = extant_core::fs::Fs::open(
            extant_blockdev::OpenSpec::read_write(image.path())
                .open()
                .unwrap(),
            extant_core::fs::MountOptions::read_write(),
        )
        .unwrap();
        let root = fs.hold(extant_format::Ino::ROOT).unwrap();
        let new = extant_core::lifecycle::NewInode::new(
            extant_core::inode::FileType::Directory,
            0o755,
            extant_core::ops::now(),
        );
        let dir = extant_core::ops::mkdir(&fs, &root, b"dir", &new).unwrap();
        let folds = extant_format::inode::InodeFlags::CASEFOLD;
        let none = extant_format::inode::InodeFlags::empty();
        extant_core::ops::chattr(&fs, &dir, folds, none).unwrap();
        drop((root, dir));
        fs.close().unwrap();
    }
    let mount = image.mount("");
    let at = |name: &str| mount.at(&format!("dir/{name}"));
    assert!(!at("file").exists() && !at("FILE").exists());
    fs::write(at("File"), b"x").unwrap();
    assert_eq!(fs::read(at("FILE")).unwrap(), b"x");
    assert_eq!(fs::read(at("file")).unwrap(), b"x");
    fs::remove_file(at("fILE")).unwrap();
    for name in ["File", "FILE", "file"] {
        let kind = fs::metadata(at(name)).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::NotFound, "{name}");
    }
    mount.unmount();
    image.assert_clean();
}

#[test]
fn a_file_that_is_made_without_a_name_can_get_one() {
    require!(Fuse);
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount("");
    let make = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let mode = Mode::from_raw_mode(0o640);
        File::from(rustix::fs::open(mount.path(), flags, mode).unwrap())
    };
    let mut named = make();
    assert_eq!(named.metadata().unwrap().nlink(), 0);
    named.write_all(b"kept").unwrap();
    let mut lost = make();
    lost.write_all(&[7; 50_000]).unwrap();
    let open = format!("/proc/self/fd/{}", named.as_raw_fd());
    rustix::fs::linkat(CWD, &open, CWD, mount.at("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(named.metadata().unwrap().nlink(), 1);
    drop((named, lost));
    mount.unmount();
    image.assert_clean();
    let mount = image.mount("ro");
    assert_eq!(fs::read(mount.at("named")).unwrap(), b"kept");
    assert_eq!(
        fs::metadata(mount.at("named")).unwrap().mode() & 0o7777,
        0o640
    );
    // And nothing beside it.
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 2);
    mount.unmount();
}

#[test]
fn the_time_of_birth_is_told() {
    require!(Fuse);
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount("");
    let before = SystemTime::now() - Duration::from_secs(2);
    fs::write(mount.at("file"), b"old").unwrap();
    let born = fs::metadata(mount.at("file")).unwrap().created().unwrap();
    assert!(born >= before && born <= SystemTime::now() + Duration::from_secs(2));
    mount.unmount();
    // It stays what it was.
    let mount = image.mount("");
    fs::write(mount.at("file"), b"changed").unwrap();
    let later = fs::metadata(mount.at("file")).unwrap().created().unwrap();
    assert_eq!(later, born);
    mount.unmount();
    image.assert_clean();
}

#[test]
fn what_many_remove_at_once_is_deleted_through_io_uring() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    let image = Image::new(32 << 20, &[]);
    let mount = image.mount("io_uring");
    let free = rustix::fs::statvfs(mount.path()).unwrap().f_ffree;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let root = mount.path();
            scope.spawn(move || {
                for n in 0..300 {
                    let path = root.join(format!("{thread} {n}"));
                    File::create_new(&path).unwrap();
                    fs::remove_file(&path).unwrap();
                }
            });
        }
    });
    let since = Instant::now();
    while mount.metric("extant_unnamed_inodes") != "0" {
        assert!(since.elapsed() < Duration::from_secs(60), "they stay");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(rustix::fs::statvfs(mount.path()).unwrap().f_ffree, free);
    // One alone, after a while without any.
    fs::write(mount.at("last"), "x").unwrap();
    fs::remove_file(mount.at("last")).unwrap();
    mount.unmount();
    image.assert_clean();
}
