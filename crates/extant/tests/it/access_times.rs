//! When reading notes the time.

use crate::support::Blank;
use extant::{AccessTimes, FileFlags, Filesystem, MountOptions, OpenSpec, Timestamp};

fn open(image: &Blank, options: MountOptions) -> Filesystem {
    Filesystem::open_spec(&OpenSpec::read_write(image.path()), options).unwrap()
}

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

fn accessed(fs: &Filesystem, path: &str) -> Timestamp {
    fs.symlink_metadata(path).unwrap().atime()
}

const OLD: Timestamp = Timestamp {
    secs: 1_000_000_000,
    nanos: 0,
};

/// A file, a directory and a symbolic link, accessed and changed long ago.
fn prepare(fs: &Filesystem) {
    fs.write("/file", "content").unwrap();
    fs.create_dir("/dir").unwrap();
    fs.symlink("file", "/link").unwrap();
    age(fs);
}

fn age(fs: &Filesystem) {
    for path in ["/file", "/dir", "/link"] {
        fs.set_times(path, Some(OLD), Some(OLD)).unwrap();
    }
}

fn read_all(fs: &Filesystem) {
    fs.read("/file").unwrap();
    assert_eq!(fs.read_dir("/dir").unwrap().count(), 0);
    fs.read_link("/link").unwrap();
}

#[test]
fn nothing_is_noted_unless_asked_for() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    prepare(&fs);
    read_all(&fs);
    for path in ["/file", "/dir", "/link"] {
        assert_eq!(accessed(&fs, path), OLD, "{path}");
    }
}

#[test]
fn relative_times_move_after_a_change_and_after_a_day() {
    let image = Blank::new(16);
    let options = MountOptions::read_write().access_times(AccessTimes::Relative);
    let fs = open(&image, options);
    prepare(&fs);
    read_all(&fs);
    let now = extant_core::ops::now();
    for path in ["/file", "/dir", "/link"] {
        let first = accessed(&fs, path);
        assert!(first.secs + 3600 > now.secs, "{path}: {first:?}");
        read_all(&fs);
        assert_eq!(accessed(&fs, path), first, "{path}");
    }
    // Not changed since, but a day ago: the clock of the test cannot be turned, the times can.
    let first = accessed(&fs, "/file");
    fs.set_flags("/file", FileFlags::NO_ATIME, FileFlags::empty())
        .unwrap();
    fs.set_times("/file", Some(OLD), Some(at(5))).unwrap();
    fs.read("/file").unwrap();
    assert_eq!(accessed(&fs, "/file"), OLD);
    fs.set_flags("/file", FileFlags::empty(), FileFlags::NO_ATIME)
        .unwrap();
    fs.read("/file").unwrap();
    assert!(accessed(&fs, "/file").secs >= first.secs);
    fs.close().unwrap();
    image.check();
}

#[test]
fn directories_can_be_left_out() {
    let image = Blank::new(16);
    let options = MountOptions::read_write()
        .access_times(AccessTimes::Strict)
        .dir_access_times(false);
    let fs = open(&image, options);
    prepare(&fs);
    read_all(&fs);
    assert_eq!(accessed(&fs, "/dir"), OLD);
    assert!(accessed(&fs, "/file").secs > OLD.secs);
    assert!(accessed(&fs, "/link").secs > OLD.secs);
}

#[test]
fn lazy_times_reach_the_image_when_it_is_closed() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    prepare(&fs);
    fs.close().unwrap();
    let options = MountOptions::read_write()
        .access_times(AccessTimes::Strict)
        .lazy_times(true)
        .background(false);
    let fs = open(&image, options);
    let before = fs.engine().journal_stats().handles;
    read_all(&fs);
    read_all(&fs);
    assert_eq!(fs.engine().journal_stats().handles, before);
    let noted = ["/file", "/dir", "/link"].map(|path| accessed(&fs, path));
    assert!(noted.iter().all(|time| time.secs > OLD.secs), "{noted:?}");
    fs.close().unwrap();
    image.check();
    let fs = Filesystem::open(image.path()).unwrap();
    assert_eq!(
        ["/file", "/dir", "/link"].map(|path| accessed(&fs, path)),
        noted
    );
}
