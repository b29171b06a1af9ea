//! Devices where each request takes a round trip: how many of them wait for one another.

use crate::support::{Blank, Image, plan};
use extant::export::{ExportOptions, Preserve, to_directory, to_tar};
use extant::{Filesystem, MountOptions, OpenSpec};
use extant_blockdev::{BlockDevice, Completion, DeviceResult, Request, SharedDevice};
use extant_testkit::crash::{self, Budget, CrashDevice};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::rng::seed_from_env;
use extant_testkit::tree::{Compare, Holes, Tree};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ROUND_TRIP: Duration = Duration::from_millis(2);

/// A device that takes its time, and counts how many requests come one after the other: a request
/// is one further than the furthest that had ended when it began.
#[derive(Debug)]
struct Counted {
    inner: SharedDevice,
    in_flight: usize,
    round_trip: Duration,
    requests: AtomicU64,
    batches: AtomicU64,
    open: AtomicU64,
    most_open: AtomicU64,
    furthest: AtomicU64,
}

impl Counted {
    fn open(path: &Path, writable: bool, in_flight: usize, round_trip: Duration) -> Arc<Self> {
        let spec = if writable {
            OpenSpec::read_write(path)
        } else {
            OpenSpec::read_only(path)
        };
        Self::over(spec.open().expect("the image opens"), in_flight, round_trip)
    }

    fn over(inner: SharedDevice, in_flight: usize, round_trip: Duration) -> Arc<Self> {
        Arc::new(Self {
            inner,
            in_flight,
            round_trip,
            requests: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            open: AtomicU64::new(0),
            most_open: AtomicU64::new(0),
            furthest: AtomicU64::new(0),
        })
    }

    fn far(path: &Path, writable: bool) -> Arc<Self> {
        Self::open(path, writable, 32, ROUND_TRIP)
    }

    fn near(path: &Path, writable: bool) -> Arc<Self> {
        Self::open(path, writable, 1, Duration::ZERO)
    }

    /// How many requests came one after the other.
    fn rounds(&self) -> u64 {
        self.furthest.load(Ordering::SeqCst)
    }

    fn request<R>(&self, work: impl FnOnce() -> R) -> R {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let round = self.furthest.load(Ordering::SeqCst) + 1;
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_open.fetch_max(open, Ordering::SeqCst);
        std::thread::sleep(self.round_trip);
        let result = work();
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.furthest.fetch_max(round, Ordering::SeqCst);
        result
    }
}

impl BlockDevice for Counted {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.request(|| self.inner.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.request(|| self.inner.write_at(offset, buf))
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        self.request(|| self.inner.read_vectored_at(offset, bufs))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        self.request(|| self.inner.write_vectored_at(offset, bufs))
    }

