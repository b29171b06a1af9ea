//! One entry of a quota file.

use crate::bytes::{le32, le64, put};

/// Bytes of an entry.
pub(super) const LEN: usize = 72;

/// What one id uses and may use. A limit of 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaEntry {
    /// The user, group or project.
    pub id: u32,
    /// Most inodes there may be.
    pub inode_hard: u64,
    /// Inodes there may be for longer than the time of grace.
    pub inode_soft: u64,
    /// Inodes there are.
    pub inodes: u64,
    /// Most space that may be in use, in KiB.
    pub space_hard: u64,
    /// Space that may be in use for longer than the time of grace, in KiB.
    pub space_soft: u64,
    /// Space in use, in bytes.
    pub space: u64,
    /// When the grace for space ends, in seconds since the epoch; 0 while the soft limit is not
    /// exceeded.
    pub space_time: u64,
    /// When the grace for inodes ends, in seconds since the epoch; 0 while the soft limit is not
    /// exceeded.
    pub inode_time: u64,
}

impl QuotaEntry {
    /// Makes an entry that uses nothing and has no limits.
    #[must_use]
    pub fn of(id: u32) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    /// Returns whether it says no more than there not being one.
    #[must_use]
    pub fn is_void(&self) -> bool {
        *self == Self::of(self.id)
    }

    /// Reads an entry; `None` where there is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.iter().all(|byte| *byte == 0) {
            return None;
        }
        let mut entry = Self {
            id: le32(bytes, 0),
            inode_hard: le64(bytes, 8),
            inode_soft: le64(bytes, 16),
            inodes: le64(bytes, 24),
            space_hard: le64(bytes, 32),
            space_soft: le64(bytes, 40),
            space: le64(bytes, 48),
            space_time: le64(bytes, 56),
            inode_time: le64(bytes, 64),
        };
        // All zeros mean that there is none, so that of id 0 is written with this time.
        if entry == Self::VOID_OF_ZERO {
            entry.inode_time = 0;
        }
        Some(entry)
    }

    pub(super) fn encode(&self) -> [u8; LEN] {
        let entry = if self.id == 0 && self.is_void() {
            &Self::VOID_OF_ZERO
        } else {
            self
        };
        let mut bytes = [0; LEN];
        put(&mut bytes, 0, &entry.id.to_le_bytes());
        let numbers = [
            entry.inode_hard,
            entry.inode_soft,
            entry.inodes,
            entry.space_hard,
            entry.space_soft,
            entry.space,
            entry.space_time,
            entry.inode_time,
        ];
        for (i, number) in numbers.into_iter().enumerate() {
            put(&mut bytes, 8 + i * 8, &number.to_le_bytes());
        }
        bytes
    }

    const VOID_OF_ZERO: Self = Self {
        id: 0,
        inode_hard: 0,
        inode_soft: 0,
        inodes: 0,
        space_hard: 0,
        space_soft: 0,
        space: 0,
        space_time: 0,
        inode_time: 1,
    };
}
