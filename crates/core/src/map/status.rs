//! What is known of the map of a file: runs of one version of it, so that a lookup neither reads
//! the tree nor takes a lock, nor counts a reference.
//!
//! # How
//!
//! [`Known`] is immutable: a thread that learns more puts another one in its place, and readers
//! borrow the one of now under an epoch guard. It belongs to one version of the map
//! ([`LiveInode::map_version`]). Every change of the map makes another version, so nothing has to
//! be taken out here by truncation, allocation or writeback: what is known of an older version does
//! not count.
//!
//! What memory alone knows, blocks that are delayed or have a place that is not mapped yet, is in
//! the folios of the file.
//!
//! # Invariants
//!
//! - Parts ascend and do not overlap. The runs of a part cover it without gaps: holes are runs as
//!   well.
//! - Memory is bounded for each file, counts as that of the file's data, and goes when that is
//!   short, or when nobody looked for some time: it is laid aside first ([`Status::age`]), and a
//!   reader that misses it takes it up again. So threads that find it have nothing to note.

use super::{Mapping, Walk};
use crate::Result;
use crate::data::FileCache;
use crate::fs::Fs;
use crate::inode::{Inode, LiveInode};
use extant_format::inode::InodeFlags;
use extant_sync::{EpochGuard, LockClass, Mutex, Rank, RcuCell, pin};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

static LEARN: LockClass = LockClass::new("extent status", Rank::Leaf);

/// Parts of one file at most, and runs of a part unless more were asked for at once.
const MOST_PARTS: usize = 128;
const PART_RUNS: usize = 128;
/// Blocks behind those asked for that are looked at along with them, at most.
const AHEAD: u64 = 1 << 16;
/// Parts that give way to others in one version of a map before it is left alone: then the file is
/// in too many pieces for this to help.
const MOST_LOST: u32 = 512;

/// What is known of one file's map.
#[derive(Debug)]
pub(crate) struct Status {
    known: RcuCell<Known>,
    /// Held to replace it.
    learning: Mutex<()>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            known: RcuCell::new(Arc::new(Known::nothing())),
            learning: Mutex::new(&LEARN, ()),
        }
    }
}

impl Status {
    /// Returns the runs of `range`, if all of it is known of map version `version`.
    fn runs(&self, version: u64, range: &Range<u64>) -> Option<Vec<Mapping>> {
        let guard = pin();
        let known = self.known.get(&guard);
        (known.version == version)
            .then(|| known.runs(range))
            .flatten()
    }

    /// Adds what was found in map version `version`. Returns by how many bytes memory grew.
    fn learn(&self, version: u64, runs: Vec<Mapping>) -> i64 {
        // A thread that meets another one may do without.
        let Some(_alone) = self.learning.try_lock() else {
            return 0;
        };
        let guard = pin();
        let known = self.known.get(&guard);
        // What was laid aside, if anything was, is of use again, or goes.
        let taken_up = (known.aside != NONE).then(|| known.taken_up());
        let old = taken_up.as_ref().unwrap_or(known);
        if old.version > version && old.version != NONE {
            return 0;
        }
        let new = old.with(version, runs);
        let grown = new.bytes() as i64 - known.bytes() as i64;
        self.known.replace(Arc::new(new), &guard);
        grown
    }

    /// Takes up again what was laid aside, if it is of map version `version`. Whether it was.
    fn take_up(&self, version: u64) -> bool {
        let guard = pin();
        let is_aside = |known: &Known| known.aside == version && version != NONE;
        if !is_aside(self.known.get(&guard)) {
            return false;
        }
        let Some(_alone) = self.learning.try_lock() else {
            return false;
        };
        let known = self.known.get(&guard);
        let is_of_use = is_aside(known);
        if is_of_use {
            self.known.replace(Arc::new(known.taken_up()), &guard);
        }
        is_of_use
    }

    /// Lays aside what is known, or forgets it if nobody has missed it since it was. Returns how
    /// many bytes of memory that frees.
    pub(crate) fn age(&self) -> i64 {
        {
            let Some(_alone) = self.learning.try_lock() else {
                return 0;
            };
            let guard = pin();
            let known = self.known.get(&guard);
            if known.version != NONE {
                self.known.replace(Arc::new(known.laid_aside()), &guard);
                return 0;
            }
        }
        self.forget()
    }

