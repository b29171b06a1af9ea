//! Content that lies in its inode, beside the attributes there, and leaves it for a block.
//!
//! Where Linux keeps small files and directories inside their inodes, so does this engine with
//! files; of directories it reads and changes those that are there. What gets larger gets a block
//! first, in the same way as when Linux finds that it has outgrown the inode. Source: the kernel's
//! `Documentation/filesystems/ext4/inlinedata.rst`.

use super::kept_hash;
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Held, Inode};
use crate::map::{Charge, MapGuard};
use crate::{Error, InPlace, Place, Result};
use extant_format::Lblk;
use extant_format::extent::{Entries, Extent, build_node};
use extant_format::features::Incompat;
use extant_format::indirect::{ROOT_POINTERS, encode_root};
use extant_format::inode::{FIXED_BYTES, InodeFlags, MAP_BYTES};
use extant_format::xattr::name::INLINE_DATA;
use extant_format::xattr::{
    Attribute, NewValue, XattrArea, XattrValue, encode_in_inode, space_in_inode,
};

/// Blocks that [`Fs::leave_inode`] changes at most: the record, the groups of its block, the
/// superblock.
pub(crate) const LEAVE_CREDITS: u32 = 1 + 3 * 3 + 1;

impl Fs {
    /// Makes the first of `block`, which holds the content, the only block of an inode whose
    /// content lay inside it, which is `size` bytes long from then on; without a block the content
    /// must be empty. `guard` is the right to change its map.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; when the attributes in the inode break the format, or its record
    /// cannot be registered. Nothing has changed then.
    pub(crate) fn leave_inode<'f>(
        &'f self,
        handle: &Handle<'f>,
        held: &Held,
        guard: &MapGuard<'_>,
        block: Option<Taken<'f>>,
        size: u64,
    ) -> Result<()> {
        debug_assert!(guard.is_of(held), "the guard is another inode's");
        let image = held.snapshot();
        let xattrs = self
            .xattrs_with_content(&image, None)?
            .ok_or(Error::Internal("fewer attributes need more room"))?;
        let has_extents = self.superblock().has_incompat(Incompat::EXTENTS);
        let map = if has_extents {
            extent_root(&image, block.as_ref())?
        } else {
            pointer_root(block.as_ref())?
        };
        let charge = Charge {
            gained: block.as_ref().map_or(0, |block| block.len().into()),
            lost: 0,
        };
        charge.check(self, &image)?;
        let _let_in = self.admit_blocks(held.live(), charge.gained)?;
        handle.touch_inode(held.live())?;
        if let Some(block) = block {
            handle.alloc().commit_blocks(handle, block)?;
        }
        held.live().note_datasync(handle);
        held.live().update(handle, |inode| {
            inode.set_xattr_region(xattrs);
            charge.apply(self, inode);
            let disk = inode.disk_mut();
            disk.flags.remove(InodeFlags::INLINE_DATA);
            disk.flags.set(InodeFlags::EXTENTS, has_extents);
            disk.map = map;
            disk.size = size;
        })
    }

    /// Returns the attributes in the inode, with `rest` in the one that holds content, or without
    /// that. `None` if they do not fit there.
    ///
    /// # Errors
    /// When the attributes in the inode break the format; those of reading inodes that hold values.
    pub(crate) fn xattrs_with_content(
        &self,
        inode: &Inode,
        rest: Option<&[u8]>,
    ) -> Result<Option<Box<[u8]>>> {
        let region = inode.xattr_region();
        let context = self.xattr_context();
        let area = XattrArea::in_inode(region, &context).in_place(Place::Inode(inode.ino()))?;
        let others = area.iter().filter(|entry| entry.name != INLINE_DATA);
        let mut all: Vec<Attribute<'_>> = others
            .map(|entry| match entry.value {
                XattrValue::Bytes(bytes) => Ok(Attribute {
                    name: entry.name,
                    value: NewValue::Bytes(bytes),
                }),
                XattrValue::InInode { ino, size } => Ok(Attribute {
                    name: entry.name,
                    value: NewValue::InInode {
                        ino,
                        size,
                        hash: kept_hash(self, ino)?,
                    },
                }),
            })
            .collect::<Result<_>>()?;
        all.extend(rest.map(|bytes| Attribute {
            name: INLINE_DATA,
            value: NewValue::Bytes(bytes),
        }));
        if all.is_empty() {
            return Ok(Some(Box::default()));
        }
        let mut encoded = vec![0; self.xattr_room(inode)].into_boxed_slice();
        let fits = space_in_inode(&all) <= encoded.len() && encode_in_inode(&mut encoded, &all);
        Ok(fits.then_some(encoded))
    }

    /// Bytes of the record of an inode that attributes may take.
    fn xattr_room(&self, inode: &Inode) -> usize {
        let record = self.geometry().inode_size() as usize;
        record.saturating_sub(FIXED_BYTES + usize::from(inode.disk().extra_isize))
    }
}

fn extent_root(inode: &Inode, block: Option<&Taken<'_>>) -> Result<[u8; MAP_BYTES]> {
    let extents: Vec<Extent> = block
        .map(|block| Extent {
            lblk: Lblk::new(0),
            len: 1,
            pblk: block.start(),
            unwritten: false,
        })
        .into_iter()
        .collect();
    let mut map = [0; MAP_BYTES];
    build_node(&mut map, Entries::Extents(&extents)).in_place(Place::Inode(inode.ino()))?;
    Ok(map)
}

fn pointer_root(block: Option<&Taken<'_>>) -> Result<[u8; MAP_BYTES]> {
    let mut pointers = [0; ROOT_POINTERS];
    if let (Some(first), Some(block)) = (pointers.first_mut(), block) {
        // It was taken below 2^32.
        *first = u32::try_from(block.start().get()).map_err(|_| Error::NoSpace)?;
    }
    Ok(encode_root(&pointers))
}
