//! Every inode of the file system at once, by as many threads as there are CPUs.
//!
//! Threads take parts of inode tables, some hundred inodes each, from one counter. A part is read
//! with one large read, around the cache of metadata, which it would only empty.
//!
//! | way | inodes in memory | the others |
//! |---|---|---|
//! | [`BulkstatWay::Cache`] | are looked at there | come into memory; others go to make room |
//! | [`BulkstatWay::Tables`] | are looked at there, where they may be newer than the device | are looked at in the table, and nothing is kept |
//!
//! # Invariants
//!
//! - An inode that exists all the time is visited exactly once, as it was at some moment of the
//!   walk.
//! - Nothing is locked, borrowed or pinned while the caller's code runs.
//! - An inode comes into memory only if no newer state of it can have been forgotten since its
//!   record was read; see [`Table`](super::Table).

use super::table::{LEAF, Turns};
use super::{Inode, LiveInode, Metadata};
use crate::fs::Fs;
use crate::inode::scan::InUse;
use crate::{Error, InPlace, Place, Result};
use extant_format::bitmap::bits;
use extant_format::{Group, Ino, Pblk};
use extant_sync::{CountedAtomicU64, RmwClass, pin};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{array, iter, thread};

static PARTS: RmwClass = RmwClass::new("bulkstat parts");

/// Bytes of an inode table that are read at once: not more than the caches near a CPU hold.
const PART_BYTES: u32 = 256 << 10;
/// Leaves of inodes that are looked for together, so that the memory they are in comes in at the
/// same time.
const LEAVES: usize = 4;
/// Inodes in these.
const TOGETHER: usize = LEAVES * LEAF;
/// Slots of an inode table whose checksums are computed together.
const CHECKED: usize = 4;

/// How a walk over all inodes comes by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BulkstatWay {
    /// Through the cache of inodes: what is not there comes in. For a caller that goes on to use
    /// the inodes.
    Cache,
    /// Straight from the inode tables; what is newer in memory counts. The cache stays as it is.
    #[default]
    Tables,
}

/// What a walk over all inodes is to do. See [`Fs::bulkstat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Bulkstat {
    /// How to come by the inodes.
    pub way: BulkstatWay,
    /// How many threads to use; 0 stands for one for each CPU.
    pub threads: usize,
}

impl Bulkstat {
    /// Chooses the way and the number of threads, 0 for as many as there are CPUs.
    #[must_use]
    pub fn new(way: BulkstatWay, threads: usize) -> Self {
        Self { way, threads }
    }
}

impl Fs {
    /// Calls `visit` for every inode in use, in no particular order, from several threads at once:
    /// with its number and what `stat` reports about it, or what is wrong with it. One bad record
    /// does not end the walk, nor does a bad group: of each part that is visited at once the first
    /// inode's number is told.
    ///
    /// Reserved inodes that have never been written are left out, and so are inodes without names.
    /// What others do meanwhile is seen or not. Returns how many inodes were visited without an
    /// error.
    pub fn bulkstat(&self, how: Bulkstat, visit: impl Fn(Ino, Result<Metadata>) + Sync) -> u64 {
        let (visited, _) = self.bulkstat_fold(
            how,
            || (),
            #[inline(always)]
            |(), ino, found| visit(ino, found),
        );
        visited
    }

    /// As [`bulkstat`](Self::bulkstat), with a state for each thread, begun by `start`, which
    /// `visit` changes without meeting other threads. Returns how many inodes were visited without
    /// an error, and the state of each thread.
    pub fn bulkstat_fold<S: Send>(
        &self,
        how: Bulkstat,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Ino, Result<Metadata>) + Sync,
    ) -> (u64, Vec<S>) {
        let parts = Parts::new(self);
        let threads = match how.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let work = || {
            let mut worker = Worker::new(self, how.way, start(), &visit);
            while let Some((group, indexes)) = parts.next() {
                worker.part(group, indexes);
            }
            (worker.visited, worker.state)
        };
        // No more threads than there is work for.
        let threads = threads.min(usize::try_from(parts.count).unwrap_or(usize::MAX));
        thread::scope(|scope| {
            // Where the system has no more threads, those that there are do all of it.
            let others: Vec<_> = (1..threads)
                .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let own = work();
            let others = others.into_iter().map(|other| match other.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            let (mut visited, mut states) = (0, Vec::new());
            for (more, state) in iter::once(own).chain(others) {
                visited += more;
                states.push(state);
            }
            (visited, states)
        })
    }
}

