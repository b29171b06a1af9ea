//! The locks of a directory that is written to.

use crate::inode::Timestamp;
use crate::meta::OpenBlock;
use extant_format::{Lblk, Pblk};
use extant_sync::{
    BiasedReadGuard, BiasedRwLock, BiasedWriteGuard, CountedAtomicU64, LockClass, Rank, RmwClass,
};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

static INDEX: LockClass = LockClass::new("directory index", Rank::DirIndex);
static CHANGED: RmwClass = RmwClass::new("directory time");

/// Blocks of a directory about which something is remembered: the first so many. They come in
/// pieces, each twice as large as the one before.
const FIRST_PIECE: usize = 16;
const PIECES: usize = 12;

/// Bits of a time that are nanoseconds.
const NANO_BITS: u32 = 30;
/// A change of names that follows another one so closely, in nanoseconds, has the same time, unless
/// somebody looked in between. Kernels are less exact.
const TICK: u64 = 1_000_000;

/// The locks of a directory that is written to.
///
/// | lock | rank | guards |
/// |---|---|---|
/// | index | DirIndex | shared: which block holds which names stays. Exclusive: blocks come, names move between blocks, or change in the inode |
/// | leaf | BufferContent | changes inside a block, under the shared index: see [`OpenBlock`] |
///
/// Blocks are read as whole images, so a reader of one takes no lock, unless it is being changed in
/// place. A reader that follows the index to a block without the lock of the index checks
/// [`DirState::version`] before and after: names may have moved in between.
///
/// # What is remembered
///
/// Where a block lies on the device, noted under the lock of the index: blocks never leave a
/// directory while it lives, so this stays right. And the lock of each block that was changed,
/// which keeps where the search for room in it may begin.
///
/// Whether the name cache had all names of the directory, which a new directory has it do: as long
/// as nothing is forgotten there, a name that is not in it does not exist, and no block needs to be
/// searched for it.
///
/// When names changed last: that is noted here first, and goes into the record before anybody looks
/// at it. So threads that change names in one directory do not have to change its record each time.
#[derive(Debug)]
pub(crate) struct DirState {
    index: BiasedRwLock<()>,
    /// The lock of all blocks too far back to have one of their own.
    far: Arc<OpenBlock>,
    /// Odd while names move between blocks, or the map becomes one of another kind; another even
    /// number afterwards.
    version: AtomicU64,
    /// When names changed, if the record does not say so yet; otherwise 0.
    changed: CountedAtomicU64,
    /// How many names had been forgotten when all names of this directory were known, and 1; 0 if
    /// they never were.
    all_known: AtomicU64,
    known: [OnceLock<Box<[Known]>>; PIECES],
}

/// What is remembered about a block.
#[derive(Debug, Default)]
struct Known {
    /// Where it lies; 0 if that was not asked yet.
    place: AtomicU64,
    /// Its lock, with the [`Start`] as what is noted there.
    leaf: OnceLock<Arc<OpenBlock>>,
}

/// Where the search for room in a block begins: no record before `at` has room for `need` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// Where a record begins.
    pub(super) at: usize,
    pub(super) need: usize,
}

impl Start {
    /// Both are multiples of 4.
    pub(super) fn pack(self) -> u32 {
        let field = |n: usize| u32::from(u16::try_from(n / 4).unwrap_or(0));
        match field(self.need) {
            0 => 0,
            need => field(self.at) << 16 | need,
        }
    }

    pub(super) fn unpack(packed: u32) -> Self {
        let field = |n: u32| (n & 0xffff) as usize * 4;
        Self {
            at: field(packed >> 16),
            need: field(packed),
        }
    }

    /// Returns where a search for `need` bytes may begin.
    pub(super) fn of(self, need: usize) -> usize {
        if need >= self.need { self.at } else { 0 }
    }
}

/// The exclusive lock of the index.
#[must_use]
pub(super) struct Exclusive<'a> {
    state: &'a DirState,
    _index: BiasedWriteGuard<'a, ()>,
}

/// Names are moving between blocks.
#[must_use]
pub(super) struct Moving<'a> {
    state: &'a DirState,
}

