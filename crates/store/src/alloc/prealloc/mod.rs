//! Blocks for files, and what is kept ready for them.
//!
//! | file | owns |
//! |---|---|
//! | `window` | how much is taken for a file beyond what it asks for |
//! | `tree` | what is kept ready for one file |
//! | `store` | the tree, or the form it is compared with |
//! | `locality` | runs out of which small files are served |
//! | `goals` | where a file should have its next blocks |
//! | `files` | all files for which something is kept |
//! | `inspect` | a look inside, for tests (feature `inspect`) |
//!
//! What is kept ready is set in the allocator bitmap only: on the device it is free, so a crash
//! leaks nothing. It counts as taken in [`Space`](super::space::Space), and is taken from what can
//! be spared, so that a request never fails for what it did not ask for; a request that finds no
//! space gets back what is kept for others first.
//!
//! All is in clusters here: what is kept ready waits for logical clusters. A logical cluster of
//! which blocks are mapped has its place, and nobody asks for it.
//!
//! # Locking
//!
//! Giving back what is kept for others has a lock of rank `PreallocDiscard`. The tree of a file has
//! a lock of rank `PreallocTree`, held for one change and neither across I/O nor while blocks are
//! looked for. The runs of `locality` have locks of rank `Locality`, one for each CPU.

mod files;
mod goals;
#[cfg(feature = "inspect")]
mod inspect;
mod locality;
mod store;
mod tree;
mod window;

use super::search::Near;
use super::{Alloc, Taken};
use crate::alloc::AllocFile;
use crate::volume::{Cluster, ClusterSize};
use crate::{Error, Result};
use extant_format::{Group, Lblk};
use extant_sync::{LockClass, Mutex, MutexGuard, Rank, RwLock};
use files::Files;
pub use goals::FAR;
use goals::{Goals, Last};
use locality::Locality;
use std::sync::Arc;
use store::Store;

static DISCARD: LockClass = LockClass::new("preallocations discarded", Rank::PreallocDiscard);
static TREE: LockClass = LockClass::new("preallocations", Rank::PreallocTree);

/// A request of a file for blocks.
#[derive(Clone, Copy, Debug)]
pub struct FileRequest {
    /// The first logical block that needs a place.
    pub lblk: Lblk,
    /// How many need one, at least 1.
    pub len: u32,
    /// The size of the file in bytes once they are written.
    pub size: u64,
    /// Space for them was promised by [`Alloc::reserve_space`]: the promise of as many as are taken
    /// is used up, and there is always enough.
    pub reserved: bool,
    /// No more than is asked for.
    pub no_prealloc: bool,
    /// As in [`Request`](super::Request).
    pub privileged: bool,
}

impl FileRequest {
    /// Converts the request from blocks to logical clusters, at most `most`.
    fn in_clusters(self, size: ClusterSize, most: u32) -> Self {
        let clusters = size.touched(self.lblk.get(), self.len.max(1));
        Self {
            lblk: Lblk::new(clusters.start),
            len: (clusters.end - clusters.start).clamp(1, most),
            ..self
        }
    }
}

/// What the allocator knows of a file.
#[derive(Debug)]
pub struct FileState {
    kept: RwLock<Kept>,
    last: Last,
}

/// What is kept ready for a file.
#[derive(Debug, Default)]
struct Kept {
    tree: Store,
    /// Whether the file is among those for which something is kept. Stays so for a while after
    /// nothing is.
    listed: bool,
}

impl Default for FileState {
    fn default() -> Self {
        Self::new()
    }
}

impl FileState {
    /// Makes the state of a file for which nothing is kept.
    pub fn new() -> Self {
        Self {
            kept: RwLock::new(&TREE, Kept::default()),
            last: Last::new(),
        }
    }

    /// Preallocations that are alive.
    pub fn preallocations(&self) -> usize {
        self.kept.read().tree.len()
    }

    fn drain(&self) -> Vec<(Cluster, u32)> {
        self.kept.write().tree.split_off(0)
    }
}

/// What is kept ready for all files.
#[derive(Debug)]
pub(super) struct Prealloc {
    goals: Goals,
    locality: Locality,
    files: Files,
    /// A thread that finds no space is alone in giving back what is kept for others, so that what
    /// one has taken out and not yet given back is not missed by another.
    discarding: Mutex<()>,
}

impl Prealloc {
    /// Nothing yet, for a file system of `groups` groups.
    pub(super) fn new(groups: u32) -> Self {
        Self {
            goals: Goals::new(groups),
            locality: Locality::new(),
            files: Files::new(),
            discarding: Mutex::new(&DISCARD, ()),
        }
    }

    /// Has a thread that finds no space wait until the result is dropped, and then look again.
    pub(super) fn keep_waiting(&self) -> MutexGuard<'_, ()> {
        self.discarding.lock()
    }
}

