//! Names behind a record of a directory that makes no sense stay where they are, and no name comes
//! back that was removed.

use crate::damage::Base;
use crate::repair::{Readable, readable};
use crate::support::problems;
use extant_blockdev::{BlockDevice, MemoryDevice, SharedDevice};
use extant_fsck::repair::{self, Options};
use extant_testkit::oracle::{self, debugfs, debugfs_write};
use std::path::Path;
use std::sync::Arc;

/// Bytes in a block of the images.
const BLOCK: usize = 1024;

/// What is done to a record.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Inode(u32),
    Length(u16),
    NameLength(u8),
    /// So many bytes from its beginning on are these.
    Bytes(usize, u8),
}

/// Where a leaf of `/deep` lies in the image, and where its records begin.
fn leaf(image: &Path, bytes: &[u8], number: usize) -> (usize, Vec<usize>) {
    let list = debugfs(image, "blocks /deep");
    let block: usize = list
        .split_whitespace()
        .nth(number)
        .unwrap()
        .parse()
        .unwrap();
    let start = block * BLOCK;
    let mut records = Vec::new();
    let mut at = start;
    // The last 12 bytes are the checksum.
    while at < start + BLOCK - 12 {
        records.push(at);
        at += usize::from(u16::from_le_bytes(
            bytes[at + 4..at + 6].try_into().unwrap(),
        ));
    }
    assert_eq!(at, start + BLOCK - 12);
    (start, records)
}

fn harm(image: &mut [u8], at: usize, harm: Harm) {
    match harm {
        Harm::Inode(ino) => image[at..at + 4].copy_from_slice(&ino.to_le_bytes()),
        Harm::Length(len) => image[at + 4..at + 6].copy_from_slice(&len.to_le_bytes()),
        Harm::NameLength(len) => image[at + 6] = len,
        Harm::Bytes(len, byte) => image[at..at + len].fill(byte),
    }
}

/// Repairs an image and returns what can be read of it then.
fn repaired(dir: &Path, image: &[u8], what: &str) -> Readable {
    let device = Arc::new(MemoryDevice::from_image(image));
    let options = Options::default().now(1_700_000_000);
    let plan = repair::plan(device.clone(), options, &()).unwrap();
    assert!(plan.is_complete(), "{what}: {}", problems(&plan.left));
    plan.apply().unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let path = dir.join("repaired");
    std::fs::write(&path, bytes).unwrap();
    let theirs = oracle::e2fsck(&path, &["-fn"]);
    assert_eq!(theirs.code, 0, "{what}: {theirs}");
    readable(device)
}

fn in_memory(image: &[u8]) -> SharedDevice {
    Arc::new(MemoryDevice::from_image(image))
}

/// The names of `before` that are not there any more with what they held.
fn missing(before: &Readable, after: &Readable) -> usize {
    let same = |(path, content): &(&Vec<u8>, &Vec<u8>)| after.get(*path) == Some(*content);
    before.iter().filter(|entry| !same(entry)).count()
}

#[test]
fn names_behind_a_record_that_makes_no_sense_stay() {
    // What is done to the third record of a block, and how many names cannot be read any more then.
    let harms = [
        (Harm::Length(0), 0),
        (Harm::Length(3), 0),
        (Harm::Length(8), 0),
        (Harm::Length(4000), 0),
        (Harm::Length(0xFFFF), 0),
        (Harm::Inode(u32::MAX), 1),
        (Harm::NameLength(0), 1),
        (Harm::NameLength(255), 1),
        (Harm::Bytes(12, 0), 1),
        (Harm::Bytes(100, 0), 2),
        (Harm::Bytes(100, 0xFF), 2),
        (Harm::Bytes(100, b'n'), 2),
    ];
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let (path, _) = base.damaged("ssv mnt_count 1");
    let image = std::fs::read(&path).unwrap();
    let before = readable(in_memory(&image));
    let (_, records) = leaf(&path, &image, 5);
    assert!(records.len() > 8, "{records:?}");
    for (what, lost) in harms {
        let mut image = image.clone();
        harm(&mut image, records[2], what);
        let after = repaired(dir.path(), &image, &format!("{what:?}"));
        assert_eq!(missing(&before, &after), lost, "{what:?}");
        // Those whose names are lost are in lost+found: no file more, and none less.
        assert_eq!(after.len(), before.len(), "{what:?}");
    }
}

#[test]
fn names_stay_where_a_block_is_damaged_in_two_places() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let (path, _) = base.damaged("ssv mnt_count 1");
    let mut image = std::fs::read(&path).unwrap();
    let before = readable(in_memory(&image));
    for number in [5, 6] {
        let (_, records) = leaf(&path, &image, number);
        harm(&mut image, records[1], Harm::Length(0));
        harm(&mut image, records[6], Harm::Length(5));
    }
    let after = repaired(dir.path(), &image, "two blocks, two records each");
    assert_eq!(missing(&before, &after), 0);
    assert_eq!(after.len(), before.len());
}

#[test]
fn a_name_that_was_removed_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let (path, _) = base.damaged("ssv mnt_count 1");
    let image = std::fs::read(&path).unwrap();
    let (_, records) = leaf(&path, &image, 5);
    let name = |at: usize| {
        let len = usize::from(image[at + 6]);
        String::from_utf8(image[at + 8..at + 8 + len].to_vec()).unwrap()
    };
    // Its record stays behind the one before it, as free space.
    let moved = name(records[3]);
    let link = format!("ln \"/deep/{moved}\" /moved");
    debugfs_write(&path, &[&link, &format!("unlink \"/deep/{moved}\"")]);
    let mut image = std::fs::read(&path).unwrap();
    let left = image[records[3] + 8..].starts_with(moved.as_bytes());
    assert!(left, "nothing is left of the name");
    let before = readable(in_memory(&image));
    assert!(before.contains_key(&b"/moved"[..]) || before.contains_key(&b"moved"[..]));
    harm(&mut image, records[2], Harm::Length(0));
    let after = repaired(dir.path(), &image, "a name that was removed");
    assert_eq!(missing(&before, &after), 0);
    assert_eq!(after.len(), before.len());
}
