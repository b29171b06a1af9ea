//! The journal: replayed, its inode and superblock.

use super::draft::{Draft, Reserved};
use super::options::Options;
use super::system_files::is_users;
use super::work::Work;
use crate::error::{Error, Result};
use crate::journal::log_runs;
use crate::report::Sink;
use crate::volume::{Volume, find_superblock};
use crate::{Code, Place};
use extant_blockdev::{BlockDevice, OverlayDevice, SharedDevice};
use extant_format::features::{Compat, Incompat};
use extant_format::inode::{FileType, Inode, InodeFlags, Mode};
use extant_format::jbd2::{
    FastCommitRecord, IncompatFeatures, JournalSuperblock, MAGIC, MIN_BLOCKS,
};
use extant_format::superblock::{SUPERBLOCK_OFFSET, Superblock};
use extant_format::{Ino, Pblk, extent, indirect};
use extant_jbd2::{FastCommits, JournalError, Log, LogRun, Recovery};
use std::sync::Arc;

/// The parts of the replay that failed or worked.
type Replayed = (Recovery, JournalSuperblock);

/// Writes into the draft what the journal holds, and empties the journal. Returns why that cannot
/// be done yet, if something waits in it: its inode may be mended first.
///
/// The log is looked for where its inode says, and where the copy in the superblock says. Only one
/// whose records are damaged is given up, from the first damaged transaction on: what cannot be
/// found, or has features that are not known, may be all right.
pub(super) fn replay(draft: &mut Draft) -> Result<Option<String>> {
    let device = draft.device();
    let sb = find_superblock(&*device, &mut Sink::new())?;
    if !sb.needs_recovery() {
        return Ok(None);
    }
    if sb.has_external_journal() {
        return Err(Error::ExternalJournal);
    }
    let volume = Volume::open(Arc::clone(&device), &mut Sink::new())?;
    let mut why = None;
    let mut damaged = None;
    let places = places_of_log(&volume)?;
    let readable = volume.inode(Ino::JOURNAL)?.is_some();
    if places.is_empty() && readable && !sb.has_compat(Compat::HAS_JOURNAL) {
        // A contradiction in the superblock, which is mended as such.
        return Ok(None);
    }
    for runs in places {
        begin_as_usual(draft, &volume, &runs)?;
        match write_home(&volume, &runs) {
            Ok((recovery, mut log)) => {
                log.start = 0;
                log.sequence = recovery.next_tid;
                log.errno = 0;
                draft_superblock(draft, &volume, &runs, &log)?;
                let text = format!("{} transactions were replayed", recovery.transaction_count);
                draft.fix(Code::JournalReplayed, Place::FILE_SYSTEM, text);
                draft.replayed(recovery.blocks);
                return recovered(draft);
            }
            Err(e @ (JournalError::Device { .. } | JournalError::Home { .. })) => {
                return Err(Error::of_journal(e));
            }
            Err(
                e @ (JournalError::FastCommitPending { .. }
                | JournalError::FastCommitFeatures { .. }),
            ) => return Err(Error::Journal(e)),
            Err(
                e @ (JournalError::Corrupt { .. }
                | JournalError::DamagedCommit { .. }
                | JournalError::Target { .. }),
            ) => {
                damaged.get_or_insert((runs, e));
            }
            Err(e) => {
                why.get_or_insert(e.to_string());
            }
        }
    }
    let (None, Some((runs, e))) = (&why, damaged) else {
        let why = why.unwrap_or_else(|| "its inode cannot be read".to_owned());
        return Ok(Some(why));
    };
    let mut count = 0;
    if let Some((_, mut log)) = open(&volume, &runs) {
        let recovery = write_whole(&volume, &runs).map_err(Error::of_journal)?;
        count = recovery.transaction_count;
        log.start = 0;
        log.sequence = recovery.next_tid;
        log.errno = 0;
        draft_superblock(draft, &volume, &runs, &log)?;
        draft.replayed(recovery.blocks);
    }
    let text =
        format!("damaged: {count} transactions were replayed, and what follows is given up ({e})");
    draft.fix(Code::JournalLog, Place::FILE_SYSTEM, text);
    recovered(draft)
}

