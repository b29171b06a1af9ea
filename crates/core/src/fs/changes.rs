//! Changes of the file system under way, and the moments when there may be none: freezing, and
//! being made read-only.
//!
//! Every operation that changes something is inside the gate from its first lock to its last.
//! Closing the gate and seeing it empty is what freezing is: then memory has nothing that the
//! device has not, the log is emptied and the superblock marked clean, so the image can be copied
//! or looked at by others until the gate opens again. What goes on by itself, the deletion of what
//! nobody holds any more, waits for the gate as well, but nobody waits for that.
//!
//! Reading goes on meanwhile. What writes back and commits finds nothing to do.

use super::Fs;
use crate::{Error, Result};
use extant_sync::{JoinGate, Joined, LockClass, Rank, RankToken, RmwClass, ShardedCounter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static STATE: LockClass = LockClass::new("file system state", Rank::FsState);
static GATE: LockClass = LockClass::new("file system state gate", Rank::Leaf);
static INSIDE: RmwClass = RmwClass::new("changes of a CPU");

/// The gate, and what is known when it is closed.
#[derive(Debug)]
pub(crate) struct Changes {
    gate: JoinGate,
    /// Made read-only. Changed while the gate is closed and empty.
    read_only: AtomicBool,
    /// Files open for writing. Grows inside the gate only.
    open_files: ShardedCounter,
}

/// The right to change something, for the length of one operation.
#[derive(Debug)]
pub(crate) struct Changing<'f> {
    // Before the gate is left: the rank belongs to being inside.
    _rank: RankToken,
    _joined: Joined<'f>,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self {
            gate: JoinGate::new(&GATE, &INSIDE),
            read_only: AtomicBool::new(false),
            open_files: ShardedCounter::new(),
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Sets whether the file system is read-only. The gate is closed and empty.
    pub(crate) fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Release);
    }

    /// Whether files are open for writing.
    pub(crate) fn has_open_files(&self) -> bool {
        self.open_files.sum() > 0
    }

    /// Begins a change, unless nobody may now.
    #[inline]
    fn join(&self) -> Option<Changing<'_>> {
        let rank = RankToken::enter(&STATE);
        let joined = self.gate.join()?;
        Some(Changing {
            _rank: rank,
            _joined: joined,
        })
    }

    /// Sees to it that nobody changes anything, until [`open`](Self::open).
    pub(crate) fn close(&self) -> Result<()> {
        if !self.gate.close() {
            let by = "it is frozen, or about to be".to_owned();
            return Err(Error::InUse { by });
        }
        self.gate.wait_drained();
        Ok(())
    }

    /// Lets changes begin again.
    pub(crate) fn open(&self) {
        self.gate.open();
    }
}

/// A file that is open for writing: while there is one, the file system is not made read-only.
#[derive(Debug)]
pub struct OpenForWriting {
    fs: Arc<Fs>,
}

impl Drop for OpenForWriting {
    fn drop(&mut self) {
        if let Ok(changes) = self.fs.changes() {
            changes.open_files.add(-1);
        }
    }
}

impl Fs {
    #[inline]
    pub(crate) fn changes(&self) -> Result<&Changes> {
        match &self.write_state {
            Some(write_state) => Ok(&write_state.changes),
            None => Err(Error::ReadOnly),
        }
    }

    /// Begins a change; waits while the file system is frozen. `None` where it is open for reading
    /// only, which the start of a handle says.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system has been made so.
    #[inline]
    pub(crate) fn begin_change(&self) -> Result<Option<Changing<'_>>> {
        let Ok(changes) = self.changes() else {
            return Ok(None);
        };
        loop {
            match changes.join() {
                Some(_) if changes.is_read_only() => return Err(Error::ReadOnly),
                Some(changing) => return Ok(Some(changing)),
                None => changes.gate.wait_open(),
            }
        }
    }

    /// Begins a change that may as well be left out, if that is possible now.
    pub(crate) fn try_begin_change(&self) -> Option<Changing<'_>> {
        let changes = self.changes().ok()?;
        changes.join().filter(|_| !changes.is_read_only())
    }

    /// Counts a file that is opened for writing.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn open_for_writing(self: &Arc<Self>) -> Result<OpenForWriting> {
        let changing = self.begin_change()?.ok_or(Error::ReadOnly)?;
        self.changes()?.open_files.add(1);
        drop(changing);
        Ok(OpenForWriting {
            fs: Arc::clone(self),
        })
    }

    /// Waits for the changes that are being made, lets nobody begin another, and does `last`. A
    /// thread that waited to begin one, or comes later, is told that nothing can be changed any
    /// more.
    ///
    /// # Errors
    /// [`Error::InUse`] when it is frozen; what `last` says.
    pub(crate) fn end_changes(&self, last: impl FnOnce() -> Result<()>) -> Result<()> {
        let changes = self.changes()?;
        changes.close()?;
        let done = last();
        changes.read_only.store(true, Ordering::Release);
        changes.open();
        done
    }
}
