//! Targets of symbolic links.

use super::Inode;
use crate::fs::Fs;
use crate::inode::FileType;
use crate::{Error, Place, Result, data};
use extant_format::features::Incompat;
use extant_format::inode::{InodeFlags, MAP_BYTES};
use extant_format::{Expected, FormatError, Structure};

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
        } else {
            let read = data::read_content(self, inode, 0, &mut target)?;
            target.truncate(read);
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
