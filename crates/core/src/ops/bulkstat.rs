//! Every inode at once.

use crate::Result;
use crate::fs::Fs;
use crate::inode::{Bulkstat, Metadata};
use extant_format::Ino;

/// Visits every inode in use; see [`Fs::bulkstat`].
pub fn bulkstat(fs: &Fs, how: Bulkstat, visit: impl Fn(Ino, Result<Metadata>) + Sync) -> u64 {
    fs.bulkstat(how, visit)
}
