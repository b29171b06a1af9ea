//! `extant sync`.
//!
//! | file | owns |
//! |---|---|
//! | `out` | a directory of the host like one of an image |
//! | `plan` | what is to be made, moved, removed and set, from what differs |
//! | `source` | what the other side has: files of the host, or of an image |
//!
//! The two directories are compared as `extant diff` compares them; what follows is done as
//! `extant apply` does it: beside the rest first, and then in its place.

mod out;
mod plan;
mod source;

use super::apply::Words;
use super::apply::place::Placing;
use super::apply::steps::{Counts, Steps};
use super::diff::operand::{Operand, Place};
use super::diff::{excludes, is_excluded};
use crate::args::{Sync, Whereabouts};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::{ImagePath, shown};
use crate::images::{Images, Problems};
use crate::output::Output;
use crate::path::{follow, look, look_at_link};
use crate::record::lossless;
use crate::size::human;
use extant::compare::{Aspects, CompareOptions, Difference, Report, Side, Which, compare};
use extant::{Escaped, Filesystem};
use extant_mkfs::source::Excludes;
use plan::Planner;
use serde::Serialize;
use source::Source;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where what is new is made, in the directory that is changed.
const STAGE: &str = ".extant-sync";

pub(super) fn run(args: &Sync, location: &Whereabouts) -> Outcome {
    let excludes = excludes(&args.exclude)?;
    let dest = ImagePath::inside_if_any(&args.dest)?;
    let source = Operand::parse(&args.source, location)?;
    let dest = match (dest, &source) {
        (Some(dest), _) => dest,
        (None, Operand::Image(from)) if out::may_be_directory(&args.dest) => {
            return out::run(args, location, from);
        }
        (None, _) => {
            return Err(Failure::usage(format!(
                "{} is no directory of an image: write IMAGE:/path for what is changed. Out of an \
                 image, IMAGE:/path comes first, and a directory of the host is changed",
                Escaped(args.dest.as_bytes())
            )));
        }
    };
    if matches!(source, Operand::Host(_)) {
        extant_host::refuse_if_unheard().map_err(Failure::new)?;
    }
    let mut images = Images::new(location);
    let done = sync(args, &excludes, &mut images, &source, dest);
    images.close(done)
}

fn sync(
    args: &Sync,
    excludes: &Excludes,
    images: &mut Images<'_>,
    source: &Operand,
    mut dest: ImagePath,
) -> Outcome {
    // First, so that an image which is the source as well is opened once.
    let fs = if args.dry_run {
        images.readable(&dest)?
    } else {
        images.writable(&dest)?
    };
    let place = source.open(images)?;
    if !place.is_dir()? {
        return Err(Failure::usage(format!(
            "{} is no directory: a single file is copied with `extant cp -a`",
            place.shown()
        )));
    }
    let is_there = find(&fs, &mut dest)?;
    refuse_over_itself(&place, &fs, &dest)?;
    let mut problems = Problems::default();
    let source = Source::new(&place, images.files())?;
    let (differences, report) = if is_there {
        differences(args, excludes, &place, &fs, &dest)?
    } else {
        (Vec::new(), Report::default())
    };
    tell_problems(&place, &dest, &report, &mut problems);
    let root = if is_there {
        dest.path.clone()
    } else {
        dest.path.parent().unwrap_or(Path::new("/")).to_owned()
    };
    let stage = root.join(STAGE);
    let placing = Placing {
        fs: &fs,
        image: &dest,
        stage: &stage,
        threads: args.threads.count,
        words: WORDS,
    };
    if !args.dry_run {
        placing.clear_the_last()?;
    }
    let mut planner = Planner::new(&fs, &dest, &source, excludes, &root, &stage)?;
    if !is_there {
        planner.make_all(&mut problems)?;
    }
    // Something that is gone only because it could not be read is not taken away.
    planner.deletes = args.delete && report.problem_count == 0;
    if args.delete && !planner.deletes {
        say("nothing is removed, since not everything could be read");
    }
    planner.differences(differences, &report, &mut problems)?;
    let plan = planner.finish()?;
    if !args.dry_run && !plan.steps.is_empty() {
        problems.add(&placing.run(&plan.steps)?);
    }
    if !args.dry_run {
        plan.set_flags(&placing, &mut problems);
    }
    tell(args, &dest, &plan.steps)?;
    problems.outcome()
}

/// What messages call what is done.
const WORDS: Words = Words {
    nothing: "nothing was changed",
    placed: "what SRC has",
};

