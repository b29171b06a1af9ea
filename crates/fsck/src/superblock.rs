//! The superblock beyond what reading it requires, its backups, and the block of multiple-mount protection.

use crate::error::Result;
use crate::inode::fs_seed;
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::features::{Compat, Incompat, RoCompat};
use extant_format::mmp::{MmpBlock, MmpState};
use extant_format::superblock::{SUPERBLOCK_LEN, State, Superblock};
use extant_format::{Expected, FormatError, Structure};

/// Backups looked at.
const BACKUPS_MAX: usize = 64;

/// Checks fields against each other, the backups, and the device's size.
pub(crate) fn check(volume: &Volume, recovered: bool, sink: &mut Sink) -> Result<()> {
    let place = Place::FILE_SYSTEM;
    let needed = volume
        .geo
        .blocks_count()
        .saturating_mul(volume.block_size().bytes().into());
    let size = volume.device().size();
    if size < needed {
        sink.number(
            Code::DeviceTooShort,
            place,
            "size of the device in bytes",
            size,
            needed,
        );
    }
    fields(volume, sink);
    state(volume, recovered, sink);
    backups(volume, sink)?;
    mmp(volume, sink)
}

fn fields(volume: &Volume, sink: &mut Sink) {
    let sb = &volume.sb;
    let mut wrong = |bad: bool, text: &str| {
        if bad {
            sink.say(Code::SuperblockField, Place::FILE_SYSTEM, text);
        }
    };
    wrong(
        sb.reserved_blocks_count() > sb.blocks_count() / 2,
        "more than half of the blocks are reserved",
    );
    let resize = volume.has_compat(Compat::RESIZE_INODE);
    wrong(
        resize && volume.has_incompat(Incompat::META_BG),
        "resize_inode and meta_bg exclude each other",
    );
    wrong(
        !resize && sb.raw().reserved_gdt_blocks.get() != 0,
        "blocks are reserved for descriptors without the feature resize_inode",
    );
    wrong(
        volume.has_ro_compat(RoCompat::METADATA_CSUM) && volume.has_ro_compat(RoCompat::GDT_CSUM),
        "metadata_csum and uninit_bg exclude each other",
    );
    let journal = volume.has_compat(Compat::HAS_JOURNAL);
    wrong(
        !journal && volume.has_incompat(Incompat::RECOVER),
        "a journal is to be replayed, but there is none",
    );
    let raw = sb.raw();
    let quotas = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
    wrong(
        !volume.has_ro_compat(RoCompat::QUOTA) && quotas.iter().any(|ino| ino.get() != 0),
        "a quota file is named, but the feature quota is off",
    );
    wrong(
        !volume.has_compat(Compat::ORPHAN_FILE) && raw.orphan_file_inum.get() != 0,
        "an orphan file is named, but the feature orphan_file is off",
    );
    wrong(
        journal && raw.journal_inum.get() != 0 && raw.journal_uuid != [0; 16],
        "a journal in an inode and one on another device are named",
    );
    let named = raw.journal_inum.get() != 0 || raw.journal_uuid != [0; 16];
    wrong(
        !journal && named,
        "a journal is named, but the feature has_journal is off",
    );
}

fn state(volume: &Volume, recovered: bool, sink: &mut Sink) {
    let state = volume.sb.state();
    if state.contains(State::ERRORS) {
        let text = "the file system remembers errors";
        sink.say(Code::SuperblockState, Place::FILE_SYSTEM, text);
    }
    if !state.contains(State::CLEAN) && !recovered && !volume.sb.needs_recovery() {
        let text = "the file system was not closed";
        sink.say(Code::SuperblockState, Place::FILE_SYSTEM, text);
    }
}

fn backups(volume: &Volume, sink: &mut Sink) -> Result<()> {
    let groups = volume.geo.groups().skip(1);
    let with = groups.filter(|group| volume.geo.has_super(*group));
    for group in with.take(BACKUPS_MAX) {
        let Ok((block, _)) = volume.geo.super_block(group) else {
            continue;
        };
        let place = Place::group(group).at_block(block);
        let mut bytes = [0; SUPERBLOCK_LEN];
        volume.read(block, &mut bytes)?;
        match Superblock::parse(&bytes) {
            Err(e) => sink.format(Code::SuperblockBackup, place, e),
            Ok(backup) => {
                let same = backup.uuid() == volume.sb.uuid()
                    && backup.blocks_count() == volume.sb.blocks_count()
                    && backup.inodes_count() == volume.sb.inodes_count();
                if !same {
                    let text = "the backup describes another file system";
                    sink.say(Code::SuperblockBackup, place, text);
                }
            }
        }
    }
    Ok(())
}

fn mmp(volume: &Volume, sink: &mut Sink) -> Result<()> {
    let Some(block) = volume.sb.mmp_block() else {
        return Ok(());
    };
    let place = Place::block(block);
    if !volume.physical().contains(&block.get()) {
        let most = volume.geo.blocks_count() - 1;
        let e = FormatError::new(
            Structure::Superblock,
            "mmp_block",
            block.get(),
            Expected::AtMost(most),
        );
        sink.format(Code::Mmp, place, e);
        return Ok(());
    }
    let bytes = volume.block(block)?;
    match MmpBlock::parse(&bytes, volume.seed.map(|_| fs_seed(volume))) {
        Err(e) => sink.format(Code::Mmp, place, e),
        Ok(mmp) if mmp.state != MmpState::Clean => {
            let text = "the file system is open on some machine, or was when that stopped";
            sink.say(Code::MmpInUse, place, text);
        }
        Ok(_) => {}
    }
    Ok(())
}
