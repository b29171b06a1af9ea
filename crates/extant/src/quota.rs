//! What users, groups and projects use and may use.

use crate::{Error, Filesystem, Grace, Quota, QuotaChange, QuotaKind, Result};
use extant_core::ops;
use std::ops::ControlFlow;
use std::path::PathBuf;

impl Filesystem {
    /// Returns for how long the soft limits of users, groups or projects may be exceeded, or `None`
    /// if the file system does not count this kind.
    ///
    /// # Errors
    /// When the hidden file that counts is corrupt or cannot be read.
    pub fn quota_grace(&self, kind: QuotaKind) -> Result<Option<Grace>> {
        ops::quota_grace(self.by(), kind).map_err(whole)
    }

    /// Returns what a user, group or project uses and may use, or `None` if the file system does
    /// not count this kind. An id that has nothing uses nothing.
    ///
    /// ```no_run
    /// use extant::{Filesystem, QuotaKind};
    ///
    /// let fs = Filesystem::open("disk.img")?;
    /// if let Some(quota) = fs.quota(QuotaKind::User, 1000)? {
    ///     println!("{} bytes of {:?}", quota.space, quota.space_limits.hard);
    /// }
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Filesystem::quota_grace`]; for a [caller](Self::on_behalf_of) that asks for
    /// anything but itself and its groups.
    pub fn quota(&self, kind: QuotaKind, id: u32) -> Result<Option<Quota>> {
        ops::quota(self.by(), kind, id).map_err(whole)
    }

    /// Returns what all users, groups or projects use and may use, by ascending number, or `None`
    /// if the file system does not count this kind.
    ///
    /// # Errors
    /// As for [`Filesystem::quota_grace`]; for a [caller](Self::on_behalf_of) other than user 0.
    pub fn quotas(&self, kind: QuotaKind) -> Result<Option<Vec<Quota>>> {
        let mut all = Vec::new();
        let counts = ops::quotas(self.by(), kind, |quota| {
            all.push(quota);
            ControlFlow::Continue(())
        });
        Ok(counts.map_err(whole)?.then_some(all))
    }

    /// Gives a user, group or project other limits, durably. Returns whether the file system counts
    /// this kind. If more than a new soft limit is in use, the time of grace begins.
    ///
    /// Limits are kept in the file system, and count where it is opened so that they do
    /// ([`MountOptions::quotas`](crate::MountOptions::quotas)).
    ///
    /// ```no_run
    /// use extant::{Filesystem, QuotaChange, QuotaKind, SideChange};
    ///
    /// let fs = Filesystem::open_writable("disk.img")?;
    /// let space = SideChange { soft: Some(1 << 30), hard: Some(2 << 30) };
    /// fs.set_quota(QuotaKind::User, 1000, QuotaChange { space, ..QuotaChange::default() })?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Filesystem::quotas`]; when the hidden file that counts has to grow and cannot; when
    /// the file system is open for reading only.
    pub fn set_quota(&self, kind: QuotaKind, id: u32, change: QuotaChange) -> Result<bool> {
        ops::set_quota(self.by(), kind, id, change).map_err(whole)
    }

    /// Gives the soft limits of all users, groups or projects other times of grace, durably, for
    /// limits that are exceeded from now on. Returns whether the file system counts this kind.
    ///
    /// # Errors
    /// As for [`Filesystem::set_quota`]; for more than 2³² - 1 seconds.
    pub fn set_quota_grace(&self, kind: QuotaKind, grace: Grace) -> Result<bool> {
        ops::set_quota_grace(self.by(), kind, grace).map_err(whole)
    }
}

/// An error about the file system as a whole.
fn whole(error: extant_core::Error) -> Error {
    Error::engine(PathBuf::new(), error)
}
