//! Content that lies inside the inode.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Error, InPlace, Place, Result};
use extant_format::features::Incompat;
use extant_format::inline_data::InlineData;
use extant_format::xattr::name::INLINE_DATA;
use extant_format::xattr::{XattrArea, XattrContext, XattrValue};
use extant_format::{Expected, FormatError, Ino, Structure};

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
