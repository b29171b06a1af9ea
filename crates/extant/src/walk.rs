//! Walking everything below a directory.

use crate::read_dir::{Listing, is_sound_name, join};
use crate::scouts::Scouts;
use crate::{Cause, Error, File, FileType, Filesystem, Metadata, Result};
use extant_core::inode::{Held, Inode, InodeId};
use extant_core::ops;
use extant_format::Ino;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories whose path is longer than this are not entered, so that a hostile image cannot make
/// each of its files cost any amount of memory to name. It is five hundred times what Linux takes
/// for a path.
pub(crate) const LONGEST_PATH: usize = 2 << 20;

/// Everything below a directory, the directory itself first, parents before children, names of a
/// directory in order of their bytes. Symbolic links are not followed.
///
/// What cannot be read is an error item, and the walk goes on behind it. Every directory is
/// entered once: one that has a second place, which only a corrupt file system has, is an error
/// there, so the walk ends.
pub struct Walk {
    scouts: Option<Scouts>,
    fs: Filesystem,
    start: Option<(PathBuf, Arc<Inode>)>,
    /// Directories being listed, outermost first.
    open: Vec<Level>,
    /// The path of the innermost of them, which begins with those of the others.
    path: Vec<u8>,
    entered: HashSet<Ino>,
    /// The directory just given out, to be listed at the next step.
    pending: Option<(PathBuf, Arc<Inode>)>,
    failed: Option<Error>,
    unwanted: Option<Unwanted>,
}

/// Whether nobody wants the inode of this number.
type Unwanted = Box<dyn Fn(u32) -> bool + Send + Sync>;

struct Level {
    /// Bytes of the walk's path that are this directory's.
    path_len: usize,
    dir: InodeId,
    listing: Listing,
    next: usize,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("depth", &self.open.len())
            .finish_non_exhaustive()
    }
}

/// One file of a [`Walk`]. Can be sent to another thread and read there.
#[derive(Clone)]
pub struct WalkEntry {
    fs: Filesystem,
    inode: Arc<Inode>,
    path: PathBuf,
    /// Bytes of the last name, which in an encrypted directory may hold a `/`.
    name_len: usize,
    depth: usize,
    is_last: bool,
    is_repeated: bool,
}

impl fmt::Debug for WalkEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WalkEntry").field(&self.path).finish()
    }
}

impl Walk {
    pub(crate) fn new(fs: Filesystem, path: PathBuf, inode: Arc<Inode>) -> Self {
        Self {
            scouts: None,
            fs,
            start: Some((path, inode)),
            open: Vec::new(),
            path: Vec::new(),
            entered: HashSet::new(),
            pending: None,
            failed: None,
            unwanted: None,
        }
    }

    /// Leaves out, from here on, files whose inode numbers are `unwanted`, and what is below them,
    /// without reading their inodes. With what [`Filesystem::bulkstat`] found out, a walk then
    /// reads only what is worth it.
    pub fn leave_out(&mut self, unwanted: impl Fn(u32) -> bool + Send + Sync + 'static) {
        self.unwanted = Some(Box::new(unwanted));
    }

    /// Says that all of it will be walked through. Where the device takes its time for each request
    /// and the file system is open for reading, threads then go ahead of the walk, which finds in
    /// memory what it needs.
    #[must_use]
    pub fn whole(mut self) -> Self {
        if let Some((_, inode)) = &self.start
            && inode.is_dir()
            && self.fs.caller().is_none()
        {
            self.scouts = Scouts::start(self.fs.fs(), inode.ino(), ops::Ahead::Directories);
        }
        self
    }

    /// Leaves out what is below the directory that was given out last.
    pub fn skip_children(&mut self) {
        self.pending = None;
    }

    /// Lists the directory given out last.
    fn enter(&mut self) -> Option<Error> {
        let (path, inode) = self.pending.take()?;
        if path.as_os_str().len() > LONGEST_PATH {
            return Some(Error::new(path, Cause::TooDeep));
        }
        // Kept while it is read, so that its blocks stay its own.
        let _held = match hold_to_list(&self.fs, &inode) {
            Ok(held) => held,
            Err(e) => return Some(Error::engine(path, e)),
        };
        let (listing, outcome) = Listing::read(self.fs.fs(), &inode);
        self.failed = outcome.err().map(|e| Error::engine(&path, e));
        if let Some(scouts) = &self.scouts {
            scouts.passed(listing.len());
        }
        self.path = path.into_os_string().into_vec();
        self.open.push(Level {
            path_len: self.path.len(),
            dir: inode.id(),
            listing,
            next: 0,
        });
        None
    }