/// Replays the journal as [`replay`] does. Where it may be given up, what is wrong with it is no
/// error but the reason to wait.
pub(super) fn replay_or_wait(draft: &mut Draft, options: Options) -> Result<Option<String>> {
    match replay(draft) {
        Err(e @ (Error::Journal(_) | Error::ExternalJournal)) if options.discard_journal => {
            Ok(Some(e.to_string()))
        }
        done => done,
    }
}

/// Writes into the draft what the transactions of a journal hold, and leaves the fast commits in it
/// that follow them: the log has nothing else afterwards. Nothing new gets what these name. Returns
/// whether there are any.
pub(super) fn leave_fast_commits(draft: &mut Draft) -> Result<bool> {
    let volume = Volume::open(draft.device(), &mut Sink::new())?;
    if !volume.sb.needs_recovery() || volume.sb.has_external_journal() {
        return Ok(false);
    }
    for runs in places_of_log(&volume)? {
        begin_as_usual(draft, &volume, &runs)?;
        let found = Log::open(&**volume.device(), &runs, volume.block_size()).and_then(|log| {
            let recovery = log.recover(volume.geo.blocks_count())?;
            Ok((recovery, log.superblock().clone()))
        });
        let (recovery, mut log) = match found {
            Ok(found) => found,
            Err(JournalError::Device { source, .. }) => return Err(source.into()),
            Err(_) => continue,
        };
        let Some(fast_commits) = &recovery.fast_commits else {
            continue;
        };
        put_home(&volume, &runs, &recovery).map_err(Error::of_journal)?;
        // There is no transaction of this number, wherever the log is said to begin.
        (log.start, log.sequence) = (log.first, fast_commits.tid());
        draft_superblock(draft, &volume, &runs, &log)?;
        draft.reserve(named_by(fast_commits, &volume));
        let count = recovery.transaction_count;
        draft.replayed(recovery.blocks);
        let mut sb = draft.superblock()?;
        sb.set_needs_recovery(true);
        draft.put_superblock(&sb)?;
        let text = format!("{count} transactions were replayed, and fast commits wait");
        draft.fix(Code::JournalReplayed, Place::FILE_SYSTEM, text);
        draft.freeze();
        return Ok(true);
    }
    Ok(false)
}

/// The blocks and inodes that fast commits name.
fn named_by(fast_commits: &FastCommits, volume: &Volume) -> Reserved {
    let physical = volume.physical();
    let mut reserved = Reserved::default();
    for record in fast_commits.records() {
        match record {
            FastCommitRecord::AddRange {
                ino, start, len, ..
            } => {
                let start = start.get().max(physical.start);
                let end = start.saturating_add(len.into()).min(physical.end);
                if start < end {
                    let clusters = volume.clusters_of(start..end);
                    let of_file = reserved.by_file.entry(ino).or_default();
                    of_file.add(clusters.clone());
                    reserved.clusters.add(clusters);
                }
            }
            FastCommitRecord::Inode { ino, .. } => {
                reserved.inodes.insert(ino);
            }
            FastCommitRecord::Create(change) | FastCommitRecord::Link(change) => {
                reserved.inodes.insert(change.ino);
            }
            _ => {}
        }
    }
    reserved
}

/// Has a log begin in its second block, as all do that lie inside a file system, whose superblock
/// says another block that cannot be and is otherwise sound.
fn begin_as_usual(draft: &mut Draft, volume: &Volume, runs: &[LogRun]) -> Result<()> {
    let Some(first) = runs.first().filter(|run| run.first == 0) else {
        return Ok(());
    };
    let block = volume.block(first.start)?;
    let (Err(_), Ok(log)) = (
        JournalSuperblock::parse(&block),
        JournalSuperblock::parse_with_usual_first(&block),
    ) else {
        return Ok(());
    };
    draft_superblock(draft, volume, runs, &log)?;
    let text = "the log begins in its second block, as it said an impossible one";
    draft.fix(Code::JournalSuperblock, Place::ino(Ino::JOURNAL), text);
    Ok(())
}

