//! A journal on a device of its own.
//!
//! Both sides know each other: the superblock of the file system has the number of the device and
//! the UUID of the journal, and the journal lists the UUIDs of file systems that use it. Linux uses
//! a journal for one file system. Source: "External Journal" in the kernel's ext4 documentation.

use super::features::switch_raw;
use super::{Tuning, refused};
use crate::error::Result;
use extant_blockdev::BlockDevice;
use extant_format::features::{Compat, Feature};
use extant_format::jbd2::JournalSuperblock;
use extant_format::superblock::{JournalDevice, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};

/// A journal on a device of its own, as the superblock of its file system says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalJournal {
    /// The UUID of the journal.
    pub uuid: [u8; 16],
    /// The number of its device.
    pub device: u32,
}

/// The journal on a device.
struct Found {
    device: JournalDevice,
    journal: JournalSuperblock,
    /// Where the journal's superblock lies, in bytes.
    at: u64,
}

fn find(device: &dyn BlockDevice) -> Result<Found> {
    let mut bytes = vec![0; SUPERBLOCK_LEN];
    let ends = SUPERBLOCK_OFFSET + SUPERBLOCK_LEN as u64;
    if device.size() < ends {
        return Err(refused("the device is too short for a journal"));
    }
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let found = JournalDevice::parse(&bytes).map_err(|e| {
        refused(&format!(
            "the device holds no journal, which `mke2fs -O journal_dev` makes: {e}"
        ))
    })?;
    let size = u64::from(found.block_size.bytes());
    let at = (SUPERBLOCK_OFFSET / size + 1) * size;
    if device.size() < at + JournalSuperblock::LEN as u64 {
        return Err(refused("the device is too short for a journal"));
    }
    let mut bytes = vec![0; JournalSuperblock::LEN];
    device.read_at(at, &mut bytes)?;
    let journal = JournalSuperblock::parse(&bytes)?;
    Ok(Found {
        device: found,
        journal,
        at,
    })
}

impl Found {
    fn users(&self) -> impl Iterator<Item = [u8; 16]> + '_ {
        let count = self.journal.users_count as usize;
        self.journal.users.iter().take(count).copied()
    }

    fn put(&self, device: &dyn BlockDevice, users: &[[u8; 16]]) -> Result<()> {
        let mut journal = self.journal.clone();
        journal.users = [[0; 16]; 48];
        for (to, from) in journal.users.iter_mut().zip(users) {
            *to = *from;
        }
        journal.users_count = users.len() as u32;
        device.write_at(self.at, &journal.encode())?;
        Ok(device.flush()?)
    }
}

/// Finds the journal on a device of a number, for a file system.
///
/// # Errors
/// A device that holds none, or one that is not for such a file system, that another one uses, or
/// in which something waits; a device that fails.
pub fn external_journal(
    device: &dyn BlockDevice,
    number: u32,
    filesystem: &Superblock,
) -> Result<ExternalJournal> {
    let found = find(device)?;
    if found.device.block_size != filesystem.block_size() {
        return Err(refused(&format!(
            "the journal has blocks of {} bytes, the file system of {}",
            found.device.block_size.bytes(),
            filesystem.block_size().bytes()
        )));
    }
    if found.journal.start != 0 {
        return Err(refused(
            "something waits in the journal for its file system",
        ));
    }
    if found.users().any(|user| user != filesystem.uuid()) {
        return Err(refused(
            "another file system uses the journal, and Linux uses one for one file system",
        ));
    }
    Ok(ExternalJournal {
        uuid: found.device.uuid,
        device: number,
    })
}

/// Whether a device holds the journal that a file system names.
#[must_use]
pub fn holds_journal_of(device: &dyn BlockDevice, filesystem: &Superblock) -> bool {
    let uuid = filesystem.raw().journal_uuid;
    find(device).is_ok_and(|found| found.device.uuid == uuid)
}

/// Has the journal on a device list `filesystem` as the one that uses it. This comes before the
/// file system says so.
///
/// # Errors
/// As for [`external_journal`].
pub fn enlist(device: &dyn BlockDevice, filesystem: [u8; 16]) -> Result<()> {
    let found = find(device)?;
    if found.users().eq([filesystem]) {
        return Ok(());
    }
    found.put(device, &[filesystem])
}

/// Has the journal on a device list `filesystem` no more. This comes after the file system says so.
///
/// # Errors
/// A device that holds no journal, or another one than that with this UUID; a device that fails.
pub fn dismiss(device: &dyn BlockDevice, uuid: [u8; 16], filesystem: [u8; 16]) -> Result<()> {
    let found = find(device)?;
    if found.device.uuid != uuid {
        return Err(refused(
            "the device holds another journal than the file system had",
        ));
    }
    let users: Vec<_> = found.users().filter(|user| *user != filesystem).collect();
    if users.len() == found.journal.users_count as usize {
        return Ok(());
    }
    found.put(device, &users)
}

/// Has the superblock name the journal.
pub(super) fn on(tuning: &mut Tuning<'_>, journal: &ExternalJournal) -> Result<()> {
    let sb = tuning.survey.volume.sb.clone();
    tuning.put(&sb.with(|raw| {
        switch_raw(raw, Feature::Compat(Compat::HAS_JOURNAL), true);
        raw.journal_inum.set(0);
        raw.journal_dev.set(journal.device);
        raw.journal_uuid = journal.uuid;
        raw.jnl_backup_type = 0;
        raw.jnl_blocks.iter_mut().for_each(|word| word.set(0));
    })?)?;
    tuning.settle()
}
