//! Programs whose content or owner changes.

use crate::fs::{DataMode, Fs, MountOptions};
use crate::inode::{Caller, FileType, Held, Mode};
use crate::lifecycle::NewInode;
use crate::ops::{self, FallocateMode, OpContext, SetXattr};
use crate::{Error, Result};
use extant_blockdev::MemoryDevice;
use extant_format::Ino;
use extant_format::inode::InodeFlags;
use extant_testkit::oracle::mke2fs;
use std::sync::Arc;
use std::time::Duration;

const CAPABILITY: &[u8] = b"security.capability";
const PAGE: u64 = 4096;
const OWNERS: (u32, u32) = (1001, 2001);

/// A way to change the content of a file that has three pages.
type Change = fn(OpContext<'_>, &Held) -> Result<()>;

const CHANGES: &[(&str, Change)] = &[
    ("write", |by, file| {
        ops::pwrite(by, file, 5, b"new").map(drop)
    }),
    ("write behind the end", |by, file| {
        ops::pwrite(by, file, 5 * PAGE, b"new").map(drop)
    }),
    ("append", |by, file| ops::append(by, file, b"new").map(drop)),
    ("write past memory", |by, file| {
        ops::pwrite_direct(by, file, PAGE, &[7; PAGE as usize]).map(drop)
    }),
    ("append past memory", |by, file| {
        ops::append_direct(by, file, &[7; PAGE as usize]).map(drop)
    }),
    ("cut", |by, file| ops::ftruncate(by, file, 10)),
    ("lengthen", |by, file| ops::ftruncate(by, file, 5 * PAGE)),
    ("empty", |by, file| ops::ftruncate(by, file, 0)),
    ("reserve", |by, file| {
        ops::fallocate(by, file, 0, 5 * PAGE, FallocateMode::default())
    }),
    ("punch a hole", |by, file| {
        ops::punch_hole(by, file, 0, PAGE)
    }),
    ("make zeros", |by, file| {
        ops::zero_range(by, file, 0, PAGE, false)
    }),
    ("take out", |by, file| {
        ops::collapse_range(by, file, 0, PAGE)
    }),
    ("put in", |by, file| ops::insert_range(by, file, PAGE, PAGE)),
    ("copy into", |by, file| {
        let root = by.fs().hold(Ino::ROOT)?;
        let source = ops::lookup_held(by.fs(), &root, b"source")?;
        ops::copy_range(by, (&source, 0), (file, 0), 8).map(drop)
    }),
];

/// An empty file system on a device in memory, whose data goes these ways, and a file to copy from.
fn fs(mode: DataMode) -> Arc<Fs> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    mke2fs(&path, 16 << 20, &["-t", "ext4"]);
    let image: Arc<[u8]> = std::fs::read(&path).unwrap().into();
    let device = Arc::new(MemoryDevice::from_image(&image));
    let options = MountOptions::read_write().background(false);
    let fs = Fs::open(device, options.data_mode(mode)).unwrap();
    let source = file(&fs, "source", 0o644);
    drop(source);
    fs
}

/// A file of three pages.
fn file(fs: &Fs, name: &str, permissions: u16) -> Held {
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = NewInode::new(FileType::Regular, 0o644, ops::now());
    let file = ops::create(fs, &root, name.as_bytes(), &new).unwrap();
    ops::pwrite(fs, &file, 0, &[1; 3 * PAGE as usize]).unwrap();
    ops::chown(fs, &file, Some(OWNERS.0), Some(OWNERS.1)).unwrap();
    ops::chmod(fs, &file, permissions).unwrap();
    file
}

fn make_capable(fs: &Fs, file: &Held) {
    ops::setxattr(fs, file, CAPABILITY, &[2; 20], SetXattr::Any).unwrap();
}

fn permissions(file: &Held) -> u16 {
    file.snapshot().disk().mode.permissions()
}

fn is_capable(fs: &Fs, file: &Held) -> bool {
    match ops::getxattr_live(fs, file, CAPABILITY) {
        Ok(_) => true,
        Err(Error::NoAttribute) => false,
        Err(e) => panic!("{e}"),
    }
}

enum ByWhom<'a> {
    Earlier,
    Mapped,
    Caller(Option<&'a Caller>),
}

