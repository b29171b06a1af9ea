//! Files that fs-verity comes to protect: after any crash each is protected, with all of its
//! hashes, or as it was.

use super::runs::{amount, every};
use super::shapes::{CLUSTERS, DEFAULT, ORPHAN_FILE, PLAIN, SMALL_BLOCKS, Shape};
use super::staged::has_whole_superblock;
use extant_blockdev::SharedDevice;
use extant_core::data::FallocateMode;
use extant_core::fs::{DataMode, Fs, MountOptions};
use extant_core::inode::{FileType, Held, Timestamp};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, Seal, SetXattr, WriteSeal};
use extant_core::{Error, Result};
use extant_format::Ino;
use extant_format::features::RoCompat;
use extant_format::inode::InodeFlags;
use extant_testkit::crash::{Budget, Content, CrashDevice, FaultDevice, FaultRule, IoKind};
use extant_testkit::oracle;
use extant_testkit::rng::seed_from_env;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const INLINE: Shape = Shape {
    name: "inline data",
    kib: 12 << 10,
    block_size: 1024,
    options: &["-O", "inline_data,^resize_inode"],
};
const NO_EXTENTS: Shape = Shape {
    name: "no extents",
    kib: 12 << 10,
    block_size: 1024,
    options: &["-O", "^extents,^64bit,^resize_inode"],
};

/// Set when the file is protected durably.
const DONE: u64 = 1;
/// Bytes of the files that are protected: of the small one, and of the large one.
const SIZES: [usize; 2] = [50, 70_000];
const NAMES: [&str; 2] = ["small", "large"];
const MODE: u16 = 0o6755;
const CAPABILITY: &[u8] = b"security.capability";
/// To execute a program as user 0 would.
const CAPABILITIES: &[u8] = &[1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Bytes that follow from the content, in place of hashes: written in pieces, the first of them
/// while the content passes.
struct Marks<'f> {
    room: Range<u64>,
    sum: u8,
    /// What is committed before the last ones are written.
    commits: Option<&'f Fs>,
}

impl<'f> Marks<'f> {
    const fn new() -> Self {
        Self::committing(None)
    }

    const fn committing(commits: Option<&'f Fs>) -> Self {
        Self {
            room: 0..0,
            sum: 0,
            commits,
        }
    }

    /// Bytes of the file that are behind the content of a file of `size` bytes.
    const fn room_of(size: u64) -> Range<u64> {
        let start = size.next_multiple_of(65_536);
        start..start + 48 * 4096
    }

    fn write(&self, range: Range<u64>, write: &mut WriteSeal<'_>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + 5000);
            let bytes: Vec<u8> = (at..end).map(|byte| (byte / 7) as u8 | 1).collect();
            write(at, &bytes)?;
            at = end;
        }
        Ok(())
    }
}

impl Seal for Marks<'_> {
    fn begin(&mut self, size: u64) -> Range<u64> {
        self.room = Self::room_of(size);
        self.sum = 0;
        self.room.clone()
    }

    fn take(&mut self, content: &[u8], write: &mut WriteSeal<'_>) -> Result<()> {
        self.sum = content.iter().fold(self.sum, |sum, byte| sum ^ byte);
        self.write(self.room.start..self.room.start + 20_000, write)
    }

    fn finish(&mut self, write: &mut WriteSeal<'_>) -> Result<()> {
        if let Some(fs) = self.commits {
            // Another thread does, which holds none of the locks of this one.
            std::thread::scope(|scope| scope.spawn(|| fs.sync()).join().unwrap())?;
        }
        self.write(self.room.start + 20_000..self.room.end - 1, write)?;
        write(self.room.end - 1, &[self.sum])
    }
}

fn options(mode: DataMode) -> MountOptions {
    MountOptions::read_write().background(false).data_mode(mode)
}

fn bytes_of(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 3) as u8 ^ 0x5a).collect()
}

fn find(fs: &Fs, name: &str) -> Held {
    let root = fs.hold(Ino::ROOT).unwrap();
    ops::lookup_held(fs, &root, name.as_bytes()).unwrap()
}

/// A file system in which free space lies in pieces, with two programs that have rights; behind
/// the large one blocks are reserved.
fn start_of(shape: &Shape) -> Content {
    let device = CrashDevice::over(shape.content());
    let fs = Fs::open(Arc::new(device.clone()), options(DataMode::Through)).unwrap();
    let root = fs.hold(Ino::ROOT).unwrap();
    let make = |name: &str, mode: u16, bytes: &[u8]| {
        let new = NewInode::new(FileType::Regular, mode, ops::now());
        let held = ops::create(&fs, &root, name.as_bytes(), &new).unwrap();
        assert_eq!(ops::pwrite(&fs, &held, 0, bytes).unwrap(), bytes.len());
        held
    };
    for n in 0..60 {
        make(&format!("piece{n}"), 0o600, &[7; 4096]);
    }
    for (name, size) in NAMES.iter().zip(SIZES) {
        let held = make(name, MODE, &bytes_of(size));
        if size > 4096 && shape.options != NO_EXTENTS.options {
            let behind = FallocateMode { keep_size: true };
            ops::fallocate(&fs, &held, 1 << 20, 20_000, behind).unwrap();
        }
        // Changes of the content take them away.
        ops::setxattr(&fs, &held, CAPABILITY, CAPABILITIES, SetXattr::Any).unwrap();
    }
    for n in (0..60).step_by(2) {
        ops::unlink(&fs, &root, format!("piece{n}").as_bytes()).unwrap();
    }
    drop(root);
    fs.close().unwrap();
    device.content()
}

