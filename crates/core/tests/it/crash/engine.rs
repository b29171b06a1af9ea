//! The engine as the sweep drives it: operations by path, through the door, in the caller's thread.

use extant_blockdev::SharedDevice;
use extant_core::data::FallocateMode;
use extant_core::dir::Cookie;
use extant_core::fs::{DataMode, Fs, MountOptions};
use extant_core::inode::{FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::ops::Caller;
use extant_core::quota::Enforced;
use extant_core::{Error, data, ops};
use extant_format::Ino;
use extant_format::inode::{DeviceNumber, InodeFlags, Timestamp};
use extant_testkit::model::{
    DEFAULT_ACL, DataPromise, Found, FoundKind, Node, Op, Recovered, Tag, default_acl, tagged,
    xattr_value,
};
use extant_testkit::rng::Rng;
use extant_testkit::sweep::Engine;
use extant_testkit::tree::Time;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of a sector of the recorded device.
const SECTOR: u64 = 512;

/// A file of so many extents is shifted in one transaction, whatever the size of the journal.
const FEW_EXTENTS: usize = 6;

/// The user that asks where there are limits.
const SOMEBODY: u32 = 7;

/// How often somebody met a limit, in the whole process.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);

/// How often a map became one of another kind, and how often that could not be, in the whole
/// process.
pub(crate) static RESHAPED: AtomicU64 = AtomicU64::new(0);
pub(crate) static NOT_RESHAPED: AtomicU64 = AtomicU64::new(0);

/// The engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extant {
    /// So many files that were made or written last stay open, as orphans once their names are
    /// gone.
    pub(crate) keeps_open: usize,
    /// Each `syncfs` is followed by a checkpoint, which otherwise waits for a full log.
    pub(crate) checkpoints: bool,
    /// How writes get to the device.
    pub(crate) mode: DataMode,
    /// After every so many operations everything is written back, and nothing committed for that; 0
    /// for never.
    pub(crate) writes_back: u64,
    /// Writes of whole sectors go past memory.
    pub(crate) direct: bool,
    /// The device is used as memory.
    pub(crate) dax: bool,
    /// Each time, letters of names are upper case or lower case by chance, but for the first part
    /// of a path; all names are lower case where the tree is asked for.
    pub(crate) respells: bool,
    /// The device is told what is free, and forgets it.
    pub(crate) discards: bool,
    /// Each `syncfs` is a freeze, after which the file system thaws.
    pub(crate) freezes: bool,
    /// Each `syncfs` makes it read-only, and then writable again. Nothing stays open then.
    pub(crate) remounts: bool,
    /// Users and groups are held to their limits, which no user that is asked for here may pass.
    pub(crate) limited: bool,
    /// What sets the flag for dumps makes the map one of indirect blocks, what clears it one of
    /// extents, where that can be.
    pub(crate) reshapes: bool,
    /// Threads in the background commit, checkpoint and write back, after so long; otherwise there
    /// are none.
    pub(crate) background: Option<Duration>,
}

/// A file system open for writing.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) fs: Arc<Fs>,
    kept: Mutex<VecDeque<Held>>,
    performed: AtomicU64,
}

impl Open {
    /// A file system that is opened in another way.
    pub(crate) fn of(fs: Arc<Fs>) -> Self {
        Self {
            fs,
            kept: Mutex::default(),
            performed: AtomicU64::new(0),
        }
    }

    /// Closes the files that were kept open.
    pub(crate) fn let_go(&self) {
        self.kept.lock().unwrap().clear();
    }
}

impl Engine for Extant {
    type Open = Open;

    fn open(&self, device: SharedDevice) -> Result<Open, String> {
        let options = MountOptions::read_write();
        let options = match self.background {
            Some(interval) => options.commit_interval(interval),
            None => options.background(false),
        };
        let options = options.discard(self.discards).data_mode(self.mode);
        let options = options.dax(self.dax).quotas(Enforced {
            users: self.limited,
            groups: self.limited,
            projects: false,
        });
        let fs = Fs::open(device, options).map_err(|e| e.to_string())?;
        Ok(Open::of(fs))
    }

