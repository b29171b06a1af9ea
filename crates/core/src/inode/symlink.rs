//! Targets of symbolic links.

use super::{FileType, Held, Inode};
use crate::alloc::Request;
use crate::fs::Fs;
use crate::journal::{Handle, Seal};
use crate::map::{self, MapGuard};
use crate::{Error, Place, Result};
use extant_format::features::Incompat;
use extant_format::inode::{InodeFlags, MAP_BYTES};
use extant_format::{Expected, FormatError, Lblk, Structure};

impl Fs {
    /// The target of a symbolic link, as stored: any bytes but 0.
    ///
    /// # Errors
    /// [`Error::NotASymlink`] for anything else, [`Error::Encrypted`] when the target is, and
    /// [`Error::Corrupt`] when its length cannot be right.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.file_type() != FileType::Symlink {
            return Err(Error::NotASymlink);
        }
        if inode.is_encrypted() {
            return Err(Error::Encrypted);
        }
        let fast = self.is_fast_symlink(inode);
        let limit = if fast {
            MAP_BYTES as u64 - 1
        } else {
            u64::from(self.block_size().bytes())
        };
        let size = inode.size();
        if size == 0 || size > limit {
            let expected = Expected::Between(1, limit);
            return Err(self.bad_symlink(inode, "size", size, expected));
        }
        let mut target = vec![0; size as usize];
        if fast {
            for (to, from) in target.iter_mut().zip(inode.disk().map) {
                *to = from;
            }
        } else if inode.is_inline() {
            let read = self.inline_data(inode)?.read(0, &mut target);
            target.truncate(read);
        } else {
            // Through the cache: a committed target may not have come home yet.
            let what = Structure::Symlink;
            let block = self.file_block(inode, Lblk::new(0), what, |_| Ok(()))?;
            match block.as_deref().and_then(|bytes| bytes.get(..target.len())) {
                Some(bytes) => target.copy_from_slice(bytes),
                None => target.fill(0),
            }
        }
        match target.iter().position(|&byte| byte == 0) {
            None => Ok(target),
            Some(at) => Err(self.bad_symlink(
                inode,
                "target",
                at as u64,
                Expected::Said("a target without zero bytes"),
            )),
        }
    }

    /// Blocks that [`Fs::set_symlink_target`] changes at most, beside the record.
    pub(crate) fn symlink_credits(&self) -> u32 {
        // The block, its group, the superblock.
        5
    }

    /// Gives a new symbolic link its target: in the map of its inode if it fits there, in a block
    /// otherwise.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] when it does not fit a block either, [`Error::NoSpace`]; nothing has been
    /// changed then.
    pub(crate) fn set_symlink_target(
        &self,
        handle: &Handle<'_>,
        link: &Held,
        target: &[u8],
    ) -> Result<()> {
        if target.len() < MAP_BYTES {
            return link.live().update(handle, |inode| {
                let disk = inode.disk_mut();
                disk.flags.remove(InodeFlags::EXTENTS);
                disk.map = [0; MAP_BYTES];
                if let Some(bytes) = disk.map.get_mut(..target.len()) {
                    bytes.copy_from_slice(target);
                }
                disk.size = target.len() as u64;
            });
        }
        let mut data = vec![0; self.block_size().len()].into_boxed_slice();
        match data.get_mut(..target.len()) {
            // The last byte stays zero.
            Some(bytes) if target.len() < self.block_size().len() => bytes.copy_from_slice(target),
            _ => return Err(Error::NameTooLong),
        }
        let taken = self.take_blocks(&Request {
            goal: self.near_inode(link.ino()),
            len: 1,
            min: 1,
            below_32_bits: !link.snapshot().flags().contains(InodeFlags::EXTENTS),
            privileged: false,
        })?;
        let block = taken.start();
        let guard = MapGuard::lock(link);
        let edit = |tree: &mut map::Tree<'_>| tree.insert(Lblk::new(0), block, 1, false);
        map::change(handle, link.live(), &guard, vec![taken], edit, |inode| {
            inode.disk_mut().size = target.len() as u64;
        })?;
        handle.create(block, Seal::Plain, data);
        Ok(())
    }

    /// Whether a symbolic link's target lies in the map of its inode: when no block but one of
    /// attributes is charged to it. Where attribute values may lie in inodes of their own, those
    /// are charged as well, and the length tells: such file systems are too young to have short
    /// targets in blocks.
    pub(crate) fn is_fast_symlink(&self, inode: &Inode) -> bool {
        if inode
            .flags()
            .intersects(InodeFlags::INLINE_DATA | InodeFlags::EA_INODE)
        {
            return false;
        }
        if self.superblock().has_incompat(Incompat::EA_INODE) {
            return (1..MAP_BYTES as u64).contains(&inode.size());
        }
        let attribute_sectors = if inode.disk().file_acl.get() == 0 {
            0
        } else {
            u64::from(self.block_size().bytes() >> 9) << self.geometry().cluster_bits()
        };
        inode.disk().sectors(self.block_size()) <= attribute_sectors
    }

    fn bad_symlink(
        &self,
        inode: &Inode,
        field: &'static str,
        found: u64,
        expected: Expected,
    ) -> Error {
        let source = FormatError::new(Structure::Symlink, field, found, expected);
        Error::corrupt(Place::Inode(inode.ino()), source)
    }
}
