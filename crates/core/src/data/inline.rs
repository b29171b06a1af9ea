//! Content that lies inside the inode, and files that outgrow it.

use super::read::device_offset;
use super::write::check_changeable;
use crate::alloc::{Request, Taken};
use crate::fs::Fs;
use crate::inode::{Held, Inode, LEAVE_CREDITS};
use crate::map::MapGuard;
use crate::{Error, InPlace, Place, Result};
use extant_format::features::Incompat;
use extant_format::inline_data::InlineData;
use extant_format::xattr::name::INLINE_DATA;
use extant_format::xattr::{XattrArea, XattrContext, XattrValue};
use extant_format::{Expected, FormatError, Ino, Structure};
use extant_sync::pin;
use std::ops::Range;

impl Fs {
    /// How extended attributes are read.
    #[must_use]
    pub fn xattr_context(&self) -> XattrContext {
        XattrContext {
            ea_inode: self.superblock().has_incompat(Incompat::EA_INODE),
            max_inode: Ino::new(self.geometry().inodes_count()),
        }
    }

    /// The content of an inode with [`Inode::is_inline`].
    ///
    /// # Errors
    /// When the attributes in the inode break the format, or hold less than the size says.
    pub fn inline_data<'a>(&self, inode: &'a Inode) -> Result<InlineData<'a>> {
        let place = Place::Inode(inode.ino());
        let area =
            XattrArea::in_inode(inode.xattr_region(), &self.xattr_context()).in_place(place)?;
        let rest = match area.find(&INLINE_DATA).map(|entry| entry.value) {
            None => &[][..],
            Some(XattrValue::Bytes(bytes)) => bytes,
            Some(XattrValue::InInode { ino, .. }) => {
                let expected = Expected::Said("a value inside the inode");
                let found = ino.get().into();
                let source = FormatError::new(Structure::InlineData, "value_inum", found, expected);
                return Err(Error::corrupt(place, source));
            }
        };
        InlineData::new(&inode.disk().map, rest, inode.size()).in_place(place)
    }
}

impl Fs {
    /// Where the rest of inline content lies in the part of the record that holds attributes; empty without.
    ///
    /// # Errors
    /// When the attributes in the inode break the format.
    pub(crate) fn inline_rest(&self, inode: &Inode) -> Result<Range<usize>> {
        let region = inode.xattr_region();
        let area = XattrArea::in_inode(region, &self.xattr_context());
        let area = area.in_place(Place::Inode(inode.ino()))?;
        Ok(area.position(region, &INLINE_DATA).unwrap_or_default())
    }
}

/// Gives a file whose content lies in its inode a block for that, so that it can be changed. Does nothing to any other.
///
/// # Errors
/// As for [`check_changeable`]: what may not be changed stays as it is. [`Error::NoSpace`]; when the attributes in the inode break the format; what the device says.
pub(super) fn outgrow(fs: &Fs, held: &Held) -> Result<()> {
    if !held.image(&pin()).is_inline() {
        return Ok(());
    }
    let _alone = held.op().write();
    outgrow_alone(fs, held)
}

/// The same for who holds `op` exclusively.
pub(super) fn outgrow_alone(fs: &Fs, held: &Held) -> Result<()> {
    let image = held.snapshot();
    if !image.is_inline() {
        return Ok(());
    }
    check_changeable(&image)?;
    match move_out(fs, held) {
        Err(Error::NoSpace) if fs.pending_free_blocks() > 0 => {
            fs.commit(fs.journal()?.running())?;
            move_out(fs, held)
        }
        moved => moved,
    }
}

fn move_out(fs: &Fs, held: &Held) -> Result<()> {
    let image = held.snapshot();
    let mut block = vec![0; fs.block_size().len()];
    let len = fs.inline_data(&image)?.read(0, &mut block);
    let taken = match image.size() {
        0 => None,
        _ => Some(fs.take_blocks(&Request {
            goal: fs.near_inode(image.ino()),
            len: 1,
            min: 1,
            below_32_bits: true,
            privileged: false,
        })?),
    };
    if let Some(taken) = &taken {
        debug_assert!(len as u64 == image.size(), "less than a block");
        let failures = fs.flush_failures();
        fs.device()
            .write_at(device_offset(fs, taken.start(), 0)?, &block)?;
        held.note_data(fs, failures);
    }
    leave(fs, held, taken, image.size())
}

/// Takes the content of a file that may be changed out of its inode, for who holds `op` exclusively and wants none of
/// it: that takes no block. Does nothing to any other.
///
/// # Errors
/// As for changing it.
pub(super) fn empty_alone(fs: &Fs, held: &Held) -> Result<()> {
    match held.image(&pin()).is_inline() {
        true => leave(fs, held, None, 0),
        false => Ok(()),
    }
}

fn leave(fs: &Fs, held: &Held, block: Option<Taken<'_>>, size: u64) -> Result<()> {
    let handle = fs.start(LEAVE_CREDITS)?;
    let guard = MapGuard::lock(held);
    fs.leave_inode(&handle, held, &guard, block, size)
}
