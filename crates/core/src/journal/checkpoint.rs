//! Checkpoint: committed images go home, and the log's tail follows.
//!
//! Of each block only the newest committed image is written; older ones were superseded in the
//! queue. Writes are sorted and as large as the blocks allow. A block that stops being metadata while a
//! batch with it is being written makes the commit that frees it wait for the batch: see
//! [`Queue::drop_images`](super::queue::Queue::drop_images).
//!
//! The tail moves in one of two ways while changes go on. Under pressure the home writes are flushed and the tail is made
//! durable at once, so that the space is free. In the background it is handed to the next commit,
//! whose first flush covers the home writes: no flush of its own.

use super::commit::tid;
use super::{CHECKPOINT, Journal, LOG, Seq, home};
use crate::fs::Fs;
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result};
use extant_format::Pblk;
use extant_sync::{Rank, debug_assert_no_locks_at_or_above};

/// Blocks written before those who drop images get their turn.
const BATCH: usize = 1024;

/// How the tail of the log follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// At once, with flushes of its own.
    Now,
    /// With the next commit.
    NextCommit,
    /// Nothing is left in the log, nor will there be: the file system is being closed.
    Empty,
}

impl Fs {
    /// Writes everything committed to where it belongs and frees its space in the log.
    ///
    /// # Errors
    /// When the device fails, which stops the journal; why the journal stopped, when it has.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_with(Tail::Now)
    }

    pub(super) fn checkpoint_with(&self, tail: Tail) -> Result<()> {
        let journal = self.journal()?;
        debug_assert_no_locks_at_or_above(Rank::JournalHandle);
        if journal.log.is_none() {
            return Ok(());
        }
        let turn = journal.checkpointing.lock_ascending(CHECKPOINT);
        journal.check_going()?;
        let outcome = self.write_queued(journal, tail);
        drop(turn);
        if let Err(cause) = &outcome {
            self.stop(cause);
        }
        outcome
    }

    fn write_queued(&self, journal: &Journal, tail: Tail) -> Result<()> {
        // Images enter the queue before their transaction counts as durable.
        let upto = journal.progress.durable();
        let blocks = journal.queue.blocks();
        if let (true, Some(log)) = (is_on(Mutant::TailTooEarly), &journal.log) {
            let mut writer = log.lock_ascending(LOG);
            writer
                .set_tail(Some(tid(upto.next())))
                .map_err(Error::log)?;
        }
        let mut written: Vec<(Pblk, Seq)> = Vec::with_capacity(blocks.len());
        for blocks in blocks.chunks(BATCH) {
            journal.check_going()?;
            let mut batch = journal.queue.begin(blocks);
            home::write(self.device(), self.block_size(), &batch.images)?;
            written.append(&mut batch.seqs);
        }
        journal.counters.checkpoints.inc();
        journal.counters.checkpointed.add(written.len() as i64);
        if tail != Tail::NextCommit {
            let begun = journal.flushes.begin();
            if !is_on(Mutant::HomeNotFlushed) {
                self.device().flush()?;
            }
            journal.flushes.done(begun);
            journal.counters.flushes.inc();
        }
        journal.queue.remove(&written);
        if let Some(log) = &journal.log {
            let mut writer = log.lock_ascending(LOG);
            let first_live = Some(tid(upto.next()));
            match tail {
                Tail::Now => writer.set_tail(first_live),
                Tail::NextCommit => writer.queue_tail(first_live),
                Tail::Empty => writer.close(),
            }
            .map_err(Error::log)?;
        }
        Ok(())
    }
}