    /// Forgets all. Returns how many bytes of memory that frees.
    pub(crate) fn forget(&self) -> i64 {
        let Some(_alone) = self.learning.try_lock() else {
            return 0;
        };
        let guard = pin();
        let bytes = self.known.get(&guard).bytes() as i64;
        if bytes > 0 {
            self.known.replace(Arc::new(Known::nothing()), &guard);
        }
        bytes
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> i64 {
        self.known.get(&pin()).bytes() as i64
    }
}

/// As [`runs_live`](super::runs_live), from what is known of the map, if that is all it takes.
pub(super) fn look(
    live: &LiveInode,
    range: impl Fn(&Inode) -> Range<u64>,
) -> Option<(Arc<Inode>, Vec<Mapping>)> {
    let status = live.file_cache()?.status()?;
    let version = live.map_version();
    let before = version.load(Ordering::Acquire);
    if before & 1 != 0 {
        return None;
    }
    let image = live.snapshot();
    let wanted = range(&image);
    let runs = match status.runs(before, &wanted) {
        Some(runs) => runs,
        None if status.take_up(before) => status.runs(before, &wanted)?,
        None => return None,
    };
    fence(Ordering::Acquire);
    (version.load(Ordering::Relaxed) == before).then_some((image, runs))
}

/// Returns the runs of `range`, if all of it is known, of a file whose data is `file`. Unlike
/// [`look`] this counts no reference to the image.
///
/// The answer is true at one moment. Its addresses stay so while the caller holds the inode's `op`
/// lock.
#[inline]
pub(crate) fn known(
    live: &LiveInode,
    file: &FileCache,
    range: &Range<u64>,
    guard: &EpochGuard,
) -> Option<KnownRuns> {
    // An odd version is one of no runs.
    let version = live.map_version().load(Ordering::Acquire);
    let known = file.status()?.known.get(guard);
    // What is known of a version never changes, so this was so when the version was looked at.
    if known.version != version {
        return None;
    }
    match known.run(range) {
        Some(run) => Some(KnownRuns::One(run)),
        None => known.runs(range).map(KnownRuns::Some),
    }
}

/// Runs of a range that were known: mostly it is one.
#[derive(Debug)]
pub(crate) enum KnownRuns {
    One(Mapping),
    Some(Vec<Mapping>),
}

impl std::ops::Deref for KnownRuns {
    type Target = [Mapping];

    fn deref(&self) -> &[Mapping] {
        match self {
            Self::One(run) => std::slice::from_ref(run),
            Self::Some(runs) => runs,
        }
    }
}

/// Reads the runs of `range` and some more from the map of `image`, which is stable or of version
/// `version`, and learns them. Returns those of `range`.
///
/// # Errors
/// As for [`lookup`](super::lookup).
pub(super) fn read(
    fs: &Fs,
    live: &LiveInode,
    image: &Inode,
    version: u64,
    range: &Range<u64>,
) -> Result<Vec<Mapping>> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    // What follows costs little where it lies in the same node.
    let ahead = if image.flags().contains(InodeFlags::EXTENTS) {
        range.end.saturating_add(AHEAD).min(1 << 32)
    } else {
        range.end
    };
    let mut walk = Walk::over(range.start..ahead);
    let mut runs = Vec::new();
    let mut end = range.start;
    while end < range.end || runs.len() < PART_RUNS {
        match walk.next(fs, image) {
            Ok(Some(run)) => {
                end = run.end();
                runs.push(run);
            }
            Ok(None) => break,
            // It may lie further on than anybody asked for.
            Err(_) => return super::runs_of(fs, image, range.clone()),
        }
    }
    let wanted = clip(&runs, range).collect();
    if version & 1 == 0
        && live.map_version().load(Ordering::Acquire) == version
        && let Some(file) = live.file_cache()
    {
        file.learn(|status| status.learn(version, runs));
    }
    Ok(wanted)
}

/// The version of what is known of no map.
const NONE: u64 = u64::MAX;

/// Runs of one version of a map.
#[derive(Debug)]
struct Known {
    version: u64,
    /// The version that it is of while it is laid aside.
    aside: u64,
    /// The first run of all, which is all that most files have. Here it is a line of memory less
    /// far away, or two.
    first: Option<Mapping>,
    parts: Vec<Arc<[Mapping]>>,
    /// Parts that gave way.
    lost: u32,
}

/// Returns where a part begins and ends.
fn extent(part: &[Mapping]) -> Range<u64> {
    let start = part.first().map_or(0, |run| run.lblk.get().into());
    start..part.last().map_or(0, Mapping::end)
}

/// Returns the parts of `runs` within `range`.
fn clip<'r>(runs: &'r [Mapping], range: &'r Range<u64>) -> impl Iterator<Item = Mapping> + 'r {
    let first = runs.partition_point(|run| run.end() <= range.start);
    let inside = runs.get(first..).unwrap_or(&[]).iter();
    inside
        .take_while(|run| u64::from(run.lblk.get()) < range.end)
        .map(|run| {
            let start = u64::from(run.lblk.get()).max(range.start);
            let skip = start - u64::from(run.lblk.get());
            Mapping {
                // Below the end of a run, which is 2^32 at most.
                lblk: extant_format::Lblk::new(start as u32),
                len: run.end().min(range.end) - start,
                target: run.target.advanced(skip),
            }
        })
}