/// The parts of all inode tables, dealt out one after the other.
struct Parts {
    next: CountedAtomicU64,
    count: u64,
    per_group: u64,
    /// Inodes of a part.
    len: u32,
    /// Inodes of a group.
    inodes: u32,
}

impl Parts {
    fn new(fs: &Fs) -> Self {
        let geometry = fs.geometry();
        let inodes = geometry.inodes_per_group();
        let in_block = fs.block_size().bytes() / geometry.inode_size().max(1);
        let len = (PART_BYTES / geometry.inode_size().max(1))
            .max(in_block)
            .max(1);
        let per_group = u64::from(inodes.div_ceil(len).max(1));
        Self {
            next: CountedAtomicU64::new(&PARTS, 0),
            count: per_group * u64::from(geometry.groups_count()),
            per_group,
            len,
            inodes,
        }
    }

    /// The next part: its group, and indexes in it.
    fn next(&self) -> Option<(Group, Range<u32>)> {
        // Once for a part, not for an inode.
        let part = self.next.fetch_add(1, Ordering::Relaxed);
        if part >= self.count {
            return None;
        }
        let group = Group::new((part / self.per_group) as u32);
        let first = (part % self.per_group) as u32 * self.len;
        Some((
            group,
            first..first.saturating_add(self.len).min(self.inodes),
        ))
    }
}

/// One thread of a walk. Its memory serves part after part.
struct Worker<'a, S, V> {
    fs: &'a Fs,
    way: BulkstatWay,
    state: S,
    visit: &'a V,
    visited: u64,
    /// Something may be newer in memory.
    is_writable: bool,
    /// Records as read.
    window: Vec<u8>,
    /// What is known about some inodes and not told yet.
    known: Vec<Metadata>,
    /// Indexes of inodes that are not in memory.
    missing: Vec<u32>,
    /// Inodes on their way into memory.
    loaded: Vec<Arc<LiveInode>>,
}

impl<'a, S, V: Fn(&mut S, Ino, Result<Metadata>) + Sync> Worker<'a, S, V> {
    fn new(fs: &'a Fs, way: BulkstatWay, state: S, visit: &'a V) -> Self {
        Self {
            fs,
            way,
            state,
            visit,
            visited: 0,
            is_writable: fs.journal().is_ok(),
            window: Vec::new(),
            known: Vec::with_capacity(TOGETHER),
            missing: Vec::new(),
            loaded: Vec::new(),
        }
    }

    /// Where inodes are visited one after the other, so that what is known is made where `visit`
    /// gets it.
    #[inline(always)]
    fn tell(&mut self, metadata: Metadata) {
        self.visited += 1;
        (self.visit)(&mut self.state, metadata.ino, Ok(metadata));
    }

    /// Anywhere else.
    #[inline(never)]
    fn tell_result(&mut self, ino: Ino, found: Result<Metadata>) {
        match found {
            Ok(metadata) => self.tell(metadata),
            Err(e) => self.unusual(ino, e),
        }
    }

    #[cold]
    fn tell_error(&mut self, ino: Ino, error: Error) {
        (self.visit)(&mut self.state, ino, Err(error));
    }

    /// Visits the inodes of a part.
    fn part(&mut self, group: Group, indexes: Range<u32>) {
        let first = self.fs.geometry().inode_at(group, 0);
        let first = match first.in_place(Place::Group(group)) {
            Ok(first) => first,
            Err(e) => return self.tell_error(Ino::default(), e),
        };
        let in_use = match self.fs.inodes_in_use(group) {
            Ok(in_use) => in_use,
            Err(e) => return self.tell_error(number(first, indexes.start), e),
        };
        let mut indexes = indexes.start..indexes.end.min(in_use.end);
        self.missing.clear();
        // A file system open for reading has nothing in memory that is newer than the tables.
        let looks = self.is_writable || self.way == BulkstatWay::Cache;
        while indexes.start < indexes.end {
            if !looks {
                let end = indexes.end.min(indexes.start.saturating_add(u64::BITS));
                let some = bits(&in_use.bitmap, indexes.start..end);
                self.missing.extend(set(some, indexes.start));
                indexes.start = end;
                continue;
            }
            indexes.start = self.look(&in_use.bitmap, first, &indexes);
            let mut known = std::mem::take(&mut self.known);
            for metadata in known.drain(..) {
                self.tell(metadata);
            }
            self.known = known;
        }
        self.not_in_memory(&in_use, first);
    }

