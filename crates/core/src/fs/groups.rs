//! Group descriptors as they are now.

use super::Fs;
use crate::Result;
use extant_format::Group;
use extant_format::group_desc::GroupDesc;

impl Fs {
    /// The descriptor of `group`: on a file system open for writing the newest, with checksums of
    /// bitmaps that may be older.
    ///
    /// # Errors
    /// When there is no such group, the device fails, or the descriptor breaks the format.
    pub fn group(&self, group: Group) -> Result<GroupDesc> {
        match self
            .alloc_if_any()
            .and_then(|alloc| alloc.live_group(group))
        {
            Some(desc) => Ok(desc),
            None => self.stored_group(group),
        }
    }
}