impl Alloc {
    /// Takes one run of 1 to `ask.len` blocks for the file, extended to whole clusters on both
    /// sides: what is kept ready for it, or else near its other blocks, and then more is kept ready
    /// than it asked for. See [`take_blocks`](Self::take_blocks) for what taking means. May wait
    /// for the device.
    ///
    /// The caller sees to it that nothing else asks for the same logical clusters, and that none of
    /// them is mapped in part.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when nothing is free to the caller, nor kept for others. If
    /// [`pending_free_blocks`](Self::pending_free_blocks) is not 0, a commit brings more.
    pub fn take_for(&self, file: &impl AllocFile, ask: &FileRequest) -> Result<Taken<'_>> {
        let state = file.state();
        let most = self.volume.geometry().clusters_per_group();
        let ask = ask.in_clusters(self.volume.cluster_size(), most);
        let lblk = ask.lblk.get();
        let kept = state.kept.write().tree.take(lblk, ask.len);
        let (taken, of_run) = match kept {
            Some((first, len)) => {
                if ask.reserved {
                    self.space.give(len);
                }
                (Taken::new(self, first, len), false)
            }
            None => self.take_new(file, &ask)?,
        };
        if ask.reserved {
            self.promised.add(-i64::from(taken.clusters()));
        }
        let next = lblk.saturating_add(taken.clusters());
        state.last.set(next, taken.behind(), of_run);
        Ok(taken)
    }

    /// Takes clusters that were not kept ready. Returns them and whether they are of a run for
    /// small files.
    fn take_new(&self, file: &impl AllocFile, ask: &FileRequest) -> Result<(Taken<'_>, bool)> {
        let log2 = self.volume.block_size().log2() + self.volume.cluster_size().bits();
        let (ino, state, extents) = (file.ino(), file.state(), file.has_extents());
        let end = (u64::from(ask.lblk.get()) + u64::from(ask.len)) << log2;
        if ask.size.max(end) <= locality::SMALL
            && let Some(taken) = self.take_small(ino, state, ask, !extents)?
        {
            if ask.reserved {
                self.space.give(taken.clusters());
            }
            return Ok((taken, true));
        }
        let lblk = ask.lblk.get();
        let gap = state.kept.read().tree.gap(lblk);
        // Otherwise a request for its neighbours has had something wait for it since it was looked
        // for.
        let gap = if gap.contains(&lblk) {
            gap
        } else {
            lblk..lblk.saturating_add(1)
        };
        let window = window::window(ask, log2, gap);
        // A file that goes on where it had its last blocks needs neither.
        let goes_on =
            state.last.get().is_some_and(|(next, _)| next == lblk) && window.start == lblk;
        let (mut window, beside) = if goes_on {
            (window, None)
        } else {
            file.hole(lblk, window)
        };
        // At least the first: nothing is kept for it.
        let asked = ask.len.min(window.end.saturating_sub(lblk)).max(1);
        let own = if ask.reserved {
            asked
        } else {
            self.charge(asked, ask.privileged)?
        };
        let most = self.volume.geometry().clusters_per_group().min(tree::MOST);
        let more = (window.end - window.start).min(most).saturating_sub(asked);
        let spare = own == asked && self.space.take_spare(more);
        let more = if spare { more } else { 0 };
        let mut goal = self.goal_of(ino, state, window.start, beside);
        if more == 0 {
            goal = goal.plus(lblk - window.start);
            window = lblk..lblk.saturating_add(own);
        }
        #[cfg(feature = "baseline")]
        let goal = self.forms.goal_and_freed().map_or(goal, |one| *one);
        // One that goes on, and finds no place behind its last blocks, begins where its next
        // window, which is twice as long, has room as well.
        let goes_on = more > 0 && window.start == lblk && state.last.get().is_some();
        let room = if goes_on { 3 * (own + more) } else { 0 };
        let near = Near {
            goal,
            room,
            below_32_bits: !extents,
        };
        let taken = self.take_charged(near, own + more, 1);
        let charged = if ask.reserved { 0 } else { own };
        let Ok(mut taken) = taken else {
            self.space.give(charged + more);
            return taken.map(|taken| (taken, false));
        };
        self.note_goal(ino, state, taken.first(), own + more);
        #[cfg(feature = "baseline")]
        if let Some(mut one) = self.forms.goal_and_freed() {
            *one = taken.behind();
        }
        // What is asked for first, if it is less than wanted.
        let first = if window.end.saturating_sub(lblk) >= taken.clusters() {
            lblk
        } else {
            window.end - taken.clusters()
        };
        let before = taken.split_front(lblk - first);
        let mine = taken.split_front(asked);
        let kept = before.clusters() + taken.clusters();
        self.space
            .give((charged + more) - kept - mine.clusters().min(charged));
        if kept > 0 {
            self.keep_ready(state, first, before);
            self.keep_ready(state, lblk.saturating_add(mine.clusters()), taken);
        }
        Ok((mine, false))
    }

    /// Is granted up to `clusters`, at least 1.
    fn charge(&self, clusters: u32, privileged: bool) -> Result<u32> {
        self.with_room(clusters.into(), || {
            let share = || self.share(privileged);
            let granted = self.space.take(1, clusters, share);
            granted.ok_or(Error::NoSpace)
        })
    }

    /// Has `attempt` done, again and again if it finds no space and something was kept ready for
    /// files, at least `wanted` clusters of which are given back each time.
    pub(super) fn with_room<T>(
        &self,
        wanted: u64,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        match attempt() {
            Err(Error::NoSpace) => {}
            done => return done,
        }
        let _alone = self.prealloc.discarding.lock();
        loop {
            match attempt() {
                Err(Error::NoSpace) if self.discard(wanted) > 0 => {}
                done => return done,
            }
        }
    }

    /// Has clusters wait for logical cluster `lblk` and those behind.
    fn keep_ready(&self, state: &Arc<FileState>, lblk: u32, taken: Taken<'_>) {
        if taken.is_empty() {
            return;
        }
        let mut kept = state.kept.write();
        #[cfg(feature = "baseline")]
        kept.tree.become_list(self.forms.preallocation_list());
        let blocks = (taken.first(), taken.clusters());
        let mut left = Vec::new();
        kept.tree.insert(lblk, blocks, |blocks| left.push(blocks));
        let new = !std::mem::replace(&mut kept.listed, true);
        drop(kept);
        taken.disarm();
        self.give_all_back(left);
        if new {
            self.list_file(state);
        }
    }

    /// Gives runs of taken clusters back, each group's at once.
    fn give_all_back(&self, mut runs: Vec<(Cluster, u32)>) -> u64 {
        runs.sort_unstable_by_key(|(start, _)| *start);
        runs.dedup_by(|next, last| {
            let joins = last.0.plus(last.1) == next.0 && last.1 < tree::MOST;
            let joins = joins && self.same_group(last.0, next.0);
            if joins {
                last.1 += next.1;
            }
            joins
        });
        let mut given = 0;
        for of_group in runs.chunk_by(|a, b| self.same_group(a.0, b.0)) {
            self.return_all_to_group(of_group);
            // Of one group: no more than it has.
            let clusters = of_group.iter().map(|(_, len)| len).sum();
            self.space.give(clusters);
            given += u64::from(clusters);
        }
        given
    }

    fn same_group(&self, a: Cluster, b: Cluster) -> bool {
        self.cluster_group(a) == self.cluster_group(b)
    }

    fn cluster_group(&self, cluster: Cluster) -> Option<Group> {
        let block = self.volume.cluster_size().block(cluster);
        let at = self.volume.geometry().bitmap_position(block);
        at.ok().map(|(group, _)| group)
    }

    /// Has what is kept ready behind the last blocks of the file wait for `lblk`, further ahead:
    /// for files that are written with holes between, so that what follows in the file follows on
    /// the device.
    pub fn keep_for(&self, state: &FileState, lblk: Lblk) {
        let lblk = self.volume.cluster_size().logical(lblk.get());
        if let Some((next, behind)) = state.last.get().filter(|(next, _)| *next < lblk) {
            let mut kept = state.kept.write();
            kept.tree.move_up(next, behind, lblk);
        }
    }

    /// Gives back what is kept ready for the file: when nobody writes to it any more.
    pub fn drop_preallocations(&self, state: &FileState) {
        self.drop_kept(state, 0);
    }

    /// Gives back what is kept ready for the file at `lblk` and behind: when the file is truncated.
    pub fn drop_preallocations_from(&self, state: &FileState, lblk: Lblk) {
        let lblk = self.volume.cluster_size().count(lblk.get());
        self.drop_kept(state, lblk);
        if state.last.get().is_some_and(|(next, _)| next > lblk) {
            // What it had there is free: it goes on elsewhere.
            state.last.forget();
        }
    }

    fn drop_kept(&self, state: &FileState, lblk: u32) {
        if state.kept.read().tree.is_empty() {
            return;
        }
        let runs = state.kept.write().tree.split_off(lblk);
        self.give_all_back(runs);
    }

    /// Gives back what is kept ready for any file, until that is `wanted` clusters; returns how
    /// many it was. Done for a request that finds no space.
    pub fn discard_preallocations(&self, wanted: u64) -> u64 {
        let _alone = self.prealloc.discarding.lock();
        self.discard(wanted)
    }

    fn discard(&self, wanted: u64) -> u64 {
        let mut given = self.give_all_back(self.prealloc.locality.drain());
        for state in self.prealloc.files.all() {
            if given >= wanted.max(1) {
                break;
            }
            given += self.give_all_back(state.drain());
        }
        given
    }

    /// Promises `clusters` whose place is chosen later, by [`take_for`](Self::take_for) or
    /// [`take_promised`](Self::take_promised). Never waits for the device.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there are not as many, even with what was kept ready for others. If
    /// [`pending_free_blocks`](Self::pending_free_blocks) is not 0, a commit brings more.
    pub fn reserve_space(&self, clusters: u32, privileged: bool) -> Result<()> {
        if clusters == 0 {
            return Ok(());
        }
        self.with_room(clusters.into(), || {
            let share = || self.share(privileged);
            let granted = self.space.take(clusters, clusters, share);
            granted.map(|_| ()).ok_or(Error::NoSpace)
        })?;
        self.note_promised(clusters.into());
        Ok(())
    }

    /// Gives a promise back.
    pub fn return_space(&self, clusters: u32) {
        self.space.give(clusters);
        self.promised.add(-i64::from(clusters));
    }
}
