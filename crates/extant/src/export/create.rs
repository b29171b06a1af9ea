//! Making one file and filling it, beside an older one if there is one.

use super::attributes::{self, Host};
use super::gaps::Gaps;
use super::missing::Missing;
use super::older::Older;
use super::plan::{Item, Place, Plan};
use super::target::OpenDirs;
use super::{Existing, Preserve, Report};
use crate::mount::Mount;
use crate::{Cause, Error, FileType};
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::ops::{self, Ahead};
use extant_format::Ino;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{FileType as HostType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;
/// Bytes copied at once where a request takes a round trip.
const FAR_CHUNK: usize = 4 << 20;
/// Bytes of small files that are read together there.
const MOST_TOGETHER: u64 = 2 << 20;
/// What a file may be used for while it is being made: by its maker only.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Names tried for a file that is made beside an older one.
const TRIES: u32 = 64;

/// What one thread works with.
pub(super) struct Maker<'a> {
    pub(super) fs: &'a Fs,
    pub(super) mount: &'a Mount,
    pub(super) plan: &'a Plan,
    pub(super) preserve: Preserve,
    pub(super) existing: Existing,
    pub(super) devices: bool,
    /// Whether a file is made of which parts cannot be read.
    pub(super) partial: bool,
    #[cfg(feature = "verity")]
    pub(super) verify: bool,
    /// The destination's path, for messages.
    pub(super) dest: &'a Path,
    /// Bytes of content that may still be written.
    pub(super) data_left: u64,
    pub(super) is_root: bool,
    pub(super) buffer: Vec<u8>,
    /// Whether a request to the device takes a round trip.
    pub(super) is_far: bool,
    /// Threads that read a large file.
    pub(super) readers: usize,
    /// Content that was read ahead.
    pub(super) ahead: HashMap<Ino, Vec<u8>>,
    pub(super) report: Report,
}

/// Why a step failed.
pub(super) enum Failure {
    /// What the image holds.
    Image(Cause),
    /// What the system said to an action.
    Host(&'static str, Errno),
}

impl From<extant_core::Error> for Failure {
    fn from(e: extant_core::Error) -> Self {
        Self::Image(Cause::engine(e))
    }
}

pub(super) fn host(action: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::Host(action, errno)
}

impl Failure {
    /// Whether every further file would fail as well.
    pub(super) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Host(_, Errno::NOSPC | Errno::DQUOT | Errno::ROFS)
        ) || matches!(self, Self::Image(Cause::TooMuchData))
    }
}

