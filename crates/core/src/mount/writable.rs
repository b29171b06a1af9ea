//! The way from a device to an [`Fs`] that may be changed.
//!
//! In this order, each step durable before the next where the next relies on it:
//!
//! 1. refuse what cannot be written: features, a device open for reading, sectors larger than
//!    blocks;
//! 2. claim it, where it has a block that says which host uses it; changes that wait to be put in
//!    place (`waiting`) go there first, under a claim of their own;
//! 3. replay the log home, and begin an empty one whose transactions have numbers above all that
//!    was there;
//! 4. add up the counts of the group descriptors, as those in the superblock may be older;
//! 5. refuse one whose root cannot be loaded;
//! 6. mark the file system as in use: in the superblock, by a first transaction of its own, which
//!    is home before another one is committed. Where that takes round trips, nobody waits for it
//!    here;
//! 7. delete what was an orphan at the crash.
//!
//! A crash between any two leaves a log that replays to the same state, or an empty one. Where the
//! mark is in the log and not home yet, others ignore the log or replay nothing but the mark: both
//! are right.

use super::open::read_superblock;
use super::orphan_file::orphan_file_blocks;
use super::replay::JournalPlace;
use super::{fast_commit, torn};
use crate::alloc::{Alloc, AllocOptions};
use crate::fs::JournalChoice;
use crate::fs::{Changes, Claim, Fs, MountOptions, Notice, SuperblockChoice, WriteState, policy};
use crate::inode::{LazyTimes, Orphans, RegisteredInodes};
use crate::journal::{CheckpointQueue, Journal};
use crate::meta::Seq;
use crate::quota::Accounts;
use crate::volume::{SuperState, keep_errors, mark_open};
use crate::xattr::{SharedBlocks, SharedValues};
use crate::{Error, Place, Result};
use extant_blockdev::{DeviceError, SharedDevice};
use extant_format::features::{Compat, Incompat};
use extant_format::superblock::{State, Superblock};
use extant_format::{Expected, FormatError, Pblk, Structure, Tid};
use extant_jbd2::{
    CommitTime, FastCommits, LogImage, LogRun, LogTransaction, LogWriter, WriterOptions,
};
use extant_sync::{LockClass, Mutex, Rank};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

static RENAME: LockClass = LockClass::new("rename topology", Rank::RenameTopology);

/// One part in this many of the memory budget may be images that wait for their checkpoint.
const QUEUE_SHARE: usize = 4;
/// Transactions are numbered above this, so that the number 0, which stands for none, is no
/// transaction's, whatever the log says.
pub(super) const FIRST_SEQ: u64 = 1 << 32;

/// Whether a file system with multiple-mount protection is claimed when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claims {
    Taken,
    /// Whoever opens it has claimed it.
    Held,
    /// As `Held`, of a device that is gone after a crash: changes go to their places at once, and
    /// not through the log.
    HeldInFront,
}

/// A journal as it was found, replayed.
pub(super) struct Found {
    pub(super) runs: Vec<LogRun>,
    /// Block 0 of it, until that is written.
    first_block: Option<Box<[u8]>>,
    pub(super) first: Tid,
    last_commit_seconds: u64,
    /// An error stopped the journal in an earlier life.
    aborted: bool,
    notices: Vec<Notice>,
    replayed: bool,
    /// The file system as it was read to find this. `None` if the device has changed since.
    pub(super) seen: Option<Fs>,
}

