//! The two areas an inode's attributes are in.

use super::shared;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::meta::BlockRef;
use crate::{InPlace, Place, Result};
use extant_format::xattr::{XattrArea, XattrContext, XattrEntry};
use extant_sync::pin;
use std::borrow::Cow;
use std::ops::ControlFlow;

/// An inode's attributes: those in its record, and the block of the others.
pub(super) struct Areas<'a> {
    context: XattrContext,
    inode: Cow<'a, Inode>,
    block: Option<BlockRef>,
}

impl<'a> Areas<'a> {
    /// Returns the attributes of `inode`, or, where they have changed since, those it has now: the
    /// block of the old ones may hold something else by now.
    pub(super) fn of(fs: &Fs, inode: &'a Inode) -> Result<Self> {
        let mut inode = Cow::Borrowed(inode);
        loop {
            let block = Self::block_of(fs, &inode);
            if let Some(newer) = newer(fs, &inode) {
                inode = Cow::Owned(newer);
                continue;
            }
            return Ok(Self {
                context: fs.xattr_context(),
                block: block?,
                inode,
            });
        }
    }

    fn block_of(fs: &Fs, inode: &Inode) -> Result<Option<BlockRef>> {
        let pblk = inode.disk().file_acl;
        if pblk.get() == 0 {
            return Ok(None);
        }
        let place = Place::InodeBlock(inode.ino(), pblk);
        shared::load(fs, place, pblk).map(Some)
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

/// Returns the image that the inode has now, if it has another block of attributes than `seen`.
fn newer(fs: &Fs, seen: &Inode) -> Option<Inode> {
    if seen.disk().file_acl.get() == 0 || fs.check_writable().is_err() {
        return None;
    }
    let guard = pin();
    let image = fs.peek_inode(seen.ino(), &guard)?.image(&guard);
    let moved = image.id() == seen.id() && image.disk().file_acl != seen.disk().file_acl;
    moved.then(|| image.clone())
}
