//! Out of an image.

use super::rules::{Exclusion, Follow, existing};
use super::stream::{self, into_file, is_stream};
use crate::args::{Cp, Whereabouts};
use crate::commands::unread::Problem;
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::{ImagePath, shown};
use crate::images::{Images, Problems};
use crate::operands::found;
use crate::output::Output;
use crate::path::{destination, follow};
use crate::progress::Bar;
use crate::slip::{disk_in, way_out};
use crate::verbose::Verbose;
use extant::export::{
    Existing, ExportOptions, LeaveOut, MadeFile, Preserve, Progress, Report, to_directory,
};
use extant::{Escaped, Filesystem};
use extant_blockdev::Content;
use extant_blockdev::content::HEAD_LEN;
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Files that lack something are named up to this many; more are counted.
const MOST_NAMED: usize = 50;

pub(super) fn run(
    args: &Cp,
    location: &Whereabouts,
    sources: &[OsString],
    dest: &Path,
    verbose: &Verbose,
) -> Outcome {
    let exclusion = Exclusion::new(&args.exclude)?;
    let must_be_dir = args.target_directory.is_some();
    let mut problems = Problems::default();
    let found = found(sources, &mut Images::new(location), &mut problems)?;
    let count = found.len().max(sources.len());
    if must_be_dir && !dest.is_dir() {
        let dest = Escaped::path(dest);
        return Err(Failure::new(format!(
            "{dest} is no directory to copy into: make it first"
        )));
    }
    if count > 1 && (args.no_target_directory || !dest.is_dir()) {
        return Err(Failure::new(format!(
            "{} is not a directory, so it cannot take {} files: make it first",
            Escaped::path(dest),
            count
        )));
    }
    if (args.partial || args.json) && is_stream(dest) {
        let mut into_stream = found.iter().map(|(fs, from)| is_written(args, fs, from));
        if into_stream.any(|is_written| is_written) {
            return Err(about_streams());
        }
    }
    let bar = Bar::new("copying");
    let mut copied = Copied::default();
    let mut placed = Placed::default();
    for (fs, from) in &found {
        let done = placed.may_take(args, fs, from, dest).and_then(|place| {
            let Some((place, is_dir)) = place else {
                return Ok(true);
            };
            let report = one(args, fs, from, dest, &exclusion, &bar, verbose)?;
            if !is_dir && report.files + report.symlinks + report.specials > 0 {
                placed.put(place, from);
            }
            copied.add(&report, from);
            Ok(tell_problems(&report, from))
        });
        problems
            .check(done.and_then(|all_done| if all_done { Ok(()) } else { Err(Failure::Said) }));
    }
    bar.finish();
    if args.json {
        let mut output = Output::new();
        output.json_line(&copied)?;
        output.finish()?;
    }
    problems.outcome()
}

/// Files that are named and were copied by this command, by their places.
#[derive(Default)]
struct Placed {
    sources: HashMap<PathBuf, String>,
}

impl Placed {
    /// Where a source goes, and whether it is a directory. Nowhere if it is there already; the
    /// place of another one is refused, unless options say which of them has it.
    fn may_take(
        &self,
        args: &Cp,
        fs: &Filesystem,
        from: &ImagePath,
        dest: &Path,
    ) -> Outcome<Option<(PathBuf, bool)>> {
        let place = destination(dest, dest.is_dir(), args.no_target_directory, &from.path);
        let (_, is_dir) = start(args, fs, from)?;
        let Some(there) = self.sources.get(&place) else {
            return Ok(Some((place, is_dir)));
        };
        if *there == from.shown() {
            return Ok(None);
        }
        if is_dir || args.no_clobber || args.update {
            return Ok(Some((place, is_dir)));
        }
        Err(Failure::new(format!(
            "{} is not copied: another source of this command, {there}, is just put at {}",
            from.shown(),
            Escaped::path(&place)
        )))
    }

    fn put(&mut self, place: PathBuf, from: &ImagePath) {
        self.sources.insert(place, from.shown());
    }
}

