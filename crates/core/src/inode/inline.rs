//! Content that lies inside the inode: where it is.

use super::Inode;
use crate::fs::Fs;
use crate::{Error, InPlace, Place, Result};
use extant_format::inline_data::InlineData;
use extant_format::xattr::name::INLINE_DATA;
use extant_format::xattr::{XattrArea, XattrValue};
use extant_format::{Expected, FormatError, Ino, Structure};
use std::ops::Range;

impl Fs {
    /// Whether a symbolic link's target lies in the map of its inode.
    pub(crate) fn is_fast_symlink(&self, inode: &Inode) -> bool {
        self.inode_rules().is_fast_symlink(inode.disk())
    }

    /// The content of an inode with [`Inode::is_inline`].
    ///
    /// # Errors
    /// When the attributes in the inode break the format.
    pub fn inline_data<'a>(&self, inode: &'a Inode) -> Result<InlineData<'a>> {
        let rest = self.inline_value(inode.ino(), inode.xattr_region())?;
        let rest = rest.unwrap_or_default();
        Ok(InlineData::new(&inode.disk().map, rest, inode.size()))
    }

    /// The part of inline content that lies among these attributes, which an inode holds itself;
    /// `None` if that attribute is missing.
    ///
    /// # Errors
    /// When they break the format, or it lies elsewhere.
    pub(crate) fn inline_value<'a>(&self, ino: Ino, xattrs: &'a [u8]) -> Result<Option<&'a [u8]>> {
        let place = Place::Inode(ino);
        let area = XattrArea::in_inode(xattrs, &self.xattr_context()).in_place(place)?;
        match area.find(&INLINE_DATA).map(|entry| entry.value) {
            None => Ok(None),
            Some(XattrValue::Bytes(bytes)) => Ok(Some(bytes)),
            Some(XattrValue::InInode { ino, .. }) => {
                let expected = Expected::Said("a value inside the inode");
                let found = ino.get().into();
                let source = FormatError::new(Structure::InlineData, "value_inum", found, expected);
                Err(Error::corrupt(place, source))
            }
        }
    }
    /// Where the rest of inline content lies in the part of the record that holds attributes; empty
    /// without.
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
