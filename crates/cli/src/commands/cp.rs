//! `extant cp`.

use crate::args::{Cp, Where};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::place::Place;
use crate::progress::Bar;
use extant::export::{ExportOptions, Preserve, Progress, Report, to_directory};
use extant::{Escaped, Filesystem};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(super) fn run(args: &Cp, place: &Where) -> Outcome {
    let Some((dest, sources)) = args.paths.split_last() else {
        return Err(Failure::usage(
            "nothing to copy: name a file and where to put it",
        ));
    };
    refuse_into_image(dest)?;
    let dest = Path::new(dest);
    if sources.len() > 1 && (args.no_target_directory || !dest.is_dir()) {
        return Err(Failure::new(format!(
            "{} is not a directory, so it cannot take {} files: make it first",
            Escaped::path(dest),
            sources.len()
        )));
    }
    let bar = Bar::new("copying");
    let mut all_done = true;
    for source in sources {
        all_done &= one(args, place, &Place::parse(source), dest, &bar)?;
    }
    bar.finish();
    if all_done { Ok(()) } else { Err(Failure::Said) }
}

/// Writing into an image would look like `IMAGE:/path` with an existing image.
fn refuse_into_image(dest: &OsString) -> Outcome {
    let place = Place::parse(dest);
    if place.has_path && place.image.is_file() {
        return Err(Failure::usage(format!(
            "{} is an image: copying into an existing image is not possible yet. Make a new one \
             from a directory with `extant mkfs --from`.",
            Escaped::path(&place.image)
        )));
    }
    Ok(())
}

fn one(args: &Cp, place: &Where, from: &Place, dest: &Path, bar: &Bar) -> Outcome<bool> {
    let fs = from.open(place)?;
    let (path, is_dir) = start(args, &fs, from)?;
    if is_dir && !args.archive && !args.recursive {
        return Err(Failure::new(format!(
            "{}:{} is a directory: copy it with -r, or with -a to keep owners, times and attributes",
            Escaped::path(&from.image),
            Escaped::path(&from.path)
        )));
    }
    let dest = destination(args, from, dest);
    let tell = |progress: Progress| match progress {
        Progress::Planned { bytes, .. } => bar.total(bytes),
        Progress::Done { bytes, .. } => bar.advance(bytes),
    };
    let preserve = if args.archive {
        Preserve::ALL
    } else {
        Preserve::NONE
    };
    let mut options = ExportOptions::new(preserve);
    options.threads = args.threads;
    options.devices = args.archive && is_root();
    options.progress = Some(&tell);
    let report = to_directory(&fs, &path, &dest, &options).map_err(|e| from.failure(&e))?;
    Ok(tell_problems(&report, from))
}

/// What to copy: a symbolic link is followed when one file is asked for, as `cp` does.
fn start(args: &Cp, fs: &Filesystem, from: &Place) -> Outcome<(PathBuf, bool)> {
    let fail = |e: extant::Error| from.failure(&e);
    let mut path = from.path.clone();
    let metadata = if args.archive || args.recursive {
        fs.symlink_metadata(&path).map_err(fail)?
    } else {
        // One more name makes the walk follow the last link, wherever it leads.
        path = follow(fs, &path).map_err(fail)?;
        fs.metadata(&path).map_err(fail)?
    };
    Ok((path, metadata.is_dir()))
}

/// The path a symbolic link at the end of `path` leads to, if there is one.
fn follow(fs: &Filesystem, path: &Path) -> extant::Result<PathBuf> {
    let mut path = path.to_owned();
    // Fails first if the links have no end.
    fs.metadata(&path)?;
    while fs.symlink_metadata(&path)?.is_symlink() {
        let target = fs.read_link(&path)?;
        path = match path.parent() {
            // Joining an absolute target replaces the path, as following it does.
            Some(parent) => parent.join(target),
            None => target,
        };
    }
    Ok(path)
}

/// Into an existing directory under its own name; otherwise the destination is the new name.
fn destination(args: &Cp, from: &Place, dest: &Path) -> PathBuf {
    match from.path.file_name() {
        Some(name) if !args.no_target_directory && dest.is_dir() => dest.join(name),
        _ => dest.to_owned(),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says what was not done. Whether that was nothing.
fn tell_problems(report: &Report, from: &Place) -> bool {
    for problem in &report.problems {
        say(in_image(&from.image, problem));
    }
    let more = report.problem_count - report.problems.len() as u64;
    if more > 0 {
        say(format!("... and {more} more files could not be copied"));
    }
    if report.owners_not_kept > 0 {
        say(format!(
            "note: {} files belong to you now, as only root may keep owners",
            report.owners_not_kept
        ));
    }
    if report.xattrs_not_kept > 0 {
        say(format!(
            "note: {} extended attributes were left out, as only root may set them",
            report.xattrs_not_kept
        ));
    }
    report.problem_count == 0
}