impl Maker<'_> {
    /// Reads what the first of `items` need, which are made next: together, where each would take a
    /// round trip of its own. Returns how many these are.
    pub(super) fn read_ahead(&mut self, items: &[Item]) -> usize {
        if !self.is_far {
            return items.len();
        }
        let inos: Vec<Ino> = items.iter().map(|item| item.ino).collect();
        ops::inodes_ahead(self.fs, &inos);
        let (mut inodes, mut count, mut bytes) = (Vec::new(), 0, 0);
        for ino in inos {
            if let Ok(inode) = self.fs.inode(ino) {
                // What is larger is read by itself.
                let size = Some(inode.size()).filter(|size| *size <= MOST_TOGETHER);
                bytes += size.unwrap_or(0);
                if count > 0 && bytes > MOST_TOGETHER {
                    break;
                }
                inodes.push(inode);
            }
            count += 1;
        }
        ops::content_ahead(self.fs, inodes.iter(), Ahead::Attributes);
        let read = ops::read_together(self.fs, &inodes, MOST_TOGETHER);
        let inos = inodes.iter().map(|inode| inode.ino());
        self.ahead = inos
            .zip(read)
            .filter_map(|(ino, content)| content.map(|content| (ino, content)))
            .collect();
        count
    }

    /// Makes a file that is no directory. Returns the bytes of content written, or nothing if what
    /// is there stays.
    pub(super) fn item(
        &mut self,
        dirs: &mut OpenDirs<'_>,
        item: &Item,
    ) -> Result<Option<u64>, Failure> {
        if self.stays(dirs, item.place, item.ino)? {
            return Ok(None);
        }
        self.file(dirs, item.place, item.ino, Vec::new()).map(Some)
    }

    /// Whether what is in a place stays there, and nothing is copied. What does not is removed, if
    /// that comes first.
    pub(super) fn stays(
        &self,
        dirs: &mut OpenDirs<'_>,
        place: Place,
        ino: Ino,
    ) -> Result<bool, Failure> {
        if self.existing == Existing::Replace {
            return Ok(false);
        }
        let dir = dirs.get(place.dir).map_err(host("open the directory of"))?;
        let name = self.plan.name(place.name);
        let there = match extant_host::statx(dir, name) {
            Ok(there) => there,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(Failure::Host("look at", errno)),
        };
        let is_dir = HostType::from_raw_mode(there.stx_mode.into()) == HostType::Directory;
        match self.existing {
            Existing::Replace => Ok(false),
            Existing::Keep => Ok(true),
            // A directory that is in the way is said when the file is made.
            Existing::KeepNewer | Existing::RemoveFirst if is_dir => Ok(false),
            Existing::KeepNewer => {
                let source = self.fs.inode(ino)?.disk().mtime;
                let time = there.stx_mtime;
                Ok((time.tv_sec, time.tv_nsec) >= (source.secs, source.nanos))
            }
            Existing::RemoveFirst => {
                extant_host::unlinkat(dir, name).map_err(host("remove"))?;
                Ok(false)
            }
        }
    }

    /// Makes the file of an inode in a place; what it lacks already is given.
    pub(super) fn file(
        &mut self,
        dirs: &mut OpenDirs<'_>,
        place: Place,
        ino: Ino,
        mut missing: Vec<Missing>,
    ) -> Result<u64, Failure> {
        let inode = self.fs.inode(ino)?;
        let before = self.report.bytes;
        let dir = dirs.get(place.dir).map_err(host("open the directory of"))?;
        let name = self.plan.name(place.name);
        let mut gaps = Gaps::default();
        match inode.file_type() {
            FileType::Regular => self.regular(dir, name, &inode, &mut missing, &mut gaps)?,
            FileType::Symlink => self.symlink(dir, name, &inode, &mut missing)?,
            FileType::Directory => return Err(Failure::Image(Cause::DirectoryTwice)),
            _ => self.special(dir, name, &inode, &mut missing)?,
        }
        self.lacks(|plan| plan.image_path(place), missing);
        let in_doubt = self.mount.is_in_doubt(ino).then_some(Cause::InDoubt);
        for cause in gaps.cause(true).into_iter().chain(in_doubt) {
            let problem = Error::new(self.plan.image_path(place), cause);
            self.report.problem(problem);
        }
        Ok(self.report.bytes - before)
    }

    /// Takes what a file lacks into the report.
    pub(super) fn lacks(
        &mut self,
        path: impl FnOnce(&Plan) -> std::path::PathBuf,
        missing: Vec<Missing>,
    ) {
        if !missing.is_empty() {
            let cause = Cause::Incomplete(missing.into());
            self.report.incomplete(Error::new(path(self.plan), cause));
        }
    }

    /// What a failure is called, for the report.
    pub(super) fn problem(&mut self, place: Place, failure: Failure) {
        let problem = match failure {
            Failure::Image(cause) => Error::new(self.plan.image_path(place), cause),
            Failure::Host(action, errno) => {
                let path = self.dest.join(self.plan.below(place));
                Error::host(action, path, errno)
            }
        };
        self.report.problem(problem);
    }

    fn regular(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        inode: &Inode,
        missing: &mut Vec<Missing>,
        gaps: &mut Gaps,
    ) -> Result<(), Failure> {
        // Refused before anything is made.
        ops::read(self.fs, inode, 0, &mut [])?;
        #[cfg(feature = "verity")]
        if self.verify {
            crate::verity::compare(self.fs, inode).map_err(|why| Failure::Image(why.0))?;
        }
        let mode = self.first_mode(inode);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What is made beside an older file has that file's permissions in the end.
        let create = |new: &[u8]| {
            let mode = if new == name { mode } else { PRIVATE };
            extant_host::openat(dir, new, flags, mode)
        };
        put(dir, name, "create", create, |file, used| {
            self.content(file.as_fd(), inode, gaps)?;
            let kept = self.preserve;
            let keeps_own = kept.mode || kept.owner || kept.times || kept.xattrs;
            let older = if used == name || keeps_own {
                None
            } else {
                Older::find(dir, name)
            };
            match older {
                Some(older) => older.give(dir, used, file.as_fd(), missing),
                None => {
                    let is_private = used != name || kept.xattrs;
                    self.attributes_of_new(Host::Open(file.as_fd()), inode, is_private, missing);
                }
            }
            Ok(())
        })?;
        self.report.files += 1;
        Ok(())
    }

    /// The mode to make a file with: one that lets its maker set attributes, if there are any to
    /// set.
    fn first_mode(&self, inode: &Inode) -> Mode {
        if self.preserve.mode || self.preserve.xattrs {
            PRIVATE
        } else {
            attributes::permissions(inode)
        }
    }

    /// Copies the content; what has no blocks stays a hole.
    fn content(
        &mut self,
        file: BorrowedFd<'_>,
        inode: &Inode,
        gaps: &mut Gaps,
    ) -> Result<(), Failure> {
        let size = inode.size();
        let end = if self.is_large(size) {
            self.large_content(file, inode, gaps)?
        } else {
            self.own_content(file, inode, gaps)?
        };
        if end < size {
            rustix::fs::ftruncate(file, size).map_err(host("set the size of"))?;
        }
        Ok(())
    }

    /// Copies the content by this thread alone. Returns where what was written ends.
    fn own_content(
        &mut self,
        file: BorrowedFd<'_>,
        inode: &Inode,
        gaps: &mut Gaps,
    ) -> Result<u64, Failure> {
        let most = if self.is_far { FAR_CHUNK } else { CHUNK };
        let ahead = self.ahead.remove(&inode.ino());
        let mut end = 0;
        for piece in ops::extents(self.fs, inode) {
            let piece = match piece {
                Ok(piece) => piece,
                // Where the rest lies is not known.
                Err(e) => {
                    gaps.add(end..inode.size().max(end), e);
                    self.has_gaps(gaps)?;
                    break;
                }
            };
            if piece.unwritten {
                continue;
            }
            self.data_left = self
                .data_left
                .checked_sub(piece.len)
                .ok_or(Failure::Image(Cause::TooMuchData))?;
            let mut at = piece.offset;
            let stop = piece.offset.saturating_add(piece.len);
            while at < stop {
                let len = (stop - at).min(most as u64) as usize;
                let whole = at as usize..at as usize + len;
                if let Some(bytes) = ahead.as_ref().and_then(|content| content.get(whole)) {
                    write_all_at(file, bytes, at).map_err(host("write"))?;
                    at += len as u64;
                    continue;
                }
                if self.buffer.len() < len {
                    self.buffer.resize(len.next_power_of_two().min(most), 0);
                }
                let Some(buffer) = self.buffer.get_mut(..len) else {
                    break;
                };
                let read = gaps.read(self.fs, inode, at, buffer);
                self.has_gaps(gaps)?;
                let bytes = self.buffer.get(..read);
                let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
                    break;
                };
                write_all_at(file, bytes, at).map_err(host("write"))?;
                at += read as u64;
            }
            end = at;
            self.report.bytes += at - piece.offset;
        }
        Ok(end)
    }

    /// Gives up a file of which a part cannot be read, unless it is to be made all the same.
    pub(super) fn has_gaps(&self, gaps: &mut Gaps) -> Result<(), Failure> {
        if self.partial {
            return Ok(());
        }
        match std::mem::take(gaps).cause(false) {
            Some(cause) => Err(Failure::Image(cause)),
            None => Ok(()),
        }
    }

    fn symlink(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        inode: &Inode,
        missing: &mut Vec<Missing>,
    ) -> Result<(), Failure> {
        let target = self.fs.read_link(inode)?;
        let create = |name: &[u8]| extant_host::symlinkat(&target, dir, name);
        put(dir, name, "create the symbolic link", create, |(), used| {
            self.attributes(Host::Named(dir, used), inode, true, missing);
            Ok(())
        })?;
        self.report.symlinks += 1;
        Ok(())
    }

    fn special(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        inode: &Inode,
        missing: &mut Vec<Missing>,
    ) -> Result<(), Failure> {
        let kind = match inode.file_type() {
            FileType::CharDevice => HostType::CharacterDevice,
            FileType::BlockDevice => HostType::BlockDevice,
            FileType::Fifo => HostType::Fifo,
            _ => HostType::Socket,
        };
        let device = inode.file_type().is_device().then(|| inode.disk().device());
        if device.is_some() && !self.devices {
            return Err(Failure::Image(Cause::NotKept(
                "a device node is not made here: that takes root",
            )));
        }
        let number = device.map_or(0, |d| rustix::fs::makedev(d.major, d.minor));
        let mode = self.first_mode(inode);
        let create = |name: &[u8]| extant_host::mknodat(dir, name, kind, mode, number);
        put(dir, name, "create the special file", create, |(), used| {
            self.attributes(Host::Named(dir, used), inode, true, missing);
            Ok(())
        })?;
        self.report.specials += 1;
        Ok(())
    }
}