impl DirState {
    pub(crate) fn new() -> Self {
        Self {
            index: BiasedRwLock::new(&INDEX, ()),
            far: Arc::new(OpenBlock::shared()),
            version: AtomicU64::new(0),
            changed: CountedAtomicU64::new(&CHANGED, 0),
            all_known: AtomicU64::new(0),
            known: [const { OnceLock::new() }; PIECES],
        }
    }

    /// Notes that the name cache has all names, of which there are none yet, and had forgotten so
    /// many.
    pub(crate) fn note_all_known(&self, evictions: u64) {
        self.all_known.store(evictions + 1, Ordering::Release);
    }

    /// Tells whether the name cache has all names, if it has forgotten so many by now.
    pub(crate) fn knows_all(&self, evictions: u64) -> bool {
        self.all_known.load(Ordering::Acquire) == evictions + 1
    }

    /// Keeps names in their blocks.
    pub(super) fn shared(&self) -> BiasedReadGuard<'_, ()> {
        self.index.read()
    }

    /// Allows to move names between blocks.
    pub(super) fn exclusive(&self) -> Exclusive<'_> {
        Exclusive {
            _index: self.index.write(),
            state: self,
        }
    }

    /// Runs `change`, which says in another way where the blocks lie: a search of the directory
    /// meanwhile is done once more afterwards.
    pub(crate) fn while_moving<R>(&self, change: impl FnOnce() -> R) -> R {
        let names = self.exclusive();
        let _moving = names.moving();
        change()
    }

    /// Returns the lock that allows to change a block.
    pub(super) fn leaf(&self, lblk: Lblk) -> &Arc<OpenBlock> {
        let new = || Arc::new(OpenBlock::new());
        self.know(lblk)
            .map_or(&self.far, |known| known.leaf.get_or_init(new))
    }

    /// Returns the lock of a block, if it was needed so far.
    pub(super) fn leaf_if_any(&self, lblk: Lblk) -> Option<&Arc<OpenBlock>> {
        self.known(lblk)?.leaf.get()
    }

    /// Forgets where to begin to look for room in a block, for a caller that holds the lock of the
    /// index exclusively and lays it out anew.
    pub(super) fn forget_start(&self, lblk: Lblk) {
        if let Some(leaf) = self.leaf_if_any(lblk) {
            leaf.forget_note();
        }
    }

    /// Returns what is remembered about a block, if so far anything was.
    fn known(&self, lblk: Lblk) -> Option<&Known> {
        let (piece, at) = piece_of(lblk);
        self.known.get(piece)?.get()?.get(at)
    }

    /// Returns where to remember something of a block; `None` for blocks too far back.
    fn know(&self, lblk: Lblk) -> Option<&Known> {
        let (piece, at) = piece_of(lblk);
        let piece = self.known.get(piece)?.get_or_init(|| {
            let len = FIRST_PIECE << piece;
            (0..len).map(|_| Known::default()).collect()
        });
        piece.get(at)
    }

    /// Returns where a block lies on the device, if that is known.
    #[inline]
    pub(super) fn place(&self, lblk: Lblk) -> Option<Pblk> {
        let place = self.known(lblk)?.place.load(Ordering::Relaxed);
        (place != 0).then(|| Pblk::new(place))
    }

    /// Remembers where a block lies. The caller holds the lock of the index.
    pub(super) fn note_place(&self, lblk: Lblk, place: Pblk) {
        if let Some(known) = self.know(lblk) {
            known.place.store(place.get(), Ordering::Relaxed);
        }
    }

    /// Notes that names changed. The directory's record is registered.
    pub(crate) fn note_change(&self, time: Timestamp) {
        let new = pack_time(time);
        let before = self.changed.load(Ordering::Relaxed);
        // Stored only once a tick, so that its line stays shared.
        if before == 0 || !(before..before + TICK).contains(&new) {
            self.changed.store(new, Ordering::Release);
        }
    }

    /// Tells whether there is a time that the record does not have.
    #[inline]
    pub(crate) fn has_change(&self) -> bool {
        self.changed.load(Ordering::Acquire) != 0
    }

    /// Returns the time that the record is to have. The thread that takes it puts it there, under
    /// the record's lock.
    pub(crate) fn take_change(&self) -> Option<Timestamp> {
        if !self.has_change() {
            return None;
        }
        match self.changed.swap(0, Ordering::AcqRel) {
            0 => None,
            time => Some(unpack_time(time)),
        }
    }

    /// Returns how often names have moved; `None` while they do.
    pub(super) fn version(&self) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// Tells whether no names have moved since `version`.
    pub(super) fn is_still(&self, version: u64) -> bool {
        // What was read before must not be read after the version is.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }
}