    /// Finds out about the first inodes of some as far as they are in memory, and notes the others.
    /// Returns where to go on.
    fn look(&mut self, bitmap: &[u8], first: Ino, indexes: &Range<u32>) -> u32 {
        let table = self.fs.inode_table();
        let block_size = self.fs.block_size();
        let mut at = indexes.start;
        let guard = pin();
        while self.known.is_empty() && at < indexes.end {
            let spans = spans(first, at..indexes.end);
            let wanted = spans.clone().map(|span| bits(bitmap, span.indexes));
            // First the leaves, then the inodes, then their images, so that no look waits for the
            // memory of the one before.
            let leaves: [_; LEAVES] = array::from_fn(|leaf| {
                (wanted[leaf] != 0)
                    .then(|| table.leaf(number(first, spans[leaf].indexes.start), &guard))
                    .flatten()
            });
            let found: [Option<&LiveInode>; TOGETHER] = array::from_fn(|n| {
                let (leaf, bit) = (n / LEAF, n % LEAF);
                match leaves[leaf] {
                    Some(places) if wanted[leaf] >> bit & 1 != 0 => {
                        table.peek_in(places, spans[leaf].place + bit, &guard)
                    }
                    _ => None,
                }
            });
            let images: [Option<&Inode>; TOGETHER] = array::from_fn(|n| {
                let live = found[n]?;
                live.flush_dir_time();
                Some(live.image(&guard))
            });
            for (leaf, span) in spans.iter().enumerate() {
                for index in set(wanted[leaf], span.indexes.start) {
                    let n = leaf * LEAF + (index - span.indexes.start) as usize;
                    let (Some(live), Some(image)) = (found[n], images[n]) else {
                        self.missing.push(index);
                        continue;
                    };
                    // Without a name it is about to go, or has gone.
                    if image.disk.links > 0 {
                        self.known.push(match live.ahead(image) {
                            Some(ahead) => ahead.metadata(block_size),
                            None => image.metadata(block_size),
                        });
                    }
                }
            }
            at = spans[LEAVES - 1].indexes.end;
        }
        at
    }

    /// Visits those that were not in memory, from the inode table.
    fn not_in_memory(&mut self, in_use: &InUse, first: Ino) {
        let (Some(&from), Some(&last)) = (self.missing.first(), self.missing.last()) else {
            return;
        };
        let turns = self.fs.inode_table().turns();
        let size = self.fs.geometry().inode_size();
        let start = self.fs.block_size().offset_of(in_use.table);
        let offset = start
            .unwrap_or(u64::MAX)
            .saturating_add(u64::from(from) * u64::from(size));
        let mut window = std::mem::take(&mut self.window);
        window.resize((last - from + 1) as usize * size as usize, 0);
        let missing = std::mem::take(&mut self.missing);
        match self.fs.read_table(offset, &mut window) {
            Ok(()) => {
                let slots = Slots {
                    window: &window,
                    size: size as usize,
                    from,
                };
                self.records(in_use.table, first, &missing, &slots);
            }
            Err(e) => {
                for index in &missing {
                    self.tell_error(number(first, *index), e.clone());
                }
            }
        }
        self.window = window;
        self.missing = missing;
        self.keep(&turns);
    }

    /// Visits inodes in their slots of the inode table.
    fn records(&mut self, table: Pblk, first: Ino, missing: &[u32], slots: &Slots<'_>) {
        let (some, rest) = missing.as_chunks::<CHECKED>();
        for indexes in some {
            let sound = self.fs.sound_slots(
                indexes.map(|index| slots.get(index)),
                indexes.map(|index| number(first, index)),
            );
            for (index, is_sound) in indexes.iter().zip(sound) {
                let ino = number(first, *index);
                self.record(ino, slots.get(*index), is_sound, table, *index);
            }
        }
        for index in rest {
            let ino = number(first, *index);
            self.record(ino, slots.get(*index), false, table, *index);
        }
    }

