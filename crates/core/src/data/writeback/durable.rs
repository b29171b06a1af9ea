//! Making the content of a file durable.

use crate::data::cache::FileCache;
use crate::data::dispatch::Way;
use crate::data::writeback::write_back;
use crate::fs::Fs;
use crate::inode::Held;
use crate::meta::Seq;
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result};
use extant_sync::{CountedAtomicU64, RmwClass, pin};
use std::ops::Range;
use std::sync::atomic::Ordering;

static MARK: RmwClass = RmwClass::new("failures an open file was told of");

/// What an open file has been told about failures of writing back, so that each is told once to
/// each.
///
/// An inode that nobody holds may be forgotten, and what it knew of failures with it: an opener is
/// told of those that come later.
#[derive(Debug)]
pub struct ErrorMark {
    told: CountedAtomicU64,
}

impl ErrorMark {
    /// Returns the mark of a file that is being opened.
    #[must_use]
    pub fn new(held: &Held) -> Self {
        let failures = held.file_cache().map_or(0, |file| file.failures.count());
        Self {
            told: CountedAtomicU64::new(&MARK, failures),
        }
    }

    /// Returns the last failure, if it has not been told.
    fn take(&self, file: &FileCache) -> Option<Error> {
        let failures = file.failures.count();
        let before = self.told.swap(failures, Ordering::AcqRel);
        (before < failures).then(|| file.failures.last()).flatten()
    }
}

/// Writes what is only in memory of `range`, in bytes, to the device, and waits for that. More may
/// be written than was asked for.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) when the device fails,
/// [`Error::NoSpace`](crate::Error::NoSpace) when there is no room after all.
pub fn writeback(fs: &Fs, held: &Held, range: Range<u64>) -> Result<()> {
    let _ = range;
    write_back(fs, held.live())
}

/// Forgets what is in memory of `range`, in bytes, unless the device does not have it yet.
pub fn invalidate(fs: &Fs, held: &Held, range: Range<u64>) {
    let _ = fs;
    if let Some(file) = held.file_cache() {
        file.invalidate(&range);
    }
}

impl FileCache {
    /// Tells whether the device has all data and the record, of `size`, where it ends: times may be
    /// missing.
    fn is_written(&self, size: u64) -> bool {
        // Kept to the end: writeback takes the list of what is dirty before it is on the device.
        let Some(_alone) = self.try_quiesce() else {
            return false;
        };
        !self.dirty.has_any() && self.extended() <= size
    }
}

/// What of a file is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Its content, and all of its record.
    All,
    /// Its content, and of its record what reading that back needs. So a time that only memory has
    /// takes no transaction.
    Content,
}

/// Makes durable what was written to the file, and the transaction that changed the inode last, or
/// its size or map. `mark` is that of the open file; without one, failures that nobody asked about
/// are not told. Of a file system that was opened for reading everything is durable.
///
/// # Errors
/// [`Error::Device`] when the device fails, or failed to write back or to flush for somebody else
/// since the file was written: what was written since the last success may be lost.
pub(crate) fn fsync(fs: &Fs, held: &Held, mark: Option<&ErrorMark>, what: What) -> Result<()> {
    if fs.changes().is_err() {
        // Opened for reading, so that nothing was written.
        return Ok(());
    }
    let durable = make_durable(fs, held, what);
    let Some(file) = held.file_cache() else {
        return durable;
    };
    let told = mark.and_then(|mark| mark.take(file));
    durable?;
    told.map_or(Ok(()), Err)
}

fn make_durable(fs: &Fs, held: &Held, what: What) -> Result<()> {
    let lacks_time_only =
        || (held.file_cache()).is_none_or(|file| file.is_written(held.image(&pin()).size()));
    if what == What::All || fs.data().way() == Way::Dax || !lacks_time_only() {
        write_back(fs, held.live())?;
    }
    // Before the commit, which flushes: then that will do.
    let ticket = held.data_ticket().unwrap_or_else(|| fs.data_ticket());
    let seq = match what {
        What::All => held.last_seq(),
        What::Content => held.datasync_seq(),
    };
    if seq != Seq::NONE {
        fs.commit(seq)?;
    }
    if is_on(Mutant::DataNotFlushed) {
        return Ok(());
    }
    let flushed = fs.flush_data(ticket);
    // Also when this flush went well: one that failed before took what the device had in its cache.
    match fs.flush_failure() {
        Some(failure) if held.take_loss(fs) => {
            if let Some(file) = held.file_cache() {
                // The inode tells this once: other open files hear of it from here.
                file.failures.note(&failure);
            }
            Err(failure)
        }
        _ => flushed,
    }
}

/// Writes a file back before its content takes the place of another one's, or when it was cut to
/// nothing and written anew: programs that replace a file so count on finding the old or the new
/// content after a crash. What goes wrong is told by `fsync`.
pub(crate) fn write_back_early(fs: &Fs, held: &Held) {
    if fs.data().is_write_back() && held.file_cache().is_some_and(|file| file.delayed() > 0) {
        let _ = write_back(fs, held.live());
    }
}
