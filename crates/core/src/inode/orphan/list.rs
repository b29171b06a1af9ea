//! The orphan list: its head is in the superblock, each inode on it names the next where others keep
//! their deletion time.
//!
//! # Invariants
//!
//! - In memory the list is linked both ways, so that the inode before another one is found at once.
//!   Inodes on it stay in memory, whoever else forgets them: the list has a reference to each.
//! - Links change only under the lock, and under a handle in which the inode that carries the link (or
//!   the superblock) was registered before.
//! - What the memory says and what the next commit encodes are one: a change that cannot be
//!   registered is not made.

use super::Membership;
use crate::Result;
use crate::fs::Fs;
use crate::inode::LiveInode;
use crate::journal::Handle;
use extant_format::Ino;
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

static LIST: LockClass = LockClass::new("orphan list", Rank::OrphanList);

/// The inodes on the list.
#[derive(Debug)]
pub(super) struct OrphanList {
    links: Mutex<Links>,
    /// The first one, 0 if there is none. Stored under the lock.
    head: AtomicU32,
}

#[derive(Debug, Default)]
struct Links {
    entries: HashMap<Ino, Entry>,
}

/// An inode on the list, and its neighbours. The newest is the first one.
#[derive(Debug)]
struct Entry {
    live: Arc<LiveInode>,
    newer: Option<Ino>,
    older: Option<Ino>,
}

impl OrphanList {
    /// A list that begins with `head`, the inodes on it not being known yet.
    pub(super) fn new(head: Option<Ino>) -> Self {
        Self {
            links: Mutex::new(&LIST, Links::default()),
            head: AtomicU32::new(raw(head)),
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
    pub(super) fn install(&self, found: &[Arc<LiveInode>]) {
        let mut links = self.links.lock();
        let mut newer = None;
        for (at, live) in found.iter().enumerate() {
            let older = found.get(at + 1).map(|live| live.ino());
            live.set_membership(Membership::List { next: raw(older) });
            let entry = Entry {
                live: Arc::clone(live),
                newer,
                older,
            };
            newer = Some(live.ino());
            links.entries.insert(live.ino(), entry);
        }
        let head = found.first().map(|live| live.ino());
        self.head.store(raw(head), Ordering::Release);
    }

    /// Puts an inode, which is registered, in front.
    pub(super) fn add(&self, handle: &Handle<'_>, live: &Arc<LiveInode>) {
        handle.touch_superblock();
        let ino = live.ino();
        let mut links = self.links.lock();
        let older = self.head();
        if let Some(entry) = older.and_then(|older| links.entries.get_mut(&older)) {
            entry.newer = Some(ino);
        }
        let entry = Entry {
            live: Arc::clone(live),
            newer: None,
            older,
        };
        links.entries.insert(ino, entry);
        live.set_membership(Membership::List { next: raw(older) });
        self.head.store(ino.get(), Ordering::Release);
    }

    /// Takes an inode off.
    ///
    /// # Errors
    /// When the record that names it cannot be registered; it stays on the list then.
    pub(super) fn remove(&self, fs: &Fs, handle: &Handle<'_>, live: &Arc<LiveInode>) -> Result<()> {
        let ino = live.ino();
        handle.touch_inode(live)?;
        // What may have to be read comes into memory, and stays there, before the lock.
        let before = self.links.lock().newer(ino).map(Arc::clone);
        let block = before.map(|live| fs.inode_table_block(&live));
        let _prepared = block.transpose()?;

        let mut links = self.links.lock();
        let before = links.newer(ino).map(Arc::clone);
        match &before {
            Some(before) => handle.touch_inode(before)?,
            None => handle.touch_superblock(),
        }
        let Some(entry) = links.entries.remove(&ino) else {
            return Ok(());
        };
        if let Some(older) = entry.older.and_then(|older| links.entries.get_mut(&older)) {
            older.newer = entry.newer;
        }
        match before {
            Some(before) => {
                if let Some(newer) = links.entries.get_mut(&before.ino()) {
                    newer.older = entry.older;
                }
                let next = raw(entry.older);
                before.set_membership(Membership::List { next });
            }
            None => self.head.store(raw(entry.older), Ordering::Release),
        }
        live.set_membership(Membership::None);
        Ok(())
    }
}

impl Links {
    /// The inode that names `ino` as the next.
    fn newer(&self, ino: Ino) -> Option<&Arc<LiveInode>> {
        let newer = self.entries.get(&ino)?.newer?;
        self.entries.get(&newer).map(|entry| &entry.live)
    }
}

fn raw(ino: Option<Ino>) -> u32 {
    ino.map_or(0, Ino::get)
}
