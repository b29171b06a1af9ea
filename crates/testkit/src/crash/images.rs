//! Every image that a crash may leave of a recorded run, each once.
//!
//! # How
//! A *point* is a moment just before a flush ended, or the end of the run. At a point some writes
//! are durable and the rest are in flight; a [`Candidate`] says which of those arrived, and how
//! much of each. A candidate's hash is computed from the hashes of sectors before any image is
//! built, and only images that are new, or that must keep more promises than before, are built and
//! yielded.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;

use extant_blockdev::SharedDevice;

use super::recorder::{CrashDevice, CrashLog, Event};
use super::sectors::{Touched, sector_hash};
use super::{Content, SECTOR};
use crate::rng::Rng;

/// How many images to look at, and how they are chosen when there are more.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Most images in all. Shared out evenly over the points of the run.
    pub images: usize,
    /// Most images at one point.
    pub per_point: usize,
    /// Up to this many writes in flight, every subset of them is tried.
    pub subsets_up_to: usize,
    /// Beyond that, so many random subsets at each point; with torn writes among them, always.
    pub samples: usize,
    /// So many places at which each write of several sectors is cut, the first and last among them.
    pub cuts: usize,
    /// Decides every choice: the same seed, budget and log give the same images.
    pub seed: u64,
}

impl Budget {
    /// No limit but the ways to choose.
    pub fn exhaustive() -> Budget {
        Budget {
            images: usize::MAX,
            per_point: usize::MAX,
            subsets_up_to: 12,
            samples: 256,
            cuts: 16,
            seed: 0,
        }
    }

    /// At most `images`, chosen by `seed`.
    pub fn limited(images: usize, seed: u64) -> Budget {
        Budget {
            images,
            samples: 64,
            cuts: 8,
            seed,
            ..Budget::exhaustive()
        }
    }
}

/// How much of a write arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tear {
    /// The first so many sectors.
    Prefix(u32),
    /// All but the first so many sectors.
    Suffix(u32),
    /// All but these sectors.
    Without(u32, u32),
    /// Each sector by a coin.
    Coins(u64),
}

/// Which of the other writes arrived beside a torn one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Those that completed before it.
    Earlier,
    /// All of them.
    All,
    /// None.
    Nothing,
}

/// What arrived of the writes in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Candidate {
    /// The first so many.
    First(u32),
    /// Those of the bit mask.
    Mask(u32),
    /// One.
    Only(u32),
    /// All but one.
    AllBut(u32),
    /// Each by a coin; torn ones among them if it says so.
    Coins {
        /// Seed of the coins.
        seed: u64,
        /// Whether writes may be torn.
        torn: bool,
    },
    /// One is torn.
    Torn {
        /// The torn write.
        write: u32,
        /// How.
        tear: Tear,
        /// What else arrived.
        beside: Beside,
    },
}

/// A write in flight at the current point.
struct InFlight {
    /// Its event in the log.
    event: usize,
    /// The number of each of its sectors in [`Touched`].
    numbers: Vec<u32>,
    /// The hash of each of its sectors.
    hashes: Vec<u128>,
}

/// The point the iterator stands at.
struct Point {
    /// Events before this one have happened.
    at: usize,
    marks: usize,
    in_flight: Vec<InFlight>,
    touched: Touched,
    candidates: std::vec::IntoIter<Candidate>,
    quota: usize,
}

/// The images of a run; see [`CrashLog::images`].
pub struct CrashImages {
    log: CrashLog,
    budget: Budget,
    rng: Rng,
    /// Places in the log at which a crash is looked at, the next one last.
    points: Vec<usize>,
    /// Writes that were under way while a flush ended: when they began, and where they are in the
    /// log.
    spanning: Vec<(usize, usize)>,
    /// The image of everything covered by a flush, and its hash.
    durable: Content,
    durable_hash: u128,
    /// Events before this one are in `durable`.
    covered: usize,
    point: Option<Point>,
    /// Each image seen, with the number of marks it was last held against.
    seen: HashMap<u128, usize>,
    considered: u64,
    yielded: usize,
}

