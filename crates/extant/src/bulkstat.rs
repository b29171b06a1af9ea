//! Every inode at once.

use crate::{Error, Filesystem, Metadata, Result};
use extant_core::inode::Bulkstat;
use extant_core::ops;
use std::path::PathBuf;

impl Filesystem {
    /// Calls `visit` with what is known about every file of the file system, whatever its names are, in
    /// no particular order and from several threads at once. Much faster than a walk over the
    /// directories: what is not in memory is read in large pieces straight from where the file system
    /// keeps it.
    ///
    /// An item is an error when a file's record is corrupt or cannot be read; the others follow all the
    /// same. Files without names are left out. Returns how many files were visited without an error.
    ///
    /// ```no_run
    /// use extant::{Bulkstat, Filesystem};
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let fs = Filesystem::open("disk.img")?;
    /// let bytes = AtomicU64::new(0);
    /// let files = fs.bulkstat(Bulkstat::default(), |file| {
    ///     if let Ok(file) = file {
    ///         bytes.fetch_add(file.len(), Ordering::Relaxed);
    ///     }
    /// });
    /// println!("{files} files of {} bytes", bytes.into_inner());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn bulkstat(&self, how: Bulkstat, visit: impl Fn(Result<Metadata>) + Sync) -> u64 {
        ops::bulkstat(self.engine(), how, |_, found| {
            visit(match found {
                Ok(found) => Ok(Metadata::new(found)),
                // Names the inode itself.
                Err(e) => Err(Error::engine(PathBuf::new(), e)),
            });
        })
    }
}
