//! An inode in memory that can change.

use super::held::Held;
use super::orphan::{Membership, Reaper};
use super::{Inode, InodeId, Timestamp};
use crate::alloc::FileState;
use crate::data::FileCache;
use crate::dir::DirState;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::journal::FlushTicket;
use crate::meta::Seq;
use crate::mutants::{Mutant, is_on};
use crate::quota::{Share, Tally};
use crate::{Result, xattr};
use extant_format::inode::InodeFlags;
use extant_format::{Ino, Pblk};
use extant_sync::{
    BiasedRwLock, CountedAtomicU64, EpochGuard, FirstTouch, HoldCount, LockClass, Mutex, Rank,
    RcuCell, RmwClass, RwLock, pin,
};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

static OP: LockClass = LockClass::new("inode op", Rank::InodeOp);
static PAGES: LockClass = LockClass::new("inode pages", Rank::PageInval);
static MAP: LockClass = LockClass::new("inode map", Rank::InodeMap);
static META: LockClass = LockClass::new("inode meta", Rank::InodeMeta);
static COUNTED: LockClass = LockClass::new("counted inode", Rank::Leaf);
static DATA: RmwClass = RmwClass::new("inode data ticket");
static HOLDS: RmwClass = RmwClass::new("inode holds");

/// Bits that the number of a flush has in an inode.
const TICKET_BITS: u32 = 48;
const TICKET: u64 = (1 << TICKET_BITS) - 1;
/// Failures of flushes that an inode can count.
const TOLD_MOST: u64 = u64::MAX >> TICKET_BITS;

/// An inode in memory: its newest image, its locks, and its holds.
///
/// The image ([`Inode`]) is immutable; a change publishes another one. So a thread that only looks
/// takes no lock, and sees a record that was whole at one moment.
///
/// # Locking
///
/// | lock | rank | guards |
/// |---|---|---|
/// | `op` | InodeOp | operations: shared for reads, writes inside the file and creates and unlinks in a directory; exclusive for what changes the whole |
/// | `pages` | PageInval | shared while physical addresses of its data are in use; exclusive to take blocks away |
/// | `map` | InodeMap | its map from logical to physical blocks: the root in the image and the nodes below |
/// | `meta` | InodeMeta | changes of the image |
///
/// Whether the inode is an orphan changes only under `op` held exclusively, or while nobody else
/// can reach the inode: when it is new, or leaving. The link to the next inode of the orphan list
/// belongs to that list's lock and is kept apart from the image.
// What a look reads comes first, so that it lies in one cache line.
#[repr(C)]
pub struct LiveInode {
    pub(super) image: RcuCell<Inode>,
    /// What only inodes in use have.
    more: OnceLock<Box<More>>,
    /// How many [`Held`] there are, and whether it is leaving memory.
    pub(super) holds: HoldCount,
    /// The block of the inode table that holds its record.
    home: Pblk,
    ino: Ino,
    op: BiasedRwLock<()>,
    pages: BiasedRwLock<()>,
    map: RwLock<()>,
    /// Odd while the map changes; another even number afterwards.
    map_version: AtomicU64,
    meta: Mutex<()>,
    touched: FirstTouch,
    /// The last transaction that changed something `fdatasync` must make durable.
    datasync: AtomicU64,
    /// The flush that the last data written needs, as a number, 0 if none was written; and in the
    /// upper bits how many failed flushes do not concern it or have been told of.
    data: CountedAtomicU64,
    /// See [`Membership`].
    orphan: AtomicU64,
    /// What deletes it once nobody holds it; there is one since the inode first was an orphan.
    pub(super) reaper: OnceLock<Arc<Reaper>>,
    /// The flags of the newest image, beside it for callers that ask for nothing else: that takes
    /// no guard. Stored under `meta`.
    flags: AtomicU32,
}

/// What only inodes in use have: most in memory do without.
#[derive(Debug, Default)]
struct More {
    /// Locks of a directory, once it is written to.
    dir: OnceLock<Box<DirState>>,
    /// Data of a file, once it is read or written to.
    file: OnceLock<Arc<FileCache>>,
    /// What the allocator knows of a file, once it needs blocks.
    alloc: OnceLock<Arc<FileState>>,
    /// For a file that was made without a name, which may get one: set once it has got it.
    first_name: OnceLock<OnceLock<()>>,
    /// Whether it is known to be no program with capabilities. Changed under `op` held exclusively.
    not_capable: AtomicBool,
    /// Whether it is known to have no access control list. Set under `op`, taken back under `op`
    /// held exclusively.
    not_listed: AtomicBool,
    /// Whether its record has something that is in no transaction.
    lazy: AtomicBool,
    /// What it was counted as by the last commit that took it, where that is done. Changed by
    /// commits only.
    counted: OnceLock<Box<Mutex<Share>>>,
}