    fn give(
        &mut self,
        path: PathBuf,
        name_len: usize,
        inode: Arc<Inode>,
        is_last: bool,
    ) -> Result<WalkEntry> {
        if inode.is_dir() {
            if !self.entered.insert(inode.ino()) {
                return Err(Error::new(path, Cause::DirectoryTwice));
            }
            self.pending = Some((path.clone(), Arc::clone(&inode)));
        }
        Ok(WalkEntry {
            fs: self.fs.clone(),
            inode,
            path,
            name_len,
            depth: self.open.len(),
            is_last,
            is_repeated: false,
        })
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((path, inode)) = self.start.take() {
            let name_len = last_name(&path).len();
            return Some(self.give(path, name_len, inode, true));
        }
        if let Some(e) = self.enter() {
            return Some(Err(e));
        }
        loop {
            if let Some(e) = self.failed.take() {
                return Some(Err(e));
            }
            let level = self.open.last_mut()?;
            let index = level.next;
            let Some((name, ino)) = level.listing.get(index) else {
                self.open.pop();
                let above = self.open.last().map_or(0, |level| level.path_len);
                self.path.truncate(above);
                continue;
            };
            level.next += 1;
            let before = index
                .checked_sub(1)
                .and_then(|index| level.listing.get(index));
            let is_repeated = before.is_some_and(|(before, _)| before == name);
            let is_last = level.next == level.listing.len();
            if let Some(unwanted) = &self.unwanted
                && unwanted(ino.get())
            {
                continue;
            }
            let path = join(Path::new(OsStr::from_bytes(&self.path)), name);
            if matches!(name, b"." | b"..") {
                return Some(Err(Error::new(path, Cause::BadName)));
            }
            let name_len = name.len();
            let inode = inode_of(&self.fs, level.dir, name, ino);
            return Some(match inode {
                Ok(inode) => self.give(path, name_len, inode, is_last).map(|mut entry| {
                    entry.is_repeated = is_repeated;
                    entry
                }),
                Err(e) => Err(Error::engine(path, e)),
            });
        }
    }
}

impl WalkEntry {
    /// Returns the path: that of the start with the names below it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path as bytes.
    #[must_use]
    pub fn path_bytes(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }

    /// Returns the last name of the path; empty for the root.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        let bytes = self.path_bytes();
        let start = bytes.len().saturating_sub(self.name_len);
        OsStr::from_bytes(bytes.get(start..).unwrap_or(&[]))
    }

    /// Directories between the start and this; 0 for the start itself.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns whether no other name of its directory comes after this one.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Looks at the name as one to make a file by. Where the walk starts any name will do.
    ///
    /// # Errors
    /// When no file may have this name, or its directory has it twice and this is not the first:
    /// [`Cause::BadName`], [`Cause::NameTwice`]. A program that makes files by such names may be
    /// led through a link to somewhere else.
    pub fn check_name(&self) -> Result<()> {
        let cause = if self.depth == 0 {
            return Ok(());
        } else if !is_sound_name(self.file_name().as_bytes()) {
            Cause::BadName
        } else if self.is_repeated {
            Cause::NameTwice
        } else {
            return Ok(());
        };
        Err(Error::new(&*self.path, cause))
    }

    /// Returns the file type.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.inode.file_type()
    }

    /// Returns what is known about the file.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata::of(self.fs.fs(), &self.inode)
    }

    /// Returns the target, if this is a symbolic link.
    ///
    /// # Errors
    /// When this is something else, or cannot be read.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        let read = || {
            let _held = self.hold()?;
            self.fs.fs().read_link(&self.inode)
        };
        read().map_err(|e| Error::engine(&self.path, e))
    }

    /// Returns the names and values of all extended attributes, access control lists included (in
    /// the form of the system calls).
    ///
    /// # Errors
    /// When the attributes are corrupt.
    pub fn xattrs(&self) -> Result<Vec<(OsString, Vec<u8>)>> {
        let mut all = Vec::new();
        let mut keep = |name: &[u8], value: &[u8]| {
            all.push((OsString::from_vec(name.to_vec()), value.to_vec()));
            ControlFlow::<()>::Continue(())
        };
        let fs = self.fs.fs();
        let read = self.hold().and_then(|held| match held {
            None => ops::for_each_xattr(fs, &self.inode, &mut keep),
            Some(held) => ops::for_each_xattr_live(self.fs.by(), &held, &mut keep),
        });
        read.map_err(|e| Error::engine(&self.path, e))?;
        Ok(all)
    }

    /// Opens the file, if it is a regular one.
    ///
    /// # Errors
    /// When this is something else, or has been removed.
    pub fn open(&self) -> Result<File> {
        self.fs.open_same(self.inode.id(), &self.path)
    }

    /// Takes hold of the file for a caller: what he asks for is that of this file, and of none that
    /// came in its place.
    fn hold(&self) -> extant_core::Result<Option<Held>> {
        let same = || self.fs.fs().hold_same(self.inode.id());
        self.fs.caller().map(|_| same()).transpose()
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }
}

/// Takes hold of a directory for a caller, which is refused if it may not read it, or look at its
/// files.
pub(crate) fn hold_to_list(fs: &Filesystem, dir: &Inode) -> extant_core::Result<Option<Held>> {
    if fs.caller().is_none() {
        return Ok(None);
    }
    let by = fs.by();
    let held = by.fs().hold_same(dir.id())?;
    ops::access(by, &held, ops::READ | ops::EXECUTE)?;
    Ok(Some(held))
}

/// The inode of an entry. A caller gets what its name stands for now: the number may be that of
/// another file by then, which he could not reach.
pub(crate) fn inode_of(
    fs: &Filesystem,
    dir: InodeId,
    name: &[u8],
    ino: Ino,
) -> extant_core::Result<Arc<Inode>> {
    match fs.caller() {
        None => fs.fs().named_inode(ino),
        Some(_) => {
            ops::lookup_with(fs.by(), dir, name, Inode::clone).map(|(_, inode)| Arc::new(inode))
        }
    }
}

/// The last name of a path; empty for the root.
fn last_name(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    bytes.rsplit(|&byte| byte == b'/').next().unwrap_or(&[])
}