/// Gives up what waits in a journal that cannot be replayed, for the reason `why`. Whole
/// transactions are replayed where only what follows them cannot be.
pub(super) fn discard(draft: &mut Draft, why: &str) -> Result<()> {
    let volume = Volume::open(draft.device(), &mut Sink::new())?;
    let mut kept = 0;
    for runs in places_of_log(&volume)? {
        let device = &**volume.device();
        let found = Log::open(device, &runs, volume.block_size()).and_then(|log| {
            let (recovery, _) = log.recover_before_damage(volume.geo.blocks_count())?;
            Ok((recovery, log))
        });
        let Ok((recovery, log)) = found else {
            continue;
        };
        put_home(&volume, &runs, &recovery).map_err(Error::of_journal)?;
        let mut log = log.superblock().clone();
        log.start = 0;
        log.sequence = recovery.next_tid;
        log.errno = 0;
        kept = recovery.transaction_count;
        draft_superblock(draft, &volume, &runs, &log)?;
        draft.replayed(recovery.blocks);
        break;
    }
    let text = format!(
        "DISCARDED, as asked for: {kept} transactions were replayed, and what else waited in it is lost ({why})"
    );
    draft.fix(Code::JournalLog, Place::FILE_SYSTEM, text);
    let mut sb = draft.superblock()?;
    sb.set_needs_recovery(false);
    draft.write(SUPERBLOCK_OFFSET, &sb.encode())?;
    draft.end_step();
    Ok(())
}

/// Takes over what an engine has replayed.
pub(super) fn take_over(draft: &mut Draft, replayed: Arc<OverlayDevice>) -> Result<()> {
    let size = u64::from(replayed.block_size());
    let before = Volume::open(draft.device(), &mut Sink::new())?;
    let log = log_runs(&before)?;
    // What the engine logged is written home by now, and the log that it replayed is needed until
    // that is durable.
    let is_logged = |offset: u64| {
        let block = offset >> before.block_size().log2();
        let first = log.first().map(|run| run.start.get());
        first != Some(block)
            && log
                .iter()
                .any(|run| (run.start.get()..run.start.get() + u64::from(run.len)).contains(&block))
    };
    for block in replayed.written_blocks() {
        let Some(offset) = block
            .checked_mul(size)
            .filter(|at| *at < replayed.size() && !is_logged(*at))
        else {
            continue;
        };
        let len = size.min(replayed.size() - offset);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        replayed.read_at(offset, &mut bytes)?;
        draft.write(offset, &bytes)?;
    }
    let volume = Volume::open(draft.device(), &mut Sink::new())?;
    // The log is emptied only when what it held is durable.
    if let Some(first) = log_runs(&volume)?.first()
        && let Some(offset) = volume.block_size().offset_of(first.start)
    {
        draft.hold_back(offset);
    }
    let text = "transactions and fast commits were replayed";
    draft.fix(Code::JournalReplayed, Place::FILE_SYSTEM, text);
    draft.mounted_as(replayed);
    draft.end_step();
    Ok(())
}

/// Writes home what a damaged log holds before the damage.
fn write_whole(volume: &Volume, runs: &[LogRun]) -> std::result::Result<Recovery, JournalError> {
    let log = Log::open(&**volume.device(), runs, volume.block_size())?;
    let (recovery, _) = log.recover_before_damage(volume.geo.blocks_count())?;
    put_home(volume, runs, &recovery)?;
    Ok(recovery)
}

/// Takes note in the superblock, which may have been in the journal, that nothing waits any more.
fn recovered(draft: &mut Draft) -> Result<Option<String>> {
    let mut sb = draft.superblock()?;
    sb.set_needs_recovery(false);
    if !sb.has_compat(Compat::HAS_JOURNAL) {
        sb = sb.with(|raw| {
            let bits = raw.feature_compat.get() | Compat::HAS_JOURNAL.bits();
            raw.feature_compat.set(bits);
            raw.journal_inum.set(Ino::JOURNAL.get());
        })?;
        let text = "feature has_journal is on again: there is a journal";
        draft.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
    }
    draft.write(SUPERBLOCK_OFFSET, &sb.encode())?;
    draft.end_step();
    Ok(None)
}

