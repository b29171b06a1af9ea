//! Files and blocks of the file system's own that come and go with features: the journal, the
//! orphan file, quota files, multiple-mount protection.

use super::super::draft::Draft;
use super::super::journal;
use super::super::map_builder::Builder;
use super::super::options::Options;
use super::super::quota;
use super::super::resize::open_tables;
use super::super::space::Space;
use super::super::special::{clean_mmp, write_mmp};
use super::super::system_files::without_orphan_file;
use super::super::work::Work;
use super::features::switch_raw;
use super::{Tuning, refused};
use crate::blockset::BlockSet;
use crate::error::Result;
use crate::inode::fs_seed;
use crate::maps::Run;
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::features::{Compat, Feature, Incompat, RoCompat};
use extant_format::inode::{FileType, Inode, InodeContext, InodeFlags, Mode, Timestamp};
use extant_format::jbd2::{JournalSuperblock, MAGIC, MIN_BLOCKS};
use extant_format::mmp::{MmpBlock, MmpState};
use extant_format::orphan_file::{self, block_seed};
use extant_format::superblock::Superblock;
use extant_format::{Ino, Pblk};
use std::collections::BTreeMap;
use std::ops::Range;

const MMP: Feature = Feature::Incompat(Incompat::MMP);
/// Seconds between two updates of multiple-mount protection.
const MMP_INTERVAL: u16 = 5;
/// Bytes of extra fields of an inode, where the superblock does not say.
const EXTRA: u16 = 32;

/// Clears an inode.
pub(super) fn forget(tuning: &Tuning<'_>, ino: Ino) -> Result<()> {
    let volume = &tuning.survey.volume;
    if let Some(offset) = volume.inode_offset(ino) {
        let nothing = vec![0; usize::from(volume.inode_size())];
        tuning.draft.write(offset, &nothing)?;
    }
    Ok(())
}

/// Numbers of files that are made and have no name in a directory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Announced {
    orphan_file: Option<Ino>,
    projects: Option<Ino>,
}

/// Chooses numbers for files that are to be made and have no name, and has the superblock say them
/// before anything else is written. A change that is cut off leaves a file that the superblock
/// names, though its feature is off: it is taken for what it is, and not for one that lost its
/// name.
pub(super) fn announce(tuning: &mut Tuning<'_>, orphan_file: bool, projects: bool) -> Result<()> {
    if !orphan_file && !projects {
        return Ok(());
    }
    let (volume, table) = (&tuning.survey.volume, &tuning.survey.table);
    let mut free = (volume.sb.first_ino().get()..=volume.geo.inodes_count())
        .map(Ino::new)
        .filter(|ino| !table.get(*ino).is_in_use());
    let mut number = |on: bool| match on.then(|| free.next()) {
        Some(None) => Err(refused("no inode is free")),
        number => Ok(number.flatten()),
    };
    let announced = Announced {
        projects: number(projects)?,
        orphan_file: number(orphan_file)?,
    };
    let sb = volume.sb.clone();
    let with_numbers = sb.with(|raw| {
        if let Some(ino) = announced.orphan_file {
            raw.orphan_file_inum.set(ino.get());
        }
        if let Some(ino) = announced.projects {
            raw.prj_quota_inum.set(ino.get());
        }
    })?;
    tuning.draft.put_superblock(&with_numbers)?;
    tuning.draft.end_step();
    tuning.draft.put_superblock(&sb)?;
    tuning.announced = announced;
    // From here on, what is written lies over the step before.
    tuning.look()
}

fn announced(number: Option<Ino>) -> Result<Ino> {
    number.ok_or_else(|| refused("no inode is free"))
}

/// Makes an empty file of the file system's own.
fn blank(work: &mut Work<'_>, ino: Ino) -> Result<()> {
    let volume = work.volume();
    let mut slot = vec![0; usize::from(volume.inode_size())];
    let context = InodeContext {
        seed: None,
        ..volume.inode_context(ino)
    };
    let now = Timestamp {
        secs: i64::from(work.now),
        nanos: 0,
    };
    let mut inode = Inode::parse(&slot, &context)?;
    inode.mode = Mode::new(FileType::Regular, 0o600);
    inode.links = 1;
    inode.mtime = now;
    inode.ctime = now;
    inode.atime = now;
    if volume.inode_size() > 128 {
        let wanted = volume.sb.raw().want_extra_isize.get();
        inode.extra_isize = if wanted == 0 { EXTRA } else { wanted };
        inode.crtime = Some(now);
    }
    if volume.has_incompat(Incompat::EXTENTS) {
        inode.flags.insert(InodeFlags::EXTENTS);
    }
    work.put_inode(ino, &inode, &mut slot)?;
    open_tables(work, &BTreeMap::from([(ino, ino)]))?;
    if Builder::rebuild(work, ino, &[])? {
        Ok(())
    } else {
        Err(no_room())
    }
}

