//! Several changes at once: all of them are in the image, or none.

use crate::support::Blank;
use extant::{Error, Filesystem, Transaction, errno};
use extant_testkit::oracle::{assert_clean, mke2fs};
use std::fs;
use std::path::Path;

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

#[test]
fn what_is_committed_is_there_and_what_is_not_leaves_no_trace() {
    let image = Blank::new(64);
    let before = bytes(image.path());
    let failed: Result<(), Error> = Filesystem::transaction(image.path(), |fs| {
        fs.create_dir("/dir")?;
        fs.write("/dir/file", vec![7; 100_000])?;
        fs.read_dir("/missing").map(drop)
    });
    assert_eq!(failed.unwrap_err().errno(), errno::ENOENT);
    assert_eq!(bytes(image.path()), before, "the image was touched");
    let len = Filesystem::transaction(image.path(), |fs| {
        fs.create_dir("/dir")?;
        fs.write("/dir/file", vec![7; 100_000])?;
        Ok::<_, Error>(fs.read("/dir/file")?.len())
    });
    assert_eq!(len.unwrap(), 100_000);
    assert_clean(image.path());
    let fs = Filesystem::open(image.path()).unwrap();
    assert_eq!(fs.read("/dir/file").unwrap(), vec![7; 100_000]);
}

#[test]
fn nobody_else_writes_meanwhile_and_readers_see_what_was() {
    let image = Blank::new(64);
    let first = Transaction::open(image.path()).unwrap();
    first.filesystem().write("/file", "first").unwrap();
    let second = Transaction::open(image.path()).unwrap_err();
    assert_eq!(second.errno(), errno::EBUSY, "{second}");
    assert!(Filesystem::open_writable(image.path()).is_err());
    let reader = Filesystem::open(image.path()).unwrap();
    assert!(!reader.exists("/file").unwrap());
    drop(reader);
    let committed = first.commit().unwrap();
    assert!(committed.journaled_blocks > 0, "{committed:?}");
    let reader = Filesystem::open(image.path()).unwrap();
    assert_eq!(reader.read("/file").unwrap(), b"first");
}

#[test]
fn a_commit_closes_what_it_came_from() {
    let image = Blank::new(64);
    let transaction = Transaction::open(image.path()).unwrap();
    let fs = transaction.filesystem().clone();
    fs.write("/file", "in time").unwrap();
    transaction.commit().unwrap();
    assert!(fs.write("/late", "too late").is_err());
    drop(fs);
    assert_clean(image.path());
    let fs = Filesystem::open(image.path()).unwrap();
    assert!(!fs.exists("/late").unwrap());
    assert_eq!(fs.read("/file").unwrap(), b"in time");
}

/// What was left by a crash is put in place with the changes, and not without them.
#[test]
fn a_journal_that_waits_is_replayed_by_the_commit() {
    let image = Blank::new(64);
    let fs = Filesystem::open_writable(image.path()).unwrap();
    fs.write("/before", "the crash").unwrap();
    fs.sync().unwrap();
    let crashed = image.path().with_extension("crashed");
    fs::copy(image.path(), &crashed).unwrap();
    drop(fs);
    let before = bytes(&crashed);
    for commits in [false, true] {
        let transaction = Transaction::open(&crashed).unwrap();
        assert!(transaction.filesystem().exists("/before").unwrap());
        transaction.filesystem().write("/after", "it").unwrap();
        if commits {
            transaction.commit().unwrap();
        } else {
            drop(transaction);
            assert_eq!(bytes(&crashed), before, "the image was touched");
        }
    }
    assert_clean(&crashed);
    let fs = Filesystem::open(&crashed).unwrap();
    assert_eq!(fs.read("/before").unwrap(), b"the crash");
    assert_eq!(fs.read("/after").unwrap(), b"it");
}

#[test]
fn what_cannot_be_changed_as_a_whole_is_refused_before_it_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    for (options, what) in [
        (&["-t", "ext2"][..], "no journal"),
        (&["-t", "ext4", "-O", "mmp"], "mmp"),
    ] {
        let path = dir.path().join("image");
        mke2fs(&path, 64 << 20, options);
        let before = bytes(&path);
        let refused = Transaction::open(&path).unwrap_err();
        assert_eq!(refused.errno(), errno::EOPNOTSUPP);
        let text = refused.to_string();
        assert!(text.contains(what) && text.contains("image"), "{text}");
        assert_eq!(bytes(&path), before);
    }
}