/// Where the log may lie: as its inode says, as the inode says that is usual for it, as the
/// superblock's copy says.
fn places_of_log(volume: &Volume) -> Result<Vec<Vec<LogRun>>> {
    let mut found = vec![log_runs(volume)?];
    if let Some((_, inode)) = volume.inode(Ino::JOURNAL)? {
        found.push(crate::journal::runs_of(volume, Ino::JOURNAL, &inode)?);
    }
    let context = volume.inode_context(Ino::JOURNAL);
    let none = Inode::parse(&vec![0; usize::from(volume.inode_size())], &context).ok();
    if let Some(copy) = from_backup(volume, none) {
        found.push(crate::journal::runs_of(volume, Ino::JOURNAL, &copy)?);
    }
    found.retain(|runs| !runs.is_empty());
    found.dedup();
    Ok(found)
}

/// The refusal to go on without what the journal holds.
pub(super) fn refused(why: &str) -> Error {
    Error::Refused {
        why: format!(
            "the journal holds changes that cannot be replayed ({why}), and they are not given up: nothing is \
             mended. Keep a copy of the image; then another program that replays journals may help, or the journal can \
             be given up with --discard-journal"
        ),
    }
}

fn write_home(volume: &Volume, runs: &[LogRun]) -> std::result::Result<Replayed, JournalError> {
    let device = &**volume.device();
    let log = Log::open(device, runs, volume.block_size())?;
    let recovery = log.recover(volume.geo.blocks_count())?;
    if let Some(found) = &recovery.fast_commits {
        return Err(found.pending());
    }
    put_home(volume, runs, &recovery)?;
    let superblock = log.superblock().clone();
    Ok((recovery, superblock))
}

fn put_home(
    volume: &Volume,
    runs: &[LogRun],
    recovery: &Recovery,
) -> std::result::Result<(), JournalError> {
    let device = &**volume.device();
    let inside = |block: Pblk| {
        let in_run = |run: &LogRun| {
            let offset = block.get().checked_sub(run.start.get());
            offset.is_some_and(|offset| offset < run.len.into())
        };
        runs.iter().any(in_run)
    };
    let mut bytes = vec![0; volume.block_size().len()];
    // Images of blocks of the log itself are stale: what is written there now is the log.
    for block in recovery.blocks.iter().filter(|block| !inside(*block)) {
        let offset = volume.block_size().offset_of(block).unwrap_or(u64::MAX);
        let home = |source| JournalError::Home { block, source };
        recovery
            .blocks
            .read(device, offset, &mut bytes)
            .map_err(home)?;
        device.write_at(offset, &bytes).map_err(home)?;
    }
    Ok(())
}

/// The journal's superblock and how many blocks it has, if it is sound.
fn open(volume: &Volume, runs: &[LogRun]) -> Option<(u32, JournalSuperblock)> {
    let log = Log::open(&**volume.device(), runs, volume.block_size()).ok()?;
    let mapped = runs.iter().map(|run| run.len).fold(0, u32::saturating_add);
    Some((mapped, log.superblock().clone()))
}

/// Whether a journal holds transactions, or may: one that cannot be read.
pub(super) fn log_waits(device: &SharedDevice, sb: &Superblock) -> Result<bool> {
    if sb.journal_ino().is_none() {
        return Ok(false);
    }
    let volume = Volume::open(Arc::clone(device), &mut Sink::new())?;
    let places = places_of_log(&volume)?;
    let mut logs = places.iter().filter_map(|runs| open(&volume, runs));
    Ok(logs.next().is_none_or(|(_, log)| log.start != 0))
}

fn draft_superblock(
    draft: &mut Draft,
    volume: &Volume,
    runs: &[LogRun],
    log: &JournalSuperblock,
) -> Result<()> {
    let Some(first) = runs.first() else {
        return Ok(());
    };
    let offset = volume
        .block_size()
        .offset_of(first.start)
        .unwrap_or(u64::MAX);
    draft.hold_back(offset);
    draft.write(offset, &log.encode())
}

