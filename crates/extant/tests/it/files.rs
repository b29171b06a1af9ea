//! Files: reading, seeking, attributes, threads.

use crate::support::{Image, plan};
use extant::{
    DirEntry, Error, File, Filesystem, Metadata, MountOptions, OpenOptions, ReadDir, Walk,
    WalkEntry,
};
use extant_testkit::plan::Content;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

fn shared<T: Send + Sync>() {}

#[test]
fn everything_can_be_shared_between_threads() {
    shared::<Filesystem>();
    shared::<File>();
    shared::<ReadDir>();
    shared::<DirEntry>();
    shared::<Walk>();
    shared::<WalkEntry>();
    shared::<Metadata>();
    shared::<Error>();
}

#[test]
fn files_read_and_seek_as_those_of_std() {
    let image = Image::of(&plan());
    let fs = image.open();
    let expected = Content::filled(1, 10_000).to_bytes();
    let mut file = fs.open_file("to-file").unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    assert!(content == expected);
    assert_eq!(file.seek(SeekFrom::End(-10)).unwrap(), 9990);
    let mut end = Vec::new();
    file.read_to_end(&mut end).unwrap();
    assert_eq!(end, &expected[9990..]);
    assert_eq!(file.seek(SeekFrom::Start(5)).unwrap(), 5);
    assert_eq!(file.seek(SeekFrom::Current(-5)).unwrap(), 0);
    assert!(file.seek(SeekFrom::Current(-1)).is_err());
    assert!(file.seek(SeekFrom::Start(1 << 40)).is_ok());
    assert_eq!(file.read(&mut [0; 10]).unwrap(), 0);
    assert!(fs.read("top").unwrap() == Content::filled(2, 300).to_bytes());
    assert!(
        fs.read_to_string("top").is_err(),
        "random bytes are no text"
    );
}

#[test]
fn direct_and_buffered_reads_agree_in_an_image_that_is_open_for_reading() {
    let image = Image::of(&plan());
    let fs = image.open();
    let expected = Content::filled(1, 10_000).to_bytes();
    let direct = OpenOptions::new()
        .read(true)
        .direct(true)
        .open(&fs, "to-file")
        .unwrap();
    let mut buffer = [0; 4096];
    // More than it takes to bypass memory, and back.
    for at in [0, 4096].repeat(4) {
        assert!(fs.read("to-file").unwrap() == expected);
        for _ in 0..5 {
            assert_eq!(direct.read_at(&mut buffer, at).unwrap(), 4096);
            assert_eq!(buffer, expected[at as usize..at as usize + 4096]);
        }
    }
    let data = (direct.seek_data(0).unwrap(), direct.seek_hole(0).unwrap());
    assert_eq!(data, (Some(0), Some(10_000)));
    fs.sync().unwrap();
}

#[test]
fn many_threads_read_one_file_at_once() {
    let image = Image::of(&plan());
    let fs = image.open();
    let file = fs.open_file("a/b/c/file").unwrap();
    let expected = Content::filled(1, 10_000).to_bytes();
    std::thread::scope(|scope| {
        for start in 0..8usize {
            let (file, expected) = (&file, &expected);
            scope.spawn(move || {
                for at in (start * 100..9_000).step_by(700) {
                    let mut buffer = [0; 333];
                    assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), 333);
                    assert_eq!(buffer, expected[at..at + 333]);
                }
            });
        }
    });
}

#[test]
fn holes_are_between_the_extents() {
    let image = Image::of(&plan());
    let fs = image.open();
    let file = fs.open_file("sparse").unwrap();
    let data: u64 = file
        .extents()
        .unwrap()
        .iter()
        .map(|extent| extent.len)
        .sum();
    assert!(data < 64 << 10, "{data}");
    let content = fs.read("sparse").unwrap();
    let expected = Content::sparse(3, 1 << 20, [(8192, 4096), (512 << 10, 100)]);
    assert!(content == expected.to_bytes());
    assert!(file.metadata().blocks() * 512 < file.metadata().len());
}

#[test]
fn attributes_are_read_by_name_and_all_together() {
    let mut plan = plan();
    plan.node_mut("top")
        .xattr("user.one", "1")
        .xattr("user.two", vec![0, 255]);
    let image = Image::of(&plan);
    let fs = image.open();
    assert_eq!(fs.get_xattr("top", "user.one").unwrap().unwrap(), b"1");
    assert_eq!(fs.get_xattr("top", "user.none").unwrap(), None);
    let mut names = fs.list_xattrs("top").unwrap();
    names.sort();
    assert_eq!(names, ["user.one", "user.two"]);
    let all = fs.xattrs("top").unwrap();
    assert!(all.contains(&("user.two".into(), vec![0, 255])));
    assert!(fs.xattrs("to-file").unwrap().is_empty());
}

#[test]
fn a_device_in_memory_is_as_good_as_a_file() {
    let image = Image::of(&plan());
    let bytes = std::fs::read(&image.path).unwrap();
    let device = extant_blockdev::MemoryDevice::new(bytes.len() as u64);
    extant_blockdev::BlockDevice::write_at(&device, 0, &bytes).unwrap();
    let fs = Filesystem::open_device(Arc::new(device), MountOptions::read_only()).unwrap();
    assert!(fs.read("top").unwrap() == Content::filled(2, 300).to_bytes());
    let space = fs.statfs().unwrap();
    assert!(space.free > 0 && space.free < space.blocks);
}
