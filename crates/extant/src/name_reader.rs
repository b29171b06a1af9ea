//! Listing many directories by their inode numbers.

use crate::{Error, FileType, Filesystem, Result};
use extant_core::ops::DirReader;
use extant_format::Ino;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

/// Lists one directory after the other: the quickest way to the names of a whole tree.
///
/// Where the file system is open for reading, directories are read around its caches, which a walk
/// through all of them would only empty. Each thread has a reader of its own.
pub struct NameReader {
    fs: Filesystem,
    reader: DirReader,
}

impl fmt::Debug for NameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameReader").finish_non_exhaustive()
    }
}

impl Filesystem {
    /// Returns what lists directories by their inode numbers.
    #[must_use]
    pub fn name_reader(&self) -> NameReader {
        NameReader {
            fs: self.clone(),
            reader: DirReader::default(),
        }
    }
}

impl NameReader {
    /// Calls `visit` with the name, the inode number and, where the directory says it, the type of
    /// each entry of the directory with the inode number `dir`, without `.` and `..`, until it
    /// breaks. A number is what this function or [`Filesystem::for_each_name`] gave: in a file
    /// system that changes it may be another file's by now. Errors call the directory `path`.
    ///
    /// ```no_run
    /// use extant::{FileType, Filesystem};
    /// use std::ops::ControlFlow;
    ///
    /// # fn main() -> extant::Result<()> {
    /// let fs = Filesystem::open("disk.img")?;
    /// let root = fs.metadata("/")?.ino();
    /// let (mut reader, mut dirs, mut files) = (fs.name_reader(), vec![root], 0);
    /// while let Some(dir) = dirs.pop() {
    ///     reader.for_each_name(dir, "/...", |_name, ino, file_type| {
    ///         match file_type {
    ///             Some(FileType::Directory) => dirs.push(ino),
    ///             _ => files += 1,
    ///         }
    ///         ControlFlow::Continue(())
    ///     })?;
    /// }
    /// println!("{files} files");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When this is no directory, or is corrupt; entries before what is corrupt have been visited
    /// then. When the file system is used for a caller that may not see everything.
    pub fn for_each_name(
        &mut self,
        dir: u32,
        path: impl AsRef<Path>,
        mut visit: impl FnMut(&[u8], u32, Option<FileType>) -> ControlFlow<()>,
    ) -> Result<()> {
        let path = path.as_ref();
        self.fs.check_sees_all(path)?;
        let listed = self.reader.list(self.fs.fs(), Ino::new(dir), |entry| {
            if matches!(entry.name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            visit(entry.name, entry.ino.get(), entry.file_type)
        });
        listed.map(drop).map_err(|e| Error::engine(path, e))
    }
}
