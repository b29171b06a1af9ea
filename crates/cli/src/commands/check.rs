//! `extant check`. Its exit codes are those of `e2fsck`: 0 clean, 4 errors left, 8 no verdict, 16
//! usage.

use super::exit_codes::{ERRORS, OPERATIONAL};
use crate::args::{Check, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{how, journal_device, name_of, shown, whole_image};
use crate::output::Output;
use crate::progress::Bar;
use extant_fsck::{Finding, Options, Pass, Progress, Report, Severity};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::Write;

/// A finding, for programs.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    severity: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode_block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    evidence: String,
}

/// The last line, for programs.
#[derive(Debug, Serialize)]
struct Summary {
    clean: bool,
    warnings: u64,
    errors: u64,
    fatal: u64,
    inodes: u64,
    directories: u64,
    blocks: u64,
}

pub(super) fn run(args: &Check, location: &Whereabouts) -> Outcome {
    let report = check(args, location).map_err(|text| {
        say(text);
        Failure::Code(OPERATIONAL)
    })?;
    let told = tell(args, &report);
    match told {
        Err(Failure::PipeClosed) | Ok(()) => {}
        Err(other) => {
            let _ = other.report();
            return Err(Failure::Code(OPERATIONAL));
        }
    }
    if report.is_clean() {
        Ok(())
    } else {
        Err(Failure::Code(ERRORS))
    }
}

fn check(args: &Check, location: &Whereabouts) -> Result<Report, String> {
    if location.superblock.is_some() {
        return Err(
            "--superblock is about reading files: a check finds a backup by itself".to_owned(),
        );
    }
    if location.mend {
        return Err(
            "--mend is about reading files: `extant repair --dry-run` says what it would do"
                .to_owned(),
        );
    }
    judge(&args.image, location, args.verity)
}

/// What is found in an image, also by the hashes of fs-verity if `verity`; nothing is written.
pub(super) fn judge(image: &OsStr, location: &Whereabouts, verity: bool) -> Result<Report, String> {
    let image = whole_image(image).map_err(text_of)?;
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", shown(&image));
    let device = image
        .open(&how(location, &image, false))
        .map_err(|e| e.to_string())?;
    let journal = journal_device(location).map_err(text_of)?;
    let bars = Bars::new("checking");
    let options = Options::default().as_is(location.as_is).verity(verity);
    let report = extant::mend::check(&device, journal.as_ref(), options, &bars);
    bars.finish();
    report.map_err(|e| match e {
        extant_fsck::Error::Device(e) => e.to_string(),
        e => named(&e),
    })
}

/// What a failure says.
pub(super) fn text_of(failure: Failure) -> String {
    match failure {
        Failure::Usage(text) | Failure::Failed(text) => text,
        Failure::Said | Failure::Code(_) | Failure::PipeClosed => String::new(),
    }
}

/// Shows the passes.
pub(crate) struct Bars(Bar);

impl Bars {
    pub(crate) fn new(what: &'static str) -> Self {
        Self(Bar::new(what))
    }

    pub(crate) fn finish(self) {
        self.0.finish();
    }
}

impl Progress for Bars {
    fn begin(&self, pass: Pass, units: u64) {
        let what = match pass {
            Pass::Inodes => "inodes",
            Pass::Attributes => "attributes",
            Pass::Directories => "directories",
            Pass::Bitmaps => "bitmaps",
            Pass::Verity => "content and its hashes",
            _ => "checking",
        };
        self.0.begin(what, units);
    }

    fn advance(&self, units: u64) {
        self.0.advance(units);
    }
}

fn tell(args: &Check, report: &Report) -> Outcome {
    let mut output = Output::new();
    let summary = Summary {
        clean: report.is_clean(),
        warnings: report.count(Severity::Warning),
        errors: report.count(Severity::Error),
        fatal: report.count(Severity::Fatal),
        inodes: report.totals.inodes,
        directories: report.totals.directories,
        blocks: report.totals.blocks,
    };
    if !args.quiet {
        for finding in &report.findings {
            if args.json {
                output.json_line(&line(finding))?
            } else {
                writeln!(output, "{finding}")?
            }
        }
    }
    match args.json {
        true => output.json_line(&summary)?,
        false if args.quiet => {}
        false => summarise(&mut output, args, &summary, report)?,
    }
    output.finish()
}

fn summarise(
    output: &mut Output,
    args: &Check,
    summary: &Summary,
    report: &Report,
) -> std::io::Result<()> {
    let all = summary.warnings + summary.errors + summary.fatal;
    let kept = report.findings.len() as u64;
    if all > kept {
        writeln!(output, "... and {} findings more", all - kept)?;
    }
    output.name(name_of(&args.image).as_encoded_bytes())?;
    let verdict = if summary.clean { "clean" } else { "NOT clean" };
    write!(output, ": {verdict}, ")?;
    let Summary {
        inodes,
        directories,
        blocks,
        warnings,
        ..
    } = summary;
    write!(
        output,
        "{inodes} inodes in use, {directories} directories, {blocks} blocks"
    )?;
    let errors = summary.errors + summary.fatal;
    for (count, one, many) in [
        (errors, "error", "errors"),
        (*warnings, "warning", "warnings"),
    ] {
        match count {
            0 => {}
            1 => write!(output, ", 1 {one}")?,
            n => write!(output, ", {n} {many}")?,
        }
    }
    writeln!(output)
}

pub(super) fn line(finding: &Finding) -> Line<'_> {
    Line {
        severity: finding.severity().name(),
        code: finding.code.name(),
        group: finding.place.group.map(extant_format::Group::get),
        inode: finding.place.ino.map(extant_format::Ino::get),
        inode_block: finding.place.lblk.map(extant_format::Lblk::get),
        block: finding.place.block.map(extant_format::Pblk::get),
        evidence: finding.evidence.to_string(),
    }
}
