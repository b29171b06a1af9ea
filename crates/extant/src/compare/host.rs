//! Directories and files of the host, as a side of a comparison, on Linux.

use super::side::Found;
use crate::{DeviceNumber, Error, FileType, Result, Timestamp};
use extant_host::Statx;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of entries of a directory that are read at once.
const NAMES_AT_ONCE: usize = 32 << 10;
/// The most that Linux returns of names, or of a value, of extended attributes.
const MOST_XATTRS: usize = 64 << 10;

/// A directory whose names were read, in the order of their bytes.
pub(super) struct Directory {
    dir: OwnedFd,
    names: HostNames,
}

impl Directory {
    /// Reads the names.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let read = host_names(path);
        let (dir, names) = read.map_err(|e| Error::host("read the directory", path, e))?;
        Ok(Self { dir, names })
    }

    pub(super) fn len(&self) -> usize {
        self.names.names.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        self.names.get(index)
    }

    /// Looks at an entry; see `Side::look`. There is none if it went after its name was read.
    pub(super) fn look(
        &self,
        name: &[u8],
        path: impl FnOnce() -> PathBuf,
        xattrs_matter: bool,
    ) -> Result<Option<Found>> {
        match extant_host::statx(&self.dir, name) {
            Ok(found) => {
                // Where it cannot be told like this, they are read by path.
                let has_none = || extant_host::has_no_xattrs(&self.dir, name).unwrap_or(false);
                Ok(Some(Found {
                    has_no_xattrs: xattrs_matter && has_none(),
                    ..Found::of_host(&found)
                }))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::host("look at", path(), errno)),
        }
    }
}

/// Names in order.
#[derive(Default)]
struct HostNames {
    bytes: Vec<u8>,
    /// Where each begins, and its length.
    names: Vec<(usize, u16)>,
}

impl HostNames {
    fn get(&self, index: usize) -> Option<&[u8]> {
        self.names.get(index).map(|name| self.name(*name))
    }

    fn name(&self, (at, len): (usize, u16)) -> &[u8] {
        self.bytes.get(at..at + usize::from(len)).unwrap_or(&[])
    }
}

/// The file at the start, with what is known of it.
pub(super) fn begin(start: &Path) -> Result<(PathBuf, Found)> {
    let look = |path: &Path| {
        let found = extant_host::statx(CWD, path.as_os_str().as_bytes());
        found.map_err(|errno| Error::host("look at", path, errno))
    };
    let found = look(start)?;
    if FileType::from_mode_bits(found.stx_mode) != Some(FileType::Symlink) {
        return Ok((start.to_owned(), Found::of_host(&found)));
    }
    let end = std::fs::canonicalize(start).map_err(|e| Error::host("look at", start, e))?;
    let found = look(&end)?;
    Ok((end, Found::of_host(&found)))
}

/// Where a symbolic link leads.
pub(super) fn target(path: &Path) -> Result<Vec<u8>> {
    rustix::fs::readlinkat(CWD, path, Vec::new())
        .map(|target| target.into_bytes())
        .map_err(|errno| Error::host("read the symbolic link", path, errno))
}

/// Adds names and values of the extended attributes of a file, which is not followed.
pub(super) fn xattrs(path: &Path, all: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    host_xattrs(path.as_os_str().as_bytes(), all)
        .map_err(|errno| Error::host("read the attributes of", path, errno))
}

impl Found {
    fn of_host(found: &Statx) -> Self {
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        Self {
            // The system has no other kinds.
            kind: FileType::from_mode_bits(found.stx_mode).unwrap_or(FileType::Regular),
            permissions: found.stx_mode & 0o7777,
            owner: (found.stx_uid, found.stx_gid),
            size: found.stx_size,
            modified: Timestamp {
                secs: found.stx_mtime.tv_sec,
                nanos: found.stx_mtime.tv_nsec,
            },
            has_nanos: true,
            names: found.stx_nlink.into(),
            device: DeviceNumber {
                major: found.stx_rdev_major,
                minor: found.stx_rdev_minor,
            },
            number: (device, found.stx_ino),
            inside: None,
            has_no_xattrs: false,
        }
    }
}

/// A file to read.
pub(super) struct Reading<'a> {
    path: &'a Path,
    file: OwnedFd,
}

impl<'a> Reading<'a> {
    pub(super) fn open(path: &'a Path, found: &Found) -> Result<Self> {
        let failed = |errno| Error::host("open", path, errno);
        // Should a pipe have taken the file's place, opening it does not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = extant_host::open(path, flags, Mode::empty()).map_err(failed)?;
        let now = rustix::fs::fstat(&file).map_err(failed)?;
        if now.st_ino != found.number.1 || now.st_size.cast_unsigned() != found.size {
            let changed = std::io::Error::other("it was changed while it was compared");
            return Err(Error::host("compare", path, changed));
        }
        Ok(Self { path, file })
    }

    pub(super) fn path(&self) -> &Path {
        self.path
    }

    /// Reads some bytes from `at` on.
    pub(super) fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        loop {
            match rustix::io::pread(&self.file, &mut *buffer, at) {
                Err(Errno::INTR) => {}
                read => return read.map_err(|errno| Error::host("read", self.path, errno)),
            }
        }
    }

    /// The first byte at or behind `at` that may be another than zero.
    pub(super) fn seek_data(&self, at: u64) -> Result<Option<u64>> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // Some file systems do not know their holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
            Err(errno) => Err(Error::host("read", self.path, errno)),
        }
    }
}

/// The names of a directory, sorted.
fn host_names(path: &Path) -> std::result::Result<(OwnedFd, HostNames), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = extant_host::open(path, flags, Mode::empty())?;
    let mut all = HostNames::default();
    let mut buffer = Vec::with_capacity(NAMES_AT_ONCE);
    let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        // The system has no longer ones.
        if let (false, Ok(len)) = (matches!(name, b"." | b".."), u16::try_from(name.len())) {
            all.names.push((all.bytes.len(), len));
            all.bytes.extend_from_slice(name);
        }
    }
    let mut names = std::mem::take(&mut all.names);
    names.sort_unstable_by(|one, other| all.name(*one).cmp(all.name(*other)));
    all.names = names;
    Ok((dir, all))
}

/// Reads them as `xattrs` says. Where there can be none there are none.
fn host_xattrs(path: &[u8], all: &mut Vec<(Vec<u8>, Vec<u8>)>) -> std::result::Result<(), Errno> {
    // Most files have none, or some short ones.
    let mut names = vec![0; 1024];
    let len = loop {
        match extant_host::llistxattr(path, &mut names) {
            Ok(len) => break len,
            Err(Errno::NOTSUP) => return Ok(()),
            Err(Errno::RANGE) if names.len() < MOST_XATTRS => names.resize(MOST_XATTRS, 0),
            Err(errno) => return Err(errno),
        }
    };
    let names = names.get(..len).unwrap_or(&[]);
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let mut value = Vec::new();
    for name in names {
        value.resize(MOST_XATTRS, 0);
        match extant_host::lgetxattr(path, name, &mut value) {
            Ok(len) => all.push((name.to_vec(), value.get(..len).unwrap_or(&[]).to_vec())),
            // Gone meanwhile.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