fn no_room() -> crate::Error {
    refused("there is no room for it")
}

/// Maps so many blocks, as far as possible in one piece, or from the block `goal` on.
fn allocate(work: &mut Work<'_>, ino: Ino, blocks: u64, goal: Option<u64>) -> Result<Vec<Run>> {
    let ratio = work.volume().cluster_ratio();
    let pieces = match goal {
        Some(goal) => clusters_behind(work, goal, blocks.div_ceil(ratio))?,
        None => Vec::new(),
    };
    let mut chosen = pieces.into_iter().flatten();
    let mut runs: Vec<Run> = Vec::new();
    let mut lblk = 0;
    while lblk < blocks {
        let at = match chosen.next() {
            Some(cluster) => work.volume().block_of_cluster(cluster),
            None => work.new_block()?.ok_or_else(no_room)?,
        };
        let len = ratio.min(blocks - lblk) as u32;
        match runs.last_mut() {
            Some(last) if last.pblk + u64::from(last.len) == at.get() => last.len += len,
            _ => runs.push(Run {
                lblk: lblk as u32,
                len,
                pblk: at.get(),
                unwritten: false,
            }),
        }
        lblk += u64::from(len);
    }
    if !Builder::rebuild(work, ino, &runs)? {
        return Err(no_room());
    }
    let size = blocks * u64::from(work.volume().block_size().bytes());
    work.edit_inode(ino, |inode, _| inode.size = size)?;
    Ok(runs)
}

/// So many free clusters from a block on, which are no longer free; fewer if there are not so many.
fn clusters_behind(work: &mut Work<'_>, goal: u64, clusters: u64) -> Result<Vec<Range<u64>>> {
    let volume = work.volume();
    if !volume.physical().contains(&goal) {
        let end = volume.geo.blocks_count();
        return Err(refused(&format!(
            "block {goal} is none of the {end} of the file system"
        )));
    }
    let all = 0..volume.geo.clusters_count();
    let mut used = work.survey.used.clone();
    if let Some(before) = work.draft.in_use() {
        before.runs(all.clone(), &mut |run| used.add(run));
    }
    let mut next = volume.cluster_of(goal);
    let mut left = clusters;
    let mut pieces = Vec::new();
    let mut take = |gap: Range<u64>| {
        let len = left.min(gap.end.saturating_sub(gap.start));
        if len > 0 {
            pieces.push(gap.start..gap.start + len);
            left -= len;
        }
    };
    used.runs(next..all.end, &mut |run| {
        take(next..run.start);
        next = run.end;
    });
    take(next..all.end);
    let mut taken = BlockSet::default();
    pieces.iter().for_each(|piece| taken.add(piece.clone()));
    let space = std::mem::replace(&mut work.space, Space::new());
    work.space = space.besides(&taken);
    Ok(pieces)
}

fn blocks_of(runs: &[Run]) -> impl Iterator<Item = Pblk> + '_ {
    runs.iter()
        .flat_map(|run| run.pblk..run.pblk + u64::from(run.len))
        .map(Pblk::new)
}

/// Gives up the orphan file, which is of no use without a journal.
pub(super) fn orphan_file_off(tuning: &mut Tuning<'_>) -> Result<()> {
    let sb = tuning.survey.volume.sb.clone();
    let Some(ino) = sb.orphan_file_ino() else {
        return Ok(());
    };
    if sb.has_ro_compat(RoCompat::ORPHAN_PRESENT) {
        let why = "files wait to be deleted or cut: repair it first, or mount it once";
        return Err(refused(why));
    }
    forget(tuning, ino)?;
    tuning.put(&without_orphan_file(&sb)?)?;
    tuning.settle()
}

pub(super) fn orphan_file_on(tuning: &mut Tuning<'_>, size: Option<u64>) -> Result<()> {
    let sb = tuning.survey.volume.sb.clone();
    if !sb.has_compat(Compat::HAS_JOURNAL) {
        return Err(refused("orphan_file needs a journal"));
    }
    let ino = announced(tuning.announced.orphan_file)?;
    let ratio = tuning.survey.volume.cluster_ratio();
    let blocks = match size {
        Some(bytes) => bytes.div_ceil(sb.block_size().bytes().into()).max(1),
        None => (sb.blocks_count() / 4096).clamp(32, 512),
    };
    let blocks = blocks.next_multiple_of(ratio);
    let mut work = Work::new(&tuning.survey, tuning.draft, tuning.options);
    blank(&mut work, ino)?;
    let runs = allocate(&mut work, ino, blocks, None)?;
    let volume = work.volume();
    for at in blocks_of(&runs) {
        let seed = volume.seed.map(|_| block_seed(fs_seed(volume), ino, 0, at));
        let mut block = vec![0; volume.block_size().len()];
        orphan_file::encode(&[], &mut block, seed);
        work.put_block(at, &block)?;
    }
    let feature = Feature::Compat(Compat::ORPHAN_FILE);
    tuning.put(&sb.with(|raw| {
        switch_raw(raw, feature, true);
        raw.orphan_file_inum.set(ino.get());
    })?)?;
    tuning.settle()
}