impl Fs {
    pub(super) fn open_writable(
        device: SharedDevice,
        options: &MountOptions,
        claims: Claims,
    ) -> Result<Arc<Self>> {
        if options.superblock != SuperblockChoice::Primary {
            return Err(Error::InvalidInput("writing needs the primary superblock"));
        }
        if options.journal != JournalChoice::Replay {
            return Err(Error::InvalidInput("writing needs the journal replayed"));
        }
        if device.is_read_only() {
            let device = device.name();
            return Err(DeviceError::ReadOnly { device }.into());
        }
        let are_taken = claims == Claims::Taken;
        let (found, settled) = torn::find_settled(&device, options, are_taken)?;
        let torn::Found {
            superblock: before,
            torn,
        } = found;
        policy::check_writable(before.features())?;
        check_sectors(&device, &before)?;
        let claim = if are_taken {
            Claim::take(&device, &before, std::thread::sleep)?
        } else {
            None
        };
        let found = Self::find_journal(&device, &before, options, torn.is_some())?;
        let log = match &found {
            Some(found) if claims == Claims::HeldInFront => {
                empty_log(&device, &before, found)?;
                None
            }
            Some(found) => Some(start_log(&device, &before, found, None)?),
            None => None,
        };
        let first = found.as_ref().map_or(0, |found| found.first.get());
        let first = FIRST_SEQ + u64::from(first);
        // Replay may have put another superblock there.
        let is_replayed = found.as_ref().is_some_and(|found| found.replayed);
        let mut superblock = if is_replayed {
            read_superblock(&device, options.superblock)?
        } else {
            before.clone()
        };
        superblock = keep_errors(&before, &superblock);
        if found.as_ref().is_some_and(|found| found.aborted) {
            let state = superblock.state() | State::ERRORS;
            superblock.set_state(state);
        }
        let was_clean = superblock.state().contains(State::CLEAN);
        let superblock = mark_open(&superblock);
        let runs = found.as_ref().map_or(&[][..], |found| &found.runs);
        let log = (log, runs);
        let seen = found.as_ref().and_then(|found| found.seen.as_ref());
        let mut fs = Self::writable(device, superblock, options, log, Seq::new(first), seen)?;
        if !was_clean {
            fs.super_state()?.note_found_unclean();
        }
        fs.check_root()?;
        // An error that stopped the journal is forgotten there once the superblock has it.
        let is_aborted = found.as_ref().is_some_and(|found| found.aborted);
        let marks_aside = options.background && !is_aborted && fs.device().in_flight() > 1;
        if !marks_aside {
            fs.commit_in_use_mark()?;
        }
        // As it was found: by now it says that the file system is in use.
        fs.notices = Notice::of_superblock(&before, options);
        fs.add_notices(torn);
        fs.add_notices(settled.map(|blocks| Notice::ChangesPutInPlace { blocks }));
        if let Some(found) = found {
            if found.aborted {
                // The superblock of the file system remembers it from now on.
                fs.journal()?.forget_error()?;
            }
            fs.replayed = found.replayed;
            fs.add_notices(found.notices);
        }
        let fs = Arc::new(fs);
        if marks_aside {
            fs.commit_in_use_mark_aside()?;
        }
        if let (Some(claim), Some(write_state)) = (claim, &fs.write_state) {
            let _ = write_state.mmp.set(claim.keep(Arc::downgrade(&fs))?);
        }
        fs.recover_orphans()?;
        if options.background {
            fs.start_journal_thread(options.commit_interval)?;
            let weak = Arc::downgrade(&fs);
            fs.data().flusher().start(weak, options.commit_interval)?;
        }
        Ok(fs)
    }

    /// The journal, replayed home if it waited for that; `None` on a file system without one.
    pub(super) fn find_journal(
        device: &SharedDevice,
        superblock: &Superblock,
        options: &MountOptions,
        torn: bool,
    ) -> Result<Option<Found>> {
        if !superblock.has_compat(Compat::HAS_JOURNAL) {
            if superblock.needs_recovery() {
                let expected = Expected::Said("a journal, as one waits for replay");
                let found = superblock.raw().feature_incompat.get().into();
                let what = Structure::Superblock;
                let source = FormatError::new(what, "feature_incompat", found, expected);
                return Err(Error::corrupt(Place::Superblock, source));
            }
            return Ok(None);
        }
        if superblock.has_external_journal() {
            return Err(Error::Unsupported {
                features: "an external journal (for writing; it can be opened for reading only)"
                    .to_owned(),
            });
        }
        let ino = superblock.journal_ino().ok_or_else(|| {
            let expected = Expected::Said("an inode, as there is a journal");
            let source = FormatError::new(Structure::Superblock, "journal_inum", 0, expected);
            Error::corrupt(Place::Superblock, source)
        })?;
        let fs = Self::to_look(Arc::clone(device), superblock.clone(), options)?;
        let waits = torn || superblock.needs_recovery();
        if !waits {
            fs.opening_ahead();
        }
        let mut found = fs.replay_home(fs.journal_place(ino)?, waits, options)?;
        found.seen = (!waits).then_some(fs);
        Ok(Some(found))
    }

