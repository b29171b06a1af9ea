//! One of the two trees: its directories, and what is known of its files.

use super::{Which, host};
use crate::path::LastLink;
use crate::read_dir::{Listing, is_sound_name, join};
use crate::{Cause, DeviceNumber, Error, FileType, Filesystem, Result, Timestamp};
use extant_core::inode::Inode;
use extant_core::ops;
use extant_format::Ino;
use extant_format::inode::InodeFlags;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

enum List {
    Image(Listing),
    Host(host::Directory),
}

impl Names {
    pub(super) fn len(&self) -> usize {
        match &self.list {
            List::Image(listing) => listing.len(),
            List::Host(dir) => dir.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        match &self.list {
            List::Image(listing) => listing.get(index).map(|(name, _)| name),
            List::Host(dir) => dir.get(index),
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
    /// or `pseudo` show, where this process runs under one of them. On systems other than Linux
    /// comparing with it fails.
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
            Tree::Host => return host::begin(&self.start),
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
            _ => match host::Directory::read(path) {
                Ok(dir) => (List::Host(dir), None),
                Err(error) => (List::Image(Listing::default()), Some(error)),
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
    ) -> Result<Option<Found>> {
        match (&self.tree, &names.list) {
            (Tree::Image(fs), List::Image(listing)) => {
                let ino = listing.get(index).map_or(Ino::new(0), |(_, ino)| ino);
                let inode = fs.fs().named_inode(ino);
                let inode = inode.map_err(|e| Error::engine(names.path_of(name), e))?;
                Ok(Some(Found::of_inode(fs, inode)))
            }
            (_, List::Host(dir)) => dir.look(name, || names.path_of(name), xattrs_matter),
            // The host has lists of the host.
            (Tree::Host, List::Image(_)) => {
                let why = std::io::ErrorKind::NotFound;
                Err(Error::host("look at", names.path_of(name), why))
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
            _ => host::target(path),
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
            _ => host::xattrs(path, &mut all)?,
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
