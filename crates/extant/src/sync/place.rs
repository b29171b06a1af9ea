//! The directory of the host: names come to it and go, each by the descriptor of its directory.

use super::plan::Old;
use super::{STAGE, SyncOptions};
use crate::export::{Report, Top, open_below, path_of, split};
use crate::{Cause, Error, FileType, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// What a directory is opened as, to read the names in it.
const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Where the system keeps attributes that a directory hands down.
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// A directory of the host that is changed.
pub(super) struct Host<'a> {
    root: OwnedFd,
    path: &'a Path,
    /// The number of its file system.
    device: u64,
    options: &'a SyncOptions<'a>,
}

/// What is in a directory that goes.
#[derive(Default)]
pub(super) struct Inside {
    /// Whether there is nothing.
    pub(super) is_empty: bool,
    /// What stays, with the directories down to it.
    pub(super) kept: HashSet<Vec<u8>>,
    /// Those of it that are spared.
    pub(super) spared: Vec<Vec<u8>>,
    /// The topmost names that go, where something stays.
    pub(super) goes: Vec<Vec<u8>>,
}

/// A name in a directory.
struct Entry {
    below: Vec<u8>,
    is_dir: bool,
    /// Device and inode number.
    number: (u64, u64),
    /// It is no part of the directory.
    is_elsewhere: bool,
}

/// What is mounted in the directory, or is part of another file system.
const ELSEWHERE: &str = "has something mounted over it, or is on another file system, and stays \
                         as it is: unmount that, or leave it out";

impl<'a> Host<'a> {
    /// Opens a directory, which is the user's to name: links on the way to it are followed. `None`
    /// if it is not there.
    pub(super) fn open(path: &'a Path, options: &'a SyncOptions<'a>) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match extant_host::open(path, flags, Mode::empty()) {
            Ok(root) => root,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(cannot("open the directory", path, errno)),
        };
        let look = |dir, name: &[u8]| {
            let found = extant_host::statx(dir, name);
            found.map(|found| number_of(&found))
        };
        let own = look(root.as_fd(), b".").map_err(|errno| cannot("look at", path, errno))?;
        if options.delete && look(rustix::fs::CWD, b"/") == Ok(own) {
            let why = "is the root directory of this system: what the image does not have is not \
                       removed from there";
            return Err(Error::new(path, Cause::NotKept(why)));
        }
        Ok(Some(Self {
            root,
            path,
            device: own.0,
            options,
        }))
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// The path of a file, for messages.
    pub(super) fn path_of(&self, below: &[u8]) -> PathBuf {
        if below.is_empty() {
            return self.path.to_owned();
        }
        self.path.join(path_of(below))
    }

    /// Whether a file is one of those that stay whatever happens.
    pub(super) fn is_spared(&self, below: &[u8]) -> bool {
        if self.options.spare.is_empty() {
            return false;
        }
        let (parent, name) = split(below);
        let found = open_below(&self.root, parent).and_then(|dir| extant_host::statx(&dir, name));
        found.is_ok_and(|found| self.options.spare.contains(&number_of(&found)))
    }

    fn is_excluded(&self, below: &[u8], is_dir: bool) -> bool {
        let exclude = self.options.exclude;
        exclude.is_some_and(|exclude| exclude(&path_of(below), is_dir))
    }

