//! Reading the bytes of a regular file.
//!
//! Many threads read at once: an open file carries no position, every read says where. A file of
//! a directory source is opened beneath the source's root without following any symbolic link,
//! compared with what the scan saw, and can be compared again after the last read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::builder::{FLAGS_LATER, settable_flags};
use super::error::{SourceError, SourceResult};
use super::image::ImageFiles;
use super::model::{DataExtent, Extents, FileType, NodeId, Tree};
use super::root::Root;
use super::rows::Origin;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// What is open for as long as a tree lives.
#[derive(Debug)]
pub(crate) enum DataStore {
    /// Nothing: all data is in the tree.
    Memory,
    /// The root of a directory source.
    Directory(Root),
    /// The archive itself, which has a stamp, or the file its data was spooled to.
    Archive {
        file: Arc<File>,
        path: PathBuf,
        stamp: Option<Stamp>,
    },
    /// An image, which something else reads.
    Image {
        files: Arc<dyn ImageFiles>,
        name: PathBuf,
    },
}

impl DataStore {
    /// Compares an archive that is read in place, or an image, with what it was.
    fn check(&self) -> SourceResult<()> {
        if let Self::Image { files, name } = self {
            let checked = files.check();
            return checked.map_err(|e| SourceError::io("go on reading", name, e));
        }
        let Self::Archive {
            file,
            path,
            stamp: Some(stamp),
        } = self
        else {
            return Ok(());
        };
        let found = Stamp::of(file).map_err(|e| SourceError::io("stat", path, e))?;
        let changed = |field, found, expected| {
            Err(SourceError::Changed {
                path: path.clone(),
                field,
                found,
                expected,
            })
        };
        if found.size != stamp.size {
            return changed("size", found.size.to_string(), stamp.size.to_string());
        }
        if found.mtime != stamp.mtime {
            let text = |(sec, nsec): (i64, u32)| format!("{sec}.{nsec:09}");
            return changed("modification time", text(found.mtime), text(stamp.mtime));
        }
        Ok(())
    }
}

/// What an archive that is read in place had when its reading began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    size: u64,
    mtime: (i64, u32),
}

impl Stamp {
    /// The stamp that a file has now.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Self {
            size: stat.st_size.max(0) as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        })
    }
}

/// Flags of files that were opened, by node; of a source that is no directory there are none.
#[derive(Debug, Default)]
pub(crate) struct LateFlags(Box<[AtomicU32]>);

impl LateFlags {
    /// Beside the flags: they are known.
    const KNOWN: u32 = 1 << 31;

    /// For so many nodes, of none of which they are known.
    pub(crate) fn of(nodes: usize) -> Self {
        Self((0..nodes).map(|_| AtomicU32::new(0)).collect())
    }

    fn set(&self, id: NodeId, flags: u32) {
        if let Some(slot) = self.0.get(id.index()) {
            slot.store(flags | Self::KNOWN, Ordering::Relaxed);
        }
    }

    fn get(&self, id: NodeId) -> Option<u32> {
        let slot = self.0.get(id.index())?.load(Ordering::Relaxed);
        (slot & Self::KNOWN != 0).then_some(slot & !Self::KNOWN)
    }
}

/// The flags of an open file. A file system without them says so in many ways.
fn flags_of(file: &File) -> u32 {
    let flags = rustix::fs::ioctl_getflags(file).map_or(0, |flags| flags.bits());
    settable_flags(FileType::Regular, flags & !LateFlags::KNOWN)
}

/// The data of one regular file, open for reading at any offset by any number of threads.
#[derive(Debug)]
pub struct FileData<'t> {
    tree: &'t Tree,
    node: NodeId,
    from: From<'t>,
}

