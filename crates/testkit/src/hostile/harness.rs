//! Running a reader over mutants in child processes with limits.
//!
//! The parent deals seeds to workers over pipes; a worker walks one mutant at a time and answers.
//! Whatever kills a worker (a panic, an abort for want of memory, an overflown stack) or makes it
//! silent too long is a failure of the seed it was on, so nothing a hostile image can do goes
//! unnoticed or takes the parent down.

use super::Mutant;
use super::specimen::{Specimen, load_specimens};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Lines of the protocol start with this; everything else a worker prints is shown as it is.
const MARK: &str = "@harness ";

/// What one mutant may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Wall time.
    pub time: Duration,
    /// Address space of the worker, in bytes; asking for more aborts it.
    pub memory: u64,
    /// Resident memory of the worker, in bytes: the specimens, some copies of one, and what the
    /// reader may use.
    pub resident: u64,
}

/// How many mutants to walk: until the number or the time is used up.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Seed of the first mutant; the others follow.
    pub first_seed: u64,
    /// Most mutants.
    pub images: u64,
    /// Most time, or `None`.
    pub time: Option<Duration>,
    /// Worker processes.
    pub workers: usize,
}

/// What a run of the harness did.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Mutants walked.
    pub images: u64,
    /// Those that could be opened.
    pub opened: u64,
    /// Time taken.
    pub time: Duration,
    /// Longest time of one mutant.
    pub slowest: (Duration, u64),
    /// Most resident memory of a worker, in KiB.
    pub peak_kib: u64,
}

/// A mutant that broke the reader.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hostile image with seed {:#x}: {}", self.seed, self.what)
    }
}

/// Serves as a worker: walks the mutants whose seeds arrive on standard input until it closes.
/// `walk` returns whether the image could be opened, and may panic.
///
/// # Panics
///
/// When `walk` does, after telling which mutant it was.
pub fn serve(dir: &Path, limits: Limits, mut walk: impl FnMut(Mutant) -> bool) {
    let specimens = load_specimens(dir);
    serve_numbers(limits, |seed, tell| {
        let mutant = mutant_of(&specimens, seed);
        tell(&format!("{}: {}", mutant.specimen, mutant.story.join("; ")));
        walk(mutant)
    });
}

/// As [`serve`], for numbers that mean something else: `walk` tells what it is about to walk, and
/// returns whether that could be opened.
///
/// # Panics
///
/// When `walk` does, after telling what it was.
pub fn serve_numbers(limits: Limits, mut walk: impl FnMut(u64, &mut dyn FnMut(&str)) -> bool) {
    let hard = getrlimit(Resource::As).maximum;
    let wanted = hard.map_or(limits.memory, |hard| hard.min(limits.memory));
    let limit = Rlimit {
        current: Some(wanted),
        maximum: hard,
    };
    setrlimit(Resource::As, limit).expect("limit the address space");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("read a number");
        let number: u64 = line.trim().parse().expect("a number");
        let opened = walk(number, &mut |story| {
            answer(&format!("walking {number} {story}"));
        });
        answer(&format!("done {number} {opened} {}", peak_kib()));
    }
}

/// The mutant that `seed` decides: of which specimen, too.
pub(super) fn mutant_of(specimens: &[Specimen], seed: u64) -> Mutant {
    let index = (seed % specimens.len() as u64) as usize;
    specimens[index].mutant(seed)
}

fn answer(text: &str) {
    let mut out = std::io::stdout().lock();
    // A leading newline: the test harness may have left a line unfinished.
    let _ = writeln!(out, "\n{MARK}{text}");
    let _ = out.flush();
}

/// Most resident memory of this process so far, in KiB; 0 where the system does not say.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Walks mutants in workers started by `command`, each of which must call [`serve`] on its
/// standard input and output.
///
/// # Errors
///
/// The first mutant that broke a worker.
///
/// # Panics
///
/// When a worker cannot be started.
pub fn run(
    command: impl Fn() -> Command + Sync,
    work: Work,
    limits: Limits,
) -> Result<Report, Failure> {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let more = || {
        let in_time = work.time.is_none_or(|time| started.elapsed() < time);
        if stop.load(Ordering::Relaxed) || !in_time {
            return None;
        }
        let n = next.fetch_add(1, Ordering::Relaxed);
        (n < work.images).then(|| work.first_seed.wrapping_add(n))
    };
    let failed = || stop.store(true, Ordering::Relaxed);
    let (mut report, failures) = deal(&command, &more, &failed, work.workers, limits);
    report.time = started.elapsed();
    match failures.into_iter().next() {
        Some(failure) => Err(failure),
        None => Ok(report),
    }
}

