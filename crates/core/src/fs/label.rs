//! What a file system is called: in the superblock, and in its backups.
//!
//! The superblock changes by way of the journal, as always. Backups are not in the journal and have
//! no changes of their own, so the label goes into each that is sound, past the log, after it is
//! durable: a crash leaves an old label in some of them, which no checker minds.

use super::Fs;
use crate::Result;
use crate::volume::Label;
use extant_format::superblock::{SUPERBLOCK_LEN, Superblock};
use extant_format::{FormatError, Group};

impl Fs {
    /// Tells what the file system is called: at most 16 bytes, which may be any.
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        match self.super_state() {
            Ok(state) => state.label(),
            Err(_) => self.superblock().label().to_vec(),
        }
    }

    /// Calls it something else, durably. The caller is within a change.
    pub(crate) fn change_label(&self, label: &[u8]) -> Result<()> {
        let label = Label::new(label)?;
        let seq = {
            let handle = self.start(1)?;
            handle.touch_superblock();
            self.super_state()?.set_label(label);
            handle.seq()
        };
        self.commit(seq)?;
        for group in self.geometry().groups().skip(1) {
            if self.geometry().has_super(group) {
                self.label_backup(group, label)?;
            }
        }
        Ok(self.device().flush()?)
    }

    /// One that cannot be read stays as it is.
    fn label_backup(&self, group: Group, label: Label) -> Result<()> {
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
        let backup: std::result::Result<_, FormatError> = Superblock::parse(&bytes);
        match backup {
            Ok(backup) if backup.uuid() == self.superblock().uuid() => {
                let bytes = label.in_superblock(&backup).encode_for_group(group);
                Ok(self.device().write_at(offset, &bytes)?)
            }
            _ => Ok(()),
        }
    }
}
