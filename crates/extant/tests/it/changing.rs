//! Changing an image through paths, and what e2fsck and the kernel say about it.

use crate::support::Blank;
use extant::{Filesystem, OpenOptions, Timestamp};
use std::io::{Read, Seek, SeekFrom, Write};

#[test]
fn everything_a_path_can_be_made_to_do_is_there_after_closing() {
    let image = Blank::new(32);
    let fs = image.open_writable();
    fs.create_dir_all("/a/b/c").unwrap();
    fs.write("/a/file", b"hello world").unwrap();
    fs.write("/a/b/big", vec![7; 3 << 20]).unwrap();
    fs.symlink("b/big", "/a/short").unwrap();
    fs.symlink("x".repeat(300), "/a/long").unwrap();
    fs.hard_link("/a/file", "/a/b/second").unwrap();
    fs.rename("/a/b/big", "/big").unwrap();
    fs.set_permissions("/a/file", 0o4711).unwrap();
    fs.set_owner("/a/file", Some(1000), Some(70_000)).unwrap();
    fs.set_times("/a/b", None, Some(Timestamp::from_secs(1_000_000)))
        .unwrap();
    for i in 0..2000 {
        fs.write(format!("/a/b/c/file-{i}"), i.to_string()).unwrap();
    }
    for i in (0..2000).step_by(3) {
        fs.remove_file(format!("/a/b/c/file-{i}")).unwrap();
    }
    fs.create_dir("/a/empty").unwrap();
    fs.remove_dir("/a/empty").unwrap();
    check(&fs);
    fs.close().unwrap();
    image.check();
    let fs = Filesystem::open(image.path()).unwrap();
    check(&fs);
}

#[test]
fn after_closing_open_files_are_read_and_not_changed() {
    let image = Blank::new(32);
    let fs = image.open_writable();
    fs.write("/file", vec![1; 8192]).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fs, "/file")
        .unwrap();
    let other = fs.clone();
    fs.close().unwrap();
    let read_only = |e: extant::Error| assert_eq!(e.errno(), 30, "{e}");
    read_only(file.write_at(b"in place", 0).unwrap_err());
    read_only(file.write_at(b"behind", 20_000).unwrap_err());
    read_only(file.append(b"more").unwrap_err());
    read_only(file.set_len(0).unwrap_err());
    read_only(file.allocate(0, 1 << 20).unwrap_err());
    read_only(other.create_dir("/dir").unwrap_err());
    let mut buf = [0; 10];
    assert_eq!(file.read_at(&mut buf, 8187).unwrap(), 5);
    other.close().unwrap();
    drop(file);
    image.check();
    let fs = Filesystem::open(image.path()).unwrap();
    assert!(fs.read("/file").unwrap() == vec![1; 8192]);
    // There is nothing to be lost.
    fs.sync().unwrap();
    let file = fs.open_file("/file").unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    fs.close().unwrap();
}

fn check(fs: &Filesystem) {
    assert_eq!(fs.read("/a/file").unwrap(), b"hello world");
    assert_eq!(fs.read("/a/b/second").unwrap(), b"hello world");
    assert_eq!(fs.metadata("/a/file").unwrap().nlink(), 2);
    assert_eq!(fs.metadata("/a/file").unwrap().uid(), 1000);
    assert_eq!(fs.metadata("/a/file").unwrap().gid(), 70_000);
    assert!(fs.read("/big").unwrap() == vec![7; 3 << 20]);
    assert!(!fs.exists("/a/b/big").unwrap());
    assert_eq!(fs.read_link("/a/long").unwrap().as_os_str().len(), 300);
    let mut names: Vec<_> = fs
        .read_dir("/a/b/c")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut expected: Vec<_> = (0..2000)
        .filter(|i| i % 3 != 0)
        .map(|i| format!("file-{i}"))
        .collect();
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(fs.read("/a/b/c/file-1999").unwrap(), b"1999");
    assert!(!fs.exists("/a/empty").unwrap());
}

