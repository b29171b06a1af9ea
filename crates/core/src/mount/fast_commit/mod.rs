//! Fast commits: what a journal says besides whole blocks.
//!
//! Their records are applied by the engine itself, which runs for that over a device that keeps
//! what is written in memory, without a journal. What it wrote is either shown to readers, or
//! committed to the real log as one transaction, the very one that the fast commits stand for: from
//! then on they are void. So a crash at any moment leaves either all of them to be applied again,
//! to the same state, or none.
//!
//! | file | owns |
//! |---|---|
//! | `ranges` | where the records say that blocks of a file lie |
//! | `maps` | changing the maps to that |
//! | `names` | directory entries that come and go |
//!
//! # What the records mean
//!
//! They are applied in their order, but for blocks: what an inode maps is worked out first, and
//! its map is changed at the end, once. All blocks that records name are taken beforehand, so that
//! nothing that the engine needs for directories and maps gets them.
//!
//! As under Linux, a record about an inode or a directory that is not there means nothing: it came
//! to and went within the transaction. But a name may come before the record of its inode, for
//! which it waits then: of files made without a name Linux records names and content, not the
//! creation.
//!
//! A new inode has as many links as records give it names, whatever its own record says. An inode
//! that has no name at the end becomes an orphan, which the next to open the file system for
//! writing deletes.
//!
//! # Bounds
//!
//! What is changed has to fit into the log as one transaction. Replay stops as soon as it has
//! written more.

mod maps;
mod names;
mod ranges;

use super::open::read_superblock;
use super::writable;
use crate::fs::Handle;
use crate::fs::{Fs, MountOptions, SuperblockChoice, policy};
use crate::inode::Held;
use crate::meta::Seq;
use crate::{Error, Result};
use extant_blockdev::{OverlayDevice, SharedDevice};
use extant_format::Ino;
use extant_format::features::{Incompat, RoCompat};
use extant_format::jbd2::FastCommitRecord;
use extant_jbd2::FastCommits;
use maps::Claims;
use names::Names;
use ranges::Ranges;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `base`, on which the log is replayed, with the fast commits applied in memory.
///
/// # Errors
/// [`Error::Unsupported`] when the file system has features that the engine only reads, or more
/// changes than the log has room for; [`Error::Corrupt`] when the records contradict the file
/// system; [`Error::Device`].
pub(super) fn apply(
    base: &SharedDevice,
    options: &MountOptions,
    found: &FastCommits,
) -> Result<Arc<OverlayDevice>> {
    let superblock = read_superblock(base, SuperblockChoice::Primary)?;
    policy::check_writable(superblock.features())?;
    if superblock.has_incompat(Incompat::INLINE_DATA) {
        return Err(Error::Unsupported {
            features: "fast commits with inline_data".to_owned(),
        });
    }
    if superblock.has_ro_compat(RoCompat::BIGALLOC) {
        return Err(Error::Unsupported {
            features: "fast commits with bigalloc".to_owned(),
        });
    }
    if superblock.has_ro_compat(RoCompat::QUOTA) {
        return Err(Error::Unsupported {
            features: "fast commits with quota".to_owned(),
        });
    }
    let size = superblock.block_size();
    let overlay = OverlayDevice::new(Arc::clone(base), size.bytes()).keep_writes();
    let overlay = Arc::new(overlay);
    let device: SharedDevice = Arc::<OverlayDevice>::clone(&overlay);
    let first = Seq::new(writable::FIRST_SEQ);
    let fs = Fs::writable(device, superblock, options, (None, &[]), first, None)?;
    fs.find_orphans()?;
    let most = u64::from(found.log_blocks()) * u64::from(size.bytes());
    let mut replay = Replay {
        fs: &fs,
        overlay: &overlay,
        most,
        held: BTreeMap::new(),
        fresh: BTreeSet::new(),
        names: Names::default(),
        ranges: BTreeMap::new(),
        claims: Claims::of(&fs, found)?,
    };
    let mut count = 0_u64;
    for record in found.records() {
        replay.record(&record)?;
        count += 1;
    }
    replay.finish()?;
    fs.sync()?;
    if let Some(error) = fs.journal()?.stopped() {
        return Err(error.clone());
    }
    if overlay.memory_bytes() > most {
        return Err(too_large());
    }
    crate::event!(info, records = count, "applied fast commits");
    Ok(overlay)
}