/// Makes something new and fills it. Under its name if that is free; otherwise under another one
/// beside it, which takes the place of what is there once it is complete. So writing never goes
/// through what is there, which could be a link to somewhere else, and never harms it if something
/// fails. A directory makes no way.
pub(super) fn put<T>(
    dir: BorrowedFd<'_>,
    name: &[u8],
    action: &'static str,
    create: impl Fn(&[u8]) -> Result<T, Errno>,
    fill: impl FnOnce(T, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match create(name) {
        Ok(made) => {
            let done = fill(made, name);
            if done.is_err() {
                // Half a file is worse than none. If it cannot be removed either, the first failure
                // still says what happened.
                let _ = extant_host::unlinkat(dir, name);
            }
            done
        }
        Err(Errno::EXIST) => {
            let there = extant_host::statx(dir, name).map_err(host("look at"))?;
            if HostType::from_raw_mode(there.stx_mode.into()) == HostType::Directory {
                return Err(Failure::Host(action, Errno::ISDIR));
            }
            let (made, aside) = create_aside(&create).map_err(host(action))?;
            let done = fill(made, &aside)
                .and_then(|()| extant_host::renameat(dir, &aside, name).map_err(host("replace")));
            // Gone by the rename, unless that failed, or found the same file under both names.
            let _ = extant_host::unlinkat(dir, &aside);
            done
        }
        Err(errno) => Err(Failure::Host(action, errno)),
    }
}

/// Makes something under a name that nothing else has.
fn create_aside<T>(create: &impl Fn(&[u8]) -> Result<T, Errno>) -> Result<(T, Vec<u8>), Errno> {
    for _ in 0..TRIES {
        // Keys of hash tables are random, and another's each time.
        let number = RandomState::new().build_hasher().finish();
        let name = format!(".extant-cp-{number:016x}").into_bytes();
        match create(&name) {
            Ok(made) => return Ok((made, name)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

pub(super) fn write_all_at(file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut rest = bytes;
    let mut at = offset;
    while !rest.is_empty() {
        match rustix::io::pwrite(file, rest, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                rest = rest.get(n..).unwrap_or(&[]);
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
