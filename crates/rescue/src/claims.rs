//! Which of the blocks of deleted files were given away: to files in use, to files that were
//! deleted later, or to files that came and went.

use crate::Rescue;
use crate::candidate::Candidate;
use crate::error::Result;
use crate::fates::Fates;
use crate::maps::{Piece, has_map, runs_in_place};
use crate::timeline::{Moment, Timeline};
use crate::volume::Volume;
use extant_format::{Group, Pblk};
use std::collections::BTreeMap;
use std::ops::Range;

impl Rescue {
    /// Asks of each block what became of it.
    pub(crate) fn judge_blocks(
        &self,
        timeline: &Timeline,
        candidates: &mut [Candidate],
    ) -> Result<()> {
        let volume = &self.volume;
        let geo = &volume.geo;
        let session = match &self.journal {
            Some(journal) => journal.history()?.last_session as Moment,
            None => 0,
        };
        // By group, so that the fates of one group are in memory at a time.
        let mut groups: BTreeMap<Group, Vec<(usize, Range<u64>)>> = BTreeMap::new();
        for (i, found) in candidates.iter_mut().enumerate() {
            if found.too_much {
                continue;
            }
            found.is_untouched = true;
            for run in found.data() {
                let mut at = run.start;
                while at < run.end {
                    let Ok(group) = geo.group_of_block(Pblk::new(at)) else {
                        break;
                    };
                    let last = geo
                        .group_last_block(group)
                        .map_or(run.end, |last| last.get() + 1);
                    let end = run.end.min(last.max(at + 1));
                    groups.entry(group).or_default().push((i, at..end));
                    at = end;
                }
            }
        }
        for (group, runs) in groups {
            let fates = Fates::read(volume, self.journal.as_ref(), timeline, group)?;
            for (i, run) in runs {
                let Some(found) = candidates.get_mut(i) else {
                    continue;
                };
                for block in run {
                    let cluster = match geo.bitmap_position(Pblk::new(block)) {
                        Ok((_, cluster)) => cluster,
                        Err(_) => continue,
                    };
                    found.take(block, fates.since(cluster, found.copy), session);
                }
            }
        }
        for found in candidates {
            found.given = joined(std::mem::take(&mut found.given));
        }
        Ok(())
    }

    /// Whether the inode counts as many blocks as its map, its nodes and its attributes take.
    pub(crate) fn counts_its_blocks(&self, found: &Candidate) -> bool {
        let volume = &self.volume;
        let bits = volume.geo.cluster_bits();
        let first = volume.geo.first_data_block().get();
        let cluster = |block: u64| block.saturating_sub(first) >> bits;
        let mut clusters: Vec<Range<u64>> = Vec::new();
        for run in &found.runs {
            let last = run.pblk + u64::from(run.len) - 1;
            clusters.push(cluster(run.pblk)..cluster(last) + 1);
        }
        let acl = found.inode.file_acl.get();
        let others = found.nodes.iter().copied().chain((acl != 0).then_some(acl));
        clusters.extend(others.map(|block| cluster(block)..cluster(block) + 1));
        let count: u64 = joined(clusters).iter().map(|run| run.end - run.start).sum();
        let sectors = count << bits << (volume.block_size().log2() - 9);
        sectors == found.inode.sectors(volume.block_size())
    }
}

/// Parts of what deleted files claim that files in use have.
struct Taken {
    /// What deleted files claim, sorted and apart.
    all: Vec<Range<u64>>,
    parts: Vec<Range<u64>>,
    /// So many parts are joined.
    full: usize,
    /// Parts that may still be taken: as many as there are blocks, where each has one owner.
    left: u64,
}

/// Fewer parts are not joined.
const FEW_PARTS: usize = 1 << 12;

impl Taken {
    fn take(&mut self, range: &Range<u64>) {
        for part in parts(&self.all, range) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            self.parts.push(part);
            if self.parts.len() >= self.full {
                self.parts = joined(std::mem::take(&mut self.parts));
                self.full = FEW_PARTS.max(self.parts.len() * 2);
            }
        }
    }
}

