//! `live`: blocks of a file are reserved here and there among those that are kept ready for it,
//! while as many preallocations stay alive as were asked for. What counts is the rate of calls when
//! so many are alive, and that it does not fall as they get more.
//!
//! The file is reserved with a gap of three blocks behind each block, and each gap is a
//! preallocation. Four calls use one up and bring another: one goes on behind the last gap, one
//! splits a gap of three, and two take what is left of gaps that were split. So three calls of four
//! ask for what waits among all others: for what waits longest, so that they go on through the file
//! as `sparse` does (`1e3` to `1e6`), or anywhere (`random-1e3` to `random-1e6`), where each also
//! changes another leaf of the map.

use crate::args::{Config, Side};
use crate::crew;
use crate::fragments;
use crate::peer::{Figures, Measured};
use crate::side::Mounted;
use crate::workload::inside::{Images, Inside, Meter, PEERS};
use crate::workload::{Case, Shape, Workload};
use extant_testkit::rng::Rng;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a block.
const BLOCK: u64 = 1 << 10;
/// From one block to the next, in blocks: one, and a gap of three.
const STRIDE: u64 = 4;
/// Rounds, of which the median counts, and the calls of each unless others are asked for.
const ROUNDS: usize = 5;
const CALLS: u64 = 100_000;
/// A round ends after this time with fewer calls, which is looked at after every so many.
const MOST_TIME: Duration = Duration::from_secs(2);
const BETWEEN_LOOKS: usize = 16;

/// See the module.
pub(crate) struct Live {
    images: Images,
    /// Calls of a round.
    calls: usize,
}

impl Live {
    /// Makes the scratch folder.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        Ok(Self {
            images: Images::prepare(config, 4096)?,
            calls: config.fallocations.unwrap_or(CALLS) as usize,
        })
    }

    /// Blocks that the file has in the end: each gap that comes is used up by four calls.
    fn blocks(&self, alive: u64) -> u64 {
        (alive + (ROUNDS * self.calls) as u64 / 4) * STRIDE
    }
}

/// What begins the names of variants that ask anywhere.
const RANDOM: &str = "random-";
const VARIANTS: &[&str] = &[
    "1e3",
    "1e4",
    "1e5",
    "1e6",
    "random-1e3",
    "random-1e4",
    "random-1e5",
    "random-1e6",
];

/// Preallocations that are to be alive.
fn alive(case: &Case) -> u64 {
    match case.variant.trim_start_matches(RANDOM) {
        "1e3" => 1_000,
        "1e4" => 10_000,
        "1e5" => 100_000,
        _ => 1_000_000,
    }
}

/// What waits in the gaps, and which blocks are asked for next.
struct Gaps {
    /// Chooses among what waits, of which otherwise the oldest comes first.
    rng: Option<Rng>,
    /// How many there have been.
    made: u64,
    /// First blocks of those that are whole.
    whole: VecDeque<u64>,
    /// Blocks that are left of others.
    single: VecDeque<u64>,
}

impl Gaps {
    fn new(case: &Case) -> Self {
        let is_random = case.variant.starts_with(RANDOM);
        Self {
            rng: is_random.then(|| Rng::new(alive(case))),
            made: 0,
            whole: VecDeque::new(),
            single: VecDeque::new(),
        }
    }

    /// Makes a gap: the block to ask for.
    fn make(&mut self) -> u64 {
        let block = self.made * STRIDE;
        self.made += 1;
        self.whole.push_back(block + 1);
        block
    }

    /// Splits the whole gap that begins with `first`.
    fn split(&mut self, first: u64) -> u64 {
        self.single.extend([first, first + 2]);
        first + 1
    }

    /// Blocks to ask for until so many preallocations are alive, half of them whole gaps: each gap
    /// that is split is so at once, where a list has it in front.
    fn first(&mut self, alive: u64) -> Vec<u64> {
        let mut blocks = Vec::new();
        for gap in 0..alive * 3 / 4 {
            blocks.push(self.make());
            if gap % 3 == 0
                && let Some(first) = self.whole.pop_back()
            {
                blocks.push(self.split(first));
            }
        }
        blocks
    }

