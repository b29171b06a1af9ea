//! `extant repair`. Its exit codes are those of `e2fsck`: 0 nothing to do, 1 mended, 4 errors left,
//! 8 not possible, 16 usage.

use super::check::{Bars, line, text_of};
use super::exit_codes::{ERRORS, OPERATIONAL, coded};
use super::undo::{command, half_written, keep, keep_beside};
use crate::args::{Repair, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{how, name_of, refuse_reading_options, whole_image};
use crate::output::Output;
use crate::record::lossless;
use extant::mend::plan_with_fast_commits;
use extant::{Escaped, SharedDevice};
use extant_fsck::Severity;
use extant_fsck::repair::{self, Fix, Loss, Plan};
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything that was wrong was mended.
const MENDED: u8 = 1;

/// Losses that are named; further ones are counted.
const LOSSES_TOLD: usize = 100;

/// A fix, for programs.
#[derive(Debug, Serialize)]
struct FixLine<'a> {
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

/// A file that is lost, for programs.
#[derive(Debug, Serialize)]
struct LossLine {
    /// What of it.
    lost: String,
    inode: u32,
    /// Its name from the root on.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
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
    fixes: u64,
    blocks: u64,
    errors_left: u64,
    /// Files that can be read no more, or not as before.
    losses: u64,
    written: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    undo: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    undo_hex: Option<String>,
}

pub(super) fn run(args: &Repair, location: &Whereabouts) -> Outcome {
    refuse_reading_options(location)
        .and_then(|()| refuse_idle_undo(args, location))
        .map_err(coded)?;
    let done = match &args.revert {
        Some(undo) => revert(args, location, undo).map(|()| None),
        None => repair(args, location),
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

/// Refuses to keep what was there where nothing changes, or nothing shall be kept.
fn refuse_idle_undo(args: &Repair, location: &Whereabouts) -> Outcome {
    let against = if args.dry_run {
        "--dry-run"
    } else if args.no_undo {
        "--no-undo"
    } else if args.revert.is_some() {
        "--revert"
    } else {
        return Ok(());
    };
    if location.undo.is_none() {
        return Ok(());
    }
    let text = format!("the argument '--undo <FILE>' cannot be used with '{against}'");
    Err(Failure::usage(text))
}

/// The image, with a problem of it in words.
fn named(args: &Repair, e: &dyn std::fmt::Display) -> String {
    format!("{}: {e}", Escaped::path(Path::new(&name_of(&args.image))))
}

/// The image's device, or why there is none.
fn open(args: &Repair, location: &Whereabouts) -> Result<SharedDevice, String> {
    let image = whole_image(args.image.as_ref()).map_err(text_of)?;
    let opened = image.open(&how(location, &image, !args.dry_run));
    opened.map_err(|e| e.to_string())
}

fn revert(args: &Repair, location: &Whereabouts, undo: &Path) -> Result<(), String> {
    let device = open(args, location)?;
    let blocks = repair::revert(&*device, || Ok(BufReader::new(File::open(undo)?)))
        .map_err(|e| named(args, &e))?;
    if !args.quiet {
        let text = format!("{blocks} blocks are as they were before");
        let told = if args.json {
            format!("{{\"restored_blocks\":{blocks}}}")
        } else {
            named(args, &text)
        };
        let mut output = Output::new();
        let said = writeln!(output, "{told}").and_then(|()| output.flush());
        said.map_err(|e| named(args, &e))?;
    }
    Ok(())
}

/// Repairs; returns the exit code if it is not 0.
fn repair(args: &Repair, location: &Whereabouts) -> Result<Option<u8>, String> {
    let bars = Bars::new("repairing");
    let plan = worked_out(args, location, &bars);
    bars.finish();
    let plan = plan?;
    let blocks = plan
        .changes
        .iter()
        .try_fold(0u64, |sum, change| change.map(|_| sum + 1))
        .map_err(|e| named(args, &e))?;
    let mut done = Done {
        blocks,
        ..Done::default()
    };
    let refused = plan.may_be_written().err();
    if !args.dry_run && blocks > 0 && refused.is_none() {
        done.undo = keep_what_was(args, location, &plan)?;
        plan.apply()
            .map_err(|e| named(args, &half_written(done.undo.as_deref(), &e)))?;
        done.written = true;
    }
    match tell(args, location, &plan, &done) {
        Ok(()) | Err(Failure::PipeClosed) => {}
        Err(_) => return Err("cannot write the output".to_owned()),
    }
    if let Some(e) = refused {
        let advice = "--dry-run --verbose shows every byte; --allow-loss repairs all the same";
        return Err(named(args, &format!("{e}: {advice}")));
    }
    Ok(match (plan.is_complete(), blocks > 0) {
        (true, false) => None,
        (true, true) if !args.dry_run => Some(MENDED),
        _ => Some(ERRORS),
    })
}

/// Finds out how to repair, and writes nothing.
pub(super) fn worked_out(
    args: &Repair,
    location: &Whereabouts,
    bars: &Bars,
) -> Result<Plan, String> {
    let device = open(args, location)?;
    let options = repair::Options::default()
        .now(crate::time::seconds_now_32())
        .allow_loss(args.allow_loss)
        .discard_journal(args.discard_journal);
    // What can be replayed is, also where it may be given up.
    let careful = options.discard_journal(false);
    let plan = match repair::plan(Arc::clone(&device), careful, bars) {
        Err(e) if e.is_fast_commit() => match plan_with_fast_commits(&device, careful, bars) {
            Err(_) if args.discard_journal => repair::plan(device, options, bars),
            done => done,
        },
        Err(_) if args.discard_journal => repair::plan(device, options, bars),
        done => done,
    };
    plan.map_err(|e| named(args, &e))
}

/// What came of a plan.
#[derive(Default)]
struct Done {
    blocks: u64,
    written: bool,
    undo: Option<PathBuf>,
}

/// Keeps what the blocks hold that are to be written, and returns in which file.
fn keep_what_was(
    args: &Repair,
    location: &Whereabouts,
    plan: &Plan,
) -> Result<Option<PathBuf>, String> {
    if args.no_undo {
        return Ok(None);
    }
    if let Some(path) = &location.undo {
        keep(path, plan).map_err(|e| named(args, &e))?;
        return Ok(Some(path.clone()));
    }
    let image = whole_image(args.image.as_ref()).map_err(text_of)?;
    let file = image.path().filter(|path| path.is_file());
    let why = if let Some(path) = file {
        match keep_beside(path, plan) {
            Ok(path) => return Ok(Some(path)),
            Err(e @ extant_fsck::Error::Device(_)) => return Err(named(args, &e)),
            Err(e) => format!("nothing can be kept beside the image ({e})"),
        }
    } else {
        "it is no regular file, beside which what was there could be kept".to_owned()
    };
    if plan.changes.are_sums().map_err(|e| named(args, &e))? {
        return Ok(None);
    }
    let options = match (location.offset, location.partition) {
        (None, None) => "",
        _ => " (on another file system)",
    };
    Err(named(
        args,
        &format!(
            "{why}: say with --undo FILE{options} where to keep it, or with --no-undo that the repair need not be taken \
             back. Nothing is written"
        ),
    ))
}

fn tell(args: &Repair, location: &Whereabouts, plan: &Plan, done: &Done) -> Outcome {
    let mut output = Output::new();
    let left = plan.left.count(Severity::Error) + plan.left.count(Severity::Fatal);
    if !args.quiet {
        for fix in &plan.fixes {
            if args.json {
                output.json_line(&fix_line(fix))?
            } else {
                writeln!(output, "{fix}")?
            }
        }
        if plan.fixes_count > plan.fixes.len() as u64 && !args.json {
            let more = plan.fixes_count - plan.fixes.len() as u64;
            writeln!(output, "... and {more} more fixes")?;
        }
        if args.verbose {
            changes(args, plan, &mut output)?;
        }
        losses(args, plan, &mut output)?;
        let serious = plan.left.findings.iter();
        for finding in serious.filter(|finding| finding.severity() > Severity::Warning) {
            if args.json {
                output.json_line(&line(finding))?
            } else {
                writeln!(output, "left: {finding}")?
            }
        }
    }
    let undo = done.undo.as_deref();
    let named = undo.map(|path| lossless(path.as_os_str().as_bytes()));
    let (undo_name, undo_hex) = named.unzip();
    let summary = Summary {
        clean: plan.is_complete(),
        fixes: plan.fixes_count,
        blocks: done.blocks,
        errors_left: left,
        losses: plan.losses_count,
        written: done.written,
        undo: undo_name,
        undo_hex: undo_hex.flatten(),
    };
    match args.json {
        true => output.json_line(&summary)?,
        false if args.quiet => {}
        false => {
            output.name(name_of(&args.image).as_encoded_bytes())?;
            writeln!(output, ": {}", verdict(&summary))?;
            if let Some(undo) = undo {
                output.name(name_of(&args.image).as_encoded_bytes())?;
                writeln!(
                    output,
                    ": to take it back: {}",
                    command(undo, &args.image, location)
                )?;
            }
        }
    }
    output.finish()
}

/// The last line, for a person.
fn verdict(of: &Summary) -> String {
    let (fixes, blocks, left) = (of.fixes, of.blocks, of.errors_left);
    let lost = match of.losses {
        0 => String::new(),
        1 => ", and 1 file that can be read now LOST".to_owned(),
        n => format!(", and {n} files that can be read now LOST"),
    };
    match (of.clean, of.written) {
        (true, false) if fixes == 0 => "clean, nothing to do".to_owned(),
        (true, true) => format!("clean: {fixes} fixes changed {blocks} blocks{lost}"),
        (true, false) => {
            format!("would be clean: {fixes} fixes would change {blocks} blocks{lost}")
        }
        (false, true) => format!(
            "NOT clean, {left} errors are left: {fixes} fixes changed {blocks} blocks{lost}"
        ),
        (false, false) => format!(
            "NOT clean, {left} errors would be left: {fixes} fixes would change {blocks} blocks{lost}"
        ),
    }
}

/// What is lost, file by file.
fn losses(args: &Repair, plan: &Plan, output: &mut Output) -> Outcome {
    let told = if args.json || args.verbose {
        plan.losses.len()
    } else {
        plan.losses.len().min(LOSSES_TOLD)
    };
    for loss in plan.losses.iter().take(told) {
        if args.json {
            output.json_line(&loss_line(loss))?
        } else {
            writeln!(output, "LOST: {loss}")?
        }
    }
    if plan.losses_count > told as u64 && !args.json {
        writeln!(
            output,
            "LOST: ... and {} files more",
            plan.losses_count - told as u64
        )?;
    }
    Ok(())
}

fn loss_line(loss: &Loss) -> LossLine {
    let (path, path_hex) = lossless(&loss.path);
    LossLine {
        lost: loss.what.to_string(),
        inode: loss.ino.get(),
        path,
        path_hex,
    }
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
            if args.json {
                output.json_line(&changed)?
            } else {
                writeln!(
                    output,
                    "byte {}: {} -> {}",
                    changed.offset, changed.before, changed.after
                )?
            }
        }
    }
    Ok(())
}

fn fix_line(fix: &Fix) -> FixLine<'_> {
    FixLine {
        mended: fix.code.name(),
        group: fix.place.group.map(extant_format::Group::get),
        inode: fix.place.ino.map(extant_format::Ino::get),
        inode_block: fix.place.lblk.map(extant_format::Lblk::get),
        block: fix.place.block.map(extant_format::Pblk::get),
        text: &fix.text,
    }
}
