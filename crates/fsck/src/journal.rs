//! The journal: what replaying it would give, and whether it is sound.

use crate::error::{Error, Result};
use crate::maps;
use crate::report::Sink;
use crate::volume::{Volume, find_superblock};
use crate::{Code, Place};
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::features::{Compat, Incompat};
use extant_format::inode::{FileType, Inode};
use extant_format::jbd2::{IncompatFeatures, JournalSuperblock, MIN_BLOCKS};
use extant_format::superblock::{Superblock, SuperblockFlags};
use extant_format::{Ino, Pblk};
use extant_jbd2::{JournalError, Log, LogEnd, LogRun, Recovery, ReplayedDevice, external_log};
use std::sync::Arc;

/// The device as recovery would leave it, whether there was anything to recover, and what is wrong
/// with superblock and descriptors before: Linux reads them to find the journal, and mounts nothing
/// where it finds fault with them. Where fast commits cannot be replayed, for the reason that is
/// given, the device is as without them.
pub(crate) fn recovered(
    device: SharedDevice,
    journal: Option<SharedDevice>,
    (as_is, without_fast_commits): (bool, Option<&str>),
    sink: &mut Sink,
) -> Result<(SharedDevice, bool, Sink)> {
    let mut before = Sink::new();
    let sb = find_superblock(&*device, &mut Sink::new())?;
    let external = sb.has_external_journal();
    if external && let Some(journal) = &journal {
        judge_external(&**journal, &sb, &mut before)?;
    }
    if as_is || !sb.needs_recovery() || sb.journal_ino().is_none() && !external {
        return Ok((device, false, before));
    }
    let volume = Volume::open(Arc::clone(&device), &mut before)?;
    crate::superblock::check_before_replay(&volume, &mut before)?;
    let (log_device, runs) = match (external, journal) {
        (false, _) => (Arc::clone(&device), log_runs(&volume)?),
        (true, None) => return Err(Error::ExternalJournal),
        (true, Some(journal)) => {
            let runs = external_log(&*journal, &sb).map_err(Error::Journal)?;
            (journal, runs)
        }
    };
    let recovery = Log::open(&*log_device, &runs, volume.block_size())
        .and_then(|log| log.recover(volume.geo.blocks_count()));
    match recovery {
        Ok(Recovery {
            fast_commits: Some(found),
            ..
        }) if without_fast_commits.is_none() => Err(Error::Journal(found.pending())),
        Ok(recovery) => {
            if let (Some(found), Some(why)) = (&recovery.fast_commits, without_fast_commits) {
                let tid = found.tid();
                let text = format!(
                    "fast commits wait in the place of transaction {tid}, and cannot be replayed: {why}"
                );
                sink.say(Code::JournalLog, Place::FILE_SYSTEM, text);
            }
            let count = recovery.transaction_count;
            let text = format!("{count} transactions of the journal were replayed in memory");
            sink.say(Code::JournalReplayed, Place::FILE_SYSTEM, text);
            if let LogEnd::TornCommit { tid, block } = recovery.end {
                let text = format!(
                    "the last transaction, {tid}, is not replayed: its commit in block {block} of the journal is damaged"
                );
                sink.say(Code::JournalLog, Place::FILE_SYSTEM, text);
            }
            if recovery.recorded_error != 0 {
                aborted(recovery.recorded_error, sink);
            }
            let replayed = ReplayedDevice::with_log(device, log_device, recovery.blocks);
            if let Ok(after) = find_superblock(&replayed, &mut Sink::new())
                && read_before_replay(&sb) != read_before_replay(&after)
            {
                let text = "Linux reads how names are hashed and checksums are made before it replays the journal, which holds others";
                before.say(Code::SuperblockField, Place::FILE_SYSTEM, text);
            }
            Ok((Arc::new(replayed), true, before))
        }
        Err(JournalError::Device { source, .. } | JournalError::Home { source, .. }) => {
            Err(source.into())
        }
        Err(e @ JournalError::FastCommitPending { .. }) => Err(Error::Journal(e)),
        // No other check judges that device.
        Err(e) if external => Err(Error::Journal(e)),
        // The journal's superblock and inode are judged with everything else.
        Err(
            JournalError::Superblock(_)
            | JournalError::Mapping { .. }
            | JournalError::TooShort { .. }
            | JournalError::BlockSize { .. },
        ) => Ok((device, false, before)),
        Err(e) => {
            sink.say(Code::JournalLog, Place::FILE_SYSTEM, e.to_string());
            Ok((device, false, before))
        }
    }
}