impl CrashImages {
    pub(super) fn new(log: CrashLog, budget: Budget) -> CrashImages {
        let events = log.events();
        let flush_places: Vec<usize> = (0..events.len())
            .filter(|&at| matches!(events[at], Event::Flush { .. }))
            .collect();
        let spanning = (0..events.len())
            .filter_map(|at| {
                let begun = begun(&events[at])?;
                let first = flush_places.partition_point(|&flush| flush < begun);
                flush_places
                    .get(first)
                    .is_some_and(|&flush| flush < at)
                    .then_some((begun, at))
            })
            .collect();
        let mut points = flush_places;
        points.push(events.len());
        points.reverse();
        CrashImages {
            durable: log.base().clone(),
            log,
            budget,
            rng: Rng::new(budget.seed),
            points,
            spanning,
            durable_hash: 0,
            covered: 0,
            point: None,
            seen: HashMap::new(),
            considered: 0,
            yielded: 0,
        }
    }

    /// Returns the number of distinct images so far, by hash.
    pub fn distinct(&self) -> usize {
        self.seen.len()
    }

    /// Combinations of writes looked at so far, repetitions included.
    pub fn considered(&self) -> u64 {
        self.considered
    }

    /// Moves on to the next point within the budget; false at the end.
    fn next_point(&mut self) -> bool {
        loop {
            let left = self.points.len();
            let Some(at) = self.points.pop() else {
                return false;
            };
            self.make_durable(at);
            let images = self.budget.images - self.yielded;
            let quota = images.div_ceil(left).min(self.budget.per_point);
            // With fewer images than points, some points are left out by a coin.
            let skip = images < left && self.rng.below(left as u64) >= images as u64;
            if quota == 0 || skip {
                continue;
            }
            self.point = Some(self.stand_at(at, quota));
            return true;
        }
    }

    /// Brings `durable` to what flushes that ended before event `at` covered.
    fn make_durable(&mut self, at: usize) {
        let events = &self.log.events()[..at];
        let covers = events.iter().rev().find_map(|event| match event {
            Event::Flush { covers } => Some(*covers),
            _ => None,
        });
        // Flushes may overlap: one that began earlier may end later.
        let covers = covers.unwrap_or(0).max(self.covered);
        let mut touched = Touched::default();
        touched.start_image();
        for event in &self.log.events()[self.covered..covers] {
            let Some(sectors) = sectors(event) else {
                continue;
            };
            for sector in sectors.clone() {
                let number = touched.number(sector, &self.durable);
                let added = touched.put(number, hash_in(event, sector));
                self.durable_hash = self.durable_hash.wrapping_add(added);
            }
        }
        for event in &self.log.events()[self.covered..covers] {
            if let Some(all) = sectors(event) {
                apply(&mut self.durable, event, 0..(all.end - all.start) as u32);
            }
        }
        self.covered = covers;
    }

    fn stand_at(&mut self, at: usize, quota: usize) -> Point {
        let late = self.spanning.iter();
        let late = late.filter(|(begun, done)| *begun <= at && *done >= at);
        let order: Vec<usize> = (self.covered..at).chain(late.map(|l| l.1)).collect();
        let mut touched = Touched::default();
        let mut in_flight = Vec::new();
        for event in order {
            let change = &self.log.events()[event];
            if let Some(sectors) = sectors(change) {
                let number = |sector| touched.number(sector, &self.durable);
                in_flight.push(InFlight {
                    event,
                    numbers: sectors.clone().map(number).collect(),
                    hashes: sectors.map(|sector| hash_in(change, sector)).collect(),
                });
            }
        }
        let marks = self.log.events()[..at].iter();
        let marks = marks.filter(|e| matches!(e, Event::Mark(_))).count();
        let candidates = self.candidates(&in_flight, quota);
        Point {
            at,
            marks,
            in_flight,
            touched,
            candidates: candidates.into_iter(),
            quota,
        }
    }