    fn perform(&self, open: &Open, op: &Op, tag: Tag) -> Result<u64, Errno> {
        let performed = open.performed.fetch_add(1, Ordering::Relaxed) + 1;
        let done = if self.respells {
            let mut rng = Rng::new(performed);
            let rng = RefCell::new(&mut rng);
            let respelled = op.map_paths(|path| respell(path, &mut rng.borrow_mut()));
            self.perform_one(open, &respelled, tag)
        } else {
            self.perform_one(open, op, tag)
        };
        if self.writes_back != 0 && performed.is_multiple_of(self.writes_back) {
            open.fs.write_back().map_err(errno)?;
        }
        if let Some(interval) = self.background.filter(|_| performed.is_multiple_of(8)) {
            std::thread::sleep(interval);
        }
        done
    }

    fn recover(&self, device: SharedDevice) -> Result<Open, String> {
        let quiet = Extant {
            background: None,
            dax: false,
            ..*self
        };
        quiet.open(device)
    }

    fn tree(&self, open: &Open) -> Result<Recovered, String> {
        let tree = tree_of(&open.fs)?;
        if !self.respells {
            return Ok(tree);
        }
        let mut folded = Recovered::new();
        for (path, found) in tree.entries {
            if folded.entries.insert(path.to_lowercase(), found).is_some() {
                return Err(format!("/{path} is there under another spelling too"));
            }
        }
        Ok(folded)
    }

    fn close(&self, open: Open) -> Result<(), String> {
        open.let_go();
        open.fs.close().map_err(|e| e.to_string())
    }
}

