//! Copies of the superblock, in other groups.
//!
//! They are not in the journal and have no changes of their own. What they are to say too goes into
//! each that is sound, past the log, after it is durable in the first one: a crash leaves the old
//! in some of them, which no checker minds.

use super::Fs;
use crate::Result;
use crate::meta::Seq;
use extant_format::features::RoCompat;
use extant_format::superblock::{SUPERBLOCK_LEN, Superblock};
use extant_format::{FormatError, Group};

impl Fs {
    /// Changes all copies of the superblock, and flushes.
    ///
    /// # Errors
    /// When the device fails to write. One that cannot be read stays as it is.
    pub(crate) fn change_copies(&self, change: impl Fn(&Superblock) -> Superblock) -> Result<()> {
        for group in self.geometry().groups().skip(1) {
            if self.geometry().has_super(group) {
                self.change_copy(group, &change)?;
            }
        }
        Ok(self.device().flush()?)
    }

    fn change_copy(&self, group: Group, change: impl Fn(&Superblock) -> Superblock) -> Result<()> {
        let first = self.geometry().group_first_block(group);
        let Some(offset) = first
            .ok()
            .and_then(|first| self.block_size().offset_of(first))
        else {
            return Ok(());
        };
        let mut bytes = [0; SUPERBLOCK_LEN];
        if self.device().read_at(offset, &mut bytes).is_err() {
            return Ok(());
        }
        let copy: std::result::Result<_, FormatError> = Superblock::parse(&bytes);
        match copy {
            Ok(copy) if copy.uuid() == self.superblock().uuid() => {
                let bytes = change(&copy).encode_for_group(group);
                Ok(self.device().write_at(offset, &bytes)?)
            }
            _ => Ok(()),
        }
    }

    /// Has the copies say that the file system has the feature `verity`, which the transaction
    /// `seq` turns on: a copy that stands in for the superblock must not take files that fs-verity
    /// protects for others.
    ///
    /// # Errors
    /// As for [`Fs::commit`] and [`Fs::change_copies`].
    pub(crate) fn note_verity_in_copies(&self, seq: Seq) -> Result<()> {
        self.commit(seq)?;
        self.change_copies(|copy| {
            let noted = copy.with(|raw| {
                let bits = raw.feature_ro_compat.get() | RoCompat::VERITY.bits();
                raw.feature_ro_compat.set(bits);
            });
            // No other field depends on it.
            noted.unwrap_or_else(|_| copy.clone())
        })
    }
}
