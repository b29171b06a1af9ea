//! File systems under measurement, behind one trait that costs nothing at run time.

pub(crate) mod command;
pub(crate) mod engine;
pub(crate) mod fuse;
pub(crate) mod fuse2fs;
pub(crate) mod kernel;

use crate::peer::Figures;
use std::ffi::CStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// How long a program may take to mount, and to end after the unmount.
const PATIENCE: Duration = Duration::from_secs(60);

/// The device that a directory is on.
fn device_of(path: &Path) -> u64 {
    path.metadata().map(|found| found.dev()).unwrap_or(0)
}

/// Waits until a program has mounted something on a directory that was on the device `before`.
/// `false` when it ends, or takes too long.
fn is_mounted(child: &mut Child, point: &Path, before: u64) -> Result<bool, String> {
    let start = std::time::Instant::now();
    while device_of(point) == before {
        let ended = child.try_wait().map_err(|e| e.to_string())?;
        if ended.is_some() || start.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(true)
}

/// A file system that is mounted, in whatever way its side has.
///
/// Directories are handles and names are relative to them: nobody pays for walking a path.
pub(crate) trait Mounted: Sync {
    /// An open directory.
    type Dir: Send + Sync;
    /// A file open for writing; dropping it closes it.
    type File: Send + Sync;

    /// Makes a directory in the root and opens it.
    fn make_dir(&self, name: &CStr) -> Result<Self::Dir, String>;

    /// Opens the root directory.
    fn root(&self) -> Result<Self::Dir, String>;

    /// `open(O_CREAT | O_EXCL | O_RDWR)`, past memory if the side was mounted for that.
    fn create(&self, dir: &Self::Dir, name: &CStr) -> Result<Self::File, String>;

    /// `open(O_RDWR)`, past memory if the side was mounted for that.
    fn open(&self, dir: &Self::Dir, name: &CStr) -> Result<Self::File, String>;

    /// Opens a directory in the root.
    fn open_dir(&self, name: &CStr) -> Result<Self::Dir, String>;

    /// `fstatat`; the size of the file.
    fn stat(&self, dir: &Self::Dir, name: &CStr) -> Result<u64, String>;

    /// Opens a file for reading and reads from its start; how much there was.
    fn read(&self, dir: &Self::Dir, name: &CStr, buf: &mut [u8]) -> Result<usize, String>;

    /// Closes a file: whatever that leaves to be done is done.
    fn close(&self, file: Self::File) -> Result<(), String>;

    /// `unlink`.
    fn unlink(&self, dir: &Self::Dir, name: &CStr) -> Result<(), String>;

    /// `pwrite` of all of `data`.
    fn write_at(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<(), String>;

    /// `pread` of all of `buf`.
    fn read_at(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Result<(), String>;

    /// `fallocate` without flags.
    fn fallocate(&self, file: &Self::File, offset: u64, len: u64) -> Result<(), String>;

    /// `ftruncate`.
    fn truncate(&self, file: &Self::File, size: u64) -> Result<(), String>;

    /// `fsync`.
    fn fsync(&self, file: &Self::File) -> Result<(), String>;

    /// `syncfs`.
    fn sync(&self) -> Result<(), String>;

    /// `syncfs`, after which nothing is left to be done in the background, where that can be had.
    fn quiesce(&self) -> Result<(), String> {
        self.sync()
    }

    /// Preallocations of a file that are alive, where that can be known.
    fn preallocations(&self, file: &Self::File) -> Option<u64>;

    /// Looks at every inode with so many threads; how many there were.
    fn visit_inodes(&self, how: Visit, workers: usize) -> Result<u64, String>;

    /// What was counted since mounting.
    fn counters(&self) -> Counters;

    /// Unmounts; the image is complete afterwards.
    fn unmount(self) -> Result<(), String>;
}

/// How all inodes are looked at, where there is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// Through the cache of inodes.
    Cache,
    /// Straight from the inode tables.
    Tables,
}

/// How a file system is mounted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MountChoice {
    /// Whether blocks are chosen when data is written back, not when it is written.
    pub(crate) delalloc: bool,
    /// The unimproved forms, with so many preallocations of a file at most.
    pub(crate) baseline: Option<usize>,
    /// Bytes that the engine's caches may use, if not as many as usual.
    pub(crate) memory: Option<usize>,
    /// Bytes that file data may take in the engine, if not as many as usual.
    pub(crate) cache_bytes: Option<usize>,
    /// Whether files are read and written past memory.
    pub(crate) direct: bool,
    /// Whether the engine has the image in a device that is memory, with direct access.
    pub(crate) dax: bool,
}

/// What a journal did since mounting, where it can be known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Transactions committed.
    pub(crate) commits: Option<u64>,
    /// Operations that joined a transaction.
    pub(crate) handles: Option<u64>,
    /// Flushes the device got.
    pub(crate) flushes: Option<u64>,
    /// Callers whose changes were made durable by a commit that another one asked for.
    pub(crate) merged: Option<u64>,
    /// For how long commits let no operation begin, because none was under way and what they
    /// had changed was being collected: the longest time, whenever that was, and all together.
    pub(crate) drained: Option<(Duration, Duration)>,
    /// Inodes noted as orphans, and notes taken back.
    pub(crate) orphans: Option<(u64, u64)>,
    /// What the processes of a mount did.
    pub(crate) done: Option<command::Done>,
}

impl Counters {
    /// What happened since `before`, in all and per operation.
    pub(crate) fn since(self, before: Self, operations: u64) -> Figures {
        let less = |now: Option<u64>, then: Option<u64>| {
            Some(now?.saturating_sub(then.unwrap_or(0)) as f64)
        };
        let mut figures = Figures::new();
        let commits = less(self.commits, before.commits);
        if let Some(commits) = commits {
            figures.insert("commits", commits);
            figures.insert(
                "operations per commit",
                operations as f64 / commits.max(1.0),
            );
        }
        if let (Some(handles), Some(commits)) = (less(self.handles, before.handles), commits) {
            figures.insert("handles per commit", handles / commits.max(1.0));
        }
        if let Some(flushes) = less(self.flushes, before.flushes) {
            figures.insert("flushes per operation", flushes / operations.max(1) as f64);
        }
        if let Some(merged) = less(self.merged, before.merged) {
            figures.insert("merged into the commit of another", merged);
        }
        if let (Some((longest, all)), Some(commits)) = (self.drained, commits)
            && commits > 0.0
        {
            let all = all.saturating_sub(before.drained.map_or(Duration::ZERO, |(_, all)| all));
            let micros = |time: Duration| time.as_secs_f64() * 1e6;
            figures.insert("average stop in us", micros(all) / commits);
            figures.insert("longest stop in us", micros(longest));
        }
        if let (Some(now), Some(then)) = (self.orphans, before.orphans) {
            let per_operation = |n: u64| n as f64 / operations.max(1) as f64;
            figures.insert("orphans noted per operation", per_operation(now.0 - then.0));
            figures.insert(
                "orphans taken back per operation",
                per_operation(now.1 - then.1),
            );
        }
        if let (Some(now), Some(then)) = (self.done, before.done) {
            figures.extend(now.since(then, operations));
        }
        figures
    }
}
