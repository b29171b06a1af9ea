//! The journal: handles, the running transaction, commit and checkpoint.
//!
//! | file | owns |
//! |---|---|
//! | `seq` | numbers of transactions |
//! | `seal` | which checksum a block's image gets at commit |
//! | `touched` | what the running transaction has changed, in per-CPU lists |
//! | `credits` | room in the running transaction, handed out in chunks |
//! | `handle` | [`Handle`]: the right to change metadata, for one operation |
//!
//! # How a change becomes durable
//!
//! Metadata in memory is published as immutable images: a block ([`BlockRef`](crate::meta::BlockRef)),
//! an inode's record, a group's bitmap. A change puts a new image in place of the old one and
//! registers the object in the running transaction at its first touch there. Commit closes the gate,
//! waits until no handle is inside, takes references to the images of everything registered, and
//! opens the gate for the next transaction. What it took can no longer change, so encoding,
//! checksums, the log and the checkpoint work on it with new handles already running.
//!
//! # Locking
//!
//! A handle is a place of rank `JournalHandle` in the order: starting one may sleep for a commit, so
//! nothing from that rank on may be held. Lists of touched objects have locks of rank
//! `JournalRunning`.

mod credits;
mod handle;
mod seal;
mod seq;
mod touched;

pub use handle::Handle;
pub use seal::Seal;
pub use seq::Seq;

use crate::Error;
use credits::Credits;
use extant_sync::{JoinGate, LockClass, Mutex, PerCpu, Rank};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use touched::Touched;

static GATE: LockClass = LockClass::new("journal gate", Rank::Leaf);
static TOUCHED: LockClass = LockClass::new("journal touched", Rank::JournalRunning);

/// The transactions of a file system open for writing.
#[derive(Debug)]
pub struct Journal {
    /// Handles are inside; commit closes it.
    gate: JoinGate,
    /// The running transaction. Changes only while the gate is closed and drained.
    running: AtomicU64,
    touched: PerCpu<Mutex<Touched>>,
    credits: Credits,
    /// Why nothing can be committed any more.
    aborted: OnceLock<Error>,
}

impl Journal {
    /// A journal whose next transaction is `first`, with room for `blocks` in each.
    pub(crate) fn new(first: Seq, blocks: u32) -> Self {
        Self {
            gate: JoinGate::new(&GATE),
            running: AtomicU64::new(first.get()),
            touched: PerCpu::new(|_| Mutex::new(&TOUCHED, Touched::default())),
            credits: Credits::new(blocks),
            aborted: OnceLock::new(),
        }
    }

    /// The running transaction.
    #[must_use]
    pub fn running(&self) -> Seq {
        Seq::new(self.running.load(Ordering::Acquire))
    }
}
