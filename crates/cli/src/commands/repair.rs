//! `extant repair`. Its exit codes are those of `e2fsck`: 0 nothing to do, 1 mended, 4 errors left, 8 not possible,
//! 16 usage.

use super::check::{Bars, ERRORS, OPERATIONAL, line};
use super::tune::coded;
use crate::args::{Repair, Where};
use crate::failure::{Failure, Outcome, say};
use crate::output::Output;
use crate::place::refuse_reading_options;
use extant::{Escaped, OpenSpec};
use extant_fsck::Severity;
use extant_fsck::repair::{self, Mend, Plan};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Everything that was wrong was mended.
const MENDED: u8 = 1;

/// A mend, for programs.
#[derive(Debug, Serialize)]
struct MendLine<'a> {
    mended: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode_block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    text: &'a str,
}

/// Bytes that change, for programs.
#[derive(Debug, Serialize)]
struct ChangeLine {
    /// The byte on the device.
    offset: u64,
    before: String,
    after: String,
}

/// The last line, for programs.
#[derive(Debug, Serialize)]
struct Summary {
    /// Whether the file system is consistent now (or would be, in a dry run).
    clean: bool,
    mends: u64,
    blocks: u64,
    errors_left: u64,
    written: bool,
}

pub(super) fn run(args: &Repair, place: &Where) -> Outcome {
    refuse_reading_options(place).map_err(coded)?;
    let done = match &args.revert {
        Some(undo) => revert(args, place, undo).map(|()| None),
        None => repair(args, place),
    };
    match done {
        Ok(None) => Ok(()),
        Ok(Some(code)) => Err(Failure::Code(code)),
        Err(text) => {
            say(text);
            Err(Failure::Code(OPERATIONAL))
        }
    }
}

/// The image, with a problem of it in words.
fn named(args: &Repair, e: &dyn std::fmt::Display) -> String {
    format!("{}: {e}", Escaped::path(Path::new(&args.image)))
}

fn spec(args: &Repair, place: &Where) -> OpenSpec {
    let image = Path::new(&args.image);
    let spec = match args.dry_run {
        true => OpenSpec::read_only(image),
        false => OpenSpec::read_write(image),
    };
    spec.offset(place.offset).partition(place.partition)
}

fn revert(args: &Repair, place: &Where, undo: &Path) -> Result<(), String> {
    let device = spec(args, place).open().map_err(|e| e.to_string())?;
    let blocks = repair::revert(&*device, || Ok(BufReader::new(File::open(undo)?)))
        .map_err(|e| named(args, &e))?;
    if !args.quiet {
        let text = format!("{blocks} blocks are as they were before the repair");
        let told = match args.json {
            true => format!("{{\"restored_blocks\":{blocks}}}"),
            false => named(args, &text),
        };
        let mut output = Output::new();
        let said = writeln!(output, "{told}").and_then(|()| output.flush());
        said.map_err(|e| named(args, &e))?;
    }
    Ok(())
}

/// Repairs; returns the exit code if it is not 0.
fn repair(args: &Repair, place: &Where) -> Result<Option<u8>, String> {
    let device = spec(args, place).open().map_err(|e| e.to_string())?;
    let options = repair::Options::default().now(seconds_now());
    let bars = Bars::new("repairing");
    let plan = repair::plan(device, options, &bars);
    bars.finish();
    let plan = plan.map_err(|e| named(args, &e))?;
    let blocks = plan
        .changes
        .iter()
        .try_fold(0u64, |sum, change| change.map(|_| sum + 1))
        .map_err(|e| named(args, &e))?;
    if !args.dry_run && blocks > 0 {
        if let Some(path) = &args.undo {
            keep(path, &plan).map_err(|e| named(args, &e))?;
        }
        plan.apply()
            .map_err(|e| named(args, &half_written(args.undo.as_deref(), &e)))?;
    }
    match tell(args, &plan, blocks) {
        Ok(()) | Err(Failure::PipeClosed) => {}
        Err(_) => return Err("cannot write the output".to_owned()),
    }
    Ok(match (plan.is_complete(), blocks > 0) {
        (true, false) => None,
        (true, true) if !args.dry_run => Some(MENDED),
        _ => Some(ERRORS),
    })
}