impl LiveInode {
    fn more(&self) -> &More {
        self.more.get_or_init(Box::default)
    }

    /// An inode that nobody holds, whose record is in block `home`.
    #[inline]
    pub(super) fn new(image: Arc<Inode>, home: Pblk) -> Self {
        Self::with_holds(image, home, 0)
    }

    /// An inode that the caller is the only one to hold.
    pub(crate) fn new_held(image: Arc<Inode>, home: Pblk) -> Held {
        Held::of(Arc::new(Self::with_holds(image, home, 1)))
    }

    #[inline]
    fn with_holds(image: Arc<Inode>, home: Pblk, holds: u64) -> Self {
        // Directories are shared by many threads; most files come and go without.
        let is_dir = image.is_dir();
        let biased = |class| {
            if is_dir {
                BiasedRwLock::new(class, ())
            } else {
                BiasedRwLock::unbiased(class, ())
            }
        };
        Self {
            ino: image.ino(),
            home,
            flags: AtomicU32::new(image.flags().bits()),
            image: RcuCell::new(image),
            holds: HoldCount::new(&HOLDS, holds),
            op: biased(&OP),
            pages: biased(&PAGES),
            map: RwLock::new(&MAP, ()),
            map_version: AtomicU64::new(0),
            meta: Mutex::new(&META, ()),
            touched: FirstTouch::new(),
            datasync: AtomicU64::new(0),
            data: CountedAtomicU64::new(&DATA, 0),
            orphan: AtomicU64::new(Membership::None.pack()),
            reaper: OnceLock::new(),
            more: OnceLock::new(),
        }
    }

    /// Its number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The block of the inode table that holds its record.
    #[must_use]
    pub(crate) fn home(&self) -> Pblk {
        self.home
    }

    /// Its number and generation.
    #[inline]
    #[must_use]
    pub fn id(&self) -> InodeId {
        self.image.get(&pin()).id()
    }

    /// The newest image, borrowed. Of a directory, the time of the last change of its names may be
    /// missing: see [`settle`](Self::flush_dir_time).
    #[inline]
    #[must_use]
    pub fn image<'g>(&'g self, guard: &'g EpochGuard) -> &'g Inode {
        self.image.get(guard)
    }

