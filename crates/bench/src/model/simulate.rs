//! Throughput on cores that are not here: a discrete-event simulation of workers that think, take
//! locks and change cache lines others have changed.
//!
//! Each worker has a core of its own and repeats one operation: some time for itself, then its
//! visits to places of which there are few. A place serves one worker at a time, in the order in
//! which they came. A visitor that finds there what another core has left first waits for the cache
//! lines to come over: one of the lock, and so many that the lock guards. That makes a lock slower
//! the moment a second core uses it, which is what the published figures of lists and global locks
//! show. Nothing else of a machine is here: no memory bandwidth, no clock that falls when all cores
//! are busy, no preemption.

/// A class of places that workers share: a lock, or a counter that is changed in one instruction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shared {
    pub(crate) name: String,
    /// How many of them there are, if all are used alike: two workers meet in one of so many
    /// visits. A worker picks any, each time anew.
    pub(crate) places: f64,
    /// Visits of one operation; what is left of a whole number is the chance of one more.
    pub(crate) visits: f64,
    /// Nanoseconds of one visit that finds all it needs in its own cache.
    pub(crate) hold_ns: f64,
    /// Cache lines besides the lock's own that a visit changes.
    pub(crate) lines: f64,
    /// A worker keeps to one place, which no other visits as long as there are enough.
    pub(crate) keeps: bool,
}

/// What one operation does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    /// Nanoseconds that no other worker can touch.
    pub(crate) think_ns: f64,
    pub(crate) shared: Vec<Shared>,
}

impl Operation {
    /// Nanoseconds of an operation that meets no other.
    pub(crate) fn alone_ns(&self) -> f64 {
        let visits = self.shared.iter().map(|s| s.visits * s.hold_ns);
        self.think_ns + visits.sum::<f64>()
    }
}

/// One place: which worker changed it last, and until when it is taken. Workers that wait are
/// served in the order of arrival, so all they leave behind is that time.
#[derive(Clone, Copy)]
struct Place {
    last: u32,
    free_at: f64,
}

/// With more places than these nobody meets.
const MOST_PLACES: f64 = 1e6;

/// Nobody changed it yet.
const NOBODY: u32 = u32::MAX;

/// Operations per second of so many workers, all together, each on a core of its own.
///
/// `line_ns` is what it takes to get a cache line that another core has changed. The result
/// repeats: chance comes from a fixed seed.
pub(crate) fn rate(operation: &Operation, workers: u32, line_ns: f64) -> f64 {
    let mut chance = Chance(0x5eed_0000 + u64::from(workers));
    let mut places: Vec<Vec<Place>> = operation
        .shared
        .iter()
        .map(|shared| {
            let place = Place {
                last: NOBODY,
                free_at: 0.0,
            };
            vec![place; shared.places.clamp(1.0, MOST_PLACES).round() as usize]
        })
        .collect();
    // The queue of arrivals: the time a worker comes to its next visit.
    let mut agenda = std::collections::BinaryHeap::new();
    for worker in 0..workers {
        // Nobody begins together.
        let start = operation.alone_ns() * chance.unit();
        agenda.push(Arrival::new(start, worker, 0));
    }
    let steps = operation.shared.len();
    let think = operation.think_ns / (steps as f64 + 1.0);
    let warm_up = u64::from(workers) * 50;
    let counted = u64::from(workers) * 200 + 5_000;
    let (mut done, mut from) = (0, 0.0);
    while let Some(Arrival { at, worker, step }) = agenda.pop() {
        let mut now = at.0;
        if step as usize == steps {
            done += 1;
            if done == warm_up {
                from = now;
            }
            if done == warm_up + counted {
                return counted as f64 * 1e9 / (now - from).max(1.0);
            }
            // Thinking varies by a half of itself, or workers would walk in step.
            now += think * (0.5 + chance.unit());
            agenda.push(Arrival::new(now, worker, 0));
            continue;
        }
        let shared = &operation.shared[step as usize];
        let whole = shared.visits.floor();
        let more = chance.unit() < shared.visits - whole;
        for _ in 0..whole as u64 + u64::from(more) {
            let all = &mut places[step as usize];
            let which = if shared.keeps {
                worker as usize % all.len()
            } else {
                ((chance.unit() * all.len() as f64) as usize).min(all.len() - 1)
            };
            let place = &mut all[which];
            let moved = place.last != worker && place.last != NOBODY;
            let lines = if moved { 1.0 + shared.lines } else { 0.0 };
            now = now.max(place.free_at) + lines * line_ns + shared.hold_ns;
            *place = Place {
                last: worker,
                free_at: now,
            };
        }
        now += think * (0.5 + chance.unit());
        agenda.push(Arrival::new(now, worker, step + 1));
    }
    0.0
}

/// A worker comes to one of its visits. Ordered so that the earliest is served first.
#[derive(Clone, Copy, PartialEq)]
struct Arrival {
    at: Time,
    worker: u32,
    step: u32,
}

#[derive(Clone, Copy, PartialEq)]
struct Time(f64);

impl Arrival {
    fn new(at: f64, worker: u32, step: u32) -> Self {
        Self {
            at: Time(at),
            worker,
            step,
        }
    }
}

impl Eq for Arrival {}

impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let at = other.at.0.total_cmp(&self.at.0);
        at.then_with(|| other.worker.cmp(&self.worker))
    }
}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Splitmix64.
struct Chance(u64);

impl Chance {
    /// A number in 0..1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(places: f64, hold_ns: f64, lines: f64) -> Shared {
        Shared {
            name: "lock".to_owned(),
            places,
            visits: 1.0,
            hold_ns,
            lines,
            keeps: false,
        }
    }

    fn operation(think_ns: f64, shared: Vec<Shared>) -> Operation {
        Operation { think_ns, shared }
    }

    fn close(found: f64, expected: f64, percent: f64) {
        let off = (found - expected).abs() * 100.0 / expected;
        assert!(off <= percent, "{found:.0}, not {expected:.0}");
    }

    #[test]
    fn workers_that_share_nothing_scale_with_their_number() {
        let alone = operation(1000.0, Vec::new());
        close(rate(&alone, 1, 100.0), 1e6, 3.0);
        close(rate(&alone, 64, 100.0), 64e6, 3.0);
    }

    #[test]
    fn one_lock_bounds_the_rate_by_its_hold_and_the_lines_that_move() {
        let one = operation(900.0, vec![lock(1.0, 100.0, 2.0)]);
        close(rate(&one, 1, 50.0), 1e6, 3.0);
        // Each of many finds what another left: its hold, and three lines.
        close(rate(&one, 64, 50.0), 1e9 / 250.0, 3.0);
        let many = operation(900.0, vec![lock(4096.0, 100.0, 2.0)]);
        assert!(rate(&many, 8, 50.0) > 6e6);
    }

    #[test]
    fn workers_that_keep_to_a_place_meet_when_there_are_more_of_them_than_places() {
        let kept = Shared {
            keeps: true,
            ..lock(4.0, 1000.0, 0.0)
        };
        let all = operation(1000.0, vec![kept]);
        // Each has its own, and nobody waits.
        close(rate(&all, 4, 50.0), 2e6, 3.0);
        // Four places, of which each does one operation after the other.
        close(rate(&all, 64, 50.0), 4e9 / 1050.0, 3.0);
    }
}
