//! `extant cp`.
//!
//! | file | owns |
//! |---|---|
//! | `out` | from images to the host |
//! | `into` | into an image, from the host or from images |

mod into;
mod out;

use crate::args::{Cp, Where};
use crate::failure::{Failure, Outcome};
use crate::place::Place;
use extant::Escaped;
use std::path::Path;

pub(super) fn run(args: &Cp, place: &Where) -> Outcome {
    let Some((dest, sources)) = args.paths.split_last() else {
        return Err(Failure::usage(
            "nothing to copy: name a file and where to put it",
        ));
    };
    if let Some(dest) = Place::inside_if_any(dest) {
        return into::run(args, place, sources, &dest);
    }
    if args.owner.is_some() {
        return Err(Failure::usage(
            "--owner is about copying into an image: outside, use chown afterwards",
        ));
    }
    let outside = sources.iter().find(|source| {
        let place = Place::parse(source);
        !place.has_path && !place.image.metadata().is_ok_and(|found| !found.is_dir())
    });
    if let Some(source) = outside {
        return Err(Failure::usage(format!(
            "neither {} nor {} is in an image: write IMAGE:/path for what is",
            Escaped::path(Path::new(source)),
            Escaped::path(Path::new(dest))
        )));
    }
    out::run(args, place, sources, Path::new(dest))
}
