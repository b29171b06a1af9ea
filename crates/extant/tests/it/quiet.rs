//! Freezing a file system, and making it read-only, while others change it.

use crate::support::Blank;
use extant::{Filesystem, OpenOptions};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// A copy of the image as it lies there.
fn copy(image: &Blank) -> PathBuf {
    let copy = image.path().with_extension("copy");
    std::fs::copy(image.path(), &copy).unwrap();
    copy
}

/// Requires that the image waits for nothing: no replay, no check.
fn assert_complete(image: &Blank) -> Filesystem {
    let copy = copy(image);
    let header = dumpe2fs_header(&copy);
    let features = header.features();
    assert!(features.iter().all(|name| *name != "needs_recovery"));
    assert_clean(&copy);
    let fs = Filesystem::open(&copy).unwrap();
    assert!(fs.notices().is_empty(), "{:?}", fs.notices());
    fs
}

fn change_on_and_on(fs: &Filesystem, name: &str, stop: &AtomicBool) -> u64 {
    let mut turns = 0;
    while !stop.load(Ordering::Relaxed) {
        let path = format!("/{name}-{}", turns % 7);
        fs.write(&path, vec![turns as u8; 9000]).unwrap();
        fs.set_permissions(&path, 0o600).unwrap();
        if turns % 3 == 0 {
            fs.rename(&path, format!("{path}-moved")).unwrap();
            fs.remove_file(format!("{path}-moved")).unwrap();
        }
        turns += 1;
    }
    turns
}

#[test]
fn a_frozen_image_stands_still_and_is_complete() {
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "orphan_file"],
        &["-t", "ext4", "-O", "^has_journal"],
    ] {
        let image = Blank::with(32, options);
        let fs = image.open_writable();
        fs.write("/before", "written, and not made durable")
            .unwrap();
        let unnamed = OpenOptions::new()
            .write(true)
            .create(true)
            .open(&fs, "/unnamed")
            .unwrap();
        unnamed.write_all_at(&[1; 5000], 0).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let others: Vec<_> = ["a", "b"]
                .map(|name| scope.spawn(|| change_on_and_on(&fs, name, &stop)))
                .into_iter()
                .collect();
            for _ in 0..5 {
                let frozen = fs.freeze().unwrap();
                assert_eq!(fs.freeze().unwrap_err().errno(), Errno::BUSY.raw_os_error());
                let seen = assert_complete(&image);
                assert_eq!(
                    seen.read_to_string("/before").unwrap(),
                    "written, and not made durable"
                );
                let first = std::fs::read(image.path()).unwrap();
                // Reading goes on.
                assert_eq!(fs.read("/unnamed").unwrap(), [1; 5000]);
                fs.sync().unwrap();
                assert!(
                    std::fs::read(image.path()).unwrap() == first,
                    "the image changes"
                );
                frozen.thaw().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            for other in others {
                other.join().unwrap();
            }
        });
        drop(unnamed);
        fs.close().unwrap();
        image.check();
    }
}

#[test]
fn what_is_removed_while_open_goes_after_the_thaw() {
    let image = Blank::new(32);
    let fs = image.open_writable();
    let file = fs.create("/file").unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    fs.remove_file("/file").unwrap();
    let frozen = fs.freeze().unwrap();
    drop(file);
    drop(frozen);
    fs.sync().unwrap();
    fs.close().unwrap();
    image.check();
}

#[test]
fn a_file_system_made_read_only_is_complete_until_it_is_writable_again() {
    let image = Blank::new(32);
    let fs = image.open_writable();
    let file = fs.create("/file").unwrap();
    file.write_all_at(b"content", 0).unwrap();
    let refused = fs.remount(true).unwrap_err();
    assert_eq!(refused.errno(), Errno::BUSY.raw_os_error(), "{refused}");
    drop(file);
    let reader = fs.open_file("/file").unwrap();
    fs.remount(true).unwrap();
    fs.remount(true).unwrap();
    let rofs = Errno::ROFS.raw_os_error();
    assert_eq!(fs.create("/other").unwrap_err().errno(), rofs);
    assert_eq!(
        fs.set_permissions("/file", 0o600).unwrap_err().errno(),
        rofs
    );
    assert_eq!(fs.remove_file("/file").unwrap_err().errno(), rofs);
    assert_eq!(fs.freeze().unwrap_err().errno(), rofs);
    let mut content = [0; 7];
    assert_eq!(reader.read_at(&mut content, 0).unwrap(), 7);
    assert_eq!(assert_complete(&image).read("/file").unwrap(), b"content");
    fs.remount(false).unwrap();
    fs.write("/file", "other content").unwrap();
    fs.remove_file("/file").unwrap();
    // Without a name, and open.
    let refused = fs.remount(true).unwrap_err();
    assert_eq!(refused.errno(), Errno::BUSY.raw_os_error(), "{refused}");
    drop(reader);
    fs.remount(true).unwrap();
    fs.close().unwrap();
    image.check();
}

#[test]
fn what_was_opened_for_reading_stays_so() {
    let image = Blank::new(16);
    let fs = Filesystem::open(image.path()).unwrap();
    let rofs = Errno::ROFS.raw_os_error();
    assert_eq!(fs.remount(false).unwrap_err().errno(), rofs);
    assert_eq!(fs.freeze().unwrap_err().errno(), rofs);
}
