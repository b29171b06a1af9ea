//! `extant tar`.

use super::apply::{self, Extract};
use super::cp::rules::Exclusion;
use super::unread::Problem;
use crate::args::{Tar, Whereabouts};
use crate::closed;
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::{ImagePath, shown};
use crate::images::{Images, Problems};
use crate::operands::found;
use crate::output::Output;
use crate::packing::{Packing, write_archive_as};
use crate::progress::Bar;
use crate::verbose::Verbose;
use extant::export::{
    LeaveOut, MadeMember, Progress, TarOptions, TarReport, to_tar_of, to_tar_with,
};
use extant::{Cause, Escaped, Filesystem};
use extant_image::ImageLocation;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Component, Path, PathBuf};

/// Bytes gathered before they are written.
const BUFFER: usize = 256 << 10;
/// Standard input or output as an archive.
const STREAM: &str = "-";

pub(super) fn run(args: &Tar, location: &Whereabouts) -> Outcome {
    let file = args.file.as_deref().or(args.output.as_deref());
    let file = file.filter(|file| file.as_os_str() != STREAM);
    if args.extract {
        return extract(args, location, file);
    }
    if args.json && file.is_none() {
        return Err(Failure::usage(
            "--json writes to standard output, where the archive goes: name a file with -o",
        ));
    }
    let exclusion = Exclusion::new(&args.exclude)?;
    let mut problems = Problems::default();
    let places = found(&args.paths, &mut Images::new(location), &mut problems)?;
    problems.outcome()?;
    let Some((fs, from)) = places.first() else {
        return Err(Failure::Said);
    };
    let archive = Archive {
        fs,
        from,
        paths: paths(&args.paths, &places)?,
        exclusion: &exclusion,
        args,
    };
    let to = file.unwrap_or(Path::new(STREAM));
    let has_all = write_archive_as(packing(args), to, |to| archive.write(to, file.is_none()))?;
    if has_all { Ok(()) } else { Err(Failure::Said) }
}

/// The paths of an archive of several operands, or of what a pattern matches, from the root of
/// their image; none of one place that is named.
fn paths(operands: &[OsString], places: &[(Filesystem, ImagePath)]) -> Outcome<Vec<PathBuf>> {
    let [(_, first), others @ ..] = places else {
        return Ok(Vec::new());
    };
    if let [operand] = operands
        && ImagePath::parse(operand)?.path == first.path
    {
        return Ok(Vec::new());
    }
    if let Some((_, other)) = others.iter().find(|(_, at)| at.image != first.image) {
        return Err(Failure::usage(format!(
            "{} and {} are two images, and an archive is of one: write an archive of each",
            shown(&first.image),
            shown(&other.image)
        )));
    }
    let clean = |at: &ImagePath| {
        let mut clean = PathBuf::from("/");
        for part in at.path.components() {
            match part {
                Component::Normal(name) => clean.push(name),
                Component::ParentDir => {
                    return Err(Failure::usage(format!(
                        "{}: where several paths are archived, members have their names from the \
                         root on: write it without `..`",
                        at.shown()
                    )));
                }
                _ => {}
            }
        }
        Ok(clean)
    };
    let path_of = |(fs, at): &(Filesystem, ImagePath)| {
        let path = clean(at)?;
        // Also of what is below another, and is written with that.
        fs.symlink_metadata(&path).map_err(|e| at.failure(&e))?;
        Ok(path)
    };
    places.iter().map(path_of).collect()
}

/// Puts an archive into a directory of an image.
fn extract(args: &Tar, location: &Whereabouts, file: Option<&Path>) -> Outcome {
    if file.is_none() {
        closed::check_input()?;
    }
    let [into] = &args.paths[..] else {
        return Err(Failure::usage(
            "an archive is put into one directory of an image: name one",
        ));
    };
    if file.is_none() && io::stdin().is_terminal() {
        return Err(Failure::usage(
            "an archive does not come from a terminal: name a file with -f, or pass one to standard \
             input",
        ));
    }
    if args.gzip || args.zstd || args.xz {
        // Its first bytes say it, whatever is said.
        say("note: how an archive is compressed is seen by its beginning");
    }
    let asked = Extract {
        archive: file.unwrap_or(Path::new(STREAM)),
        into: &ImagePath::parse(into)?,
        exclude: &args.exclude,
        verbose: args.verbose,
    };
    apply::extract(&asked, location)
}

