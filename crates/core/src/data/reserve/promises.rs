//! Space that is promised to a file: places for delayed blocks, and for the nodes that will map
//! them.
//!
//! Where a cluster is a block, each delayed block has the promise of one. Otherwise a promise is
//! that of a cluster for a logical cluster no block of which has a place; how many of its blocks
//! are delayed does not matter.

use crate::Result;
use crate::alloc::Alloc;
use crate::data::cache::FileCache;
use crate::data::reserve::nodes::Tree;
use crate::fs::Fs;
use crate::inode::LiveInode;
use crate::volume::ClusterSize;
use extant_format::Ino;
use extant_sync::pin;
use std::collections::BTreeSet;
use std::ops::Range;

/// Space that is promised to a file.
#[derive(Debug, Default)]
pub(in crate::data) struct Promise {
    /// Delayed blocks.
    delayed: u64,
    /// Clusters for the nodes that map them.
    nodes: u64,
    /// Logical clusters that have the promise of a place, where a cluster is more than a block.
    clusters: BTreeSet<u32>,
}

/// The first of some logical clusters.
#[derive(Debug)]
pub(in crate::data) enum Claim {
    /// Their promises are the caller's.
    Promised(Range<u32>),
    /// They have none.
    Free(Range<u32>),
}

/// Tells whether blocks that are not mapped yet are promised a place, and do not have it.
fn places_are_promised(fs: &Fs) -> bool {
    fs.data().has_delayed_allocation()
}

impl FileCache {
    /// Delayed blocks.
    pub(crate) fn delayed(&self) -> u64 {
        self.promise.lock().delayed
    }

    /// Blocks that the file has the promise of.
    pub(in crate::data) fn promised(&self, size: ClusterSize) -> u64 {
        let promise = self.promise.lock();
        if size.is_block() {
            promise.delayed
        } else {
            (promise.clusters.len() as u64) << size.bits()
        }
    }

    /// Has space promised for `blocks` more of the file, unless they have their places, and for the
    /// nodes that map them. Where a cluster is more than a block, `clusters` are the logical
    /// clusters of these that have no place.
    pub(in crate::data) fn promise(
        &self,
        fs: &Fs,
        alloc: &Alloc,
        live: &LiveInode,
        blocks: u32,
        clusters: &[u32],
    ) -> Result<()> {
        let tree = Tree::of(live.image(&pin()));
        let after = |promise: &Promise| tree.nodes_for(promise.delayed + u64::from(blocks));
        let is_promised = places_are_promised(fs);
        let (nodes, own, missing) = {
            let promise = self.promise.lock();
            let nodes = after(&promise).saturating_sub(promise.nodes);
            match (is_promised, fs.cluster_size().is_block()) {
                (false, _) => (nodes, 0, Vec::new()),
                (true, true) => (nodes, blocks, Vec::new()),
                (true, false) => {
                    let missing = promise.without(clusters.iter().copied());
                    (nodes, missing.len() as u32, missing)
                }
            }
        };
        // Two at the same time may ask for the same nodes: what is too much goes with the rest.
        alloc.reserve_space(own + nodes as u32, false)?;
        let mut promise = self.promise.lock();
        if let Some(ledger) = fs.ledger() {
            let more = if fs.cluster_size().is_block() {
                blocks.into()
            } else {
                promise.without(missing.iter().copied()).len() as u64
            };
            let space = more * cluster_bytes(fs);
            let (ino, owners) = (live.ino(), fs.owners_of(live));
            let asked = ledger.promise(ino, owners, space, fs.reason());
            if let Err(e) = asked {
                drop(promise);
                alloc.return_space(own + nodes as u32);
                return Err(e);
            }
        }
        promise.delayed += u64::from(blocks);
        promise.nodes += nodes;
        if !missing.is_empty() {
            let twice = promise.enter(missing);
            drop(promise);
            alloc.return_space(twice);
        }
        Ok(())
    }

    /// Takes out the promise of blocks for nodes, for a caller that maps delayed blocks and calls
    /// [`release_reservation`](Self::release_reservation) afterwards. Until then the blocks count
    /// as delayed.
    pub(in crate::data) fn take_nodes(&self) -> u32 {
        // Fewer than blocks of memory.
        std::mem::take(&mut self.promise.lock().nodes) as u32
    }

