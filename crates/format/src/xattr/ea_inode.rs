//! What an inode that holds an attribute value keeps in fields it has no other use for.
//!
//! The hash of the value lies in the seconds of `atime`; the number of attributes that refer to
//! it, 64 bits, in the seconds of `ctime` (high half) and in the low half of `version`.

use crate::inode::{Inode, InodeFlags, Timestamp};

/// Hash and reference count of an inode that holds an attribute value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EaInode {
    /// [`value_hash`](super::hash::value_hash) of the value.
    pub hash: u32,
    /// How many attributes refer to the value.
    pub ref_count: u64,
}

impl EaInode {
    /// Reads both from an inode, or `None` if the inode's flags do not say that it holds a value.
    #[must_use]
    pub fn from_inode(inode: &Inode) -> Option<Self> {
        inode.flags.contains(InodeFlags::EA_INODE).then(|| Self {
            hash: inode.atime.secs as u32,
            ref_count: (u64::from(inode.ctime.secs as u32) << 32) | (inode.version & 0xffff_ffff),
        })
    }

    /// Writes both into an inode and marks it as holding a value.
    pub fn apply(&self, inode: &mut Inode) {
        // As signed 32-bit seconds, which need no epoch bits and so survive small inodes too.
        inode.atime = Timestamp::from_secs(i64::from(self.hash as i32));
        inode.ctime = Timestamp::from_secs(i64::from((self.ref_count >> 32) as i32));
        inode.version = self.ref_count & 0xffff_ffff;
        inode.flags |= InodeFlags::EA_INODE;
    }
}