/// What of a file stays.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    mode: u16,
    times: [Timestamp; 3],
    capabilities: Vec<u8>,
    content: Vec<u8>,
}

/// What a file is, and whether it is protected. All else about it is judged here.
fn look(fs: &Fs, name: &str, reserves: bool) -> (Kept, bool) {
    let held = find(fs, name);
    let image = held.view();
    let size = image.size();
    let mut content = vec![0; size as usize];
    assert_eq!(
        ops::read(fs, &image, 0, &mut content).unwrap(),
        content.len()
    );
    let is_sealed = image.flags().contains(InodeFlags::VERITY);
    let mut end = 0;
    for piece in ops::allocated(fs, &image) {
        let piece = piece.unwrap();
        assert!(!is_sealed || !piece.unwritten, "{name}: {piece:?}");
        end = piece.offset + piece.len;
    }
    let room = Marks::room_of(size);
    if is_sealed {
        assert!(fs.superblock().has_ro_compat(RoCompat::VERITY));
        assert_eq!(end, room.end, "{name}: nothing is behind the last block");
        let mut marks = vec![0; (room.end - room.start) as usize];
        ops::read_seal(fs, &image, room.start, &mut marks).unwrap();
        let last = marks.pop().unwrap();
        for (at, mark) in (room.start..).zip(marks) {
            assert_eq!(mark, (at / 7) as u8 | 1, "{name}: byte {at}");
        }
        assert_eq!(
            last,
            content.iter().fold(0, |sum, byte| sum ^ byte),
            "{name}"
        );
    } else if !reserves {
        assert!(
            end <= size.next_multiple_of(fs.block_size().bytes().into()),
            "{name}: {end}"
        );
    }
    let disk = image.disk();
    let kept = Kept {
        mode: disk.mode.permissions(),
        times: [disk.mtime, disk.ctime, disk.crtime.unwrap_or_default()],
        capabilities: ops::getxattr(fs, &image, CAPABILITY).unwrap(),
        content,
    };
    (kept, is_sealed)
}

fn look_at(device: SharedDevice, name: &str, reserves: bool) -> (Kept, bool) {
    let fs = Fs::open(device, MountOptions::read_only()).unwrap();
    look(&fs, name, reserves)
}

/// Protects a file on a device that records, and looks at every image that a crash may leave.
fn sweep(shape: &Shape, mode: DataMode, name: &str, start: &Content, seed: u64) -> [usize; 2] {
    let what = format!("{}, {mode:?}, {name}", shape.name);
    let (before, _) = look_at(start.open(), name, true);
    let device = CrashDevice::over(start.clone());
    let fs = Fs::open(Arc::new(device.clone()), options(mode)).unwrap();
    let held = find(&fs, name);
    // The file is a noted one for a while, and not only within a transaction.
    let commits = (mode == DataMode::Delayed).then_some(&*fs);
    ops::seal(&fs, &held, &mut Marks::committing(commits)).unwrap();
    assert!(matches!(
        ops::seal(&fs, &held, &mut Marks::new()),
        Err(Error::AlreadyProtected)
    ));
    assert!(matches!(
        ops::pwrite(&fs, &held, 0, b"x"),
        Err(Error::NotPermitted)
    ));
    drop(held);
    fs.sync().unwrap();
    device.mark(DONE);
    fs.close().unwrap();
    assert_eq!(
        look_at(device.content().open(), name, false),
        (before.clone(), true)
    );

    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("image");
    let (mut seen, mut is_owed) = ([0; 2], false);
    let budget = Budget::limited(amount(60, 4000), seed);
    for (number, image) in device.log().images(budget).enumerate() {
        let told = format!("{what}, point {}", image.point());
        let recovering = image.record();
        let fs = Fs::open(Arc::new(recovering.clone()), options(mode)).unwrap();
        fs.close().unwrap();
        // Until the first transaction is durable, what was reserved is there.
        let reserves = name == "large";
        let (after, is_sealed) = look_at(recovering.content().open(), name, reserves);
        assert_eq!(after, before, "{told}");
        assert!(is_sealed || !image.holds(DONE), "{told}");
        seen[usize::from(is_sealed)] += 1;
        // e2fsck 1.47.0 truncates orphans wrong where clusters are larger than blocks.
        let asks = is_sealed || shape.options != CLUSTERS.options;
        is_owed |= (number as u64).is_multiple_of(every(15));
        if is_owed && asks && has_whole_superblock(image.content()) {
            is_owed = false;
            image.write_to(&place);
            judge_beside(&place).unwrap_or_else(|e| panic!("{told}: {e}"));
            let theirs = look_at(Content::of_file(&place).open(), name, reserves);
            assert_eq!(theirs, (before.clone(), is_sealed), "{told}");
        }
    }
    seen
}

