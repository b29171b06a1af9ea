//! One of the two trees: its directories, and what is known of its files.

use super::Which;
use crate::path::LastLink;
use crate::read_dir::{Listing, is_sound_name, join};
use crate::{Cause, DeviceNumber, Error, FileType, Filesystem, Result, Timestamp};
use extant_core::inode::Inode;
use extant_core::ops;
use extant_format::Ino;
use extant_format::inode::InodeFlags;
use extant_host::Statx;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of entries of a directory that are read at once.
const NAMES_AT_ONCE: usize = 32 << 10;
/// The most that Linux returns of names, or of a value, of extended attributes.
const MOST_XATTRS: usize = 64 << 10;

/// A tree to be compared: at a path of an image, or of the host. A symbolic link at the end of the
/// path is followed.
#[derive(Clone, Debug)]
pub struct Side {
    pub(super) tree: Tree,
    start: PathBuf,
}

#[derive(Clone, Debug)]
pub(super) enum Tree {
    Image(Filesystem),
    Host,
}

/// What is known of a file.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) kind: FileType,
    pub(super) permissions: u16,
    pub(super) owner: (u32, u32),
    pub(super) size: u64,
    pub(super) modified: Timestamp,
    /// Whether times have more than whole seconds.
    pub(super) has_nanos: bool,
    pub(super) names: u64,
    pub(super) device: DeviceNumber,
    /// Device and inode number; of an image 0 and the inode number.
    pub(super) number: (u64, u64),
    /// What only images have.
    pub(super) inside: Option<Inside>,
    /// Whether it is known to have no extended attributes.
    pub(super) has_no_xattrs: bool,
}

/// What is known of a file of an image.
#[derive(Clone, Debug)]
pub(super) struct Inside {
    pub(super) inode: Arc<Inode>,
    pub(super) project: u32,
    pub(super) flags: InodeFlags,
}

/// A directory whose names were read, in the order of their bytes.
pub(super) struct Names {
    path: PathBuf,
    list: List,
}

/// Names in order.
#[derive(Default)]
pub(super) struct HostNames {
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

enum List {
    Image(Listing),
    Host(OwnedFd, HostNames),
}

impl Names {
    pub(super) fn len(&self) -> usize {
        match &self.list {
            List::Image(listing) => listing.len(),
            List::Host(_, names) => names.names.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        match &self.list {
            List::Image(listing) => listing.get(index).map(|(name, _)| name),
            List::Host(_, names) => names.get(index),
        }
    }

    /// Where the entry lies, for messages and for reading it again.
    pub(super) fn path_of(&self, name: &[u8]) -> PathBuf {
        join(&self.path, name)
    }

    /// What is wrong with the name at `index`, which is given: what has such a name may be reached
    /// by no path, or is another file than the name says.
    pub(super) fn check(&self, index: usize, name: &[u8], is_stored: bool) -> Result<()> {
        let before = index.checked_sub(1).and_then(|before| self.get(before));
        let cause = if before == Some(name) {
            Cause::NameTwice
        } else if !is_stored && !is_sound_name(name) {
            Cause::BadName
        } else {
            return Ok(());
        };
        Err(Error::new(self.path_of(name), cause))
    }
}

impl Side {
    /// Takes what is at and below a path of an image.
    #[must_use]
    pub fn image(fs: &Filesystem, path: impl AsRef<Path>) -> Self {
        Self {
            tree: Tree::Image(fs.clone()),
            start: path.as_ref().to_owned(),
        }
    }

    /// Takes what is at and below a path of the host. Owners and devices are those that `fakeroot`
    /// or `pseudo` show, where this process runs under one of them.
    #[must_use]
    pub fn host(path: impl AsRef<Path>) -> Self {
        Self {
            tree: Tree::Host,
            start: path.as_ref().to_owned(),
        }
    }

    /// The file system of an image.
    pub(super) fn filesystem(&self) -> Option<&Filesystem> {
        match &self.tree {
            Tree::Image(fs) => Some(fs),
            Tree::Host => None,
        }
    }

    /// Refuses callers that may not see everything, and sees to it that the device has what files
    /// hold.
    pub(super) fn prepare(&self) -> Result<()> {
        let Tree::Image(fs) = &self.tree else {
            return Ok(());
        };
        fs.check_sees_all(&self.start)?;
        fs.fs()
            .write_back()
            .map_err(|e| Error::engine(&*self.start, e))
    }

    /// Whether the start is the root of a file system of an image.
    pub(super) fn is_root(&self, start: &Found) -> bool {
        start
            .inside
            .as_ref()
            .is_some_and(|inside| inside.inode.ino() == Ino::ROOT)
    }

    /// The start, with what is known of it.
    pub(super) fn begin(&self) -> Result<(PathBuf, Found)> {
        let found = match &self.tree {
            Tree::Image(fs) => Found::of_inode(fs, fs.inode(&self.start, LastLink::Follow)?),
            Tree::Host => {
                let look = |path: &Path| {
                    let found = extant_host::statx(CWD, path.as_os_str().as_bytes());
                    found.map_err(|errno| Error::host("look at", path, errno))
                };
                let found = look(&self.start)?;
                if FileType::from_mode_bits(found.stx_mode) != Some(FileType::Symlink) {
                    return Ok((self.start.clone(), Found::of_host(&found)));
                }
                let end = std::fs::canonicalize(&self.start)
                    .map_err(|e| Error::host("look at", &*self.start, e))?;
                let found = look(&end)?;
                return Ok((end, Found::of_host(&found)));
            }
        };
        Ok((self.start.clone(), found))
    }

