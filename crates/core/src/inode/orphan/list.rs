//! The orphan list: its head is in the superblock, each inode on it names the next where others
//! keep their deletion time.
//!
//! # Invariants
//!
//! - In memory the list is linked both ways, so that the inode before another one is found at once.
//!   Inodes on it stay in memory, whatever else forgets them: the list has a reference to each.
//! - Links change only under the lock, and under a handle in which the inode that carries the link
//!   (or the superblock) was registered before.
//! - The inode before another one may change, and may be on its way out, at any time but under the
//!   lock: what changing its record needs is prepared before, and thrown away if it is another one
//!   by then.
//! - What the memory says and what the next commit encodes are one: a change that cannot be
//!   registered is not made.

use super::Membership;
use crate::Result;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::LiveInode;
use extant_format::Ino;
use extant_sync::{FirstTouch, LockClass, Mutex, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

static LIST: LockClass = LockClass::new("orphan list", Rank::OrphanList);

/// No place in the list.
const NOWHERE: u32 = u32::MAX;
/// How often a removal prepares for the inode before it. It changes only when that one is removed,
/// so more than one attempt is rare; after these, the record's block is looked for under the lock.
const ATTEMPTS: usize = 4;

/// The inodes on the list.
#[derive(Debug)]
pub(crate) struct OrphanList {
    links: Mutex<Links>,
    /// The first one, 0 if there is none. Stored under the lock.
    head: AtomicU32,
    /// When the superblock was last registered for the list's sake.
    superblock: FirstTouch,
}

/// The inodes on the list by their places, which their memberships name.
#[derive(Debug)]
struct Links {
    entries: Vec<Entry>,
    /// The newest one.
    first: u32,
    /// The first of the places that are free, chained by `older`.
    free: u32,
}

/// An inode on the list, and the places of its neighbours.
#[derive(Debug)]
struct Entry {
    /// `None` if the place is free.
    live: Option<Arc<LiveInode>>,
    newer: u32,
    older: u32,
}

impl OrphanList {
    /// A list that begins with `head`, the inodes on it not being known yet.
    pub(super) fn new(head: Option<Ino>) -> Self {
        let links = Links {
            entries: Vec::new(),
            first: NOWHERE,
            free: NOWHERE,
        };
        Self {
            links: Mutex::new(&LIST, links),
            head: AtomicU32::new(head.map_or(0, Ino::get)),
            superblock: FirstTouch::new(),
        }
    }

    /// The first one.
    pub(super) fn head(&self) -> Option<Ino> {
        match self.head.load(Ordering::Acquire) {
            0 => None,
            ino => Some(Ino::new(ino)),
        }
    }

    /// Makes what was found on the device, first to last, the list.
    pub(crate) fn install(&self, found: &[Arc<LiveInode>]) {
        let mut links = self.links.lock();
        for live in found.iter().rev() {
            links.push(live);
        }
        self.head.store(links.first_ino(), Ordering::Release);
    }

    /// Puts an inode, which is registered, in front.
    pub(super) fn add(&self, handle: &Handle<'_>, live: &Arc<LiveInode>) {
        self.touch_superblock(handle);
        let mut links = self.links.lock();
        links.push(live);
        self.head.store(live.ino().get(), Ordering::Release);
    }

    /// Takes an inode off.
    ///
    /// # Errors
    /// When the record that names it cannot be registered; it stays on the list then.
    pub(super) fn remove(&self, fs: &Fs, handle: &Handle<'_>, live: &Arc<LiveInode>) -> Result<()> {
        handle.touch_inode(live)?;
        self.touch_superblock(handle);
        let Membership::List { at, .. } = live.membership() else {
            return Ok(());
        };
        // The inode before, and its record's block, which is in memory while there is a reference.
        let mut prepared = None;
        for attempt in 1.. {
            let mut links = self.links.lock();
            let before = links.newer(at);
            let is_ready = match (before, &prepared) {
                (None, _) => true,
                (Some(before), _) if before.last_seq() == handle.seq() => true,
                (Some(before), Some((known, _))) => Arc::ptr_eq(before, known),
                (Some(_), None) => false,
            };
            if is_ready || attempt == ATTEMPTS {
                if let Some(before) = before {
                    handle.touch_inode(before)?;
                }
                let gone = links.take(at);
                self.head.store(links.first_ino(), Ordering::Release);
                live.set_membership(Membership::None);
                drop(links);
                drop(gone);
                return Ok(());
            }
            let before = before.map(Arc::clone);
            drop(links);
            if let Some(before) = before {
                let block = fs.inode_table_block(&before)?;
                prepared = Some((before, block));
            }
        }
        Ok(())
    }

    /// The head is in the superblock.
    fn touch_superblock(&self, handle: &Handle<'_>) {
        if self.superblock.touch(handle.seq().get()) {
            handle.touch_superblock();
        }
    }
}

impl Links {
    fn entry(&self, at: u32) -> Option<&Entry> {
        self.entries.get(at as usize)
    }

    fn entry_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.entries.get_mut(at as usize)
    }

    /// The number of the inode at a place, 0 where there is none.
    fn ino_at(&self, at: u32) -> u32 {
        let live = self.entry(at).and_then(|entry| entry.live.as_ref());
        live.map_or(0, |live| live.ino().get())
    }

    fn first_ino(&self) -> u32 {
        self.ino_at(self.first)
    }

    /// The inode that names the one at `at` as the next.
    fn newer(&self, at: u32) -> Option<&Arc<LiveInode>> {
        let newer = self.entry(at)?.newer;
        self.entry(newer)?.live.as_ref()
    }

    /// Puts an inode in front and says so in its membership.
    fn push(&mut self, live: &Arc<LiveInode>) {
        let older = self.first;
        let entry = Entry {
            live: Some(Arc::clone(live)),
            newer: NOWHERE,
            older,
        };
        let free = self.free;
        let at = match self.entry_mut(free) {
            Some(place) => {
                let next_free = std::mem::replace(place, entry).older;
                self.free = next_free;
                free
            }
            None => {
                self.entries.push(entry);
                // There are fewer inodes than numbers for them.
                (self.entries.len() - 1) as u32
            }
        };
        if let Some(entry) = self.entry_mut(older) {
            entry.newer = at;
        }
        self.first = at;
        let next = self.ino_at(older);
        live.set_membership(Membership::List { next, at });
    }

    /// Takes the inode at `at` out and has the one before it name the one after it.
    fn take(&mut self, at: u32) -> Option<Arc<LiveInode>> {
        let free = self.free;
        let entry = self.entry_mut(at)?;
        let live = entry.live.take()?;
        let (newer, older) = (entry.newer, entry.older);
        entry.older = free;
        self.free = at;
        if let Some(entry) = self.entry_mut(older) {
            entry.newer = newer;
        }
        let next = self.ino_at(older);
        match self.entry_mut(newer) {
            Some(entry) => {
                entry.older = older;
                if let Some(before) = &entry.live {
                    before.set_membership(Membership::List { next, at: newer });
                }
            }
            None => self.first = older,
        }
        Some(live)
    }
}
