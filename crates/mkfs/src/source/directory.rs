//! Scans a directory into a [`Tree`].
//!
//! Directories wait on a stack; a batch of them is listed and its files are asked about in
//! parallel, then the findings go into the builder one after the other. So descriptors in use
//! are bounded by the number of threads, whatever the depth or width of the source. A batch is the
//! smaller the more is found, and a large directory is asked about in pieces.
//!
//! What a file is, whose it is and what attributes it has is asked through the C library, so that
//! `fakeroot` and `pseudo` are heard.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant_host::Statx;
use rayon::prelude::*;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, StatxFlags};
use rustix::io::Errno;

use super::builder::{Content, FLAGS_LATER, Meta, Stored, TreeBuilder};
use super::data::DataStore;
use super::error::{SourceError, SourceResult};
use super::exclude::Excludes;
use super::model::{DataExtent, FileType, NodeId, Times, Timestamp, Tree, Xattr};
use super::root::Root;
use super::rows::Origin;

/// Most directories listed at once; enough to keep every thread busy.
const BATCH: usize = 256;
/// Files that are asked about, more or less, before what was found goes into the builder, where it
/// takes a tenth of the memory.
const WINDOW: usize = 4096;
/// Files of one directory asked about by one thread.
const CHUNK: usize = 256;
/// Bytes of directory entries taken from the kernel at once.
const LISTING_BYTES: usize = 64 << 10;

/// How to scan a directory.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ScanOptions {
    /// What stays out.
    pub excludes: Excludes,
    /// How many threads scan; by default those of the surrounding thread pool.
    pub threads: Option<NonZero<usize>>,
}

/// Scans the directory at `path` with everything below it, across mount points.
///
/// Symbolic links are taken as they are, never followed (`path` itself may be one). Names that
/// share an inode become one node. A file that cannot be asked about is an error, not left out.
///
/// # Errors
///
/// [`SourceError`] with the path of the file that could not be opened, listed or asked about, or
/// that was gone when its turn came; also when `fakeroot` or `pseudo` is asked for and this process
/// runs without it.
pub fn scan_directory(path: &Path, options: &ScanOptions) -> SourceResult<Tree> {
    let owners = "read the owners in";
    extant_host::refuse_if_unheard()
        .map_err(|why| SourceError::io(owners, path, io::Error::other(why)))?;
    let root = Root::open(path)?;
    match options.threads {
        None => extant_host::side_by_side(|| Scan::run(root, &options.excludes)),
        Some(threads) => {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads.get())
                .build()
                .map_err(|e| SourceError::io("start threads to scan", path, io::Error::other(e)))?;
            pool.install(|| Scan::run(root, &options.excludes))
        }
    }
}

/// Scans one file, a symbolic link itself: a tree with nothing else in its root, which is as the
/// directory that the file is in.
///
/// # Errors
///
/// Those of [`scan_directory`].
pub(crate) fn scan_file(path: &Path) -> SourceResult<Tree> {
    let owners = "read the owner of";
    extant_host::refuse_if_unheard()
        .map_err(|why| SourceError::io(owners, path, io::Error::other(why)))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some(name) = path.file_name() else {
        return Err(SourceError::io("name", path, Errno::INVAL));
    };
    let root = Root::open(parent)?;
    let listing = Listing::new(&root, &[])?;
    let top = listing.ask(b".")?;
    let mut found = listing.ask(name.as_bytes())?;
    found.has_other_names = false;
    drop(listing);
    let mut scan = Scan {
        builder: TreeBuilder::new(top.meta)?,
        shared: HashMap::new(),
        waiting: Vec::new(),
    };
    let dir = Waiting {
        node: NodeId::ROOT,
        path: Box::default(),
    };
    scan.add(&dir, found)?;
    scan.builder.finish_with(vec![DataStore::Directory(root)])
}

struct Scan {
    builder: TreeBuilder,
    /// The node of an inode with several names.
    shared: HashMap<(u64, u64), NodeId>,
    waiting: Vec<Waiting>,
}

/// A directory still to be listed.
struct Waiting {
    node: NodeId,
    /// From the root, with `/` between names; empty for the root.
    path: Box<[u8]>,
}

impl Waiting {
    fn parts(&self) -> Vec<&[u8]> {
        split_path(&self.path)
    }
}

fn split_path(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&b| b == b'/')
        .filter(|part| !part.is_empty())
        .collect()
}