#[test]
fn open_files_are_read_and_written_at_a_position() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&fs, "log")
        .unwrap();
    file.write_all(b"one two three").unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    file.write_all(b"TWO").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one TWO three");
    file.set_len(3).unwrap();
    file.write_all_at(b"!", 10_000).unwrap();
    assert_eq!(file.metadata().len(), 10_001);
    let content = fs.read("log").unwrap();
    assert!(content.starts_with(b"one\0\0") && content.ends_with(b"\0!"));
    let appended = OpenOptions::new().append(true).open(&fs, "log").unwrap();
    assert_eq!(appended.append(b"end").unwrap(), (10_001, 3));
    file.sync_all().unwrap();
    fs.close().unwrap();
    image.check();
}

#[test]
fn a_file_without_names_lives_as_long_as_it_is_open() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    let free = fs.statfs().unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .open(&fs, "gone")
        .unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    fs.remove_file("gone").unwrap();
    assert!(!fs.exists("gone").unwrap());
    file.write_all_at(b"still here", 5).unwrap();
    let mut back = [0; 10];
    file.read_at(&mut back, 5).unwrap();
    assert_eq!(&back, b"still here");
    drop(file);
    fs.sync().unwrap();
    let now = fs.statfs().unwrap();
    assert_eq!((now.free, now.free_inodes), (free.free, free.free_inodes));
    fs.close().unwrap();
    image.check();
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    fs.create_dir_all("d/e").unwrap();
    fs.write("f", b"x").unwrap();
    let errno = |e: extant::Error| e.errno();
    assert_eq!(errno(fs.create_dir("d").unwrap_err()), 17);
    assert_eq!(errno(fs.remove_dir("d").unwrap_err()), 39);
    assert_eq!(errno(fs.remove_file("d").unwrap_err()), 21);
    assert_eq!(errno(fs.remove_dir("f").unwrap_err()), 20);
    assert_eq!(errno(fs.rename("d", "d/e/inside").unwrap_err()), 22);
    assert_eq!(errno(fs.rename("f", "d").unwrap_err()), 21);
    assert_eq!(errno(fs.rename("d", "f").unwrap_err()), 20);
    assert_eq!(errno(fs.rename("d/e", "nowhere/x").unwrap_err()), 2);
    assert_eq!(errno(fs.hard_link("d", "dd").unwrap_err()), 1);
    assert_eq!(errno(fs.create_dir("f/x").unwrap_err()), 20);
    assert_eq!(errno(fs.write("d", b"").unwrap_err()), 21);
    let long = "n".repeat(256);
    assert_eq!(errno(fs.create_dir(long).unwrap_err()), 36);
    assert_eq!(fs.read("f").unwrap(), b"x");
    let reader = OpenOptions::new().read(true).open(&fs, "f").unwrap();
    assert_eq!(errno(reader.write_at(b"y", 0).unwrap_err()), 9);
    fs.close().unwrap();
    image.check();
    let fs = Filesystem::open(image.path()).unwrap();
    assert_eq!(errno(fs.create_dir("new").unwrap_err()), 30);
}

#[test]
fn an_image_is_opened_for_writing_once() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    let second = Filesystem::open_writable(image.path()).unwrap_err();
    assert!(second.to_string().contains("in use"), "{second}");
    drop(fs);
    Filesystem::open_writable(image.path()).unwrap();
    image.check();
}

#[test]
fn files_mapped_by_indirect_blocks_are_deleted_with_all_they_have() {
    for kind in ["ext2", "ext3"] {
        let source = tempfile::tempdir().unwrap();
        std::fs::create_dir(source.path().join("dir")).unwrap();
        std::fs::write(source.path().join("dir/large"), vec![1; 6 << 20]).unwrap();
        let target = "x".repeat(200);
        std::os::unix::fs::symlink(&target, source.path().join("dir/long")).unwrap();
        let from = source.path().to_str().unwrap();
        let image = Blank::with(32, &["-t", kind, "-b", "1024", "-d", from]);
        let fs = image.open_writable();
        let before = fs.statfs().unwrap();
        let large = OpenOptions::new()
            .read(true)
            .open(&fs, "dir/large")
            .unwrap();
        assert_eq!(fs.read_link("dir/long").unwrap().as_os_str().len(), 200);
        fs.remove_dir_all("dir").unwrap();
        let mut byte = [0];
        large.read_at(&mut byte, 5 << 20).unwrap();
        assert_eq!(byte, [1]);
        drop(large);
        fs.sync().unwrap();
        assert!(fs.statfs().unwrap().free > before.free + 6000, "{kind}");
        fs.close().unwrap();
        image.check();
    }
}

