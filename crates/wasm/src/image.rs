//! What a program can ask of an image.

use crate::disk::{self, Disk};
use crate::failure::Told;
use crate::listing::{Listing, NUMBERS, numbers_of};
use crate::path::resolve;
use crate::picture;
use crate::tar::Tar;
use extant_blockdev::{OverlayDevice, SharedDevice};
use extant_core::fs::{Fs, MountOptions};
use extant_core::ops;
use extant_format::{Group, Ino, Lblk, Pblk};
use extant_fsck::{Finding, Options, Pass, Report, Severity};
use extant_sync::{LockClass, Mutex, Rank};
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes of the caches of the engine, beside those of devices.
const CACHE: usize = 32 << 20;

static PASS_CLASS: LockClass = LockClass::new("pass of a check", Rank::Leaf);

/// Bytes of a piece that a replay changes.
const PIECE: u32 = 1024;

/// Hears how far work is.
pub trait Progress: Sync {
    /// So much of it is done, of so much.
    fn told(&self, what: &'static str, done: u64, all: u64);
}

/// Hears nothing.
impl Progress for () {
    fn told(&self, _: &'static str, _: u64, _: u64) {}
}

/// An open image: a file system, on all of a disk or in a partition of it.
#[derive(Debug)]
pub struct Image {
    disk: Disk,
    fs: Arc<Fs>,
}

impl Image {
    /// Opens the file system in a file: in the partition of this number, or else at the beginning
    /// of the disk or in its first partition that has one. Raw disks, images in formats and what is
    /// compressed are known by their content.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn open(file: SharedDevice, partition: Option<u32>, progress: &dyn Progress) -> Told<Self> {
        let disk = disk::open(file, partition, progress)?;
        let options = MountOptions::read_only()
            .background(false)
            .memory(CACHE)
            .cache_bytes(CACHE)
            .cut_short(true);
        let fs = Fs::open(Arc::clone(&disk.device), options)?;
        Ok(Self { disk, fs })
    }

    /// Returns what the image and the file system are, as JSON.
    ///
    /// # Errors
    /// When the device fails.
    pub fn about(&self) -> Told<String> {
        let stat = self.fs.statfs()?;
        let superblock = self.fs.superblock();
        let notices = self.fs.notices().iter().map(ToString::to_string);
        let partitions = self.disk.partitions.iter().map(|part| {
            json!({
                "number": part.number,
                "start": part.start,
                "size": part.len,
                "name": part.name,
                "holds": part.holds,
            })
        });
        Ok(json!({
            "formats": self.disk.formats,
            "partition": self.disk.partition,
            "partitions": partitions.collect::<Vec<Value>>(),
            "label": String::from_utf8_lossy(&self.fs.label()),
            "uuid": uuid(superblock.uuid()),
            "block_size": stat.block_size.bytes(),
            "blocks": self.fs.geometry().blocks_count(),
            "free": stat.free,
            "inodes": stat.inodes,
            "free_inodes": stat.free_inodes,
            "notices": notices.collect::<Vec<String>>(),
        })
        .to_string())
    }

    /// Lists a directory; with `whole` all that is known of each file. A symbolic link at the end
    /// of the path is followed.
    ///
    /// # Errors
    /// When there is no such directory. What of it cannot be read is told in the listing.
    pub fn list(&self, path: &[u8], whole: bool) -> Told<Listing> {
        let dir = resolve(&self.fs, path, true)?;
        Listing::of(&self.fs, &dir, whole)
    }

    /// Returns what is known of a file, as in a [`Listing`].
    ///
    /// # Errors
    /// When there is no such file, or its inode is damaged.
    pub fn stat(&self, path: &[u8], follow: bool) -> Told<[f64; NUMBERS]> {
        let inode = resolve(&self.fs, path, follow)?;
        Ok(numbers_of(&ops::stat(&self.fs, &inode)))
    }

    /// Reads from byte `offset` of the regular file of this number; short only at its end.
    ///
    /// # Errors
    /// When the inode is no regular file, is damaged, or the device fails.
    pub fn read(&self, ino: u32, offset: u64, buf: &mut [u8]) -> Told<usize> {
        let inode = self.fs.named_inode(Ino::new(ino))?;
        Ok(ops::read(&self.fs, &inode, offset, buf)?)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// When there is no such link, or it is damaged.
    pub fn link(&self, path: &[u8]) -> Told<Vec<u8>> {
        let inode = resolve(&self.fs, path, false)?;
        Ok(ops::readlink(&self.fs, &inode)?)
    }

    /// Begins an archive of what is at and below a path.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn tar(&self, path: &[u8]) -> Told<Tar> {
        let start = resolve(&self.fs, path, false)?;
        let name = path.rsplit(|&byte| byte == b'/').next();
        Ok(Tar::new(&self.fs, start, name.unwrap_or(path).to_vec()))
    }

