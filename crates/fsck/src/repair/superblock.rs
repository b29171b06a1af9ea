//! The superblock: from a backup where the primary is lost, fields that contradict others, state,
//! and backups.

use super::draft::Draft;
use super::options::Options;
use super::trial::{errors_of, is_better};
use super::work::Work;
use crate::error::Result;
use crate::field_rules::{FIELD_RULES, SOFT_RULES};
use crate::mount_rules::MOUNT_RULES;
use crate::survey::Survey;
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::Pblk;
use extant_format::features::{Compat, Incompat, RoCompat};
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State, Superblock};

/// Writes all backups as the primary superblock is in the draft.
pub(super) fn refresh_backups(survey: &Survey, draft: &mut Draft, options: Options) -> Result<()> {
    write_backups(&mut Work::new(survey, draft, options))
}

/// Puts `found`, a backup, into the place of a primary superblock that is none.
pub(super) fn restore(draft: &mut Draft, found: &Superblock) -> Result<()> {
    let bytes = draft.read(SUPERBLOCK_OFFSET, SUPERBLOCK_LEN)?;
    let why = match Superblock::parse_unverified(&bytes) {
        Ok(_) => return Ok(()),
        Err(why) => why,
    };
    let mut sb = found.with(|raw| raw.block_group_nr.set(0))?;
    // Backups are written when nothing waits: the log itself says whether something does.
    if super::journal::log_waits(&draft.device(), &sb)? {
        sb.set_needs_recovery(true);
    }
    draft.write(SUPERBLOCK_OFFSET, &sb.encode())?;
    let (code, text) = if found.raw().block_group_nr.get() == 0 {
        (Code::SuperblockField, format!("possible again ({why})"))
    } else {
        (
            Code::SuperblockInvalid,
            format!("restored from a backup ({why})"),
        )
    };
    draft.fix(code, Place::FILE_SYSTEM, text);
    Ok(())
}

/// What varies while a file system lives, taken over from `primary` to what a backup says.
fn with_living_fields(backup: &Superblock, primary: &Superblock) -> Result<Superblock> {
    let old = primary.raw();
    let recover = old.feature_incompat.get() & Incompat::RECOVER.bits();
    let present = old.feature_ro_compat.get() & RoCompat::ORPHAN_PRESENT.bits();
    let merged = backup.with(|raw| {
        raw.block_group_nr.set(0);
        raw.free_blocks_count_lo = old.free_blocks_count_lo;
        raw.free_blocks_count_hi = old.free_blocks_count_hi;
        raw.free_inodes_count = old.free_inodes_count;
        raw.mtime = old.mtime;
        raw.mtime_hi = old.mtime_hi;
        raw.wtime = old.wtime;
        raw.wtime_hi = old.wtime_hi;
        raw.mnt_count = old.mnt_count;
        raw.state = old.state;
        raw.last_orphan = old.last_orphan;
        raw.kbytes_written = old.kbytes_written;
        raw.last_mounted = old.last_mounted;
        raw.feature_incompat
            .set(raw.feature_incompat.get() & !Incompat::RECOVER.bits() | recover);
        raw.feature_ro_compat
            .set(raw.feature_ro_compat.get() & !RoCompat::ORPHAN_PRESENT.bits() | present);
    });
    Ok(merged?)
}

/// Backups of the superblock that are sound.
fn backups(volume: &Volume) -> Result<Vec<Superblock>> {
    let mut found = Vec::new();
    let groups = volume.geo.groups().skip(1);
    for group in groups.filter(|group| volume.geo.has_super(*group)).take(4) {
        let Ok((block, _)) = volume.geo.super_block(group) else {
            continue;
        };
        let mut bytes = [0; SUPERBLOCK_LEN];
        volume.read(block, &mut bytes)?;
        if let Ok(sb) = Superblock::parse(&bytes) {
            found.push(sb);
        }
    }
    if let Some((sb, _)) = crate::volume::find_backup(&**volume.device())? {
        found.push(sb);
    }
    Ok(found)
}

/// Fields and checksum.
pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    if from_backup(work)? || super::layout::fix(work)? {
        // The fields are judged anew then.
        return Ok(());
    }
    if work.draft.has(Code::SuperblockInvalid) && work.has(Code::SuperblockInvalid) {
        return Ok(());
    }
    super::system_files::forget_announced(work)?;
    let volume = work.volume();
    let place = Place::FILE_SYSTEM;
    let mut sb = work.superblock()?;
    let damage = FIELD_RULES.iter().chain(MOUNT_RULES);
    let damage = damage.map(|rule| (rule, Code::SuperblockField));
    let soft = SOFT_RULES.iter().map(|rule| (rule, Code::FeatureAlone));
    for (rule, code) in damage
        .chain(soft)
        .filter(|(rule, _)| (rule.is_broken)(volume))
    {
        sb = sb.with(|raw| (rule.fix)(volume, raw))?;
        work.put_superblock(&sb)?;
        work.fix(code, place, rule.mended);
    }
    if work.has(Code::SuperblockChecksum) {
        work.put_superblock(&sb)?;
        work.fix(Code::SuperblockChecksum, place, "computed anew");
    }
    Ok(())
}