/// What Linux takes over from the superblock before it replays the journal, and does not read
/// again: how names are hashed, how checksums are made, and how large inodes are.
fn read_before_replay(sb: &Superblock) -> impl PartialEq {
    let seed = sb.has_metadata_csum().then(|| sb.checksum_seed());
    let hash = (sb.hash_seed(), sb.raw().def_hash_version);
    let signs = SuperblockFlags::SIGNED_HASH | SuperblockFlags::UNSIGNED_HASH;
    (
        seed,
        hash,
        sb.flags() & signs,
        sb.inode_size(),
        sb.first_ino(),
    )
}

fn aborted(errno: i32, sink: &mut Sink) {
    let text = format!("the journal was stopped by error {errno}");
    sink.say(Code::JournalAborted, Place::FILE_SYSTEM, text);
}

/// What Linux refuses of a journal's superblock that can be read. Whether the superblock of the log
/// has a place for the features of the journal that Linux turns on when it mounts such a file
/// system.
pub(crate) fn suits(log: &JournalSuperblock, volume: &Volume) -> bool {
    log.v2 || !volume.has_incompat(Incompat::BIT64) && !volume.sb.has_metadata_csum()
}

/// Looks at the superblock of a journal on a device of its own.
fn judge_external(journal: &dyn BlockDevice, sb: &Superblock, sink: &mut Sink) -> Result<()> {
    let runs = external_log(journal, sb).map_err(Error::Journal)?;
    // Whatever keeps it from being opened is said when it is to be replayed.
    let Ok(log) = Log::open(journal, &runs, sb.block_size()) else {
        return Ok(());
    };
    if !log.superblock().v2 {
        let text = "the journal on another device has a superblock of the first version, which says nothing of users";
        sink.say(Code::JournalSuperblock, Place::FILE_SYSTEM, text);
    }
    judge(log.superblock(), Place::FILE_SYSTEM, sink);
    Ok(())
}

fn judge(log: &JournalSuperblock, place: Place, sink: &mut Sink) {
    if log.users_count > 1 {
        let what = "file systems that use the journal";
        sink.number(Code::JournalSuperblock, place, what, log.users_count, 1u32);
    }
    if log.ro_compat != 0 {
        let what = "features of the journal for reading only";
        sink.number(Code::JournalSuperblock, place, what, log.ro_compat, 0u32);
    }
    if !is_long_enough(log) {
        let what = "blocks from the first of the log to the end";
        let len = log.max_len.saturating_sub(log.first);
        sink.number(Code::JournalSuperblock, place, what, len, MIN_BLOCKS - 1);
    }
    if !keeps_fast_commits(log) {
        let text = "the log has fast commits, and no room for them";
        sink.say(Code::JournalSuperblock, place, text);
    }
}

/// Whether fast commits, if the log has them, leave it the blocks that Linux wants at least.
pub(crate) fn keeps_fast_commits(log: &JournalSuperblock) -> bool {
    !log.incompat.contains(IncompatFeatures::FAST_COMMIT) || log.area().end < log.max_len
}

/// Whether the log is as long as Linux wants it at least.
pub(crate) fn is_long_enough(log: &JournalSuperblock) -> bool {
    u64::from(log.first) + u64::from(MIN_BLOCKS) <= u64::from(log.area().end) + 1
}

/// The runs of the journal's inode.
pub(crate) fn log_runs(volume: &Volume) -> Result<Vec<LogRun>> {
    let Some(ino) = volume.sb.journal_ino() else {
        return Ok(Vec::new());
    };
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(Vec::new());
    };
    if inode.file_type() != Some(FileType::Regular) {
        return Ok(Vec::new());
    }
    runs_of(volume, ino, &inode)
}

/// The runs of an inode as those of a journal.
pub(crate) fn runs_of(volume: &Volume, ino: Ino, inode: &Inode) -> Result<Vec<LogRun>> {
    let end = inode.size >> volume.block_size().log2();
    let runs = maps::runs(volume, ino, inode)?;
    let inside = runs.into_iter().take_while(|run| u64::from(run.lblk) < end);
    Ok(inside
        .map(|run| LogRun {
            first: run.lblk,
            len: run.len,
            start: Pblk::new(run.pblk),
        })
        .collect())
}

