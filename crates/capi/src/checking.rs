//! Checking, repairing, and taking a repair back.

use crate::call::Failure;
use crate::constants::{
    CHECK_AS_IS, CHECK_VERITY, REPAIR_ALLOW_LOSS, REPAIR_DISCARD_JOURNAL, REPAIR_DRY_RUN,
};
use crate::making::now;
use crate::report::Report;
use crate::watch::Watching;
use extant::SharedDevice;
use extant_fsck::repair::{self, Plan};
use extant_fsck::{Error, Options, Pass, Progress};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

/// Checks what is on a device.
pub(crate) fn check(
    device: &SharedDevice,
    journal: Option<&SharedDevice>,
    flags: u32,
    watching: &Watching,
) -> Result<Report, Failure> {
    let device = watching.over(device);
    let options = Options::default()
        .as_is(flags & CHECK_AS_IS != 0)
        .verity(flags & CHECK_VERITY != 0);
    let journal = journal.map(|journal| watching.over(journal));
    let report = judge(&device, journal.as_ref(), options, watching).map_err(Failure::from);
    watching.outcome(report.map(|report| Report::of_check(&report)))
}

/// Judges the file system as the next mount sees it, which takes the engine for fast commits.
#[cfg(feature = "mend")]
fn judge(
    device: &SharedDevice,
    journal: Option<&SharedDevice>,
    options: Options,
    watching: &Watching,
) -> Result<extant_fsck::Report, Error> {
    extant::mend::check(device, journal, options, watching)
}

#[cfg(not(feature = "mend"))]
fn judge(
    device: &SharedDevice,
    journal: Option<&SharedDevice>,
    options: Options,
    watching: &Watching,
) -> Result<extant_fsck::Report, Error> {
    let journal = journal.map(Arc::clone);
    extant_fsck::check_with_journal(Arc::clone(device), journal, options, watching)
}

/// Repairs what is on a device.
pub(crate) fn repair(
    device: &SharedDevice,
    flags: u32,
    undo: Option<&Path>,
    watching: &Watching,
) -> Result<Report, Failure> {
    let is_dry = flags & REPAIR_DRY_RUN != 0;
    if !is_dry {
        refuse_read_only(device)?;
    }
    let device = watching.over(device);
    let plan = worked_out(&device, flags, watching).map_err(Failure::from);
    let plan = watching.outcome(plan)?;
    let mut changes = plan.changes.iter();
    let blocks = changes.try_fold(0, |sum, change| change.map(|_| sum + 1))?;
    let mut report = Report::of_plan(&plan, blocks);
    if is_dry || blocks == 0 {
        return Ok(report);
    }
    write(&plan, undo, watching)?;
    report.summary.written = 1;
    Ok(report)
}

/// Refuses a device that cannot be written to, before any work.
pub(crate) fn refuse_read_only(device: &SharedDevice) -> Result<(), Failure> {
    if device.is_read_only() {
        let name = device.name();
        return Err(extant::DeviceError::ReadOnly { device: name }.into());
    }
    Ok(())
}

/// Writes what was worked out, to its end; where nothing changes, no undo file either.
pub(crate) fn write(plan: &Plan, undo: Option<&Path>, watching: &Watching) -> Result<(), Failure> {
    plan.may_be_written()?;
    if watching.outcome(plan.changes.is_empty().map_err(Failure::from))? {
        return Ok(());
    }
    watching.finish()?;
    if let Some(undo) = undo {
        repair::keep(undo, plan)?;
    }
    plan.apply().map_err(|e| {
        // Changes that are made as a whole say themselves how far they came.
        let again = if plan.is_whole() {
            ""
        } else {
            "; a part of the changes is written: do the same again, or revert it"
        };
        Failure::from(e).adding(again)
    })
}

fn worked_out(device: &SharedDevice, flags: u32, watching: &Watching) -> Result<Plan, Error> {
    let discard = flags & REPAIR_DISCARD_JOURNAL != 0;
    let options = options()
        .allow_loss(flags & REPAIR_ALLOW_LOSS != 0)
        .discard_journal(discard);
    // What can be replayed is, also where it may be given up.
    let careful = options.discard_journal(false);
    match repair::plan(Arc::clone(device), careful, watching) {
        Err(e) if e.is_fast_commit() => match with_fast_commits(device, careful, watching, e) {
            Err(_) if discard => repair::plan(Arc::clone(device), options, watching),
            done => done,
        },
        Err(_) if discard => repair::plan(Arc::clone(device), options, watching),
        done => done,
    }
}

#[cfg(feature = "mend")]
fn with_fast_commits(
    device: &SharedDevice,
    options: repair::Options,
    watching: &Watching,
    _: Error,
) -> Result<Plan, Error> {
    extant::mend::plan_with_fast_commits(device, options, watching)
}

#[cfg(not(feature = "mend"))]
fn with_fast_commits(
    _: &SharedDevice,
    _: repair::Options,
    _: &Watching,
    why: Error,
) -> Result<Plan, Error> {
    Err(why)
}

/// How to repair, now.
pub(crate) fn options() -> repair::Options {
    repair::Options::default().now(u32::try_from(now()).unwrap_or(u32::MAX))
}

/// Takes a repair back.
pub(crate) fn revert(device: &SharedDevice, undo: &Path) -> Result<(), Failure> {
    repair::revert(&**device, || Ok(BufReader::new(File::open(undo)?)))?;
    Ok(())
}

impl Progress for Watching {
    fn begin(&self, pass: Pass, units: u64) {
        let what = match pass {
            Pass::Inodes => c"inodes",
            Pass::Attributes => c"attributes",
            Pass::Directories => c"directories",
            Pass::Bitmaps => c"bitmaps",
            Pass::Verity => c"content and its hashes",
            _ => c"checking",
        };
        Watching::begin(self, what, units);
    }

    fn advance(&self, units: u64) {
        Watching::advance(self, units);
    }
}
