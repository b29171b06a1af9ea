//! Giving owners other limits, and limits other times of grace.

use super::ledger::{grace_end, now};
use super::{Grace, QuotaKind};
use crate::fs::Fs;
use crate::{Error, Result};
use extant_format::quota::{QuotaEntry, QuotaInfo};

/// What is set for a commit to write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    /// The limits and times of an owner; what he uses is not meant.
    Limits(QuotaEntry),
    /// Times of grace, in seconds.
    Graces { space: u32, inodes: u32 },
}

/// Other limits of space, in bytes, or of inodes: what is `None` stays, 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideChange {
    /// What may not be exceeded.
    pub hard: Option<u64>,
    /// What may be exceeded for some time only.
    pub soft: Option<u64>,
}

/// What is to change of one owner's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaChange {
    /// Space, in bytes; rounded up to whole KiB.
    pub space: SideChange,
    /// Inodes.
    pub inodes: SideChange,
}

/// `entry` with the limits and times of `of`.
pub(super) fn limited(entry: QuotaEntry, of: &QuotaEntry) -> QuotaEntry {
    QuotaEntry {
        space: entry.space,
        inodes: entry.inodes,
        ..*of
    }
}

/// The entry with other limits.
fn changed(entry: QuotaEntry, change: QuotaChange, info: &QuotaInfo) -> QuotaEntry {
    let kib = |bytes: u64| bytes.div_ceil(1024);
    let mut entry = entry;
    entry.space_hard = change.space.hard.map_or(entry.space_hard, kib);
    entry.space_soft = change.space.soft.map_or(entry.space_soft, kib);
    entry.inode_hard = change.inodes.hard.unwrap_or(entry.inode_hard);
    entry.inode_soft = change.inodes.soft.unwrap_or(entry.inode_soft);
    let soft = entry.space_soft.saturating_mul(1024);
    let (now, space, inodes) = (now(), info.space_grace.into(), info.inode_grace.into());
    entry.space_time = grace_end(entry.space, soft, now, space);
    entry.inode_time = grace_end(entry.inodes, entry.inode_soft, now, inodes);
    entry
}

impl Fs {
    /// Gives an owner other limits, durably. Returns whether the file system counts this kind.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the quota file has to grow and cannot; [`Error::ReadOnly`]; when it
    /// breaks the format or cannot be read or written.
    pub(crate) fn set_quota(&self, kind: QuotaKind, id: u32, change: QuotaChange) -> Result<bool> {
        self.journal()?;
        let Some(accounts) = self.accounts() else {
            return Ok(false);
        };
        let Some((_, layout)) = accounts.still().file(kind) else {
            return Ok(false);
        };
        while !accounts.promise_one(self, kind, id)? {
            self.grow_quota_file(accounts, kind)?;
        }
        let held = self.hold(layout.ino())?;
        let handle = self.start(1)?;
        handle.touch_inode(held.live())?;
        accounts.set_limits(self, kind, id, handle.seq(), |entry, info| {
            changed(entry, change, info)
        })?;
        let seq = handle.seq();
        drop(handle);
        self.commit(seq)?;
        Ok(true)
    }

    /// Gives soft limits of this kind other times of grace, durably: for limits exceeded from now
    /// on. Returns whether the file system counts this kind.
    ///
    /// # Errors
    /// As for [`set_quota`](Self::set_quota).
    pub(crate) fn set_quota_grace(&self, kind: QuotaKind, grace: Grace) -> Result<bool> {
        self.journal()?;
        let seconds = |time: std::time::Duration| {
            let most = Error::InvalidInput("a time of grace longer than the format can express");
            u32::try_from(time.as_secs()).map_err(|_| most)
        };
        let (space, inodes) = (seconds(grace.space)?, seconds(grace.inodes)?);
        let Some(accounts) = self.accounts() else {
            return Ok(false);
        };
        let Some((_, layout)) = accounts.still().file(kind) else {
            return Ok(false);
        };
        let held = self.hold(layout.ino())?;
        let handle = self.start(1)?;
        handle.touch_inode(held.live())?;
        accounts.set_graces(kind, handle.seq(), space, inodes);
        let seq = handle.seq();
        drop(handle);
        self.commit(seq)?;
        Ok(true)
    }
}