/// Records being applied.
struct Replay<'f> {
    fs: &'f Fs,
    /// What `fs` writes to.
    overlay: &'f OverlayDevice,
    /// Most bytes that may be written.
    most: u64,
    /// Inodes that records were about.
    held: BTreeMap<Ino, Held>,
    /// Those that were not there before.
    fresh: BTreeSet<Ino>,
    names: Names,
    /// What records say about the maps of inodes.
    ranges: BTreeMap<Ino, Ranges>,
    claims: Claims<'f>,
}

impl<'f> Replay<'f> {
    /// Begins a change, unless there were too many.
    fn start(&self, credits: u32) -> Result<Handle<'f>> {
        if self.overlay.memory_bytes() > self.most {
            return Err(too_large());
        }
        self.fs.start(credits)
    }

    fn record(&mut self, record: &FastCommitRecord<'_>) -> Result<()> {
        match *record {
            FastCommitRecord::Inode { ino, raw } => self.inode_record(ino, raw),
            FastCommitRecord::AddRange {
                ino,
                lblk,
                len,
                unwritten,
                start,
            } => {
                let ranges = self.ranges.entry(ino).or_default();
                ranges.map(lblk, len.into(), start, unwritten);
                Ok(())
            }
            FastCommitRecord::DelRange { ino, lblk, len } => {
                self.ranges.entry(ino).or_default().unmap(lblk, len);
                Ok(())
            }
            FastCommitRecord::Create(change) => self.create(&change),
            FastCommitRecord::Link(change) => self.link(&change),
            FastCommitRecord::Unlink(change) => self.unlink(&change),
            FastCommitRecord::Pad { .. }
            | FastCommitRecord::Tail { .. }
            | FastCommitRecord::Head { .. } => Ok(()),
        }
    }

    /// The inode of this number, if there is one.
    fn inode(&mut self, ino: Ino) -> Result<Option<Held>> {
        if let Some(held) = self.held.get(&ino) {
            return Ok(Some(held.clone()));
        }
        let held = self.fs.hold_any(ino)?;
        if let Some(held) = &held {
            self.held.insert(ino, held.clone());
        }
        Ok(held)
    }

    fn inode_record(&mut self, ino: Ino, raw: &[u8]) -> Result<()> {
        let mut known = self.inode(ino)?;
        if let Some(held) = &known
            && !self.fs.is_record_of(held, raw)?
        {
            // The number has gone to another inode, so the one before has no name any more.
            drop(known.take());
            self.names.forget(ino);
            self.delete(ino)?;
        }
        if known.is_none() {
            self.fresh.insert(ino);
        }
        let handle = self.start(Fs::ADOPT_CREDITS)?;
        let held = self.fs.adopt_inode(&handle, known.as_ref(), ino, raw)?;
        drop(handle);
        self.held.insert(ino, held.clone());
        self.link_waiting(&held)
    }

    /// Deletes an inode whose number another one gets.
    fn delete(&mut self, ino: Ino) -> Result<()> {
        self.ranges.remove(&ino);
        match self.held.remove(&ino) {
            Some(held) if held.claim_last() => {
                let handle = self.start(1)?;
                held.live()
                    .update(&handle, |inode| inode.disk_mut().links = 0)?;
                drop(handle);
                self.fs.delete(held.live())
            }
            _ => Ok(()),
        }
    }

    /// Brings the maps up to date, and makes orphans of what has no name.
    fn finish(mut self) -> Result<()> {
        self.apply_maps()?;
        self.link_all_waiting()?;
        for (ino, held) in &self.held {
            let said = held.snapshot().disk().links;
            let given = self.names.count(*ino);
            let links = match (self.fresh.contains(ino), held.is_dir()) {
                (true, true) if given == 0 => 0,
                (true, false) => given,
                (_, true) => said,
                (false, false) => said.max(given),
            };
            if links == said && links > 0 {
                continue;
            }
            let handle = self.start(self.fs.orphan_credits() + 1)?;
            names::set_links(&handle, held, |_| links)?;
            if links == 0 {
                self.fs.orphan_add(&handle, held.live())?;
            }
        }
        Ok(())
    }
}

/// The error for more changes than one transaction can have.
pub(super) fn too_large() -> Error {
    Error::Unsupported {
        features: "fast commits that change more than the log has room for (replay them under Linux first: mount \
                   the file system once, or run e2fsck on it)"
            .to_owned(),
    }
}

/// The error for records that contradict the file system.
fn contradiction(ino: Ino, field: &'static str, found: u64, said: &'static str) -> Error {
    use crate::Place;
    use extant_format::{Expected, FormatError, Structure};
    let expected = Expected::Said(said);
    let source = FormatError::new(Structure::FastCommit, field, found, expected);
    Error::corrupt(Place::Inode(ino), source)
}