/// A file as the system describes it.
struct Found {
    name: Box<[u8]>,
    meta: Meta,
    what: What,
    /// Device and inode number.
    id: (u64, u64),
    has_other_names: bool,
}

enum What {
    Directory,
    Symlink(Vec<u8>),
    Regular {
        size: u64,
        extents: Option<Vec<DataExtent>>,
    },
    Device {
        kind: FileType,
        major: u32,
        minor: u32,
    },
    Fifo,
    Socket,
}

impl Scan {
    fn run(root: Root, excludes: &Excludes) -> SourceResult<Tree> {
        let top = Listing::new(&root, &[])?.ask(b".")?;
        let mut scan = Self {
            builder: TreeBuilder::new(top.meta)?,
            shared: HashMap::new(),
            waiting: vec![Waiting {
                node: NodeId::ROOT,
                path: Box::default(),
            }],
        };
        let mut most = BATCH;
        while !scan.waiting.is_empty() {
            let batch = scan
                .waiting
                .split_off(scan.waiting.len().saturating_sub(most));
            let listed: Vec<_> = batch
                .par_iter()
                .with_max_len(1)
                .map(|dir| list(&root, dir, excludes))
                .collect();
            let mut sum = 0;
            for (dir, listed) in batch.iter().zip(listed) {
                match listed? {
                    Listed::Files(found) => {
                        sum += found.len();
                        for file in found {
                            scan.add(dir, file)?;
                        }
                    }
                    Listed::Many(names) => {
                        sum += WINDOW;
                        scan.add_many(&root, dir, &names, excludes)?;
                    }
                }
            }
            let per_dir = (sum / batch.len()).max(1);
            let least = rayon::current_num_threads().min(BATCH);
            most = (WINDOW / per_dir).clamp(least, BATCH);
        }
        scan.builder.finish_with(vec![DataStore::Directory(root)])
    }

    /// Asks about the files of a large directory, a window of them at a time.
    fn add_many(
        &mut self,
        root: &Root,
        dir: &Waiting,
        names: &Names,
        excludes: &Excludes,
    ) -> SourceResult<()> {
        let parts = dir.parts();
        let listing = Listing::new(root, &parts)?;
        let mut names = names.iter();
        loop {
            let window: Vec<&[u8]> = names.by_ref().take(WINDOW).collect();
            if window.is_empty() {
                return Ok(());
            }
            for file in listing.ask_all(&window, excludes)? {
                self.add(dir, file)?;
            }
        }
    }

    fn add(&mut self, dir: &Waiting, file: Found) -> SourceResult<()> {
        if let Some(&node) = self.shared.get(&file.id).filter(|_| file.has_other_names) {
            return self.builder.link(dir.node, &file.name, node);
        }
        let mtime = file.meta.times.mtime();
        let content = match &file.what {
            What::Directory => Content::Directory,
            What::Symlink(target) => Content::Symlink(target),
            What::Regular { size, extents } => Content::Stored(Stored {
                size: *size,
                origin: Origin::Path {
                    dev: file.id.0,
                    ino: file.id.1,
                    mtime_sec: mtime.secs,
                    mtime_nsec: mtime.nanos,
                },
                extents: extents.as_deref(),
            }),
            What::Device { kind, major, minor } => Content::Device {
                kind: *kind,
                major: *major,
                minor: *minor,
            },
            What::Fifo => Content::Fifo,
            What::Socket => Content::Socket,
        };
        let node = self.builder.add(file.meta, content)?;
        self.builder.link(dir.node, &file.name, node)?;
        if file.has_other_names {
            self.shared.insert(file.id, node);
        }
        if matches!(file.what, What::Directory) {
            let path = if dir.path.is_empty() {
                file.name
            } else {
                [&dir.path, &*file.name].join(&b'/').into_boxed_slice()
            };
            self.waiting.push(Waiting { node, path });
        }
        Ok(())
    }
}

/// What listing a directory gives.
enum Listed {
    Files(Vec<Found>),
    /// More names than are asked about at once.
    Many(Names),
}

/// Names of a directory, each behind its length.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    count: usize,
}

impl Names {
    fn push(&mut self, name: &[u8]) {
        self.count += 1;
        self.bytes.extend((name.len() as u16).to_ne_bytes());
        self.bytes.extend(name);
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first_chunk()?;
            let (name, after) = after.split_at_checked(u16::from_ne_bytes(*len).into())?;
            rest = after;
            Some(name)
        })
    }
}

