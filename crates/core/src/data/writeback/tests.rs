//! What becomes of promises when mapping fails, and whose space pays for what is written back.

use super::*;
use crate::alloc::Request;
use crate::fs::DataMode;
use crate::fs::MountOptions;
use crate::inode::{Caller, FileType, Held};
use crate::lifecycle::NewInode;
use crate::ops;
use extant_blockdev::{BlockDevice, DeviceResult, MemoryDevice};
use extant_format::Ino;
use extant_sync::{LockClass, Mutex};
use extant_testkit::crash::Content;
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::collections::HashSet;
use std::io::IoSlice;
use std::thread::ThreadId;
use tempfile::TempDir;

const PLAIN: &[&str] = &["-t", "ext4", "-b", "1024", "-m", "5", "-O", "^huge_file"];
const CLUSTERS: &[&str] = &[
    "-t",
    "ext4",
    "-b",
    "1024",
    "-m",
    "5",
    "-O",
    "^huge_file,bigalloc",
    "-C",
    "4096",
];

/// A file system, and a file with dirty blocks that lie apart: more extents than the root of its
/// tree has room for.
struct Bench {
    fs: Arc<Fs>,
    file: Held,
    _dir: TempDir,
}

const BLOCKS: u64 = 30;
const STRIDE: u64 = 12;

impl Bench {
    fn new(options: &[&str], mode: DataMode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        mke2fs(&image, 32 << 20, options);
        let options = MountOptions::read_write().background(false).data_mode(mode);
        let fs = Fs::open(Content::of_file(&image).open(), options).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        let new = NewInode::new(FileType::Regular, 0o600, ops::now());
        let file = ops::create(&fs, &root, b"file", &new).unwrap();
        for i in 0..BLOCKS {
            let at = (i * STRIDE) << 10;
            crate::data::write_at(&fs, &file, at, &[i as u8 + 1; 1024]).unwrap();
        }
        drop(root);
        Self {
            fs,
            file,
            _dir: dir,
        }
    }

    /// Takes what there is.
    fn take_all(&self, privileged: bool) -> Vec<Taken<'_>> {
        let mut taken = Vec::new();
        for len in [1000, 1] {
            while let Ok(some) = self.take(len, privileged) {
                taken.push(some);
            }
        }
        taken
    }

    fn take(&self, len: u32, privileged: bool) -> Result<Taken<'_>> {
        self.fs.alloc().unwrap().take_blocks(&Request {
            goal: Pblk::new(0),
            len,
            min: 1,
            below_32_bits: false,
            privileged,
        })
    }

    fn set_sectors(&self, sectors: u64) {
        let handle = self.fs.start(1).unwrap();
        let live = self.file.live();
        live.update(&handle, |inode| inode.disk_mut().blocks = sectors)
            .unwrap();
    }

    fn check_content(&self) {
        for i in 0..BLOCKS {
            let mut found = [0; 1024];
            crate::data::read_live(&self.fs, &self.file, (i * STRIDE) << 10, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == i as u8 + 1), "block {i}");
        }
    }
}

