//! Running a script, and recovering every image a crash may have left.

use std::collections::HashSet;
use std::fmt;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::script::{Prepared, Script, run_one};
use super::{Engine, Failure};
use crate::crash::{Budget, CrashDevice, CrashImage, CrashImages, CrashLog};
use crate::facility::Facility;
use crate::model::{DataPromise, History, Judge, Lane, Op};
use crate::oracle;
use rustix::io::Errno;

/// Where the superblock of ext4 lies, in bytes of the device.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;

/// How to look at the crashes of a run.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Which images.
    pub budget: Budget,
    /// Which promise about data is kept.
    pub promise: DataPromise,
    /// Of how many images one is also recovered by e2fsck and by the kernel, and the three trees
    /// compared; 0 for none.
    pub others_every: u64,
    /// Of how many images one is closed after recovery and looked at by e2fsck; 0 for none.
    pub checked_every: u64,
    /// Of how many images one is crashed again inside its recovery; 0 for none.
    pub again_every: u64,
    /// Images of each crash inside a recovery.
    pub again: usize,
    /// Whether the file system is closed at the end of a run, and crashed inside that too. When it
    /// is closed, everything is durable.
    pub closes: bool,
    /// Threads that recover images.
    pub threads: usize,
    /// Images of the runs before, for those that begin alike: all copies of a sweep share it.
    pub seen: SeenImages,
}

/// Hashes of images, by how they differ from the start of the run.
pub type SeenImages = Arc<Mutex<HashSet<u64>>>;

impl Sweep {
    /// At most `images` images of a run, one in 8 crashed again inside recovery; none for the
    /// others.
    pub fn of(images: usize, seed: u64) -> Sweep {
        Sweep {
            budget: Budget::limited(images, seed),
            promise: DataPromise::InOrder,
            others_every: 0,
            checked_every: 0,
            again_every: 8,
            again: 6,
            closes: false,
            threads: 1,
            seen: SeenImages::default(),
        }
    }
}

/// What was looked at; sums up over runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Runs.
    pub runs: u64,
    /// Operations done.
    pub operations: u64,
    /// Writes and flushes recorded.
    pub writes: u64,
    /// Flushes recorded.
    pub flushes: u64,
    /// Images by hash, distinct within each run.
    pub distinct: u64,
    /// Those of them that no run of the sweep had before.
    pub new: u64,
    /// Recoveries judged, crashes inside recovery included.
    pub judged: u64,
    /// Images left by a crash inside recovery.
    pub again: u64,
    /// Images that e2fsck found nothing wrong with after recovery.
    pub checked: u64,
    /// Images that e2fsck and the kernel recovered too.
    pub by_others: u64,
}

impl AddAssign for SweepReport {
    fn add_assign(&mut self, other: SweepReport) {
        self.runs += other.runs;
        self.operations += other.operations;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.distinct += other.distinct;
        self.new += other.new;
        self.judged += other.judged;
        self.again += other.again;
        self.checked += other.checked;
        self.by_others += other.by_others;
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs of {} operations, {} writes and {} flushes: {} distinct images, {} of them \
             in no run before, {} recoveries judged, {} of them after a crash inside recovery, {} checked by e2fsck, {} images also \
             recovered by e2fsck and the kernel",
            self.runs,
            self.operations,
            self.writes,
            self.flushes,
            self.distinct,
            self.new,
            self.judged,
            self.again,
            self.checked,
            self.by_others
        )
    }
}

/// One finished run.
pub(super) struct Run {
    pub(super) history: History,
    pub(super) log: CrashLog,
}