/// Follows a symbolic link at the end of the destination. Whether a directory is there.
fn find(fs: &Filesystem, dest: &mut ImagePath) -> Outcome<bool> {
    let failed = |e: extant::Error| dest.failure(&e);
    if look_at_link(fs, &dest.path).map_err(failed)?.is_none() {
        let parent = dest.path.parent().unwrap_or(Path::new("/"));
        let parent = follow(fs, parent).map_err(failed)?;
        let name = dest.path.file_name().unwrap_or_default().to_owned();
        dest.path = parent.join(name);
        return Ok(false);
    }
    let path = follow(fs, &dest.path).map_err(failed)?;
    let found = look(fs, &path).map_err(failed)?;
    if !found.is_some_and(|found| found.is_dir()) {
        return Err(Failure::new(format!(
            "{} is no directory, which it has to be to be made like another one",
            dest.shown()
        )));
    }
    dest.path = path.components().collect();
    Ok(true)
}

/// A directory is not made like one that lies in it, or in which it lies.
fn refuse_over_itself(place: &Place, fs: &Filesystem, dest: &ImagePath) -> Outcome {
    let Place::Image(at, from) = place else {
        return Ok(());
    };
    if !Arc::ptr_eq(from.engine(), fs.engine()) {
        return Ok(());
    }
    let path = follow(from, &at.path).map_err(|e| at.failure(&e))?;
    let path: PathBuf = path.components().collect();
    if path.starts_with(&dest.path) || dest.path.starts_with(&path) {
        return Err(Failure::new(format!(
            "{} and {} lie in each other: one is not made like the other",
            at.shown(),
            dest.shown()
        )));
    }
    Ok(())
}

/// What differs, as far as something follows from it.
fn differences(
    args: &Sync,
    excludes: &Excludes,
    place: &Place,
    fs: &Filesystem,
    dest: &ImagePath,
) -> Outcome<(Vec<Difference>, Report)> {
    let mut options = CompareOptions::new(Aspects::ALL);
    options.trust_times = !args.checksum;
    options.threads = args.threads.count;
    let exclude =
        |path: &Path, is_dir: bool| is_excluded(excludes, path, is_dir) || path == Path::new(STAGE);
    options.exclude = Some(&exclude);
    let mut all = Vec::new();
    let (source, dest_side) = (place.side(), Side::image(fs, &dest.path));
    let report = compare(&source, &dest_side, &options, |difference| {
        all.push(difference);
        ControlFlow::Continue(())
    });
    let report = report.map_err(|e| Failure::new(place.about(&e)))?;
    Ok((all, report))
}

/// Says what could not be read.
fn tell_problems(place: &Place, dest: &ImagePath, report: &Report, problems: &mut Problems) {
    for (side, problem) in &report.problems {
        problems.note(Failure::new(match side {
            Which::First => place.about(problem),
            Which::Second => in_image(&dest.image, problem),
        }));
    }
}

/// What was done, for programs.
#[derive(Serialize)]
struct Synced {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    dry_run: bool,
    /// Files and directories that are made, and further names.
    made: u64,
    /// Names that stood for something else before.
    replaced: u64,
    /// Names that are taken away.
    removed: u64,
    /// Files and directories that get owner, permissions, times and attributes alone.
    described: u64,
    /// Bytes of content.
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Told>>,
}

/// One change.
#[derive(Serialize)]
struct Told {
    change: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

fn tell(args: &Sync, dest: &ImagePath, steps: &Steps) -> Outcome {
    let Counts {
        made,
        replaced,
        removed,
        described,
        bytes,
    } = steps.counts();
    let mut output = Output::new();
    if args.json {
        let name = [
            dest.image.name().as_bytes(),
            dest.path.as_os_str().as_bytes(),
        ]
        .join(&b':');
        let (image, image_hex) = lossless(&name);
        let changes = steps.changes().map(|(change, path)| {
            let (path, path_hex) = lossless(path.as_os_str().as_bytes());
            Told {
                change: change.word(),
                path,
                path_hex,
            }
        });
        output.json_line(&Synced {
            image,
            image_hex,
            dry_run: args.dry_run,
            made,
            replaced,
            removed,
            described,
            bytes,
            changes: args.dry_run.then(|| changes.collect()),
        })?;
    } else if !args.quiet {
        if args.dry_run {
            for (change, path) in steps.changes() {
                write!(output, "{} ", change.word())?;
                output.name_line(path.as_os_str().as_bytes())?;
            }
        }
        writeln!(
            output,
            "{}: {}made: {made} ({}), replaced: {replaced}, removed: {removed}, set: {described}",
            shown(&dest.image),
            if args.dry_run { "would be " } else { "" },
            human(bytes)
        )?;
    }
    output.finish()
}
