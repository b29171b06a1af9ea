//! The free space of a formatted image, handed out from the front.
//!
//! Nothing is ever given back. Dense, what is used is a prefix of the free runs: the image's free
//! space is in one piece. Apart, metadata comes first, with room behind it, and data in whole
//! chunks. Around what an older image has in its place, the gaps are filled.

use super::changed::Changed;
use super::regions::Chunk;
use super::{PlaceError, PlaceResult};
use crate::layout::RunSet;
use std::cmp::Reverse;
use std::ops::Range;

/// Gaps that are looked at for one that holds all of what is wanted.
const LOOKS_MAX: usize = 1000;

/// What space is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Data of regular files.
    Data,
    /// Everything else.
    Metadata,
}

/// Free space in allocation units (clusters; blocks without `bigalloc`).
#[derive(Clone, Debug)]
pub(crate) enum Space {
    /// All in one row.
    Dense(Cursor),
    /// Metadata, and data in chunks behind it.
    Apart {
        metadata: Cursor,
        data: Cursor,
        chunk: Chunk,
    },
    /// Around what is in its place already.
    Around(Gaps),
}

impl Space {
    /// Free runs in ascending order that do not touch each other.
    pub(crate) fn dense(free: Vec<Range<u64>>) -> Self {
        Self::Dense(Cursor::new(free))
    }

    /// Free runs without those that are used, all of which were free.
    pub(crate) fn around(free: &[Range<u64>], used: RunSet, changed: Changed) -> Self {
        let free = free.iter().flat_map(|run| used.gaps_in(run.clone()));
        Self::Around(Gaps {
            free: free.collect(),
            first: 0,
            last: 0,
            used,
            changed,
        })
    }

    /// Keeps `room` more units for metadata, and has data begin with the chunk behind them.
    pub(crate) fn set_apart(self, room: u64, chunk: Chunk) -> Self {
        let Self::Dense(metadata) = self else {
            return self;
        };
        let (metadata, rest) = metadata.split(room);
        let whole = rest.into_iter().filter_map(|run| {
            let run = chunk.after(run.start)..chunk.before(run.end)?;
            (run.start < run.end).then_some(run)
        });
        Self::Apart {
            metadata,
            data: Cursor::new(whole.collect()),
            chunk,
        }
    }

    /// Leaves units out, and goes on at a multiple of `step`, so that what comes later need not
    /// move when more comes before it.
    pub(crate) fn skip(&mut self, units: u64, step: u64) {
        if let Self::Dense(cursor) = self {
            cursor.skip(units);
            if cursor.settle().is_some() {
                cursor.skip(cursor.next.next_multiple_of(step) - cursor.next);
            }
        }
    }

    /// Has the data that comes now begin with a new chunk, and some space be free before it.
    pub(crate) fn begin_region(&mut self) {
        let Self::Apart { data, chunk, .. } = self else {
            return;
        };
        let slack = if data.used == 0 { 0 } else { chunk.slack() };
        data.next = chunk.after(data.next + slack);
    }

    /// The next free units, at most `want` of them, in one run.
    ///
    /// # Errors
    /// [`PlaceError::NoSpace`] when nothing is left.
    pub(crate) fn take(&mut self, want: u64, what: Use) -> PlaceResult<Range<u64>> {
        match self {
            Self::Dense(cursor) => cursor.take(want),
            Self::Apart { metadata, .. } if what == Use::Metadata => metadata.take(want),
            Self::Apart { data, .. } => data.take(want),
            Self::Around(gaps) => gaps.take(want),
        }
    }

    /// Units handed out so far.
    pub(crate) fn used(&self) -> u64 {
        match self {
            Self::Dense(cursor) => cursor.used,
            Self::Apart { metadata, data, .. } => metadata.used + data.used,
            Self::Around(gaps) => gaps.used.count_in(0..u64::MAX),
        }
    }

    /// The runs handed out so far, in ascending order.
    pub(crate) fn used_runs(&self) -> Vec<Range<u64>> {
        match self {
            Self::Dense(cursor) => cursor.taken.clone(),
            Self::Apart { metadata, data, .. } => {
                [metadata.taken.as_slice(), data.taken.as_slice()].concat()
            }
            Self::Around(gaps) => gaps.used.runs_in(0..u64::MAX).collect(),
        }
    }
}