    /// The newest image, to keep.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> Arc<Inode> {
        self.flush_dir_time();
        self.image.load(&pin())
    }

    /// A copy of the newest image, for use on the spot: no reference count that others change, too.
    /// Times are as in [`image`](Self::image).
    #[inline]
    #[must_use]
    pub(crate) fn copy(&self) -> Inode {
        Inode::clone(self.image.get(&pin()))
    }

    /// Whether it is a directory.
    #[inline]
    #[must_use]
    pub(crate) fn is_dir(&self) -> bool {
        self.image.get(&pin()).is_dir()
    }

    /// Brings the time of the last change of a directory's names into its record, if it is not
    /// there yet.
    #[inline]
    pub(crate) fn flush_dir_time(&self) {
        if self.dir_state_if_any().is_some_and(DirState::has_change) {
            self.flush_dir_time_now();
        }
    }

    #[cold]
    fn flush_dir_time_now(&self) {
        let _changing = self.meta.lock();
        let mut image = self.copy();
        if self.take_change(&mut image) {
            self.publish(image, &pin());
        }
    }

    /// Looks at the record as users see it, if there are names for it; never waits.
    #[inline]
    pub(crate) fn look_at<R>(
        &self,
        guard: &EpochGuard,
        look: impl FnOnce(&Inode) -> R,
    ) -> Option<R> {
        self.flush_dir_time();
        let image = self.image.get(guard);
        if image.disk.links == 0 {
            return None;
        }
        Some(match self.ahead(image) {
            Some(ahead) => look(&ahead),
            None => look(image),
        })
    }

    /// Whether this still is the inode of its number, and has names. What was found by its number
    /// before has been this inode's, if so.
    #[inline]
    pub(crate) fn is_here(&self, guard: &EpochGuard) -> bool {
        !self.is_leaving() && self.image.get(guard).disk.links > 0
    }

    /// Makes `image` the newest one. Under `meta`.
    fn publish(&self, image: Inode, guard: &EpochGuard) {
        self.flags.store(image.flags().bits(), Ordering::Release);
        self.image.replace(Arc::new(image), guard);
    }

    /// The flags of the newest image, or of the one that is about to be.
    #[inline]
    fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.load(Ordering::Acquire))
    }

    /// Shows flags before the image that has them, as a change does that is under way.
    #[cfg(test)]
    pub(crate) fn show_flags(&self, flags: InodeFlags) {
        self.flags.store(flags.bits(), Ordering::Release);
    }

    /// Whether its content lies in its record.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.flags().contains(InodeFlags::INLINE_DATA)
    }

    /// Whether its flags ask that what is done to it be made durable at once: `S`, and of
    /// directories `D`.
    #[inline]
    pub(crate) fn asks_durable(&self) -> bool {
        let flags = self.flags();
        flags.contains(InodeFlags::SYNC) || flags.contains(InodeFlags::DIR_SYNC) && self.is_dir()
    }

    /// Puts the time of the last change of names into an image; whether there was one. Under
    /// `meta`.
    fn take_change(&self, image: &mut Inode) -> bool {
        let change = self.dir_state_if_any().and_then(DirState::take_change);
        if let Some(time) = change {
            image.disk.mtime = time;
            image.disk.ctime = time;
        }
        change.is_some()
    }

    /// Notes that names of the directory changed at `time`, in the transaction of `handle`. Cheaper
    /// than [`update`](Self::update) where many do so at the same time.
    ///
    /// # Errors
    /// When the inode cannot be registered.
    pub(crate) fn names_changed(
        self: &Arc<Self>,
        handle: &Handle<'_>,
        time: Timestamp,
    ) -> Result<()> {
        handle.touch_inode(self)?;
        self.dir_state().note_change(time);
        Ok(())
    }

    /// The record as a commit encodes it: the newest image, with the link of the orphan list.
    ///
    /// For a thread that has drained the handles.
    pub(crate) fn capture(&self, guard: &EpochGuard) -> Arc<Inode> {
        if self.dir_state_if_any().is_some() {
            // Also waits for a thread that has taken the time out and is about to publish it.
            self.flush_dir_time_now();
        }
        let image = self.image.load(guard);
        match self.membership() {
            Membership::List { next, .. } if image.disk.dtime != next => {
                let mut linked = Inode::clone(&image);
                linked.disk.dtime = next;
                Arc::new(linked)
            }
            _ => image,
        }
    }

    /// The lock of operations.
    #[must_use]
    pub(crate) fn op(&self) -> &BiasedRwLock<()> {
        &self.op
    }

    /// The lock that keeps blocks of the file where they are.
    #[must_use]
    pub(crate) fn pages(&self) -> &BiasedRwLock<()> {
        &self.pages
    }

    /// The lock of the map.
    #[must_use]
    pub(crate) fn map(&self) -> &RwLock<()> {
        &self.map
    }

    /// Counts changes of the map, so that a thread that reads it without the lock can tell that it
    /// changed meanwhile: odd during a change. Stored by the thread that holds the map's lock
    /// exclusively.
    #[must_use]
    pub(crate) fn map_version(&self) -> &AtomicU64 {
        &self.map_version
    }

    /// The data of the file in memory.
    #[must_use]
    pub(crate) fn file_cache_in(&self, fs: &Fs) -> &Arc<FileCache> {
        self.more().file.get_or_init(|| {
            let log2 = fs.block_size().log2();
            let clusters = fs.cluster_size();
            Arc::new(FileCache::new(Arc::clone(fs.data()), log2, clusters))
        })
    }

    /// The data of the file in memory, if there is any.
    #[must_use]
    pub(crate) fn file_cache(&self) -> Option<&Arc<FileCache>> {
        self.more.get()?.file.get()
    }

    /// The locks of the directory.
    #[must_use]
    pub(crate) fn dir_state(&self) -> &DirState {
        self.more().dir.get_or_init(|| Box::new(DirState::new()))
    }

    /// The locks of the directory, if anybody needed them so far.
    #[must_use]
    pub(crate) fn dir_state_if_any(&self) -> Option<&DirState> {
        self.more.get()?.dir.get().map(Box::as_ref)
    }

    /// Whether all names of the directory are known, if so many have been forgotten by now.
    pub(crate) fn knows_all_names(&self, evictions: u64) -> bool {
        self.dir_state_if_any()
            .is_some_and(|state| state.knows_all(evictions))
    }

    /// Says that the file was made without a name and may get its first one.
    pub(crate) fn allow_first_name(&self) {
        self.more().first_name.get_or_init(OnceLock::new);
    }

    /// Notes that it has got it.
    pub(crate) fn note_first_name(&self) {
        if let Some(named) = self.more().first_name.get() {
            named.get_or_init(|| ());
        }
    }

    /// Whether a file without a name may get one: not if it has lost its last.
    #[must_use]
    pub(crate) fn may_get_first_name(&self) -> bool {
        self.more
            .get()
            .and_then(|more| more.first_name.get())
            .is_some_and(|named| named.get().is_none())
    }

    /// Whether it has lost its last name: it gets none any more.
    #[must_use]
    pub fn is_nameless_for_good(&self) -> bool {
        // In this order: it has the link when it is noted that it got its first name.
        !self.may_get_first_name() && self.image.get(&pin()).disk.links == 0
    }

    /// Whether the file may be a program with capabilities.
    #[must_use]
    pub(crate) fn may_be_capable(&self) -> bool {
        let more = self.more.get();
        more.is_none_or(|more| !more.not_capable.load(Ordering::Acquire))
    }

    /// Notes that it is none. The caller holds `op` exclusively.
    pub(crate) fn note_not_capable(&self) {
        self.more().not_capable.store(true, Ordering::Release);
    }

    /// Whether the inode may have had an access control list when `image`, borrowed under `guard`,
    /// was its newest image.
    #[inline]
    #[must_use]
    pub(crate) fn may_have_list(&self, image: &Inode, guard: &EpochGuard) -> bool {
        if !image.may_have_attributes() {
            return false;
        }
        let knows = |more: &More| more.not_listed.load(Ordering::Acquire);
        // In this order: it is taken back before a list comes. An image that still is the newest
        // was so all the time.
        let has_none = self.more.get().is_some_and(|more| knows(more))
            && std::ptr::eq(image, self.image(guard));
        !has_none
    }

    /// Notes that it has no access control list. The caller holds `op`.
    pub(crate) fn note_not_listed(&self) {
        self.more().not_listed.store(true, Ordering::Release);
    }

    /// Notes that its attributes are about to change. The caller holds `op` exclusively.
    pub(crate) fn note_attributes_change(&self) {
        if let Some(more) = self.more.get() {
            more.not_capable.store(false, Ordering::Release);
            more.not_listed.store(false, Ordering::Release);
        }
    }

    /// What the allocator knows of the file.
    #[must_use]
    pub(crate) fn alloc_state(&self) -> &Arc<FileState> {
        self.more().alloc.get_or_init(|| Arc::new(FileState::new()))
    }

    /// Whether nothing is kept in memory beside the record, so that an inode without blocks can go
    /// without further ado.
    #[must_use]
    pub(crate) fn is_only_record(&self) -> bool {
        let unused = |more: &More| more.alloc.get().is_none() && more.file.get().is_none();
        self.more.get().is_none_or(|more| unused(more))
    }

    /// What the allocator knows of the file, if it needed blocks so far.
    #[must_use]
    pub(crate) fn alloc_state_if_any(&self) -> Option<&FileState> {
        self.more.get()?.alloc.get().map(Arc::as_ref)
    }

    /// Preallocations of the file that are alive: a figure for tests and measurements.
    #[must_use]
    pub fn preallocations(&self) -> usize {
        self.alloc_state_if_any()
            .map_or(0, FileState::preallocations)
    }

    pub(crate) fn touched(&self) -> &FirstTouch {
        &self.touched
    }

    /// The last transaction that changed the inode in any way; [`Seq::NONE`] if none has since it
    /// was loaded.
    #[must_use]
    pub(crate) fn last_seq(&self) -> Seq {
        Seq::new(self.touched.last())
    }

    /// The last transaction that changed what reading the data back needs: size or map.
    #[must_use]
    pub(crate) fn datasync_seq(&self) -> Seq {
        Seq::new(self.datasync.load(Ordering::Acquire))
    }

    /// Notes that reading the data back needs the transaction of `handle`. Changes of size and map
    /// in the record do so by themselves; the rest of a map lies elsewhere, and a new inode is
    /// needed as a whole.
    pub(crate) fn note_datasync(&self, handle: &Handle<'_>) {
        if is_on(Mutant::DatasyncForgotten) {
            return;
        }
        self.datasync.store(handle.seq().get(), Ordering::Release);
    }

    /// Notes that data was written to the device, which the next flush makes durable. `failures`
    /// are those of flushes before the writing began.
    pub(crate) fn note_data(&self, fs: &Fs, failures: u64) {
        let ticket = fs.data_ticket().get();
        // Once between two flushes, however many writes.
        self.change_data(|told, before| {
            (before < ticket).then(|| match before {
                // They lost nothing of this file.
                0 => (told.max(failures), ticket),
                _ => (told, ticket),
            })
        });
    }

    /// The flush that data written since the inode was loaded needs; `None` if none was written.
    #[must_use]
    pub(crate) fn data_ticket(&self) -> Option<FlushTicket> {
        let ticket = self.data.load(Ordering::Acquire) & TICKET;
        (ticket != 0).then(|| FlushTicket::new(ticket))
    }

    /// Whether a flush failed after data was written to the file, so that some may be lost. Says so
    /// once: what is written afterwards is another matter.
    pub(crate) fn take_loss(&self, fs: &Fs) -> bool {
        let failures = fs.flush_failures().min(TOLD_MOST);
        self.change_data(|told, ticket| {
            (ticket != 0 && told < failures).then_some((failures, ticket))
        })
    }

    /// Changes the failures told and the ticket together, if `change` wants that.
    fn change_data(&self, change: impl Fn(u64, u64) -> Option<(u64, u64)>) -> bool {
        let mut found = self.data.load(Ordering::Acquire);
        while let Some((told, ticket)) = change(found >> TICKET_BITS, found & TICKET) {
            let new = told.min(TOLD_MOST) << TICKET_BITS | ticket & TICKET;
            let order = Ordering::AcqRel;
            match self
                .data
                .compare_exchange_weak(found, new, order, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(now) => found = now,
            }
        }
        false
    }

    /// Notes what the inode is counted as, before its record changes for the first time since it is
    /// in memory.
    ///
    /// # Errors
    /// When its attributes have to be looked at for that, and are broken or cannot be read; nothing
    /// is noted then.
    #[cold]
    pub(crate) fn begin_counting(&self, fs: &Fs) -> Result<()> {
        if self.is_counted() || !fs.has_owner(self.ino) {
            return Ok(());
        }
        // They do not change as long as it is not counted. Before the lock: it may wait for the
        // device.
        let values = xattr::count_values(fs, &self.copy())?;
        let _changing = self.meta.lock();
        self.more().counted.get_or_init(|| {
            let guard = pin();
            if values > 0 {
                let mut image = self.copy();
                image.set_values(values);
                self.publish(image, &guard);
            }
            let image = self.image.get(&guard);
            let share = if image.is_fresh() {
                Share::NOTHING
            } else {
                Share::of(image, fs.block_size())
            };
            if let (Some(ledger), true) = (fs.ledger(), image.is_fresh()) {
                ledger.change(self.ino, share, Share::of(image, fs.block_size()));
            }
            Box::new(Mutex::new(&COUNTED, share))
        });
        Ok(())
    }

    /// Whether it counts for its owners.
    fn is_counted(&self) -> bool {
        (self.more.get()).is_some_and(|more| more.counted.get().is_some())
    }

    /// Counts the inode as `image` says, and adds to `tally` what that changes. For commits, in
    /// their order.
    pub(super) fn count(&self, fs: &Fs, image: &Inode, tally: &mut Tally) {
        let counted = self.more.get().and_then(|more| more.counted.get());
        let Some(counted) = counted else { return };
        let share = Share::of(image, fs.block_size());
        let before = std::mem::replace(&mut *counted.lock(), share);
        tally.add(before, share);
    }

    /// Changes the record: `edit` gets a copy of the image, which becomes the newest image in the
    /// transaction of `handle`.
    ///
    /// # Errors
    /// When the inode cannot be registered; `edit` is not called then.
    pub(crate) fn update<R>(
        self: &Arc<Self>,
        handle: &Handle<'_>,
        edit: impl FnOnce(&mut Inode) -> R,
    ) -> Result<R> {
        // Before the lock: it may wait for the device.
        handle.touch_inode(self)?;
        let changing = self.meta.lock();
        let guard = pin();
        let mut image = Inode::clone(self.image(&guard));
        self.take_change(&mut image);
        let map_or_size = (image.disk.size, image.disk.map);
        // Times of writes so far come first, whatever this changes.
        let written = self.file_cache().and_then(|file| file.put_time(&mut image));
        let fs = handle.fs();
        let ledger = fs.ledger().filter(|_| self.is_counted());
        let before = ledger.map(|_| Share::of(&image, fs.block_size()));
        let result = edit(&mut image);
        if let (Some(ledger), Some(before)) = (ledger, before) {
            ledger.change(self.ino, before, Share::of(&image, fs.block_size()));
        }
        if map_or_size != (image.disk.size, image.disk.map) {
            self.note_datasync(handle);
        }
        self.publish(image, &guard);
        if let (Some(file), Some(time)) = (self.file_cache(), written) {
            file.forget_time(time);
        }
        drop(changing);
        Ok(result)
    }

    /// Changes the record in memory, and in no transaction: for what may be lost. Returns whether
    /// this is the first such change; the thread that makes it sees to it that the record comes
    /// into a transaction some time.
    pub(super) fn update_in_memory(&self, edit: impl FnOnce(&mut Inode)) -> bool {
        let _changing = self.meta.lock();
        let mut image = self.copy();
        edit(&mut image);
        self.publish(image, &pin());
        let lazy = &self.more().lazy;
        let is_first = !lazy.load(Ordering::Relaxed);
        lazy.store(true, Ordering::Release);
        is_first
    }

    /// Notes that it is about to come into a transaction.
    pub(super) fn forget_lazy(&self) {
        let _changing = self.meta.lock();
        self.more().lazy.store(false, Ordering::Release);
    }

    /// Whether the record has something in memory only.
    #[must_use]
    pub(super) fn is_lazy(&self) -> bool {
        let more = self.more.get();
        more.is_some_and(|more| more.lazy.load(Ordering::Acquire))
            && !self.image.get(&pin()).is_freed()
    }

    /// Where the inode is noted as an orphan.
    #[inline]
    #[must_use]
    pub(crate) fn membership(&self) -> Membership {
        Membership::unpack(self.orphan.load(Ordering::Acquire))
    }

    /// Notes where the inode is noted as an orphan; see [`LiveInode`] for the threads that may.
    pub(crate) fn set_membership(&self, membership: Membership) {
        self.orphan.store(membership.pack(), Ordering::Release);
    }
}

