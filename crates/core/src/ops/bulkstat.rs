//! Every inode at once.

use crate::Result;
use crate::fs::Fs;
use crate::inode::{Bulkstat, Metadata};
use extant_format::Ino;

/// Visits every inode in use; see [`Fs::bulkstat`].
pub fn bulkstat(fs: &Fs, how: Bulkstat, visit: impl Fn(Ino, Result<Metadata>) + Sync) -> u64 {
    fs.bulkstat(how, visit)
}

/// Visits every inode in use, with a state for each thread; see [`Fs::bulkstat_fold`].
pub fn bulkstat_fold<S: Send>(
    fs: &Fs,
    how: Bulkstat,
    start: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, Ino, Result<Metadata>) + Sync,
) -> (u64, Vec<S>) {
    fs.bulkstat_fold(how, start, visit)
}
