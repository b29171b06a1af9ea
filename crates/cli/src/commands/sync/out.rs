//! Out of an image: a directory of the host like one of the image.

use super::{Told, excludes, is_excluded};
use crate::args::{Sync, Whereabouts};
use crate::commands::cp::out::tell_problems;
use crate::failure::{Failure, Outcome, say};
use crate::image_path::ImagePath;
use crate::images::Images;
use crate::output::Output;
use crate::record::lossless;
use crate::size::human;
use extant::Escaped;
use extant::sync::{Change, SyncOptions, SyncReport, to_host};
use serde::Serialize;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether a path of the host is that of a directory, or nothing is there yet.
pub(super) fn may_be_directory(dest: &OsStr) -> bool {
    Path::new(dest)
        .metadata()
        .map_or(true, |found| found.is_dir())
}

pub(super) fn run(args: &Sync, location: &Whereabouts, from: &ImagePath) -> Outcome {
    let mut images = Images::new(location);
    let done = sync(args, &mut images, from);
    images.close(done)
}

fn sync(args: &Sync, images: &mut Images<'_>, from: &ImagePath) -> Outcome {
    let excludes = excludes(&args.exclude)?;
    let fs = images.readable(from)?;
    let found = fs.metadata(&from.path).map_err(|e| from.failure(&e))?;
    if !found.is_dir() {
        return Err(Failure::usage(format!(
            "{} is no directory: a single file is copied with `extant cp -a`",
            from.shown()
        )));
    }
    let dest = Path::new(&args.dest);
    let spare = images.files();
    let changes = RefCell::new(Vec::new());
    let tell_change = |change: Change, path: &Path| {
        changes.borrow_mut().push((change, path.to_owned()));
    };
    let exclude = |path: &Path, is_dir: bool| is_excluded(&excludes, path, is_dir);
    let mut options = SyncOptions::default();
    options.delete = args.delete;
    options.checksum = args.checksum;
    options.dry_run = args.dry_run;
    options.threads = args.threads.count;
    options.devices = extant_host::euid() == 0;
    options.spare = &spare;
    if !excludes.is_empty() {
        options.exclude = Some(&exclude);
    }
    if args.dry_run {
        options.told = Some(&tell_change);
    }
    let report = to_host(&fs, &from.path, dest, &options).map_err(|e| from.failure(&e))?;
    if report.is_removal_left {
        say("nothing is removed, since not everything could be read or comes to be there");
    }
    for path in &report.spared {
        say(format_args!(
            "note: {} is an image in use and was left out",
            Escaped::path(path)
        ));
    }
    let all_done = tell_problems(&report.copied, from);
    tell(args, dest, &report, changes.into_inner())?;
    if all_done { Ok(()) } else { Err(Failure::Said) }
}

/// What was done, for programs.
#[derive(Serialize)]
struct Synced {
    directory: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory_hex: Option<String>,
    dry_run: bool,
    made: u64,
    replaced: u64,
    removed: u64,
    described: u64,
    bytes: u64,
    /// Files that are there, whole, and lack something.
    incomplete: u64,
    owners_not_kept: u64,
    xattrs_not_kept: u64,
    /// What could not be done.
    problems: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Told>>,
}

/// What becomes of a name, in one word.
fn word(change: Change) -> &'static str {
    match change {
        Change::Add => "add",
        Change::Replace => "replace",
        Change::Remove => "remove",
        _ => "set",
    }
}

fn tell(args: &Sync, dest: &Path, report: &SyncReport, changes: Vec<(Change, PathBuf)>) -> Outcome {
    let mut output = Output::new();
    if args.json {
        let (directory, directory_hex) = lossless(dest.as_os_str().as_bytes());
        let changes = changes.iter().map(|(change, path)| {
            let (path, path_hex) = lossless(path.as_os_str().as_bytes());
            Told {
                change: word(*change),
                path,
                path_hex,
            }
        });
        output.json_line(&Synced {
            directory,
            directory_hex,
            dry_run: args.dry_run,
            made: report.made,
            replaced: report.replaced,
            removed: report.removed,
            described: report.described,
            bytes: report.bytes,
            incomplete: report.copied.incomplete_count,
            owners_not_kept: report.copied.owners_not_kept,
            xattrs_not_kept: report.copied.xattrs_not_kept,
            problems: report.copied.problem_count,
            changes: args.dry_run.then(|| changes.collect()),
        })?;
    } else if !args.quiet {
        for (change, path) in &changes {
            write!(output, "{} ", word(*change))?;
            output.name_line(path.as_os_str().as_bytes())?;
        }
        writeln!(
            output,
            "{}: {}made: {} ({}), replaced: {}, removed: {}, set: {}",
            Escaped::path(dest),
            if args.dry_run { "would be " } else { "" },
            report.made,
            human(report.bytes),
            report.replaced,
            report.removed,
            report.described
        )?;
    }
    output.finish()
}
