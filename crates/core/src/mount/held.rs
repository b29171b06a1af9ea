//! A claim of multiple-mount protection around changes that are made without an open file system.

use crate::fs::{Claim, Keeper};
use crate::{Error, Result};
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::superblock::Superblock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A claim on a device, which is renewed until this is dropped, and given back then; none where the
/// file system does not ask for one.
#[derive(Debug)]
pub(super) struct Held(Option<Kept>);

#[derive(Debug)]
struct Kept {
    keeper: Keeper,
    /// Set as soon as the claim is found to be lost.
    is_lost: Arc<AtomicBool>,
}

impl Held {
    /// No claim: the caller has one, or there is nothing to claim.
    pub(super) const NONE: Self = Self(None);

    /// Claims the file system on `device`, if it has the feature.
    ///
    /// # Errors
    /// As for [`Claim::take`].
    pub(super) fn take(device: &SharedDevice, superblock: &Superblock) -> Result<Self> {
        let claim = Claim::take(device, superblock, std::thread::sleep)?;
        claim.map(keep).transpose().map(Self)
    }

    /// Claims the file system on `device`, which `front` does not show.
    ///
    /// # Errors
    /// As for [`Claim::take`]; a front that fails.
    pub(super) fn take_behind(
        device: &SharedDevice,
        front: &dyn BlockDevice,
        superblock: &Superblock,
    ) -> Result<Self> {
        let claim = Claim::take(device, superblock, std::thread::sleep)?;
        let hidden = claim.as_ref().map_or(Ok(()), |claim| claim.hide(front));
        let held = claim.map(keep).transpose().map(Self)?;
        hidden.map(|()| held)
    }

    /// Whether there is a claim.
    pub(super) const fn is_one(&self) -> bool {
        self.0.is_some()
    }

    /// Refuses to go on where the claim was lost.
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub(super) fn check(&self) -> Result<()> {
        match &self.0 {
            Some(kept) if kept.is_lost.load(Ordering::Acquire) || kept.keeper.is_lost() => {
                Err(Error::InUse {
                    by: "another host has taken it meanwhile".to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Gives the claim the checksum that it has beside another superblock.
    ///
    /// # Errors
    /// When the claim was lost, or the device fails.
    pub(super) fn reseal(&mut self, superblock: &Superblock) -> Result<()> {
        let Some(kept) = self.0.take() else {
            return Ok(());
        };
        let Some(mut claim) = kept.keeper.take_back()? else {
            return Ok(());
        };
        claim.reseal(superblock)?;
        self.0 = Some(keep(claim)?);
        Ok(())
    }
}

/// Has the claim renewed. That it was lost is found out when something depends on it.
fn keep(claim: Claim) -> Result<Kept> {
    let is_lost = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&is_lost);
    let keeper = claim.keep_by(move || {
        let is_lost = Arc::clone(&theirs);
        Some(Box::new(move |_| is_lost.store(true, Ordering::Release)))
    })?;
    Ok(Kept { keeper, is_lost })
}

impl Drop for Held {
    fn drop(&mut self) {
        // Without it, the next one to come waits: nothing worse.
        if let Some(kept) = &self.0
            && let Err(error) = kept.keeper.release()
        {
            tracing::warn!(%error, "the claim on the file system was not given back");
        }
    }
}