/// Free runs that are used up from the front.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    free: Vec<Range<u64>>,
    at: usize,
    next: u64,
    used: u64,
    /// What was handed out, in runs.
    taken: Vec<Range<u64>>,
}

impl Cursor {
    fn new(free: Vec<Range<u64>>) -> Self {
        let next = free.first().map_or(0, |run| run.start);
        Self {
            free,
            at: 0,
            next,
            used: 0,
            taken: Vec::new(),
        }
    }

    /// Goes to the first unit that is free; `None` when nothing is left.
    fn settle(&mut self) -> Option<u64> {
        loop {
            let run = self.free.get(self.at)?;
            self.next = self.next.max(run.start);
            if self.next < run.end {
                return Some(run.end);
            }
            self.at += 1;
        }
    }

    fn take(&mut self, want: u64) -> PlaceResult<Range<u64>> {
        let Some(end) = self.settle() else {
            return Err(PlaceError::NoSpace {
                used: self.used,
                more: want,
            });
        };
        let run = self.next..end.min(self.next.saturating_add(want));
        self.next = run.end;
        self.used += run.end - run.start;
        match self.taken.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => self.taken.push(run.clone()),
        }
        Ok(run)
    }

    /// Leaves out so many free units, as far as there are any.
    fn skip(&mut self, mut units: u64) {
        while units > 0
            && let Some(end) = self.settle()
        {
            let len = units.min(end - self.next);
            self.next += len;
            units -= len;
        }
    }

    /// Parts what is left behind its next `room` units.
    fn split(mut self, room: u64) -> (Self, Vec<Range<u64>>) {
        let mut ahead = self.clone();
        ahead.skip(room);
        let rest = match ahead.settle() {
            None => Vec::new(),
            Some(_) => {
                let mut rest = self.free.split_off(ahead.at);
                if let Some(first) = rest.first_mut() {
                    if first.start < ahead.next {
                        self.free.push(first.start..ahead.next);
                    }
                    first.start = ahead.next;
                }
                rest
            }
        };
        (self, rest)
    }
}

/// Gaps between what is in its place.
#[derive(Clone, Debug)]
pub(crate) struct Gaps {
    free: Vec<Range<u64>>,
    /// The first that is not used up.
    first: usize,
    /// The one that was taken from last.
    last: usize,
    used: RunSet,
    changed: Changed,
}

impl Gaps {
    /// A part of a gap that holds all that is wanted, where the fewest chunks change that would not
    /// change anyway; or else the front of the largest gap that was looked at.
    fn take(&mut self, want: u64) -> PlaceResult<Range<u64>> {
        while self.free.get(self.first).is_some_and(Range::is_empty) {
            self.first += 1;
        }
        let Some((at, start)) = self.cheapest(want).or_else(|| self.largest()) else {
            return Err(PlaceError::NoSpace {
                used: self.used.count_in(0..u64::MAX),
                more: want,
            });
        };
        let gap = self.free[at].clone();
        let taken = start..gap.end.min(start.saturating_add(want));
        self.free[at].start = taken.end;
        self.last = at;
        if gap.start < start {
            self.free.insert(at, gap.start..start);
            self.last = at + 1;
        }
        self.changed.mark_units(&taken);
        self.used.insert(taken.clone());
        Ok(taken)
    }

    /// Gaps with something left.
    fn gaps(&self) -> impl Iterator<Item = (usize, &Range<u64>)> {
        let gaps = self.free.iter().enumerate().skip(self.first);
        gaps.filter(|(_, gap)| !gap.is_empty()).take(LOOKS_MAX)
    }

    fn cheapest(&self, want: u64) -> Option<(usize, u64)> {
        let last = self.free.get(self.last).map(|gap| (self.last, gap));
        let mut best: Option<(u64, usize, u64)> = None;
        for (at, gap) in last.into_iter().chain(self.gaps()) {
            if gap.end.saturating_sub(gap.start) < want {
                continue;
            }
            for start in self.changed.places(gap, want) {
                let cost = self.changed.cost(&(start..start + want));
                if best.is_none_or(|(least, ..)| cost < least) {
                    best = Some((cost, at, start));
                }
            }
            if best.is_some_and(|(cost, ..)| cost == 0) {
                break;
            }
        }
        best.map(|(_, at, start)| (at, start))
    }

