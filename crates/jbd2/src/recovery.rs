//! The whole of recovery, and its account.

use crate::fast_commit::{FastCommits, fast_commits};
use crate::log::Log;
use crate::overlay::ReplayedBlocks;
use crate::replay::replay;
use crate::revoke::RevokeTable;
use crate::scan::scan;
use crate::{JournalError, JournalResult};
use extant_format::Tid;
use extant_format::jbd2::IncompatFeatures;

/// Why the log ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEnd {
    /// No record of the next transaction follows.
    NoMoreRecords,
    /// The next transaction was begun and never committed.
    Uncommitted {
        /// That transaction.
        tid: Tid,
    },
    /// The last commit block has a wrong checksum: its transaction did not reach the device as
    /// a whole, and is dropped.
    TornCommit {
        /// That transaction.
        tid: Tid,
        /// Journal block of the commit.
        block: u32,
    },
    /// What follows was left by an older log.
    Stale {
        /// The transaction it claims to be.
        tid: Tid,
    },
}

/// What the log held.
#[derive(Debug)]
pub struct Recovery {
    /// Where the newest image of every block is.
    pub blocks: ReplayedBlocks,
    /// First and last committed transaction; `None` if there is none.
    pub transactions: Option<(Tid, Tid)>,
    /// Committed transactions.
    pub transaction_count: u32,
    /// Images taken; a block logged twice counts twice.
    pub images: u64,
    /// Images left out because a later or the same transaction revoked the block.
    pub revoked_images: u64,
    /// Blocks in the revoke table.
    pub revoked_blocks: usize,
    /// The number a new transaction must take at least: it exceeds everything in the log, also
    /// what was dropped.
    pub next_tid: Tid,
    /// When the last transaction was committed, in seconds since the epoch; 0 if none was.
    pub last_commit_seconds: u64,
    /// The error recorded when the journal was aborted, as a negative errno; 0 if none. The file
    /// system needs a check then.
    pub recorded_error: i32,
    /// Why the log ends where it does.
    pub end: LogEnd,
    /// Changes made after the last transaction, which the blocks do not show. Code that goes on
    /// with the log applies them, or refuses to.
    pub fast_commits: Option<FastCommits>,
}

pub(crate) fn recover(log: &Log<'_>, filesystem_blocks: u64) -> JournalResult<Recovery> {
    match recover_before_damage(log, filesystem_blocks)? {
        (recovery, None) => Ok(recovery),
        (_, Some(damage)) => Err(damage),
    }
}

/// The transactions up to the first that is damaged, and what is wrong with that.
pub(crate) fn recover_before_damage(
    log: &Log<'_>,
    filesystem_blocks: u64,
) -> JournalResult<(Recovery, Option<JournalError>)> {
    let superblock = log.superblock();
    let mut recovery = Recovery {
        blocks: ReplayedBlocks::new(superblock.block_size),
        transactions: None,
        transaction_count: 0,
        images: 0,
        revoked_images: 0,
        revoked_blocks: 0,
        next_tid: superblock.sequence.next(),
        last_commit_seconds: 0,
        recorded_error: superblock.errno,
        end: LogEnd::NoMoreRecords,
        fast_commits: None,
    };
    if log.is_clean() {
        return Ok((recovery, None));
    }
    let mut scan = scan(log)?;
    // Fast commits follow a transaction that is there.
    if scan.damage.is_none() && superblock.incompat.contains(IncompatFeatures::FAST_COMMIT) {
        recovery.fast_commits = fast_commits(log, scan.end)?;
    }
    let (revoked, replay) = loop {
        let mut revoked = RevokeTable::load(log, &scan.records)?;
        revoked.add_readable(log, &scan.later_revokes)?;
        match replay(log, &scan.records, &revoked, filesystem_blocks) {
            Ok(replay) => break (revoked, replay),
            Err(e) => {
                let (JournalError::Corrupt { tid, .. } | JournalError::Target { tid, .. }) = &e
                else {
                    return Err(e);
                };
                // The transactions before it were sound: this happens once.
                let tid = *tid;
                recovery.fast_commits = None;
                scan.cut(tid, superblock.sequence, e);
            }
        }
    };
    if scan.transactions > 0 {
        let last = Tid::new(scan.end.get().wrapping_sub(1));
        recovery.transactions = Some((superblock.sequence, last));
    }
    recovery.transaction_count = scan.transactions;
    recovery.blocks = replay.blocks;
    recovery.images = replay.images;
    recovery.revoked_images = replay.revoked;
    recovery.revoked_blocks = revoked.len();
    // The transaction at the end may have left records with its number behind.
    recovery.next_tid = scan.after_all.next();
    recovery.last_commit_seconds = scan.last_commit_seconds;
    recovery.end = scan.ended_by;
    Ok((recovery, scan.damage))
}