impl Known {
    fn nothing() -> Self {
        Self::new(NONE, Vec::new(), 0)
    }

    fn new(version: u64, parts: Vec<Arc<[Mapping]>>, lost: u32) -> Self {
        Self {
            version,
            aside: NONE,
            first: parts.first().and_then(|part| part.first()).copied(),
            parts,
            lost,
        }
    }

    /// Returns what no search for its version finds.
    fn laid_aside(&self) -> Self {
        Self {
            version: NONE,
            aside: self.version,
            ..Self::new(NONE, self.parts.clone(), self.lost)
        }
    }

    /// Returns what it was before it was laid aside.
    fn taken_up(&self) -> Self {
        let version = match self.version {
            NONE => self.aside,
            version => version,
        };
        Self::new(version, self.parts.clone(), self.lost)
    }

    fn bytes(&self) -> usize {
        let runs: usize = self.parts.iter().map(|part| part.len()).sum();
        runs * size_of::<Mapping>() + self.parts.len() * size_of::<Arc<[Mapping]>>()
    }

    /// Returns the run of `range`, if that is known to be one.
    #[inline]
    fn run(&self, range: &Range<u64>) -> Option<Mapping> {
        let run = match &self.first {
            // It is the one, or not known, as nothing comes before it.
            Some(first) if range.start < first.end() => first,
            _ => self.later_run(range)?,
        };
        let skip = range.start.checked_sub(run.lblk.get().into())?;
        // It begins at a block of a file, of which there are 2^32 at most.
        (range.end <= run.end() && !range.is_empty()).then(|| Mapping {
            lblk: extant_format::Lblk::new(range.start as u32),
            len: range.end - range.start,
            target: run.target.advanced(skip),
        })
    }

    /// Returns the run that `range` begins in, if it begins in any.
    fn later_run(&self, range: &Range<u64>) -> Option<&Mapping> {
        let parts = self.parts.as_slice();
        let part = parts.get(parts.partition_point(|part| extent(part).end <= range.start))?;
        part.get(part.partition_point(|run| run.end() <= range.start))
    }

    /// Returns the runs of `range`, if all of it is known.
    fn runs(&self, range: &Range<u64>) -> Option<Vec<Mapping>> {
        let mut out: Vec<Mapping> = Vec::new();
        let mut at = range.start;
        let first = self.parts.partition_point(|part| extent(part).end <= at);
        let mut parts = self.parts.get(first..)?.iter();
        while at < range.end {
            let part = parts.next().filter(|part| extent(part).start <= at)?;
            for run in clip(part, &(at..range.end)) {
                at = run.end();
                match out.last_mut() {
                    Some(last) if last.is_followed_by(&run) => last.len += run.len,
                    _ => out.push(run),
                }
            }
        }
        Some(out)
    }

