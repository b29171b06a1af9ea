//! `extant cp`.
//!
//! | file | owns |
//! |---|---|
//! | `out` | from images to the host |
//! | `into` | into an image, from the host or from images |

pub(super) mod into;
mod out;

use crate::args::{Cp, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use extant::Escaped;
use std::ffi::OsStr;
use std::path::Path;

pub(super) fn run(args: &Cp, location: &Whereabouts) -> Outcome {
    let Some((dest, sources)) = args
        .paths
        .split_last()
        .filter(|(_, others)| !others.is_empty())
    else {
        return Err(Failure::usage(
            "nothing to copy: name a file and where to put it",
        ));
    };
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
        return into::run(args, location, sources, &dest);
    }
    if args.owner.is_some() {
        return Err(Failure::usage(
            "--owner is about copying into an image: outside, use chown afterwards",
        ));
    }
    if !args.owners.is_empty() {
        return Err(Failure::usage(
            "--owners, --map-ids and --contexts are about copying into an image",
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
    out::run(args, location, sources, Path::new(dest))
}
