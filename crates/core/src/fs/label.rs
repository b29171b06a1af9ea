//! What a file system is called: in the superblock, by way of the journal as always, and then in
//! its copies.

use super::Fs;
use crate::Result;
use crate::volume::Label;

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
        self.change_copies(|copy| label.in_superblock(copy))
    }
}
