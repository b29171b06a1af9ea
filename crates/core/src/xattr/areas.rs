//! The two areas an inode's attributes are in.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::meta::BlockRef;
use crate::{InPlace, Place, Result};
use extant_format::Structure;
use extant_format::xattr::{
    XattrArea, XattrBlockHeader, XattrContext, XattrEntry, verify_block_checksum,
};
use std::ops::ControlFlow;

/// An inode's attributes: those in its record, and the block of the others.
pub(super) struct Areas<'a> {
    context: XattrContext,
    inode: &'a Inode,
    block: Option<BlockRef>,
}

impl<'a> Areas<'a> {
    pub(super) fn of(fs: &Fs, inode: &'a Inode) -> Result<Self> {
        let pblk = inode.disk().file_acl;
        let block = if pblk.get() == 0 {
            None
        } else {
            let place = Place::InodeBlock(inode.ino(), pblk);
            // Inodes share the block: its checksum depends on its address only.
            let block = fs.metadata(pblk, place, Structure::XattrBlock, None, |bytes| {
                // Something else at that address is told by its magic, not by a wrong checksum.
                XattrBlockHeader::parse(bytes)?;
                match fs.checksum_seed() {
                    Some(seed) => verify_block_checksum(bytes, seed, pblk),
                    None => Ok(()),
                }
            })?;
            Some(block)
        };
        Ok(Self {
            context: fs.xattr_context(),
            inode,
            block,
        })
    }

    /// Calls `visit` with each attribute and the place it is at, those in the inode first, until
    /// it breaks.
    pub(super) fn for_each<B>(
        &self,
        mut visit: impl FnMut(Place, XattrEntry<'_>) -> Result<ControlFlow<B>>,
    ) -> Result<Option<B>> {
        let place = Place::Inode(self.inode.ino());
        let area = XattrArea::in_inode(self.inode.xattr_region(), &self.context).in_place(place)?;
        for entry in area.iter() {
            if let ControlFlow::Break(value) = visit(place, entry)? {
                return Ok(Some(value));
            }
        }
        let Some(block) = &self.block else {
            return Ok(None);
        };
        let place = Place::InodeBlock(self.inode.ino(), self.inode.disk().file_acl);
        let area = XattrArea::in_block(block, &self.context).in_place(place)?;
        for entry in area.iter() {
            if let ControlFlow::Break(value) = visit(place, entry)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}
