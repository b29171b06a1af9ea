//! Changing and reading the map of a live inode.

use super::{Mapping, Walk, status};
use crate::Result;
use crate::fs::Fs;
use crate::inode::{Inode, LiveInode};
use extant_sync::RwLockWriteGuard;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The right to change the map of one inode. While it lives the inode's map version is odd.
///
/// Locked under a handle: its rank comes after.
#[derive(Debug)]
#[must_use = "the map is unlocked at once if the guard is dropped"]
pub struct MapGuard<'a> {
    live: &'a LiveInode,
    _exclusive: RwLockWriteGuard<'a, ()>,
}

impl<'a> MapGuard<'a> {
    /// Waits until nobody else reads the map under its lock or changes it.
    pub fn lock(live: &'a LiveInode) -> Self {
        let exclusive = live.map().write();
        let version = live.map_version();
        // Only holders of the lock store.
        version.store(version.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        Self {
            live,
            _exclusive: exclusive,
        }
    }

    /// Tells whether this is the right to change `live`.
    pub(crate) fn is_of(&self, live: &LiveInode) -> bool {
        std::ptr::eq(self.live, live)
    }
}

impl Drop for MapGuard<'_> {
    fn drop(&mut self) {
        let version = self.live.map_version();
        let next = version.load(Ordering::Relaxed).wrapping_add(1);
        version.store(next, Ordering::Release);
    }
}

/// Returns what `read` says about a map that did not change while it looked.
///
/// Looks without the lock first and takes it, shared, when the map changed meanwhile or what was
/// read made no sense: nodes may have been freed and used for something else. `read` may run twice.
///
/// # Errors
/// What `read` says about a map that holds still.
pub(crate) fn stable<R>(live: &LiveInode, read: impl Fn(&Arc<Inode>) -> Result<R>) -> Result<R> {
    let version = live.map_version();
    let before = version.load(Ordering::Acquire);
    if before & 1 == 0 {
        let result = read(&live.snapshot());
        fence(Ordering::Acquire);
        if result.is_ok() && version.load(Ordering::Relaxed) == before {
            return result;
        }
    }
    let _shared = live.map().read();
    read(&live.snapshot())
}

/// Returns the runs of `range` of a live inode, which are fewer than its blocks, and the image they
/// belong to; see [`lookup`](super::lookup). The answer is true at one moment. Its addresses stay
/// so while the caller holds the inode's `pages` or `op` lock.
///
/// # Errors
/// As for [`lookup`](super::lookup).
pub(crate) fn runs_live(
    fs: &Fs,
    live: &LiveInode,
    range: impl Fn(&Inode) -> Range<u64>,
) -> Result<(Arc<Inode>, Vec<Mapping>)> {
    if let Some(known) = status::look(live, &range) {
        return Ok(known);
    }
    let version = live.map_version().load(Ordering::Acquire);
    stable(live, |inode| {
        let runs = status::read(fs, live, inode, version, &range(inode))?;
        Ok((Arc::clone(inode), runs))
    })
}

/// Returns the runs of `range` of an image whose map the caller keeps from changing.
pub(crate) fn runs_of(fs: &Fs, inode: &Inode, range: Range<u64>) -> Result<Vec<Mapping>> {
    let mut walk = Walk::over(range);
    let mut runs = Vec::new();
    while let Some(run) = walk.next(fs, inode)? {
        runs.push(run);
    }
    Ok(runs)
}
