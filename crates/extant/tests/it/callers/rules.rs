//! Rules that need no kernel to compare with: each is one that something once broke.

use crate::support::Blank;
use extant::errno::{EACCES, EOPNOTSUPP, EPERM, EROFS, EXDEV};
use extant::{Bulkstat, Caller, DeviceNumber, Error, File, FileFlags, FileType, Filesystem};
use extant::{EXECUTE, OpenOptions, READ, Timestamp, WRITE};

fn stranger(fs: &Filesystem) -> Filesystem {
    fs.on_behalf_of(Caller::new(1005, 1005))
}

#[track_caller]
fn refused<T: std::fmt::Debug>(done: Result<T, Error>) -> i32 {
    done.unwrap_err().errno()
}

fn mode(fs: &Filesystem, path: &str) -> u16 {
    fs.symlink_metadata(path).unwrap().mode().permissions()
}

fn ino(fs: &Filesystem, path: &str) -> u32 {
    fs.symlink_metadata(path).unwrap().ino()
}

fn open(fs: &Filesystem, path: &str) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(fs, path)
        .unwrap()
}

/// Removes the file at `path`, and makes files in a directory that only root can search until one
/// has its number.
fn replace_by_secret(fs: &Filesystem, path: &str) {
    let number = ino(fs, path);
    fs.remove_file(path).unwrap();
    // What was freed is used again after the commit.
    fs.sync().unwrap();
    for i in 0..10_000 {
        let secret = format!("/private/{number}-{i}");
        fs.write(&secret, "secret").unwrap();
        if ino(fs, &secret) == number {
            return;
        }
    }
    panic!("inode {number} is not used again");
}

#[test]
fn what_a_walk_has_found_is_never_another_file() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    fs.create_dir("/d").unwrap();
    for name in ["/d/a", "/d/b"] {
        fs.write(name, "public").unwrap();
        fs.set_xattr(name, "user.note", b"public").unwrap();
    }
    let mut walk = stranger(&fs).walk("/d").unwrap();
    let root = walk.next().unwrap().unwrap();
    assert_eq!(root.path_bytes(), b"/d");
    let found = walk.next().unwrap().unwrap();
    assert_eq!(found.path_bytes(), b"/d/a");
    assert!(found.open().is_ok());
    // What was found, and what was listed and comes next.
    fs.create_dir_with("/private", 0o700).unwrap();
    replace_by_secret(&fs, "/d/a");
    assert!(found.open().is_err());
    assert!(found.xattrs().is_err());
    replace_by_secret(&fs, "/d/b");
    let next = walk.next().unwrap();
    assert!(next.is_err(), "{next:?}");
    fs.close().unwrap();
    image.check();
}

#[test]
fn what_is_copied_is_written_by_who_opened_the_target() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    for name in ["/source", "/program", "/other"] {
        fs.write(name, "content").unwrap();
        fs.set_permissions(name, 0o6777).unwrap();
    }
    let theirs = stranger(&fs);
    let (from, to) = (open(&theirs, "/source"), open(&fs, "/program"));
    assert_eq!(from.copy_range(0, &to, 7, 7).unwrap(), 7);
    assert_eq!(mode(&fs, "/program"), 0o6777);
    let (from, to) = (open(&fs, "/source"), open(&theirs, "/other"));
    assert_eq!(from.copy_range(0, &to, 7, 7).unwrap(), 7);
    assert_eq!(mode(&fs, "/other"), 0o777);
    drop((from, to));
    fs.close().unwrap();
    image.check();
}

#[test]
fn files_of_two_file_systems_are_not_joined() {
    let images = [Blank::new(8), Blank::new(8)];
    let [one, other] = [&images[0], &images[1]].map(|image| image.open_writable());
    one.write("/f", "content").unwrap();
    other.write("/f", "content").unwrap();
    let (from, to) = (open(&one, "/f"), open(&other, "/f"));
    assert_eq!(refused(from.copy_range(0, &to, 0, 7)), EXDEV);
    assert_eq!(refused(other.link_file(&from, "/link")), EXDEV);
    assert!(!other.exists("/link").unwrap());
    drop((from, to));
    for (fs, image) in [one, other].into_iter().zip(&images) {
        fs.close().unwrap();
        image.check();
    }
}

#[test]
fn nothing_but_devices_pipes_and_sockets_may_be_written_for_reading_only() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    fs.write("/file", "content").unwrap();
    fs.create_dir_with("/dir", 0o777).unwrap();
    fs.set_permissions("/file", 0o666).unwrap();
    fs.create_special("/pipe", FileType::Fifo, DeviceNumber::default(), 0o666)
        .unwrap();
    fs.close().unwrap();
    let fs = Filesystem::open(image.path()).unwrap();
    for fs in [fs.clone(), stranger(&fs)] {
        for path in ["/file", "/dir"] {
            assert_eq!(refused(fs.access(path, WRITE)), EROFS, "{path}");
            assert!(fs.access(path, READ).is_ok(), "{path}");
        }
        assert!(fs.access("/dir", READ | EXECUTE).is_ok());
        assert!(fs.access("/pipe", READ | WRITE).is_ok());
    }
}