    /// Blocks to ask for from then on: as many stay alive.
    fn next(&mut self, calls: usize) -> Vec<u64> {
        let mut blocks = Vec::with_capacity(calls + 3);
        while blocks.len() < calls {
            blocks.push(self.make());
            if let Some(first) = take(&mut self.rng, &mut self.whole) {
                blocks.push(self.split(first));
            }
            blocks.extend((0..2).filter_map(|_| take(&mut self.rng, &mut self.single)));
        }
        blocks
    }
}

/// Takes out one of them.
fn take(rng: &mut Option<Rng>, from: &mut VecDeque<u64>) -> Option<u64> {
    match rng {
        Some(rng) => from.swap_remove_back(rng.below(from.len() as u64) as usize),
        None => from.pop_front(),
    }
}

impl Inside for Live {
    fn work<M: Mounted>(
        &self,
        mounted: &M,
        case: &Case,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let alive = alive(case);
        let dir = mounted.root()?;
        let file = mounted.create(&dir, c"file")?;
        // All calls lie in the middle of the file: an append has nothing kept ready before it.
        mounted.truncate(&file, self.blocks(alive) * BLOCK)?;
        let reserve = |block: &u64| mounted.fallocate(&file, block * BLOCK, BLOCK);
        let mut gaps = Gaps::new(case);
        gaps.first(alive).iter().try_for_each(reserve)?;
        let steps = gaps.next(ROUNDS * self.calls);
        let check = || {
            let now = mounted.preallocations(&file);
            let capped = case.side == Side::BaselineCapped;
            match now.filter(|now| !capped && now.abs_diff(alive) > alive / 10) {
                Some(now) => Err(format!("{now} preallocations are alive, not {alive}")),
                None => Ok(now),
            }
        };
        let before = check()?;
        let mut rates = Vec::with_capacity(ROUNDS);
        let mut measured = meter.value(mounted, || {
            let mut rest = &steps[..];
            for _ in 0..ROUNDS {
                mounted.sync()?;
                let (now, behind) = rest.split_at(self.calls);
                let done = AtomicUsize::new(0);
                let seconds = crew::timed(1, |_| round(now, reserve, &done), || Ok(()))?;
                let done = done.into_inner();
                rates.push(done as f64 / seconds);
                // What there was no time for is done by the next round.
                rest = if done < self.calls {
                    &rest[done..]
                } else {
                    behind
                };
            }
            rates.sort_by(f64::total_cmp);
            let calls = steps.len() - rest.len();
            Ok((rates[ROUNDS / 2], calls as u64))
        })?;
        let after = check()?;
        let figures = &mut measured.figures;
        figures.extend(before.map(|n| ("alive before", n as f64)));
        figures.extend(after.map(|n| ("alive after", n as f64)));
        figures.insert("slowest round", rates[0]);
        figures.insert("fastest round", rates[ROUNDS - 1]);
        Ok(measured)
    }

    fn check(&self, image: &Path, _: &Case) -> Result<Figures, String> {
        fragments::figures(image)
    }
}

/// Reserves blocks for as long as a round may take, and notes how many.
fn round(
    blocks: &[u64],
    reserve: impl Fn(&u64) -> Result<(), String>,
    done: &AtomicUsize,
) -> Result<(), String> {
    let start = Instant::now();
    for some in blocks.chunks(BETWEEN_LOOKS) {
        if start.elapsed() > MOST_TIME {
            break;
        }
        some.iter().try_for_each(&reserve)?;
        done.fetch_add(some.len(), Ordering::Relaxed);
    }
    Ok(())
}

impl Workload for Live {
    fn name(&self) -> &'static str {
        "live"
    }

    fn shape(&self) -> Shape {
        Shape::rates(PEERS, VARIANTS, &[1])
    }

    fn options(&self, case: &Case) -> String {
        let place = if case.variant.starts_with(RANDOM) {
            "anywhere"
        } else {
            "further and further"
        };
        let work = format!(
            "{ROUNDS} rounds of {} calls of 1 KiB, or of {} s if that is less, {place} among what is kept ready; \
             the median round",
            self.calls,
            MOST_TIME.as_secs()
        );
        self.images.options(case, &work)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        let shape = crate::store::ImageShape {
            mib: 256.max((self.blocks(alive(case)) * BLOCK * 5 / 4) >> 20),
            block_size: Some(BLOCK as u32),
            ..self.images.shape
        };
        let image = self.images.store.fresh_image(case.form, shape)?;
        self.images.run_on(&image, case, self)
    }
}