/// What to do after writing failed.
pub(super) fn half_written(undo: Option<&Path>, e: &dyn std::fmt::Display) -> String {
    let how = match undo {
        Some(undo) => format!(
            "take them back with --revert {}, or repair again",
            Escaped::path(undo)
        ),
        None => "repair again".to_owned(),
    };
    format!("{e}. A PART OF THE CHANGES IS WRITTEN: {how}")
}

/// Seconds since 1970.
pub(super) fn seconds_now() -> u32 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.map_or(0, |time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX))
}

/// Writes the undo file, which must not be there yet, and makes it and its name durable. One that cannot be written
/// in whole is removed again.
pub(super) fn keep(path: &Path, plan: &Plan) -> extant_fsck::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let file = file.map_err(extant_fsck::Error::Undo)?;
    let kept = fill(path, &file, plan);
    if kept.is_err() {
        // Nothing is lost if this fails too: the name stays, and the next attempt says so.
        let _ = std::fs::remove_file(path);
    }
    kept
}

fn fill(path: &Path, file: &File, plan: &Plan) -> extant_fsck::Result<()> {
    let mut out = BufWriter::new(file);
    repair::write_undo(&plan.changes, &mut out)?;
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    out.flush()
        .and_then(|()| file.sync_all())
        .and_then(|()| File::open(parent.unwrap_or(Path::new(".")))?.sync_all())
        .map_err(extant_fsck::Error::Undo)
}

fn tell(args: &Repair, plan: &Plan, blocks: u64) -> Outcome {
    let mut output = Output::new();
    let left = plan.left.count(Severity::Error) + plan.left.count(Severity::Fatal);
    if !args.quiet {
        for mend in &plan.mends {
            match args.json {
                true => output.json_line(&mend_line(mend))?,
                false => writeln!(output, "{mend}")?,
            }
        }
        if plan.mends_count > plan.mends.len() as u64 && !args.json {
            let more = plan.mends_count - plan.mends.len() as u64;
            writeln!(output, "... and {more} mends more")?;
        }
        if args.verbose {
            changes(args, plan, &mut output)?;
        }
        let serious = plan.left.findings.iter();
        for finding in serious.filter(|finding| finding.severity() > Severity::Warning) {
            match args.json {
                true => output.json_line(&line(finding))?,
                false => writeln!(output, "left: {finding}")?,
            }
        }
    }
    let summary = Summary {
        clean: plan.is_complete(),
        mends: plan.mends_count,
        blocks,
        errors_left: left,
        written: !args.dry_run && blocks > 0,
    };
    match args.json {
        true => output.json_line(&summary)?,
        false if args.quiet => {}
        false => {
            output.name(args.image.as_encoded_bytes())?;
            let verb = if args.dry_run {
                "would change"
            } else {
                "changed"
            };
            let verdict = match (summary.clean, summary.mends) {
                (true, 0) => "clean, nothing to do".to_owned(),
                (true, mends) => format!("clean: {mends} mends {verb} {blocks} blocks"),
                (false, mends) => format!(
                    "NOT clean, {left} errors are left: {mends} mends {verb} {blocks} blocks"
                ),
            };
            writeln!(output, ": {verdict}")?;
        }
    }
    output.finish()
}

/// Every range of bytes that changes.
fn changes(args: &Repair, plan: &Plan, output: &mut Output) -> Outcome {
    for change in plan.changes.iter() {
        let change = change.map_err(|e| Failure::new(named(args, &e)))?;
        for range in change.ranges() {
            let hex = |bytes: &[u8]| -> String {
                let part = bytes.get(range.clone()).unwrap_or_default();
                part.iter().map(|byte| format!("{byte:02x}")).collect()
            };
            let changed = ChangeLine {
                offset: change.offset + range.start as u64,
                before: hex(&change.before),
                after: hex(&change.after),
            };
            match args.json {
                true => output.json_line(&changed)?,
                false => writeln!(
                    output,
                    "byte {}: {} -> {}",
                    changed.offset, changed.before, changed.after
                )?,
            }
        }
    }
    Ok(())
}

fn mend_line(mend: &Mend) -> MendLine<'_> {
    MendLine {
        mended: mend.code.name(),
        group: mend.place.group.map(extant_format::Group::get),
        inode: mend.place.ino.map(extant_format::Ino::get),
        inode_block: mend.place.lblk.map(extant_format::Lblk::get),
        block: mend.place.block.map(extant_format::Pblk::get),
        text: &mend.text,
    }
}
