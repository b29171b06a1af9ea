//! Places that writes chose: blocks that are taken, and not mapped yet.

use crate::fs::Fs;
use crate::volume::ClusterSize;
use extant_format::{Group, Pblk};
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::BTreeMap;

static PLACED: LockClass = LockClass::new("placed blocks", Rank::Leaf);

/// Blocks of a file that have a place and are not mapped yet, by first logical block.
#[derive(Debug)]
pub(in crate::data) struct Places(Mutex<BTreeMap<u32, (Pblk, u32)>>);

impl Default for Places {
    fn default() -> Self {
        Self(Mutex::new(&PLACED, BTreeMap::new()))
    }
}

impl Places {
    /// Adds blocks that have a place and are not mapped yet: whole clusters. `false` if they have
    /// one already.
    pub(in crate::data) fn add(&self, fs: &Fs, lblk: u32, pblk: Pblk, len: u32) -> bool {
        // What is taken together lies in one group.
        let begins_group = |(_, at): (Group, u32)| at == 0;
        let is_first = fs.geometry().bitmap_position(pblk).is_ok_and(begins_group);
        let mut placed = self.0.lock();
        if !fs.cluster_size().is_block()
            && let Some((&first, &(_, count))) = placed.range(..=lblk).next_back()
            && lblk - first < count
        {
            return false;
        }
        if !is_first
            && let Some((&first, (start, count))) = placed.range_mut(..lblk).next_back()
            && first + *count == lblk
            && start.get() + u64::from(*count) == pblk.get()
        {
            *count += len;
            return true;
        }
        placed.insert(lblk, (pblk, len));
        true
    }

    /// Finds the run of placed blocks that `lblk` lies in: its first block's place and length from
    /// `lblk` on, or how many blocks further the next one begins.
    pub(in crate::data) fn at(&self, lblk: u32) -> Result<(Pblk, u32), u32> {
        let placed = self.0.lock();
        if let Some((&first, &(pblk, len))) = placed.range(..=lblk).next_back()
            && lblk - first < len
        {
            let skip = lblk - first;
            return Ok((Pblk::new(pblk.get() + u64::from(skip)), len - skip));
        }
        let next = placed.range(lblk..).next();
        Err(next.map_or(u32::MAX, |(&next, _)| next - lblk))
    }

    /// Takes out the placed clusters of `len` blocks from `lblk` on.
    pub(in crate::data) fn take(
        &self,
        size: ClusterSize,
        lblk: u32,
        len: u64,
    ) -> Vec<(u32, Pblk, u32)> {
        let mut placed = self.0.lock();
        if placed.is_empty() {
            return Vec::new();
        }
        let whole = size.around(&(u64::from(lblk)..u64::from(lblk) + len));
        let (lblk, end) = (whole.start as u32, whole.end);
        let first = match placed.range(..=lblk).next_back() {
            Some((&first, &(_, count))) if lblk - first < count => first,
            _ => lblk,
        };
        let keys: Vec<u32> = placed
            .range(first..)
            .map(|(&key, _)| key)
            .take_while(|&key| u64::from(key) < end)
            .collect();
        let mut out = Vec::new();
        for key in keys {
            let Some((pblk, count)) = placed.remove(&key) else {
                continue;
            };
            let at = |block: u32| Pblk::new(pblk.get() + u64::from(block - key));
            let from = key.max(lblk);
            let to = end.min(u64::from(key) + u64::from(count)) as u32;
            if key < from {
                placed.insert(key, (pblk, from - key));
            }
            if to < key + count {
                placed.insert(to, (at(to), key + count - to));
            }
            out.push((from, at(from), to - from));
        }
        out
    }
}
