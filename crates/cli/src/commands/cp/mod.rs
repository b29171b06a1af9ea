//! `extant cp`.
//!
//! | file | owns |
//! |---|---|
//! | `rules` | what is copied: patterns, symbolic links, files that are there |
//! | `out` | from images to the host |
//! | `into` | into an image, from the host or from images |
//! | `stream` | the content of a file to standard output, a pipe or a device |

pub(super) mod into;
pub(super) mod out;
pub(super) mod rules;
mod stream;

use crate::args::{Cp, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::verbose::Verbose;
use extant::Escaped;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Standard input as a source, and standard output as the destination.
const STREAM: &str = "-";

pub(super) fn run(args: &Cp, location: &Whereabouts) -> Outcome {
    let Some((dest, sources)) = args.dest_and_sources() else {
        return Err(Failure::usage(
            "nothing to copy: name a file and where to put it",
        ));
    };
    let verbose = Verbose::new(args.verbose);
    let done = run_to(args, location, sources, dest, &verbose);
    verbose.finish(done)
}

fn run_to(
    args: &Cp,
    location: &Whereabouts,
    sources: &[OsString],
    dest: &OsString,
    verbose: &Verbose,
) -> Outcome {
    if dest == STREAM && args.target_directory.is_none() {
        refuse_into_options(args)?;
        return out::to_output(args, location, sources);
    }
    if let Some(dest) = ImagePath::inside_if_any(dest)? {
        if args.verify {
            return Err(Failure::usage(
                "--verify is about copying out of an image: copy files out with it, and then in",
            ));
        }
        if args.partial || args.json {
            return Err(Failure::usage(
                "--partial and --json are about copying out of an image",
            ));
        }
        return into::run(args, location, sources, &dest, verbose);
    }
    refuse_into_options(args)?;
    if sources.iter().any(|source| source == STREAM) {
        return Err(Failure::usage(
            "standard input is copied into an image: write IMAGE:/path as the destination",
        ));
    }
    let is_outside = |source: &OsStr| -> Outcome<bool> {
        let place = ImagePath::parse(source)?;
        let is_file = |path: &Path| path.metadata().is_ok_and(|found| !found.is_dir());
        Ok(!place.has_path && !place.image.path().is_none_or(is_file))
    };
    for source in sources {
        if !is_outside(source)? {
            continue;
        }
        return Err(Failure::usage(format!(
            "neither {} nor {} is in an image: write IMAGE:/path for what is",
            Escaped::path(Path::new(source)),
            Escaped::path(Path::new(dest))
        )));
    }
    out::run(args, location, sources, Path::new(dest), verbose)
}

/// Refuses what is only about copying into images.
fn refuse_into_options(args: &Cp) -> Outcome {
    if args.owner.is_some() {
        return Err(Failure::usage(
            "--owner is about copying into an image: outside, use chown afterwards",
        ));
    }
    if args.group.is_some() || args.mode.is_some() {
        return Err(Failure::usage(
            "--group and --mode are about copying into an image: outside, use chgrp and chmod \
             afterwards",
        ));
    }
    if !args.owners.is_empty() {
        return Err(Failure::usage(
            "--owners, --map-ids and --contexts are about copying into an image",
        ));
    }
    Ok(())
}
