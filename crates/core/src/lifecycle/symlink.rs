//! Targets of symbolic links.

use crate::alloc::Request;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{FileType, Held, Inode};
use crate::map::{self, MapGuard};
use crate::meta::Seal;
use crate::{Error, Place, Result};
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
        let stored = match inode.is_inline() {
            true => self.inline_data(inode)?.stored() as u64,
            false if fast => MAP_BYTES as u64 - 1,
            false => u64::from(self.block_size().bytes()) - 1,
        };
        let size = inode.size();
        if size == 0 || fast && size > stored {
            let expected = Expected::Between(1, stored);
            return Err(self.bad_symlink(inode, "size", size, expected));
        }
        // Under Linux it ends with the size, with what is stored, or with a zero byte, whichever
        // comes first.
        let mut target = vec![0; size.min(stored) as usize];
        if fast {
            for (to, from) in target.iter_mut().zip(inode.disk().map) {
                *to = from;
            }
        } else if inode.is_inline() {
            self.inline_data(inode)?.read(0, &mut target);
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
            None => {}
            Some(0) => {
                let expected = Expected::Said("a target that does not begin with a zero byte");
                return Err(self.bad_symlink(inode, "target", 0, expected));
            }
            Some(end) => target.truncate(end),
        }
        Ok(target)
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
    /// [`Error::NameTooLong`] when it does not fit a block either, [`Error::NoSpace`]; nothing has
    /// been changed then.
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
        let taken = self.alloc()?.take_blocks(&Request {
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
