//! How to open a file.

use crate::{File, Filesystem, Result};
use extant_core::ops::OpenFor;
use std::path::Path;

/// How to open a file, as [`std::fs::OpenOptions`].
///
/// ```no_run
/// # fn main() -> extant::Result<()> {
/// use extant::{Filesystem, OpenOptions};
///
/// let fs = Filesystem::open_writable("disk.img")?;
/// let log = OpenOptions::new().append(true).create(true).open(&fs, "/var/log/boot")?;
/// log.append(b"started\n")?;
/// log.sync_all()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) mode: Option<u16>,
    pub(crate) direct: bool,
}

impl OpenOptions {
    /// Makes options with everything off.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the file can be read.
    pub fn read(&mut self, on: bool) -> &mut Self {
        self.read = on;
        self
    }

    /// Sets whether the file can be written.
    pub fn write(&mut self, on: bool) -> &mut Self {
        self.write = on;
        self
    }

    /// Sets whether every write goes to the end of the file. Implies writing.
    pub fn append(&mut self, on: bool) -> &mut Self {
        self.append = on;
        self
    }

    /// Sets whether the file is emptied when it is opened. Needs writing.
    pub fn truncate(&mut self, on: bool) -> &mut Self {
        self.truncate = on;
        self
    }

    /// Sets whether the file is made if it does not exist. Needs writing or appending.
    pub fn create(&mut self, on: bool) -> &mut Self {
        self.create = on;
        self
    }

    /// Sets whether the file must be new: that it exists is an error then, also as a symbolic link
    /// that leads nowhere. Needs writing or appending.
    pub fn create_new(&mut self, on: bool) -> &mut Self {
        self.create_new = on;
        self
    }

    /// Sets the permissions of a file that is made; 0644 unless said.
    pub fn mode(&mut self, permissions: u16) -> &mut Self {
        self.mode = Some(permissions);
        self
    }

    /// Sets whether reads and writes go past memory, to the device and back (`O_DIRECT` of
    /// `open(2)`). Offsets and lengths must then be multiples of a sector of the device, which is
    /// mostly 512 bytes; memory may lie anywhere. What others read and write through memory at the
    /// same time agrees with it.
    ///
    /// ```no_run
    /// # fn main() -> extant::Result<()> {
    /// use extant::{Filesystem, OpenOptions};
    ///
    /// let fs = Filesystem::open_writable("disk.img")?;
    /// let mut options = OpenOptions::new();
    /// let table = options.read(true).write(true).direct(true).open(&fs, "/var/db/table")?;
    /// table.write_all_at(&[7; 4096], 8192)?;
    /// table.sync_data()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn direct(&mut self, on: bool) -> &mut Self {
        self.direct = on;
        self
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// When options contradict each other, as in `std`; when there is no such file, it exists but
    /// must be new, it is a directory, device, pipe or socket, or the file system is open for
    /// reading only.
    pub fn open(&self, fs: &Filesystem, path: impl AsRef<Path>) -> Result<File> {
        fs.open_with(self, path.as_ref())
    }

    /// What is done with a file that is opened so.
    pub(crate) fn wanted(&self) -> OpenFor {
        OpenFor {
            read: self.read,
            write: self.write,
            append: self.append,
            truncate: self.truncate,
        }
    }

    pub(crate) fn writes(&self) -> bool {
        self.write || self.append
    }

    /// What is wrong with the options, if something is.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        if !self.read && !self.writes() {
            return Some("a file is opened neither for reading nor for writing");
        }
        if !self.writes() && (self.truncate || self.create || self.create_new) {
            return Some("a file that is not opened for writing cannot be created or emptied");
        }
        if self.append && self.truncate && !self.create_new {
            return Some("a file opened for appending cannot be emptied at the same time");
        }
        None
    }
}