    /// Reads the names of a directory. Where it breaks, what came before is kept, with the error.
    pub(super) fn names(&self, path: &Path, dir: &Found) -> (Names, Option<Error>) {
        let (list, error) = match (&self.tree, &dir.inside) {
            (Tree::Image(fs), Some(inside)) => {
                let (listing, outcome) = Listing::read(fs.fs(), &inside.inode);
                let error = outcome.err().map(|e| Error::engine(path, e));
                (List::Image(listing), error)
            }
            _ => match host_names(path) {
                Ok((dir, names)) => (List::Host(dir, names), None),
                Err(errno) => {
                    let error = Error::host("read the directory", path, errno);
                    (List::Image(Listing::default()), Some(error))
                }
            },
        };
        let path = path.to_owned();
        (Names { path, list }, error)
    }

    /// Looks at an entry, whose name is given, and where it costs little at whether it has extended
    /// attributes, if they matter.
    pub(super) fn look(
        &self,
        names: &Names,
        index: usize,
        name: &[u8],
        xattrs_matter: bool,
    ) -> Result<Found> {
        match (&self.tree, &names.list) {
            (Tree::Image(fs), List::Image(listing)) => {
                let ino = listing.get(index).map_or(Ino::new(0), |(_, ino)| ino);
                let inode = fs.fs().named_inode(ino);
                let inode = inode.map_err(|e| Error::engine(names.path_of(name), e))?;
                Ok(Found::of_inode(fs, inode))
            }
            (_, List::Host(dir, _)) => match extant_host::statx(dir, name) {
                Ok(found) => {
                    // Where it cannot be told like this, they are read by path.
                    let has_none = || extant_host::has_no_xattrs(dir, name).unwrap_or(false);
                    Ok(Found {
                        has_no_xattrs: xattrs_matter && has_none(),
                        ..Found::of_host(&found)
                    })
                }
                Err(errno) => Err(Error::host("look at", names.path_of(name), errno)),
            },
            // The host has lists of the host.
            (Tree::Host, List::Image(_)) => {
                Err(Error::host("look at", names.path_of(name), Errno::NOENT))
            }
        }
    }

    /// Where a symbolic link leads.
    pub(super) fn target(&self, path: &Path, found: &Found) -> Result<Vec<u8>> {
        match (&self.tree, &found.inside) {
            (Tree::Image(fs), Some(inside)) => fs
                .fs()
                .read_link(&inside.inode)
                .map_err(|e| Error::engine(path, e)),
            _ => rustix::fs::readlinkat(CWD, path, Vec::new())
                .map(|target| target.into_bytes())
                .map_err(|errno| Error::host("read the symbolic link", path, errno)),
        }
    }

    /// Names and values of extended attributes, in the order of the names.
    pub(super) fn xattrs(&self, path: &Path, found: &Found) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        if found.has_no_xattrs {
            return Ok(all);
        }
        match (&self.tree, &found.inside) {
            (Tree::Image(fs), Some(inside)) => {
                let read = ops::for_each_xattr(fs.fs(), &inside.inode, |name, value| {
                    all.push((name.to_vec(), value.to_vec()));
                    std::ops::ControlFlow::<()>::Continue(())
                });
                read.map_err(|e| Error::engine(path, e))?;
            }
            _ => host_xattrs(path.as_os_str().as_bytes(), &mut all)
                .map_err(|errno| Error::host("read the attributes of", path, errno))?,
        }
        all.sort_unstable();
        Ok(all)
    }
}

impl Found {
    fn of_inode(fs: &Filesystem, inode: Arc<Inode>) -> Self {
        let found = inode.metadata(fs.fs().block_size());
        Self {
            kind: found.file_type,
            permissions: found.mode.permissions(),
            owner: (found.uid, found.gid),
            size: found.size,
            modified: found.mtime,
            has_nanos: found.crtime.is_some(),
            names: found.links.into(),
            device: found.device.unwrap_or_default(),
            number: (0, found.ino.get().into()),
            has_no_xattrs: inode.xattr_region().is_empty() && inode.disk().file_acl.get() == 0,
            inside: Some(Inside {
                inode,
                project: found.project.unwrap_or(0),
                flags: found.flags,
            }),
        }
    }

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

    pub(super) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether names in this directory are kept encrypted, and may be any bytes.
    pub(super) fn has_stored_names(&self) -> bool {
        let inside = self.inside.as_ref();
        inside.is_some_and(|inside| inside.flags.contains(InodeFlags::ENCRYPT))
    }
}

impl Which {
    /// That of two values which belongs to this side.
    pub(super) fn of<T>(self, first: T, second: T) -> T {
        match self {
            Self::First => first,
            Self::Second => second,
        }
    }
}

/// The names of a directory of the host, sorted.
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

/// Adds names and values of the extended attributes of a file of the host, which is not followed.
/// Where there can be none there are none.
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