/// Takes a backup for the primary superblock where a check then finds fewer errors; returns whether
/// it did.
fn from_backup(work: &mut Work<'_>) -> Result<bool> {
    let errors = errors_of(&work.survey.report);
    let volume = work.volume();
    let primary = work.superblock()?;
    let suspicious = work.has(Code::SuperblockChecksum)
        || work.has(Code::SuperblockBackup)
        || errors > 20
        || work.has(Code::RootMissing)
        || work.has(Code::MetadataOverlap);
    if errors == 0 || !suspicious {
        return Ok(false);
    }
    for backup in backups(volume)? {
        let Ok(merged) = with_living_fields(&backup, &primary) else {
            continue;
        };
        let bytes = merged.encode();
        if bytes == primary.encode() || merged.block_size() != primary.block_size() {
            continue;
        }
        let writes = [(SUPERBLOCK_OFFSET, bytes.to_vec())];
        let size = volume.block_size().bytes();
        let now = &work.survey.report;
        let inodes = now.totals.inodes;
        if is_better(work.draft.device(), size, &writes, now, inodes)? {
            work.put_superblock(&merged)?;
            // The flag that something waits may be among what is wrong.
            let doubtful = !volume.has_compat(Compat::HAS_JOURNAL)
                || primary.journal_ino() != merged.journal_ino();
            if doubtful && super::journal::log_waits(&work.draft.device(), &merged)? {
                let mut merged = merged.clone();
                merged.set_needs_recovery(true);
                work.put_superblock(&merged)?;
            }
            let text = "what does not vary was taken from a backup";
            work.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
            return Ok(true);
        }
    }
    Ok(false)
}

/// State and errors that are remembered, once nothing else is wrong; and the backups.
pub(super) fn finish(work: &mut Work<'_>) -> Result<()> {
    if !work.survey.report.is_clean() {
        return Ok(());
    }
    if work.has(Code::SuperblockState) {
        let mut sb = work.superblock()?;
        let state = (sb.state() - State::ERRORS - State::ORPHANS) | State::CLEAN;
        sb.set_state(state);
        sb = sb.with(|raw| {
            raw.error_count.set(0);
            raw.first_error_time.set(0);
            raw.first_error_time_hi = 0;
            raw.last_error_time.set(0);
            raw.last_error_time_hi = 0;
        })?;
        work.put_superblock(&sb)?;
        let text = "marked as closed and without errors";
        work.fix(Code::SuperblockState, Place::FILE_SYSTEM, text);
    }
    let moved = [
        Code::SuperblockInvalid,
        Code::SuperblockField,
        Code::GroupLocation,
        Code::GroupChecksum,
    ];
    let stale = moved.iter().any(|code| work.draft.has(*code));
    if work.has(Code::SuperblockBackup) || (stale && !work.draft.has(Code::SuperblockBackup)) {
        write_backups(work)?;
    }
    Ok(())
}

/// Writes the superblock and the descriptors into the groups that keep copies.
fn write_backups(work: &mut Work<'_>) -> Result<()> {
    let volume = work.volume();
    let mut sb = work.superblock()?;
    sb.set_needs_recovery(false);
    let size = volume.block_size().len();
    let mut copies = 0u32;
    for group in volume.geo.groups().skip(1) {
        let Ok(header) = volume.geo.group_header(group) else {
            continue;
        };
        if let Some(block) = header.super_block {
            let mut bytes = volume.block(block)?;
            bytes.fill(0);
            if let Some(to) = bytes.get_mut(..SUPERBLOCK_LEN) {
                to.copy_from_slice(&sb.encode_for_group(group));
            }
            work.put_block(block, &bytes)?;
            copies += 1;
        }
        for (i, block) in header.descs.clone().enumerate() {
            let Ok(from) = volume.geo.desc_block(header.first_desc + i as u32) else {
                continue;
            };
            if from.get() != block && block < volume.geo.blocks_count() {
                let bytes = volume.block(from)?;
                debug_assert_eq!(bytes.len(), size);
                work.put_block(Pblk::new(block), &bytes)?;
            }
        }
    }
    let text = format!("{copies} copies of the superblock and the descriptors were written");
    if copies > 0 {
        work.fix(Code::SuperblockBackup, Place::FILE_SYSTEM, text);
    }
    Ok(())
}

/// Some blocks that hold copies of a block of descriptors.
pub(super) fn copies_of_descriptors(volume: &Volume, index: u32) -> Vec<Pblk> {
    let groups = volume.geo.groups().skip(1);
    let headers = groups.filter_map(|group| volume.geo.group_header(group).ok());
    let mut found = Vec::new();
    for header in headers {
        let count = header.descs.end - header.descs.start;
        let Some(i) = index.checked_sub(header.first_desc) else {
            continue;
        };
        let block = Pblk::new(header.descs.start + u64::from(i));
        let is_copy = u64::from(i) < count && volume.geo.desc_block(index) != Ok(block);
        if is_copy && block.get() < volume.geo.blocks_count() {
            found.push(block);
        }
        if found.len() == 4 {
            break;
        }
    }
    found
}