/// Runs `script`, compares the live tree with the model at the end, and then closes if that is
/// asked for.
pub(super) fn run<E: Engine>(
    engine: &E,
    prepared: &Prepared,
    script: &Script,
    sweep: &Sweep,
) -> Result<Run, String> {
    let device = CrashDevice::over(prepared.content.clone());
    let fs = engine.open(Arc::new(device.clone()))?;
    let mut lanes = prepared.lanes.clone();
    run_lanes(engine, &fs, &mut lanes, &device, script)?;
    let mut log = device.log();
    let live = engine.tree(&fs)?;
    if sweep.closes {
        close(engine, fs, &mut lanes, &device)?;
        log = device.log();
    }
    let seed = sweep.budget.seed;
    let history = history(seed, prepared, lanes).promising(sweep.promise);
    history
        .check_final(&live)
        .map_err(|e| format!("the live tree is not what the operations made: {e}"))?;
    Ok(Run { history, log })
}

/// Closes, which to the model is a sync of everything by a lane of which all is known.
fn close<E: Engine>(
    engine: &E,
    fs: E::Open,
    lanes: &mut [Lane],
    device: &CrashDevice,
) -> Result<(), String> {
    let Some(lane) = lanes.iter_mut().find(|lane| !lane.is_stopped()) else {
        return engine.close(fs);
    };
    let mut closed = Ok(());
    lane.run(Some(device), Op::Syncfs, |_, _| {
        closed = engine.close(fs);
        closed.as_ref().map_or(Err(Errno::IO), |()| Ok(0))
    })?;
    closed.map_err(|e| format!("it is not closed: {e}"))
}

pub(super) fn history(seed: u64, prepared: &Prepared, lanes: Vec<Lane>) -> History {
    let bystanders = prepared.bystanders.iter();
    bystanders.fold(History::new(seed, lanes), |history, path| {
        history.without(path)
    })
}

/// Does the operations of each lane, in threads when there are several. A lane ends where the
/// outcome of an operation is unknown.
pub(super) fn run_lanes<E: Engine>(
    engine: &E,
    fs: &E::Open,
    lanes: &mut [Lane],
    device: &CrashDevice,
    script: &Script,
) -> Result<(), String> {
    let run_lane = |lane: &mut Lane, ops: &[crate::model::Op]| -> Result<(), String> {
        for op in ops {
            if lane.is_stopped() {
                break;
            }
            run_one(engine, fs, lane, Some(device), op)?;
        }
        Ok(())
    };
    let mut work = lanes.iter_mut().zip(&script.lanes);
    if script.lanes.len() == 1 {
        return work.try_for_each(|(lane, ops)| run_lane(lane, ops));
    }
    std::thread::scope(|scope| {
        let run_lane = &run_lane;
        let threads: Vec<_> = work
            .map(|(lane, ops)| scope.spawn(move || run_lane(lane, ops)))
            .collect();
        let panicked = |_| Err("a thread panicked".to_owned());
        let mut joined = threads.into_iter().map(|thread| thread.join());
        joined.try_for_each(|result| result.unwrap_or_else(panicked))
    })
}

impl Sweep {
    /// Runs `script` on `prepared`, then recovers and judges the images that crashes may have left.
    ///
    /// # Errors
    ///
    /// The first illegal state.
    pub fn run<E: Engine>(
        &self,
        engine: &E,
        prepared: &Prepared,
        script: &Script,
    ) -> Result<SweepReport, Failure> {
        let failed = |what| Failure {
            what,
            script: script.to_string(),
        };
        let run = run(engine, prepared, script, self).map_err(failed)?;
        let judge = Judge::new(&run.history, &run.log);
        let mut report = SweepReport {
            runs: 1,
            operations: script.len() as u64,
            writes: run.log.writes() as u64,
            flushes: run.log.flushes() as u64,
            ..SweepReport::default()
        };
        let queue = Mutex::new(Queue {
            images: run.log.images(self.budget),
            stopped: false,
        });
        let work = || -> Result<SweepReport, String> {
            let mut done = SweepReport::default();
            while let Some(image) = next(&queue) {
                let checked = self.check(engine, &judge, &image, &mut done);
                if let Err(what) = checked {
                    queue.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
                    return Err(what);
                }
            }
            Ok(done)
        };
        let results: Vec<_> = match self.threads {
            0 | 1 => vec![work()],
            threads => std::thread::scope(|scope| {
                let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                let joined = threads.into_iter().map(|thread| thread.join());
                joined
                    .map(|result| result.unwrap_or_else(|_| Err("a thread panicked".to_owned())))
                    .collect()
            }),
        };
        for result in results {
            report += result.map_err(failed)?;
        }
        let queue = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.distinct += queue.images.distinct() as u64;
        Ok(report)
    }

