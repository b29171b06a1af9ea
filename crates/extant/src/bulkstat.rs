//! Every inode at once.

use crate::{Error, Filesystem, Metadata, Result};
use extant_core::inode::Bulkstat;
use extant_core::ops;
use std::path::{Path, PathBuf};

impl Filesystem {
    /// Calls `visit` with what is known about every file of the file system, whatever its names
    /// are, in no particular order and from several threads at once. Much faster than a walk over
    /// the directories: what is not in memory is read in large pieces straight from where the file
    /// system keeps it.
    ///
    /// An item is an error when a file's record is corrupt or cannot be read; the others follow all
    /// the same. Files without names are left out. Only user 0 sees all files; another
    /// [caller](Self::on_behalf_of) gets one error. Returns how many files were visited without an
    /// error.
    ///
    /// ```no_run
    /// use extant::{Bulkstat, Filesystem};
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let fs = Filesystem::open("disk.img")?;
    /// let large = AtomicU64::new(0);
    /// let files = fs.bulkstat(Bulkstat::default(), |file| {
    ///     if file.is_ok_and(|file| file.len() > 1 << 30) {
    ///         large.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// println!("{} of {files} files are large", large.into_inner());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn bulkstat(&self, how: Bulkstat, visit: impl Fn(Result<Metadata>) + Sync) -> u64 {
        if let Err(refused) = self.check_sees_all(Path::new("")) {
            visit(Err(refused));
            return 0;
        }
        ops::bulkstat(self.fs(), how, |_, found| {
            visit(found.map(Metadata::new).map_err(nameless));
        })
    }

    /// Visits as [`bulkstat`](Self::bulkstat) does, with a state for each thread, begun by `start`:
    /// what `visit` does to it meets no other thread. Returns the state of each.
    ///
    /// ```no_run
    /// use extant::{Bulkstat, Filesystem};
    ///
    /// let fs = Filesystem::open("disk.img")?;
    /// let bytes = fs.bulkstat_fold(
    ///     Bulkstat::default(),
    ///     || 0,
    ///     |bytes, file| *bytes += file.map_or(0, |file| file.len()),
    /// );
    /// println!("{} bytes", bytes.iter().sum::<u64>());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn bulkstat_fold<S: Send>(
        &self,
        how: Bulkstat,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Result<Metadata>) + Sync,
    ) -> Vec<S> {
        if let Err(refused) = self.check_sees_all(Path::new("")) {
            let mut state = start();
            visit(&mut state, Err(refused));
            return vec![state];
        }
        let visit = |state: &mut S, _, found: extant_core::Result<_>| {
            visit(state, found.map(Metadata::new).map_err(nameless));
        };
        let (_, states) = ops::bulkstat_fold(self.fs(), how, start, visit);
        states
    }
}

/// The error of an inode whose names nobody knows; it says which inode.
fn nameless(error: extant_core::Error) -> Error {
    Error::engine(PathBuf::new(), error)
}
