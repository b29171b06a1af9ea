//! Making the content of a file durable.
//!
//! Data is written to the device before a write returns, so there is nothing to write back or to throw
//! away here: what remains is the device's own cache.

use crate::Result;
use crate::fs::Fs;
use crate::inode::{Held, LiveInode};
use crate::journal::Seq;
use crate::mutants::{Mutant, is_on};
use std::ops::Range;

/// Writes what is only in memory of `range`, in bytes, to the device, and waits for that.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) when the device fails, [`Error::NoSpace`](crate::Error::NoSpace)
/// when there is no room after all.
pub fn writeback(fs: &Fs, held: &Held, range: Range<u64>) -> Result<()> {
    let _ = (fs, held, range);
    Ok(())
}

/// Forgets what is in memory of `range`, in bytes, written back or not.
pub fn invalidate(fs: &Fs, held: &Held, range: Range<u64>) {
    let _ = (fs, held, range);
}

/// Makes durable what was written to the file, and the transaction that `seq` names: the last that
/// changed the inode, or the last that changed its size or map.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) when the device fails, or failed to flush for somebody else
/// since the file was written: what was written since the last success may be lost.
pub(crate) fn fsync(fs: &Fs, held: &Held, seq: impl FnOnce(&LiveInode) -> Seq) -> Result<()> {
    writeback(fs, held, 0..u64::MAX)?;
    // Before the commit, which flushes: then that will do.
    let ticket = held.data_ticket().unwrap_or_else(|| fs.data_ticket());
    let seq = seq(held);
    if seq != Seq::NONE {
        fs.commit(seq)?;
    }
    if is_on(Mutant::DataNotFlushed) {
        return Ok(());
    }
    let flushed = fs.flush_data(ticket);
    // Also when this flush went well: one that failed before took what the device had in its cache.
    match fs.flush_failure() {
        Some(failure) if held.take_loss(fs) => Err(failure),
        _ => flushed,
    }
}