    /// Recovers and judges one image.
    fn check<E: Engine>(
        &self,
        engine: &E,
        judge: &Judge<'_>,
        image: &CrashImage,
        report: &mut SweepReport,
    ) -> Result<(), String> {
        let hash = image.hash();
        let is_new = self.seen.lock().map(|mut seen| seen.insert(hash as u64));
        report.new += u64::from(is_new.unwrap_or_default());
        let device = image.record();
        let fs = engine
            .recover(Arc::new(device.clone()))
            .map_err(|e| format!("the image is not recovered: {e}; {image}"))?;
        let recovery = device.log();
        let found = engine
            .tree(&fs)
            .map_err(|e| format!("what was recovered cannot be read: {e}; {image}"))?;
        if let Err(e) = judge.image(image, &found) {
            // What checkers say of it is worth knowing, and that they agree.
            let closed = engine.close(fs).map(|()| device.content());
            let more = closed.map_or_else(|e| e, |ours| opinion_on(&ours));
            return Err(format!("{e}\n{more}"));
        }
        report.judged += 1;
        if is_turn(hash, Sample::Again, self.again_every) {
            self.crash_again(engine, judge, image, &recovery, report)?;
        }
        // Of a superblock that has one half only we know better than they.
        let others = is_turn(hash, Sample::Others, self.others_every)
            && Facility::KernelExt4.check().is_ok()
            && !image.tears(SUPERBLOCK);
        if others || is_turn(hash, Sample::Checked, self.checked_every) {
            engine
                .close(fs)
                .map_err(|e| format!("what was recovered cannot be closed: {e}; {image}"))?;
            let ours = device.content();
            let looked = if others {
                compare_with_others(image, &ours)
            } else {
                check_closed(&ours)
            };
            looked.map_err(|e| format!("{e}; {image}"))?;
            report.checked += 1;
            report.by_others += u64::from(others);
        }
        Ok(())
    }

    /// Crashes inside the recovery of an image, and recovers again.
    fn crash_again<E: Engine>(
        &self,
        engine: &E,
        judge: &Judge<'_>,
        image: &CrashImage,
        recovery: &CrashLog,
        report: &mut SweepReport,
    ) -> Result<(), String> {
        let budget = Budget::limited(self.again, self.budget.seed ^ image.hash() as u64);
        for inner in recovery.images(budget) {
            let at = |what: String| format!("{what}; inside the recovery of {image}: {inner}");
            let fs = engine
                .recover(inner.open())
                .map_err(|e| at(format!("the image is not recovered: {e}")))?;
            let found = engine
                .tree(&fs)
                .map_err(|e| at(format!("what was recovered cannot be read: {e}")))?;
            judge
                .point(image.point(), &found)
                .map_err(|e| at(e.to_string()))?;
            report.judged += 1;
            report.again += 1;
        }
        Ok(())
    }
}

/// What is done with a part of the images only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sample {
    /// Crashed again inside recovery.
    Again,
    /// Closed after recovery and looked at by e2fsck.
    Checked,
    /// Recovered by e2fsck and the kernel too.
    Others,
}