/// Walks all `numbers` in workers started by `command`, each of which must call [`serve_numbers`]
/// on its standard input and output. Goes on with another worker where one was broken; what broke
/// them is returned.
///
/// # Panics
///
/// When a worker cannot be started.
pub fn run_all(
    command: impl Fn() -> Command + Sync,
    numbers: &[u64],
    workers: usize,
    limits: Limits,
) -> (Report, Vec<Failure>) {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let more = || {
        let n = next.fetch_add(1, Ordering::Relaxed);
        numbers.get(n as usize).copied()
    };
    let (mut report, failures) = deal(&command, &more, &|| {}, workers, limits);
    report.time = started.elapsed();
    (report, failures)
}

/// Deals numbers to workers until there are no more. `failed` is called when one broke a worker.
fn deal(
    command: &(impl Fn() -> Command + Sync),
    more: &(impl Fn() -> Option<u64> + Sync),
    failed: &(impl Fn() + Sync),
    workers: usize,
    limits: Limits,
) -> (Report, Vec<Failure>) {
    let one = || {
        let (mut report, mut failures) = (Report::nothing(), Vec::new());
        while let Err(failure) = Worker::start(command()).walk_all(more, limits, &mut report) {
            failures.push(failure);
            failed();
        }
        (report, failures)
    };
    let results: Vec<(Report, Vec<Failure>)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(one)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .map(|result| result.expect("a dealer panicked"))
            .collect()
    });
    let (mut total, mut all) = (Report::nothing(), Vec::new());
    for (one, failures) in results {
        total.images += one.images;
        total.opened += one.opened;
        total.slowest = total.slowest.max(one.slowest);
        total.peak_kib = total.peak_kib.max(one.peak_kib);
        all.extend(failures);
    }
    (total, all)
}

impl Report {
    fn nothing() -> Self {
        Self {
            images: 0,
            opened: 0,
            time: Duration::ZERO,
            slowest: (Duration::ZERO, 0),
            peak_kib: 0,
        }
    }
}

/// A worker's answer.
struct Walked {
    opened: bool,
    peak_kib: u64,
    time: Duration,
}

/// A worker process, killed on drop.
struct Worker {
    child: Child,
    seeds: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start a worker: {e}"));
        let out = child.stdout.take().expect("stdout is piped");
        let (send, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(text) = line.strip_prefix(MARK)
                    && send.send(text.to_owned()).is_err()
                {
                    break;
                }
            }
        });
        Self {
            seeds: child.stdin.take(),
            child,
            answers,
        }
    }

    fn walk_all(
        mut self,
        more: &impl Fn() -> Option<u64>,
        limits: Limits,
        report: &mut Report,
    ) -> Result<(), Failure> {
        while let Some(seed) = more() {
            report.images += 1;
            let walked = self.walk(seed, limits)?;
            report.opened += u64::from(walked.opened);
            report.peak_kib = report.peak_kib.max(walked.peak_kib);
            report.slowest = report.slowest.max((walked.time, seed));
        }
        self.seeds = None;
        let _ = self.child.wait();
        Ok(())
    }

    fn walk(&mut self, seed: u64, limits: Limits) -> Result<Walked, Failure> {
        let mut story = "the worker did not start".to_owned();
        if let Some(pipe) = &mut self.seeds {
            // A broken pipe shows as a closed answer below.
            let _ = writeln!(pipe, "{seed}").and_then(|()| pipe.flush());
        }
        // Starting and loading the specimens is not the image's fault.
        let mut patience = limits.time + Duration::from_secs(60);
        let mut began = Instant::now();
        loop {
            let text = match self.answers.recv_timeout(patience) {
                Ok(text) => text,
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("no answer within {:?} ({story})", limits.time);
                    return Err(Failure { seed, what });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self
                        .child
                        .wait()
                        .map_or_else(|e| e.to_string(), |s| s.to_string());
                    let what = format!("the worker ended with {status} ({story})");
                    return Err(Failure { seed, what });
                }
            };
            if let Some(rest) = text.strip_prefix("walking ") {
                story = rest.to_owned();
                patience = limits.time;
                began = Instant::now();
            } else if let Some(rest) = text.strip_prefix("done ") {
                let mut words = rest.split(' ').skip(1);
                let opened = words.next() == Some("true");
                let peak_kib = words.next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
                if peak_kib * 1024 > limits.resident {
                    let what = format!("the worker has used {peak_kib} KiB of memory ({story})");
                    return Err(Failure { seed, what });
                }
                return Ok(Walked {
                    opened,
                    peak_kib,
                    time: began.elapsed(),
                });
            }
        }
    }
}
