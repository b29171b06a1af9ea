//! The superblock beyond what reading it requires, its backups, and the block of multiple-mount
//! protection.

use crate::error::{Error, Result};
use crate::field_rules::{FIELD_RULES, SOFT_RULES};
use crate::inode::fs_seed;
use crate::mount_rules::MOUNT_RULES;
use crate::report::{Report, Sink, Totals};
use crate::volume::{Volume, find_superblock};
use crate::{Code, Place};
use extant_blockdev::BlockDevice;
use extant_format::mmp::{MmpBlock, MmpState};
use extant_format::superblock::{SUPERBLOCK_LEN, State, Superblock};
use extant_format::{Expected, FormatError, Structure};

/// Backups looked at.
const BACKUPS_MAX: usize = 64;

/// Checks fields against each other, the backups, and the device's size.
pub(crate) fn check(volume: &Volume, recovered: bool, sink: &mut Sink) -> Result<()> {
    device_size(volume, sink);
    fields(volume, sink);
    state(volume, recovered, sink);
    backups(volume, sink)?;
    mmp(volume, sink)
}

/// Checks what Linux reads of the superblock before it replays the journal, which may hold another
/// one.
pub(crate) fn check_before_replay(volume: &Volume, sink: &mut Sink) -> Result<()> {
    device_size(volume, sink);
    fields(volume, sink);
    errors(volume, sink);
    mmp(volume, sink)
}

fn device_size(volume: &Volume, sink: &mut Sink) {
    if let Some((size, needed)) = too_short(&**volume.device(), &volume.sb) {
        let (place, what) = (Place::FILE_SYSTEM, "size of the device in bytes");
        sink.number(Code::DeviceTooShort, place, what, size, needed);
    }
}

/// The bytes of the device and those of the file system, where the device ends before that.
pub(crate) fn too_short(device: &dyn BlockDevice, sb: &Superblock) -> Option<(u64, u64)> {
    let needed = (sb.blocks_count()).saturating_mul(sb.block_size().bytes().into());
    let size = device.size();
    (size < needed).then_some((size, needed))
}

/// Refuses to change a file system that the device ends before.
pub(crate) fn refuse_too_short(device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
    match too_short(device, sb) {
        Some((size, needed)) => Err(Error::TooShort { size, needed }),
        None => Ok(()),
    }
}

/// What can be said of a file system of which so much is missing that the rest cannot be judged:
/// that the device ends before it. `None` if it does not.
pub(crate) fn cut_short(device: &dyn BlockDevice) -> Option<Report> {
    let mut sink = Sink::new();
    let sb = find_superblock(device, &mut sink).ok()?;
    let (size, needed) = too_short(device, &sb)?;
    let (place, what) = (Place::FILE_SYSTEM, "size of the device in bytes");
    sink.number(Code::DeviceTooShort, place, what, size, needed);
    Some(sink.into_report(Totals::default()))
}

/// Checks fields against each other.
fn fields(volume: &Volume, sink: &mut Sink) {
    let rules = FIELD_RULES.iter().chain(MOUNT_RULES);
    for rule in rules.filter(|rule| (rule.is_broken)(volume)) {
        sink.say(Code::SuperblockField, Place::FILE_SYSTEM, rule.wrong);
    }
    for rule in SOFT_RULES.iter().filter(|rule| (rule.is_broken)(volume)) {
        sink.say(Code::FeatureAlone, Place::FILE_SYSTEM, rule.wrong);
    }
}

fn errors(volume: &Volume, sink: &mut Sink) {
    if volume.sb.state().contains(State::ERRORS) {
        let text = "the file system remembers errors";
        sink.say(Code::SuperblockState, Place::FILE_SYSTEM, text);
    }
}

fn state(volume: &Volume, recovered: bool, sink: &mut Sink) {
    errors(volume, sink);
    let state = volume.sb.state();
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