    /// What to try at a point, most telling first.
    fn candidates(&mut self, in_flight: &[InFlight], quota: usize) -> Vec<Candidate> {
        let n = in_flight.len() as u32;
        let prefixes: Vec<Candidate> = (0..=n).map(Candidate::First).collect();
        let mut subsets = Vec::new();
        let mut samples = Vec::new();
        if n as usize <= self.budget.subsets_up_to.min(20) {
            subsets.extend((0..1 << n).map(Candidate::Mask));
        } else {
            subsets.extend((0..n).flat_map(|i| [Candidate::Only(i), Candidate::AllBut(i)]));
            let coins = (0..self.budget.samples).map(|_| Candidate::Coins {
                seed: self.rng.next_u64(),
                torn: false,
            });
            samples.extend(coins.collect::<Vec<_>>());
        }
        let mut torn = Vec::new();
        for (write, change) in in_flight.iter().enumerate() {
            for tear in self.tears(change.hashes.len() as u32) {
                for beside in [Beside::Earlier, Beside::All, Beside::Nothing] {
                    let write = write as u32;
                    torn.push(Candidate::Torn {
                        write,
                        tear,
                        beside,
                    });
                }
            }
        }
        if !torn.is_empty() && n > 1 {
            samples.extend((0..self.budget.samples).map(|_| Candidate::Coins {
                seed: self.rng.next_u64(),
                torn: true,
            }));
        }
        let kinds = [prefixes, subsets, torn, samples];
        if kinds.iter().map(Vec::len).sum::<usize>() <= quota {
            return kinds.concat();
        }
        self.choose(kinds, quota)
    }

    /// A mixture of all kinds in random order, nothing and everything first.
    fn choose(&mut self, mut kinds: [Vec<Candidate>; 4], quota: usize) -> Vec<Candidate> {
        let mut chosen: Vec<Candidate> = Vec::new();
        chosen.push(kinds[0].remove(0));
        chosen.extend(kinds[0].pop());
        // Repetitions cost little, so that there is some choice beyond the quota.
        let enough = quota.saturating_mul(4);
        while chosen.len() < enough && kinds.iter().any(|kind| !kind.is_empty()) {
            for kind in &mut kinds {
                if !kind.is_empty() {
                    let pick = self.rng.below(kind.len() as u64) as usize;
                    chosen.push(kind.swap_remove(pick));
                }
            }
        }
        chosen
    }

    /// The ways to tear a write of `sectors` sectors.
    fn tears(&mut self, sectors: u32) -> Vec<Tear> {
        if sectors < 2 {
            return Vec::new();
        }
        let mut cuts: Vec<u32> = vec![1, sectors - 1, sectors / 2];
        // A file system's own blocks are the likeliest places to be cut at.
        cuts.extend([8, 2].into_iter().filter(|&cut| cut < sectors));
        if sectors as usize - 1 <= self.budget.cuts {
            cuts.extend(1..sectors);
        } else {
            while cuts.len() < self.budget.cuts {
                cuts.push(self.rng.between(1, u64::from(sectors) - 1) as u32);
            }
        }
        let mut known = HashSet::new();
        cuts.retain(|&cut| known.insert(cut));
        cuts.truncate(self.budget.cuts);
        let mut tears = Vec::new();
        for &cut in &cuts {
            tears.extend([Tear::Prefix(cut), Tear::Suffix(cut)]);
            if cut + 1 < sectors {
                let end = self.rng.between(u64::from(cut) + 1, u64::from(sectors) - 1);
                tears.push(Tear::Without(cut, end as u32));
            }
        }
        if sectors > 3 && !cuts.is_empty() {
            tears.push(Tear::Coins(self.rng.next_u64()));
        }
        tears
    }

    /// The next image at the current point.
    fn next_here(&mut self) -> Option<CrashImage> {
        let point = self.point.as_mut()?;
        if point.quota == 0 || self.yielded >= self.budget.images {
            return None;
        }
        for candidate in point.candidates.by_ref() {
            self.considered += 1;
            let parts = arrived(candidate, &point.in_flight);
            point.touched.start_image();
            let mut hash = self.durable_hash;
            for (write, kept) in &parts {
                let change = &point.in_flight[*write];
                for sector in kept.iter().flat_map(Clone::clone) {
                    let sector = sector as usize;
                    let added = point
                        .touched
                        .put(change.numbers[sector], change.hashes[sector]);
                    hash = hash.wrapping_add(added);
                }
            }
            // Seen before with as many promises made: nothing new to learn.
            if self
                .seen
                .get(&hash)
                .is_some_and(|&marks| marks >= point.marks)
            {
                continue;
            }
            self.seen.insert(hash, point.marks);
            self.yielded += 1;
            point.quota -= 1;
            let mut content = self.durable.clone();
            let mut what = Vec::new();
            for (write, kept) in parts {
                let change = &point.in_flight[write];
                let event = &self.log.events()[change.event];
                for range in &kept {
                    apply(&mut content, event, range.clone());
                }
                what.push((change.event, change.hashes.len() as u32, kept));
            }
            return Some(CrashImage {
                content,
                log: self.log.clone(),
                hash,
                point: point.at,
                in_flight: point.in_flight.iter().map(|w| w.event).collect(),
                arrived: what,
                candidate,
                seed: self.budget.seed,
            });
        }
        None
    }
}