impl Fs {
    /// The inode of this number, if it is in memory, borrowed.
    #[inline]
    pub(crate) fn peek_inode<'g>(
        &'g self,
        ino: Ino,
        guard: &'g EpochGuard,
    ) -> Option<&'g LiveInode> {
        self.inode_table().peek(ino, guard)
    }

    /// Looks at this very inode, if it is in memory and has names; never waits.
    #[inline]
    pub(crate) fn look_in_memory<R>(
        &self,
        id: InodeId,
        guard: &EpochGuard,
        look: impl FnOnce(&Inode) -> R,
    ) -> Option<R> {
        let live = self.peek_inode(id.ino, guard)?;
        if live.image(guard).id() != id {
            return None;
        }
        live.look_at(guard, look)
    }

    /// Whether this very inode is a directory that is in memory and has names, and `also` says yes.
    #[inline]
    pub(crate) fn is_dir_in_memory(
        &self,
        id: InodeId,
        guard: &EpochGuard,
        also: impl FnOnce(&LiveInode, &Inode) -> bool,
    ) -> bool {
        self.peek_inode(id.ino, guard).is_some_and(|live| {
            let image = live.image(guard);
            image.disk.links > 0 && image.id() == id && image.is_dir() && also(live, image)
        })
    }
}

impl std::fmt::Debug for LiveInode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveInode")
            .field("ino", &self.ino)
            .finish_non_exhaustive()
    }
}
