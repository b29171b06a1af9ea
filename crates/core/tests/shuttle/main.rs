//! The engine under sampled schedules: a whole file system on a device in memory, changed by a few
//! threads.
//!
//! Every scenario ends with the same questions. Is everything there that was made durable when the
//! image is recovered as a crash would leave it now? Does the image, closed, hold what the
//! operations say, and does e2fsck (asked once in a while) agree?

mod blocks;
mod dax;
mod direct;
mod inodes;
mod names;
mod orphans;
mod splits;
mod stored;
mod syncs;
mod writeback;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::mutants::{self, Mutant};
use extant_core::ops::{self, Cookie};
use extant_core::{Error, Result};
use extant_format::Ino;
use extant_testkit::oracle::{assert_clean, mke2fs};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// One in this many images is shown to e2fsck.
const CHECKED: u64 = 200;

/// One test at a time: what one leaves to be freed later, any thread may free, and the checker's
/// atomics are for one thread of the system.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Explores `scenario`.
fn explore(name: &str, scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    extant_sync::model::explore(name, scenario);
}

/// Requires that `scenario` fails with a sentence that contains `what`, with a mistake of the
/// engine if one is given: the check of a scenario.
fn explore_and_find(
    name: &str,
    mistake: Option<Mutant>,
    what: &str,
    scenario: impl Fn() + Send + Sync + Clone + 'static,
) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    mutants::set(mistake);
    let explored = catch_unwind(AssertUnwindSafe(|| {
        extant_sync::model::explore(name, scenario);
    }));
    mutants::set(None);
    let Err(found) = explored else {
        panic!("{name}: nothing was found");
    };
    let text = found.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| found.downcast_ref::<&str>().copied());
    assert!(
        text.is_some_and(|text| text.contains(what)),
        "{name}: {text:?}"
    );
}

/// An image that each schedule begins with: empty, with blocks and a journal as small as they get.
fn image() -> Arc<[u8]> {
    image_with(3 << 20, &[])
}

/// An image of another size, made with more options.
fn image_with(bytes: u64, options: &[&str]) -> Arc<[u8]> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let mut all = vec!["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "64"];
    all.extend(options);
    mke2fs(&path, bytes, &all);
    std::fs::read(&path).unwrap().into()
}

/// A file system in use.
struct World {
    device: Arc<MemoryDevice>,
    fs: Arc<Fs>,
}

impl World {
    fn new(image: &[u8]) -> Self {
        Self::with(image, open)
    }

    fn with(image: &[u8], open: impl Fn(&Arc<MemoryDevice>) -> Arc<Fs>) -> Self {
        let device = Arc::new(MemoryDevice::from_image(image));
        let fs = open(&device);
        Self { device, fs }
    }

    fn root(&self) -> Held {
        self.fs.hold(Ino::ROOT).unwrap()
    }

    /// What is on the device now, as a device of its own.
    fn copy(&self) -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::from_image(&bytes(&self.device)))
    }

    /// Closes the file system and requires that these files, and no others, are there.
    fn finish(self, expected: &[&[&str]]) {
        self.fs.close().unwrap();
        let found = names(&open_and_close(&self.device));
        let found: Vec<&str> = found.keys().map(String::as_str).collect();
        assert!(expected.contains(&found.as_slice()), "{found:?}");
        check_sometimes(&self.device);
    }
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn open(device: &Arc<MemoryDevice>) -> Arc<Fs> {
    open_with_memory(device, 1 << 20)
}

fn open_with_memory(device: &Arc<MemoryDevice>, bytes: usize) -> Arc<Fs> {
    let options = MountOptions::read_write().background(false).memory(bytes);
    Fs::open(device.clone(), options).unwrap()
}

/// The file system as recovery leaves it, for reading.
fn open_and_close(device: &Arc<MemoryDevice>) -> Arc<Fs> {
    open(device).close().unwrap();
    Fs::open(device.clone(), MountOptions::read_only()).unwrap()
}

fn check_sometimes(device: &MemoryDevice) {
    static IMAGES: AtomicU64 = AtomicU64::new(0);
    if IMAGES
        .fetch_add(1, Ordering::Relaxed)
        .is_multiple_of(CHECKED)
    {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes(device)).unwrap();
        assert_clean(file.path());
    }
}

/// Names and inodes in the root directory, without `lost+found`.
fn names(fs: &Arc<Fs>) -> BTreeMap<String, Ino> {
    names_in(fs, Ino::ROOT)
}

/// The names in any directory.
fn names_in(fs: &Arc<Fs>, dir: Ino) -> BTreeMap<String, Ino> {
    let mut names = BTreeMap::new();
    let dir = fs.inode(dir).unwrap();
    ops::readdir(fs, &dir, Cookie::START, |entry| {
        let name = String::from_utf8(entry.name.to_vec()).unwrap();
        if !matches!(&*name, "." | ".." | "lost+found") {
            assert_eq!(names.insert(name, entry.ino), None, "listed twice");
        }
        ControlFlow::<()>::Continue(())
    })
    .unwrap();
    names
}

fn create(fs: &Fs, dir: &Held, name: &str) -> Result<Held> {
    let new = NewInode::new(FileType::Regular, 0o644, ops::now());
    ops::create(fs, dir, name.as_bytes(), &new)
}

/// Whether it was done; that the name was not there is no failure.
fn was_there(done: Result<()>) -> bool {
    match done {
        Err(Error::NotFound) => false,
        done => {
            done.unwrap();
            true
        }
    }
}

fn content(fs: &Arc<Fs>, ino: Ino) -> Vec<u8> {
    let inode = fs.inode(ino).unwrap();
    let mut content = vec![0; inode.size() as usize];
    let len = ops::read(fs, &inode, 0, &mut content).unwrap();
    content.truncate(len);
    content
}