    /// Visits an inode in its slot, the one at `index` of the inode table at `table`.
    #[inline(always)]
    fn record(&mut self, ino: Ino, slot: &[u8], is_sound: bool, table: Pblk, index: u32) {
        match self.way {
            BulkstatWay::Tables if is_sound => match self.fs.stat_plain_slot(ino, slot) {
                Some(metadata) => self.tell(metadata),
                None => self.tell_result(ino, self.fs.stat_unusual_slot(ino, slot)),
            },
            BulkstatWay::Tables => self.tell_result(ino, self.fs.stat_slot(ino, slot)),
            BulkstatWay::Cache => {
                let found = self.load(ino, slot, is_sound, home(self.fs, table, index));
                self.tell_result(ino, found);
            }
        }
    }

    /// What to say of an inode whose record is not that of one with names.
    #[cold]
    fn unusual(&mut self, ino: Ino, error: Error) {
        let found = match error {
            // Perhaps read while it was written: what the cache finds counts.
            e if self.is_writable && e.is_corruption() => {
                let of = |inode: &Inode| inode.metadata(self.fs.block_size());
                self.fs.with_inode(ino, of)
            }
            e => Err(e),
        };
        match found {
            Ok(metadata) => {
                self.visited += 1;
                (self.visit)(&mut self.state, ino, Ok(metadata));
            }
            // Reserved, deleted since the bitmap was read, or an orphan.
            Err(Error::Stale) => {}
            Err(e) => self.tell_error(ino, e),
        }
    }

    /// Makes an inode of its slot, to come into memory.
    #[inline]
    fn load(&mut self, ino: Ino, slot: &[u8], is_sound: bool, home: Pblk) -> Result<Metadata> {
        let inode = if is_sound {
            self.fs.parse_sound_inode(ino, slot)?
        } else {
            self.fs.parse_inode(ino, slot)?
        };
        let metadata = inode.metadata(self.fs.block_size());
        self.loaded
            .push(Arc::new(LiveInode::new(Arc::new(inode), home)));
        Ok(metadata)
    }
    /// Brings what was loaded into memory.
    fn keep(&mut self, turns: &Turns) {
        if !self.loaded.is_empty() {
            self.fs.inode_table().insert_all(&mut self.loaded, turns);
        }
    }
}

/// Slots of an inode table in memory.
struct Slots<'w> {
    window: &'w [u8],
    /// Bytes of each.
    size: usize,
    /// Index of the first.
    from: u32,
}

impl<'w> Slots<'w> {
    #[inline]
    fn get(&self, index: u32) -> &'w [u8] {
        let at = (index - self.from) as usize * self.size;
        self.window.get(at..at + self.size).unwrap_or_default()
    }
}

/// Inodes of a group that are in one leaf.
#[derive(Clone, Debug)]
struct Span {
    /// By index in the group.
    indexes: Range<u32>,
    /// Where the first of them is in the leaf.
    place: usize,
}

/// The leaves that the first of some inodes of a group are in, the group of the inode `first`.
#[inline]
fn spans(first: Ino, indexes: Range<u32>) -> [Span; LEAVES] {
    let mut start = indexes.start;
    array::from_fn(|_| {
        let place = number(first, start).get().wrapping_sub(1) % LEAF as u32;
        let end = start.saturating_add(LEAF as u32 - place).min(indexes.end);
        let span = Span {
            indexes: start..end,
            place: place as usize,
        };
        start = end;
        span
    })
}

/// The places of the set bits, counted from `base` on.
#[inline]
fn set(mut bits: u64, base: u32) -> impl Iterator<Item = u32> {
    iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let at = bits.trailing_zeros();
        bits &= bits - 1;
        Some(base.saturating_add(at))
    })
}

/// The number of the inode at `index` of the group whose first inode is `first`.
fn number(first: Ino, index: u32) -> Ino {
    // Within the group, so within what the geometry was checked for.
    Ino::new(first.get().saturating_add(index))
}

/// The block that holds the record at `index` of the inode table at `table`.
fn home(fs: &Fs, table: Pblk, index: u32) -> Pblk {
    let bytes = u64::from(index) * u64::from(fs.geometry().inode_size());
    Pblk::new(table.get().saturating_add(bytes >> fs.block_size().log2()))
}
