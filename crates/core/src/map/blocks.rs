//! Blocks of directories and other metadata files, through the cache.

use super::Target;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::meta::BlockRef;
use crate::{Place, Result};
use extant_format::{FormatResult, Lblk, Structure};

impl Fs {
    /// Block `lblk` of a directory (or of another file whose blocks are metadata), through the
    /// cache. `None` for a hole.
    ///
    /// `check` verifies that the content is a sound `what` of this inode. It runs once per load of
    /// the block: it must depend on nothing but the bytes, `what` and the inode.
    ///
    /// # Errors
    /// When the map or the block breaks the format, or the device fails.
    pub fn file_block(
        &self,
        inode: &Inode,
        lblk: Lblk,
        what: Structure,
        check: impl FnOnce(&[u8]) -> FormatResult<()>,
    ) -> Result<Option<BlockRef>> {
        match super::lookup(self, inode, lblk)?.target {
            Target::Written(pblk) => {
                let place = Place::FileBlock(inode.ino(), lblk);
                self.metadata(pblk, place, what, Some(inode.ino()), check)
                    .map(Some)
            }
            Target::Unwritten(_) | Target::Hole => Ok(None),
        }
    }
}