    /// The names in a directory.
    fn names(&self, below: &[u8]) -> std::result::Result<Vec<Entry>, Errno> {
        let dir = open_below(&self.root, below)?;
        let dir = extant_host::openat(&dir, b".", LIST, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let found = match extant_host::statx(&dir, name) {
                Ok(found) => found,
                // It went after its name was read.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            };
            let below = if below.is_empty() {
                name.to_vec()
            } else {
                [below, name].join(&b'/')
            };
            names.push(Entry {
                below,
                is_dir: is_dir(&found),
                number: number_of(&found),
                is_elsewhere: self.is_elsewhere(&found),
            });
        }
        Ok(names)
    }

    /// Whether a name leads out of the directory: to what is mounted over it, which Linux tells
    /// since 5.8, or to a directory of another file system. Files of an overlay have devices of
    /// their own.
    fn is_elsewhere(&self, found: &extant_host::Statx) -> bool {
        let is_outside = is_dir(found) && number_of(found).0 != self.device;
        is_outside || extant_host::is_mount_point(found)
    }

    /// Whether a file is part of the directory, and nothing is mounted over it. Otherwise that goes
    /// to the report.
    pub(super) fn is_part(&self, below: &[u8], report: &mut Report) -> bool {
        let (parent, name) = split(below);
        let found = open_below(&self.root, parent).and_then(|dir| extant_host::statx(&dir, name));
        // What cannot be looked at is told where it is opened.
        let is_part = !found.is_ok_and(|found| self.is_elsewhere(&found));
        if !is_part {
            report.problem(Error::new(self.path_of(below), Cause::NotKept(ELSEWHERE)));
        }
        is_part
    }

    /// Looks at all that is in a directory. `None` if that cannot be, which goes to the report:
    /// also where another file system is mounted in it.
    pub(super) fn what_is_in(&self, top: &[u8], report: &mut Report) -> Option<Inside> {
        if !self.is_part(top, report) {
            return None;
        }
        let mut inside = Inside {
            is_empty: true,
            ..Inside::default()
        };
        let mut all = Vec::new();
        let mut dirs = vec![top.to_vec()];
        while let Some(dir) = dirs.pop() {
            let names = match self.names(&dir) {
                Ok(names) => names,
                Err(Errno::NOENT) => continue,
                Err(errno) => {
                    report.problem(cannot("read the directory", &self.path_of(&dir), errno));
                    return None;
                }
            };
            for entry in names {
                inside.is_empty = false;
                if entry.is_elsewhere {
                    let path = self.path_of(&entry.below);
                    report.problem(Error::new(path, Cause::NotKept(ELSEWHERE)));
                    return None;
                }
                let is_spared = self.options.spare.contains(&entry.number);
                if is_spared || self.is_excluded(&entry.below, entry.is_dir) {
                    let mut at = entry.below.as_slice();
                    while at.len() >= top.len() && inside.kept.insert(at.to_vec()) {
                        at = split(at).0;
                    }
                    if is_spared {
                        inside.spared.push(entry.below);
                    }
                    continue;
                }
                if entry.is_dir {
                    dirs.push(entry.below.clone());
                }
                all.push(entry.below);
            }
        }
        if !inside.kept.is_empty() {
            let kept = &inside.kept;
            all.retain(|below| !kept.contains(below) && kept.contains(split(below).0));
            inside.goes = all;
        }
        Some(inside)
    }

    /// Removes the directory for what is new, which an earlier run may have left.
    pub(super) fn clear_stage(&self) -> Result<()> {
        let stage = STAGE.as_bytes();
        match extant_host::statx(&self.root, stage) {
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(cannot("look at", &self.path_of(stage), errno)),
            Ok(_) => {}
        }
        let mut report = Report::default();
        self.remove(stage, &mut report);
        match report.problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    /// Makes the directory for what is new, for its maker only.
    pub(super) fn make_stage(&self) -> Result<OwnedFd> {
        let (name, mode) = (STAGE.as_bytes(), Mode::RWXU);
        let failed = |errno| cannot("make the directory", &self.path_of(name), errno);
        extant_host::mkdirat(&self.root, name, mode).map_err(failed)?;
        let stage = extant_host::openat(&self.root, name, LIST, Mode::empty()).map_err(failed)?;
        // What its directory hands down is not handed on. There may be nothing, or no such thing.
        let _ = extant_host::fremovexattr(&stage, DEFAULT_LIST);
        extant_host::fchmod(&stage, mode).map_err(failed)?;
        Ok(stage)
    }

    /// Waits until what is new is on the disk.
    pub(super) fn sync(&self, stage: &OwnedFd) -> Result<()> {
        let failed = |errno| cannot("write", &self.path_of(STAGE.as_bytes()), errno);
        rustix::fs::syncfs(stage).map_err(failed)
    }

    /// Puts what was made under a number in its place.
    pub(super) fn put(
        &self,
        stage: &OwnedFd,
        number: usize,
        top: &Top,
        old: Old,
    ) -> std::result::Result<(), (&'static str, Errno)> {
        let (parent, name) = split(&top.below);
        let dir = open_below(&self.root, parent).map_err(|e| ("open the directory of", e))?;
        let number = number.to_string().into_bytes();
        // Its maker may not move a directory that forbids writing.
        let closed = if top.is_dir() && extant_host::euid() != 0 {
            open_up(stage.as_fd(), &number)
        } else {
            None
        };
        let moved = match old {
            Old::Nothing => come(stage, &number, &dir, name, RenameFlags::NOREPLACE),
            Old::File if !top.is_dir() => extant_host::rename(stage, &number, &dir, name),
            // What was there goes with the stage.
            Old::File | Old::Directory => come(stage, &number, &dir, name, RenameFlags::EXCHANGE),
        };
        if let (Ok(()), Some(mode)) = (moved, closed) {
            extant_host::chmodat(&dir, name, mode).map_err(|e| ("set the mode of", e))?;
        }
        let action = if old == Old::Nothing {
            "make"
        } else {
            "replace"
        };
        moved.map_err(|errno| (action, errno))
    }

    /// Removes a name, with all that is below it.
    pub(super) fn remove(&self, top: &[u8], report: &mut Report) {
        if let Err((below, errno)) = self.remove_all(top) {
            report.problem(cannot("remove", &self.path_of(&below), errno));
        }
    }

    /// What has gone meanwhile is removed.
    fn remove_all(&self, top: &[u8]) -> std::result::Result<(), (Vec<u8>, Errno)> {
        let (parent, name) = split(top);
        let at_top = |errno| (top.to_vec(), errno);
        let dir = open_below(&self.root, parent).map_err(at_top)?;
        let found = match extant_host::statx(&dir, name) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(at_top(errno)),
        };
        // Since it was looked at.
        if self.is_elsewhere(&found) {
            return Err(at_top(Errno::BUSY));
        }
        if !is_dir(&found) {
            return or_gone(extant_host::unlinkat(&dir, name)).map_err(at_top);
        }
        let mut dirs = vec![top.to_vec()];
        let mut order = Vec::new();
        while let Some(dir) = dirs.pop() {
            let failed = |errno| (dir.clone(), errno);
            if extant_host::euid() != 0 {
                let (parent, name) = split(&dir);
                let at = open_below(&self.root, parent).map_err(failed)?;
                open_up(at.as_fd(), name);
            }
            let names = self.names(&dir).map_err(failed)?;
            let at = open_below(&self.root, &dir).map_err(failed)?;
            for entry in names {
                // Since it was looked at.
                if entry.is_elsewhere || self.options.spare.contains(&entry.number) {
                    return Err((entry.below, Errno::BUSY));
                }
                if entry.is_dir {
                    dirs.push(entry.below);
                    continue;
                }
                let name = split(&entry.below).1;
                let gone = or_gone(extant_host::unlinkat(&at, name));
                gone.map_err(|errno| (entry.below.clone(), errno))?;
            }
            order.push(dir);
        }
        for dir in order.into_iter().rev() {
            let (parent, name) = split(&dir);
            let at = open_below(&self.root, parent).map_err(|errno| (dir.clone(), errno))?;
            or_gone(extant_host::rmdirat(&at, name)).map_err(|errno| (dir.clone(), errno))?;
        }
        Ok(())
    }
}

fn is_dir(found: &extant_host::Statx) -> bool {
    FileType::from_mode_bits(found.stx_mode) == Some(FileType::Directory)
}

/// A name that is not there any more is gone.
fn or_gone(removed: std::result::Result<(), Errno>) -> std::result::Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Lets the owner of a directory change the names in it. Returns the mode that it had, if that was
/// another one and could be changed.
fn open_up(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Mode> {
    let found = extant_host::statx(dir, name).ok()?;
    let mode = Mode::from_raw_mode((found.stx_mode & 0o7777).into());
    if mode.contains(Mode::RWXU) {
        return None;
    }
    extant_host::chmodat(dir, name, mode | Mode::RWXU).ok()?;
    Some(mode)
}

/// Gives a file another name in another directory, where nothing has that name, or in exchange for
/// what has it.
fn come(
    from: &OwnedFd,
    old: &[u8],
    to: &OwnedFd,
    new: &[u8],
    how: RenameFlags,
) -> std::result::Result<(), Errno> {
    let is_exchange = how == RenameFlags::EXCHANGE;
    if !extant_host::is_pretended() {
        match rustix::fs::renameat_with(from, old, to, new, how) {
            // The file system, or the kernel, knows no such thing.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            done => return done,
        }
    }
    match extant_host::statx(to, new) {
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
        Ok(_) if !is_exchange => return Err(Errno::EXIST),
        Ok(_) => {
            let aside = [old, b".old"].concat();
            extant_host::rename(to, new, from, &aside)?;
        }
    }
    extant_host::rename(from, old, to, new)
}

fn number_of(found: &extant_host::Statx) -> (u64, u64) {
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    (device, found.stx_ino)
}

/// The error of something that the system refused.
pub(super) fn cannot(action: &'static str, path: &Path, errno: Errno) -> Error {
    Error::host(action, path, errno)
}
