//! What a mount has done, in the text format of Prometheus.

use crate::protocol::Operation;
use extant_core::fs::Fs;
use extant_sync::{CountedAtomicU64, PerCpu, RmwClass, ShardedCounter};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

static COUNTS: RmwClass = RmwClass::new("fuse metrics");

/// Classes of latency: up to 1 µs, 2 µs, 4 µs and so on, the last without end.
const CLASSES: usize = 24;

/// How often, and how fast.
#[derive(Debug)]
pub(crate) struct Metrics {
    shards: PerCpu<Box<[Histogram]>>,
    /// Requests that came through io_uring.
    through_rings: ShardedCounter,
}

#[derive(Debug)]
struct Histogram {
    classes: [CountedAtomicU64; CLASSES],
    nanos: CountedAtomicU64,
}

impl Histogram {
    fn new() -> Self {
        let zero = || CountedAtomicU64::new(&COUNTS, 0);
        Self {
            classes: std::array::from_fn(|_| zero()),
            nanos: zero(),
        }
    }
}

/// Notes when it is dropped how long a request took.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    metrics: &'a Metrics,
    operation: Operation,
    since: Instant,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let nanos = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // The number of bits of the microseconds, which is 0 below one.
        let class = (u64::BITS - (nanos.saturating_sub(1) / 1000).leading_zeros()) as usize;
        let shard = self.metrics.shards.local();
        if let Some(histogram) = shard.get(self.operation as usize) {
            let count: &CountedAtomicU64 = &histogram.classes[class.min(CLASSES - 1)];
            count.fetch_add(1, Relaxed);
            histogram.nanos.fetch_add(nanos, Relaxed);
        }
    }
}

/// Writes more metrics, which only the program has: whole lines, in the text format of Prometheus.
pub type TellsAlso = fn() -> String;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            shards: PerCpu::new(|_| Operation::NAMES.iter().map(|_| Histogram::new()).collect()),
            through_rings: ShardedCounter::new(),
        }
    }

    /// Times a request until what this returns is dropped.
    pub(crate) fn time(&self, operation: Operation) -> Timed<'_> {
        Timed {
            metrics: self,
            operation,
            since: Instant::now(),
        }
    }

    /// Counts a request that came through io_uring.
    pub(crate) fn came_through_ring(&self) {
        self.through_rings.add(1);
    }

    /// Tells whether any request came through io_uring.
    pub(crate) fn uses_rings(&self) -> bool {
        self.through_rings.count() > 0
    }

    /// Writes everything as text. `known` are the inodes that the kernel knows, and how many of
    /// them have no name.
    pub(crate) fn text(&self, fs: &Fs, known: (u64, u64)) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.requests(&mut text);
        let _ = writeln!(
            text,
            "# HELP extant_ring_requests_total Requests that came through io_uring.\n\
             # TYPE extant_ring_requests_total counter\n\
             extant_ring_requests_total {}",
            self.through_rings.count()
        );
        let _ = engine(&mut text, fs, known);
        text
    }

    fn requests(&self, text: &mut String) -> std::fmt::Result {
        let name = "extant_request_seconds";
        writeln!(
            text,
            "# HELP {name} Time until a request of the kernel was answered."
        )?;
        writeln!(text, "# TYPE {name} histogram")?;
        for (request, op) in Operation::NAMES.iter().enumerate() {
            let all = || self.shards.iter().filter_map(|shard| shard.get(request));
            let sum = |class: usize| -> u64 {
                all()
                    .filter_map(|histogram| histogram.classes.get(class))
                    .map(|count| count.load(Relaxed))
                    .sum()
            };
            let counts: Vec<u64> = (0..CLASSES).map(sum).collect();
            let count: u64 = counts.iter().sum();
            if count == 0 {
                continue;
            }
            let mut below = 0;
            for (class, found) in counts.iter().enumerate().take(CLASSES - 1) {
                below += found;
                let seconds = (1_u64 << class) as f64 / 1e6;
                writeln!(
                    text,
                    "{name}_bucket{{op=\"{op}\",le=\"{seconds}\"}} {below}"
                )?;
            }
            let nanos: u64 = all().map(|histogram| histogram.nanos.load(Relaxed)).sum();
            writeln!(text, "{name}_bucket{{op=\"{op}\",le=\"+Inf\"}} {count}")?;
            writeln!(text, "{name}_sum{{op=\"{op}\"}} {}", nanos as f64 / 1e9)?;
            writeln!(text, "{name}_count{{op=\"{op}\"}} {count}")?;
        }
        Ok(())
    }
}

fn engine(text: &mut String, fs: &Fs, (known, unnamed): (u64, u64)) -> std::fmt::Result {
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        writeln!(text, "# HELP extant_{name} {help}")?;
        writeln!(text, "# TYPE extant_{name} {kind}")?;
        writeln!(text, "extant_{name} {value}")
    };
    one(
        "known_inodes",
        "gauge",
        "Inodes that the kernel knows.",
        known as f64,
    )?;
    let help = "Inodes without names that the kernel knows.";
    one("unnamed_inodes", "gauge", help, unnamed as f64)?;
    let journal = fs.journal_stats();
    let counters = [
        (
            "journal_commits",
            "Transactions committed.",
            journal.commits,
        ),
        ("journal_handles", "Handles started.", journal.handles),
        (
            "journal_waits",
            "Handles that waited for a commit.",
            journal.waits,
        ),
        (
            "journal_blocks",
            "Images of blocks written to the log.",
            journal.blocks,
        ),
        ("journal_checkpoints", "Checkpoints.", journal.checkpoints),
        ("device_flushes", "Flushes of the device.", journal.flushes),
    ];
    for (name, help, value) in counters {
        one(&format!("{name}_total"), "counter", help, value as f64)?;
    }
    let longest = journal.drained_max.as_secs_f64();
    let help = "Longest time for which no operation could start.";
    one("journal_stop_seconds_max", "gauge", help, longest)?;
    let cache = fs.cache().stats();
    let counters = [
        (
            "metadata_hits",
            "Blocks asked for that were in memory.",
            cache.hits,
        ),
        (
            "metadata_misses",
            "Blocks asked for that were not.",
            cache.misses,
        ),
        (
            "metadata_evictions",
            "Blocks forgotten to stay within the budget.",
            cache.evictions,
        ),
    ];
    for (name, help, value) in counters {
        one(&format!("{name}_total"), "counter", help, value as f64)?;
    }
    one(
        "metadata_bytes",
        "gauge",
        "Metadata in memory.",
        cache.bytes as f64,
    )?;
    let data = fs.data_stats();
    one(
        "data_bytes",
        "gauge",
        "File data in memory.",
        data.cached_bytes as f64,
    )?;
    let help = "File data in memory that the device does not have yet.";
    one("dirty_bytes", "gauge", help, data.dirty_bytes as f64)?;
    if let Ok(space) = fs.statfs() {
        let block = f64::from(space.block_size.bytes());
        one(
            "free_bytes",
            "gauge",
            "Free space.",
            space.free as f64 * block,
        )?;
        let free = space.free_inodes as f64;
        one("free_inodes", "gauge", "Free inodes.", free)?;
    }
    Ok(())
}
