//! Fast commits: what a journal says besides whole blocks.
//!
//! Their records are applied by the engine itself, which runs for that over a device that keeps
//! what is written in memory, without a journal. What it wrote is either shown to whoever only
//! reads, or committed to the real log as one transaction, the very one that the fast commits
//! stand for: from then on they are void. So a crash at any moment leaves either all of them to be
//! applied again, to the same state, or none.
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
//! As under Linux, a record about an inode or a directory that is not there means nothing: it came to and
//! went within the transaction. An inode that has no name at the end is deleted.

mod maps;
mod names;
mod ranges;

use super::open::read_superblock;
use super::{Fs, MountOptions, SuperblockChoice, policy, writable};
use crate::inode::Held;
use crate::journal::Seq;
use crate::{Error, Result};
use extant_blockdev::{OverlayDevice, SharedDevice};
use extant_format::Ino;
use extant_format::features::Incompat;
use extant_format::jbd2::FastCommitRecord;
use extant_jbd2::FastCommits;
use maps::Claims;
use ranges::Ranges;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `base`, on which the log is replayed, with the fast commits applied in memory.
///
/// # Errors
/// [`Error::Unsupported`] when the file system has features that the engine only reads;
/// [`Error::Corrupt`] when the records contradict the file system; [`Error::Device`].
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
    let size = superblock.block_size();
    let overlay = OverlayDevice::new(Arc::clone(base), size.bytes()).keep_writes();
    let overlay = Arc::new(overlay);
    let device: SharedDevice = Arc::<OverlayDevice>::clone(&overlay);
    let first = Seq::new(writable::FIRST_SEQ);
    let fs = Fs::writable(device, superblock, options, None, first)?;
    fs.find_orphans()?;
    let mut replay = Replay::new(&fs, found)?;
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
    tracing::info!(records = count, "applied fast commits");
    Ok(overlay)
}

/// Records being applied.
struct Replay<'f> {
    fs: &'f Fs,
    /// Inodes that records were about.
    held: BTreeMap<Ino, Held>,
    /// What records say about the maps of inodes.
    ranges: BTreeMap<Ino, Ranges>,
    claims: Claims<'f>,
}

impl<'f> Replay<'f> {
    fn new(fs: &'f Fs, found: &FastCommits) -> Result<Self> {
        Ok(Self {
            fs,
            held: BTreeMap::new(),
            ranges: BTreeMap::new(),
            claims: Claims::of(fs, found)?,
        })
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
            && raw_generation(raw) != held.id().generation
        {
            // The number has gone to another inode, so the one before has no name any more.
            drop(known.take());
            self.delete(ino)?;
        }
        let handle = self.fs.start(Fs::ADOPT_CREDITS)?;
        let held = self.fs.adopt_inode(&handle, known.as_ref(), ino, raw)?;
        drop(handle);
        self.held.insert(ino, held);
        Ok(())
    }

    /// Deletes an inode that has no names.
    fn delete(&mut self, ino: Ino) -> Result<()> {
        self.ranges.remove(&ino);
        match self.held.remove(&ino) {
            Some(held) if held.claim_last() => {
                let handle = self.fs.start(1)?;
                held.live()
                    .update(&handle, |inode| inode.disk_mut().links = 0)?;
                drop(handle);
                self.fs.delete(held.live())
            }
            _ => Ok(()),
        }
    }

    /// Brings the maps up to date, and deletes what has no name.
    fn finish(mut self) -> Result<()> {
        self.settle_maps()?;
        let unnamed: Vec<Ino> = self
            .held
            .iter()
            .filter(|(_, held)| held.snapshot().disk().links == 0)
            .map(|(ino, _)| *ino)
            .collect();
        unnamed.into_iter().try_for_each(|ino| self.delete(ino))
    }
}

/// Where the generation lies in a record.
const GENERATION_AT: usize = 0x64;

fn raw_generation(raw: &[u8]) -> u32 {
    let bytes = raw.get(GENERATION_AT..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The error for records that contradict the file system.
fn contradiction(ino: Ino, field: &'static str, found: u64, said: &'static str) -> Error {
    use crate::Place;
    use extant_format::{Expected, FormatError, Structure};
    let expected = Expected::Said(said);
    let source = FormatError::new(Structure::FastCommit, field, found, expected);
    Error::corrupt(Place::Inode(ino), source)
}
