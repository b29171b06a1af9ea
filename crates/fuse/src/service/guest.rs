//! What is different where a kernel is a guest's of a virtual machine: it is not trusted, and may
//! not be alone.
//!
//! - It uses the inodes that it was told about, and no others: it cannot reach what has no name,
//!   nor give back what another guest was told.
//! - It cannot be told anything that it does not ask for. So what it is told holds for a while
//!   only.
//!
//! Where there are several guests (*shared*), each looks after its own directories alone:
//!
//! - What they are told of names and attributes holds for no time at all. They keep data of files
//!   as long as size and time of the last change stay the same, which a clock that ticks cannot
//!   promise: see [`Service::dated`].
//! - Names go one at a time in a directory ([`Shared::claim`]), so that what loses its name is what
//!   was looked up, and is kept for those who know it.
//! - Who is told of an inode is counted first, and looks whether it has a name still then. Whoever
//!   takes the last name away looks who was counted after that: one of the two sees the other.

use super::{Answer, Attributes, Errno, Node, Service, Stays};
use crate::nodes::Nodes;
use crate::options::Options;
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Held, Metadata, Timestamp};
use extant_core::ops;
use extant_format::Ino;
use extant_sync::{Condvar, CountedAtomicU64, LockClass, Mutex, Rank, RmwClass};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

static KNOWN: LockClass = LockClass::new("inodes of a guest", Rank::Leaf);
static CLAIMS: LockClass = LockClass::new("directories that guests change", Rank::Leaf);
static TOLD: RmwClass = RmwClass::new("fuse times of guests");

/// How long attributes hold of which a guest that is alone knows all changes but those that an
/// `ioctl` makes.
const A_WHILE: Duration = Duration::from_secs(1);
/// How old a time of change is at most of which it is possible that the next change has the same:
/// twice the longest tick of Linux's clock.
const FRESH_NANOS: i128 = 20_000_000;
/// What takes the place of a fresh time lies in the same millisecond.
const MILLISECOND: u32 = 1_000_000;

/// One guest.
#[derive(Debug)]
pub(super) struct Guest {
    /// The inodes that it was told about, and how often.
    known: Mutex<HashMap<Ino, u64>>,
    /// What it has in common with others, if there may be any.
    shared: Option<Arc<Shared>>,
}

/// What guests of one file system have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Directories in which a name is about to go.
    claims: Mutex<Vec<Ino>>,
    changed: Condvar,
    told: CountedAtomicU64,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            claims: Mutex::new(&CLAIMS, Vec::new()),
            changed: Condvar::new(),
            told: CountedAtomicU64::new(&TOLD, 0),
        }
    }

    /// Waits until nobody else takes names from any of these directories. No lock is held
    /// afterwards, and who has a claim waits for no other.
    fn claim(&self, dirs: &[&Held]) -> Claim<'_> {
        let mut wanted: Vec<Ino> = dirs.iter().map(|dir| dir.ino()).collect();
        wanted.dedup();
        let mut claims = self.claims.lock();
        self.changed.wait_while(&mut claims, |claims| {
            claims.iter().any(|ino| wanted.contains(ino))
        });
        claims.extend(&wanted);
        Claim {
            shared: self,
            dirs: wanted,
        }
    }

    /// Makes a time of the same millisecond that no other call makes for a while.
    fn another(&self, time: Timestamp) -> Timestamp {
        let count = self.told.fetch_add(1, Relaxed);
        let within = u32::try_from(count % u64::from(MILLISECOND)).unwrap_or(0);
        let begin = time.nanos - time.nanos % MILLISECOND;
        let nanos = begin + within;
        let is_same = nanos == time.nanos;
        Timestamp {
            nanos: if is_same {
                begin + (within + 1) % MILLISECOND
            } else {
                nanos
            },
            ..time
        }
    }
}

/// Directories from which nobody else takes names.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    shared: &'a Shared,
    dirs: Vec<Ino>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut claims = self.shared.claims.lock();
        claims.retain(|ino| !self.dirs.contains(ino));
        drop(claims);
        self.shared.changed.notify_all();
    }
}

