//! The locks of a directory that is written to.

use extant_format::Lblk;
use extant_sync::{LockClass, Mutex, MutexGuard, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicU64, Ordering, fence};

static INDEX: LockClass = LockClass::new("directory index", Rank::DirIndex);
static LEAF: LockClass = LockClass::new("directory leaf", Rank::DirLeaf);

/// Locks that all leaves of a directory share.
const LEAVES: usize = 16;

/// The locks of a directory that is written to.
///
/// | lock | rank | guards |
/// |---|---|---|
/// | index | DirIndex | shared: which block holds which names stays. Exclusive: blocks come, names move between blocks |
/// | leaf | DirLeaf | changes inside a block (one of 16 locks, by block number), under the shared index |
///
/// Blocks are published as whole images, so who only reads one takes no lock. Who follows the index
/// to a block without the lock of the index checks [`DirState::version`] before and after: names may
/// have moved in between.
#[derive(Debug)]
pub(crate) struct DirState {
    index: RwLock<()>,
    leaves: [Mutex<()>; LEAVES],
    /// Odd while names move between blocks; another even number afterwards.
    version: AtomicU64,
}

/// The exclusive lock of the index.
#[must_use]
pub(super) struct Exclusive<'a> {
    state: &'a DirState,
    _index: RwLockWriteGuard<'a, ()>,
}

/// Names are moving between blocks.
#[must_use]
pub(super) struct Moving<'a> {
    state: &'a DirState,
}

impl DirState {
    pub(crate) fn new() -> Self {
        Self {
            index: RwLock::new(&INDEX, ()),
            leaves: std::array::from_fn(|_| Mutex::new(&LEAF, ())),
            version: AtomicU64::new(0),
        }
    }

    /// Keeps names in their blocks.
    pub(super) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.index.read()
    }

    /// Allows to move names between blocks.
    pub(super) fn exclusive(&self) -> Exclusive<'_> {
        Exclusive {
            _index: self.index.write(),
            state: self,
        }
    }

    /// Allows to change a block.
    pub(super) fn leaf(&self, lblk: Lblk) -> Option<MutexGuard<'_, ()>> {
        let at = lblk.get() as usize % LEAVES;
        self.leaves.get(at).map(Mutex::lock)
    }

    /// How often names have moved; `None` while they do.
    pub(super) fn version(&self) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// Whether no names have moved since `version`.
    pub(super) fn is_still(&self, version: u64) -> bool {
        // What was read before must not be read after the version is.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }
}

impl<'a> Exclusive<'a> {
    /// Announces that names move from now on, until the value is dropped.
    pub(super) fn moving(&self) -> Moving<'a> {
        let version = self.state.version.load(Ordering::Relaxed);
        self.state.version.store(version + 1, Ordering::Relaxed);
        // What moves must not be seen before the announcement is.
        fence(Ordering::Release);
        Moving { state: self.state }
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // Only who has the exclusive lock stores.
        let version = self.state.version.load(Ordering::Relaxed);
        self.state.version.store(version + 1, Ordering::Release);
    }
}
