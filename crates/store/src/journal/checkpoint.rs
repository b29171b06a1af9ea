//! Checkpoint: committed images go home, and the log's tail follows.
//!
//! Of each block only the newest committed image is written; older ones were superseded in the
//! queue. Writes are sorted and as large as the blocks allow. A block that stops being metadata
//! while a batch with it is being written makes the commit that frees it wait for the batch: see
//! [`Queue::drop_images`](super::queue::Queue::drop_images).
//!
//! The tail moves in one of two ways while changes go on. Under pressure the home writes are
//! flushed and the tail is made durable at once, so that the space is free. In the background it is
//! handed to the next commit, whose first flush covers the home writes: no flush of its own.

use super::commit::tid;
use super::queue::{Bytes, Image};
use super::{CHECKPOINT, Journal, LOG, Seq, home};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result};
use extant_blockdev::Request;
use extant_format::Pblk;
use extant_sync::{Rank, debug_assert_no_locks_at_or_above};

/// Blocks written before threads that drop images get their turn.
const BATCH: usize = 1024;
/// As many where each request takes a round trip.
const FAR_BATCH: usize = 4096;

/// How the tail of the log follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// At once, with flushes of its own.
    Now,
    /// With the next commit.
    NextCommit,
    /// With the next commit, but everything is durable at home before.
    FlushedNextCommit,
}

impl Journal {
    /// Writes everything committed to where it belongs and frees its space in the log.
    ///
    /// # Errors
    /// When the device fails, which stops the journal; why the journal stopped, when it has.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_with(Tail::Now)
    }

    /// Writes everything committed to where it belongs; `tail` says how its space in the log
    /// becomes free.
    ///
    /// # Errors
    /// When the device fails, which stops the journal; why the journal stopped, when it has.
    pub fn checkpoint_with(&self, tail: Tail) -> Result<()> {
        debug_assert_no_locks_at_or_above(Rank::JournalHandle);
        if self.log.is_none() {
            return Ok(());
        }
        let turn = self.checkpointing.lock_ascending(CHECKPOINT);
        self.check_going()?;
        let outcome = self.write_queued(tail);
        drop(turn);
        if let Err(cause) = &outcome {
            self.stop(cause);
        }
        outcome
    }

    /// Writes the last image of the superblock home, which lies in `block`, and then says that the
    /// log is empty: it is as it will be found.
    ///
    /// Everything committed is home and durable by now. This image goes past the log. Should the
    /// machine stop within the write, what is left of it is replaced by the image of the last
    /// transaction, which has one.
    ///
    /// # Errors
    /// When the device fails, which stops the journal; why the journal stopped, when it has.
    pub fn end_log(&self, block: Pblk, bytes: Box<[u8]>) -> Result<()> {
        debug_assert_no_locks_at_or_above(Rank::JournalHandle);
        let turn = self.checkpointing.lock_ascending(CHECKPOINT);
        self.check_going()?;
        let outcome = self.write_last(block, bytes);
        drop(turn);
        if let Err(cause) = &outcome {
            self.stop(cause);
        }
        outcome
    }

    fn write_last(&self, block: Pblk, bytes: Box<[u8]>) -> Result<()> {
        let (device, size) = (self.volume.device(), self.volume.block_size());
        let bytes = Bytes::Own(bytes.into());
        let begun = self.flushes.begin();
        if !home::write_then(
            device,
            size,
            &[Image { block, bytes }],
            Some(Request::Flush),
        )? {
            device.flush()?;
        }
        self.flushes.done(begun);
        self.counters.flushes.inc();
        self.state.set_committed();
        match &self.log {
            Some(log) => log.lock_ascending(LOG).close().map_err(Error::log),
            None => Ok(()),
        }
    }

    fn write_queued(&self, tail: Tail) -> Result<()> {
        // Images enter the queue before their transaction counts as durable.
        let upto = self.progress.durable();
        let blocks = self.queue.blocks();
        if let (true, Some(log)) = (is_on(Mutant::TailTooEarly), &self.log) {
            let mut writer = log.lock_ascending(LOG);
            writer
                .set_tail(Some(tid(upto.next())))
                .map_err(Error::log)?;
        }
        let mut written: Vec<(Pblk, Seq)> = Vec::with_capacity(blocks.len());
        let flushes = tail != Tail::NextCommit;
        // Where each request takes a round trip, the flush goes along with the last writes.
        let is_far = self.volume.device().in_flight() > 1;
        let joins = flushes && is_far && !is_on(Mutant::HomeNotFlushed);
        let most = if is_far { FAR_BATCH } else { BATCH };
        let mut flushed = None;
        let mut chunks = blocks.chunks(most).peekable();
        while let Some(blocks) = chunks.next() {
            self.check_going()?;
            let mut batch = self.queue.begin(blocks);
            let ends = joins && chunks.peek().is_none();
            let begun = ends.then(|| self.flushes.begin());
            let has_flushed = home::write_then(
                self.volume.device(),
                self.volume.block_size(),
                &batch.images,
                ends.then_some(Request::Flush),
            )?;
            flushed = begun.filter(|_| has_flushed);
            written.append(&mut batch.seqs);
        }
        self.counters.checkpoints.inc();
        self.counters.checkpointed.add(written.len() as i64);
        if flushes {
            let begun = match flushed {
                Some(begun) => begun,
                None => {
                    let begun = self.flushes.begin();
                    if !is_on(Mutant::HomeNotFlushed) {
                        self.volume.device().flush()?;
                    }
                    begun
                }
            };
            self.flushes.done(begun);
            self.counters.flushes.inc();
        }
        self.queue.remove(&written);
        if let Some(log) = &self.log {
            let mut writer = log.lock_ascending(LOG);
            let first_live = Some(tid(upto.next()));
            match tail {
                Tail::Now => writer.set_tail(first_live),
                Tail::NextCommit | Tail::FlushedNextCommit => writer.queue_tail(first_live),
            }
            .map_err(Error::log)?;
        }
        Ok(())
    }
}