impl Iterator for CrashImages {
    type Item = CrashImage;

    fn next(&mut self) -> Option<CrashImage> {
        loop {
            if let Some(image) = self.next_here() {
                return Some(image);
            }
            if self.yielded >= self.budget.images || !self.next_point() {
                return None;
            }
        }
    }
}

impl fmt::Debug for CrashImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashImages")
            .field("budget", &self.budget)
            .field("points_left", &self.points.len())
            .field("distinct", &self.seen.len())
            .field("considered", &self.considered)
            .finish_non_exhaustive()
    }
}

/// When a write began.
fn begun(event: &Event) -> Option<usize> {
    match event {
        Event::Write { begun, .. } | Event::Zero { begun, .. } => Some(*begun),
        Event::Flush { .. } | Event::Mark(_) => None,
    }
}

/// The sectors that a write covers, by number on the device.
fn sectors(event: &Event) -> Option<Range<u64>> {
    let (offset, len) = match event {
        Event::Write { offset, bytes, .. } => (*offset, bytes.len() as u64),
        Event::Zero { offset, len, .. } => (*offset, *len),
        Event::Flush { .. } | Event::Mark(_) => return None,
    };
    let sector = SECTOR as u64;
    Some(offset / sector..(offset + len) / sector)
}

/// The hash of what a write puts in `sector`.
fn hash_in(event: &Event, sector: u64) -> u128 {
    match event {
        Event::Write { offset, bytes, .. } => {
            let at = (sector * SECTOR as u64 - offset) as usize;
            sector_hash(sector, &bytes[at..at + SECTOR])
        }
        _ => sector_hash(sector, &[0; SECTOR]),
    }
}

/// Puts the sectors `kept` of a write, counted from its first, into `content`.
fn apply(content: &mut Content, event: &Event, kept: Range<u32>) {
    let from = kept.start as usize * SECTOR;
    let to = kept.end as usize * SECTOR;
    match event {
        Event::Write { offset, bytes, .. } => {
            content.write(offset + from as u64, &bytes[from..to]);
        }
        Event::Zero { offset, .. } => content.zero(offset + from as u64, (to - from) as u64),
        Event::Flush { .. } | Event::Mark(_) => {}
    }
}

/// The writes that arrived, in order of completion, with the sectors that did.
fn arrived(candidate: Candidate, in_flight: &[InFlight]) -> Vec<(usize, Vec<Range<u32>>)> {
    let mut coins = match candidate {
        Candidate::Coins { seed, .. } => Rng::new(seed),
        _ => Rng::new(0),
    };
    let part = |(write, change): (usize, &InFlight)| {
        let sectors = change.hashes.len() as u32;
        let number = write as u32;
        let is_there = match candidate {
            Candidate::First(count) => number < count,
            Candidate::Mask(mask) => mask >> number & 1 == 1,
            Candidate::Only(one) => number == one,
            Candidate::AllBut(one) => number != one,
            Candidate::Coins { torn, .. } => {
                let coin = coins.next_u64();
                if torn && coin % 4 == 1 {
                    return Some((write, kept(Tear::Coins(coin), sectors)));
                }
                coin % 2 == 0
            }
            Candidate::Torn {
                write: torn,
                tear,
                beside,
            } => {
                if torn == number {
                    return Some((write, kept(tear, sectors)));
                }
                match beside {
                    Beside::Earlier => number < torn,
                    Beside::All => true,
                    Beside::Nothing => false,
                }
            }
        };
        is_there.then(|| (write, std::iter::once(0..sectors).collect()))
    };
    in_flight.iter().enumerate().filter_map(part).collect()
}