/// The journal's inode and superblock.
pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    if work.has(Code::JournalInode) {
        return inode(work);
    }
    let volume = work.volume();
    let Some(ino) = volume.sb.journal_ino() else {
        return Ok(());
    };
    if work.superblock()?.needs_recovery() {
        // What waits in it is to be replayed first.
        return Ok(());
    }
    let place = Place::ino(ino);
    let runs = log_runs(volume)?;
    if work.has(Code::JournalSuperblock)
        && ino != Ino::JOURNAL
        && (is_users(work, ino)? || !begins_as_log(volume, &runs)?)
    {
        // A user's file, or another one, that is taken for the journal.
        return inode(work);
    }
    if runs.first().is_some_and(|run| !work.owns(run.start)) {
        return Ok(());
    }
    if work.has(Code::JournalSuperblock) {
        let mapped = runs.iter().map(|run| run.len).fold(0, u32::saturating_add);
        let mut log = JournalSuperblock::empty(volume.block_size(), mapped, volume.sb.uuid());
        // What used to be sound is kept.
        if let Some((len, old)) = open(volume, &runs) {
            log = old;
            log.max_len = log.max_len.min(len);
            if !crate::journal::is_long_enough(&log) {
                (log.first, log.max_len) = (1, len);
            }
            if !crate::journal::keeps_fast_commits(&log) {
                log.incompat.remove(IncompatFeatures::FAST_COMMIT);
                log.fast_commit_blocks = 0;
            }
            if !crate::journal::suits(&log, volume) {
                (log.v2, log.users_count) = (true, 1);
            }
            log.users_count = log.users_count.min(1);
            log.ro_compat = 0;
            log.start = 0;
        }
        if let Some(first) = runs.first() {
            let mut block = volume.block(first.start)?;
            block.fill(0);
            if let Some(to) = block.get_mut(..JournalSuperblock::LEN) {
                to.copy_from_slice(&log.encode());
            }
            work.put_block(first.start, &block)?;
            let offset = volume.block_size().offset_of(first.start);
            work.draft.hold_back(offset.unwrap_or(u64::MAX));
            work.fix(Code::JournalSuperblock, place, "made anew, and empty");
        }
    } else if (work.has(Code::JournalNotEmpty) || work.has(Code::JournalAborted))
        && let Some((_, mut log)) = open(volume, &runs)
    {
        let code = match log.start {
            0 => Code::JournalAborted,
            _ => Code::JournalNotEmpty,
        };
        log.start = 0;
        log.errno = 0;
        // Programs replay such a log all the same: before anything is mended, it goes.
        if code == Code::JournalNotEmpty
            && let Some(first) = runs.first()
        {
            let offset = volume.block_size().offset_of(first.start);
            work.draft.put_first(offset.unwrap_or(u64::MAX));
        }
        draft_superblock(work.draft, volume, &runs, &log)?;
        let text = match code {
            Code::JournalAborted => "the error that it remembers is cleared",
            _ => "emptied: the superblock says that nothing waits in it",
        };
        work.fix(code, place, text);
    }
    Ok(())
}

/// Whether the first block has the magic number of a journal.
fn begins_as_log(volume: &Volume, runs: &[LogRun]) -> Result<bool> {
    let Some(first) = runs.first() else {
        return Ok(false);
    };
    let block = volume.block(first.start)?;
    Ok(block.starts_with(&MAGIC.to_be_bytes()))
}

/// The map and size of the journal that the superblock keeps a copy of.
fn from_backup(volume: &Volume, old: Option<Inode>) -> Option<Inode> {
    let (map, size) = volume.sb.journal_backup()?;
    let map = indirect::encode_root(&map);
    let is_tree = map.starts_with(&extent::MAGIC.to_le_bytes());
    let mut inode = old?;
    inode.mode = Mode::new(FileType::Regular, 0o600);
    inode.links = 1;
    inode.dtime = 0;
    inode.size = size;
    inode.map = map;
    inode.flags.remove(InodeFlags::INLINE_DATA);
    inode.flags.set(InodeFlags::EXTENTS, is_tree);
    Some(inode)
}