    /// Returns the next piece of an archive, and `None` behind the last one.
    ///
    /// # Errors
    /// When files claim more data than there is room for.
    pub fn tar_piece(&self, tar: &mut Tar) -> Told<Option<Vec<u8>>> {
        tar.next(&self.fs)
    }

    /// Checks the file system. Returns what was found as JSON: the fields of the last line of
    /// `extant check --json`, and `findings` with those of the others.
    ///
    /// # Errors
    /// When no verdict can be given.
    pub fn check(&self, progress: &dyn Progress) -> Told<String> {
        let report = self.report(&Passes::new(progress))?;
        let findings = report.findings.iter().map(finding);
        Ok(json!({
            "clean": report.is_clean(),
            "warnings": report.count(Severity::Warning),
            "errors": report.count(Severity::Error),
            "fatal": report.count(Severity::Fatal),
            "inodes": report.totals.inodes,
            "directories": report.totals.directories,
            "blocks": report.totals.blocks,
            "findings": findings.collect::<Vec<Value>>(),
        })
        .to_string())
    }

    fn report(&self, passes: &Passes<'_>) -> Told<Report> {
        let check = |device| extant_fsck::check(device, Options::default(), passes);
        let pending = match check(Arc::clone(&self.disk.device)) {
            Err(e) if e.is_fast_commit() => e,
            report => return Ok(report?),
        };
        // What the engine makes of them can be checked.
        let overlay = OverlayDevice::new(Arc::clone(&self.disk.device), PIECE).keep_writes();
        let overlay: SharedDevice = Arc::new(overlay);
        let options = MountOptions::read_write().background(false).memory(CACHE);
        let replayed = Fs::open(Arc::clone(&overlay), options).and_then(|fs| fs.close());
        match replayed {
            Ok(()) => Ok(check(overlay)?),
            Err(_) => Err(pending.into()),
        }
    }

    /// Returns how the blocks are used, as a picture of at most `cells` cells: for each cell the
    /// blocks of the structure, those with content and those that are free.
    ///
    /// # Errors
    /// When a descriptor or a bitmap cannot be read.
    pub fn picture(&self, cells: u32) -> Told<Vec<f64>> {
        picture::draw(&self.fs, cells)
    }
}

/// Says how far a check is.
struct Passes<'a> {
    progress: &'a dyn Progress,
    now: Mutex<(&'static str, u64, u64)>,
}

impl<'a> Passes<'a> {
    fn new(progress: &'a dyn Progress) -> Self {
        Self {
            progress,
            now: Mutex::new(&PASS_CLASS, ("checking", 0, 0)),
        }
    }
}

impl extant_fsck::Progress for Passes<'_> {
    fn begin(&self, pass: Pass, units: u64) {
        let what = match pass {
            Pass::Inodes => "inodes",
            Pass::Attributes => "attributes",
            Pass::Directories => "directories",
            Pass::Bitmaps => "bitmaps",
            _ => "checking",
        };
        *self.now.lock() = (what, 0, units);
        self.progress.told(what, 0, units);
    }

    fn advance(&self, units: u64) {
        let (what, done, all) = {
            let mut now = self.now.lock();
            now.1 += units;
            *now
        };
        // A hundred times for a pass, and not for each inode.
        let step = (all / 100).max(1);
        if done / step != (done - units) / step {
            self.progress.told(what, done, all);
        }
    }
}

#[cfg(test)]
impl Image {
    pub(crate) fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }
}

fn finding(finding: &Finding) -> Value {
    let mut line = json!({
        "severity": finding.severity().name(),
        "code": finding.code.name(),
        "evidence": finding.evidence.to_string(),
    });
    let place = finding.place;
    for (key, value) in [
        ("group", place.group.map(Group::get).map(u64::from)),
        ("inode", place.ino.map(Ino::get).map(u64::from)),
        ("inode_block", place.lblk.map(Lblk::get).map(u64::from)),
        ("block", place.block.map(Pblk::get)),
    ] {
        if let (Some(value), Some(line)) = (value, line.as_object_mut()) {
            line.insert(key.to_owned(), value.into());
        }
    }
    line
}

fn uuid(bytes: [u8; 16]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
