//! The engine, in this process, through the inode operations that every adapter uses.

use super::{Counters, MountChoice, Mounted, Visit};
use extant_blockdev::OpenSpec;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{Bulkstat, BulkstatWay, FileType, Held, NewInode};
use extant_core::{Error, ops};
use extant_format::Ino;
use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

/// Bytes the engine's caches may use: enough for everything here, as the kernel has.
pub(crate) const MEMORY: usize = 1 << 30;

/// An image open for writing.
pub(crate) struct Engine {
    fs: Arc<Fs>,
}

impl Engine {
    /// Opens an image with the file device.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn mount(image: &Path, choice: MountChoice) -> Result<Self, String> {
        let options = MountOptions::read_write()
            .memory(choice.memory.unwrap_or(MEMORY))
            .delalloc(choice.delalloc);
        let options = with_baseline(options, choice.baseline)?;
        let fs = OpenSpec::read_write(image)
            .open()
            .map_err(Error::from)
            .and_then(|device| Fs::open(device, options))
            .map_err(|e| format!("{}: {}", image.display(), chain(&e)))?;
        Ok(Self { fs })
    }
}

/// Chooses the unimproved forms, if so many preallocations of a file are named.
#[cfg(feature = "baseline")]
fn with_baseline(options: MountOptions, most: Option<usize>) -> Result<MountOptions, String> {
    let Some(most) = most else {
        return Ok(options);
    };
    let mut options = options;
    options.baseline.alloc = extant_core::alloc::Baseline {
        preallocation_list: Some(most),
        ..extant_core::alloc::Baseline::all()
    };
    options.baseline.inode = extant_core::inode::Baseline::all();
    Ok(options)
}

#[cfg(not(feature = "baseline"))]
fn with_baseline(options: MountOptions, most: Option<usize>) -> Result<MountOptions, String> {
    match most {
        None => Ok(options),
        Some(_) => Err("the baselines need a build with `--features baseline`".to_owned()),
    }
}

fn at(name: &CStr) -> impl Fn(Error) -> String {
    move |e| format!("{}: {}", name.to_string_lossy(), chain(&e))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl Mounted for Engine {
    type Dir = Held;
    type File = Held;

    fn make_dir(&self, name: &CStr) -> Result<Held, String> {
        let root = self.fs.hold(Ino::ROOT).map_err(at(name))?;
        let new = NewInode::new(FileType::Directory, 0o755, ops::now());
        ops::mkdir(&self.fs, &root, name.to_bytes(), &new).map_err(at(name))
    }

    fn root(&self) -> Result<Held, String> {
        self.fs.hold(Ino::ROOT).map_err(at(c"the root"))
    }

    fn create(&self, dir: &Held, name: &CStr) -> Result<Held, String> {
        let new = NewInode::new(FileType::Regular, 0o644, ops::now());
        ops::create(&self.fs, dir, name.to_bytes(), &new).map_err(at(name))
    }

    fn open(&self, dir: &Held, name: &CStr) -> Result<Held, String> {
        ops::lookup_held(&self.fs, dir, name.to_bytes()).map_err(at(name))
    }

    fn open_dir(&self, name: &CStr) -> Result<Held, String> {
        self.open(&self.root()?, name)
    }

    fn stat(&self, dir: &Held, name: &CStr) -> Result<u64, String> {
        ops::lookup_with(&self.fs, dir.id(), name.to_bytes(), |inode| {
            ops::stat(&self.fs, inode).size
        })
        .map(|(_, size)| size)
        .map_err(at(name))
    }

    fn read(&self, dir: &Held, name: &CStr, buf: &mut [u8]) -> Result<usize, String> {
        ops::lookup_held(&self.fs, dir, name.to_bytes())
            .and_then(|file| ops::pread(&self.fs, &file, 0, buf))
            .map_err(at(name))
    }

    fn close(&self, file: Held) -> Result<(), String> {
        ops::release(&self.fs, file).map_err(|e| format!("close: {}", chain(&e)))
    }

    fn unlink(&self, dir: &Held, name: &CStr) -> Result<(), String> {
        ops::unlink(&self.fs, dir, name.to_bytes()).map_err(at(name))
    }

    fn write_at(&self, file: &Held, offset: u64, data: &[u8]) -> Result<(), String> {
        match ops::pwrite(&self.fs, file, offset, data) {
            Ok(n) if n == data.len() => Ok(()),
            Ok(n) => Err(format!("only {n} of {} bytes written", data.len())),
            Err(e) => Err(format!("pwrite: {}", chain(&e))),
        }
    }

    fn fallocate(&self, file: &Held, offset: u64, len: u64) -> Result<(), String> {
        ops::fallocate(&self.fs, file, offset, len, ops::FallocateMode::default())
            .map_err(|e| format!("fallocate: {}", chain(&e)))
    }

    fn truncate(&self, file: &Held, size: u64) -> Result<(), String> {
        ops::truncate(&self.fs, file, size).map_err(|e| format!("truncate: {}", chain(&e)))
    }

    fn fsync(&self, file: &Held) -> Result<(), String> {
        ops::fsync(&self.fs, file).map_err(|e| format!("fsync: {}", chain(&e)))
    }

    fn sync(&self) -> Result<(), String> {
        ops::syncfs(&self.fs).map_err(|e| format!("syncfs: {}", chain(&e)))
    }

    fn preallocations(&self, file: &Held) -> Option<u64> {
        Some(self.fs.preallocations(file) as u64)
    }

    fn visit_inodes(&self, how: Visit, workers: usize) -> Result<u64, String> {
        let how = Bulkstat {
            way: match how {
                Visit::Cache => BulkstatWay::Cache,
                Visit::Tables => BulkstatWay::Tables,
            },
            threads: workers,
        };
        let failures = std::sync::Mutex::new(None);
        let visited = ops::bulkstat(&self.fs, how, |ino, found| match found {
            Ok(found) => {
                std::hint::black_box(&found);
            }
            Err(e) => {
                if let Ok(mut failed) = failures.lock() {
                    *failed = Some(format!("inode {ino}: {}", chain(&e)));
                }
            }
        });
        match failures.into_inner() {
            Ok(None) => Ok(visited),
            Ok(Some(failure)) => Err(failure),
            Err(_) => Err("a worker panicked".to_owned()),
        }
    }

    fn counters(&self) -> Counters {
        let stats = self.fs.journal_stats();
        let orphans = self.fs.orphan_stats();
        Counters {
            commits: Some(stats.commits),
            handles: Some(stats.handles),
            flushes: Some(stats.flushes),
            orphans: Some((
                orphans.list_added + orphans.file_added,
                orphans.list_removed + orphans.file_removed,
            )),
        }
    }

    fn unmount(self) -> Result<(), String> {
        self.fs.close().map_err(|e| format!("close: {}", chain(&e)))
    }
}
