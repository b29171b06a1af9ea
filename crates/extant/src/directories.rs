//! The directories of a tree, each with all that is in it.
//!
//! Directories that are still to be told stand on a stack, the next on top. The topmost ones are
//! looked at together, by all threads; each is then replaced by what was made of it, and by the
//! directories in it that are entered. So the order is that of the tree, and threads have enough to
//! do.

use crate::compare::by_all;
use crate::path::LastLink;
use crate::read_dir::{Listing, join};
use crate::scouts::Scouts;
use crate::walk::{LONGEST_PATH, hold_to_list, inode_of};
use crate::{Cause, Error, FileType, Filesystem, Metadata, Result};
use extant_core::Error as EngineError;
use extant_core::inode::Inode;
use extant_core::ops::{self, Ahead};
use extant_format::Ino;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories that are looked at together, and the bytes of all of them.
const TOGETHER: usize = 1024;
/// What was made of directories and is not told yet, of those between that are looked at: above
/// that it is not gone on to further ones, or a deep tree would have all of its siblings wait.
const MOST_MADE: usize = 1024;
const BYTES_TOGETHER: u64 = 8 << 20;
/// Threads at most, unless more are asked for, where a request to the device takes a round trip.
const MOST_FAR: usize = 32;
/// Threads at most.
const MOST_THREADS: usize = 64;

/// A directory with all that is in it, for [`Filesystem::for_each_directory`].
pub struct ListedDirectory {
    fs: Filesystem,
    path: PathBuf,
    listing: Listing,
    /// By place in the listing, those that could be read.
    files: Vec<(usize, Arc<Inode>)>,
    problems: Vec<Error>,
}

impl fmt::Debug for ListedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListedDirectory").field(&self.path).finish()
    }
}

/// A file of a [`ListedDirectory`].
#[derive(Clone, Copy)]
pub struct ListedFile<'a> {
    fs: &'a Filesystem,
    dir: &'a Path,
    name: &'a [u8],
    inode: &'a Arc<Inode>,
}

impl fmt::Debug for ListedFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListedFile").field(&self.path()).finish()
    }
}

impl ListedDirectory {
    /// Returns the path: that of the start with the names below it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the files, without `.` and `..`, in the order of the bytes of their names.
    pub fn files(&self) -> impl ExactSizeIterator<Item = ListedFile<'_>> {
        self.files.iter().map(|(index, inode)| ListedFile {
            fs: &self.fs,
            dir: &self.path,
            name: self.listing.get(*index).map_or(&[][..], |(name, _)| name),
            inode,
        })
    }

    /// Returns what could not be read: files, or the rest of the directory.
    #[must_use]
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    /// Reads a directory, and the inodes of what is in it.
    fn read(fs: &Filesystem, dir: &Pending) -> Self {
        let mut read = Self {
            fs: fs.clone(),
            path: dir.path.clone(),
            listing: Listing::default(),
            files: Vec::new(),
            problems: Vec::new(),
        };
        // Kept while it is read, so that its blocks stay its own.
        let _held = match hold_to_list(fs, &dir.inode) {
            Ok(held) => held,
            Err(e) => {
                read.problems.push(Error::engine(&*dir.path, e));
                return read;
            }
        };
        let (listing, outcome) = Listing::read(fs.fs(), &dir.inode);
        if ops::in_flight(fs.fs()) > 1 {
            let inos: Vec<Ino> = listing.iter().map(|(_, ino)| ino).collect();
            ops::inodes_ahead(fs.fs(), &inos);
        }
        let id = dir.inode.id();
        read.files.reserve_exact(listing.len());
        for (index, (name, ino)) in listing.iter().enumerate() {
            let path = || join(&dir.path, name);
            if matches!(name, b"." | b"..") {
                read.problems.push(Error::new(path(), Cause::BadName));
                continue;
            }
            match inode_of(fs, id, name, ino) {
                Ok(inode) => read.files.push((index, inode)),
                Err(e) => read.problems.push(Error::engine(path(), e)),
            }
        }
        if let Err(e) = outcome {
            read.problems.push(Error::engine(&*dir.path, e));
        }
        read.listing = listing;
        read
    }
}

