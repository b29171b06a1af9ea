//! Giving up memory that is not needed.

use crate::fs::Fs;
use crate::meta::Shed;

impl Fs {
    /// Frees memory whose content can be had from the device again: of file data, of metadata and
    /// of inodes. What is in use stays. Call it now and then with [`Shed::Unused`], and what nobody
    /// needs goes by age; where the system is short of memory, call it with [`Shed::All`].
    pub fn shed(&self, what: Shed) {
        if what == Shed::All {
            // What cannot be written stays, and its file keeps the reason.
            let _ = self.write_back();
        }
        self.data().shed(what);
        self.inode_table().shed(what);
        self.cache().shed(what);
    }
}
