//! Opening files beneath the root of a directory source.
//!
//! Every path is resolved from the root's descriptor without following a symbolic link, so
//! that renames during the scan cannot lead outside, and in pieces below the system's limit, so
//! that depth does not matter. Nothing but the root stays open.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::error::{SourceError, SourceResult};

/// Longest relative path given to the kernel at once; `PATH_MAX` is 4096 with the final NUL.
const PIECE_MAX: usize = 4000;

/// The open root of a directory source.
#[derive(Debug)]
pub(crate) struct Root {
    fd: OwnedFd,
    path: PathBuf,
}

impl Root {
    /// Opens `path`, which may be a symbolic link to a directory.
    pub(crate) fn open(path: &Path) -> SourceResult<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = extant_host::open(path, flags, Mode::empty())
            .map_err(|e| SourceError::io("open", path, e))?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// The path of the file at `parts`, for an error.
    pub(crate) fn full_path(&self, parts: &[&[u8]]) -> PathBuf {
        parts.iter().fold(self.path.clone(), |path, part| {
            path.join(OsStr::from_bytes(part))
        })
    }

    /// Opens the directory at `parts` for listing.
    pub(crate) fn open_dir(&self, parts: &[&[u8]]) -> SourceResult<OwnedFd> {
        self.open_at(parts, OFlags::DIRECTORY)
            .map_err(|e| self.open_error(parts, e))
    }

    /// Opens the regular file at `parts` for reading.
    pub(crate) fn open_file(&self, parts: &[&[u8]]) -> SourceResult<File> {
        // Should a fifo have taken the file's place, opening it must not wait for a writer.
        self.open_at(parts, OFlags::NONBLOCK)
            .map(File::from)
            .map_err(|e| self.open_error(parts, e))
    }

    fn open_error(&self, parts: &[&[u8]], errno: Errno) -> SourceError {
        let path = self.full_path(parts);
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO => SourceError::Vanished {
                path,
                found: match errno {
                    Errno::NOENT => "no such file".to_owned(),
                    Errno::LOOP => "a symbolic link is in its place".to_owned(),
                    _ => std::io::Error::from(errno).to_string(),
                },
            },
            _ => SourceError::io("open", &path, errno),
        }
    }

    fn open_at(&self, parts: &[&[u8]], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut above: Option<OwnedFd> = None;
        let mut rest = parts;
        loop {
            let (piece, after) = split_piece(rest);
            let from = above.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            if after.is_empty() {
                return open_last(from, piece, flags | OFlags::RDONLY);
            }
            above = Some(open_beneath(from, piece, OFlags::PATH | OFlags::DIRECTORY)?);
            rest = after;
        }
    }
}

/// As many leading parts as the kernel takes at once.
fn split_piece<'a, 'p>(parts: &'a [&'p [u8]]) -> (&'a [&'p [u8]], &'a [&'p [u8]]) {
    let mut len = 0;
    let fits = parts
        .iter()
        .take_while(|part| {
            len += part.len() + 1;
            len <= PIECE_MAX
        })
        .count();
    parts.split_at(fits.max(1).min(parts.len()))
}

/// Opens without touching the access time where that is allowed (to the owner).
fn open_last(from: BorrowedFd<'_>, parts: &[&[u8]], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    match open_beneath(from, parts, flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open_beneath(from, parts, flags),
        other => other,
    }
}

fn open_beneath(
    from: BorrowedFd<'_>,
    parts: &[&[u8]],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if parts.is_empty() {
        return extant_host::openat(from, b".", flags, Mode::empty());
    }
    let path = parts.join(&b'/');
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
    match extant_host::openat2(from, &path, flags, resolve) {
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => open_each(from, parts, flags),
        other => other,
    }
}

/// Opens what lies below `from`, one component after the other.
fn open_each(from: BorrowedFd<'_>, parts: &[&[u8]], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let (last, dirs) = parts.split_last().ok_or(Errno::INVAL)?;
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut above: Option<OwnedFd> = None;
    for dir in dirs {
        let at = above.as_ref().map_or(from, AsFd::as_fd);
        above = Some(extant_host::openat(at, dir, step, Mode::empty())?);
    }
    let at = above.as_ref().map_or(from, AsFd::as_fd);
    extant_host::openat(at, last, flags, Mode::empty())
}
