//! Running a script again and again, with the next I/O failing each time.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use super::crashes::{history, run_lanes};
use super::script::{Prepared, Script};
use super::{Engine, Failure};
use crate::crash::{Budget, CrashDevice, Fault, FaultDevice, FaultRule, IoKind};
use crate::model::{DataPromise, Judge, Outcome};

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Runs, each with another I/O failing.
    pub runs: u64,
    /// Runs in which some operation reported the fault.
    pub reported: u64,
    /// Recoveries judged.
    pub judged: u64,
}

impl AddAssign for FaultReport {
    fn add_assign(&mut self, other: FaultReport) {
        self.runs += other.runs;
        self.reported += other.reported;
        self.judged += other.judged;
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} faults, {} of them reported by an operation, {} recoveries judged",
            self.runs, self.reported, self.judged
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
        }
    }

    /// Fails the first I/O of the kind that the operations do, then the second, and so on until none
    /// is left to fail. Nothing acknowledged may be lost: the device once it is well again, and the
    /// crash images, are recovered and judged.
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
        let rule = match self.from_then_on {
            true => rule.from_then_on(),
            false => rule,
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
        let log = crash.log();
        // An engine may no longer be able to close, and the device is well again by then.
        device.heal();
        drop(fs);
        let mut report = FaultReport {
            runs: 1,
            ..FaultReport::default()
        };
        let failed = |outcome| matches!(outcome, Outcome::Unknown(_) | Outcome::Refused(_));
        report.reported = u64::from(
            lanes
                .iter()
                .any(|lane| lane.done().any(|(_, outcome)| failed(outcome))),
        );
        let history = history(0, prepared, lanes).promising(self.promise);
        let judge = Judge::new(&history, &log);
        for image in log.images(Budget::limited(self.images, 1)) {
            let found = engine
                .recover(image.open())
                .and_then(|fs| engine.tree(&fs))
                .map_err(|e| format!("the image is not recovered: {e}; {image}"))?;
            judge.image(&image, &found).map_err(|e| e.to_string())?;
            report.judged += 1;
        }
        let found = engine
            .recover(Arc::new(crash.clone()))
            .and_then(|fs| engine.tree(&fs))
            .map_err(|e| format!("what was left is not recovered: {e}"))?;
        judge
            .point(log.events().len(), &found)
            .map_err(|e| format!("after the file system was dropped: {e}"))?;
        report.judged += 1;
        Ok(Some(report))
    }
}