/// The sectors that a torn write of `sectors` sectors left.
fn kept(tear: Tear, sectors: u32) -> Vec<Range<u32>> {
    match tear {
        Tear::Prefix(cut) => std::iter::once(0..cut).collect(),
        Tear::Suffix(cut) => std::iter::once(cut..sectors).collect(),
        Tear::Without(from, to) => vec![0..from, to..sectors],
        Tear::Coins(seed) => {
            let mut coins = Rng::new(seed);
            let is_there = |_: &u32| coins.one_in(2);
            let single = (0..sectors).filter(is_there);
            single.map(|sector| sector..sector + 1).collect()
        }
    }
}

/// What a device may hold after a crash.
#[derive(Debug, Clone)]
pub struct CrashImage {
    content: Content,
    log: CrashLog,
    hash: u128,
    point: usize,
    in_flight: Vec<usize>,
    /// Event, its sectors, and those of them that arrived.
    arrived: Vec<(usize, u32, Vec<Range<u32>>)>,
    candidate: Candidate,
    seed: u64,
}

impl CrashImage {
    /// Returns what the device holds.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns a writable device with a copy of the image.
    pub fn open(&self) -> SharedDevice {
        self.content.open()
    }

    /// Returns a recording device with a copy of the image, for crashes inside recovery.
    pub fn record(&self) -> CrashDevice {
        CrashDevice::over(self.content.clone())
    }

    /// Writes the image as a file with holes.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub fn write_to(&self, path: &Path) {
        self.content
            .write_to(path)
            .unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
    }

    /// Returns the hash of the differences from the base.
    pub fn hash(&self) -> u128 {
        self.hash
    }

    /// Returns whether a write that covers `bytes` of the device arrived there in part only.
    pub fn tears(&self, bytes: Range<u64>) -> bool {
        let covered = bytes.start / SECTOR as u64..bytes.end.div_ceil(SECTOR as u64);
        self.arrived.iter().any(|(event, _, kept)| {
            let all = sectors(&self.log.events()[*event]).unwrap_or_default();
            let there = covered.clone().filter(|sector| {
                let has = |range: &Range<u32>| {
                    (all.start + u64::from(range.start)..all.start + u64::from(range.end))
                        .contains(sector)
                };
                kept.iter().any(has)
            });
            let touches = all.start < covered.end && covered.start < all.end;
            touches
                && !matches!(there.count() as u64, n if n == 0 || n == covered.end - covered.start)
        })
    }

    /// Returns how many events of the log had happened when the crash came.
    pub fn point(&self) -> usize {
        self.point
    }

    /// Returns whether `mark` had been set before the crash.
    pub fn holds(&self, mark: u64) -> bool {
        self.log.position_of(mark).is_some_and(|at| at < self.point)
    }

    /// Returns the marks set before the crash, in order.
    pub fn marks(&self) -> impl Iterator<Item = u64> {
        let before = self.log.events()[..self.point].iter();
        before.filter_map(|event| match event {
            Event::Mark(mark) => Some(*mark),
            _ => None,
        })
    }
}

impl fmt::Display for CrashImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (point, events) = (self.point, self.log.events());
        match events.get(point) {
            Some(event) => write!(f, "crash at event {point} ({event:?})")?,
            None => write!(f, "crash at the end, after {point} events")?,
        }
        write!(
            f,
            ", {} of {} writes in flight arrived",
            self.arrived.len(),
            self.in_flight.len()
        )?;
        let mut rest = 12;
        let present: HashSet<usize> = self.arrived.iter().map(|a| a.0).collect();
        for lost in self.in_flight.iter().filter(|e| !present.contains(e)) {
            rest -= 1;
            if rest == 0 {
                return write!(
                    f,
                    "; and so on ({:?}, seed {:#x})",
                    self.candidate, self.seed
                );
            }
            write!(f, "; lost {lost}: {:?}", events[*lost])?;
        }
        for (event, sectors, kept) in &self.arrived {
            if kept.iter().map(|r| r.end - r.start).sum::<u32>() < *sectors {
                write!(
                    f,
                    "; torn {event}: {:?}, of {sectors} sectors only {kept:?}",
                    events[*event]
                )?;
            }
        }
        write!(f, " ({:?}, seed {:#x})", self.candidate, self.seed)
    }
}
