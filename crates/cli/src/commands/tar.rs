//! `extant tar`.

use super::unread::Problem;
use crate::args::{Tar, Whereabouts};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::ImagePath;
use crate::output::Output;
use crate::progress::Bar;
use crate::slip::refuse_over_disk;
use extant::export::{Progress, TarOptions, TarReport, to_tar_with};
use extant::{Cause, Escaped};
use extant_image::ImageLocation;
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

/// Bytes gathered before they are written.
const BUFFER: usize = 256 << 10;

pub(super) fn run(args: &Tar, location: &Whereabouts) -> Outcome {
    let from = ImagePath::parse(&args.path)?;
    if args.output.is_none() && io::stdout().is_terminal() {
        return Err(Failure::usage(
            "an archive does not belong on a terminal: send it to a file or program, or name a file \
             with -o",
        ));
    }
    match &args.output {
        None => write(&from, location, args, io::stdout().lock()),
        Some(path) => to_file(&from, location, args, path),
    }
    .and_then(|has_all| if has_all { Ok(()) } else { Err(Failure::Said) })
}

/// Writes to a file that appears under its name when it is complete. Whether everything is in it.
fn to_file(from: &ImagePath, location: &Whereabouts, args: &Tar, path: &Path) -> Outcome<bool> {
    let failed = |e: io::Error| {
        let path = Escaped::path(path);
        Failure::new(format!("cannot write {path}: {e}"))
    };
    refuse_over_disk(path, "an archive")?;
    let is_special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    if is_special {
        let file = std::fs::File::options().write(true).open(path);
        return write(from, location, args, file.map_err(failed)?);
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let file = tempfile::Builder::new()
        .prefix(".extant-tar-")
        .permissions(mode)
        .tempfile_in(parent)
        .map_err(failed)?;
    let has_all = write(from, location, args, file.as_file())?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(has_all)
}

/// Writes an archive, and says what is not in it. Whether that is nothing.
fn write(from: &ImagePath, location: &Whereabouts, args: &Tar, to: impl Write) -> Outcome<bool> {
    let fs = from.open(location)?;
    let bar = Bar::new("archiving");
    if let Ok(space) = fs.statfs() {
        let used = space.blocks.saturating_sub(space.free);
        bar.total(used.saturating_mul(space.block_size.bytes().into()));
    }
    let tell = |progress: Progress| {
        if let Progress::Done { bytes, .. } = progress {
            bar.advance(bytes);
        }
    };
    let mut options = TarOptions::default();
    options.verify = args.verify;
    options.partial = args.partial;
    options.progress = Some(&tell);
    let to = BufWriter::with_capacity(BUFFER, to);
    let report = to_tar_with(&fs, &from.path, to, &options);
    bar.finish();
    let report = report.map_err(|e| match e.cause() {
        Cause::Host { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
            Failure::PipeClosed
        }
        _ => from.failure(&e),
    })?;
    for problem in report.left_out.iter().chain(&report.incomplete) {
        say(in_image(&from.image, problem));
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
    let has_all = report.left_out_count == 0 && report.incomplete_count == 0;
    if args.json {
        for_programs(&report, &from.image)?;
    }
    Ok(has_all)
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