/// Whether a source is a file, whose content is written to a pipe or a device.
fn is_written(args: &Cp, fs: &Filesystem, from: &ImagePath) -> bool {
    let found = start(args, fs, from)
        .ok()
        .and_then(|(path, _)| fs.symlink_metadata(&path).ok());
    found.is_some_and(|found| found.is_file())
}

fn about_streams() -> Failure {
    Failure::usage(
        "--partial and --json are about files that are made: leave them out for standard output, a \
         pipe or a device",
    )
}

/// What was copied, for programs.
#[derive(Debug, Default, Serialize)]
struct Copied {
    files: u64,
    directories: u64,
    symlinks: u64,
    hard_links: u64,
    specials: u64,
    bytes: u64,
    /// Files that were not copied, or not whole, at most the first thousand of each operand.
    problems: Vec<Problem>,
    problem_count: u64,
}

impl Copied {
    fn add(&mut self, report: &Report, from: &ImagePath) {
        self.files += report.files;
        self.directories += report.directories;
        self.symlinks += report.symlinks;
        self.hard_links += report.hard_links;
        self.specials += report.specials;
        self.bytes += report.bytes;
        self.problem_count += report.problem_count + report.incomplete_count;
        let all = report.problems.iter().chain(&report.incomplete);
        self.problems
            .extend(all.map(|problem| Problem::of(&from.image, problem)));
    }
}

/// Copies the content of one file to standard output.
pub(super) fn to_output(args: &Cp, location: &Whereabouts, sources: &[OsString]) -> Outcome {
    if args.verbose {
        return Err(Failure::usage(
            "-v writes to standard output, where the file goes: leave it out",
        ));
    }
    if args.partial || args.json {
        return Err(about_streams());
    }
    let mut problems = Problems::default();
    let found = found(sources, &mut Images::new(location), &mut problems)?;
    problems.outcome()?;
    let [(fs, from)] = &found[..] else {
        return Err(Failure::usage(format!(
            "standard output takes one file, and not {}: use `extant cat`, or `extant tar`",
            found.len()
        )));
    };
    let (path, is_dir) = start(args, fs, from)?;
    if is_dir {
        return Err(Failure::new(format!(
            "{} is a directory: write it to standard output with `extant tar`",
            from.shown()
        )));
    }
    stream::to_output(fs, &path, from, args.verify, &Bar::new("copying"))
}

fn one(
    args: &Cp,
    fs: &Filesystem,
    from: &ImagePath,
    dest: &Path,
    exclusion: &Exclusion,
    bar: &Bar,
    verbose: &Verbose,
) -> Outcome<Report> {
    let (path, is_dir) = start(args, fs, from)?;
    if exclusion.has_source(&from.path, is_dir) {
        return Ok(Report::default());
    }
    if is_dir && !args.archive && !args.recursive {
        return Err(Failure::new(format!(
            "{}:{} is a directory: copy it with -r, or with -a to keep owners, times and attributes",
            shown(&from.image),
            Escaped::path(&from.path)
        )));
    }
    let dest = destination(dest, dest.is_dir(), args.no_target_directory, &from.path);
    let tell_made = |from_path: &Path, to: &Path| {
        let (image, from_path) = (shown(&from.image), Escaped::path(from_path));
        verbose.tell(format_args!("{image}:{from_path} -> {}", Escaped::path(to)));
    };
    if !is_dir {
        refuse_over_disk(fs, &path, from, &dest)?;
        let found = fs.symlink_metadata(&path).map_err(|e| from.failure(&e))?;
        if found.is_file() && is_stream(&dest) {
            if existing(args) == Existing::Keep {
                return Ok(Report::default());
            }
            into_file(fs, &path, from, &dest, args.verify, bar)?;
            tell_made(&from.path, &dest);
            return Ok(Report::default());
        }
    }
    let tell = |progress: Progress| match progress {
        Progress::Planned { bytes, .. } => bar.total(bytes),
        Progress::Done { bytes, .. } => bar.advance(bytes),
        _ => {}
    };
    let preserve = match (args.archive, args.preserve) {
        (true, _) => Preserve::ALL,
        (false, true) => {
            let mut some = Preserve::NONE;
            (some.mode, some.owner, some.times) = (true, true, true);
            some
        }
        (false, false) => Preserve::NONE,
    };
    let mut options = ExportOptions::new(preserve);
    options.threads = args.threads.count;
    options.devices = args.archive && is_root();
    options.verify = args.verify;
    options.existing = existing(args);
    options.follow = Follow::of(args) == Follow::All;
    let leave_out = |names: &[&[u8]], is_dir: bool| exclusion.has(names, is_dir);
    let leave_out: &LeaveOut<'_> = &leave_out;
    options.leave_out = (!exclusion.is_empty()).then_some(leave_out);
    let made: &MadeFile<'_> = &tell_made;
    options.made = verbose.is_on().then_some(made);
    options.progress = Some(&tell);
    options.partial = args.partial;
    to_directory(fs, &path, &dest, &options).map_err(|e| from.failure(&e))
}