/// Gives away the blocks that a file in use has.
pub(crate) fn give_to_live(volume: &Volume, candidates: &mut [Candidate]) -> Result<()> {
    let looked_at = candidates.iter().filter(|found| !found.too_much);
    let mut taken = Taken {
        all: joined(looked_at.flat_map(Candidate::data).collect()),
        parts: Vec::new(),
        full: FEW_PARTS,
        left: volume.blocks_on_device().saturating_mul(2).max(1),
    };
    if taken.all.is_empty() {
        return Ok(());
    }
    volume.begin();
    volume.slots(&mut |ino, in_use, slot| {
        let inode = volume
            .parse(slot, ino)
            .filter(|inode| in_use && inode.links > 0);
        let Some(inode) = inode else {
            return Ok(());
        };
        let mut take = |range: Range<u64>| taken.take(&range);
        let acl = inode.file_acl.get();
        if acl != 0 {
            take(acl..acl + 1);
        }
        if has_map(volume, &inode) {
            let seed = volume.inode_seed(ino, inode.generation);
            runs_in_place(volume, &inode, seed, &mut |piece| match piece {
                Piece::Node(block) => take(block..block + 1),
                Piece::Data(run) => take(run.pblk..run.pblk + u64::from(run.len)),
            })?;
        }
        Ok(())
    })?;
    if taken.left == 0 {
        for found in candidates {
            found.too_much = true;
        }
        return Ok(());
    }
    let taken = joined(taken.parts);
    for found in candidates.iter_mut().filter(|found| !found.too_much) {
        let runs: Vec<_> = found.data().collect();
        let given = runs.iter().flat_map(|run| parts(&taken, run));
        found.given.extend(given);
    }
    Ok(())
}

/// Gives blocks that several deleted files claim to the one that had them last. Where nothing says
/// which that is, none keeps them.
pub(crate) fn give_to_later(candidates: &mut [Candidate]) {
    let rank = |found: &Candidate| (found.is_orphan(), found.copy, found.dtime);
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.retain(|i| candidates.get(*i).is_some_and(|found| !found.too_much));
    order.sort_by_key(|i| candidates.get(*i).map(rank));
    order.reverse();
    // What was claimed, by start: end, and the rank and number of the claim.
    let mut claimed: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for i in order {
        let Some(found) = candidates.get(i) else {
            continue;
        };
        let mine = joined(found.data().collect());
        let my_rank = rank(found);
        let mut given = Vec::new();
        let mut both = Vec::new();
        for run in &mine {
            let mut at = run.start;
            let before = claimed.range(..at).next_back();
            let inside = before.filter(|(_, (end, _))| *end > at);
            let first = inside.map_or(at, |(start, _)| *start);
            let near: Vec<_> = claimed
                .range(first..run.end)
                .map(|(start, (end, by))| (*start, *end, *by))
                .collect();
            for (start, end, by) in near {
                let part = start.max(run.start)..end.min(run.end);
                if at < part.start {
                    claimed.insert(at, (part.start, i));
                }
                at = part.end;
                if candidates
                    .get(by)
                    .is_some_and(|other| rank(other) == my_rank)
                    && by != i
                {
                    both.push((by, part.clone()));
                }
                given.push(part);
            }
            if at < run.end {
                claimed.insert(at, (run.end, i));
            }
        }
        for (by, part) in both {
            if let Some(other) = candidates.get_mut(by) {
                other.given.push(part);
            }
        }
        if let Some(found) = candidates.get_mut(i) {
            found.given.extend(given);
        }
    }
}

/// Ranges sorted and joined.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// How many of the numbers in `range` lie in one of these, which are sorted and apart.
pub(crate) fn overlap(sorted: &[Range<u64>], range: &Range<u64>) -> u64 {
    parts(sorted, range).map(|part| part.end - part.start).sum()
}

/// The parts of `range` that lie in one of these, which are sorted and apart.
fn parts<'a>(
    sorted: &'a [Range<u64>],
    range: &'a Range<u64>,
) -> impl Iterator<Item = Range<u64>> + 'a {
    let from = sorted.partition_point(|one| one.end <= range.start);
    let near = sorted
        .iter()
        .skip(from)
        .take_while(|one| one.start < range.end);
    near.map(|one| one.start.max(range.start)..one.end.min(range.end))
}
