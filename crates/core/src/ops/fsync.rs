//! `fsync`, `fdatasync` and `syncfs`.

use crate::data::What;
use crate::fs::Fs;
use crate::inode::Held;
use crate::{Result, data};

pub use crate::data::ErrorMark;

/// Makes the file durable: what was written to it, and its record.
///
/// The transaction that changed the inode last is committed, and no later one is waited for. Its
/// names are durable when the transaction that made them is: at the latest after an `fsync` of the
/// file, as transactions commit in order.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) when the device fails: what was written since the last
/// success may be lost.
pub fn fsync(fs: &Fs, inode: &Held) -> Result<()> {
    data::fsync(fs, inode, None, What::All)
}

/// Makes an open file durable as [`fsync`] does, and tells of failures: one to write back or to
/// flush since `mark` was made, or since it was told last, is told now, whatever met it.
///
/// # Errors
/// As for [`fsync`].
pub fn fsync_file(fs: &Fs, inode: &Held, mark: &ErrorMark) -> Result<()> {
    data::fsync(fs, inode, Some(mark), What::All)
}

/// [`fdatasync`] for an open file; see [`fsync_file`].
///
/// # Errors
/// As for [`fsync`].
pub fn fdatasync_file(fs: &Fs, inode: &Held, mark: &ErrorMark) -> Result<()> {
    if inode.snapshot().is_dir() {
        return fsync_file(fs, inode, mark);
    }
    data::fsync(fs, inode, Some(mark), What::Content)
}

/// Makes the content of the file durable, and of its record what reading the content back needs.
/// The content of a directory is its names, so there it does what [`fsync`] does.
///
/// # Errors
/// As for [`fsync`].
pub fn fdatasync(fs: &Fs, inode: &Held) -> Result<()> {
    if inode.snapshot().is_dir() {
        return fsync(fs, inode);
    }
    data::fsync(fs, inode, None, What::Content)
}

/// Makes everything durable that was done before.
///
/// # Errors
/// As for [`fsync`].
pub fn syncfs(fs: &Fs) -> Result<()> {
    let Some(_changing) = fs.try_begin_change() else {
        // Freezing makes the rest durable.
        return fs.sync_but_lazy_times();
    };
    fs.reap()?;
    fs.sync()
}
