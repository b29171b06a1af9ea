//! A superblock of which a crash left one half.
//!
//! The superblock has two sectors of 512 bytes, of which a device writes each as a whole, and
//! perhaps only one. Its checksum lies in the second, all that changes in normal use in the first:
//! such a superblock has nothing wrong but its checksum. Where this engine writes it, the log holds
//! it too, so it is used as it is to find the log, and then forgotten.
//!
//! The log counts even when the half that is there says that nothing waits for replay: the log is
//! empty whenever the superblock changes in a way that could make it void.

use super::open::{read_superblock, read_superblock_by};
use super::waiting;
use crate::fs::{Fs, JournalChoice, MountOptions, Notice, SuperblockChoice};
use crate::volume::place;
use crate::{Error, Place, Result};
use extant_blockdev::SharedDevice;
use extant_format::features::{Compat, Incompat};
use extant_format::superblock::Superblock;
use extant_jbd2::ReplayedDevice;
use std::sync::Arc;

/// The superblock to open a file system by.
pub(super) struct Found {
    /// Verified, wherever it comes from.
    pub(super) superblock: Superblock,
    /// It comes from the log, which has to be replayed, as the one on the device is torn.
    pub(super) torn: Option<Notice>,
}

/// Reads the superblock, from the log if it is torn and the log holds it.
///
/// # Errors
/// As for [`read_superblock`]: if the log does not help, the wrong checksum is the error.
pub(super) fn find_superblock(device: &SharedDevice, options: &MountOptions) -> Result<Found> {
    let error = match read_superblock(device, options.superblock) {
        Ok(superblock) => {
            let torn = None;
            return Ok(Found { superblock, torn });
        }
        Err(error) => error,
    };
    let primary = options.superblock == SuperblockChoice::Primary;
    let replay = options.journal == JournalChoice::Replay;
    if !(primary && replay && is_wrong_checksum(&error)) {
        return Err(error);
    }
    match superblock_in_log(device, options) {
        Ok(Some(superblock)) => {
            crate::event!(
                warn,
                "the superblock is torn; the one in the journal is used"
            );
            let torn = Some(Notice::SuperblockTorn);
            Ok(Found { superblock, torn })
        }
        Ok(None) => Err(error),
        Err(why) => {
            crate::event!(debug, %why, "the superblock is torn, and the journal does not help");
            Err(error)
        }
    }
}

/// Reads the superblock as [`find_superblock`] does, once changes are in place that wait for that.
/// Returns how many blocks those were; `claims` is that of [`waiting::settle`].
///
/// # Errors
/// As for [`find_superblock`] and [`waiting::settle`].
pub(super) fn find_settled(
    device: &SharedDevice,
    options: &MountOptions,
    claims: bool,
) -> Result<(Found, Option<u64>)> {
    match find_superblock(device, options) {
        Ok(found) => Ok((found, None)),
        Err(e) => match waiting::settle(device, claims)? {
            Some(blocks) => Ok((find_superblock(device, options)?, Some(blocks))),
            None => Err(e),
        },
    }
}

fn is_wrong_checksum(error: &Error) -> bool {
    matches!(error, Error::Corrupt { place: Place::Superblock, source } if source.is_checksum())
}

/// The newest image of the superblock in the log, if there is one.
fn superblock_in_log(device: &SharedDevice, options: &MountOptions) -> Result<Option<Superblock>> {
    let torn = read_superblock_by(device, options.superblock, Superblock::parse_unverified)?;
    if !torn.has_compat(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let fs = Fs::to_look(Arc::clone(device), torn.clone(), options)?;
    let (recovery, log) = fs.recover_log(options)?;
    let blocks = recovery.blocks;
    let (block, _) = place(torn.block_size());
    if !blocks.contains(block) {
        return Ok(None);
    }
    let replayed: SharedDevice =
        Arc::new(ReplayedDevice::with_log(Arc::clone(device), log, blocks));
    let superblock = read_superblock(&replayed, options.superblock)?;
    // What the log was found by must be what it says.
    let same = is_of_same(&superblock, &torn)
        && superblock.block_size() == torn.block_size()
        && superblock.journal_ino() == torn.journal_ino();
    Ok(same.then_some(superblock))
}

/// Whether the superblock in the log is of the file system whose torn one led to it. Where
/// checksums start from a number of its own, a transaction may change the UUID, and the number
/// tells.
fn is_of_same(logged: &Superblock, torn: &Superblock) -> bool {
    let has_seed = logged.has_incompat(Incompat::CSUM_SEED);
    let is_seed_same = logged.checksum_seed() == torn.checksum_seed();
    logged.uuid() == torn.uuid() || (has_seed && is_seed_same)
}