/// Whether an image is one of a sample that has one in `every`; none for 0. The image alone says
/// so: neither the order in which images come nor threads. Each sample looks at bits of its own, so
/// that they do not hold each other. What no write has changed yet, whose hash is 0, is the same in
/// all runs that begin alike and in no sample.
pub(super) fn is_turn(hash: u128, sample: Sample, every: u64) -> bool {
    let shift = match sample {
        Sample::Again => 0,
        Sample::Checked => 32,
        Sample::Others => 64,
    };
    hash != 0 && every > 0 && u64::from((hash >> shift) as u32).is_multiple_of(every)
}

struct Queue {
    images: CrashImages,
    stopped: bool,
}

fn next(queue: &Mutex<Queue>) -> Option<CrashImage> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    if queue.stopped {
        return None;
    }
    queue.images.next()
}

/// Lets e2fsck look at what was recovered and closed.
pub(super) fn check_closed(ours: &crate::crash::Content) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let path = dir.path().join("ours");
    ours.write_to(&path).map_err(|e| e.to_string())?;
    oracle::check_clean(&path).map_err(|e| format!("after our recovery: {e}"))
}

/// What checkers say of what was recovered and closed, if they find fault.
fn opinion_on(ours: &crate::crash::Content) -> String {
    let written = tempfile::tempdir().and_then(|dir| {
        let path = dir.path().join("ours");
        ours.write_to(&path)?;
        Ok(oracle::opinion(&path))
    });
    written.unwrap_or_else(|e| e.to_string())
}

/// Lets e2fsck and the kernel recover `image` and compares their trees with ours.
fn compare_with_others(image: &CrashImage, ours: &crate::crash::Content) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let place = |name: &str| dir.path().join(name);
    let (we, e2fsck, kernel) = (place("ours"), place("e2fsck"), place("kernel"));
    ours.write_to(&we).map_err(|e| e.to_string())?;
    image.write_to(&e2fsck);
    image.write_to(&kernel);
    let named = |name: &'static str| move |e: String| format!("{name}: {e}");
    let clean = |path: &Path| oracle::check_clean(path).and_then(|()| oracle::kernel_reads(path));
    let ours = clean(&we).map_err(named("after our recovery"))?;
    let by_e2fsck = match oracle::e2fsck_recover_beside(&e2fsck) {
        Err(report) if oracle::e2fsck_truncates_clusters(&e2fsck, &report) => None,
        done => {
            done?;
            Some(oracle::kernel_reads(&e2fsck).map_err(named("after e2fsck"))?)
        }
    };
    let by_kernel = oracle::kernel_recover(&kernel).map_err(named("recovery by the kernel"))?;
    let mut trees = vec![("the kernel", &by_kernel.tree), ("we", &ours.tree)];
    trees.extend(
        by_e2fsck
            .iter()
            .map(|by_e2fsck| ("e2fsck", &by_e2fsck.tree)),
    );
    oracle::same_recovery(&trees)
}

#[cfg(test)]
mod tests {
    use super::{Sample, is_turn};
    use crate::rng::Rng;

    #[test]
    fn samples_have_their_share_and_none_holds_another() {
        let mut rng = Rng::new(7);
        let hashes: Vec<u128> = (0..10_000)
            .map(|_| u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
            .collect();
        let of = |sample, every| -> Vec<u128> {
            let hashes = hashes.iter().copied();
            hashes
                .filter(|&hash| is_turn(hash, sample, every))
                .collect()
        };
        let samples = [Sample::Again, Sample::Checked, Sample::Others];
        for sample in samples {
            assert!(of(sample, 0).is_empty() && !is_turn(0, sample, 1));
            assert_eq!(of(sample, 1).len(), hashes.len());
            let share = of(sample, 16);
            assert!((500..750).contains(&share.len()), "{}", share.len());
            for other in samples.into_iter().filter(|&other| other != sample) {
                let both = share.iter().filter(|&&hash| is_turn(hash, other, 16));
                let both = both.count();
                assert!((10..90).contains(&both), "{sample:?} and {other:?}: {both}");
            }
        }
    }
}
