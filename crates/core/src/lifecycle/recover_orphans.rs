//! Orphans that a crash left.
//!
//! Those without names are deleted, the others truncated to their size, which is what the crash
//! interrupted.
//!
//! # Invariants
//!
//! - Nothing that is found is believed: each inode must be one that files may have, in use, and
//!   noted once. What cannot be right is reported and no longer followed, so that a chain that
//!   bites its own tail ends.
//! - Memory is some words for each orphan, all of which have records of their own on the device.

use crate::data::finish_truncate;
use crate::fs::Fs;
use crate::inode::{FileType, LiveInode};
use crate::inode::{Membership, Orphans};
use crate::{Error, Place, Result};
use extant_format::{Expected, FormatError, Ino, Structure};
use std::collections::HashSet;
use std::sync::Arc;

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Inodes without names that were deleted.
    pub(crate) deleted: u64,
    /// Inodes that were truncated to their size.
    pub(crate) truncated: u64,
    /// Notes that could not be right, or whose inodes could not be finished.
    pub(crate) failed: u64,
}

impl Fs {
    /// Finishes what a crash interrupted: see the [module](self). For a file system just opened for
    /// writing, its log replayed, before anything else changes it.
    ///
    /// Damage is reported as [`Fs::report`] does and does not keep others from being finished.
    ///
    /// # Errors
    /// When the device fails or nothing can be committed.
    pub(crate) fn recover_orphans(&self) -> Result<Recovered> {
        let (found, failed) = self.find_orphans()?;
        let mut recovered = Recovered {
            failed,
            ..Recovered::default()
        };
        for live in &found {
            let named = live.snapshot().disk.links > 0;
            let count = match self.finish(live) {
                Ok(()) if named => &mut recovered.truncated,
                Ok(()) => &mut recovered.deleted,
                // Also one whose deletion is larger than the journal: no reason to refuse the
                // others.
                Err(e)
                    if e.is_corruption()
                        || matches!(e, Error::Unsupported { .. } | Error::InvalidInput(_)) =>
                {
                    crate::event!(warn, inode = live.ino().get(), error = %e, "an orphan stays");
                    if e.is_corruption() {
                        self.report(&e);
                    }
                    &mut recovered.failed
                }
                Err(e) => return Err(e),
            };
            *count += 1;
        }
        if recovered != Recovered::default() {
            crate::event!(
                info,
                deleted = recovered.deleted,
                truncated = recovered.truncated,
                failed = recovered.failed,
                "finished what a crash interrupted"
            );
        }
        Ok(recovered)
    }

    /// Brings what is noted into memory, where it stays: the inodes, and how many notes were wrong.
    ///
    /// # Errors
    /// As for [`Fs::recover_orphans`].
    pub(crate) fn find_orphans(&self) -> Result<(Vec<Arc<LiveInode>>, u64)> {
        let orphans = self.orphans()?;
        let mut search = Search {
            fs: self,
            seen: HashSet::new(),
            failed: 0,
        };
        let listed = search.list(orphans)?;
        let (filed, wrong) = search.file(orphans)?;
        orphans.list.install(&listed);
        for (live, slot) in &filed {
            live.set_membership(Membership::File { slot: *slot });
        }
        if let (Some(file), false) = (&orphans.file, wrong.is_empty()) {
            for (slot, ino) in wrong {
                let handle = self.start(1)?;
                file.clear(&handle, slot, ino);
            }
        }
        orphans.count_found(listed.len(), filed.len());
        let filed = filed.into_iter().map(|(live, _)| live);
        Ok((listed.into_iter().chain(filed).collect(), search.failed))
    }

    fn finish(&self, live: &Arc<LiveInode>) -> Result<()> {
        let image = live.snapshot();
        if image.disk.links == 0 {
            // Just loaded: nobody holds it.
            return if live.claim_if_unheld() {
                self.delete(live)
            } else {
                Ok(())
            };
        }
        if image.file_type() == FileType::Regular && !image.is_inline() {
            return finish_truncate(self, live);
        }
        let handle = self.start(self.orphan_credits())?;
        self.orphan_remove(&handle, live)
    }
}

struct Search<'a> {
    fs: &'a Fs,
    seen: HashSet<Ino>,
    failed: u64,
}

impl Search<'_> {
    /// The inodes of the list, first to last, up to the first that cannot be on it.
    fn list(&mut self, orphans: &Orphans) -> Result<Vec<Arc<LiveInode>>> {
        let mut found = Vec::new();
        let mut next = orphans.head();
        while let Some(ino) = next {
            match self.orphan(ino) {
                Ok((live, follower)) => {
                    found.push(live);
                    next = follower;
                }
                Err(e) if e.is_corruption() => {
                    self.give_up(&e);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(found)
    }

    /// The inodes of the orphan file with their slots, and slots that hold what cannot be there.
    #[expect(
        clippy::type_complexity,
        reason = "two lists of pairs, taken apart at once"
    )]
    fn file(&mut self, orphans: &Orphans) -> Result<(Vec<(Arc<LiveInode>, u64)>, Vec<(u64, Ino)>)> {
        let mut found = Vec::new();
        let mut wrong = Vec::new();
        for (slot, ino) in orphans.file.iter().flat_map(|file| file.orphans()) {
            match self.orphan(ino) {
                Ok((live, _)) => found.push((live, slot)),
                Err(e) if e.is_corruption() => {
                    self.give_up(&e);
                    wrong.push((slot, ino));
                }
                Err(e) => return Err(e),
            }
        }
        Ok((found, wrong))
    }

    fn give_up(&mut self, error: &Error) {
        crate::event!(warn, %error, "a note of an orphan is left out");
        self.fs.report(error);
        self.failed += 1;
    }

    /// An inode that is noted as an orphan, and the one its record names as the next.
    fn orphan(&mut self, ino: Ino) -> Result<(Arc<LiveInode>, Option<Ino>)> {
        let wrong = |said| {
            let found = ino.get().into();
            let source = FormatError::new(Structure::Inode, "orphan", found, Expected::Said(said));
            Error::corrupt(Place::Inode(ino), source)
        };
        let superblock = self.fs.superblock();
        let special = Some(ino) == superblock.orphan_file_ino() || ino < superblock.first_ino();
        if special || ino.get() > superblock.inodes_count() {
            return Err(wrong("an inode that files may have"));
        }
        if !self.seen.insert(ino) {
            return Err(wrong("an inode that is noted once"));
        }
        if !self.fs.alloc()?.is_inode_in_use(ino)? {
            return Err(wrong("an inode in use"));
        }
        let turn = self.fs.inode_table().turn(ino);
        let loaded = Arc::new(self.fs.load_orphan(ino)?);
        let next = match loaded.membership() {
            Membership::List { next, .. } if next != 0 => Some(Ino::new(next)),
            _ => None,
        };
        let live = self.fs.inode_table().insert(loaded, turn);
        // Nothing has been forgotten since: nobody but recovery is there.
        Ok((live.ok_or(Error::Stale)?, next))
    }
}
