//! Maps become what the records say.

use super::{Replay, contradiction};
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::map::{self, MapGuard, Mapping, Move, Target};
use crate::{Error, Result};
use extant_format::extent::LBLK_END;
use extant_format::inode::InodeFlags;
use extant_format::jbd2::FastCommitRecord;
use extant_format::{Ino, Lblk, Pblk};
use extant_jbd2::FastCommits;
use std::collections::BTreeMap;
use std::ops::Range;

/// Most pieces of free blocks that records may name. Linux names what it has just allocated, which
/// is free as a whole.
const MOST_RUNS: usize = 1 << 18;

/// Blocks that records name and nobody owned before. Those that nobody gets in the end are free
/// again.
#[derive(Debug, Default)]
pub(super) struct Claims<'f> {
    /// By first block.
    runs: BTreeMap<u64, Taken<'f>>,
}

impl<'f> Claims<'f> {
    pub(super) fn of(fs: &'f Fs, found: &FastCommits) -> Result<Self> {
        let mut named: Vec<Range<u64>> = found
            .records()
            .filter_map(|record| match record {
                FastCommitRecord::AddRange { start, len, .. } => {
                    Some(start.get()..start.get() + u64::from(len))
                }
                _ => None,
            })
            .collect();
        named.sort_by_key(|run| run.start);
        let mut claims = Self::default();
        let mut upto = 0;
        for run in named {
            let start = run.start.max(upto);
            // Shorter than an extent.
            let len = run.end.saturating_sub(start) as u32;
            upto = upto.max(run.end);
            if len > 0 {
                for taken in fs.alloc()?.take_free_among(Pblk::new(start), len)? {
                    claims.runs.insert(taken.start().get(), taken);
                }
                if claims.runs.len() > MOST_RUNS {
                    return Err(super::too_large());
                }
            }
        }
        Ok(claims)
    }

    /// Takes these blocks out; `None` if not all of them are there.
    fn take(&mut self, start: Pblk, len: u32) -> Option<Vec<Taken<'f>>> {
        let mut all = Vec::new();
        let mut at = start.get();
        let end = at + u64::from(len);
        while at < end {
            let (first, _) = self.runs.range(..=at).next_back()?;
            let mut run = self.runs.remove(&first.clone())?;
            // Shorter than a group.
            let before = run.split_front((at - run.start().get()) as u32);
            if !before.is_empty() {
                self.runs.insert(before.start().get(), before);
            }
            if run.is_empty() {
                return None;
            }
            let part = run.split_front(u32::try_from(end - at).ok()?);
            at += u64::from(part.len());
            all.push(part);
            if !run.is_empty() {
                self.runs.insert(run.start().get(), run);
            }
        }
        Some(all)
    }

    /// The last blocks of `range` that lie side by side and are there.
    fn last_in(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (first, run) = self.runs.range(..range.end).next_back()?;
        let end = first + u64::from(run.len());
        let part = range.start.max(*first)..range.end.min(end);
        (!part.is_empty()).then_some(part)
    }

    /// Takes out those of these blocks that are there.
    fn take_among(&mut self, start: Pblk, len: u32) -> Vec<Taken<'f>> {
        let range = start.get()..start.get() + u64::from(len);
        let mut all = Vec::new();
        while let Some(part) = self.last_in(&range) {
            // Shorter than `range`.
            let len = (part.end - part.start) as u32;
            match self.take(Pblk::new(part.start), len) {
                Some(taken) => all.extend(taken),
                None => break,
            }
        }
        all
    }
}

/// What has to be done to one map.
#[derive(Default)]
struct Plan {
    remove: Vec<Range<u64>>,
    /// Blocks that stay, and become unwritten or written, or which the bitmap says are free: an
    /// earlier replay of the records that was interrupted may have left that.
    restate: Vec<Mapping>,
    insert: Vec<Mapping>,
}