pub(super) fn journal_off(tuning: &mut Tuning<'_>) -> Result<()> {
    let sb = tuning.draft.superblock()?;
    let sb = journal::turn_off(tuning.draft, &sb)?;
    tuning.put(&sb)?;
    tuning.settle()
}

/// Blocks of a journal by those of its file system, as `mke2fs` chooses them.
fn default_journal(blocks: u64) -> Option<u64> {
    const K: u64 = 1024;
    const SIZES: [(u64, u64); 7] = [
        (32 * K, K),
        (256 * K, 4 * K),
        (512 * K, 8 * K),
        (4096 * K, 16 * K),
        (8192 * K, 32 * K),
        (16_384 * K, 64 * K),
        (32_768 * K, 128 * K),
    ];
    if blocks < 2 * K {
        return None;
    }
    let found = SIZES.iter().find(|(below, _)| blocks < *below);
    Some(found.map_or(256 * K, |(_, journal)| *journal))
}

/// Makes a journal of `size` bytes, or of as many as suit the file system, from the block `goal`
/// on.
pub(super) fn journal_on(
    tuning: &mut Tuning<'_>,
    size: Option<u64>,
    goal: Option<u64>,
) -> Result<()> {
    let sb = tuning.survey.volume.sb.clone();
    let bytes = u64::from(sb.block_size().bytes());
    let blocks = match size {
        Some(size) => size / bytes,
        None => default_journal(sb.blocks_count())
            .ok_or_else(|| refused("the file system is too small for a journal"))?,
    };
    let ratio = tuning.survey.volume.cluster_ratio();
    let blocks = blocks / ratio * ratio;
    let (least, most) = (u64::from(MIN_BLOCKS), sb.blocks_count() / 2);
    if !(least..=most.min(10_240_000)).contains(&blocks) {
        return Err(refused(&format!(
            "a journal has between {least} and {} blocks of {bytes} bytes here, not {blocks}",
            most.min(10_240_000)
        )));
    }
    let mut work = Work::new(&tuning.survey, tuning.draft, tuning.options);
    blank(&mut work, Ino::JOURNAL)?;
    let runs = allocate(&mut work, Ino::JOURNAL, blocks, goal)?;
    let volume = work.volume();
    for (i, at) in blocks_of(&runs).enumerate() {
        if i == 0 {
            let log = JournalSuperblock::empty(volume.block_size(), blocks as u32, sb.uuid());
            let mut block = vec![0; volume.block_size().len()];
            if let Some(to) = block.get_mut(..JournalSuperblock::LEN) {
                to.copy_from_slice(&log.encode());
            }
            work.put_block(at, &block)?;
        } else if volume.block(at)?.starts_with(&MAGIC.to_be_bytes()) {
            // A block of another log could be taken for one of this.
            work.put_block(at, &vec![0; volume.block_size().len()])?;
        }
    }
    let inode = volume.inode(Ino::JOURNAL)?.map(|(_, inode)| inode);
    tuning.put(&with_journal(&sb, inode.as_ref(), blocks / ratio)?)?;
    tuning.settle()
}

/// The superblock of a file system with a journal in its usual inode.
fn with_journal(sb: &Superblock, inode: Option<&Inode>, clusters: u64) -> Result<Superblock> {
    Ok(sb.with(|raw| {
        switch_raw(raw, Feature::Compat(Compat::HAS_JOURNAL), true);
        raw.journal_inum.set(Ino::JOURNAL.get());
        raw.journal_dev.set(0);
        raw.journal_uuid = [0; 16];
        if let Some(inode) = inode {
            raw.jnl_backup_type = 1;
            let words = inode.map.as_chunks::<4>().0.iter();
            let words = words.map(|word| u32::from_le_bytes(*word));
            let size = [(inode.size >> 32) as u32, inode.size as u32];
            for (to, from) in raw.jnl_blocks.iter_mut().zip(words.chain(size)) {
                to.set(from);
            }
        }
        // Linux adds it up itself where it is not there.
        let overhead = u64::from(raw.overhead_clusters.get());
        if overhead > 0 {
            raw.overhead_clusters.set((overhead + clusters) as u32);
        }
    })?)
}