    fn largest(&self) -> Option<(usize, u64)> {
        let key = |(at, gap): &(usize, &Range<u64>)| (gap.end - gap.start, Reverse(*at));
        self.gaps().max_by_key(key).map(|(at, gap)| (at, gap.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults::FormatOptions;
    use crate::layout::{Draft, plan};
    use crate::place::changed::Groups;
    use extant_format::BlockSize;

    #[test]
    fn space_is_handed_out_in_order_and_never_twice() {
        let mut space = Space::dense(vec![10..20, 30..35, 40..41]);
        let mut take = |want| space.take(want, Use::Data);
        assert_eq!(take(4).unwrap(), 10..14);
        assert_eq!(take(100).unwrap(), 14..20);
        assert_eq!(take(5).unwrap(), 30..35);
        assert_eq!(take(1).unwrap(), 40..41);
        assert!(matches!(
            take(1),
            Err(PlaceError::NoSpace { used: 16, more: 1 })
        ));
        assert_eq!(space.used_runs(), [10..20, 30..35, 40..41]);
    }

    #[test]
    fn nothing_used_means_no_runs() {
        let space = Space::dense(std::iter::once(10..20).collect());
        assert!(space.used_runs().is_empty());
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn data_begins_with_chunks_and_leaves_room_behind_metadata() {
        let mut space = Space::dense(vec![3..50, 60..200]);
        space.take(2, Use::Metadata).unwrap();
        space.skip(2, 4);
        // Units of which four make a chunk, the first of them at address 1.
        let mut space = space.set_apart(2, Chunk::new(4, 1));
        space.begin_region();
        assert_eq!(space.take(5, Use::Data).unwrap(), 11..16);
        space.begin_region();
        assert_eq!(space.take(100, Use::Data).unwrap(), 19..47);
        assert_eq!(space.take(1, Use::Data).unwrap(), 63..64);
        assert_eq!(space.take(9, Use::Metadata).unwrap(), 8..10);
        assert!(space.take(1, Use::Metadata).is_err());
        assert_eq!(space.used_runs(), [3..5, 8..10, 11..16, 19..47, 63..64]);
        assert_eq!(space.used(), 2 + 2 + 5 + 28 + 1);
    }

    /// Chunks of an image of 64 MiB with blocks of 4 KiB that change anyway.
    fn changed() -> Changed {
        let mut format = FormatOptions::new(64 << 20, 0);
        format.block_size = Some(BlockSize::K4);
        let draft = Draft::new(plan(&format).unwrap());
        Changed::new(&Groups::of(&draft))
    }

    #[test]
    fn gaps_are_filled_by_what_fits() {
        let free = [0..10, 20..100];
        let mut used = RunSet::new();
        used.insert(4..9);
        used.insert(30..40);
        let mut space = Space::around(&free, used, changed());
        assert_eq!(space.take(6, Use::Data).unwrap(), 20..26);
        assert_eq!(space.take(2, Use::Metadata).unwrap(), 26..28);
        assert_eq!(space.take(3, Use::Metadata).unwrap(), 0..3);
        assert_eq!(space.take(100, Use::Data).unwrap(), 40..100);
        assert_eq!(space.used(), 5 + 10 + 6 + 2 + 3 + 60);
        assert_eq!(space.used_runs(), [0..3, 4..9, 20..28, 30..100]);
    }

    #[test]
    fn gaps_are_taken_where_chunks_change_anyway() {
        // A chunk has 128 units.
        let free = [700..800, 1000..5000];
        let mut changed = changed();
        changed.mark_blocks(1100..1101);
        let mut space = Space::around(&free, RunSet::new(), changed);
        let mut take = |want| space.take(want, Use::Data).unwrap();
        assert_eq!(take(5), 1024..1029);
        assert_eq!(take(120), 1029..1149);
        assert_eq!(take(20), 1149..1169);
        assert_eq!(take(60), 1169..1229);
        // As few chunks as it can be.
        let free = std::iter::once(1000..5000).collect::<Vec<_>>();
        let mut space = Space::around(&free, RunSet::new(), self::changed());
        let mut take = |want| space.take(want, Use::Data).unwrap();
        assert_eq!(take(256), 1024..1280);
        assert_eq!(take(100), 1280..1380);
        assert_eq!(take(20), 1380..1400);
    }
}