/// Refuses to have a file take the place of a disk, unless it is one too: `:/` was forgotten.
fn refuse_over_disk(fs: &Filesystem, path: &Path, from: &ImagePath, dest: &Path) -> Outcome {
    let Some(found) = disk_in(dest) else {
        return Ok(());
    };
    let is_file = fs.symlink_metadata(path).is_ok_and(|found| found.is_file());
    if is_file && is_disk(fs, path).map_err(|e| from.failure(&e))? {
        return Ok(());
    }
    let (source, way_out) = (from.shown(), way_out(dest));
    let dest = Escaped::path(dest);
    Err(Failure::new(format!(
        "{dest} is {}, of which {source} would take the place: write {dest}:/ to copy into it, or \
         {way_out}",
        found.name()
    )))
}

/// Whether a file in an image is a disk by its beginning.
fn is_disk(fs: &Filesystem, path: &Path) -> extant::Result<bool> {
    let file = fs.open_file(path)?;
    let size = file.metadata().len();
    let mut head = vec![0; HEAD_LEN.min(usize::try_from(size).unwrap_or(usize::MAX))];
    let mut done = 0;
    while done < head.len() {
        match file.read_at(&mut head[done..], done as u64)? {
            0 => break,
            len => done += len,
        }
    }
    Ok(Content::of(&head[..done], &[], size).is_disk())
}

/// What to copy: a symbolic link is followed when one file is asked for, as `cp` does, unless
/// options say otherwise.
fn start(args: &Cp, fs: &Filesystem, from: &ImagePath) -> Outcome<(PathBuf, bool)> {
    let fail = |e: extant::Error| from.failure(&e);
    let mut path = from.path.clone();
    let metadata = if !Follow::of(args).follows_named() {
        fs.symlink_metadata(&path).map_err(fail)?
    } else {
        // One more name makes the walk follow the last link, wherever it leads.
        path = follow(fs, &path).map_err(fail)?;
        fs.metadata(&path).map_err(fail)?
    };
    Ok((path, metadata.is_dir()))
}

fn is_root() -> bool {
    extant_host::euid() == 0
}

/// Says what was not done, or not all of it. Whether that was nothing.
pub(in crate::commands) fn tell_problems(report: &Report, from: &ImagePath) -> bool {
    for problem in &report.problems {
        say(in_image(&from.image, problem));
    }
    let more = report.problem_count - report.problems.len() as u64;
    if more > 0 {
        say(format!("... and {more} more files could not be copied"));
    }
    for lacks in report.incomplete.iter().take(MOST_NAMED) {
        say(in_image(&from.image, lacks));
    }
    let named = report.incomplete.len().min(MOST_NAMED) as u64;
    if report.incomplete_count > named {
        say(format!("... and {} more", report.incomplete_count - named));
    }
    if report.incomplete_count > 0 {
        say(match report.incomplete_count {
            1 => "1 file has all its content, but lacks what is said above".to_owned(),
            count => format!("{count} files have all their content, but lack what is said above"),
        });
    }
    if report.owners_not_kept > 0 {
        say(format!(
            "note: {} files belong to you now, as only root may keep owners, and none of them has set-ID bits",
            report.owners_not_kept
        ));
    }
    if report.xattrs_not_kept > 0 {
        say(format!(
            "note: {} extended attributes were left out, as only root may set them",
            report.xattrs_not_kept
        ));
    }
    report.problem_count == 0 && report.incomplete_count == 0
}
