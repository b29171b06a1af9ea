//! Checking and repairing images.

use crate::call::outside_for_long;
use crate::cancel::Stoppable;
use crate::error::{Failure, of_image};
use crate::path::ImagePath;
use crate::source::{Part, Source};
use extant::{SharedDevice, errno};
use extant_fsck::repair as mending;
use extant_fsck::repair::Plan;
use extant_fsck::{Finding, Options, Place, Report, Severity};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Checks an image, and changes nothing.
#[pyfunction]
#[pyo3(signature = (image, *, partition=None, offset=None, length=None, image_format=None,
                    as_is=false, verity=false))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn check<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyAny>,
    partition: Option<&Bound<'py, PyAny>>,
    offset: Option<u64>,
    length: Option<u64>,
    image_format: Option<&str>,
    as_is: bool,
    verity: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let part = Part::new(false, partition, offset, length, image_format)?;
    let image = Source::new(image, false)?.open(py, part)?;
    let options = Options::default().as_is(as_is).verity(verity);
    let device = Arc::new(Stoppable::new(image.device));
    let report = outside_for_long(
        py,
        || device.stop(),
        || judge(&as_shared(&device), options).map_err(|e| of_image(e, &image.name)),
    );
    py.detach(move || drop(device));
    let report = report?;
    told(py, &report)
}

fn as_shared(device: &Arc<Stoppable>) -> SharedDevice {
    Arc::<Stoppable>::clone(device)
}

fn judge(device: &SharedDevice, options: Options) -> Result<Report, Failure> {
    match extant_fsck::check(Arc::clone(device), options, &()) {
        Err(e) if e.is_fast_commit() => {
            let replayed = extant::mend::replay(device, None)?;
            Ok(extant_fsck::check(replayed, options, &())?)
        }
        done => Ok(done?),
    }
}

/// Puts right what a check finds.
#[pyfunction]
#[pyo3(signature = (image, *, dry_run=false, undo=None, allow_loss=false, discard_journal=false,
                    partition=None, offset=None, length=None, image_format=None))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn repair<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyAny>,
    dry_run: bool,
    undo: Option<ImagePath>,
    allow_loss: bool,
    discard_journal: bool,
    partition: Option<&Bound<'py, PyAny>>,
    offset: Option<u64>,
    length: Option<u64>,
    image_format: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let part = Part::new(!dry_run, partition, offset, length, image_format)?;
    let image = Source::new(image, !dry_run)?.open(py, part)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| {
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    });
    let options = mending::Options::default()
        .now(now)
        .allow_loss(allow_loss)
        .discard_journal(discard_journal);
    let device = Arc::new(Stoppable::new(image.device));
    let plan = outside_for_long(
        py,
        || device.stop(),
        || mend(&device, options, undo.as_ref(), dry_run).map_err(|e| of_image(e, &image.name)),
    );
    py.detach(move || drop(device));
    let plan = plan?;
    let told = PyDict::new(py);
    let fixes = PyList::empty(py);
    for fix in &plan.fixes {
        fixes.append((fix.code.name(), fix.to_string()))?;
    }
    told.set_item("fixes", fixes)?;
    told.set_item("fixes_count", plan.fixes_count)?;
    told.set_item("left", self::told(py, &plan.left)?)?;
    let losses: Vec<String> = plan.losses.iter().map(ToString::to_string).collect();
    told.set_item("losses", losses)?;
    told.set_item("losses_count", plan.losses_count)?;
    py.detach(move || drop(plan));
    Ok(told)
}

fn mend(
    stoppable: &Arc<Stoppable>,
    options: mending::Options,
    undo: Option<&ImagePath>,
    dry_run: bool,
) -> Result<Plan, Failure> {
    let device = as_shared(stoppable);
    let plan = match mending::plan(Arc::clone(&device), options, &()) {
        Err(e) if e.is_fast_commit() => {
            extant::mend::plan_with_fast_commits(&device, options, &())?
        }
        done => done?,
    };
    if dry_run || plan.changes.is_empty()? {
        return Ok(plan);
    }
    plan.may_be_written()?;
    stoppable.begin_final()?;
    if let Some(undo) = undo {
        keep(&plan, undo)?;
    }
    plan.apply()?;
    Ok(plan)
}

/// Writes the file that takes a repair back, which must not exist.
fn keep(plan: &Plan, undo: &ImagePath) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure {
        errno: e.raw_os_error().unwrap_or(errno::EIO),
        text: format!("the undo file cannot be written: {e}"),
        path: Some(undo.bytes().to_vec()),
        ..Failure::invalid("")
    };
    let mut file = std::fs::File::create_new(undo.as_path()).map_err(failed)?;
    mending::write_undo(&plan.changes, &mut file)?;
    file.sync_all().map_err(failed)
}

/// A report as Python takes it apart.
fn told<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    let findings = PyList::empty(py);
    for finding in &report.findings {
        findings.append(finding_of(py, finding)?)?;
    }
    told.set_item("findings", findings)?;
    for severity in [Severity::Warning, Severity::Error, Severity::Fatal] {
        told.set_item(severity.name(), report.count(severity))?;
    }
    told.set_item("is_clean", report.is_clean())?;
    told.set_item("inodes", report.totals.inodes)?;
    told.set_item("directories", report.totals.directories)?;
    told.set_item("blocks", report.totals.blocks)?;
    Ok(told)
}

fn finding_of<'py>(py: Python<'py>, finding: &Finding) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    let Place {
        group,
        ino,
        lblk,
        block,
        ..
    } = finding.place;
    told.set_item("code", finding.code.name())?;
    told.set_item("severity", finding.severity().name())?;
    told.set_item("group", group.map(|group| group.get()))?;
    told.set_item("inode", ino.map(|ino| ino.get()))?;
    told.set_item("inode_block", lblk.map(|block| block.get()))?;
    told.set_item("block", block.map(|block| block.get()))?;
    told.set_item("evidence", finding.evidence.to_string())?;
    Ok(told)
}
