//! Times of access that only memory has, until something else changes the record or everything is
//! made durable.
//!
//! An inode with such a time stays in memory until then.

use super::{Held, Inode, InodeId};
use crate::Result;
use crate::fs::Fs;
use extant_sync::{LockClass, Mutex, Rank};

static LISTED: LockClass = LockClass::new("lazy times", Rank::Leaf);

/// Inodes listed from which on they are written.
const MOST: usize = 1 << 14;

/// Inodes whose records have times that are in no transaction.
#[derive(Debug)]
pub(crate) struct LazyTimes {
    listed: Mutex<Vec<InodeId>>,
}

impl LazyTimes {
    pub(crate) fn new() -> Self {
        Self {
            listed: Mutex::new(&LISTED, Vec::new()),
        }
    }

    /// Whether there are too many by now.
    fn add(&self, id: InodeId) -> bool {
        let mut listed = self.listed.lock();
        listed.push(id);
        listed.len() >= MOST
    }

    fn take(&self) -> Vec<InodeId> {
        std::mem::take(&mut *self.listed.lock())
    }
}

impl Fs {
    /// Changes times in the record, in memory only.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(crate) fn note_lazily(&self, held: &Held, set: impl FnOnce(&mut Inode)) -> Result<()> {
        let lazy = self.lazy_times()?;
        if held.live().update_in_memory(set) && lazy.add(held.id()) {
            self.write_lazy_times();
        }
        Ok(())
    }

    /// Brings all such times into the running transaction. What fails is no loss but of times.
    pub(crate) fn write_lazy_times(&self) {
        let Ok(lazy) = self.lazy_times() else { return };
        for id in lazy.take() {
            let Ok(held) = self.hold_same(id) else {
                continue;
            };
            held.live().forget_lazy();
            let written = self
                .start(1)
                .and_then(|handle| held.live().update(&handle, |_| ()));
            if let Err(error) = written {
                crate::event!(debug, %error, "a time of access to inode {} was lost", held.ino());
            }
        }
    }
}