#[derive(Debug)]
enum From<'t> {
    Nothing,
    Memory(&'t [u8]),
    Own(File),
    Shared(&'t File),
    Image(&'t dyn ImageFiles, u32),
}

impl Tree {
    /// Opens the data of a regular file (of anything else: nothing to read).
    ///
    /// One file descriptor is held for each open file of a directory source, none otherwise.
    ///
    /// # Errors
    ///
    /// [`SourceError::Vanished`] if the path is gone or another file now,
    /// [`SourceError::Changed`] if size or modification time differ from the scan,
    /// [`SourceError::Io`] if it cannot be opened.
    pub fn open(&self, id: NodeId) -> SourceResult<FileData<'_>> {
        let from = match (self.file_row(id).map(|row| row.origin), self.store_of(id)) {
            (Some(Origin::Inline { .. }), _) => From::Memory(&self.rows.inline),
            (Some(Origin::Archive { .. }), Some(DataStore::Archive { file, .. })) => {
                From::Shared(file)
            }
            (Some(Origin::Image { ino }), Some(DataStore::Image { files, .. })) => {
                From::Image(&**files, ino)
            }
            (Some(Origin::Path { .. }), Some(DataStore::Directory(root))) => {
                let file = root.open_file(&self.source_parts(id))?;
                if self.node(id).flags == FLAGS_LATER {
                    self.late_flags.set(id, flags_of(&file));
                }
                From::Own(file)
            }
            _ => From::Nothing,
        };
        let data = FileData {
            tree: self,
            node: id,
            from,
        };
        data.check_unchanged()?;
        Ok(data)
    }

    /// Finds out the flags of `chattr` of a node, as `FS_IOC_GETFLAGS` numbers them: those that a
    /// user can set on ext4.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open), for a file that was not opened before.
    pub fn flags(&self, id: NodeId) -> SourceResult<u32> {
        let flags = self.node(id).flags;
        if flags != FLAGS_LATER {
            return Ok(flags);
        }
        if let Some(flags) = self.late_flags.get(id) {
            return Ok(flags);
        }
        self.open(id)?;
        Ok(self.late_flags.get(id).unwrap_or(0))
    }

    /// Finds out the flags of all nodes, in parallel, so that [`flags`](Self::flags) opens nothing
    /// from now on.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open), for any regular file.
    pub(crate) fn settle_flags(&self) -> SourceResult<()> {
        let nodes = 0..self.len() as u32;
        extant_host::side_by_side(|| {
            nodes
                .into_par_iter()
                .try_for_each(|index| self.flags(NodeId::from_index(index)).map(drop))
        })
    }

    /// Compares archives that are read in place, and images, with what they were.
    ///
    /// # Errors
    ///
    /// [`SourceError::Changed`] if its size or modification time differ, [`SourceError::Io`] if it
    /// cannot be asked.
    pub(crate) fn check_archive(&self) -> SourceResult<()> {
        self.stores.iter().try_for_each(DataStore::check)
    }

    /// Compares the archive that has the data of a file with what it was, if it is read in place.
    ///
    /// # Errors
    ///
    /// Those of [`check_archive`](Self::check_archive).
    pub(crate) fn check_archive_of(&self, id: NodeId) -> SourceResult<()> {
        self.store_of(id).map_or(Ok(()), DataStore::check)
    }

    /// Reads one piece of a regular file: [`open`](Self::open) and
    /// [`read_at`](FileData::read_at) in one call, for callers that need no more of it.
    ///
    /// # Errors
    ///
    /// Those of the two.
    pub fn read_at(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> SourceResult<()> {
        self.open(id)?.read_at(offset, buf)
    }
}

impl<'t> FileData<'t> {
    /// Returns the node this is the data of.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.tree.node(self.node).size
    }

    /// Returns the stored runs, see [`Tree::extents`].
    #[must_use]
    pub fn extents(&self) -> Extents<'t> {
        self.tree.extents(self.node)
    }

    /// Returns the open file that [`DataExtent::at`] counts in, for callers with their own way of
    /// reading (large, vectored or asynchronous). `None` if the data is in memory or in an image,
    /// or there is none. A read that ends before the end of an extent means the file has shrunk:
    /// call [`check_unchanged`](Self::check_unchanged) for the error.
    #[must_use]
    pub const fn file(&self) -> Option<&File> {
        match &self.from {
            From::Own(file) => Some(file),
            From::Shared(file) => Some(file),
            From::Nothing | From::Memory(_) | From::Image(..) => None,
        }
    }

    /// Fills `buf` with the file's bytes from `offset`. Holes, and what lies past the end of the
    /// file, read as zeros.
    ///
    /// # Errors
    ///
    /// [`SourceError::Changed`] if the file is shorter than it was, [`SourceError::Io`] if it
    /// cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> SourceResult<()> {
        let end = offset.saturating_add(buf.len() as u64);
        let mut done = offset;
        for extent in self.extents_from(offset) {
            let from = extent.logical.max(done);
            let to = extent.logical.saturating_add(extent.len).min(end);
            if from >= to {
                if extent.logical >= end {
                    break;
                }
                continue;
            }
            buf[(done - offset) as usize..(from - offset) as usize].fill(0);
            let piece = &mut buf[(from - offset) as usize..(to - offset) as usize];
            self.read_stored(extent.at.saturating_add(from - extent.logical), piece)?;
            done = to;
        }
        buf[(done - offset) as usize..].fill(0);
        Ok(())
    }

    /// The extents that end after `offset`, found without walking those before.
    fn extents_from(&self, offset: u64) -> impl Iterator<Item = DataExtent> + use<'t> {
        self.tree.extents_after(self.node, offset)
    }

    /// Reads stored bytes at their place in the file or arena.
    fn read_stored(&self, at: u64, buf: &mut [u8]) -> SourceResult<()> {
        let result = match &self.from {
            From::Nothing => Err(io::ErrorKind::UnexpectedEof.into()),
            From::Memory(bytes) => usize::try_from(at)
                .ok()
                .and_then(|at| bytes.get(at..at.checked_add(buf.len())?))
                .map(|bytes| buf.copy_from_slice(bytes))
                .ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
            From::Own(file) => file.read_exact_at(buf, at),
            From::Shared(file) => file.read_exact_at(buf, at),
            From::Image(files, ino) => files.read_at(*ino, at, buf),
        };
        result.map_err(|error| self.read_error(at, buf.len(), error))
    }

    fn read_error(&self, at: u64, len: usize, error: io::Error) -> SourceError {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            if let Err(changed) = self.check_unchanged() {
                return changed;
            }
            if let Some(found) = self.file().and_then(|f| f.metadata().ok()) {
                return SourceError::Changed {
                    path: self.full_path(),
                    field: "size",
                    found: found.len().to_string(),
                    expected: format!("at least {}", at.saturating_add(len as u64)),
                };
            }
        }
        SourceError::io("read", &self.full_path(), error)
    }

    /// Compares the open file with what the scan saw. Called by [`Tree::open`]; call it again
    /// after the last read, to know that what was read is one state of the file.
    ///
    /// # Errors
    ///
    /// [`SourceError::Vanished`] if it is another file, [`SourceError::Changed`] if size or
    /// modification time differ, [`SourceError::Io`] if the file cannot be asked.
    pub fn check_unchanged(&self) -> SourceResult<()> {
        let From::Own(file) = &self.from else {
            return Ok(());
        };
        let Some(Origin::Path {
            dev,
            ino,
            mtime_sec,
            mtime_nsec,
        }) = self.tree.file_row(self.node).map(|row| row.origin)
        else {
            return Ok(());
        };
        let stat =
            rustix::fs::fstat(file).map_err(|e| SourceError::io("stat", &self.full_path(), e))?;
        if (stat.st_dev, stat.st_ino) != (dev, ino) {
            return Err(SourceError::Vanished {
                path: self.full_path(),
                found: format!(
                    "inode {} of device {} is there, was inode {ino} of device {dev}",
                    stat.st_ino, stat.st_dev
                ),
            });
        }
        let changed = |field, found: String, expected: String| {
            Err(SourceError::Changed {
                path: self.full_path(),
                field,
                found,
                expected,
            })
        };
        let size = stat.st_size.max(0) as u64;
        if size != self.size() {
            return changed("size", size.to_string(), self.size().to_string());
        }
        let (sec, nsec) = (stat.st_mtime, stat.st_mtime_nsec as u32);
        if (sec, nsec) != (mtime_sec, mtime_nsec) {
            return changed(
                "modification time",
                format!("{sec}.{nsec:09}"),
                format!("{mtime_sec}.{mtime_nsec:09}"),
            );
        }
        Ok(())
    }

    /// The path a person would look for: in the directory source, or in the archive.
    fn full_path(&self) -> PathBuf {
        match self.tree.store_of(self.node) {
            None | Some(DataStore::Memory) => self.tree.path(self.node),
            Some(DataStore::Directory(root)) => root.full_path(&self.tree.source_parts(self.node)),
            Some(DataStore::Archive { path, .. } | DataStore::Image { name: path, .. }) => {
                path.join(self.tree.path(self.node))
            }
        }
    }
}
