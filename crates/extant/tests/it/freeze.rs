//! Freezing a file system, and making it read-only, while others change it.

use crate::support::Blank;
use extant::{AccessTimes, Filesystem, MountOptions, OpenOptions, OpenSpec};
use extant_blockdev::SharedDevice;
use extant_testkit::crash::{FaultDevice, FaultRule, IoKind};
use extant_testkit::oracle::{assert_clean, debugfs_write, dumpe2fs_header};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;
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

#[test]
fn what_was_closed_is_not_made_writable_again() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    fs.write("/file", "content").unwrap();
    let engine = Arc::clone(fs.engine());
    fs.close().unwrap();
    let closed = std::fs::read(image.path()).unwrap();
    let refused = engine.remount(false).unwrap_err();
    assert!(matches!(refused, extant_core::Error::ReadOnly), "{refused}");
    drop(engine);
    assert!(std::fs::read(image.path()).unwrap() == closed);
}

#[test]
fn what_needed_a_check_when_it_was_opened_still_does_when_it_is_left() {
    for freezes in [false, true] {
        let image = Blank::with(16, &["-t", "ext4", "-O", "^has_journal"]);
        debugfs_write(image.path(), &["ssv state 0"]);
        let fs = image.open_writable();
        fs.write("/file", "content").unwrap();
        if freezes {
            std::mem::forget(fs.freeze().unwrap())
        } else {
            fs.close().unwrap()
        }
        let header = dumpe2fs_header(image.path());
        assert_eq!(header.field("Filesystem state"), "not clean");
    }
}

#[test]
fn a_sync_that_meets_a_freeze_leaves_the_image_alone() {
    let image = Blank::new(8);
    let fs = image.open_writable();
    let paths: Vec<String> = (0..400).map(|i| format!("/{i}")).collect();
    for path in &paths {
        fs.write(path, "content").unwrap();
    }
    fs.close().unwrap();
    let options = MountOptions::read_write()
        .access_times(AccessTimes::Strict)
        .lazy_times(true);
    let fs = Filesystem::open_spec(&OpenSpec::read_write(image.path()), options).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs.sync().unwrap();
            }
        });
        for _ in 0..30 {
            for path in &paths {
                fs.read(path).unwrap();
            }
            let frozen = fs.freeze().unwrap();
            let first = std::fs::read(image.path()).unwrap();
            let second = std::fs::read(image.path()).unwrap();
            assert!(first == second, "the image changes");
            frozen.thaw().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        syncing.join().unwrap();
    });
    fs.close().unwrap();
    image.check();
}

#[test]
fn after_a_thaw_that_the_device_failed_nothing_can_be_changed() {
    let mut failed = 0;
    for nth in 0..10 {
        let image = Blank::new(16);
        let device = OpenSpec::read_write(image.path()).open().unwrap();
        let faulty = Arc::new(FaultDevice::new(device));
        let options = MountOptions::read_write().background(false);
        let fs = Filesystem::open_device(Arc::clone(&faulty) as SharedDevice, options).unwrap();
        let frozen = fs.freeze().unwrap();
        faulty.inject(FaultRule::fail_nth(IoKind::Flush, nth));
        let thawed = frozen.thaw();
        faulty.heal();
        let changed = fs.write("/file", "content");
        assert_eq!(changed.is_ok(), thawed.is_ok(), "flush {nth}: {changed:?}");
        failed += u32::from(thawed.is_err());
    }
    assert!((1..10).contains(&failed), "{failed} flushes");
}
