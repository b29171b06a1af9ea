//! A claim of multiple-mount protection around changes that are made without an open file system.
//!
//! # Invariants
//! - What is written through the device that a claim [guards](Held::guard) is written while it
//!   stands: each write asks before it is made, and none is made after one was refused.

use crate::fs::{Bell, Claim, Keeper};
use crate::{Error, Result};
use extant_blockdev::{
    BlockDevice, Completion, DeviceError, DeviceResult, Done, Request, SharedDevice,
};
use extant_format::errno::EBUSY;
use extant_format::superblock::Superblock;
use extant_sync::{LockClass, Mutex, Rank};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static BELL: LockClass = LockClass::new("mmp bell", Rank::Leaf);

/// What is said of a claim that was lost.
const TAKEN: &str = "another host has taken it meanwhile";

/// A claim on a device, which is renewed until this is dropped, and given back then; none where the
/// file system does not ask for one.
#[derive(Debug)]
pub(super) struct Held(Option<Kept>);

#[derive(Debug)]
struct Kept {
    /// `None` while the claim gets another checksum.
    keeper: Option<Keeper>,
    standing: Arc<Standing>,
}

/// How a claim stands.
#[derive(Debug)]
struct Standing {
    /// Set as soon as the claim is found to be lost.
    is_lost: AtomicBool,
    /// Set before a write is refused, if it is not made.
    has_refused: AtomicBool,
    bell: Mutex<Option<Arc<Bell>>>,
}

impl Standing {
    /// Whether the claim stands.
    fn stands(&self) -> bool {
        let bell = self.bell.lock().clone();
        bell.is_none_or(|bell| bell.make_sure()) && !self.is_lost.load(Ordering::Acquire)
    }

    /// Refuses a write where the claim was lost.
    fn admit(&self, device: &dyn BlockDevice) -> DeviceResult<()> {
        if self.stands() && !self.has_refused.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.has_refused.store(true, Ordering::Relaxed);
        Err(DeviceError::Export {
            device: device.name(),
            reason: TAKEN.to_owned(),
            errno: EBUSY,
        })
    }
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
        claim.map(Kept::begin).transpose().map(Self)
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
        let held = claim.map(Kept::begin).transpose().map(Self)?;
        hidden.map(|()| held)
    }

    /// Whether there is a claim.
    pub(super) const fn is_one(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the device that is claimed as one that is written to while the claim stands. Without
    /// a claim it is the device itself.
    pub(super) fn guard(&self, device: SharedDevice) -> SharedDevice {
        match &self.0 {
            Some(kept) => Arc::new(Guarded {
                inner: device,
                standing: Arc::clone(&kept.standing),
            }),
            None => device,
        }
    }

    /// Refuses to go on where the claim was lost.
    ///
    /// # Errors
    /// [`Error::InUse`].
    pub(super) fn check(&self) -> Result<()> {
        match &self.0 {
            Some(kept) if !kept.standing.stands() => Err(taken()),
            _ => Ok(()),
        }
    }

    /// Why something failed of which no later write counts: the claim was lost where it refused a
    /// write, which was not made; `otherwise` says the rest.
    pub(super) fn why(&self, e: Error, otherwise: impl FnOnce(Error) -> Error) -> Error {
        match &self.0 {
            Some(kept) if kept.standing.has_refused.load(Ordering::Relaxed) => taken(),
            _ => otherwise(e),
        }
    }

    /// Gives the claim the checksum that it has beside another superblock.
    ///
    /// # Errors
    /// When the claim was lost, or the device fails.
    pub(super) fn reseal(&mut self, superblock: &Superblock) -> Result<()> {
        match &mut self.0 {
            Some(kept) => kept.reseal(superblock),
            None => Ok(()),
        }
    }
}

impl Kept {
    fn begin(claim: Claim) -> Result<Self> {
        let standing = Standing {
            is_lost: AtomicBool::new(false),
            has_refused: AtomicBool::new(false),
            bell: Mutex::new(&BELL, None),
        };
        let mut kept = Self {
            keeper: None,
            standing: Arc::new(standing),
        };
        kept.keep(claim)?;
        Ok(kept)
    }

    /// Has the claim renewed. That it was lost is found out when something depends on it.
    fn keep(&mut self, claim: Claim) -> Result<()> {
        let theirs = Arc::clone(&self.standing);
        let keeper = claim.keep_by(move || {
            let standing = Arc::clone(&theirs);
            Some(Box::new(move |_| {
                standing.is_lost.store(true, Ordering::Release)
            }))
        })?;
        *self.standing.bell.lock() = Some(Arc::clone(keeper.bell()));
        self.keeper = Some(keeper);
        Ok(())
    }

    fn reseal(&mut self, superblock: &Superblock) -> Result<()> {
        let Some(keeper) = self.keeper.take() else {
            return Ok(());
        };
        // Nobody renews it meanwhile.
        *self.standing.bell.lock() = None;
        let Some(mut claim) = keeper.take_back()? else {
            return Ok(());
        };
        claim.reseal(superblock)?;
        self.keep(claim)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Without it, the next one to come waits: nothing worse.
        if let Some(keeper) = self.0.as_ref().and_then(|kept| kept.keeper.as_ref())
            && let Err(error) = keeper.release()
        {
            crate::event!(warn, %error, "the claim on the file system was not given back");
        }
    }
}

fn taken() -> Error {
    Error::InUse {
        by: TAKEN.to_owned(),
    }
}

/// A device that is written to for as long as a claim on it stands.
#[derive(Debug)]
struct Guarded {
    inner: SharedDevice,
    standing: Arc<Standing>,
}

impl Guarded {
    fn admitted(&self) -> DeviceResult<&SharedDevice> {
        self.standing.admit(&*self.inner)?;
        Ok(&self.inner)
    }
}

impl BlockDevice for Guarded {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.inner.read_at(offset, buf)
    }

    fn read_uncached_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.inner.read_uncached_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.admitted()?.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        self.inner.read_vectored_at(offset, bufs)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        self.admitted()?.write_vectored_at(offset, bufs)
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.admitted()?.discard(offset, len)
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        self.admitted()?.try_discard(offset, len)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.admitted()?.zero(offset, len)
    }

    fn grow(&self, size: u64) -> DeviceResult<()> {
        self.admitted()?.grow(size)
    }

    fn write_growing_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.admitted()?.write_growing_at(offset, buf)
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        let reads = |request: &Request| matches!(request, Request::Read { .. } | Request::Flush);
        if batch.iter().all(reads) || self.admitted().is_ok() {
            return self.inner.submit(batch);
        }
        let refused = batch.into_iter().map(|request| Done {
            request,
            result: self.standing.admit(&*self.inner),
        });
        Completion::ended(refused.collect())
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        self.inner.prefetch(ranges);
    }

    fn logical_sector(&self) -> u32 {
        self.inner.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.inner.preferred_io()
    }

    fn parallel_writes(&self) -> usize {
        self.inner.parallel_writes()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn is_served(&self) -> bool {
        self.inner.is_served()
    }

    fn keeps_what_is_read(&self) -> bool {
        self.inner.keeps_what_is_read()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        self.inner.next_data(from, end)
    }

    fn data_extents(&self, range: Range<u64>) -> DeviceResult<Vec<Range<u64>>> {
        self.inner.data_extents(range)
    }
}