#[test]
fn a_whiteout_takes_the_place_of_what_is_moved() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    fs.create_dir("/d").unwrap();
    fs.write("/d/a", b"a").unwrap();
    fs.write("/b", b"b").unwrap();
    let flags = extant::RenameFlags {
        whiteout: true,
        ..extant::RenameFlags::default()
    };
    fs.rename_with("/d/a", "/b", flags).unwrap();
    assert_eq!(fs.read("/b").unwrap(), b"a");
    let left = fs.symlink_metadata("/d/a").unwrap();
    assert_eq!(left.file_type(), extant::FileType::CharDevice);
    assert_eq!(left.rdev(), Some(extant::DeviceNumber::default()));
    fs.rename_with("/d", "/e", flags).unwrap();
    assert!(fs.exists("/e/a").unwrap());
    fs.close().unwrap();
    image.check();
}

#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    let before = fs.statfs().unwrap().free_inodes;
    let file = fs.create_unnamed("/", 0o640).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    fs.link_file(&file, "/named").unwrap();
    fs.link_file(&file, "/again").unwrap();
    assert_eq!(fs.link_file(&file, "/named").unwrap_err().errno(), 17);
    fs.remove_file("/named").unwrap();
    fs.remove_file("/again").unwrap();
    // It has lost its last name, which is not the same as never having had one.
    assert_eq!(fs.link_file(&file, "/third").unwrap_err().errno(), 2);
    drop(file);
    let other = fs.create_unnamed("/", 0o600).unwrap();
    drop(other);
    fs.sync().unwrap();
    assert_eq!(fs.statfs().unwrap().free_inodes, before);
    let kept = fs.create_unnamed("/", 0o640).unwrap();
    kept.write_all_at(b"content", 0).unwrap();
    fs.link_file(&kept, "/kept").unwrap();
    drop(kept);
    fs.close().unwrap();
    image.check();
    assert_eq!(image.open_writable().read("/kept").unwrap(), b"content");
}

#[test]
fn a_slash_behind_a_name_asks_for_a_directory_there_and_nowhere_else() {
    let image = Blank::new(8);
    let fs = image.open_writable();
    fs.write("/file", b"content").unwrap();
    fs.create_dir("/dir").unwrap();
    assert_eq!(fs.exchange("/file/", "/dir").unwrap_err().errno(), 20);
    assert_eq!(fs.exchange("/dir", "/file/").unwrap_err().errno(), 20);
    fs.exchange("/file", "/dir/").unwrap();
    assert_eq!(fs.read("/dir").unwrap(), b"content");
    fs.exchange("/file/", "/dir").unwrap();
    assert_eq!(fs.read("/file").unwrap(), b"content");
    fs.close().unwrap();
    image.check();
}

#[test]
fn no_block_of_attributes_comes_into_a_file_system_without_the_feature() {
    let image = Blank::with(8, &["-t", "ext4", "-O", "^ext_attr"]);
    let fs = image.open_writable();
    fs.write("/file", b"content").unwrap();
    let refused = fs.set_xattr("/file", "user.long", [7; 900]).unwrap_err();
    assert!(refused.to_string().contains("ext_attr"), "{refused}");
    fs.set_xattr("/file", "user.short", b"7").unwrap();
    assert_eq!(fs.list_xattrs("/file").unwrap(), ["user.short"]);
    fs.close().unwrap();
    image.check();
}

/// What a destructor does while its thread unwinds is whole: it is kept, and the file system goes
/// on.
#[test]
fn a_destructor_writes_and_syncs_while_its_thread_panics() {
    struct Saved(Filesystem);

    impl Drop for Saved {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            self.0.write("/saved", b"at the end").unwrap();
            self.0.sync().unwrap();
        }
    }

    let image = Blank::new(32);
    let fs = image.open_writable();
    let saved = Saved(fs.clone());
    let ended = std::thread::spawn(move || {
        let _saved = saved;
        panic!("as the test wants it");
    });
    ended.join().unwrap_err();
    fs.write("/later", b"goes on").unwrap();
    fs.close().unwrap();
    image.check();
    let fs = Filesystem::open(image.path()).unwrap();
    assert_eq!(fs.read("/saved").unwrap(), b"at the end");
    assert_eq!(fs.read("/later").unwrap(), b"goes on");
}