impl<'a> ListedFile<'a> {
    /// Returns the name. Those of encrypted directories are the stored bytes.
    #[must_use]
    pub fn file_name(&self) -> &'a OsStr {
        OsStr::from_bytes(self.name)
    }

    /// Returns the path: that of the directory with the name added.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        join(self.dir, self.name)
    }

    /// Returns the file type.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.inode.file_type()
    }

    /// Returns what is known about the file. Symbolic links are not followed.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata::of(self.fs.fs(), self.inode)
    }

    /// Returns the target, if this is a symbolic link.
    ///
    /// # Errors
    /// When this is something else, or cannot be read.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        let fs = self.fs.fs();
        // A caller gets that of this file, and of none that came in its place.
        let held = self.fs.caller().map(|_| fs.hold_same(self.inode.id()));
        held.transpose()
            .and_then(|_held| fs.read_link(self.inode))
            .map_err(|e| Error::engine(self.path(), e))
    }
}

/// A directory to be looked at.
struct Pending {
    path: PathBuf,
    inode: Arc<Inode>,
}

/// What is on the stack.
enum Slot<T> {
    Pending(Pending),
    Made(Result<T>),
}

/// What was made of a directory, and what is entered below it.
struct Looked<T> {
    made: T,
    below: Vec<Pending>,
}

/// What all threads work with.
struct Work<'a, L> {
    fs: &'a Filesystem,
    look: L,
    threads: usize,
    scouts: Option<Scouts>,
}

impl<T: Send, L: Fn(&ListedDirectory) -> (T, Vec<usize>) + Sync> Work<'_, L> {
    fn directory(&self, pending: &Pending) -> Looked<T> {
        let directory = ListedDirectory::read(self.fs, pending);
        if let Some(scouts) = &self.scouts {
            scouts.passed(directory.listing.len());
        }
        let (made, entered) = (self.look)(&directory);
        let files = entered.into_iter().filter_map(|number| {
            let (index, inode) = directory.files.get(number)?;
            let (name, _) = directory.listing.get(*index)?;
            inode.is_dir().then(|| Pending {
                path: join(&directory.path, name),
                inode: Arc::clone(inode),
            })
        });
        let below = files.collect();
        Looked { made, below }
    }

    /// Looks at the topmost directories together, and puts what came of them on the stack.
    fn look_on(&self, stack: &mut Vec<Slot<T>>, entered: &mut HashSet<Ino>) {
        let mut taken = Vec::new();
        let (mut count, mut waiting, mut bytes) = (0, 0, 0_u64);
        while count < TOGETHER
            && waiting < MOST_MADE
            && bytes < BYTES_TOGETHER
            && let Some(slot) = stack.pop()
        {
            match &slot {
                Slot::Pending(pending) => {
                    count += 1;
                    bytes = bytes.saturating_add(pending.inode.size());
                }
                Slot::Made(_) => waiting += 1,
            }
            taken.push(slot);
        }
        let numbered: Vec<(usize, &Pending)> = (taken.iter().enumerate())
            .filter_map(|(number, slot)| match slot {
                Slot::Pending(pending) => Some((number, pending)),
                Slot::Made(_) => None,
            })
            .collect();
        let states = by_all(self.threads, &numbered, Vec::new, |all, (number, dir)| {
            all.push((*number, self.directory(dir)));
        });
        let mut looked: HashMap<usize, Looked<T>> = states.into_iter().flatten().collect();
        let mut slots = Vec::with_capacity(taken.len());
        for (number, slot) in taken.into_iter().enumerate() {
            match looked.remove(&number) {
                None => slots.push(slot),
                Some(Looked { made, below }) => {
                    slots.push(Slot::Made(Ok(made)));
                    slots.extend(below.into_iter().map(|dir| enter(dir, entered)));
                }
            }
        }
        stack.extend(slots.into_iter().rev());
    }
}

