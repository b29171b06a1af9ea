//! `extant diff`.
//!
//! | file | owns |
//! |---|---|
//! | `operand` | what an operand is: an image, or a path of the host |
//! | `layer` | the difference as a layer of a container image |
//! | `show` | differences as lines, objects and counts |
//! | `superblock` | fields of two superblocks |

mod layer;
pub(in crate::commands) mod operand;
mod show;
mod superblock;

use crate::args::{Aspect, Diff, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::images::Images;
use extant::compare::{Aspects, CompareOptions, Report, Which, compare};
use extant_mkfs::source::Excludes;
use operand::{Operand, Place};
use show::Shown;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Exit codes of `diff`.
const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;

pub(super) fn run(args: &Diff, location: &Whereabouts) -> Outcome {
    let mut images = Images::new(location);
    let done = diff(args, location, &mut images);
    images.close(done).map_err(trouble)
}

/// A failure, with the exit code that it has for `diff`.
fn trouble(failure: Failure) -> Failure {
    match failure {
        // Lines of differences found no reader.
        Failure::PipeClosed => Failure::Code(DIFFERENT),
        Failure::Failed(text) => {
            say(text);
            Failure::Code(TROUBLE)
        }
        Failure::Said => Failure::Code(TROUBLE),
        other => other,
    }
}

fn diff(args: &Diff, location: &Whereabouts, images: &mut Images<'_>) -> Outcome {
    let excludes = excludes(&args.exclude)?;
    let operands = [&args.first, &args.second].map(|text| Operand::parse(text, location));
    let [first, second] = operands;
    let operands = [first?, second?];
    let places = [operands[0].open(images)?, operands[1].open(images)?];
    if let Some(to) = &args.oci_layer {
        return layer::write(&places, &excludes, args.threads.count, to);
    }
    operand::refuse_a_file_beside_a_directory(&places)?;
    let mut options = CompareOptions::new(aspects(args));
    options.threads = args.threads.count;
    let exclude = |path: &Path, is_dir: bool| is_excluded(&excludes, path, is_dir);
    if !excludes.is_empty() {
        options.exclude = Some(&exclude);
    }
    let mut shown = Shown::new(args, places.each_ref().map(Place::block_size));
    let mut failed = None;
    if args.blocks {
        let [Some(one), Some(other)] = places.each_ref().map(Place::filesystem) else {
            return Err(Failure::usage(
                "--blocks is about two images: directories of the host have no blocks to compare",
            ));
        };
        shown.superblocks(&superblock::differences(one, other)?)?;
    }
    let [one, other] = places.each_ref().map(Place::side);
    let report = compare(&one, &other, &options, |difference| {
        match shown.difference(&difference) {
            Ok(()) if args.quiet => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                failed = Some(failure);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    let report = report.map_err(|e| Failure::new(e.to_string()))?;
    tell_problems(&places, &report);
    let is_same = shown.finish(&report)?;
    if report.problem_count > 0 {
        Err(Failure::Code(TROUBLE))
    } else if is_same {
        Ok(())
    } else {
        Err(Failure::Code(DIFFERENT))
    }
}

/// Says what could not be read.
fn tell_problems(places: &[Place; 2], report: &Report) {
    for (side, problem) in &report.problems {
        let place = match side {
            Which::First => &places[0],
            Which::Second => &places[1],
        };
        say(place.about(problem));
    }
    let more = report.problem_count - report.problems.len() as u64;
    if more > 0 {
        say(format_args!("... and {more} more of this kind"));
    }
}

/// Patterns of what is left out.
pub(in crate::commands) fn excludes(patterns: &[OsString]) -> Outcome<Excludes> {
    let patterns = patterns.iter().map(|pattern| pattern.as_bytes());
    Excludes::new(patterns).map_err(|e| Failure::usage(format!("--exclude: {e}")))
}

/// Whether patterns leave out a path below the start.
pub(in crate::commands) fn is_excluded(excludes: &Excludes, path: &Path, is_dir: bool) -> bool {
    let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    !names.is_empty() && excludes.excludes(&names, is_dir)
}

fn aspects(args: &Diff) -> Aspects {
    let mut aspects = if args.only.is_empty() {
        Aspects::ALL
    } else {
        Aspects::NONE
    };
    let named = args.only.iter().map(|aspect| (aspect, true));
    let named = named.chain(args.ignore.iter().map(|aspect| (aspect, false)));
    for (aspect, is_wanted) in named {
        let place = match aspect {
            Aspect::Content => &mut aspects.content,
            Aspect::Modes => &mut aspects.modes,
            Aspect::Owners => &mut aspects.owners,
            Aspect::Times => &mut aspects.times,
            Aspect::Xattrs => &mut aspects.xattrs,
            Aspect::Links => &mut aspects.links,
            Aspect::Devices => &mut aspects.devices,
            Aspect::Projects => &mut aspects.projects,
            Aspect::Flags => &mut aspects.flags,
        };
        *place = is_wanted;
    }
    aspects.layout = args.blocks;
    aspects
}