    /// `blocks` are delayed no more, of whose promises `used` were used up; `nodes` promised blocks
    /// for nodes come back. What is promised for nodes follows the tree as it is by now.
    pub(in crate::data) fn release_reservation(
        &self,
        fs: &Fs,
        alloc: &Alloc,
        live: &LiveInode,
        blocks: u32,
        used: u32,
        nodes: u32,
    ) {
        let tree = Tree::of(live.image(&pin()));
        let is_block = fs.cluster_size().is_block();
        let (free, missing, clusters) = {
            let mut promise = self.promise.lock();
            promise.delayed = promise.delayed.saturating_sub(blocks.into());
            let have = promise.nodes + u64::from(nodes);
            let needed = tree.nodes_for(promise.delayed);
            promise.nodes = needed.min(have);
            let clusters = if promise.delayed == 0 && !is_block {
                std::mem::take(&mut promise.clusters).len() as u32
            } else {
                0
            };
            let free = have.saturating_sub(needed);
            promise.note(fs, live.ino());
            if let Some(ledger) = fs.ledger() {
                ledger.cap_spent(live.ino());
            }
            (free, needed.saturating_sub(have), clusters)
        };
        let own = if places_are_promised(fs) && is_block {
            blocks.saturating_sub(used)
        } else {
            clusters
        };
        alloc.return_space(own + free as u32);
        // What was used of the worst case of all may be missing from that of the rest.
        if missing > 0 && alloc.reserve_space(missing as u32, true).is_ok() {
            self.promise.lock().nodes += missing;
        }
    }

    /// Takes out the promises of the first of some logical clusters, at least 1: those that have
    /// one, or those that have none.
    pub(in crate::data) fn claim(&self, clusters: Range<u32>) -> Claim {
        let mut promise = self.promise.lock();
        let start = clusters.start;
        if !promise.clusters.contains(&start) {
            let next = promise.clusters.range(clusters.clone()).next();
            return Claim::Free(start..next.copied().unwrap_or(clusters.end));
        }
        let end = clusters.clone().find(|&at| !promise.clusters.remove(&at));
        Claim::Promised(start..end.unwrap_or(clusters.end))
    }

    /// Puts promises back that were taken out.
    pub(in crate::data) fn unclaim(&self, alloc: &Alloc, clusters: Range<u32>) {
        if !clusters.is_empty() {
            // They count as promised all the time.
            let twice = self.promise.lock().enter(clusters);
            alloc.return_space(twice);
        }
    }

    /// Promises places for logical clusters, which lost those they had.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace).
    pub(in crate::data) fn promise_again(
        &self,
        fs: &Fs,
        alloc: &Alloc,
        live: &LiveInode,
        clusters: impl IntoIterator<Item = u32>,
    ) -> Result<()> {
        let missing = self.promise.lock().without(clusters);
        alloc.reserve_space(missing.len() as u32, true)?;
        let twice = {
            let mut promise = self.promise.lock();
            let twice = promise.enter(missing);
            promise.note_more(fs, live);
            twice
        };
        alloc.return_space(twice);
        Ok(())
    }

    /// Gives promises back of logical clusters that have their places, or need none.
    pub(in crate::data) fn give_up_promises(
        &self,
        fs: &Fs,
        alloc: &Alloc,
        ino: Ino,
        clusters: Range<u32>,
    ) {
        let gone: u32 = {
            let mut promise = self.promise.lock();
            let gone: Vec<u32> = promise.clusters.range(clusters).copied().collect();
            for at in &gone {
                promise.clusters.remove(at);
            }
            promise.note(fs, ino);
            gone.len() as u32
        };
        alloc.return_space(gone);
    }

    /// Gives all promises back: the file is being deleted.
    pub(in crate::data) fn give_up_all_promises(&self, fs: &Fs, alloc: &Alloc, ino: Ino) {
        let promise = {
            let mut promise = self.promise.lock();
            let all = std::mem::take(&mut *promise);
            promise.note(fs, ino);
            all
        };
        let own = if places_are_promised(fs) && fs.cluster_size().is_block() {
            promise.delayed
        } else {
            promise.clusters.len() as u64
        };
        // No more than memory can hold.
        alloc.return_space((own + promise.nodes) as u32);
    }
}

/// Bytes of a cluster.
fn cluster_bytes(fs: &Fs) -> u64 {
    u64::from(fs.cluster_size().blocks()) << fs.block_size().log2()
}

impl Promise {
    /// Bytes that owners are to be counted as using for it.
    fn bytes(&self, fs: &Fs) -> u64 {
        let places = if fs.cluster_size().is_block() {
            self.delayed
        } else {
            self.clusters.len() as u64
        };
        places * cluster_bytes(fs)
    }

    /// Tells that it is less.
    fn note(&self, fs: &Fs, ino: Ino) {
        if let Some(ledger) = fs.ledger() {
            ledger.promised(ino, None, self.bytes(fs));
        }
    }

    /// Tells that it is more, which nobody may refuse.
    fn note_more(&self, fs: &Fs, live: &LiveInode) {
        if let Some(ledger) = fs.ledger() {
            ledger.promised(live.ino(), Some(fs.owners_of(live)), self.bytes(fs));
        }
    }

    /// Returns those that have no promise.
    fn without(&self, clusters: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let clusters = clusters.into_iter();
        clusters.filter(|at| !self.clusters.contains(at)).collect()
    }

    /// Notes that these are promised. Returns how many were already.
    fn enter(&mut self, clusters: impl IntoIterator<Item = u32>) -> u32 {
        let mut twice = 0;
        for cluster in clusters {
            twice += u32::from(!self.clusters.insert(cluster));
        }
        twice
    }
}
