//! The content of many pairs of files, by all threads and in the order of the disk.
//!
//! Of two images that are open for reading each pair becomes segments: a piece of the file that
//! lies in one piece in both, or in one of them where the other has a hole. Segments are put in the
//! order of the first image. Those that lie beside each other in both images are read together,
//! whatever files they belong to, so that two images of one layout are read as two devices from
//! their beginning to their end.

use super::side::{Found, Side};
use super::{Which, stream};
use crate::Error;
use extant_core::Error as EngineError;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::ops::{self, Extent};
use extant_sync::{CountedAtomicU64, RmwClass};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::Builder;

/// Pairs whose segments are in memory together.
const TOGETHER: usize = 16 << 10;
/// Segments of one file at most; one with more is read by itself.
const MOST_SEGMENTS: usize = 64 << 10;
/// Segments in memory, about; what has no room among them is read by itself.
const MOST_TOGETHER: u64 = 1 << 20;
/// Bytes between two segments that are read along with them.
const GAP: u64 = 16 << 10;
/// Bytes that are read at once: as many as stay in the cache of a processor, and more where a
/// request takes a round trip.
const LONGEST: u64 = stream::PIECE as u64;
const LONGEST_FAR: u64 = 2 << 20;

static DIFFERS: RmwClass = RmwClass::new("compared content");
static BYTES: RmwClass = RmwClass::new("compared bytes");
static SEGMENTS: RmwClass = RmwClass::new("segments to compare");
static NEXT: RmwClass = RmwClass::new("things to compare");

/// What reading a pair said: how many bytes were read, and the first that differs.
pub(super) type Outcome = Result<(u64, Option<u64>), (Which, Error)>;

/// A pair to be compared, both of one size.
pub(super) struct Job {
    pub(super) found: [Found; 2],
    pub(super) paths: [PathBuf; 2],
    pub(super) verdict: Arc<Verdict>,
}

/// What is known of a pair by now.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The first byte that differs; the largest number for none.
    at: CountedAtomicU64,
    failed: OnceLock<(Which, Error)>,
}

impl Default for Verdict {
    fn default() -> Self {
        Self {
            at: CountedAtomicU64::new(&DIFFERS, u64::MAX),
            failed: OnceLock::new(),
        }
    }
}

impl Verdict {
    /// The first byte that is known to differ, and what could not be read.
    pub(super) fn get(&self) -> (Option<u64>, Option<&(Which, Error)>) {
        let at = self.at.load(Ordering::Relaxed);
        ((at != u64::MAX).then_some(at), self.failed.get())
    }

    fn differs(&self, at: u64) {
        self.at.fetch_min(at, Ordering::Relaxed);
    }

    fn fail(&self, side: Which, error: Error) {
        // The first failure says enough.
        let _ = self.failed.set((side, error));
    }

    /// Whether a byte before `at` is known to differ.
    fn differs_before(&self, at: u64) -> bool {
        self.at.load(Ordering::Relaxed) < at
    }
}

/// A piece of a pair that lies in one piece on each side, or on one where the other has a hole.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// The pair, by number.
    job: u32,
    /// Where in the files, in bytes.
    at: u64,
    len: u64,
    /// Where on the two devices.
    from: [Option<u64>; 2],
}

impl Segment {
    /// Where it comes: in the order of the first device, and what that does not have at last.
    fn position(&self) -> (bool, Option<u64>) {
        let [first, second] = self.from;
        (first.is_none(), first.or(second))
    }

    /// Bytes from the start of this segment to that of another one behind it, if they lie alike on
    /// both devices.
    fn distance(&self, next: &Self) -> Option<u64> {
        let of = |side: usize| match (self.from[side], next.from[side]) {
            (None, None) => Some(None),
            (Some(this), Some(next)) => next.checked_sub(this).map(Some),
            _ => None,
        };
        match (of(0)?, of(1)?) {
            (Some(one), Some(other)) => (one == other).then_some(one),
            (one, other) => one.or(other),
        }
    }
}