    /// Replays the log at `journal`, if it `waits` for that.
    fn replay_home(
        &self,
        journal: JournalPlace,
        waits: bool,
        options: &MountOptions,
    ) -> Result<Found> {
        let log = journal.open(self)?;
        let recovery = log.recover(self.geometry().blocks_count());
        let JournalPlace { runs, first_block } = journal;
        let first_block = Some(first_block);
        if !waits {
            // As Linux does: what is in the log counts for nothing. Only its numbers matter, and
            // if they cannot be read, no log holds more transactions than blocks.
            let superblock = log.superblock();
            let last = superblock.sequence.get().wrapping_add(superblock.max_len);
            let first = recovery.map_or(Tid::new(last).next(), |recovery| recovery.next_tid);
            return Ok(Found {
                first,
                last_commit_seconds: 0,
                aborted: superblock.errno != 0,
                notices: Vec::new(),
                replayed: false,
                runs,
                first_block,
                seen: None,
            });
        }
        let recovery = recovery?;
        let home = recovery.write_home(&log)?;
        crate::event!(
            info,
            transactions = recovery.transaction_count,
            blocks = home.blocks,
            "replayed the journal"
        );
        let mut found = Found {
            first: recovery.next_tid,
            last_commit_seconds: recovery.last_commit_seconds,
            aborted: recovery.recorded_error != 0,
            notices: Notice::of_replay(&recovery),
            replayed: true,
            runs,
            first_block,
            seen: None,
        };
        if let Some(fast_commits) = &recovery.fast_commits {
            self.commit_fast_commits(fast_commits, &found, options)?;
            found.first_block = None;
        }
        Ok(found)
    }

    /// Makes the changes of fast commits on the device, all the rest of the log being home: they
    /// are committed as the transaction they stand for, which makes them void, and then go home as
    /// well.
    fn commit_fast_commits(
        &self,
        fast_commits: &FastCommits,
        found: &Found,
        options: &MountOptions,
    ) -> Result<()> {
        let device = self.device();
        let changed = fast_commit::apply(device, options, fast_commits)?.take_written();
        let images: Vec<LogImage<'_>> = changed
            .iter()
            .map(|(block, bytes)| LogImage {
                block: Pblk::new(*block),
                bytes,
            })
            .collect();
        let tid = fast_commits.tid();
        let mut log = start_log(device, self.superblock(), found, Some(tid))?;
        if log.needed(images.len(), 0) > log.capacity() {
            return Err(fast_commit::too_large());
        }
        let transaction = LogTransaction {
            tid,
            images: &images,
            revokes: &[],
        };
        log.append(&transaction).map_err(Error::log)?;
        log.commit(tid, CommitTime::default()).map_err(Error::log)?;
        for image in &images {
            let offset = self.block_size().offset_of(image.block);
            device.write_at(offset.unwrap_or(u64::MAX), image.bytes)?;
        }
        device.flush()?;
        Ok(())
    }