#[test]
fn who_does_not_own_a_file_learns_nothing_from_flags_that_nobody_sets() {
    let image = Blank::new(8);
    let fs = image.open_writable();
    fs.write("/file", "content").unwrap();
    let none = FileFlags::empty();
    for flag in [FileFlags::JOURNAL_DATA, FileFlags::INLINE_DATA] {
        let theirs = stranger(&fs);
        assert_eq!(refused(theirs.set_flags("/file", flag, none)), EPERM);
        assert_eq!(refused(fs.set_flags("/file", flag, none)), EOPNOTSUPP);
    }
    fs.close().unwrap();
}

#[test]
fn to_leave_both_times_is_allowed_to_everybody_and_does_nothing() {
    let image = Blank::new(8);
    let fs = image.open_writable();
    fs.write("/file", "content").unwrap();
    let none = FileFlags::empty();
    fs.set_flags("/file", FileFlags::IMMUTABLE, none).unwrap();
    let before = fs.metadata("/file").unwrap().ctime();
    let theirs = stranger(&fs);
    theirs.set_times("/file", None, None).unwrap();
    assert_eq!(fs.metadata("/file").unwrap().ctime(), before);
    let time = Some(Timestamp::from_secs(1));
    assert_eq!(refused(theirs.set_times("/file", None, time)), EPERM);
    fs.set_flags("/file", none, FileFlags::IMMUTABLE).unwrap();
    fs.close().unwrap();
}

#[test]
fn emptying_what_is_empty_is_a_change_as_well() {
    let image = Blank::new(8);
    let fs = image.open_writable();
    fs.write("/file", "").unwrap();
    fs.set_permissions("/file", 0o4777).unwrap();
    let old = Timestamp::from_secs(1_000_000);
    fs.set_times("/file", Some(old), Some(old)).unwrap();
    let mut options = OpenOptions::new();
    options.write(true).truncate(true);
    drop(options.open(&stranger(&fs), "/file").unwrap());
    assert_eq!(mode(&fs, "/file"), 0o777);
    assert!(fs.metadata("/file").unwrap().mtime() > old);
    fs.close().unwrap();
}

#[test]
fn what_goes_by_path_or_by_number_asks_as_well() {
    let image = Blank::new(8);
    let fs = image.open_writable();
    fs.write("/file", "content").unwrap();
    fs.create_dir_with("/private", 0o700).unwrap();
    let theirs = stranger(&fs);
    assert_eq!(refused(theirs.set_len("/file", 3)), EACCES);
    assert_eq!(refused(theirs.create_unnamed("/private", 0o600)), EACCES);
    assert_eq!(refused(theirs.metadata("/private/../file")), EACCES);
    let visited = theirs.bulkstat(Bulkstat::default(), |found| {
        assert_eq!(refused(found), EPERM);
    });
    assert_eq!(visited, 0);
    // What is found in the walk is what may be seen.
    let seen: Vec<_> = theirs.walk("/").unwrap().collect();
    assert!(seen.iter().any(|entry| entry.is_err()));
    fs.close().unwrap();
}

/// Two directories change places all the time, one of which is being removed: what lies below the
/// other one, which is reached through a symbolic link only, stays.
#[test]
fn a_directory_is_removed_without_following_what_comes_in_its_place() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    fs.create_dir("/keep").unwrap();
    fs.create_dir("/top").unwrap();
    for i in 0..20 {
        fs.write(format!("/keep/{i}"), "kept").unwrap();
    }
    for _ in 0..100 {
        fs.create_dir_all("/top/d/e").unwrap();
        fs.symlink("/keep", "/top/link").unwrap();
        for i in 0..20 {
            fs.write(format!("/top/d/{i}"), "goes").unwrap();
        }
        std::thread::scope(|scope| {
            let removed = scope.spawn(|| fs.remove_dir_all("/top/d"));
            while !removed.is_finished() {
                let _ = fs.exchange("/top/d", "/top/link");
            }
            // Whatever it found in its way.
            let _ = removed.join().unwrap();
        });
        fs.remove_dir_all("/top").unwrap();
        fs.create_dir("/top").unwrap();
        assert_eq!(fs.read_dir("/keep").unwrap().count(), 20);
    }
    fs.close().unwrap();
    image.check();
}