/// What one thread is given.
enum Work {
    /// Segments that are read together.
    Segments(Range<usize>),
    /// A pair that is read by itself.
    Stream(u32),
}

/// A count of bytes that were compared.
pub(super) fn no_bytes() -> CountedAtomicU64 {
    CountedAtomicU64::new(&BYTES, 0)
}

/// Compares pairs.
pub(super) struct Content<'a> {
    pub(super) sides: [&'a Side; 2],
    pub(super) threads: usize,
    /// Bytes read of one side.
    pub(super) bytes: &'a CountedAtomicU64,
}

impl Content<'_> {
    /// Compares all of them.
    pub(super) fn compare(&self, jobs: &[Job]) {
        for some in jobs.chunks(TOGETHER) {
            self.some(some);
        }
    }

    fn some(&self, jobs: &[Job]) {
        let devices = self.devices();
        let longest = match devices {
            Some(devices) if devices.iter().any(|fs| ops::in_flight(fs) > 1) => LONGEST_FAR,
            _ => LONGEST,
        };
        let numbers: Vec<u32> = (0..jobs.len() as u32).collect();
        let made = CountedAtomicU64::new(&SEGMENTS, 0);
        let parts = by_all(self.threads, &numbers, Parts::default, |parts, &number| {
            let devices = devices.filter(|_| made.load(Ordering::Relaxed) < MOST_TOGETHER);
            if let Some(job) = jobs.get(number as usize) {
                let before = parts.segments.len();
                self.cut(job, number, devices, longest, parts);
                let more = parts.segments.len() - before;
                made.fetch_add(more as u64, Ordering::Relaxed);
            }
        });
        let mut segments = Vec::new();
        let mut streams = Vec::new();
        for part in parts {
            segments.extend(part.segments);
            streams.extend(part.streams);
        }
        segments.sort_unstable_by_key(Segment::position);
        streams.sort_unstable();
        let streams = streams.into_iter().map(|(_, number)| Work::Stream(number));
        let mut work: Vec<Work> = streams.collect();
        work.extend(spans(&segments, longest).into_iter().map(Work::Segments));
        let buffers = || [Vec::new(), Vec::new()];
        by_all(self.threads, &work, buffers, |buffers, work| match work {
            Work::Stream(number) => {
                if let Some(job) = jobs.get(*number as usize) {
                    self.stream(job, buffers);
                }
            }
            Work::Segments(range) => {
                if let (Some(devices), Some(some)) = (devices, segments.get(range.clone())) {
                    self.segments(devices, jobs, some, buffers);
                }
            }
        });
    }

    /// The two file systems, if their devices have what their files hold.
    fn devices(&self) -> Option<[&Fs; 2]> {
        let [first, second] = self.sides.map(Side::filesystem);
        let (first, second) = (&**first?.fs(), &**second?.fs());
        let is_still = |fs: &Fs| fs.check_writable().is_err();
        (is_still(first) && is_still(second)).then_some([first, second])
    }

    /// Cuts a pair into segments, or leaves it to be read by itself.
    fn cut(
        &self,
        job: &Job,
        number: u32,
        devices: Option<[&Fs; 2]>,
        longest: u64,
        parts: &mut Parts,
    ) {
        let inodes = job.found.each_ref().map(|found| found.inside.as_ref());
        let inodes = inodes.map(|inside| inside.map(|inside| &*inside.inode));
        let (Some(devices), [Some(one), Some(other)]) = (devices, inodes) else {
            let sides = self.sides.map(Side::filesystem);
            let position = sides.iter().zip(inodes).find_map(|(fs, inode)| {
                let first = ops::extents(fs.as_ref()?.fs(), inode?).next()?;
                first.ok()?.device_offset
            });
            parts.streams.push((position.unwrap_or(0), number));
            return;
        };
        if std::ptr::eq(devices[0], devices[1]) && one.ino() == other.ino() {
            return;
        }
        // What is encrypted can be compared as it is stored, if both sides are.
        let is_plain = one.is_encrypted() == other.is_encrypted();
        if one.is_inline() || other.is_inline() || !is_plain {
            parts.streams.push((0, number));
            return;
        }
        let before = parts.segments.len();
        match cut(devices, [one, other], number, longest, &mut parts.segments) {
            Ok(true) => {}
            Ok(false) => {
                parts.segments.truncate(before);
                parts.streams.push((0, number));
            }
            Err((side, e)) => {
                parts.segments.truncate(before);
                let path = side.of(&job.paths[0], &job.paths[1]);
                job.verdict.fail(side, Error::engine(&**path, e));
            }
        }
    }

    fn stream(&self, job: &Job, buffers: &mut [Vec<u8>; 2]) {
        match stream::compare(self.sides, job, buffers) {
            Ok((bytes, at)) => {
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                if let Some(at) = at {
                    job.verdict.differs(at);
                }
            }
            Err((side, e)) => job.verdict.fail(side, e),
        }
    }

    /// Compares segments that lie beside each other.
    fn segments(
        &self,
        devices: [&Fs; 2],
        jobs: &[Job],
        some: &[Segment],
        buffers: &mut [Vec<u8>; 2],
    ) {
        let (Some(first), Some(last)) = (some.first(), some.last()) else {
            return;
        };
        let job_of = |segment: &Segment| jobs.get(segment.job as usize);
        let is_known = |segment: &Segment| {
            job_of(segment).is_none_or(|job| job.verdict.differs_before(segment.at))
        };
        if some.iter().all(is_known) {
            return;
        }
        let len = (first.distance(last).unwrap_or(0) + last.len) as usize;
        for (side, which) in [Which::First, Which::Second].into_iter().enumerate() {
            let Some(from) = first.from[side] else {
                continue;
            };
            let buffer = &mut buffers[side];
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            let place = buffer.get_mut(..len).unwrap_or_default();
            let Err(e) = devices[side].device().read_at(from, place) else {
                continue;
            };
            if some.len() > 1 {
                // Each by itself, so that the error is that of the file it is about.
                for one in some.chunks(1) {
                    self.segments(devices, jobs, one, buffers);
                }
            } else if let Some(job) = job_of(first) {
                let e = Error::engine(&*job.paths[side], EngineError::from(e));
                job.verdict.fail(which, e);
            }
            return;
        }
        for segment in some {
            let start = first.distance(segment).unwrap_or(0) as usize;
            let range = start..start + segment.len as usize;
            let part = |side: usize| {
                let buffer = segment.from[side].map(|_| &buffers[side]);
                buffer.map(|buffer| buffer.get(range.clone()).unwrap_or(&[]))
            };
            let Some(job) = job_of(segment) else { continue };
            self.bytes.fetch_add(segment.len, Ordering::Relaxed);
            let differs = match (part(0), part(1)) {
                (Some(one), Some(other)) if one == other => None,
                (Some(one), Some(other)) => one.iter().zip(other).position(|(a, b)| a != b),
                (Some(only), None) | (None, Some(only)) => first_data(only),
                (None, None) => None,
            };
            if let Some(at) = differs {
                job.verdict.differs(segment.at + at as u64);
            }
        }
    }
}