impl Plan {
    /// How the map of `inode` differs from `wanted` in `range`.
    fn compare(
        &mut self,
        fs: &Fs,
        inode: &Inode,
        range: &Range<u64>,
        wanted: Target,
        claims: &Claims<'_>,
    ) -> Result<()> {
        let range = range.start..range.end.min(LBLK_END);
        for run in map::runs_of(fs, inode, range.clone())? {
            let first = u64::from(run.lblk.get()).max(range.start);
            let end = run.end().min(range.end);
            let now = run.target.advanced(first - u64::from(run.lblk.get()));
            let then = wanted.advanced(first - range.start);
            let mapping = Mapping {
                lblk: Lblk::new(u32::try_from(first).map_err(|_| Error::FileTooLarge)?),
                len: end.saturating_sub(first),
                target: then,
            };
            let is_free = |at: Pblk| {
                let blocks = at.get()..at.get().saturating_add(mapping.len);
                claims.last_in(&blocks).is_some()
            };
            if now == then && !then.pblk().is_some_and(is_free) {
                continue;
            }
            if then.pblk().is_some() && now.pblk() == then.pblk() {
                self.restate.push(mapping);
                continue;
            }
            if now.pblk().is_some() {
                self.remove.push(first..end);
            }
            if then.pblk().is_some() {
                self.insert.push(mapping);
            }
        }
        Ok(())
    }
}

impl Replay<'_> {
    /// Changes all maps that records are about: first blocks go, then others come.
    pub(super) fn apply_maps(&mut self) -> Result<()> {
        let mut plans = Vec::new();
        for (ino, ranges) in std::mem::take(&mut self.ranges) {
            let Some(held) = self.inode(ino)? else {
                continue;
            };
            let image = held.snapshot();
            if !image.flags().contains(InodeFlags::EXTENTS) {
                // Linux does not change such maps either.
                crate::event!(warn, %ino, "fast commits of a file without extents are left out");
                continue;
            }
            let mut plan = Plan::default();
            for (range, target) in ranges.iter() {
                plan.compare(self.fs, &image, &range, target, &self.claims)?;
            }
            plans.push((held, plan));
        }
        for (held, plan) in &plans {
            for range in &plan.remove {
                self.remove(held, range.clone())?;
            }
        }
        for (held, plan) in &plans {
            for run in &plan.restate {
                self.restate(held, run)?;
            }
            for run in &plan.insert {
                self.insert(held, run)?;
            }
        }
        Ok(())
    }

    fn remove(&self, held: &Held, mut range: Range<u64>) -> Result<()> {
        loop {
            let credits = map::remove_credits(&held.snapshot());
            let handle = self.start(credits)?;
            let guard = MapGuard::lock(held.live());
            let removed = map::remove_keeping(&handle, held.live(), &guard, range.clone(), 0)?;
            match removed.next {
                Some(next) => range.end = next.get().into(),
                None => return Ok(()),
            }
        }
    }

    fn restate(&mut self, held: &Held, run: &Mapping) -> Result<()> {
        let (len, pblk) = numbers(held.ino(), run)?;
        let moved = Move {
            lblk: run.lblk,
            pblk,
            len,
            unwritten: matches!(run.target, Target::Unwritten(_)),
        };
        let range = u64::from(run.lblk.get())..run.end();
        let taken = self.claims.take_among(pblk, len);
        let runs = 2 + taken.len() as u32;
        let handle = self.start(map::insert_credits(&held.snapshot(), runs))?;
        let guard = MapGuard::lock(held.live());
        let edit = |tree: &mut map::Tree<'_>| tree.remap(&(0..0), &range, &[moved]);
        map::change(&handle, held.live(), &guard, taken, edit, |_| ())
    }

    fn insert(&mut self, held: &Held, run: &Mapping) -> Result<()> {
        let (len, pblk) = numbers(held.ino(), run)?;
        let mut taken = self.claims.take(pblk, len).ok_or_else(|| {
            let said = "free, as it is said to be a file's from now on";
            contradiction(held.ino(), "block", pblk.get(), said)
        })?;
        let unwritten = matches!(run.target, Target::Unwritten(_));
        let runs = taken.len() as u32;
        let handle = self.start(map::insert_credits(&held.snapshot(), runs))?;
        let guard = MapGuard::lock(held.live());
        let edit = |tree: &mut map::Tree<'_>| tree.insert(run.lblk, pblk, len, unwritten);
        // It was done before.
        let space = map::NodeSpace::finishing(0);
        map::change_paid(
            &handle,
            held.live(),
            &guard,
            &mut taken,
            edit,
            |_| (),
            &space,
        )
    }
}

/// Length and place of a run that is mapped.
fn numbers(ino: Ino, run: &Mapping) -> Result<(u32, Pblk)> {
    let len = u32::try_from(run.len).ok();
    len.zip(run.target.pblk())
        .ok_or_else(|| contradiction(ino, "range", run.len, "blocks that a file can have"))
}