/// Lists one directory and asks about everything in it, if that is not much.
fn list(root: &Root, dir: &Waiting, excludes: &Excludes) -> SourceResult<Listed> {
    let parts = dir.parts();
    let listing = Listing::new(root, &parts)?;
    let names = listing.names()?;
    if names.count > WINDOW {
        return Ok(Listed::Many(names));
    }
    let all: Vec<&[u8]> = names.iter().collect();
    listing.ask_all(&all, excludes).map(Listed::Files)
}

/// One directory of the source, open.
struct Listing<'a> {
    fd: OwnedFd,
    root: &'a Root,
    parts: &'a [&'a [u8]],
}

impl<'a> Listing<'a> {
    fn new(root: &'a Root, parts: &'a [&'a [u8]]) -> SourceResult<Self> {
        let fd = root.open_dir(parts)?;
        Ok(Self { fd, root, parts })
    }

    /// The path of a file in this directory, for an error.
    fn path_of(&self, name: &[u8]) -> PathBuf {
        let dir = self.root.full_path(self.parts);
        match name {
            b"." => dir,
            _ => dir.join(OsStr::from_bytes(name)),
        }
    }

    fn error(&self, action: &'static str, name: &[u8], errno: Errno) -> SourceError {
        let path = self.path_of(name);
        match errno {
            Errno::NOENT => SourceError::Vanished {
                path,
                found: "no such file".to_owned(),
            },
            _ => SourceError::io(action, &path, errno),
        }
    }

    fn names(&self) -> SourceResult<Names> {
        let mut buffer = Vec::with_capacity(LISTING_BYTES);
        let mut listing = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        let mut names = Names::default();
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(|e| self.error("list", b".", e))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Asks about files of this directory, in parallel. What is excluded is left out.
    fn ask_all(&self, names: &[&[u8]], excludes: &Excludes) -> SourceResult<Vec<Found>> {
        let ask = |name: &[u8]| -> SourceResult<Option<Found>> {
            let found = self.ask(name)?;
            if !excludes.is_empty() {
                let mut path = self.parts.to_vec();
                path.push(name);
                if excludes.excludes(&path, matches!(found.what, What::Directory)) {
                    return Ok(None);
                }
            }
            Ok(Some(found))
        };
        names
            .par_iter()
            .with_min_len(CHUNK)
            .filter_map(|name| ask(name).transpose())
            .collect()
    }

    /// Asks the system all about one file of this directory.
    fn ask(&self, name: &[u8]) -> SourceResult<Found> {
        let stat = extant_host::statx(&self.fd, name).map_err(|e| self.error("stat", name, e))?;
        let kind = FileType::from_mode_bits(stat.stx_mode).ok_or_else(|| {
            let problem = io::Error::other(format!("unknown type, mode {:o}", stat.stx_mode));
            SourceError::io("stat", &self.path_of(name), problem)
        })?;
        let what = match kind {
            FileType::Directory => What::Directory,
            FileType::Symlink => What::Symlink(self.target(name)?),
            FileType::Regular => What::Regular {
                size: stat.stx_size,
                extents: self.extents(name, &stat)?,
            },
            FileType::CharDevice | FileType::BlockDevice => What::Device {
                kind,
                major: stat.stx_rdev_major,
                minor: stat.stx_rdev_minor,
            },
            FileType::Fifo => What::Fifo,
            FileType::Socket => What::Socket,
        };
        // A file whose content is read is opened for that, and has its flags read then.
        let flags = match &what {
            What::Regular {
                size: 1..,
                extents: None,
            } => FLAGS_LATER,
            _ => self.flags(name, kind),
        };
        Ok(Found {
            name: Box::from(name),
            meta: Meta {
                mode: stat.stx_mode,
                uid: stat.stx_uid,
                gid: stat.stx_gid,
                times: times(&stat),
                xattrs: self.xattrs(name)?,
                flags,
            },
            id: (
                rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
                stat.stx_ino,
            ),
            has_other_names: stat.stx_nlink > 1 && kind != FileType::Directory,
            what,
        })
    }

    /// The flags of `chattr`. A file system without them says so in many ways, and a file that
    /// cannot be opened fails later, where its content is missed.
    fn flags(&self, name: &[u8], kind: FileType) -> u32 {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let of =
            |file: BorrowedFd<'_>| rustix::fs::ioctl_getflags(file).map_or(0, |flags| flags.bits());
        match kind {
            FileType::Directory if name == b"." => of(self.fd.as_fd()),
            FileType::Regular | FileType::Directory => {
                rustix::fs::openat(&self.fd, name, flags | OFlags::NOATIME, Mode::empty())
                    .or_else(|_| rustix::fs::openat(&self.fd, name, flags, Mode::empty()))
                    .map_or(0, |file| of(file.as_fd()))
            }
            _ => 0,
        }
    }

    fn target(&self, name: &[u8]) -> SourceResult<Vec<u8>> {
        rustix::fs::readlinkat(&self.fd, name, Vec::new())
            .map(|target| target.into_bytes())
            .map_err(|e| self.error("read link", name, e))
    }

    /// The stored runs of a file that occupies less than its size; `None` if all is stored.
    fn extents(&self, name: &[u8], stat: &Statx) -> SourceResult<Option<Vec<DataExtent>>> {
        if stat.stx_blocks.saturating_mul(512) >= stat.stx_size {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, name, flags | OFlags::NOATIME, Mode::empty())
            .or_else(|e| match e {
                Errno::PERM => rustix::fs::openat(&self.fd, name, flags, Mode::empty()),
                e => Err(e),
            })
            .map_err(|e| self.error("open", name, e))?;
        data_runs(file.as_fd(), stat.stx_size).map_err(|e| self.error("find holes of", name, e))
    }

    /// All extended attributes of a file that ext4 can store, whatever the file is.
    fn xattrs(&self, name: &[u8]) -> SourceResult<Vec<Xattr>> {
        // The calls that take a directory descriptor are too young to rely on; the
        // descriptor's entry in /proc leads there without another walk from the root.
        let mut path = format!("/proc/self/fd/{}/", self.fd.as_raw_fd()).into_bytes();
        path.extend_from_slice(name);
        let fail = |e| self.error("read extended attributes of", name, e);
        let list = match grow(|buf| extant_host::llistxattr(&path, buf)) {
            Ok(list) => list,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(e) => return Err(fail(e)),
        };
        let mut xattrs = Vec::new();
        for key in list.split(|&b| b == 0).filter(|key| is_storable(key)) {
            match grow(|buf| extant_host::lgetxattr(&path, key, buf)) {
                Ok(value) => xattrs.push(Xattr {
                    name: Box::from(key),
                    value: value.into(),
                }),
                // Removed since it was listed, or listed by a file system that cannot give it.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(e) => return Err(fail(e)),
            }
        }
        Ok(xattrs)
    }
}

/// Whether ext4 has a place for an attribute of this name.
pub(crate) fn is_storable(name: &[u8]) -> bool {
    [b"user.".as_slice(), b"trusted.", b"security."]
        .iter()
        .any(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
        || matches!(
            name,
            b"system.posix_acl_access" | b"system.posix_acl_default"
        )
}

/// Calls with a larger buffer until it is large enough; values end at 64 KiB in Linux.
fn grow(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut stack = [0; 1024];
    match call(&mut stack) {
        Ok(len) => return Ok(stack.get(..len).unwrap_or_default().to_vec()),
        Err(Errno::RANGE) => {}
        Err(e) => return Err(e),
    }
    let mut heap = vec![0; 64 << 10];
    let len = call(&mut heap)?;
    heap.truncate(len);
    Ok(heap)
}

fn times(stat: &Statx) -> Times {
    let time = |secs, nanos| Timestamp { secs, nanos };
    let (mtime, ctime) = (&stat.stx_mtime, &stat.stx_ctime);
    let mtime = time(mtime.tv_sec, mtime.tv_nsec);
    let crtime = if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME) {
        time(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
    } else {
        mtime
    };
    let atime = time(stat.stx_atime.tv_sec, stat.stx_atime.tv_nsec);
    Times::new(atime, mtime, time(ctime.tv_sec, ctime.tv_nsec), crtime)
}

/// The runs of data the file system knows of; `None` if it knows of no holes.
fn data_runs(file: BorrowedFd<'_>, size: u64) -> rustix::io::Result<Option<Vec<DataExtent>>> {
    let mut runs = Vec::new();
    let mut from = 0;
    while from < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
            Ok(start) if start < size => start.max(from),
            // NXIO: no data from here to the end.
            Ok(_) | Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(e) => return Err(e),
        };
        let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
            Ok(end) if end > start => end.min(size),
            Ok(_) | Err(Errno::NXIO) => size,
            Err(e) => return Err(e),
        };
        runs.push(DataExtent {
            logical: start,
            len: end - start,
            at: start,
        });
        from = end;
    }
    Ok(Some(runs))
}
