//! What users, groups and projects use and may use.

use crate::{Error, Filesystem, Grace, Quota, QuotaKind, Result};
use extant_core::ops;
use std::ops::ControlFlow;
use std::path::PathBuf;

impl Filesystem {
    /// For how long the soft limits of users, groups or projects may be exceeded, or `None` if the file system does not
    /// count this kind.
    ///
    /// # Errors
    /// When the hidden file that counts is corrupt or cannot be read.
    pub fn quota_grace(&self, kind: QuotaKind) -> Result<Option<Grace>> {
        ops::quota_grace(self.by(), kind).map_err(whole)
    }

    /// What a user, group or project uses and may use, or `None` if the file system does not count this kind. An id that
    /// has nothing uses nothing.
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
    /// As for [`Filesystem::quota_grace`]; for a [caller](Self::on_behalf_of) who asks for anything but himself and his
    /// groups.
    pub fn quota(&self, kind: QuotaKind, id: u32) -> Result<Option<Quota>> {
        ops::quota(self.by(), kind, id).map_err(whole)
    }

    /// What all users, groups or projects use and may use, by ascending number, or `None` if the file system does not
    /// count this kind.
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
}

/// An error about the file system as a whole.
fn whole(error: extant_core::Error) -> Error {
    Error::engine(PathBuf::new(), error)
}
