//! Asking before an owner uses more.

use super::{Granted, Reason, Share};
use crate::alloc::Alloc;
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::inode::{Inode, LiveInode};
use crate::{Error, Result};
use extant_format::Ino;
use extant_sync::pin;

/// What an inode is let in with, and kept for it while this lives; `None` where nobody is held to
/// limits.
pub(crate) type Admission<'f> = Option<Granted<'f>>;

impl Fs {
    /// Why the thread has owners use more.
    pub(crate) fn reason(&self) -> Reason {
        if self.alloc_if_any().is_some_and(Alloc::is_limited) {
            Reason::Asked
        } else {
            Reason::LetIn
        }
    }

    /// User, group and project of an inode.
    pub(crate) fn owners_of(&self, live: &LiveInode) -> [u32; 3] {
        let guard = pin();
        Share::of(live.image(&guard), self.block_size()).owners()
    }

    /// Lets a change in that gives an inode up to `blocks` more, until the result is dropped.
    /// Before the record changes.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn admit_blocks(&self, live: &LiveInode, blocks: u64) -> Result<Admission<'_>> {
        match self.ledger() {
            Some(_) if blocks > 0 => {
                self.admit_new_blocks(live.ino(), self.owners_of(live), blocks)
            }
            _ => Ok(None),
        }
    }

    /// Admits blocks of an inode that is about to be made and will have these owners.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn admit_new_blocks(
        &self,
        ino: Ino,
        owners: [u32; 3],
        blocks: u64,
    ) -> Result<Admission<'_>> {
        let Some(ledger) = self.ledger() else {
            return Ok(None);
        };
        if blocks == 0 || !self.has_owner(ino) {
            return Ok(None);
        }
        let bytes = blocks << self.block_size().log2();
        let granted = ledger.grant(ino, owners, bytes, self.reason());
        granted.map(Some)
    }

    /// How many blocks of the `wanted` an inode may get now, whole clusters, if it is about to get
    /// `taken`. Of the last ones a cluster is left for mapping the others: it can be had, too, when
    /// those are mapped.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`] when it is none.
    pub(crate) fn admissible(
        &self,
        image: &Inode,
        wanted: u32,
        taken: &[Taken<'_>],
    ) -> Result<u32> {
        let ledger = self
            .ledger()
            .filter(|_| self.alloc_if_any().is_some_and(Alloc::is_limited));
        let Some(ledger) = ledger else {
            return Ok(wanted);
        };
        let owners = Share::of(image, self.block_size()).owners();
        let bits = self.cluster_size().bits();
        let taken: u64 = taken.iter().map(|taken| u64::from(taken.clusters())).sum();
        let room = ledger.room(image.ino(), owners) >> (self.block_size().log2() + bits);
        let clusters = match (room.saturating_sub(taken), taken) {
            (0, _) | (1, 1..) => return Err(Error::QuotaExceeded),
            (1, 0) => 1,
            (left, _) => left - 1,
        };
        let blocks = u32::try_from(clusters << bits).unwrap_or(u32::MAX);
        Ok(blocks.min(wanted))
    }

    /// Lets a change in that gives an inode `values` more in inodes of their own, each of which
    /// counts as one, until the result is dropped. Before the record changes.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn admit_values(&self, live: &LiveInode, values: u64) -> Result<Admission<'_>> {
        let Some(ledger) = self.ledger() else {
            return Ok(None);
        };
        if values == 0 || !self.has_owner(live.ino()) {
            return Ok(None);
        }
        let expected = ledger.expect(self.owners_of(live), values, self.reason());
        expected.map(Some)
    }

    /// Lets an inode have other owners, until the result is dropped. Its `op` is held exclusively.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; those of reading its attributes.
    pub(crate) fn admit_owners(&self, live: &LiveInode, to: [u32; 3]) -> Result<Admission<'_>> {
        let Some(ledger) = self.ledger() else {
            return Ok(None);
        };
        live.begin_counting(self)?;
        let now = Share::of(&live.copy(), self.block_size());
        if now.owners() == to || !self.has_owner(live.ino()) {
            return Ok(None);
        }
        (ledger.expect_move(live.ino(), now, to, self.reason())).map(Some)
    }

    /// Lets an inode in that will have these owners, until the result is dropped.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(super) fn admit_inode(&self, owners: [u32; 3]) -> Result<Admission<'_>> {
        let expected = self
            .ledger()
            .map(|ledger| ledger.expect(owners, 1, self.reason()));
        expected.transpose()
    }
}
