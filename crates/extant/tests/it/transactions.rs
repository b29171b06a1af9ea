//! Several changes at once: all of them are in the image, or none.

use crate::support::Blank;
use extant::{Error, Filesystem, MountOptions, OpenOptions, SharedDevice, Transaction, errno};
use extant_blockdev::BlockDevice;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use extant_format::waiting;
use extant_fsck::repair::{Options, tune};
use extant_testkit::crash::{Budget, Content, CrashDevice, FaultDevice, FaultRule, IoKind};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, mke2fs};
use std::fs;
use std::path::Path;
use std::sync::Arc;

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

/// Whatever the journal does not hold goes by way of free blocks; where there is room for neither,
/// nothing is changed.
#[test]
fn a_journal_is_not_needed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for options in [
        &["-t", "ext2"][..],
        &["-t", "ext4", "-O", "^has_journal"],
        &["-t", "ext4", "-O", "mmp,^has_journal"],
    ] {
        mke2fs(&path, 32 << 20, options);
        for round in 0..2_u8 {
            let transaction = Transaction::open(&path).unwrap();
            let fs = transaction.filesystem();
            fs.write("/file", vec![round; 100_000]).unwrap();
            let committed = transaction.commit().unwrap();
            assert_eq!(committed.journaled_blocks, 0, "{committed:?}");
            assert!(committed.waited_blocks > 0, "{committed:?}");
            assert_clean(&path);
            let fs = Filesystem::open(&path).unwrap();
            assert_eq!(fs.read("/file").unwrap(), vec![round; 100_000]);
        }
        let fs = Filesystem::open_writable(&path).unwrap();
        fs.write("/large", vec![7; 20 << 20]).unwrap();
        fs.close().unwrap();
        let before = Filesystem::open(&path).unwrap().read("/large").unwrap();
        let transaction = Transaction::open(&path).unwrap();
        let fs = transaction.filesystem();
        let large = OpenOptions::new().write(true).open(fs, "/large").unwrap();
        large.write_at(&vec![8; 20 << 20], 0).unwrap();
        drop(large);
        let refused = transaction.commit().unwrap_err();
        assert_eq!(refused.errno(), errno::ENOSPC);
        let text = refused.to_string();
        assert!(text.contains("free blocks"), "{text}");
        assert_clean(&path);
        let fs = Filesystem::open(&path).unwrap();
        assert!(fs.read("/large").unwrap() == before);
    }
}

/// What fails leaves what was before, within the transaction and in the image.
#[test]
fn an_attempt_is_done_whole_or_not_at_all() {
    let image = Blank::new(64);
    let before = bytes(image.path());
    let mut transaction = Transaction::open(image.path()).unwrap();
    transaction.filesystem().create_dir("/before").unwrap();
    let kept = transaction.attempt(|some| {
        let fs = some.filesystem();
        fs.write("/before/file", vec![7; 100_000])?;
        Ok::<_, Error>(fs.read("/before/file")?.len())
    });
    assert_eq!(kept.unwrap(), 100_000);
    let failed = transaction.attempt(|some| {
        let fs = some.filesystem();
        fs.remove_file("/before/file")?;
        fs.remove_dir("/before")?;
        fs.write("/other", vec![8; 3 << 20])?;
        fs.sync()?;
        fs.create_dir("/missing/dir")
    });
    assert_eq!(failed.unwrap_err().errno(), errno::ENOENT);
    let fs = transaction.filesystem();
    assert_eq!(fs.read("/before/file").unwrap(), vec![7; 100_000]);
    assert!(!fs.exists("/other").unwrap());
    // Within each other, and with what needs a closed file system.
    let nested = transaction.attempt(|some| {
        some.filesystem().create_dir("/outer")?;
        let inner: Result<(), Error> = some.attempt(|some| {
            some.filesystem().create_dir("/outer/inner")?;
            give_uuid(some, [8; 16])?;
            some.filesystem().read_dir("/missing").map(drop)
        });
        assert!(inner.is_err());
        assert!(!some.filesystem().exists("/outer/inner")?);
        give_uuid(some, [7; 16])?;
        some.filesystem().write("/outer/file", "text")
    });
    nested.unwrap();
    let failed: Result<(), Error> = transaction.attempt(|some| {
        give_uuid(some, [9; 16])?;
        some.filesystem().read_dir("/missing").map(drop)
    });
    assert!(failed.is_err());
    transaction.filesystem().create_dir("/after").unwrap();
    assert_eq!(bytes(image.path()), before, "the image was touched");
    transaction.commit().unwrap();
    assert_clean(image.path());
    let header = dumpe2fs_header(image.path());
    let uuid = header.field("Filesystem UUID");
    assert_eq!(uuid, "07070707-0707-0707-0707-070707070707");
    let fs = Filesystem::open(image.path()).unwrap();
    let names = fs.read_dir("/").unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with(['.', 'l'])).collect();
    names.sort();
    assert_eq!(names, ["after", "before", "outer"]);
    assert_eq!(fs.read("/outer/file").unwrap(), b"text");
    // A change that fails half-way and is passed over is none.
    let mut transaction = Transaction::open(image.path()).unwrap();
    let passed_over = transaction.attempt(|some| {
        let _ = some.change_closed(|_| Err::<(), Error>(some_error()));
        Ok::<_, Error>(())
    });
    assert_eq!(passed_over.unwrap_err().errno(), errno::EOPNOTSUPP);
    transaction.commit().unwrap();
}