#[test]
fn nobody_gets_what_a_file_was_promised_while_mapping_fails() {
    for (options, mode) in [
        (PLAIN, DataMode::Delayed),
        (PLAIN, DataMode::Placed),
        (CLUSTERS, DataMode::Delayed),
        (CLUSTERS, DataMode::Placed),
    ] {
        let bench = Bench::new(options, mode);
        let (fs, live) = (&*bench.fs, bench.file.live());
        let what = format!("{options:?}, {mode:?}");
        let others = bench.take_all(true);
        let promised = fs.alloc().unwrap().promised_blocks();
        assert!(promised >= BLOCKS, "{what}");
        let is_full = |when: &str| {
            let got = bench.take(1, true);
            assert!(matches!(got, Err(Error::NoSpace)), "{what}, {when}");
        };
        is_full("before");
        // It can have no more blocks, which is found out when its nodes have been taken.
        bench.set_sectors(u32::MAX.into());
        let cache = live.file_cache().unwrap();
        let io = WriteIo::new(fs, live).unwrap();
        {
            let _alone = cache.quiesce();
            let dirty = cache.dirty.take();
            let mut batch = Batch::default();
            assert!(io.collect(&dirty, &mut batch).is_empty());
            io.plan(&mut batch).unwrap();
            let pieces = std::mem::take(&mut batch.pieces);
            let (count, credits) = io.fitting(&live.snapshot(), &pieces).unwrap();
            assert_eq!(count, pieces.len());
            let handle = fs.start(credits).unwrap();
            let mapped = io.map_under(&handle, &mut batch, &pieces, 0);
            drop(handle);
            assert!(matches!(mapped.result, Err(Error::FileTooLarge)), "{what}");
            is_full("after mapping failed");
            io.mapped(&mut batch, &pieces, mapped).unwrap_err();
            is_full("after promises went back");
            io.give_up(&mut batch);
        }
        is_full("after it was given up");
        assert_eq!(fs.alloc().unwrap().promised_blocks(), promised, "{what}");
        // All that was let in is written once it can be.
        bench.set_sectors(0);
        write_back(fs, live).unwrap();
        bench.check_content();
        assert!(!cache.dirty.has_any(), "{what}");
        drop(others);
        bench.fs.sync().unwrap();
        assert_eq!(fs.alloc().unwrap().promised_blocks(), 0, "{what}");
    }
}

#[test]
fn whoever_writes_back_what_was_let_in_does_not_pay_for_it() {
    let bench = Bench::new(PLAIN, DataMode::Delayed);
    let (fs, live) = (&*bench.fs, bench.file.live());
    // Nothing is promised any more to what is dirty.
    let cache = live.file_cache().unwrap();
    let io = WriteIo::new(fs, live).unwrap();
    let whole = WritebackRun {
        lblk: 0,
        len: (BLOCKS * STRIDE) as u32,
        pblk: Pblk::default(),
        kind: WritebackState::New,
        leaf: 0,
    };
    io.for_each_part(&whole, |folio, _| folio.write().delayed = 0);
    cache.release_reservation(fs, io.alloc, live, BLOCKS as u32, 0, 0);
    assert_eq!(fs.alloc().unwrap().promised_blocks(), 0);
    let anybody = fs.spending_for(&Caller::new(1005, 1005));
    let others = bench.take_all(false);
    write_back(fs, live).unwrap();
    bench.check_content();
    drop((others, anybody));
}

static THREADS: LockClass = LockClass::new("threads that write", Rank::Leaf);

/// A device that is quicker with two writes at once, and takes note of which threads made large
/// ones.
#[derive(Debug)]
struct Side {
    inner: MemoryDevice,
    threads: Mutex<HashSet<ThreadId>>,
}

impl BlockDevice for Side {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.inner.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        if bufs.len() > 64 {
            self.threads.lock().insert(std::thread::current().id());
        }
        self.inner.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }

    fn parallel_writes(&self) -> usize {
        2
    }
}

#[test]
fn a_file_is_written_by_several_threads_where_the_device_is_quicker_so() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let device = Arc::new(Side {
        inner: MemoryDevice::from_image(&std::fs::read(&image).unwrap()),
        threads: Mutex::new(&THREADS, HashSet::new()),
    });
    let options = MountOptions::read_write().background(false);
    let fs = Fs::open(Arc::clone(&device) as Arc<dyn BlockDevice>, options).unwrap();
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = NewInode::new(FileType::Regular, 0o600, ops::now());
    let file = ops::create(&fs, &root, b"file", &new).unwrap();
    let mut rng = Rng::new(seed_from_env("writeback_threads"));
    let mut content = vec![0; 24 << 20];
    rng.fill(&mut content);
    crate::data::write_at(&fs, &file, 0, &content).unwrap();
    write_back(&fs, file.live()).unwrap();
    assert_eq!(device.threads.lock().len(), 2);
    drop((root, file));
    fs.close().unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.inner.read_at(0, &mut bytes).unwrap();
    std::fs::write(&image, bytes).unwrap();
    assert_clean(&image);
    let read = tool("debugfs").args(["-R", "cat /file"]).arg(&image).ok();
    assert!(read.stdout == content);
}