fn nanos_of(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

impl Service {
    /// Makes the service for one guest. `nodes` is what all guests know, and `shared` is there if
    /// there may be others.
    pub(crate) fn for_guest(
        fs: Arc<Fs>,
        options: &Options,
        nodes: Arc<Nodes>,
        shared: Option<Arc<Shared>>,
    ) -> Self {
        let none = Duration::ZERO;
        let stays = match shared {
            None => Stays {
                attributes: A_WHILE,
                ..Stays::FOREVER
            },
            Some(_) => Stays {
                names: none,
                attributes: none,
            },
        };
        Self {
            nodes,
            stays,
            guest: Some(Guest {
                known: Mutex::new(&KNOWN, HashMap::new()),
                shared,
            }),
            // Users of the guest are none of this machine.
            owner: 0,
            ..Self::new(fs, options)
        }
    }

    /// Tells whether the kernel that asks is a guest's.
    pub(super) fn is_guest(&self) -> bool {
        self.guest.is_some()
    }

    fn shared(&self) -> Option<&Shared> {
        self.guest.as_ref()?.shared.as_deref()
    }

    /// Returns the inode of a node, if the kernel that asks was told about it.
    pub(super) fn known(&self, node: Node) -> Answer<Ino> {
        let ino = node.ino()?;
        match &self.guest {
            Some(guest) if node != Node::ROOT && !guest.known.lock().contains_key(&ino) => {
                Err(Errno::STALE)
            }
            _ => Ok(ino),
        }
    }

    /// Counts an entry for an inode that goes to the kernel. It is counted for all guests first:
    /// what this one gives back meanwhile is never more than what all have of it.
    pub(super) fn remember(&self, ino: Ino) {
        self.nodes.remember(ino.get());
        if let Some(guest) = &self.guest {
            let mut known = guest.known.lock();
            let count = known.entry(ino).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Takes entries of an inode back. Returns how many of `count` it had.
    pub(super) fn given(&self, ino: Ino, count: u64) -> u64 {
        let Some(guest) = &self.guest else {
            return count;
        };
        let mut known = guest.known.lock();
        let Some(had) = known.get_mut(&ino) else {
            return 0;
        };
        let given = count.min(*had);
        *had -= given;
        if *had == 0 {
            known.remove(&ino);
        }
        given
    }

    /// Takes back all that the kernel was told about.
    pub(crate) fn forget_all(&self) {
        let held: Vec<Held> = match &self.guest {
            None => self.nodes.clear(),
            Some(guest) => {
                let known = std::mem::take(&mut *guest.known.lock());
                let forget = |(ino, count): (Ino, u64)| self.nodes.forget(ino.get(), count);
                known.into_iter().filter_map(forget).collect()
            }
        };
        for held in held {
            self.release(held);
        }
    }

    /// Keeps other guests from taking names away in these directories as long as what this returns
    /// is there. The kernel of a guest that is alone does so itself.
    pub(super) fn claim(&self, dirs: &[&Held]) -> Option<Claim<'_>> {
        Some(self.shared()?.claim(dirs))
    }

    /// Tells whether another guest has taken the last name of an inode away before it was counted
    /// that this one knows it.
    pub(super) fn has_lost_its_name(&self, found: &Attributes) -> bool {
        if self.shared().is_none() {
            return false;
        }
        let told = &found.metadata;
        let now = self
            .fs
            .with_inode(told.ino, |inode| ops::stat(&self.fs, inode));
        !now.is_ok_and(|now| now.links > 0 && now.generation == told.generation)
    }

    /// Gives up the hold on an inode that was handed out, which others may have taken the last name
    /// of.
    pub(super) fn hand_back(&self, held: Held) {
        if self.shared().is_some() {
            self.keep_if_unnamed(held);
        } else {
            self.release(held);
        }
    }

    /// Puts another time into attributes of a file that several guests may have data of, where the
    /// next change may get the same time: one that the file never has afterwards, and that no other
    /// guest is told. A guest that looks again sees that it is not the same, and asks for the data
    /// again.
    pub(super) fn dated(&self, metadata: Metadata) -> Metadata {
        let Some(shared) = self.shared() else {
            return metadata;
        };
        let age = nanos_of(ops::now()) - nanos_of(metadata.mtime);
        let is_fresh = (-FRESH_NANOS..FRESH_NANOS).contains(&age);
        if metadata.file_type != FileType::Regular || !is_fresh {
            return metadata;
        }
        Metadata {
            mtime: shared.another(metadata.mtime),
            ..metadata
        }
    }
}