fn some_error() -> Error {
    Filesystem::open("/missing/image").unwrap_err()
}

#[test]
fn a_file_system_without_features_is_refused_before_it_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    mke2fs(&path, 8 << 20, &["-t", "ext2", "-r", "0"]);
    let before = bytes(&path);
    let refused = Transaction::open(&path).unwrap_err();
    assert_eq!(refused.errno(), errno::EOPNOTSUPP);
    let text = refused.to_string();
    assert!(
        text.contains("revision 0") && text.contains("image"),
        "{text}"
    );
    assert_eq!(bytes(&path), before);
}

/// Gives a file system another UUID, as `extant tune` does.
pub(crate) fn give_uuid(transaction: &mut Transaction, uuid: [u8; 16]) -> Result<(), Error> {
    let settings = tune::Settings {
        uuid: Some(uuid),
        ..tune::Settings::default()
    };
    transaction.change_closed(|device| {
        let device = SharedDevice::clone(device);
        let options = Options::default().in_front(true);
        let plan = tune::plan(device, &settings, options, &()).unwrap();
        assert!(plan.is_complete());
        plan.apply().unwrap();
        Ok(())
    })
}

/// The UUID that the superblock on a device has.
fn stored_uuid(device: &dyn BlockDevice) -> [u8; 16] {
    let mut uuid = [0; 16];
    device.read_at(1024 + 0x68, &mut uuid).unwrap();
    uuid
}