    /// Returns what is known with `runs` of map version `version`, which cover a range without
    /// gaps.
    fn with(&self, version: u64, runs: Vec<Mapping>) -> Self {
        let (mut parts, mut lost) = if self.version == version {
            (self.parts.clone(), self.lost)
        } else {
            (Vec::new(), 0)
        };
        let new = extent(&runs);
        if new.is_empty() || lost >= MOST_LOST {
            return Self::new(version, parts, lost);
        }
        // What it overlaps says the same: only what it does not cover stays.
        let from = parts.partition_point(|part| extent(part).end <= new.start);
        let to = parts.partition_point(|part| extent(part).start < new.end);
        let rest = |part: Option<&Arc<[Mapping]>>, range: Range<u64>| {
            let left: Vec<Mapping> =
                part.map_or_else(Vec::new, |part| clip(part, &range).collect());
            (!left.is_empty()).then(|| Arc::from(left))
        };
        let overlapped = parts.get(from..to).unwrap_or(&[]);
        let before = rest(overlapped.first(), 0..new.start);
        let after = rest(overlapped.last(), new.end..u64::MAX);
        let middle = before.into_iter().chain([Arc::from(runs)]).chain(after);
        parts.splice(from..to, middle);
        while parts.len() > MOST_PARTS {
            // Any but the new one will do.
            let turn = (lost as usize * 37) % parts.len();
            let victim = if extent(&parts[turn]).start == new.start {
                (turn + 1) % parts.len()
            } else {
                turn
            };
            parts.remove(victim);
            lost += 1;
        }
        Self::new(version, parts, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Target;
    use extant_format::{Lblk, Pblk};
    use extant_testkit::rng::{Rng, seed_from_env};

    const BLOCKS: u64 = 600;

    /// Returns the runs of `range` of a map of single blocks, cut at random.
    fn cut(map: &[Target], range: Range<u64>, rng: &mut Rng) -> Vec<Mapping> {
        let mut runs: Vec<Mapping> = Vec::new();
        for at in range {
            let run = Mapping {
                lblk: Lblk::new(at as u32),
                len: 1,
                target: map[at as usize],
            };
            match runs.last_mut() {
                Some(last) if last.is_followed_by(&run) && !rng.one_in(9) => last.len += 1,
                _ => runs.push(run),
            }
        }
        runs
    }

    fn random_map(rng: &mut Rng) -> Vec<Target> {
        let mut map = Vec::new();
        let mut next = 1000;
        while map.len() < BLOCKS as usize {
            next += rng.below(2) * 100;
            let target = match rng.below(3) {
                0 => Target::Hole,
                1 => Target::Written(Pblk::new(next)),
                _ => Target::Unwritten(Pblk::new(next)),
            };
            let len = rng.between(1, 12);
            map.extend((0..len).map(|i| target.advanced(i)));
            next += len;
        }
        map.truncate(BLOCKS as usize);
        map
    }

    #[test]
    fn what_is_known_is_what_a_map_of_single_blocks_says() {
        let mut rng = Rng::new(seed_from_env("map_status"));
        for round in 0..60 {
            let mut version = 0;
            let mut map = random_map(&mut rng);
            let mut known = Known::nothing();
            let mut hits = 0;
            for _ in 0..300 {
                let start = rng.below(BLOCKS);
                let range = start..start + rng.between(1, (BLOCKS - start).min(30));
                match rng.below(40) {
                    0 => {
                        version += 2;
                        map = random_map(&mut rng);
                    }
                    1..14 => known = known.with(version, cut(&map, range, &mut rng)),
                    _ if known.version == version => {
                        if let Some(run) = known.run(&range) {
                            assert_eq!(known.runs(&range), Some(vec![run]), "round {round}");
                        }
                        if let Some(runs) = known.runs(&range) {
                            hits += 1;
                            let mut at = range.start;
                            for run in runs {
                                assert_eq!(u64::from(run.lblk.get()), at, "round {round}");
                                for i in 0..run.len {
                                    assert_eq!(run.target.advanced(i), map[(at + i) as usize]);
                                }
                                at = run.end();
                            }
                            assert_eq!(at, range.end);
                        }
                    }
                    _ => {}
                }
                let mut end = 0;
                for part in &known.parts {
                    let here = extent(part);
                    assert!(here.start >= end && !here.is_empty());
                    end = here.end;
                }
            }
            assert!(hits > 0);
        }
    }

    #[test]
    fn what_was_missed_since_it_was_laid_aside_stays_and_the_rest_goes() {
        let status = Status::default();
        let run = Mapping {
            lblk: Lblk::new(0),
            len: 9,
            target: Target::Hole,
        };
        let looked_for = |version: u64| status.runs(version, &(2..5)).is_some();
        let grown = status.learn(4, vec![run]);
        assert!(grown > 0 && looked_for(4));
        // As long as somebody asks between two turns of the hand.
        for _ in 0..3 {
            assert_eq!(status.age(), 0);
            assert!(!looked_for(4));
            assert!(
                !status.take_up(6),
                "another version is not what was laid aside"
            );
            assert!(status.take_up(4) && looked_for(4));
            assert!(!status.take_up(4), "it was taken up");
            assert_eq!(status.bytes(), grown);
        }
        // What is learned meanwhile joins it.
        assert_eq!(status.age(), 0);
        let next = Mapping {
            lblk: Lblk::new(9),
            ..run
        };
        let grown = grown + status.learn(4, vec![next]);
        assert!(status.runs(4, &(2..12)).is_some());
        assert_eq!((status.age(), status.bytes()), (0, grown));
        assert_eq!((status.age(), status.bytes()), (grown, 0));
        assert!(!status.take_up(4) && !looked_for(4));
        assert_eq!(status.age(), 0);
        // Of another version of the map nothing is kept.
        let first = status.learn(4, vec![run]);
        status.age();
        assert_eq!(first + status.learn(8, vec![next]), status.bytes());
        assert!(status.runs(8, &(2..5)).is_none() && status.runs(8, &(9..12)).is_some());
    }

    #[test]
    fn memory_is_bounded_and_a_file_in_too_many_pieces_is_left_alone() {
        let mut known = Known::nothing();
        for i in 0..10_000_u32 {
            let run = Mapping {
                lblk: Lblk::new(i * 3),
                len: 1,
                target: Target::Hole,
            };
            known = known.with(4, vec![run]);
            assert!(known.parts.len() <= MOST_PARTS);
            let at = u64::from(i) * 3;
            if known.lost < MOST_LOST {
                assert!(known.runs(&(at..at + 1)).is_some(), "{i}");
            }
        }
        assert!(known.lost >= MOST_LOST);
        assert_eq!(known.with(6, Vec::new()).lost, 0);
    }
}
