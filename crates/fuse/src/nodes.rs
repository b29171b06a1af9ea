//! What the kernel knows: how often each inode was handed to it, and which it keeps without a name.
//!
//! The kernel counts every entry it is given, and says with a *forget* how many of them it gives
//! back. While it has some it may ask for the inode at any time, also after the last name is gone:
//! a file that is open, or somebody's working directory. So an inode that loses its last name while
//! the kernel knows it is held here until it is forgotten.
//!
//! # Invariants
//!
//! - Inodes that have names are not held: what is kept for each is a count, and the engine's caches
//!   stay free to let it go. Memory grows with what the kernel caches, by some 50 bytes an inode.
//! - Holds are given up outside the locks: ending the last one may delete a file.

use extant_core::inode::Held;
use extant_core::ops::ErrorMark;
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::HashMap;
use std::sync::Arc;

static NODES: LockClass = LockClass::new("fuse nodes", Rank::Leaf);

const SHARDS: usize = 64;

/// The inodes that the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes {
    shards: Box<[Mutex<HashMap<u32, Node>>]>,
}

#[derive(Debug, Default)]
struct Node {
    /// Entries handed out and not given back.
    lookups: u64,
    /// What keeps an inode without names.
    held: Option<Held>,
    /// The failures of writing back that writers of the file were told of.
    mark: Option<Arc<ErrorMark>>,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS)
                .map(|_| Mutex::new(&NODES, HashMap::new()))
                .collect(),
        }
    }

    fn shard(&self, ino: u32) -> &Mutex<HashMap<u32, Node>> {
        // The remainder is below the length.
        &self.shards[ino as usize % SHARDS]
    }

    /// Counts an entry for the inode that is about to be handed out.
    pub(crate) fn remember(&self, ino: u32) {
        let mut nodes = self.shard(ino).lock();
        let node = nodes.entry(ino).or_default();
        node.lookups = node.lookups.saturating_add(1);
    }

    /// Takes `count` entries back from the kernel. Returns a hold that is to be given up.
    #[must_use]
    pub(crate) fn forget(&self, ino: u32, count: u64) -> Option<Held> {
        let mut nodes = self.shard(ino).lock();
        let node = nodes.get_mut(&ino)?;
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups > 0 {
            return None;
        }
        nodes.remove(&ino)?.held
    }

    /// Keeps the hold on an inode that has lost its last name if the kernel knows it, and returns
    /// it if not.
    #[must_use]
    pub(crate) fn keep(&self, held: Held) -> Option<Held> {
        let mut nodes = self.shard(held.ino().get()).lock();
        match nodes.get_mut(&held.ino().get()) {
            Some(node) => node.held.replace(held),
            None => Some(held),
        }
    }

    /// Returns what writers of the file were told about failures. From now on it is kept.
    pub(crate) fn mark(&self, held: &Held) -> Arc<ErrorMark> {
        let mut nodes = self.shard(held.ino().get()).lock();
        let node = nodes.entry(held.ino().get()).or_default();
        Arc::clone(
            node.mark
                .get_or_insert_with(|| Arc::new(ErrorMark::new(held))),
        )
    }

    /// Forgets everything. Returns the holds, which are to be given up.
    #[must_use]
    pub(crate) fn clear(&self) -> Vec<Held> {
        let nodes = self.shards.iter().flat_map(|shard| {
            let nodes = std::mem::take(&mut *shard.lock());
            nodes.into_values().filter_map(|node| node.held)
        });
        nodes.collect()
    }

    /// Inodes that the kernel knows, and how many of them have no name.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(known, unnamed), shard| {
            let nodes = shard.lock();
            let held = nodes.values().filter(|node| node.held.is_some()).count();
            (known + nodes.len() as u64, unnamed + held as u64)
        })
    }
}