/// Checksums of all metadata start from the UUID: a journal would not do.
#[test]
fn another_uuid_is_there_with_its_checksums_or_not_after_any_crash() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let shapes: [(&str, &str); 4] = [
        ("^resize_inode", "metadata_csum"),
        ("^metadata_csum,uninit_bg,^resize_inode", "uninit_bg"),
        ("mmp,^resize_inode", "mmp"),
        ("metadata_csum_seed,^resize_inode", "metadata_csum_seed"),
    ];
    for (features, name) in shapes {
        let is_mmp = name == "mmp";
        mke2fs(
            &path,
            6 << 20,
            &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", features],
        );
        let fs = Filesystem::open_writable(&path).unwrap();
        fs.create_dir("/dir").unwrap();
        fs.write("/dir/old", vec![1; 30_000]).unwrap();
        fs.close().unwrap();
        let device = CrashDevice::over(Content::of_file(&path));
        let shared: SharedDevice = Arc::new(device.clone());
        let options = MountOptions::read_write();
        let mut transaction = Transaction::open_device(shared, name, options.clone()).unwrap();
        transaction.filesystem().remove_file("/dir/old").unwrap();
        give_uuid(&mut transaction, [7; 16]).unwrap();
        let fs = transaction.filesystem();
        fs.write("/dir/new", vec![2; 30_000]).unwrap();
        let committed = transaction.commit().unwrap();
        let by_log = name == "metadata_csum_seed";
        assert_eq!(
            committed.waited_blocks == 0,
            by_log,
            "{name}: {committed:?}"
        );
        let seen = |fs: &Filesystem| {
            let is_new = fs.exists("/dir/new").unwrap();
            assert_ne!(is_new, fs.exists("/dir/old").unwrap(), "{name}");
            assert_eq!(fs.engine().superblock().uuid() == [7; 16], is_new, "{name}");
            is_new
        };
        let mut counts = [0; 2];
        let mut torn = 0;
        for image in device.log().images(Budget::limited(150, 1)) {
            let reader = MountOptions::read_only();
            let fs = Filesystem::open_device(image.open(), reader.clone()).unwrap();
            let is_new = seen(&fs);
            counts[usize::from(is_new)] += 1;
            // The UUID is in the first sector of the superblock, its checksum in the second.
            if is_new && by_log && stored_uuid(&*image.open()) != [7; 16] {
                let half: SharedDevice = Arc::new(image.record());
                let mut second = [0; 512];
                device.read_at(1024 + 512, &mut second).unwrap();
                half.write_at(1024 + 512, &second).unwrap();
                assert!(seen(&Filesystem::open_device(half, reader).unwrap()));
                torn += 1;
            }
            // Whoever opens a claimed file system waits for a long time.
            if is_mmp {
                continue;
            }
            let recovering = image.record();
            let writer = Filesystem::open_device(Arc::new(recovering.clone()), options.clone());
            let writer = writer.unwrap();
            assert_eq!(seen(&writer), is_new, "{name}");
            writer.close().unwrap();
            recovering.content().write_to(&path).unwrap();
            assert_clean(&path);
        }
        assert!(counts[0] > 5 && counts[1] > 5, "{name}: {counts:?}");
        assert_eq!(torn > 0, by_log, "{name}");
        device.content().write_to(&path).unwrap();
        assert_clean(&path);
    }
}

/// The block of multiple-mount protection says that a host has the file system, and has the
/// checksum of either UUID when that host dies at the end of the commit.
#[test]
fn another_uuid_is_put_in_place_by_a_host_that_has_waited() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let interval = ["-E", "mmp_update_interval=1"];
    let options = ["-t", "ext4", "-b", "1024", "-O", "mmp,^resize_inode"];
    mke2fs(&path, 6 << 20, &[&options[..], &interval].concat());
    let start = Content::of_file(&path);
    let commit = |fails_at: u64| {
        let device = CrashDevice::over(start.clone());
        let faulty = Arc::new(FaultDevice::new(Arc::new(device.clone())));
        let shared: SharedDevice = Arc::<FaultDevice>::clone(&faulty);
        let options = MountOptions::read_write();
        let mut transaction = Transaction::open_device(shared, "", options).unwrap();
        give_uuid(&mut transaction, [7; 16]).unwrap();
        faulty.inject(FaultRule::fail_nth(IoKind::Write, fails_at).from_then_on());
        let committed = transaction.commit().map(drop);
        (device.content(), committed)
    };
    // The last failures: the superblock that knows nothing of it, the one with the new UUID, the
    // block of protection, and the superblock that says that all is in place.
    let waits = |content: &Content| {
        let mut bytes = [0; SUPERBLOCK_LEN];
        content.read(SUPERBLOCK_OFFSET, &mut bytes);
        waiting::look(&bytes).0
    };
    let mut cut = Vec::new();
    for nth in 0.. {
        let (left, committed) = commit(nth);
        if committed.is_ok() {
            break;
        }
        if waits(&left) {
            cut.push(left);
        }
    }
    let late = cut.len().saturating_sub(3);
    let mut threads = Vec::new();
    for content in [cut.remove(late), cut.remove(late), cut.remove(0)] {
        threads.push(std::thread::spawn(move || {
            let device = CrashDevice::over(content);
            let options = MountOptions::read_write();
            let fs = Filesystem::open_device(Arc::new(device.clone()), options).unwrap();
            assert_eq!(fs.engine().superblock().uuid(), [7; 16]);
            fs.close().unwrap();
            device.content()
        }));
    }
    for thread in threads {
        thread.join().unwrap().write_to(&path).unwrap();
        assert_clean(&path);
    }
}