impl Extant {
    fn perform_one(&self, open: &Open, op: &Op, tag: Tag) -> Result<u64, Errno> {
        let _spending = self
            .limited
            .then(|| open.fs.spending_for(&Caller::new(SOMEBODY, SOMEBODY)));
        match op {
            Op::Write { path, offset, len } => {
                let file = walk_to_file(&open.fs, path)?;
                let bytes = tagged(tag, *offset, *len);
                let written = if self.direct && (offset | len) % SECTOR == 0 {
                    ops::pwrite_direct(&open.fs, &file, *offset, &bytes)
                } else {
                    ops::pwrite(&open.fs, &file, *offset, &bytes)
                };
                self.keep(open, file);
                Ok(written.map_err(errno)? as u64)
            }
            Op::Allocate {
                path,
                offset,
                len,
                keep,
            } => {
                let file = walk_to_file(&open.fs, path)?;
                let reserved = reserve(&open.fs, &file, *offset, *len, *keep);
                self.keep(open, file);
                reserved.map_err(errno)
            }
            Op::Shift {
                path,
                offset,
                len,
                insert,
            } => {
                let file = walk_to_file(&open.fs, path)?;
                let extents = data::extents_live(&open.fs, &file).map_err(errno)?;
                let shifted = match insert {
                    true => ops::insert_range(&open.fs, &file, *offset, *len),
                    false => ops::collapse_range(&open.fs, &file, *offset, *len),
                };
                self.keep(open, file);
                shifted.map_err(errno)?;
                Ok(u64::from(extents.len() <= FEW_EXTENTS))
            }
            Op::Create { path, mode } => {
                let (dir, name) = walk_to_parent(&open.fs, path)?;
                let new = NewInode::new(FileType::Regular, *mode, ops::now());
                let made = ops::create(&open.fs, &dir, name, &new).map_err(errno)?;
                self.keep(open, made);
                Ok(0)
            }
            Op::Syncfs if self.freezes => {
                let frozen = open.fs.freeze().map_err(errno)?;
                frozen.thaw().map_err(errno)?;
                Ok(0)
            }
            Op::Syncfs if self.remounts => {
                open.let_go();
                open.fs.remount(true).map_err(errno)?;
                open.fs.remount(false).map_err(errno)?;
                Ok(0)
            }
            Op::NoDump { path, on } if self.reshapes => {
                let held = walk_to_open(&open.fs, path)?;
                let (dump, extents) = (InodeFlags::NO_DUMP, InodeFlags::EXTENTS);
                let (set, clear) = if *on {
                    (dump, extents)
                } else {
                    (extents, dump)
                };
                let had = held.snapshot().flags() & extents;
                let done = ops::chattr(&open.fs, &held, set, clear);
                match &done {
                    Ok(()) if held.snapshot().flags() & extents != had => {
                        RESHAPED.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(Error::Unsupported { .. }) => {
                        NOT_RESHAPED.fetch_add(1, Ordering::Relaxed);
                    }
                    // A fault, or it was of that kind already.
                    _ => {}
                }
                match done {
                    Err(Error::Unsupported { .. }) => {
                        let of_dump = (set & dump, clear & dump);
                        ops::chattr(&open.fs, &held, of_dump.0, of_dump.1)
                    }
                    done => done,
                }
                .map_err(errno)?;
                Ok(0)
            }
            op => {
                perform_named(&open.fs, op)?;
                if self.checkpoints && *op == Op::Syncfs {
                    open.fs.checkpoint().map_err(errno)?;
                }
                Ok(0)
            }
        }
    }

    /// What is promised about data.
    pub(crate) fn promise(&self) -> DataPromise {
        match self.mode {
            // What is copied within a block that the file has is in place at once, and durable when
            // it is persisted.
            _ if self.dax => DataPromise::Delayed,
            DataMode::Through => DataPromise::InOrder,
            _ => DataPromise::Delayed,
        }
    }

    fn keep(&self, open: &Open, file: Held) {
        let mut kept = open.kept.lock().unwrap();
        kept.push_back(file);
        while kept.len() > self.keeps_open {
            let oldest = kept.pop_front();
            drop(oldest);
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err calls")]
fn errno(e: Error) -> Errno {
    if let Error::QuotaExceeded = e {
        // To the model it is the same: nothing was done, for want of space.
        REFUSED.fetch_add(1, Ordering::Relaxed);
        return Errno::NOSPC;
    }
    Errno::from_raw_os_error(e.errno())
}

fn is_symlink(held: &Held) -> bool {
    held.snapshot().file_type() == FileType::Symlink
}

/// The inode at a path; links at its end are not followed, and all others lead nowhere.
fn walk(fs: &Fs, path: &str) -> Result<Held, Errno> {
    let mut held = fs.hold(Ino::ROOT).map_err(errno)?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if is_symlink(&held) {
            return Err(Errno::NOENT);
        }
        held = ops::lookup_held(fs, &held, part.as_bytes()).map_err(errno)?;
    }
    Ok(held)
}

fn walk_to_parent<'p>(fs: &Fs, path: &'p str) -> Result<(Held, &'p [u8]), Errno> {
    let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
    let dir = walk(fs, parents)?;
    // Said before another path is looked at, as the model does.
    match dir.snapshot().file_type() {
        FileType::Directory => Ok((dir, name.as_bytes())),
        FileType::Symlink => Err(Errno::NOENT),
        _ => Err(Errno::NOTDIR),
    }
}

/// What can be opened without following links.
fn walk_to_open(fs: &Fs, path: &str) -> Result<Held, Errno> {
    let held = walk(fs, path)?;
    match held.snapshot().file_type() {
        FileType::Symlink => Err(Errno::LOOP),
        FileType::Directory | FileType::Regular => Ok(held),
        // There is no such device, and nobody listens.
        _ => Err(Errno::NXIO),
    }
}

/// What can be opened for writing.
fn walk_to_file(fs: &Fs, path: &str) -> Result<Held, Errno> {
    let held = walk_to_open(fs, path)?;
    if held.snapshot().is_dir() {
        Err(Errno::ISDIR)
    } else {
        Ok(held)
    }
}

/// Reserves blocks, and says how many bytes of the range the file covers now: when space ran out,
/// what the file grew by before stays.
fn reserve(fs: &Fs, file: &Held, offset: u64, len: u64, keep_size: bool) -> Result<u64, Error> {
    let before = file.live_size();
    let mode = FallocateMode { keep_size };
    match ops::fallocate(fs, file, offset, len, mode) {
        Ok(()) => Ok(len),
        Err(Error::NoSpace | Error::QuotaExceeded) if file.live_size() > before => {
            Ok(file.live_size() - offset)
        }
        Err(e) => Err(e),
    }
}

fn perform_named(fs: &Fs, op: &Op) -> Result<(), Errno> {
    let done = match op {
        Op::Mkdir { path, mode } => {
            let (dir, name) = walk_to_parent(fs, path)?;
            let new = NewInode::new(FileType::Directory, *mode, ops::now());
            ops::mkdir(fs, &dir, name, &new).map(drop)
        }
        Op::Symlink { path, target } => {
            let (dir, name) = walk_to_parent(fs, path)?;
            let new = NewInode::new(FileType::Symlink, 0o777, ops::now());
            ops::symlink(fs, &dir, name, target.as_bytes(), &new).map(drop)
        }
        Op::Mknod { path, mode, node } => {
            let (dir, name) = walk_to_parent(fs, path)?;
            ops::create(fs, &dir, name, &new_node(*node, *mode)).map(drop)
        }
        Op::Link { from, to } => {
            let file = walk(fs, from)?;
            let (dir, name) = walk_to_parent(fs, to)?;
            ops::link(fs, &file, &dir, name)
        }
        Op::Unlink { path } => {
            let (dir, name) = walk_to_parent(fs, path)?;
            ops::unlink(fs, &dir, name)
        }
        Op::Rmdir { path } => {
            let (dir, name) = walk_to_parent(fs, path)?;
            ops::rmdir(fs, &dir, name)
        }
        Op::Rename { from, to } => {
            let (from_dir, from) = walk_to_parent(fs, from)?;
            let (to_dir, to) = walk_to_parent(fs, to)?;
            ops::rename(fs, &from_dir, from, &to_dir, to)
        }
        Op::RenameNew { from, to } => {
            let (from, to) = (walk_to_parent(fs, from)?, walk_to_parent(fs, to)?);
            let flags = ops::RenameFlags {
                no_replace: true,
                ..ops::RenameFlags::default()
            };
            ops::rename_with(fs, (&from.0, from.1), (&to.0, to.1), flags)
        }
        Op::Whiteout { from, to } => {
            let (from, to) = (walk_to_parent(fs, from)?, walk_to_parent(fs, to)?);
            let flags = ops::RenameFlags {
                whiteout: true,
                ..ops::RenameFlags::default()
            };
            ops::rename_with(fs, (&from.0, from.1), (&to.0, to.1), flags)
        }
        Op::Exchange { from, to } => {
            let (from, to) = (walk_to_parent(fs, from)?, walk_to_parent(fs, to)?);
            ops::exchange(fs, (&from.0, from.1), (&to.0, to.1))
        }
        Op::Temporary { path, mode } => {
            let (dir, name) = walk_to_parent(fs, path)?;
            let new = NewInode::new(FileType::Regular, *mode, ops::now());
            let file = ops::tmpfile(fs, &dir, &new).map_err(errno)?;
            let linked = ops::link(fs, &file, &dir, name);
            // What got no name goes.
            linked.and(ops::release(fs, file))
        }
        Op::Zero {
            path,
            offset,
            len,
            keeps_space,
        } => {
            let file = walk_to_file(fs, path)?;
            match keeps_space {
                true => ops::zero_range(fs, &file, *offset, *len, true),
                false => ops::punch_hole(fs, &file, *offset, *len),
            }
        }
        Op::Truncate { path, size } => ops::truncate(fs, &walk_to_file(fs, path)?, *size),
        Op::Chmod { path, mode } => {
            let held = walk(fs, path)?;
            if is_symlink(&held) {
                return Err(Errno::OPNOTSUPP);
            }
            ops::chmod(fs, &held, *mode)
        }
        Op::Chown { path, uid, gid } => ops::chown(fs, &walk(fs, path)?, Some(*uid), Some(*gid)),
        Op::Utimens { path, mtime } => {
            let time = Timestamp {
                secs: mtime.sec,
                nanos: mtime.nsec,
            };
            ops::utimens(fs, &walk(fs, path)?, Some(time), Some(time))
        }
        Op::SetXattr { path, name, len } => {
            let value = xattr_value(name, *len);
            let held = walk(fs, path)?;
            ops::setxattr(fs, &held, name.as_bytes(), &value, ops::SetXattr::Any)
        }
        Op::RemoveXattr { path, name } => ops::removexattr(fs, &walk(fs, path)?, name.as_bytes()),
        Op::NoDump { path, on } => {
            let held = walk_to_open(fs, path)?;
            let (flag, none) = (InodeFlags::NO_DUMP, InodeFlags::empty());
            let (set, clear) = if *on { (flag, none) } else { (none, flag) };
            ops::chattr(fs, &held, set, clear)
        }
        Op::Inherit { path, on } => {
            let held = walk(fs, path)?;
            let name = DEFAULT_ACL.as_bytes();
            match on {
                true => ops::setxattr(fs, &held, name, &default_acl(), ops::SetXattr::Any),
                false => ops::removexattr(fs, &held, name),
            }
        }
        Op::Fsync { path } => ops::fsync(fs, &walk_to_open(fs, path)?),
        Op::Fdatasync { path } => ops::fdatasync(fs, &walk_to_open(fs, path)?),
        Op::Syncfs => ops::syncfs(fs),
        Op::Create { .. } | Op::Write { .. } | Op::Allocate { .. } | Op::Shift { .. } => {
            return Err(Errno::NOSYS);
        }
    };
    done.map_err(errno)
}

fn new_node(node: Node, mode: u16) -> NewInode {
    let (file_type, (major, minor)) = match node {
        Node::Socket => (FileType::Socket, (0, 0)),
        Node::Char(major, minor) => (FileType::CharDevice, (major, minor)),
        Node::Block(major, minor) => (FileType::BlockDevice, (major, minor)),
    };
    NewInode {
        device: DeviceNumber { major, minor },
        ..NewInode::new(file_type, mode, ops::now())
    }
}

/// A path in other letters, but for its first part.
fn respell(path: &str, rng: &mut Rng) -> String {
    let first = path.find('/').unwrap_or(path.len());
    let mut spelled = path[..first].to_owned();
    for letter in path[first..].chars() {
        if rng.one_in(2) {
            spelled.extend(letter.to_uppercase())
        } else {
            spelled.push(letter)
        }
    }
    spelled
}

/// Everything there is, with content.
pub(crate) fn tree_of(fs: &Fs) -> Result<Recovered, String> {
    let mut tree = Recovered::new();
    let mut pending = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = pending.pop() {
        let at = |e: Error| format!("inode {ino} at /{path}: {e}");
        let held = fs.hold(ino).map_err(at)?;
        let found = found_at(fs, &held).map_err(at)?;
        if found.kind == FoundKind::Directory {
            let visited = ops::readdir(fs, &held.snapshot(), Cookie::START, |entry| {
                if entry.name != b"." && entry.name != b".." {
                    let name = String::from_utf8_lossy(entry.name);
                    let path = match path.as_str() {
                        "" => name.into_owned(),
                        _ => format!("{path}/{name}"),
                    };
                    pending.push((path, entry.ino));
                }
                ControlFlow::<()>::Continue(())
            });
            visited.map_err(at)?;
        }
        tree.insert(path, found);
    }
    Ok(tree)
}

fn found_at(fs: &Fs, held: &Held) -> Result<Found, Error> {
    let inode = held.view();
    let meta = ops::stat(fs, &inode);
    let kind = match meta.file_type {
        FileType::Directory => FoundKind::Directory,
        FileType::Regular => FoundKind::File {
            size: meta.size,
            data: content(fs, held, meta.size)?,
        },
        FileType::Symlink => {
            let target = ops::readlink(fs, &inode)?;
            FoundKind::Symlink(String::from_utf8_lossy(&target).into_owned())
        }
        FileType::Socket => FoundKind::Node(Node::Socket),
        FileType::CharDevice => {
            let device = meta.device.unwrap_or_default();
            FoundKind::Node(Node::Char(device.major, device.minor))
        }
        FileType::BlockDevice => {
            let device = meta.device.unwrap_or_default();
            FoundKind::Node(Node::Block(device.major, device.minor))
        }
        other => FoundKind::Other(format!("{other:?}")),
    };
    Ok(Found {
        kind,
        mode: meta.mode.permissions(),
        uid: meta.uid,
        gid: meta.gid,
        nlink: meta.links.into(),
        inode: meta.ino.get().into(),
        mtime: Time::new(meta.mtime.secs, meta.mtime.nanos),
        xattrs: xattrs(fs, held)?,
        no_dump: Some(meta.flags.contains(InodeFlags::NO_DUMP)),
    })
}

fn xattrs(fs: &Fs, held: &Held) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut all = BTreeMap::new();
    ops::for_each_xattr_live(fs, held, |name, value| {
        if name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") {
            let name = String::from_utf8_lossy(name).into_owned();
            all.insert(name, value.to_vec());
        }
        ControlFlow::<()>::Continue(())
    })?;
    Ok(all)
}

/// The parts of a file that are no holes.
fn content(fs: &Fs, held: &Held, size: u64) -> Result<Vec<(u64, Vec<u8>)>, Error> {
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(start) = data::seek_data_live(fs, held, at)? {
        let end = data::seek_hole_live(fs, held, start)?.unwrap_or(size);
        let mut bytes = vec![0; (end.min(size) - start) as usize];
        let len = ops::pread(fs, held, start, &mut bytes)?;
        bytes.truncate(len);
        parts.push((start, bytes));
        if end >= size {
            break;
        }
        at = end;
    }
    Ok(parts)
}
