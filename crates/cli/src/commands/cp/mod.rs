//! `extant cp`.
//!
//! | file | owns |
//! |---|---|
//! | `out` | from images to the host |
//! | `into` | into an image, from the host or from images |

mod into;
mod out;

use crate::args::{Cp, ImageLocation};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use extant::Escaped;
use std::path::Path;

pub(super) fn run(args: &Cp, location: &ImageLocation) -> Outcome {
    let Some((dest, sources)) = args.paths.split_last() else {
        return Err(Failure::usage(
            "nothing to copy: name a file and where to put it",
        ));
    };
    if let Some(dest) = ImagePath::inside_if_any(dest) {
        return into::run(args, location, sources, &dest);
    }
    if args.owner.is_some() {
        return Err(Failure::usage(
            "--owner is about copying into an image: outside, use chown afterwards",
        ));
    }
    let outside = sources.iter().find(|source| {
        let location = ImagePath::parse(source);
        !location.has_path && !location.image.metadata().is_ok_and(|found| !found.is_dir())
    });
    if let Some(source) = outside {
        return Err(Failure::usage(format!(
            "neither {} nor {} is in an image: write IMAGE:/path for what is",
            Escaped::path(Path::new(source)),
            Escaped::path(Path::new(dest))
        )));
    }
    out::run(args, location, sources, Path::new(dest))
}