/// What one thread has cut.
#[derive(Default)]
struct Parts {
    segments: Vec<Segment>,
    /// Pairs that are read by themselves, with where they come.
    streams: Vec<(u64, u32)>,
}

/// The first byte that is no zero.
fn first_data(bytes: &[u8]) -> Option<usize> {
    // Without a way out of the loop it takes many bytes at once.
    if bytes.iter().fold(0, |all, byte| all | byte) == 0 {
        return None;
    }
    bytes.iter().position(|byte| *byte != 0)
}

/// The pieces of a file that hold data, one after the other.
struct Pieces<I> {
    rest: I,
    /// First byte and end in the file, and the first byte on the device.
    now: Option<(u64, u64, u64)>,
}

impl<I: Iterator<Item = extant_core::Result<Extent>>> Pieces<I> {
    /// Goes on to the piece that ends behind byte `at`.
    fn go_to(&mut self, at: u64) -> extant_core::Result<()> {
        while self.now.is_some_and(|(_, end, _)| end <= at) {
            self.go_on()?;
        }
        Ok(())
    }

    fn go_on(&mut self) -> extant_core::Result<()> {
        self.now = None;
        for piece in self.rest.by_ref() {
            let piece = piece?;
            if let (false, Some(from)) = (piece.unwritten || piece.len == 0, piece.device_offset) {
                let end = piece.offset.saturating_add(piece.len);
                self.now = Some((piece.offset, end, from));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Cuts a pair into segments; `false` if these would be too many.
fn cut(
    devices: [&Fs; 2],
    inodes: [&Inode; 2],
    job: u32,
    longest: u64,
    segments: &mut Vec<Segment>,
) -> Result<bool, (Which, EngineError)> {
    const WHICH: [Which; 2] = [Which::First, Which::Second];
    let most = segments.len() + MOST_SEGMENTS;
    let mut sides = [0, 1].map(|side| Pieces {
        rest: ops::extents(devices[side], inodes[side]),
        now: None,
    });
    for (side, which) in sides.iter_mut().zip(WHICH) {
        side.go_on().map_err(|e| (which, e))?;
    }
    let mut at = 0;
    loop {
        for (side, which) in sides.iter_mut().zip(WHICH) {
            side.go_to(at).map_err(|e| (which, e))?;
        }
        let now = sides.each_ref().map(|side| side.now);
        let starts = now.iter().flatten().map(|(start, ..)| (*start).max(at));
        let Some(from) = starts.min() else {
            return Ok(true);
        };
        // Up to where one of the two goes on elsewhere.
        let turns = now.iter().flatten().map(|(start, end, _)| {
            let has_begun = *start <= from;
            if has_begun { *end } else { *start }
        });
        let end = turns
            .min()
            .unwrap_or(from)
            .min(from.saturating_add(longest));
        let place = |side: usize| {
            let begun = now[side].filter(|(start, ..)| *start <= from);
            begun.map(|(start, _, on_device)| on_device.saturating_add(from - start))
        };
        if segments.len() == most || end <= from {
            return Ok(false);
        }
        segments.push(Segment {
            job,
            at: from,
            len: end - from,
            from: [place(0), place(1)],
        });
        at = end;
    }
}

/// The ranges of segments, which are in order, that are read together.
fn spans(segments: &[Segment], longest: u64) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        let joins = |span: &&mut Range<usize>| {
            let (Some(first), Some(before)) =
                (segments.get(span.start), segments.get(span.end - 1))
            else {
                return false;
            };
            let step = before.distance(segment);
            let is_near = step.is_some_and(|step| step >= before.len && step - before.len <= GAP);
            let reach = first.distance(segment).unwrap_or(u64::MAX);
            is_near && reach.saturating_add(segment.len) <= longest
        };
        match spans.last_mut().filter(joins) {
            Some(span) => span.end = number + 1,
            None => spans.push(number..number + 1),
        }
    }
    spans
}

/// Does something with each item by so many threads, each of which has a state of its own, begun by
/// `start`. Returns the states.
pub(crate) fn by_all<I: Sync, S: Send>(
    threads: usize,
    items: &[I],
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &I) + Sync,
) -> Vec<S> {
    let next = CountedAtomicU64::new(&NEXT, 0);
    let run = || {
        let mut state = start();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            work(&mut state, item);
        }
        state
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(items.len()))
            // Without a thread the others do its share.
            .map_while(|_| Builder::new().spawn_scoped(scope, run).ok())
            .collect();
        let mut states = vec![run()];
        for other in others {
            match other.join() {
                Ok(state) => states.push(state),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        states
    })
}