    /// The file system with all that changes need. The blocks of a journal are kept from files,
    /// whether it is written to or not. `seen` is what was read of it since the device
    /// changed last.
    pub(super) fn writable(
        device: SharedDevice,
        superblock: Superblock,
        options: &MountOptions,
        (log, runs): (Option<LogWriter>, &[LogRun]),
        first: Seq,
        seen: Option<&Self>,
    ) -> Result<Self> {
        let images = options.memory / QUEUE_SHARE / superblock.block_size().len();
        let queue = CheckpointQueue::new(images.max(1));
        let mut fs = Self::assemble(device, superblock, options, false, Some(queue.overlay()))?;
        match seen {
            Some(seen) => fs.cache().take_over(seen.cache()),
            None => fs.opening_ahead(),
        }
        let super_state = SuperState::new(fs.device(), fs.superblock().clone())?;
        let super_state = Arc::new(super_state);
        // A transaction may change all of the quota files, for which no operation asks room: it has
        // half of the log.
        let most = log
            .as_ref()
            .map_or(u64::MAX, |log| u64::from(log.capacity()) / 2);
        let journal = Journal::new(
            Arc::clone(fs.volume()),
            Arc::clone(&super_state),
            first,
            log,
            queue,
        );
        let journal = Arc::new(journal);
        let alloc_options = AllocOptions {
            memory: options.memory,
            discard: options.discard,
        };
        let mut alloc = Alloc::new(Arc::clone(fs.volume()), Arc::clone(&journal), alloc_options)?;
        alloc.keep_journal(runs)?;
        #[cfg(feature = "baseline")]
        let alloc = alloc.with(options.baseline.alloc);
        let orphans = Orphans::load(&fs, &alloc, orphan_file_blocks)?;
        #[cfg(feature = "baseline")]
        let orphans = orphans.with_one_lock(options.baseline.inode.one_orphan_lock);
        fs.write_state = Some(WriteState {
            journal,
            alloc: Arc::new(alloc),
            registered_inodes: RegisteredInodes::new(),
            orphans,
            shared_attributes: SharedBlocks::new(),
            shared_values: SharedValues::new(),
            super_state,
            accounts: None,
            changes: Changes::new(),
            lazy_times: LazyTimes::new(),
            mmp: OnceLock::new(),
            rename_topology: Mutex::new(&RENAME, ()),
            is_verity_in_copies: AtomicBool::new(false),
        });
        let accounts = Accounts::load(&fs, most, options)?;
        if let Some(write_state) = &mut fs.write_state {
            write_state.accounts = accounts;
        }
        Ok(fs)
    }
}

/// Leaves nothing to be replayed of a log that was, nor an error that stopped it, where nothing is
/// going to be written to it.
fn empty_log(device: &SharedDevice, superblock: &Superblock, found: &Found) -> Result<()> {
    if !(found.replayed || found.aborted) {
        return Ok(());
    }
    let mut log = start_log(device, superblock, found, None)?;
    log.close().map_err(Error::log)?;
    if found.aborted {
        log.record_error(0).map_err(Error::log)?;
    }
    Ok(())
}

/// An empty log after the one that was found; with `fast_commits`, one that begins with the
/// transaction that those stand for.
pub(super) fn start_log(
    device: &SharedDevice,
    superblock: &Superblock,
    found: &Found,
    fast_commits: Option<Tid>,
) -> Result<LogWriter> {
    let options = WriterOptions {
        metadata_csum: superblock.has_metadata_csum(),
        sixty_four_bit: superblock.has_incompat(Incompat::BIT64),
        keeps_fast_commits: fast_commits.is_some(),
    };
    let (device, runs, size) = (
        Arc::clone(device),
        found.runs.clone(),
        superblock.block_size(),
    );
    let first = fast_commits.unwrap_or(found.first);
    let seconds = found.last_commit_seconds;
    match found.first_block.as_deref() {
        Some(block) if block.len() == size.len() => {
            LogWriter::start_read(device, runs, block, first, seconds, options)
        }
        _ => LogWriter::start(device, runs, size, first, seconds, options),
    }
    .map_err(Error::log)
}

/// Refuses blocks that the device cannot write as a unit.
fn check_sectors(device: &SharedDevice, superblock: &Superblock) -> Result<()> {
    if superblock.block_size().bytes() < device.logical_sector() {
        return Err(Error::Unsupported {
            features: format!(
                "blocks of {} bytes on a device with sectors of {}",
                superblock.block_size(),
                device.logical_sector()
            ),
        });
    }
    Ok(())
}
