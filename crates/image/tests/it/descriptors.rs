//! Files that are open already.

use extant_blockdev::DeviceResult;
use extant_image::{How, ImageLocation};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;

/// An open file as a process inherits it.
fn inherited(path: &Path, options: &mut OpenOptions) -> File {
    let file = options.open(path).expect("the file");
    fcntl_setfd(&file, FdFlags::empty()).expect("a flag");
    file
}

fn open(file: &File, how: &How) -> DeviceResult<extant_blockdev::SharedDevice> {
    ImageLocation::descriptor(file.as_raw_fd()).open(how)
}

fn sentence(file: &File, how: &How) -> String {
    match open(file, how) {
        Ok(device) => panic!("{device:?}"),
        Err(e) => e.to_string(),
    }
}

fn image() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    std::fs::write(&path, [7; 8192]).expect("room");
    (dir, path)
}

#[test]
fn an_inherited_file_is_read_and_written_without_its_name() {
    let (_dir, path) = image();
    let file = inherited(&path, OpenOptions::new().read(true).write(true));
    std::fs::remove_file(&path).expect("its name goes");
    let device = open(&file, &How::writing()).expect("a device");
    assert_eq!(device.size(), 8192);
    assert_eq!(device.name(), format!("fd:{}", file.as_raw_fd()));
    device.write_at(100, b"new").expect("room");
    drop(device);
    // Still the caller's.
    let device = open(&file, &How::reading().offset(100)).expect("a device");
    let mut found = [0; 4];
    device.read_at(0, &mut found).expect("content");
    assert_eq!(&found, b"new\x07");
}

#[test]
fn nothing_is_written_where_commands_print() {
    for number in [1, 2] {
        let error = ImageLocation::descriptor(number).open(&How::writing());
        let text = error.expect_err("a refusal").to_string();
        assert!(text.contains("what commands print goes there"), "{text}");
    }
}

#[test]
fn a_mode_that_does_not_allow_it_is_named() {
    let (_dir, path) = image();
    let read = inherited(&path, OpenOptions::new().read(true));
    assert!(open(&read, &How::reading()).is_ok());
    assert!(sentence(&read, &How::writing()).contains("open for reading only"));
    let write = inherited(&path, OpenOptions::new().write(true));
    assert!(sentence(&write, &How::reading()).contains("not open for reading"));
    let append = inherited(&path, OpenOptions::new().read(true).append(true));
    assert!(sentence(&append, &How::writing()).contains("open for appending"));
    assert!(open(&append, &How::reading()).is_ok());
    let (pipe, _end) = rustix::pipe::pipe().expect("a pipe");
    assert!(sentence(&File::from(pipe), &How::reading()).contains("is a pipe"));
}

#[test]
fn what_the_process_opened_by_itself_is_not_meant() {
    let (_dir, path) = image();
    let own = File::open(&path).expect("the file");
    assert!(sentence(&own, &How::reading()).contains("no file is open there"));
    let e = ImageLocation::descriptor(9999).open(&How::reading());
    assert!(
        e.expect_err("closed")
            .to_string()
            .contains("no file is open there")
    );
}

#[test]
fn what_the_process_opened_by_itself_is_taken_where_that_is_said() {
    let (_dir, path) = image();
    let mut options = OpenOptions::new();
    let own = options.read(true).write(true).open(&path);
    let own = own.expect("the file");
    let how = How::writing().own_descriptors(true);
    let location = ImageLocation::descriptor(own.as_raw_fd());
    let opened = location.open_disk(&how).expect("a device");
    assert!(opened.is_file);
    opened.device.write_at(100, b"new").expect("room");
    drop(opened);
    assert_eq!(
        &std::fs::read(&path).expect("content")[100..104],
        b"new\x07"
    );
    let e = ImageLocation::descriptor(9999).open(&how);
    assert_eq!(e.expect_err("closed").errno(), 9);
    // What is asked of it is the same.
    let read = File::open(&path).expect("the file");
    assert!(sentence(&read, &how).contains("open for reading only"));
}

#[test]
fn the_lock_of_an_open_file_is_kept_as_it_is() {
    let (_dir, path) = image();
    let is_locked = || {
        let other = File::open(&path).expect("the file");
        flock(&other, FlockOperation::NonBlockingLockExclusive).is_err()
    };
    let file = inherited(&path, OpenOptions::new().read(true).write(true));
    // Without a lock one is taken, and given back.
    let device = open(&file, &How::writing()).expect("a device");
    assert!(is_locked());
    drop(device);
    assert!(!is_locked());
    // The caller's own stays.
    flock(&file, FlockOperation::LockExclusive).expect("a lock");
    drop(open(&file, &How::writing()).expect("a device"));
    assert!(is_locked());
    flock(&file, FlockOperation::Unlock).expect("no lock");
    // A shared one would have to become another.
    flock(&file, FlockOperation::LockShared).expect("a lock");
    assert!(sentence(&file, &How::writing()).contains("locked for reading"));
    drop(open(&file, &How::reading().guarded(true)).expect("a device"));
    assert!(is_locked());
    flock(&file, FlockOperation::Unlock).expect("no lock");
    // Somebody else's is respected.
    let other = File::open(&path).expect("the file");
    flock(&other, FlockOperation::LockExclusive).expect("a lock");
    assert!(sentence(&file, &How::writing()).contains("is in use"));
}