/// A directory as it goes on the stack: one that has a second place makes a tree without end.
fn enter<T>(dir: Pending, entered: &mut HashSet<Ino>) -> Slot<T> {
    let cause = if !entered.insert(dir.inode.ino()) {
        Cause::DirectoryTwice
    } else if dir.path.as_os_str().len() > LONGEST_PATH {
        Cause::TooDeep
    } else {
        return Slot::Pending(dir);
    };
    Slot::Made(Err(Error::new(dir.path, cause)))
}

impl Filesystem {
    /// Returns a directory with all that is in it. Symbolic links at the end of the path are
    /// followed.
    ///
    /// # Errors
    /// When there is no such directory. What cannot be read of it is in
    /// [`ListedDirectory::problems`].
    pub fn list_directory(&self, path: impl AsRef<Path>) -> Result<ListedDirectory> {
        let path = path.as_ref();
        let inode = self.directory_at(path)?;
        let path = path.to_owned();
        Ok(ListedDirectory::read(self, &Pending { path, inode }))
    }

    fn directory_at(&self, path: &Path) -> Result<Arc<Inode>> {
        let inode = self.inode(path, LastLink::Follow)?;
        if inode.is_dir() {
            Ok(inode)
        } else {
            Err(Error::engine(path, EngineError::NotADirectory))
        }
    }

    /// Calls `look` with the directory at `path` and with those below it, each with all that is in
    /// it, and `tell` with what it made of them. Symbolic links are followed at the end of `path`
    /// alone.
    ///
    /// `look` returns besides which of the directory's files are entered, by their places in
    /// [`ListedDirectory::files`]; what is no directory is not. It is called by so many threads at
    /// once; 0 stands for one per processor, and more where the device is far. `tell` is called by
    /// this thread alone, until it breaks: a directory comes before those in it, and these in the
    /// order in which they are entered. What it is told does not depend on threads.
    ///
    /// In the place of a directory that cannot be entered, `tell` gets the error: one that has a
    /// second place, which only a corrupt file system has, or is nested too deeply.
    ///
    /// ```no_run
    /// use extant::Filesystem;
    /// use std::ops::ControlFlow;
    ///
    /// # fn main() -> extant::Result<()> {
    /// let fs = Filesystem::open("rootfs.img")?;
    /// fs.for_each_directory(
    ///     "/usr",
    ///     0,
    ///     |directory| {
    ///         let bytes: u64 = directory.files().map(|file| file.metadata().len()).sum();
    ///         let text = format!("{bytes} {}", directory.path().display());
    ///         (text, (0..directory.files().len()).collect())
    ///     },
    ///     |line| {
    ///         println!("{}", line.unwrap_or_else(|e| e.to_string()));
    ///         ControlFlow::Continue(())
    ///     },
    /// )?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no such directory.
    pub fn for_each_directory<T: Send>(
        &self,
        path: impl AsRef<Path>,
        threads: usize,
        look: impl Fn(&ListedDirectory) -> (T, Vec<usize>) + Sync,
        mut tell: impl FnMut(Result<T>) -> ControlFlow<()>,
    ) -> Result<()> {
        let path = path.as_ref();
        let inode = self.directory_at(path)?;
        let far = ops::in_flight(self.fs());
        let threads = match threads {
            0 => std::thread::available_parallelism()
                .map_or(1, usize::from)
                .max(far.min(MOST_FAR)),
            asked => asked.min(MOST_THREADS),
        };
        let scouts = match self.caller() {
            None => Scouts::start(self.fs(), inode.ino(), Ahead::Directories),
            Some(_) => None,
        };
        let work = Work {
            fs: self,
            look,
            threads,
            scouts,
        };
        let mut entered = HashSet::from([inode.ino()]);
        let path = path.to_owned();
        let mut stack = vec![Slot::Pending(Pending { path, inode })];
        while let Some(slot) = stack.pop() {
            match slot {
                Slot::Made(made) => {
                    if tell(made).is_break() {
                        break;
                    }
                }
                pending => {
                    stack.push(pending);
                    work.look_on(&mut stack, &mut entered);
                }
            }
        }
        Ok(())
    }
}
