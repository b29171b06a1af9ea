//! Making data of reserved blocks that were written past memory.
//!
//! A write to reserved blocks is over when they count as data. Writers that come to that at the
//! same time are served by one of them, with one handle: each notes its blocks, then takes the
//! file's writeback lock, and a writer that finds that another one has seen to them meanwhile is
//! done.
//!
//! # Invariants
//!
//! - Blocks are on the device before they are noted, and the writer that noted them holds `op`
//!   until they are converted.

use crate::data::cache::FileCache;
use crate::data::io::{WriteIo, blocks_of};
use crate::data::through::write;
use crate::data::writeback::{WritebackRun, WritebackState};
use crate::fs::Fs;
use crate::inode::LiveInode;
use crate::map::{self, MapGuard, Mapping, Target};
use crate::{Error, Result};
use extant_sync::{LockClass, Mutex, Rank};
use std::ops::Range;
use std::sync::Arc;

static WAITING: LockClass = LockClass::new("blocks to convert", Rank::Leaf);

/// Ranges of blocks that are to be converted together at most.
const MOST: usize = 64;

/// Blocks of a file that were written and are reserved still.
#[derive(Debug)]
pub(in crate::data) struct Waiting(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// The number of the next.
    next: u64,
    blocks: Vec<(u64, Range<u64>)>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self(Mutex::new(&WAITING, Noted::default()))
    }
}

impl Waiting {
    /// Sees to it that `blocks`, which are on the device, count as data. `op` is held.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there is no room for the map; when the map breaks the format, or the
    /// device or the journal fails.
    pub(in crate::data) fn convert(
        &self,
        fs: &Fs,
        live: &Arc<LiveInode>,
        file: &FileCache,
        blocks: Range<u64>,
    ) -> Result<()> {
        let own = {
            let mut noted = self.0.lock();
            let own = noted.next;
            noted.next += 1;
            noted.blocks.push((own, blocks.clone()));
            own
        };
        let _quiet = file.quiesce();
        let batch = {
            let mut noted = self.0.lock();
            let Some(at) = noted.blocks.iter().position(|&(number, _)| number == own) else {
                return Ok(());
            };
            let most = noted.blocks.len().min(MOST);
            // Ours is among them.
            noted.blocks.swap(0, at);
            noted.blocks.drain(..most).collect::<Vec<_>>()
        };
        let mut ranges: Vec<_> = batch.iter().map(|(_, blocks)| blocks.clone()).collect();
        let converted = convert(fs, live, &mut ranges);
        if converted.is_err() && batch.len() > 1 {
            // Each to its own: a writer that fails is told, and no other.
            let others = batch.into_iter().filter(|&(number, _)| number != own);
            self.0.lock().blocks.extend(others);
            return convert(fs, live, &mut [blocks]);
        }
        converted
    }
}

/// Converts what is reserved of `ranges`, with as few handles as that takes. The caller keeps
/// others from writing the file back.
fn convert(fs: &Fs, live: &Arc<LiveInode>, ranges: &mut [Range<u64>]) -> Result<()> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges.iter() {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range.clone()),
        }
    }
    let io = WriteIo::new(fs, live)?;
    let pieces = io.reserved(&joined)?;
    let mut rest = &pieces[..];
    while !rest.is_empty() {
        let image = live.snapshot();
        let (count, credits) = io.fitting(&image, rest)?;
        let (now, after) = rest.split_at(count);
        let handle = fs.start(credits)?;
        let guard = MapGuard::lock(live);
        let edit = |tree: &mut map::Tree<'_>| {
            now.iter()
                .try_for_each(|piece| tree.convert(&(piece.lblk..piece.end())))
        };
        map::change(&handle, live, &guard, Vec::new(), edit, |_| ())?;
        rest = after;
    }
    Ok(())
}

impl WriteIo<'_> {
    /// Returns what is reserved of `ranges`, in blocks, which ascend.
    fn reserved(&self, ranges: &[Range<u64>]) -> Result<Vec<WritebackRun>> {
        let runs = map::stable(self.live, |image| map::runs_of_all(self.fs, image, ranges))?;
        let pieces = runs.into_iter().filter_map(|(run, leaf)| match run.target {
            Target::Unwritten(pblk) => Some(WritebackRun {
                lblk: run.lblk.get().into(),
                len: u32::try_from(run.len).unwrap_or(u32::MAX),
                pblk,
                kind: WritebackState::Unwritten,
                leaf,
            }),
            Target::Written(_) | Target::Hole => None,
        });
        Ok(pieces.collect())
    }

    /// Writes the first reserved blocks of a range that begins with such, at byte `offset`, and
    /// makes data of all of the reserved extent they lie in: for that there is always room. `false`
    /// if the range begins otherwise. `op` is held exclusively, and others are kept from writing
    /// the file back.
    pub(in crate::data) fn write_reserved(&self, offset: u64, buf: &[u8]) -> Result<bool> {
        self.cache.commit_detached(self.fs)?;
        let bytes = offset..offset + buf.len() as u64;
        let blocks = blocks_of(self.fs, &bytes);
        let runs = map::stable(self.live, |image| {
            map::runs_of(self.fs, image, blocks.clone())
        })?;
        let Some((run, pblk)) = runs.first().and_then(reserved_run) else {
            return Ok(false);
        };
        let end = bytes.end.min(run.end() << self.log2);
        let data = buf.get(..(end - offset) as usize).unwrap_or(buf);
        let failures = self.fs.flush_failures();
        let piece = write::run_at(run, pblk, write::RunState::Unwritten);
        write::write_runs(self.fs, &[piece], &(offset..end), data)?;
        self.live.note_data(self.fs, failures);
        let piece = WritebackRun {
            lblk: run.lblk.get().into(),
            len: u32::try_from(run.len).map_err(|_| Error::FileTooLarge)?,
            pblk,
            kind: WritebackState::Unwritten,
            leaf: 0,
        };
        self.convert_whole(&[piece])
    }
}

fn reserved_run(run: &Mapping) -> Option<(&Mapping, extant_format::Pblk)> {
    match run.target {
        Target::Unwritten(pblk) => Some((run, pblk)),
        Target::Written(_) | Target::Hole => None,
    }
}
