//! The engine, in this process, through the inode operations that every adapter uses.

use super::{Counters, MountChoice, Mounted, Visit};
use extant_blockdev::{BlockDevice, MemoryDevice, OpenSpec, SharedDevice};
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{Bulkstat, BulkstatWay, FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::{Error, ops};
use extant_format::Ino;
use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes the engine's caches may use: enough for everything here, as the kernel has.
pub(crate) const MEMORY: usize = 1 << 30;

/// An image open for writing.
pub(crate) struct Engine {
    fs: Arc<Fs>,
    direct: bool,
    /// Where the image came from that is in memory.
    memory: Option<(Arc<MemoryDevice>, PathBuf)>,
}

impl Engine {
    /// Opens an image with the file device.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn mount(image: &Path, choice: MountChoice) -> Result<Self, String> {
        let memory = if choice.dax {
            Some((into_memory(image)?, image.to_owned()))
        } else {
            None
        };
        let fs = match &memory {
            Some((device, _)) => Self::open_device(Arc::clone(device) as _, image, choice)?,
            None => Self::open(image, choice)?,
        };
        Ok(Self {
            fs,
            direct: choice.direct,
            memory,
        })
    }

    /// Opens the file system of an image with the file device.
    pub(super) fn open(image: &Path, choice: MountChoice) -> Result<Arc<Fs>, String> {
        let device = OpenSpec::read_write(image).open();
        Self::open_device(device.map_err(|e| e.to_string())?, image, choice)
    }

    fn open_device(
        device: SharedDevice,
        image: &Path,
        choice: MountChoice,
    ) -> Result<Arc<Fs>, String> {
        let options = MountOptions::read_write()
            .memory(choice.memory.unwrap_or(MEMORY))
            .delalloc(choice.delalloc)
            .dax(choice.dax);
        let options = match choice.cache_bytes {
            Some(bytes) => options.cache_bytes(bytes),
            None => options,
        };
        let options = with_baseline(options, choice.baseline)?;
        Fs::open(device, options).map_err(|e| format!("{}: {}", image.display(), chain(&e)))
    }
}

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// A device in memory with what an image holds.
fn into_memory(image: &Path) -> Result<Arc<MemoryDevice>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", image.display());
    let mut file = File::open(image).map_err(failed)?;
    let device = MemoryDevice::new(file.metadata().map_err(failed)?.len());
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    loop {
        match file.read(&mut chunk).map_err(failed)? {
            0 => return Ok(Arc::new(device)),
            n => {
                let some = &chunk[..n];
                if some.iter().any(|&byte| byte != 0) {
                    device.write_at(at, some).map_err(|e| e.to_string())?;
                }
                at += n as u64;
            }
        }
    }
}

/// Writes what a device in memory holds to an image, for others to look at.
fn out_of_memory(device: &MemoryDevice, image: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", image.display());
    let mut file = File::create(image).map_err(failed)?;
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    while at < device.size() {
        let len = (device.size() - at).min(CHUNK as u64) as usize;
        let some = &mut chunk[..len];
        device.read_at(at, some).map_err(|e| e.to_string())?;
        file.write_all(some).map_err(failed)?;
        at += len as u64;
    }
    Ok(())
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
    options.baseline.data = extant_core::data::Baseline::all();
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
        let written = if !self.direct {
            ops::pwrite(&self.fs, file, offset, data)
        } else {
            ops::pwrite_direct(&self.fs, file, offset, data)
        };
        match written {
            Ok(n) if n == data.len() => Ok(()),
            Ok(n) => Err(format!("only {n} of {} bytes written", data.len())),
            Err(e) => Err(format!("pwrite: {}", chain(&e))),
        }
    }

    fn read_at(&self, file: &Held, offset: u64, buf: &mut [u8]) -> Result<(), String> {
        let read = if !self.direct {
            ops::pread(&self.fs, file, offset, buf)
        } else {
            ops::pread_direct(&self.fs, file, offset, buf)
        };
        match read {
            Ok(n) if n == buf.len() => Ok(()),
            Ok(n) => Err(format!("only {n} of {} bytes read", buf.len())),
            Err(e) => Err(format!("pread: {}", chain(&e))),
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

    fn quiesce(&self) -> Result<(), String> {
        let frozen = self.fs.freeze();
        frozen
            .and_then(|frozen| frozen.thaw())
            .map_err(|e| format!("freeze: {}", chain(&e)))
    }

    fn preallocations(&self, file: &Held) -> Option<u64> {
        Some(file.preallocations() as u64)
    }

    fn visit_inodes(&self, how: Visit, workers: usize) -> Result<u64, String> {
        let way = match how {
            Visit::Cache => BulkstatWay::Cache,
            Visit::Tables => BulkstatWay::Tables,
        };
        let how = Bulkstat::new(way, workers);
        let failures = std::sync::Mutex::new(None);
        let visited = ops::bulkstat(&self.fs, how, |ino, found| match &found {
            Ok(found) => {
                std::hint::black_box(found);
            }
            Err(e) => {
                if let Ok(mut failed) = failures.lock() {
                    *failed = Some(format!("inode {ino}: {}", chain(e)));
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
            merged: Some(stats.shared_commits),
            drained: Some((stats.drained_max, stats.drained_total)),
            done: None,
            orphans: Some((
                orphans.list_added + orphans.file_added,
                orphans.list_removed + orphans.file_removed,
            )),
        }
    }

    fn unmount(self) -> Result<(), String> {
        self.fs
            .close()
            .map_err(|e| format!("close: {}", chain(&e)))?;
        match &self.memory {
            Some((device, image)) => out_of_memory(device, image),
            None => Ok(()),
        }
    }
}