fn judge_beside(place: &Path) -> std::result::Result<(), String> {
    oracle::e2fsck_recover_beside(place)?;
    oracle::check_clean(place)
}

#[test]
fn a_file_is_protected_with_all_hashes_or_as_it_was_after_any_crash() {
    let seed = seed_from_env("sealing");
    for shape in [SMALL_BLOCKS, DEFAULT, PLAIN, ORPHAN_FILE, CLUSTERS, INLINE] {
        let start = start_of(&shape);
        for mode in [DataMode::Delayed, DataMode::Through] {
            for name in NAMES {
                let [without, with] = sweep(&shape, mode, name, &start, seed);
                println!(
                    "{}, {mode:?}, {name}: {without} without, {with} with",
                    shape.name
                );
                assert!(without > 0 && with > 0, "both outcomes are seen");
            }
        }
    }
}

/// Each transfer fails once: an error leaves the file as it was, but where the commit of the flag
/// itself failed.
#[test]
fn a_device_that_fails_leaves_a_file_protected_or_as_it_was() {
    let start = start_of(&SMALL_BLOCKS);
    let (mut refused, mut after_all) = (0, 0);
    for name in NAMES {
        let (before, _) = look_at(start.open(), name, true);
        for kind in [IoKind::Read, IoKind::Write, IoKind::Flush] {
            for nth in 0.. {
                let device = CrashDevice::over(start.clone());
                let faulty = Arc::new(FaultDevice::new(Arc::new(device.clone())));
                let shared: SharedDevice = Arc::<FaultDevice>::clone(&faulty);
                let fs = Fs::open(shared, options(DataMode::Delayed)).unwrap();
                let held = find(&fs, name);
                faulty.inject(FaultRule::fail_nth(kind, nth));
                let sealed = ops::seal(&fs, &held, &mut Marks::new()).and_then(|()| fs.sync());
                let is_over = faulty.counts().faults == 0;
                faulty.heal();
                drop(held);
                let _ = fs.close();
                drop(fs);
                let fs = Fs::open(Arc::new(device.clone()), options(DataMode::Delayed)).unwrap();
                fs.close().unwrap();
                let (found, is_sealed) = look_at(device.content().open(), name, true);
                assert_eq!(found, before, "{name}, {kind:?} {nth}");
                match sealed {
                    Ok(()) => assert!(is_sealed, "{name}, {kind:?} {nth}"),
                    Err(_) if is_sealed => after_all += 1,
                    Err(_) => refused += 1,
                }
                if is_over {
                    break;
                }
            }
        }
    }
    println!("{refused} refused, {after_all} protected after all");
    assert!(refused > 10, "{refused}");
}

#[test]
fn without_room_or_extents_nothing_stays_behind() {
    let start = start_of(&NO_EXTENTS);
    let fs = Fs::open(start.open(), options(DataMode::Delayed)).unwrap();
    let refused = ops::seal(&fs, &find(&fs, "large"), &mut Marks::new());
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );

    let device = CrashDevice::over(start_of(&SMALL_BLOCKS));
    for mode in [DataMode::Delayed, DataMode::Through] {
        let fs = Fs::open(Arc::new(device.clone()), options(mode)).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        let new = NewInode::new(FileType::Regular, 0o600, ops::now());
        let filler = ops::create(&fs, &root, format!("{mode:?}").as_bytes(), &new).unwrap();
        let mut at = 0;
        loop {
            match ops::pwrite(&fs, &filler, at, &[1; 16_384]) {
                Ok(written) => at += written as u64,
                Err(Error::NoSpace) => break,
                Err(e) => panic!("{e}"),
            }
        }
        ops::truncate(&fs, &filler, at.saturating_sub(20_000)).unwrap();
        fs.sync().unwrap();
        let free = fs.statfs().unwrap().free;
        let refused = ops::seal(&fs, &find(&fs, "small"), &mut Marks::new());
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        fs.sync().unwrap();
        assert_eq!(
            fs.statfs().unwrap().free,
            free,
            "{mode:?}: blocks are given back"
        );
        let (_, is_sealed) = look(&fs, "small", false);
        assert!(!is_sealed);
        drop((root, filler));
        fs.close().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("image");
        device.content().write_to(&place).unwrap();
        oracle::check_clean(&place).unwrap();
    }
}