/// Whether this inode would do as the journal's.
fn holds_journal(volume: &Volume, ino: Ino, inode: &Inode) -> Result<bool> {
    let runs = crate::journal::runs_of(volume, ino, inode)?;
    let mapped: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
    let blocks = inode.size >> volume.block_size().log2();
    Ok(inode.file_type() == Some(FileType::Regular)
        && mapped >= blocks
        && blocks >= u64::from(MIN_BLOCKS)
        && open(volume, &runs).is_some())
}

/// Finds the journal's inode again, or gives the journal up.
fn inode(work: &mut Work<'_>) -> Result<()> {
    let volume = work.volume();
    let named = volume.sb.journal_ino();
    let mut sb = work.superblock()?;
    for ino in [named, Some(Ino::JOURNAL)].into_iter().flatten() {
        let Some((mut slot, found)) = volume.inode(ino)? else {
            continue;
        };
        let log2 = volume.block_size().log2();
        let runs = crate::journal::runs_of(volume, ino, &found)?;
        let mapped = crate::journal::mapped_from_start(&runs);
        let as_it_is = (ino == Ino::JOURNAL).then(|| {
            let mut inode = found.clone();
            inode.size = inode.size.min(mapped << log2);
            inode.links = inode.links.max(1);
            inode.dtime = 0;
            if inode.file_type() != Some(FileType::Regular) {
                inode.mode = Mode::new(FileType::Regular, 0o600);
            }
            inode
        });
        let copied = from_backup(volume, Some(found)).filter(|_| ino == Ino::JOURNAL);
        // A shorter log than there was is made anew.
        let is_log = mapped >= u64::from(MIN_BLOCKS) && begins_as_log(volume, &runs)?;
        let cut = as_it_is.clone().filter(|_| is_log);
        for (inode, is_whole) in [(as_it_is, true), (copied, true), (cut, false)] {
            let Some(inode) = inode else { continue };
            if is_whole && !holds_journal(volume, ino, &inode)? {
                continue;
            }
            work.put_inode(ino, &inode, &mut slot)?;
            sb = sb.with(|raw| raw.journal_inum.set(ino.get()))?;
            work.put_superblock(&sb)?;
            work.fix(Code::JournalInode, Place::ino(ino), "put right");
            return Ok(());
        }
    }
    give_up(work, &sb)
}

/// Gives the journal up: it has been replayed, or cannot be.
fn give_up(work: &mut Work<'_>, sb: &Superblock) -> Result<()> {
    let sb = turn_off(work.draft, sb)?;
    work.put_superblock(&sb)?;
    let text = "the file system has no journal any more: its inode is lost";
    work.fix(Code::JournalInode, Place::FILE_SYSTEM, text);
    Ok(())
}

/// Clears the journal's inode, and returns the superblock of a file system without a journal.
pub(super) fn turn_off(draft: &mut Draft, sb: &Superblock) -> Result<Superblock> {
    let volume = Volume::open(draft.device(), &mut Sink::new())?;
    let journal = volume.inode(Ino::JOURNAL)?.map_or(0, |(_, inode)| {
        (inode.size >> volume.block_size().log2()) / volume.cluster_ratio()
    });
    if sb.journal_ino().is_none_or(|ino| ino == Ino::JOURNAL)
        && let Some(offset) = volume.inode_offset(Ino::JOURNAL)
    {
        draft.write(offset, &vec![0; usize::from(volume.inode_size())])?;
    }
    Ok(sb.with(|raw| {
        let off = Compat::HAS_JOURNAL | Compat::FAST_COMMIT;
        raw.feature_compat
            .set(raw.feature_compat.get() & !off.bits());
        raw.journal_inum.set(0);
        raw.journal_uuid = [0; 16];
        raw.journal_dev.set(0);
        let overhead = u64::from(raw.overhead_clusters.get()).saturating_sub(journal);
        raw.overhead_clusters.set(overhead as u32);
        let bits = raw.feature_incompat.get() & !Incompat::RECOVER.bits();
        raw.feature_incompat.set(bits);
    })?)
}
