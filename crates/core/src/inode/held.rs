//! Holds on inodes in memory.

use super::LiveInode;
use super::orphan::Reaper;
use extant_sync::pin;
use std::ops::Deref;
use std::sync::Arc;

/// A hold on an inode: while there is one the inode stays in memory, and if its last name goes its
/// content stays until the last hold is gone. What an open file has.
///
/// Dropping the last hold of an inode without names only notes that it is to be deleted, so a hold
/// may be dropped anywhere. [`Fs::reap`](crate::fs::Fs::reap) deletes it.
#[derive(Debug)]
pub struct Held {
    live: Arc<LiveInode>,
}

impl Held {
    /// A hold that has been counted.
    pub(super) fn of(live: Arc<LiveInode>) -> Self {
        Self { live }
    }

    /// The inode, shared.
    #[must_use]
    pub(crate) fn live(&self) -> &Arc<LiveInode> {
        &self.live
    }

    /// Claims the inode for its way out of memory, if this is the only hold. From then on nobody
    /// can take another one, this one cannot be cloned, and dropping it does nothing.
    pub(crate) fn claim_last(&self) -> bool {
        self.live.holds.claim_if(1)
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        // There is a hold already, so nobody can claim the inode.
        self.live.holds.hold_again();
        Self {
            live: Arc::clone(&self.live),
        }
    }
}

impl Deref for Held {
    type Target = LiveInode;

    fn deref(&self) -> &LiveInode {
        &self.live
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The thread that ends the last hold sees what the others did before they ended theirs.
        if self.live.holds.release() && self.live.reaper.get().is_some() {
            self.live.unheld();
        }
    }
}

impl LiveInode {
    /// Has `reaper` delete the inode when the last hold goes and there is no name.
    pub(super) fn delete_through(&self, reaper: &Arc<Reaper>) {
        self.reaper.get_or_init(|| Arc::clone(reaper));
    }

    /// Takes hold, unless the inode is leaving memory: then it comes back.
    pub(crate) fn try_hold(self: Arc<Self>) -> Result<Held, Arc<Self>> {
        if self.holds.try_hold() {
            Ok(Held { live: self })
        } else {
            Err(self)
        }
    }

    /// Claims the inode for its way out of memory, if nobody holds it. From then on nobody can.
    pub(crate) fn claim_if_unheld(&self) -> bool {
        self.holds.claim_if(0)
    }

    /// Ends a claim: the inode stays after all.
    pub(crate) fn unclaim(&self) {
        self.holds.unclaim();
    }

    /// Whether the inode is leaving memory, or has left it.
    #[must_use]
    pub(crate) fn is_leaving(&self) -> bool {
        self.holds.is_leaving()
    }

    /// How many hold it.
    #[must_use]
    pub(crate) fn holds(&self) -> u64 {
        self.holds.count()
    }

    /// The last hold is gone.
    #[cold]
    fn unheld(self: &Arc<Self>) {
        let unnamed = self.image.get(&pin()).disk.links == 0;
        if let (true, Some(reaper)) = (unnamed, self.reaper.get()) {
            reaper.push(Arc::clone(self));
        }
    }
}
