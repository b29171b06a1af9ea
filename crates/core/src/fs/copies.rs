//! Copies of the superblock, in other groups.
//!
//! They are not in the journal and have no changes of their own. What they are to say too goes into
//! each that is sound, past the log, after it is durable in the first one. A crash in between
//! leaves the old in some of them. Then a label stays old there until it is changed again; the
//! feature `verity` comes with the next file that is to be protected.

use super::Fs;
use crate::meta::Seq;
use crate::{Error, Result};
use extant_format::features::RoCompat;
use extant_format::superblock::{SUPERBLOCK_LEN, Superblock};
use extant_format::{FormatError, Group};
use std::sync::atomic::Ordering;

impl Fs {
    /// Changes all copies of the superblock, and flushes if any became another.
    ///
    /// # Errors
    /// When the device fails to write. One that cannot be read stays as it is.
    pub(crate) fn change_copies(&self, change: impl Fn(&Superblock) -> Superblock) -> Result<()> {
        let mut is_any_new = false;
        for group in self.geometry().groups().skip(1) {
            if self.geometry().has_super(group) {
                is_any_new |= self.change_copy(group, &change)?;
            }
        }
        if is_any_new {
            self.device().flush()?;
        }
        Ok(())
    }

    /// Changes one copy. Returns whether it became another.
    fn change_copy(
        &self,
        group: Group,
        change: impl Fn(&Superblock) -> Superblock,
    ) -> Result<bool> {
        let first = self.geometry().group_first_block(group);
        let Some(offset) = first
            .ok()
            .and_then(|first| self.block_size().offset_of(first))
        else {
            return Ok(false);
        };
        let mut bytes = [0; SUPERBLOCK_LEN];
        if self.device().read_at(offset, &mut bytes).is_err() {
            return Ok(false);
        }
        let copy: std::result::Result<_, FormatError> = Superblock::parse(&bytes);
        match copy {
            Ok(copy) if copy.uuid() == self.superblock().uuid() => {
                let changed = change(&copy).encode_for_group(group);
                let is_new = changed != bytes;
                if is_new {
                    self.device().write_at(offset, &changed)?;
                }
                Ok(is_new)
            }
            _ => Ok(false),
        }
    }

    /// Has the copies say that the file system has the feature `verity`, which the transaction
    /// `seq` turns on, or which it had when it was opened: a copy that stands in for the superblock
    /// must not take files that fs-verity protects for others. They are looked at once.
    ///
    /// # Errors
    /// As for [`Fs::commit`] and [`Fs::change_copies`].
    pub(crate) fn note_verity_in_copies(&self, seq: Option<Seq>) -> Result<()> {
        let state = self.write_state.as_ref().ok_or(Error::ReadOnly)?;
        let is_in_copies = &state.is_verity_in_copies;
        let had_it = self.superblock().features().ro_compat;
        match seq {
            Some(seq) => self.commit(seq)?,
            None if is_in_copies.load(Ordering::Relaxed) => return Ok(()),
            // The call that turns it on sees to them.
            None if !had_it.contains(RoCompat::VERITY) => return Ok(()),
            None => {}
        }
        self.change_copies(|copy| {
            let noted = copy.with(|raw| {
                let bits = raw.feature_ro_compat.get() | RoCompat::VERITY.bits();
                raw.feature_ro_compat.set(bits);
            });
            // No other field depends on it.
            noted.unwrap_or_else(|_| copy.clone())
        })?;
        is_in_copies.store(true, Ordering::Relaxed);
        Ok(())
    }
}
