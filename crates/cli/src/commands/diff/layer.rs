//! The difference as a layer of a container image.

use super::operand::Place;
use super::{TROUBLE, is_excluded};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::packing::write_archive;
use crate::progress::Bar;
use extant::Cause;
use extant::export::{LayerOptions, Progress, TarReport, to_layer};
use extant_mkfs::source::Excludes;
use std::io::{self, Write};
use std::path::Path;

/// Writes what makes the second place of the first.
pub(super) fn write(
    places: &[Place; 2],
    excludes: &Excludes,
    threads: usize,
    to: &Path,
) -> Outcome {
    let [base, new] = places;
    let Place::Image(at, fs) = new else {
        return Err(Failure::usage(format!(
            "{} is no image: a layer is made of a base and an image. Make one of it first, with \
             `extant mkfs IMAGE --from {}`",
            new.shown(),
            new.shown()
        )));
    };
    if !base.is_dir()? || !new.is_dir()? {
        return Err(Failure::usage("a layer is made of two directories"));
    }
    let exclude = |path: &Path, is_dir: bool| is_excluded(excludes, path, is_dir);
    let bar = Bar::new("writing");
    let tell = |progress: Progress| {
        if let Progress::Done { bytes, .. } = progress {
            bar.advance(bytes);
        }
    };
    let mut options = LayerOptions::default();
    options.threads = threads;
    options.progress = Some(&tell);
    if !excludes.is_empty() {
        options.exclude = Some(&exclude);
    }
    let report = write_archive(to, |writer: &mut dyn Write| -> Outcome<TarReport> {
        to_layer(&base.side(), fs, &at.path, writer, &options).map_err(|e| match e.cause() {
            Cause::Host { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
                Failure::PipeClosed
            }
            Cause::Host { .. } => Failure::new(e.to_string()),
            _ => Failure::new(in_image(&at.image, &e)),
        })
    });
    bar.finish();
    let report = report.map_err(|failure| match failure {
        // The layer is not what it should be.
        Failure::PipeClosed => Failure::Code(TROUBLE),
        failure => failure,
    })?;
    for problem in &report.left_out {
        say(in_image(&at.image, problem));
    }
    let more = report.left_out_count - report.left_out.len() as u64;
    if more > 0 {
        say(format!("... and {more} more files were left out"));
    }
    if report.left_out_count > 0 {
        return Err(Failure::Code(TROUBLE));
    }
    Ok(())
}
