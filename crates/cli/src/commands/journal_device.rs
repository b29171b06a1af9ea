//! Journals on devices of their own, which `tune` adds and takes away.
//!
//! Two devices change, one after the other: the journal lists its file system before that says so,
//! and no more after that has forgotten it. So what is cut off in between is a journal that lists a
//! file system too much, which the same command puts right.

use crate::args::Whereabouts;
use crate::failure::{Failure, Outcome};
use crate::image_path::{how, whole_image};
use extant::Escaped;
use extant_blockdev::SharedDevice;
use extant_format::superblock::Superblock;
use extant_fsck::repair::tune::{
    ExternalJournal, dismiss, enlist, external_journal, holds_journal_of,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A device that holds a journal, or is to.
pub(super) struct JournalDevice {
    device: SharedDevice,
    number: u32,
}

impl JournalDevice {
    /// Opens a block device for writing.
    pub(super) fn open(path: &OsStr) -> Outcome<Self> {
        let name = Escaped(path.as_bytes());
        let metadata = std::fs::metadata(path).map_err(|e| Failure::new(format!("{name}: {e}")))?;
        if !metadata.file_type().is_block_device() {
            return Err(Failure::new(format!(
                "{name}: this is no block device, and Linux finds a journal by the number of its device: \
                 attach the file to a loop device (losetup), and name that"
            )));
        }
        let image = whole_image(path)?;
        let device = image.open(&how(&Whereabouts::default(), &image, true));
        Ok(Self {
            device: device.map_err(Failure::new)?,
            number: metadata.rdev() as u32,
        })
    }

    /// The block device that has the number in a superblock, if it can be opened and holds the
    /// journal.
    pub(super) fn of(sb: &Superblock) -> Option<Self> {
        let number = sb.raw().journal_dev.get();
        // As Linux encodes it: twelve bits of the major number, twenty of the minor one.
        let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff00);
        let place = format!("/sys/dev/block/{major}:{minor}/uevent");
        let said = std::fs::read_to_string(place).ok()?;
        let name = said
            .lines()
            .find_map(|line| line.strip_prefix("DEVNAME="))?;
        let path: PathBuf = Path::new("/dev").join(name);
        Self::open(path.as_os_str())
            .ok()
            .filter(|found| found.is_of(sb))
    }

    /// Whether the device holds the journal that a file system names.
    pub(super) fn is_of(&self, sb: &Superblock) -> bool {
        holds_journal_of(&*self.device, sb)
    }

    /// The journal for a file system that has none.
    pub(super) fn journal_for(&self, sb: &Superblock) -> Result<ExternalJournal, String> {
        external_journal(&*self.device, self.number, sb)
            .map_err(|e| format!("the journal's device: {e}"))
    }

    /// What comes before the file system changes from one superblock to another.
    pub(super) fn before(&self, old: &Superblock, new: &Superblock) -> Result<(), String> {
        if old.has_external_journal() || !new.has_external_journal() {
            return Ok(());
        }
        enlist(&*self.device, new.uuid()).map_err(|e| format!("the journal's device: {e}"))
    }

    /// What comes after that.
    pub(super) fn after(&self, old: &Superblock, new: &Superblock) -> Result<(), String> {
        if !old.has_external_journal() {
            return Ok(());
        }
        let uuid = old.raw().journal_uuid;
        let done = if !new.has_external_journal() {
            dismiss(&*self.device, uuid, old.uuid())
        } else if old.uuid() != new.uuid() {
            dismiss(&*self.device, uuid, old.uuid())
                .and_then(|()| enlist(&*self.device, new.uuid()))
        } else {
            Ok(())
        };
        done.map_err(|e| {
            format!(
                "the file system is changed, and its journal's device still lists it as it was: {e}"
            )
        })
    }
}