    fn flush(&self) -> DeviceResult<()> {
        self.request(|| self.inner.flush())
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        self.batches.fetch_add(1, Ordering::SeqCst);
        self.request(|| self.inner.submit(batch))
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.request(|| self.inner.discard(offset, len))
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.request(|| self.inner.zero(offset, len))
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        self.request(|| self.inner.next_data(from, end))
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

/// A device at hand that notes what is read.
#[derive(Debug)]
struct Noted {
    inner: SharedDevice,
    reads: Mutex<Vec<Range<u64>>>,
}

impl Noted {
    fn open(path: &Path, spec: &OpenSpec) -> Arc<Self> {
        let inner = spec.open().unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let reads = Mutex::default();
        Arc::new(Self { inner, reads })
    }

    /// How many times a byte was read.
    fn reads_of(&self, byte: u64) -> usize {
        let reads = self.reads.lock().unwrap();
        reads.iter().filter(|range| range.contains(&byte)).count()
    }
}

impl BlockDevice for Noted {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let range = offset..offset + buf.len() as u64;
        self.reads.lock().unwrap().push(range);
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }
}

const DIRECTORIES: u64 = 40;
const FILES: u64 = 25;

/// A tree of many small files in many directories, and what else there is.
fn many() -> TreePlan {
    let mut plan = plan();
    for dir in 0..DIRECTORIES {
        let dir_path = format!("many{}/d{dir}", dir % 4);
        if dir < 4 {
            plan.dir(format!("many{dir}"));
        }
        plan.dir(dir_path.clone());
        for file in 0..FILES {
            let size = (dir * 997 + file * 131) % 9000;
            let content = Content::filled(dir * FILES + file, size);
            let node = plan.file(format!("{dir_path}/f{file}"), content);
            if file % 7 == 0 {
                let value = vec![b'v'; 200 + file as usize * 10];
                node.xattrs.insert(b"user.note".to_vec(), value);
            }
        }
    }
    // Large enough for a map with nodes, were it in pieces; read by itself.
    plan.file("large", Content::filled(77, 5 << 20));
    plan.hard_link("many0/d0/again", "many3/d39/f7");
    plan
}

fn compare() -> Compare {
    Compare {
        holes: Holes::NoneLost(4096),
        whole_seconds: true,
        root: false,
        ..Compare::default()
    }
}

fn read_only(device: &Arc<Counted>) -> Filesystem {
    let device: SharedDevice = device.clone();
    Filesystem::open_device(device, MountOptions::read_only()).expect("it opens")
}

#[test]
fn a_tree_comes_out_of_a_device_that_is_far_in_few_round_trips() {
    let plan = many();
    let image = Image::with(&plan, 64, &[]);
    let out = image.dir.path().join("out");
    let far = Counted::far(&image.path, false);
    let fs = read_only(&far);
    let options = ExportOptions::new(Preserve::ALL);
    let report = to_directory(&fs, "/", &out, &options).unwrap();
    assert_eq!(report.problem_count, 0, "{:?}", report.problems);
    plan.expected()
        .assert_same(&Tree::snapshot(&out), &compare());
    // One after the other there is one at least for each file.
    let (rounds, files) = (far.rounds(), DIRECTORIES * FILES);
    assert!(rounds * 8 < files, "{rounds} round trips, {files} files");
}

#[test]
fn an_archive_of_what_is_far_is_the_one_of_what_is_near() {
    let image = Image::with(&many(), 64, &[]);
    let far = Counted::far(&image.path, false);
    let near = Counted::near(&image.path, false);
    let [from_far, from_near] = [&far, &near].map(|device| {
        let mut archive = Vec::new();
        to_tar(&read_only(device), "/", &mut archive, None).unwrap();
        archive
    });
    assert!(from_far == from_near);
    let (rounds, files) = (far.rounds(), DIRECTORIES * FILES);
    assert!(rounds * 8 < files, "{rounds} round trips, {files} files");
    assert_eq!(near.batches.load(Ordering::SeqCst), 0);
    assert_eq!(near.most_open.load(Ordering::SeqCst), 1);
}

#[test]
fn a_walk_finds_the_same_far_and_near() {
    let image = Image::with(&many(), 64, &[]);
    let far = Counted::far(&image.path, false);
    let near = Counted::near(&image.path, false);
    let [from_far, from_near] = [&far, &near].map(|device| {
        let fs = read_only(device);
        let walk = fs.walk("/").unwrap().whole();
        let row = |entry: extant::Result<extant::WalkEntry>| {
            let entry = entry.unwrap();
            (entry.path().to_owned(), entry.metadata().ino())
        };
        walk.map(row).collect::<Vec<_>>()
    });
    assert_eq!(from_far, from_near);
    let rounds = far.rounds();
    assert!(rounds < DIRECTORIES, "{rounds} round trips");
    assert_eq!(near.batches.load(Ordering::SeqCst), 0);
}

#[test]
fn a_walk_that_is_left_in_the_middle_ends_its_threads() {
    let image = Image::with(&many(), 64, &[]);
    let far = Counted::far(&image.path, false);
    let fs = read_only(&far);
    let mut walk = fs.walk("/").unwrap().whole();
    assert!(walk.next().is_some());
    drop(walk);
    assert_eq!(far.open.load(Ordering::SeqCst), 0);
    drop(fs);
    assert_eq!(Arc::strong_count(&far), 1, "nobody uses the device");
}

#[test]
fn files_that_are_made_on_a_device_that_is_far_take_few_round_trips() {
    let blank = Blank::new(64);
    let far = Counted::far(blank.path(), true);
    let device: SharedDevice = far.clone();
    let fs = Filesystem::open_device(device, MountOptions::read_write()).expect("it opens");
    for dir in 0..DIRECTORIES {
        fs.create_dir(format!("/d{dir}")).expect("a directory");
        for file in 0..FILES {
            let content = Content::filled(dir * FILES + file, 3000).to_bytes();
            fs.write(format!("/d{dir}/f{file}"), content)
                .expect("a file");
        }
    }
    fs.close().expect("it closes");
    let (rounds, files) = (far.rounds(), DIRECTORIES * FILES);
    assert!(rounds * 8 < files, "{rounds} round trips, {files} files");
    drop(far);
    blank.check();
    let fs = Filesystem::open(blank.path()).expect("it opens");
    for dir in 0..DIRECTORIES {
        for file in 0..FILES {
            let content = Content::filled(dir * FILES + file, 3000).to_bytes();
            let read = fs.read(format!("/d{dir}/f{file}")).expect("a file");
            assert!(read == content, "d{dir}/f{file}");
        }
    }
}

#[test]
fn after_every_crash_of_what_is_far_what_was_synchronised_is_there() {
    const ROUNDS: u64 = 3;
    // So many that several threads write them back.
    const FILES: u64 = 300;
    let seed = seed_from_env("crashes of what is far");
    let blank = Blank::with(16, &["-t", "ext4", "-J", "size=1"]);
    let disk = CrashDevice::over(crash::Content::of_file(blank.path()));
    let far = Counted::over(Arc::new(disk.clone()), 32, Duration::ZERO);
    let fs = Filesystem::open_device(far, MountOptions::read_write()).expect("it opens");
    let content = |round: u64, file: u64| {
        let size = (round * 997 + file * 131) % 5000;
        Content::filled(round * FILES + file, size).to_bytes()
    };
    for round in 0..ROUNDS {
        fs.create_dir(format!("/r{round}")).expect("a directory");
        for file in 0..FILES {
            fs.write(format!("/r{round}/f{file}"), content(round, file))
                .expect("a file");
        }
        fs.sync().expect("a sync");
        // From here on it is promised.
        disk.mark(round);
        for file in (0..FILES).step_by(3) {
            fs.write(format!("/loose{file}"), content(round, file))
                .expect("a file");
        }
    }
    fs.close().expect("it closes");
    for image in disk.log().images(Budget::limited(60, seed)) {
        let context = format!("seed {seed:#x}: {image}");
        let fs = Filesystem::open_device(image.open(), MountOptions::read_write())
            .unwrap_or_else(|e| panic!("{context}: {e}"));
        for round in (0..ROUNDS).filter(|round| image.holds(*round)) {
            for file in 0..FILES {
                let found = fs.read(format!("/r{round}/f{file}"));
                let found = found.unwrap_or_else(|e| panic!("{context}: {e}"));
                assert!(found == content(round, file), "{context}: r{round}/f{file}");
            }
        }
        fs.close().expect("it closes");
    }
}

#[test]
fn what_is_synchronised_while_the_mark_is_under_way_is_there_after_every_crash() {
    // So slow that changes are made, and a commit is asked for, before the mark is home.
    const SLOW: Duration = Duration::from_millis(20);
    let seed = seed_from_env("crashes around the mark");
    let blank = Blank::with(8, &["-t", "ext4", "-J", "size=1"]);
    let disk = CrashDevice::over(crash::Content::of_file(blank.path()));
    let far = Counted::over(Arc::new(disk.clone()), 32, SLOW);
    let options = MountOptions::read_write();
    let fs = Filesystem::open_device(far, options.clone()).expect("it opens");
    let content = Content::filled(1, 9000).to_bytes();
    fs.create_dir("/made").expect("a directory");
    fs.write("/made/file", &content).expect("a file");
    fs.sync().expect("a sync");
    disk.mark(0);
    drop(fs);
    let images = disk.log().images(Budget::limited(300, seed));
    for image in images {
        let context = format!("seed {seed:#x}: {image}");
        let fs = Filesystem::open_device(image.open(), options.clone())
            .unwrap_or_else(|e| panic!("{context}: {e}"));
        match fs.read("/made/file") {
            Ok(found) if !found.is_empty() || image.holds(0) => {
                assert!(found == content, "{context}");
            }
            // Of what was not synchronised there may be a part, and no other content.
            found => assert!(!image.holds(0), "{context}: {found:?}"),
        }
        fs.close().expect("it closes");
    }
}

#[test]
fn opening_for_writing_and_closing_take_few_round_trips_and_read_nothing_twice() {
    let blank = Blank::with(64, &["-t", "ext4", "-b", "4096", "-O", "orphan_file"]);
    let far = Counted::far(blank.path(), true);
    let device: SharedDevice = far.clone();
    let fs = Filesystem::open_device(device, MountOptions::read_write()).expect("it opens");
    let opened = far.rounds();
    assert!(opened <= MOST_TO_OPEN, "{opened} round trips to open");
    fs.create_dir("/made").expect("a directory");
    fs.close().expect("it closes");
    let rounds = far.rounds();
    assert!(
        rounds <= MOST_TO_OPEN + MOST_TO_CLOSE,
        "{rounds} round trips"
    );
    drop(far);
    blank.check();
}

/// The superblock, which is looked at twice, descriptors, also twice, inodes with bitmaps, what
/// these refer to; and perhaps a part of what marks the file system as in use, which goes on
/// meanwhile.
const MOST_TO_OPEN: u64 = 9;
/// The rest of that, commit, checkpoint, the mark as clean, the end of the log.
const MOST_TO_CLOSE: u64 = 9;

/// Where the superblock of the journal is, in bytes: the block that says so.
fn journal_superblock(path: &Path, block: usize) -> u64 {
    let bytes = std::fs::read(path).expect("the image");
    // Magic number, and the type of a superblock of version 2.
    let mark = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    let found = bytes
        .chunks(block)
        .position(|block| block.starts_with(&mark));
    (found.expect("a journal") * block) as u64
}

#[test]
fn the_superblock_of_a_journal_is_read_once() {
    for block in ["1024", "4096"] {
        let blank = Blank::with(16, &["-t", "ext4", "-b", block, "-J", "size=4"]);
        let path = blank.path();
        let at = journal_superblock(path, block.parse().expect("a number"));
        let device = Noted::open(path, &OpenSpec::read_write(path));
        let options = MountOptions::read_write().background(false);
        let fs = Filesystem::open_device(device.clone(), options).expect("it opens");
        assert_eq!(device.reads_of(at), 1, "to write");
        fs.create_dir("/made").expect("a directory");
        fs.sync().expect("a sync");
        // As after a crash.
        let crashed = path.with_extension("crashed");
        std::fs::copy(path, &crashed).expect("a copy");
        drop(fs);
        let path = &crashed;
        let device = Noted::open(path, &OpenSpec::read_only(path));
        let fs = Filesystem::open_device(device.clone(), MountOptions::read_only());
        assert!(fs.expect("it opens").exists("/made").expect("a look"));
        assert_eq!(device.reads_of(at), 1, "to read a log that waits");
        let device = Noted::open(path, &OpenSpec::read_write(path));
        let fs = Filesystem::open_device(device.clone(), MountOptions::read_write());
        assert_eq!(device.reads_of(at), 1, "to replay it");
        fs.expect("it opens").close().expect("it closes");
    }
}