/// Returns the piece that remembers a block, and the place in it.
#[inline]
fn piece_of(lblk: Lblk) -> (usize, usize) {
    let n = lblk.get() as usize / FIRST_PIECE + 1;
    let piece = n.ilog2() as usize;
    let before = FIRST_PIECE * ((1 << piece) - 1);
    (piece, lblk.get() as usize - before)
}

/// Returns a time as inodes can hold it, in one word that is never 0.
fn pack_time(time: Timestamp) -> u64 {
    let secs = time
        .secs
        .clamp(Timestamp::MIN.secs + 1, Timestamp::MAX.secs)
        - Timestamp::MIN.secs;
    secs.unsigned_abs() << NANO_BITS | u64::from(time.nanos)
}

fn unpack_time(packed: u64) -> Timestamp {
    let secs = i64::try_from(packed >> NANO_BITS).unwrap_or(0);
    Timestamp {
        secs: secs + Timestamp::MIN.secs,
        nanos: (packed & ((1 << NANO_BITS) - 1)) as u32,
    }
}

impl<'a> Exclusive<'a> {
    pub(super) fn state(&self) -> &'a DirState {
        self.state
    }

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
        // Only the holder of the exclusive lock stores.
        let version = self.state.version.load(Ordering::Relaxed);
        self.state.version.store(version + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other() {
        let mut expected = (0, 0);
        for lblk in 0..100_000 {
            assert_eq!(piece_of(Lblk::new(lblk)), expected);
            expected.1 += 1;
            if expected.1 == FIRST_PIECE << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn what_is_remembered_comes_back() {
        let state = DirState::new();
        for lblk in [0, 15, 16, 4000, 65_000].map(Lblk::new) {
            assert_eq!(state.place(lblk), None);
            state.note_place(lblk, Pblk::new(1 << 40));
            assert_eq!(state.place(lblk), Some(Pblk::new(1 << 40)));
            assert!(state.leaf_if_any(lblk).is_none());
            assert!(Arc::ptr_eq(state.leaf(lblk), state.leaf(lblk)));
            assert!(!Arc::ptr_eq(state.leaf(lblk), &state.far));
        }
        let far = Lblk::new(1 << 27);
        state.note_place(far, Pblk::new(5));
        assert_eq!(state.place(far), None);
        assert!(Arc::ptr_eq(state.leaf(far), &state.far));
    }

    #[test]
    fn where_to_look_for_room_is_a_number() {
        let start = Start {
            at: 4084,
            need: 264,
        };
        assert_eq!(Start::unpack(start.pack()), start);
        assert_eq!((start.of(264), start.of(260)), (4084, 0));
        assert_eq!(Start::unpack(0).of(12), 0);
    }

    #[test]
    fn the_time_of_a_change_is_kept_until_it_is_taken() {
        let state = DirState::new();
        let at = |nanos| Timestamp {
            secs: 1_700_000_000,
            nanos,
        };
        assert_eq!(state.take_change(), None);
        state.note_change(at(5_000_000));
        state.note_change(at(5_500_000));
        assert_eq!(state.take_change(), Some(at(5_000_000)));
        assert_eq!(state.take_change(), None);
        state.note_change(at(5_600_000));
        state.note_change(at(7_000_000));
        assert_eq!(state.take_change(), Some(at(7_000_000)));
        for time in [Timestamp::MAX, Timestamp::from_secs(0)] {
            state.note_change(time);
            assert_eq!(state.take_change(), Some(time));
        }
    }
}
