//! Making, checking, and putting archives in.

use crate::support::{Image, plan};
use extant::check::CheckOptions;
use extant::compare::{Aspects, CompareOptions, Side, compare};
use extant::errno::{EEXIST, EINVAL, ENOSPC, EUCLEAN};
use extant::import::{ImportOptions, from_tar, from_tar_with};
use extant::mkfs::FormatOptions;
use extant::{
    BlockDevice, BlockSize, DeviceResult, Filesystem, MemoryDevice, MountOptions, device, export,
};
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn what_is_made_is_a_file_system_for_others_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.img");
    let mut options = FormatOptions::new(32 << 20, 1_700_000_000);
    options.label = b"made".to_vec();
    let fs = Filesystem::format_with(&path, &options).unwrap();
    fs.write("/file", "content").unwrap();
    fs.close().unwrap();
    extant_testkit::oracle::assert_clean(&path);
    let report = Filesystem::check(&path).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);

    // Nothing is made over what is there.
    let before = std::fs::read(&path).unwrap();
    let e = Filesystem::format(&path, 16 << 20).unwrap_err();
    assert_eq!((e.errno(), e.path()), (EEXIST, &*path), "{e}");
    assert!(std::fs::read(&path).unwrap() == before);
    let e = Filesystem::format(dir.path().join("small"), 1000).unwrap_err();
    assert_eq!(e.errno(), EINVAL, "{e}");
    assert!(!dir.path().join("small").exists());
}

#[test]
fn a_check_of_memory_finds_damage_and_tells_it_from_no_file_system() {
    let memory = Arc::new(MemoryDevice::new(16 << 20));
    Filesystem::format_device(Arc::clone(&memory))
        .unwrap()
        .close()
        .unwrap();
    let check = |bytes: Vec<u8>| Filesystem::check_device(bytes, CheckOptions::default());
    let mut bytes = device::to_vec(&*memory).unwrap();
    assert!(check(bytes.clone()).unwrap().is_clean());
    // The count of free blocks in the superblock, whose checksum is wrong then too.
    bytes[1024 + 12] ^= 1;
    assert!(!check(bytes).unwrap().is_clean());
    assert_eq!(check(vec![0; 1 << 20]).unwrap_err().errno(), EUCLEAN);
}

#[test]
fn an_archive_put_in_is_the_tree_it_was_made_of() {
    let image = Image::of(&plan());
    let source = image.open();
    let mut archive = Vec::new();
    export::to_tar(&source, "/", &mut archive, None).unwrap();

    let target = Filesystem::format_device(MemoryDevice::new(32 << 20)).unwrap();
    target.create_dir("/in").unwrap();
    let mut options = ImportOptions::default();
    options.exclude = vec![b"/lost+found".to_vec()];
    let report = from_tar_with(&target, Cursor::new(archive.clone()), "/in", &options).unwrap();
    assert_eq!((report.files, report.directories), (3, 3));
    assert_eq!(
        report.symlinks,
        source.walk("/").unwrap().count() as u64 - 3 - 3 - 2
    );
    assert!(target.metadata("/in/sparse").unwrap().blocks() * 512 < 1 << 20);

    let mut told = Vec::new();
    let from = Side::image(&source, "/a");
    let to = Side::image(&target, "/in/a");
    let options = CompareOptions::new(Aspects::ALL);
    let report = compare(&from, &to, &options, |difference| {
        told.push(format!("{difference:?}"));
        std::ops::ControlFlow::Continue(())
    });
    assert!(
        told.is_empty() && report.unwrap().problem_count == 0,
        "{told:?}"
    );

    // Once more over what is there: files are replaced, directories and links to them stay.
    target.write("/in/top", "old").unwrap();
    target.rename("/in/a", "/moved").unwrap();
    target.symlink("/moved", "/in/a").unwrap();
    let report = from_tar(&target, Cursor::new(archive), "/in").unwrap();
    assert_eq!(report.directories, 1, "lost+found");
    assert!(target.symlink_metadata("/in/a").unwrap().is_symlink());
    assert!(target.read("/in/top").unwrap() == source.read("/top").unwrap());
    target.close().unwrap();
}

#[test]
fn an_archive_that_is_none_or_has_no_room_is_told() {
    let fs = Filesystem::format_device(MemoryDevice::new(16 << 20)).unwrap();
    let e = from_tar(&fs, Cursor::new(vec![1; 2048]), "/").unwrap_err();
    assert_eq!(e.errno(), EINVAL, "{e}");
    fs.write("/large", vec![1; 8 << 20]).unwrap();
    let mut archive = Vec::new();
    export::to_tar(&fs, "/large", &mut archive, None).unwrap();
    fs.create_dir("/in").unwrap();
    let e = from_tar(&fs, Cursor::new(archive), "/in").unwrap_err();
    assert_eq!(e.errno(), ENOSPC, "{e}");
}

/// Counts what is read.
#[derive(Debug)]
struct Counted {
    inner: MemoryDevice,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl BlockDevice for Counted {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.inner.zero(offset, len)
    }
}

/// Opening is to take no longer where the image is large: for reading nothing is read that grows
/// with it, and for writing the descriptors of groups are read once, in large pieces where they
/// lie side by side.
#[test]
fn opening_a_tebibyte_reads_little() {
    let descriptors = (1 << 40) / (128 << 20) * 64;
    opening_reads(BlockSize::K4, descriptors, 0);
    // So many groups that the blocks of their descriptors are spread over all of the file system,
    // and two threads read them.
    let descriptors = (1 << 40) / (8 << 20) * 64;
    opening_reads(BlockSize::MIN, descriptors, descriptors / 1024);
}

fn opening_reads(block_size: BlockSize, descriptors: u64, pieces: u64) {
    let device = Arc::new(Counted {
        inner: MemoryDevice::new(1 << 40),
        reads: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    });
    let mut options = FormatOptions::new(1 << 40, 1_700_000_000);
    options.block_size = Some(block_size);
    Filesystem::format_device_with(Arc::clone(&device), &options)
        .unwrap()
        .close()
        .unwrap();
    for (options, most_reads, most_bytes) in [
        (MountOptions::read_only(), 32, 256 << 10),
        (
            MountOptions::read_write(),
            64 + pieces,
            descriptors + (512 << 10),
        ),
    ] {
        device.reads.store(0, Ordering::Relaxed);
        device.bytes.store(0, Ordering::Relaxed);
        let begun = std::time::Instant::now();
        let fs = Filesystem::open_device(Arc::clone(&device), options).unwrap();
        let took = begun.elapsed();
        let reads = device.reads.load(Ordering::Relaxed);
        let bytes = device.bytes.load(Ordering::Relaxed);
        println!("{reads} reads of {bytes} bytes in {took:?}");
        assert!(reads <= most_reads, "{reads} reads");
        assert!(bytes <= most_bytes, "{bytes} bytes");
        fs.close().unwrap();
    }
}