#[test]
fn whoever_changes_content_takes_away_what_is_not_his_to_leave() {
    let owner_elsewhere = Caller::new(OWNERS.0, 1);
    let member = Caller::new(5, 1).groups([OWNERS.1]);
    let stranger = Caller::new(5, 5);
    let root = Caller::new(0, 0);
    let user = |caller| ByWhom::Caller(Some(caller));
    // The user; what is left of 6755, of 6745 and of 0755; whether capabilities stay.
    let cases = [
        (ByWhom::Earlier, [0o6755, 0o6745, 0o755], true),
        (ByWhom::Mapped, [0o6755, 0o6745, 0o755], true),
        (ByWhom::Caller(None), [0o6755, 0o6745, 0o755], false),
        (user(&root), [0o6755, 0o6745, 0o755], false),
        (user(&member), [0o755, 0o2745, 0o755], false),
        (user(&stranger), [0o755, 0o745, 0o755], false),
        (user(&owner_elsewhere), [0o755, 0o745, 0o755], false),
    ];
    for mode in [DataMode::Delayed, DataMode::Placed, DataMode::Through] {
        let fs = fs(mode);
        for (case, (who, left, stays_capable)) in cases.iter().enumerate() {
            let by = match who {
                ByWhom::Earlier => OpContext::for_earlier(&fs),
                ByWhom::Mapped => OpContext::for_mapped(&fs),
                ByWhom::Caller(caller) => OpContext::new(&fs, *caller),
            };
            for (what, change) in CHANGES {
                for (before, after) in [0o6755, 0o6745, 0o755].into_iter().zip(left) {
                    let said = format!("{what}, {mode:?}, case {case}, {before:o}");
                    let file = file(&fs, &said, before);
                    change(by, &file).expect(&said);
                    assert_eq!(permissions(&file), *after, "{said}");
                    ops::chmod(&fs, &file, before).unwrap();
                    make_capable(&fs, &file);
                    // Also once it was known to be no program with capabilities.
                    change(by, &file).expect(&said);
                    assert_eq!(permissions(&file), *after, "{said}");
                    assert_eq!(is_capable(&fs, &file), *stays_capable, "{said}");
                    let root = fs.hold(Ino::ROOT).unwrap();
                    ops::unlink(&fs, &root, said.as_bytes()).unwrap();
                }
            }
        }
        fs.close().unwrap();
    }
}

#[test]
fn what_is_refused_takes_nothing_away() {
    let fs = fs(DataMode::Delayed);
    let stranger = Caller::new(5, 5);
    let by = fs.acting_for(&stranger);
    let program = file(&fs, "program", 0o6755);
    make_capable(&fs, &program);
    let assert_whole = |said: &str| {
        assert_eq!(permissions(&program), 0o6755, "{said}");
        assert!(is_capable(&fs, &program), "{said}");
    };
    ops::chattr(&fs, &program, InodeFlags::IMMUTABLE, InodeFlags::empty()).unwrap();
    for (what, change) in CHANGES {
        assert!(
            matches!(change(by, &program), Err(Error::NotPermitted)),
            "{what}"
        );
        assert_whole(what);
    }
    ops::chattr(&fs, &program, InodeFlags::APPEND, InodeFlags::IMMUTABLE).unwrap();
    assert!(matches!(
        ops::ftruncate(by, &program, 0),
        Err(Error::NotPermitted)
    ));
    assert_whole("cutting what may only grow");
    ops::chattr(&fs, &program, InodeFlags::empty(), InodeFlags::APPEND).unwrap();
    let end = u64::MAX >> 1;
    assert!(matches!(
        ops::pwrite(by, &program, end, b"x"),
        Err(Error::FileTooLarge)
    ));
    assert!(matches!(
        ops::ftruncate(by, &program, end),
        Err(Error::FileTooLarge)
    ));
    let mode = FallocateMode::default();
    assert!(matches!(
        ops::fallocate(by, &program, 0, 0, mode),
        Err(Error::InvalidInput(_))
    ));
    assert_whole("what cannot be");
    assert_eq!(ops::pwrite(by, &program, 0, b"").unwrap(), 0);
    assert_whole("writing nothing");
    fs.close().unwrap();
}

/// A file becomes a program while a thread is about to change it: that has been here, and waits for
/// the one that makes it a program.
#[test]
fn what_becomes_a_program_before_it_is_changed_loses_its_rights() {
    for direct_turns in [0, 6] {
        let fs = fs(DataMode::Delayed);
        for (what, change) in CHANGES {
            let file = file(&fs, what, 0o755);
            for _ in 0..direct_turns {
                ops::pwrite_direct(&fs, &file, 0, &[7; PAGE as usize]).unwrap();
            }
            let stranger = Caller::new(5, 5);
            let exclusive = file.op().write();
            std::thread::scope(|scope| {
                let changed = scope.spawn(|| change(fs.acting_for(&stranger), &file));
                // The longer, the surer he waits; it holds for any order.
                std::thread::sleep(Duration::from_millis(20));
                {
                    let handle = fs.start(1).unwrap();
                    let give = |inode: &mut crate::inode::Inode| {
                        inode.disk_mut().mode = Mode::new(FileType::Regular, 0o6755);
                    };
                    file.live().update(&handle, give).unwrap();
                }
                drop(exclusive);
                changed.join().unwrap().expect(what);
            });
            assert_eq!(permissions(&file), 0o755, "{what}, {direct_turns} before");
        }
        fs.close().unwrap();
    }
}

#[test]
fn times_of_change_never_go_back_between_operations_of_different_kinds() {
    let fs = fs(DataMode::Delayed);
    let file = file(&fs, "f", 0o644);
    let mut last = file.snapshot().disk().ctime;
    for turn in 0..200_u32 {
        // Each takes its time in a place of its own.
        ops::chmod(&*fs, &file, 0o644).unwrap();
        let mode = file.snapshot().disk().ctime;
        ops::chown(&*fs, &file, Some(OWNERS.0 + turn % 2), None).unwrap();
        let owner = file.snapshot().disk().ctime;
        ops::setxattr(&*fs, &file, b"user.a", &[1], SetXattr::Any).unwrap();
        let attribute = file.snapshot().disk().ctime;
        ops::chown(&*fs, &file, Some(OWNERS.0), None).unwrap();
        let again = file.snapshot().disk().ctime;
        let all = [last, mode, owner, attribute, again];
        let all = all.map(|time| (time.secs, time.nanos));
        assert!(all.is_sorted(), "turn {turn}: {all:?}");
        last = again;
    }
}