/// How many blocks of a journal are mapped before the first hole.
pub(crate) fn mapped_from_start(runs: &[LogRun]) -> u64 {
    let joined = |end: u64, run: &LogRun| {
        if u64::from(run.first) == end {
            end + u64::from(run.len)
        } else {
            end
        }
    };
    runs.iter().fold(0, joined)
}

/// Whether the file system asks for fast commits, and its log has no place for them and no room:
/// Linux does not mount it.
pub(crate) fn lacks_fast_commits(volume: &Volume) -> bool {
    let wanted = Compat::HAS_JOURNAL | Compat::FAST_COMMIT;
    if !volume.features.compat.contains(wanted) || volume.sb.journal_ino().is_none() {
        return false;
    }
    let log = log_runs(volume).ok().and_then(|runs| {
        let log = Log::open(&**volume.device(), &runs, volume.block_size()).ok()?;
        Some(log.superblock().clone())
    });
    log.is_some_and(|log| !has_room_for_fast_commits(&log))
}

/// Whether a log has a place for fast commits, or room for one.
fn has_room_for_fast_commits(log: &JournalSuperblock) -> bool {
    let mut with = log.clone();
    with.incompat |= IncompatFeatures::FAST_COMMIT;
    log.incompat.contains(IncompatFeatures::FAST_COMMIT) || keeps_fast_commits(&with)
}

/// Checks the journal's inode and superblock.
pub(crate) fn check(volume: &Volume, recovered: bool, as_is: bool, sink: &mut Sink) -> Result<()> {
    if !volume.has_compat(Compat::HAS_JOURNAL) {
        return Ok(());
    }
    let Some(ino) = volume.sb.journal_ino() else {
        let text = if volume.sb.has_external_journal() {
            "the journal lies on another device and was not looked at"
        } else {
            "there is a journal, but no inode or device for it"
        };
        let code = if volume.sb.has_external_journal() {
            Code::JournalExternal
        } else {
            Code::JournalInode
        };
        sink.say(code, Place::FILE_SYSTEM, text);
        return Ok(());
    };
    let place = Place::ino(ino);
    let Some((_, inode)) = volume.inode(ino)? else {
        sink.say(Code::JournalInode, place, "the inode cannot be read");
        return Ok(());
    };
    if inode.file_type() != Some(FileType::Regular) || inode.links == 0 {
        let text = "the inode is no regular file with a link";
        sink.say(Code::JournalInode, place, text);
        return Ok(());
    }
    let blocks = inode.size >> volume.block_size().log2();
    if blocks < u64::from(MIN_BLOCKS) {
        let what = "blocks of the journal";
        sink.number(Code::JournalInode, place, what, blocks, MIN_BLOCKS);
    }
    let runs = log_runs(volume)?;
    let whole = (mapped_from_start(&runs) << volume.block_size().log2()).min(inode.size);
    if whole != inode.size {
        let what = "size of the journal, which has no holes";
        sink.number(Code::JournalInode, place, what, inode.size, whole);
    }
    // That all are mapped which the log has is a condition of opening it. Not through the overlay:
    // the log is read where it lies, and recovery never writes into itself.
    match Log::open(
        &**volume.device() as &dyn BlockDevice,
        &runs,
        volume.block_size(),
    ) {
        Ok(log) => {
            if log.superblock().errno != 0 && !recovered {
                aborted(log.superblock().errno, sink);
            }
            judge(log.superblock(), place, sink);
            if !suits(log.superblock(), volume) {
                let text = "a superblock of the first version has no place for the features that 64bit and metadata_csum need";
                sink.say(Code::JournalSuperblock, place, text);
            }
            let flagged = volume.has_incompat(Incompat::RECOVER);
            if !log.is_clean() && !recovered && !as_is && !flagged {
                let text = "the journal holds transactions, but the superblock says it is clean";
                sink.say(Code::JournalNotEmpty, place, text);
            }
            Ok(())
        }
        Err(JournalError::Device { source, .. }) => Err(source.into()),
        Err(JournalError::Superblock(e)) => {
            sink.format(Code::JournalSuperblock, place, e);
            Ok(())
        }
        Err(e @ JournalError::Mapping { .. }) => {
            sink.say(Code::JournalInode, place, e.to_string());
            Ok(())
        }
        Err(e) => {
            sink.say(Code::JournalSuperblock, place, e.to_string());
            Ok(())
        }
    }
}