/// Makes and gives up quota files of users, groups and projects. `project` says what becomes of the
/// feature `project`.
pub(super) fn quotas(
    tuning: &mut Tuning<'_>,
    changes: [Option<bool>; 3],
    project: Option<bool>,
) -> Result<()> {
    let sb = tuning.survey.volume.sb.clone();
    let usual = [Some(Ino::USER_QUOTA), Some(Ino::GROUP_QUOTA), None];
    let mut inodes = sb.quota_inodes();
    let mut made = Vec::new();
    for (kind, change) in changes.into_iter().enumerate() {
        let (Some(on), Some(place)) = (change, inodes.get_mut(kind)) else {
            continue;
        };
        if let Some(gone) = place.take() {
            forget(tuning, gone)?;
        }
        if on {
            let ino = match usual.get(kind).copied().flatten() {
                Some(ino) => ino,
                None => announced(tuning.announced.projects)?,
            };
            *place = Some(ino);
            made.push((kind, ino));
        }
    }
    let mut work = Work::new(&tuning.survey, tuning.draft, tuning.options);
    for (_, ino) in &made {
        blank(&mut work, *ino)?;
    }
    let number = |ino: Option<Ino>| ino.map_or(0, Ino::get);
    let [user, group, of_project] = inodes.map(number);
    tuning.put(&sb.with(|raw| {
        raw.usr_quota_inum.set(user);
        raw.grp_quota_inum.set(group);
        raw.prj_quota_inum.set(of_project);
        let any = inodes.iter().any(Option::is_some);
        switch_raw(raw, Feature::RoCompat(RoCompat::QUOTA), any);
        if let Some(on) = project {
            switch_raw(raw, Feature::RoCompat(RoCompat::PROJECT), on);
        }
    })?)?;
    if !made.is_empty() {
        // What owners use is counted now that the superblock asks for it.
        tuning.look()?;
        let mut work = Work::new(&tuning.survey, tuning.draft, tuning.options);
        for (kind, ino) in made {
            if !quota::make(&mut work, ino, kind)? {
                return Err(no_room());
            }
        }
    }
    tuning.settle()
}

pub(super) fn mmp_on(tuning: &mut Tuning<'_>, interval: Option<u16>) -> Result<()> {
    let sb = tuning.survey.volume.sb.clone();
    let mut work = Work::new(&tuning.survey, tuning.draft, tuning.options);
    let at = work.new_block()?.ok_or_else(no_room)?;
    write_mmp(&mut work, at, None)?;
    tuning.put(&sb.with(|raw| {
        switch_raw(raw, MMP, true);
        raw.mmp_block.set(at.get());
        raw.mmp_update_interval
            .set(interval.unwrap_or(MMP_INTERVAL));
    })?)?;
    tuning.settle()
}

pub(super) fn mmp_off(tuning: &mut Tuning<'_>) -> Result<()> {
    let sb = tuning.survey.volume.sb.clone();
    tuning.put(&sb.with(|raw| {
        switch_raw(raw, MMP, false);
        raw.mmp_block.set(0);
        raw.mmp_update_interval.set(0);
    })?)?;
    tuning.settle()
}

/// Says in the block of multiple-mount protection that the file system is open nowhere, whatever it
/// says now.
pub(super) fn clear_mmp(draft: &mut Draft, options: Options) -> Result<()> {
    let volume = Volume::open(draft.device(), &mut Sink::new())?;
    let Some(at) = volume.sb.mmp_block() else {
        return Err(refused(
            "there is no multiple-mount protection (feature mmp)",
        ));
    };
    if !volume.physical().contains(&at.get()) {
        return Err(refused(
            "multiple-mount protection lies nowhere: repair it first",
        ));
    }
    let seed = volume.seed.map(|_| fs_seed(&volume));
    let bytes = volume.block(at)?;
    let old = MmpBlock::parse(&bytes, seed).ok();
    if old.as_ref().is_some_and(|mmp| mmp.state == MmpState::Clean) {
        return Ok(());
    }
    let mut bytes = bytes;
    let record = clean_mmp(&volume, options.now, old);
    if let Some(to) = bytes.get_mut(..MmpBlock::LEN) {
        to.copy_from_slice(&record);
    }
    draft.write(
        volume.block_size().offset_of(at).unwrap_or(u64::MAX),
        &bytes,
    )?;
    let text = "multiple-mount protection says that it is open nowhere";
    draft.fix(Code::MmpInUse, Place::FILE_SYSTEM, text);
    Ok(())
}