/// What was archived, for programs.
#[derive(Serialize)]
struct Archived {
    members: u64,
    bytes: u64,
    /// Files that are not in the archive, or not whole, at most the first thousand of each.
    problems: Vec<Problem>,
    problem_count: u64,
}

fn for_programs(report: &TarReport, image: &ImageLocation) -> Outcome {
    let problems = report.left_out.iter().chain(&report.incomplete);
    let archived = Archived {
        members: report.members,
        bytes: report.bytes,
        problems: problems.map(|e| Problem::of(image, e)).collect(),
        problem_count: report.left_out_count + report.incomplete_count,
    };
    let mut output = Output::new();
    output.json_line(&archived)?;
    output.finish()
}

/// An archive to be written.
struct Archive<'a> {
    fs: &'a Filesystem,
    /// What is archived, if it is one place.
    from: &'a ImagePath,
    /// What is archived, if these are several.
    paths: Vec<PathBuf>,
    exclusion: &'a Exclusion,
    args: &'a Tar,
}

impl Archive<'_> {
    /// Writes an archive, and says what is not in it. Whether that is nothing.
    fn write(&self, to: &mut dyn Write, is_output: bool) -> Outcome<bool> {
        let bar = Bar::new("archiving");
        if let Ok(space) = self.fs.statfs() {
            let used = space.blocks.saturating_sub(space.free);
            bar.total(used.saturating_mul(space.block_size.bytes().into()));
        }
        let tell = |progress: Progress| {
            if let Progress::Done { bytes, .. } = progress {
                bar.advance(bytes);
            }
        };
        let verbose = Verbose::new(self.args.verbose && !is_output);
        let member = |name: &[u8]| {
            if is_output {
                // Standard output has the archive.
                let _ = writeln!(io::stderr().lock(), "{}", Escaped(name));
            } else {
                verbose.tell(Escaped(name));
            }
        };
        let leave_out = |names: &[&[u8]], is_dir: bool| self.exclusion.has(names, is_dir);
        let mut options = TarOptions::default();
        options.verify = self.args.verify;
        options.partial = self.args.partial;
        options.progress = Some(&tell);
        let member: &MadeMember<'_> = &member;
        options.member = self.args.verbose.then_some(member);
        let leave_out: &LeaveOut<'_> = &leave_out;
        options.leave_out = (!self.exclusion.is_empty()).then_some(leave_out);
        let to = BufWriter::with_capacity(BUFFER, to);
        let report = if self.paths.is_empty() {
            to_tar_with(self.fs, &self.from.path, to, &options)
        } else {
            to_tar_of(self.fs, &self.paths, to, &options)
        };
        bar.finish();
        let report = report.map_err(|e| match e.cause() {
            Cause::Host { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
                Failure::PipeClosed
            }
            _ => self.from.failure(&e),
        })?;
        for problem in report.left_out.iter().chain(&report.incomplete) {
            say(in_image(&self.from.image, problem));
        }
        for (count, told, what) in [
            (report.left_out_count, &report.left_out, "were left out"),
            (report.incomplete_count, &report.incomplete, "are not whole"),
        ] {
            let more = count - told.len() as u64;
            if more > 0 {
                say(format!("... and {more} more files {what}"));
            }
        }
        if self.args.json {
            for_programs(&report, &self.from.image)?;
        }
        verbose.finish(Ok(()))?;
        Ok(report.left_out_count == 0 && report.incomplete_count == 0)
    }
}

/// How an archive is compressed, if options say it.
fn packing(args: &Tar) -> Option<Packing> {
    match (args.gzip, args.zstd, args.xz) {
        (true, ..) => Some(Packing::Gzip),
        (_, true, _) => Some(Packing::Zstd),
        (.., true) => Some(Packing::Xz),
        _ => None,
    }
}
