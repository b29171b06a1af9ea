//! Listing one directory.

use crate::path::LastLink;
use crate::{Error, Filesystem, Metadata, Result};
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Held, Inode, InodeId};
use extant_core::ops::{self, Cookie, OpenFor};
use extant_format::Ino;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Entries taken from the directory at once.
const BATCH: usize = 512;

/// The entries of one directory, without `.` and `..`, in the order they are stored in.
///
/// A corrupt block gives an error, after the entries before it; the listing is then over.
pub struct ReadDir {
    fs: Filesystem,
    /// Kept while it is listed, so that its blocks stay its own.
    held: Held,
    path: Arc<Path>,
    batch: std::vec::IntoIter<DirEntry>,
    next: Cookie,
    state: State,
}

enum State {
    More,
    Failed(Error),
    Done,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.path).finish()
    }
}

impl ReadDir {
    pub(crate) fn new(fs: &Filesystem, held: Held, path: &Path) -> Result<Self> {
        if !held.snapshot().is_dir() {
            return Err(Error::engine(path, extant_core::Error::NotADirectory));
        }
        Ok(Self {
            fs: fs.clone(),
            held,
            path: path.into(),
            batch: Vec::new().into_iter(),
            next: Cookie::START,
            state: State::More,
        })
    }

    /// Takes the next entries from the directory.
    fn fill(&mut self) {
        let mut batch = Vec::new();
        let mut next = self.next;
        let dir = self.held.snapshot();
        let outcome = ops::readdir(self.fs.fs(), &dir, self.next, |entry| {
            next = entry.next;
            if entry.name != b"." && entry.name != b".." {
                batch.push(DirEntry {
                    fs: self.fs.clone(),
                    dir: Arc::clone(&self.path),
                    dir_id: dir.id(),
                    name: OsString::from_vec(entry.name.to_vec()),
                    ino: entry.ino,
                    file_type: entry.file_type,
                });
            }
            if batch.len() < BATCH {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        self.next = next;
        self.state = match outcome {
            Ok(Some(())) => State::More,
            Ok(None) => State::Done,
            Err(e) => State::Failed(Error::engine(&*self.path, e)),
        };
        self.batch = batch.into_iter();
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.batch.next() {
                return Some(Ok(entry));
            }
            match std::mem::replace(&mut self.state, State::Done) {
                State::More => self.fill(),
                State::Failed(e) => return Some(Err(e)),
                State::Done => return None,
            }
        }
    }
}

impl Filesystem {
    /// Calls `visit` with the name, the inode number and, where the directory says it, the type of
    /// each entry of a directory, without `.` and `..`, until it breaks. Symbolic links are
    /// followed. Nothing is kept of an entry, so this is the quickest way to list a directory.
    ///
    /// ```no_run
    /// use extant::Filesystem;
    /// use std::ops::ControlFlow;
    ///
    /// # fn main() -> extant::Result<()> {
    /// let fs = Filesystem::open("disk.img")?;
    /// let mut bytes = 0;
    /// fs.for_each_name("/etc", |name, _ino, _type| {
    ///     bytes += name.len();
    ///     ControlFlow::Continue(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no such directory, or it is corrupt. Entries before what is corrupt have been
    /// visited then.
    pub fn for_each_name(
        &self,
        path: impl AsRef<Path>,
        mut visit: impl FnMut(&[u8], u32, Option<FileType>) -> ControlFlow<()>,
    ) -> Result<()> {
        let path = path.as_ref();
        let held = self.hold(path, LastLink::Follow)?;
        self.check_open(&held, path, OpenFor::reading())?;
        let dir = held.snapshot();
        ops::readdir(self.fs(), &dir, Cookie::START, |entry| {
            if matches!(entry.name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            visit(entry.name, entry.ino.get(), entry.file_type)
        })
        .map(drop)
        .map_err(|e| Error::engine(path, e))
    }
}

/// One name in a directory.
#[derive(Clone)]
pub struct DirEntry {
    fs: Filesystem,
    dir: Arc<Path>,
    dir_id: InodeId,
    name: OsString,
    ino: Ino,
    file_type: Option<FileType>,
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

impl DirEntry {
    /// Returns the name. Those of encrypted directories are the stored bytes.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the path: that of the directory with the name added.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Returns the inode number.
    #[must_use]
    pub fn ino(&self) -> u32 {
        self.ino.get()
    }

    /// Returns the file type, which usually costs nothing. Symbolic links are not followed.
    ///
    /// # Errors
    /// When the directory does not record types and the inode cannot be read.
    pub fn file_type(&self) -> Result<FileType> {
        match self.file_type {
            Some(file_type) => Ok(file_type),
            None => self.look(Inode::file_type),
        }
    }

    /// Returns what is known about the file. Symbolic links are not followed.
    ///
    /// # Errors
    /// When the inode cannot be read, or the name is gone by now.
    pub fn metadata(&self) -> Result<Metadata> {
        self.look(|inode| Metadata::of(self.fs.fs(), inode))
    }

    fn look<R>(&self, look: impl Fn(&Inode) -> R) -> Result<R> {
        let (fs, by) = (self.fs.fs(), self.fs.by());
        let looked = match fs.check_writable() {
            // The number may be another file's by now.
            Ok(()) => ops::lookup_with(by, self.dir_id, self.name.as_bytes(), look)
                .map(|(_, looked)| looked),
            Err(_) => ops::search(by, self.dir_id)
                .and_then(|()| fs.named_inode(self.ino))
                .map(|inode| look(&inode)),
        };
        looked.map_err(|e| Error::engine(self.path(), e))
    }
}

/// A whole directory in memory, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    names: Vec<u8>,
    entries: Vec<Listed>,
}

#[derive(Clone, Copy, Debug)]
struct Listed {
    at: usize,
    len: u8,
    ino: Ino,
}

impl Listing {
    /// Reads a directory. When it breaks in the middle, what came before is kept.
    pub(crate) fn read(fs: &Fs, dir: &Inode) -> (Self, extant_core::Result<()>) {
        let mut listing = Self::default();
        let mut position = 0;
        let outcome = ops::readdir(fs, dir, Cookie::START, |entry| {
            // The first two entries of a directory are itself and its parent. A `..` further on
            // is a file that nobody could reach: kept, so that it is reported.
            let is_own = position < 2 && matches!(entry.name, b"." | b"..");
            position += 1;
            if !is_own {
                let at = listing.names.len();
                listing.names.extend_from_slice(entry.name);
                listing.entries.push(Listed {
                    at,
                    // The engine gives 1 to 255 bytes.
                    len: u8::try_from(entry.name.len()).unwrap_or(u8::MAX),
                    ino: entry.ino,
                });
            }
            ControlFlow::<()>::Continue(())
        });
        let Self { names, entries } = &mut listing;
        let bytes = |entry: &Listed| name_of(names, entry);
        entries.sort_by(|a, b| bytes(a).cmp(bytes(b)));
        (listing, outcome.map(drop))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Name and inode of the entry at `index` in the order of names.
    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], Ino)> {
        let entry = self.entries.get(index)?;
        Some((name_of(&self.names, entry), entry.ino))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Ino)> {
        self.entries
            .iter()
            .map(|entry| (name_of(&self.names, entry), entry.ino))
    }
}

fn name_of<'a>(names: &'a [u8], entry: &Listed) -> &'a [u8] {
    names
        .get(entry.at..entry.at + usize::from(entry.len))
        .unwrap_or(&[])
}

/// Whether a name can only be that of a file in its own directory.
pub(crate) fn is_sound_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// A path with one more name, which may be any bytes.
pub(crate) fn join(path: &Path, name: &[u8]) -> PathBuf {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    if !bytes.ends_with(b"/") {
        bytes.push(b'/');
    }
    bytes.extend_from_slice(name);
    PathBuf::from(OsString::from_vec(bytes))
}
