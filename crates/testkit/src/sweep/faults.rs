//! Running a script again and again, with the next I/O failing each time.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use super::crashes::{Sample, check_closed, history, is_turn, run_lanes};
use super::script::{Prepared, Script};
use super::{Engine, Failure};
use crate::crash::{Budget, CrashDevice, Fault, FaultDevice, FaultRule, IoKind};
use crate::model::{DataPromise, Judge, Op, Outcome};
use rustix::io::Errno;

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Runs, each with another I/O failing.
    pub runs: u64,
    /// Runs in which some operation reported the fault.
    pub reported: u64,
    /// Recoveries judged.
    pub judged: u64,
    /// Of them closed, and found clean by e2fsck.
    pub checked: u64,
}

impl AddAssign for FaultReport {
    fn add_assign(&mut self, other: FaultReport) {
        self.runs += other.runs;
        self.reported += other.reported;
        self.judged += other.judged;
        self.checked += other.checked;
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} faults, {} of them reported by an operation, {} recoveries judged, {} of them \
             checked by e2fsck",
            self.runs, self.reported, self.judged, self.checked
        )
    }
}

/// Which I/O fails, how, and what is looked at afterwards.
#[derive(Debug, Clone, Copy)]
pub struct FaultSweep {
    /// The kind of I/O that fails.
    pub kind: IoKind,
    /// What happens to it.
    pub fault: Fault,
    /// Whether all such I/O fails from then on, or one only.
    pub from_then_on: bool,
    /// Crash images of each run.
    pub images: usize,
    /// Which promise about data is kept.
    pub promise: DataPromise,
    /// Of how many recovered images one is closed and looked at by e2fsck, and so many of what is
    /// left at the end of the runs; 0 for none.
    pub checked_every: u64,
}

impl FaultSweep {
    /// `EIO` once for each I/O of this kind, with a few crash images of each run.
    pub fn of(kind: IoKind) -> FaultSweep {
        FaultSweep {
            kind,
            fault: Fault::Error(5),
            from_then_on: false,
            images: 10,
            promise: DataPromise::InOrder,
            checked_every: 0,
        }
    }

    /// Fails the first I/O of the kind that the operations do, then the second, and so on until
    /// none is left to fail. Nothing acknowledged may be lost: the device once it is well again,
    /// and the crash images, are recovered and judged. What is only late must not be noticed. A
    /// device that lies about a flush can break any promise until the next one: of such a run only
    /// the end is judged, after one more operation that is synced.
    ///
    /// # Errors
    ///
    /// The first illegal state.
    pub fn run<E: Engine>(
        &self,
        engine: &E,
        prepared: &Prepared,
        script: &Script,
    ) -> Result<FaultReport, Failure> {
        let mut report = FaultReport::default();
        for n in 0.. {
            let done = self
                .one_fault(engine, prepared, script, n)
                .map_err(|e| Failure {
                    what: format!("{self:?} at number {n}: {e}"),
                    script: script.to_string(),
                })?;
            let Some(done) = done else {
                break;
            };
            report += done;
        }
        Ok(report)
    }

    /// One run with a fault; `None` when the run ended before it struck.
    fn one_fault<E: Engine>(
        &self,
        engine: &E,
        prepared: &Prepared,
        script: &Script,
        n: u64,
    ) -> Result<Option<FaultReport>, String> {
        let rule = FaultRule::fail_nth(self.kind, n).with(self.fault);
        let rule = if self.from_then_on {
            rule.from_then_on()
        } else {
            rule
        };
        let crash = CrashDevice::over(prepared.content.clone());
        let device = Arc::new(FaultDevice::new(Arc::new(crash.clone())));
        let fs = engine.open(device.clone())?;
        device.inject(rule);
        let mut lanes = prepared.lanes.clone();
        run_lanes(engine, &fs, &mut lanes, &crash, script)?;
        if device.counts().faults == 0 {
            return Ok(None);
        }
        let is_lie = self.fault == Fault::Lost;
        if is_lie {
            let path = "made-last".to_owned();
            let last = Script::one(vec![Op::Mkdir { path, mode: 0o755 }, Op::Syncfs]);
            run_lanes(engine, &fs, &mut lanes, &crash, &last)?;
        }
        let log = crash.log();
        // An engine may no longer be able to close, and the device is well again by then.
        device.heal();
        drop(fs);
        let mut report = FaultReport {
            runs: 1,
            ..FaultReport::default()
        };
        let any = |of: fn(&Outcome) -> bool| {
            let mut lanes = lanes.iter();
            lanes.any(|lane| lane.done().any(|(_, outcome)| of(&outcome)))
        };
        // What the model refuses too is no report.
        let failed = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::Unknown(_) | Outcome::Refused(Errno::NOSPC)
            )
        };
        report.reported = u64::from(any(failed));
        let harmless = matches!(self.fault, Fault::Late(_) | Fault::Lost);
        if harmless && any(|outcome| matches!(outcome, Outcome::Unknown(_))) {
            return Err("an operation failed, though the device reported no error".to_owned());
        }
        let history = history(0, prepared, lanes).promising(self.promise);
        let judge = Judge::new(&history, &log);
        let end = log.events().len();
        let images = log.images(Budget::limited(self.images, 1));
        for image in images.filter(|image| !is_lie || image.point() == end) {
            let at = |e: String| format!("{e}; {image}");
            let device = image.record();
            let fs = engine
                .recover(Arc::new(device.clone()))
                .map_err(|e| at(format!("the image is not recovered: {e}")))?;
            let found = engine
                .tree(&fs)
                .map_err(|e| at(format!("what was recovered cannot be read: {e}")))?;
            judge.image(&image, &found).map_err(|e| e.to_string())?;
            report.judged += 1;
            if is_turn(image.hash(), Sample::Checked, self.checked_every) {
                close_and_check(engine, fs, &device).map_err(at)?;
                report.checked += 1;
            }
        }
        let left = |e: String| format!("what was left is not recovered: {e}");
        let fs = engine.recover(Arc::new(crash.clone())).map_err(left)?;
        let found = engine.tree(&fs).map_err(left)?;
        judge
            .point(end, &found)
            .map_err(|e| format!("after the file system was dropped: {e}"))?;
        report.judged += 1;
        // Not each script at the same number: many are short.
        let number = n + script.to_string().len() as u64;
        if self.checked_every > 0 && number.is_multiple_of(self.checked_every) {
            let after = |e: String| format!("after the file system was dropped: {e}");
            close_and_check(engine, fs, &crash).map_err(after)?;
            report.checked += 1;
        }
        Ok(Some(report))
    }
}

fn close_and_check<E: Engine>(engine: &E, fs: E::Open, device: &CrashDevice) -> Result<(), String> {
    engine
        .close(fs)
        .map_err(|e| format!("what was recovered cannot be closed: {e}"))?;
    check_closed(&device.content())
}
