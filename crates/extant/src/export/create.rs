//! Making one file and giving it what it had.

use super::plan::{Item, Plan};
use super::target::OpenDirs;
use super::{Preserve, Report};
use crate::{Cause, Error, FileType};
use extant_core::fs::Fs;
use extant_core::inode::{Inode, Timestamp};
use extant_core::ops;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{
    AtFlags, FileType as HostType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ops::ControlFlow;
use std::path::Path;

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;
/// What a file may be used for while it is being made: by its maker only.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// What one thread works with.
pub(super) struct Maker<'a> {
    pub(super) fs: &'a Fs,
    pub(super) plan: &'a Plan,
    pub(super) preserve: Preserve,
    pub(super) devices: bool,
    /// The destination's path, for messages.
    pub(super) dest: &'a Path,
    /// Bytes of content that may still be written.
    pub(super) data_left: u64,
    pub(super) is_root: bool,
    pub(super) buffer: Vec<u8>,
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
        Self::Image(Cause::Engine(e))
    }
}

fn host(action: &'static str) -> impl Fn(Errno) -> Failure {
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
    /// Makes a file that is no directory. Returns the bytes of content written.
    pub(super) fn item(&mut self, dirs: &mut OpenDirs<'_>, item: &Item) -> Result<u64, Failure> {
        let inode = self.fs.inode(item.ino)?;
        let before = self.report.bytes;
        let dir = dirs
            .get(item.place.dir)
            .map_err(host("open the directory of"))?;
        let name = self.plan.name(item.place.name);
        match inode.file_type() {
            FileType::Regular => self.regular(dir, name, &inode)?,
            FileType::Symlink => self.symlink(dir, name, &inode)?,
            FileType::Directory => return Err(Failure::Image(Cause::DirectoryTwice)),
            _ => self.special(dir, name, &inode)?,
        }
        Ok(self.report.bytes - before)
    }

    /// What a failure is called, for the report.
    pub(super) fn problem(&mut self, item: &Item, failure: Failure) {
        let problem = match failure {
            Failure::Image(cause) => Error::new(self.plan.image_path(item.place), cause),
            Failure::Host(action, errno) => {
                let path = self.dest.join(self.plan.below(item.place));
                Error::host(action, path, errno)
            }
        };
        self.report.problem(problem);
    }

    fn regular(&mut self, dir: BorrowedFd<'_>, name: &[u8], inode: &Inode) -> Result<(), Failure> {
        // Refused before anything is made.
        ops::read(self.fs, inode, 0, &mut [])?;
        let mode = if self.preserve.mode {
            PRIVATE
        } else {
            permissions(inode) | Mode::WUSR
        };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = || rustix::fs::openat(dir, name, flags, mode);
        let file = replacing(dir, name, make).map_err(host("create"))?;
        let done = self
            .content(file.as_fd(), inode)
            .and_then(|()| self.attributes(file.as_fd(), inode));
        if done.is_err() {
            // Half a file is worse than none. If it cannot be removed either, the first failure
            // still says what happened.
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        } else {
            self.report.files += 1;
        }
        done
    }

    /// Copies the content; what has no blocks stays a hole.
    fn content(&mut self, file: BorrowedFd<'_>, inode: &Inode) -> Result<(), Failure> {
        let size = inode.size();
        let mut end = 0;
        for piece in ops::extents(self.fs, inode) {
            let piece = piece?;
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
                let len = (stop - at).min(CHUNK as u64) as usize;
                if self.buffer.len() < len {
                    self.buffer.resize(len.next_power_of_two().min(CHUNK), 0);
                }
                let Some(buffer) = self.buffer.get_mut(..len) else {
                    break;
                };
                let read = ops::read(self.fs, inode, at, buffer)?;
                let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
                    break;
                };
                write_all_at(file, bytes, at).map_err(host("write"))?;
                at += read as u64;
            }
            end = at;
            self.report.bytes += at - piece.offset;
        }
        if end < size {
            rustix::fs::ftruncate(file, size).map_err(host("set the size of"))?;
        }
        Ok(())
    }

    fn symlink(&mut self, dir: BorrowedFd<'_>, name: &[u8], inode: &Inode) -> Result<(), Failure> {
        let target = self.fs.read_link(inode)?;
        let make = || rustix::fs::symlinkat(&target[..], dir, name);
        replacing(dir, name, make).map_err(host("create the symbolic link"))?;
        self.attributes_by_name(dir, name, inode)?;
        self.report.symlinks += 1;
        Ok(())
    }

    fn special(&mut self, dir: BorrowedFd<'_>, name: &[u8], inode: &Inode) -> Result<(), Failure> {
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
        let mode = if self.preserve.mode {
            PRIVATE
        } else {
            permissions(inode)
        };
        let make = || rustix::fs::mknodat(dir, name, kind, mode, number);
        replacing(dir, name, make).map_err(host("create the special file"))?;
        self.attributes_by_name(dir, name, inode)?;
        if self.preserve.mode {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(dir, name, flags, Mode::empty());
            let fd = opened.map_err(host("set the mode of"))?;
            // The mode of a descriptor that only names a file is set through its link in /proc.
            let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
            rustix::fs::chmod(&*link, self.kept_mode(inode, false))
                .map_err(host("set the mode of"))?;
            self.times_by_name(dir, name, inode)?;
        }
        self.report.specials += 1;
        Ok(())
    }

    /// Gives an open file or directory owner, mode, extended attributes and times.
    pub(super) fn attributes(
        &mut self,
        file: BorrowedFd<'_>,
        inode: &Inode,
    ) -> Result<(), Failure> {
        let mut owner_lost = false;
        if self.preserve.owner {
            let (uid, gid) = owner(inode);
            match rustix::fs::fchown(file, Some(uid), Some(gid)) {
                Ok(()) => {}
                Err(Errno::PERM) if !self.is_root => owner_lost = true,
                Err(errno) => return Err(Failure::Host("set the owner of", errno)),
            }
            self.report.owners_not_kept += u64::from(owner_lost);
        }
        if self.preserve.mode {
            rustix::fs::fchmod(file, self.kept_mode(inode, owner_lost))
                .map_err(host("set the mode of"))?;
        }
        if self.preserve.xattrs {
            self.xattrs(inode, |name, value| {
                rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
            })?;
        }
        if self.preserve.times {
            rustix::fs::futimens(file, &times(inode)).map_err(host("set the times of"))?;
        }
        Ok(())
    }

    /// Gives a symbolic link or special file owner, extended attributes and times.
    fn attributes_by_name(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        inode: &Inode,
    ) -> Result<(), Failure> {
        if self.preserve.owner {
            let (uid, gid) = owner(inode);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            match rustix::fs::chownat(dir, name, Some(uid), Some(gid), flags) {
                Ok(()) => {}
                Err(Errno::PERM) if !self.is_root => self.report.owners_not_kept += 1,
                Err(errno) => return Err(Failure::Host("set the owner of", errno)),
            }
        }
        if self.preserve.xattrs {
            // Through the directory's link in /proc; the last name is not followed.
            let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
            path.extend_from_slice(name);
            self.xattrs(inode, |name, value| {
                rustix::fs::lsetxattr(&path[..], name, value, XattrFlags::empty())
            })?;
        }
        self.times_by_name(dir, name, inode)
    }

    fn times_by_name(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        inode: &Inode,
    ) -> Result<(), Failure> {
        if self.preserve.times {
            rustix::fs::utimensat(dir, name, &times(inode), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(host("set the times of"))?;
        }
        Ok(())
    }

    /// The mode to set. Whoever could not be given the owner is not given the owner's powers.
    fn kept_mode(&self, inode: &Inode, owner_lost: bool) -> Mode {
        let bits = inode.disk().mode.permissions();
        let kept = if owner_lost { bits & 0o1777 } else { bits };
        Mode::from_raw_mode(kept.into())
    }

    fn xattrs(
        &mut self,
        inode: &Inode,
        set: impl Fn(&[u8], &[u8]) -> rustix::io::Result<()>,
    ) -> Result<(), Failure> {
        if inode.xattr_region().is_empty() && inode.disk().file_acl.get() == 0 {
            return Ok(());
        }
        let mut denied = 0;
        let failed = ops::for_each_xattr(self.fs, inode, |name, value| match set(name, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(Errno::PERM) if !self.is_root && !name.starts_with(b"user.") => {
                denied += 1;
                ControlFlow::Continue(())
            }
            Err(errno) => ControlFlow::Break(errno),
        })?;
        self.report.xattrs_not_kept += denied;
        match failed {
            Some(errno) => Err(Failure::Host("set the extended attributes of", errno)),
            None => Ok(()),
        }
    }
}

/// Makes something that must be new. What stands in its place makes room, unless it is a directory:
/// writing into what is there already could go through a link to somewhere else.
fn replacing<T>(
    dir: BorrowedFd<'_>,
    name: &[u8],
    make: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match make() {
        Err(Errno::EXIST) => match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => make(),
            Err(Errno::PERM | Errno::ISDIR) => Err(Errno::ISDIR),
            Err(errno) => Err(errno),
        },
        made => made,
    }
}

fn write_all_at(file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Result<(), Errno> {
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

fn owner(inode: &Inode) -> (Uid, Gid) {
    (
        Uid::from_raw(inode.disk().uid),
        Gid::from_raw(inode.disk().gid),
    )
}

/// Permissions without set-id and sticky bits.
pub(super) fn permissions(inode: &Inode) -> Mode {
    Mode::from_raw_mode((inode.disk().mode.permissions() & 0o777).into())
}

fn times(inode: &Inode) -> Timestamps {
    let spec = |time: Timestamp| Timespec {
        tv_sec: time.secs,
        tv_nsec: time.nanos.into(),
    };
    Timestamps {
        last_access: spec(inode.disk().atime),
        last_modification: spec(inode.disk().mtime),
    }
}
