//! `extant touch`.

use crate::args::{Touch, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::change_each;
use crate::path::{follow, look, look_at_link};
use crate::time::{now, parse_date, parse_stamp};
use extant::{Filesystem, OpenOptions, Timestamp};

pub(super) fn run(args: &Touch, location: &Whereabouts) -> Outcome {
    let now = now();
    let time = match (&args.date, &args.stamp) {
        (Some(text), _) => parse_date(text).map_err(Failure::usage)?,
        (None, Some(text)) => parse_stamp(text, now).map_err(Failure::usage)?,
        (None, None) => now,
    };
    let both = args.access == args.modification;
    let accessed = (both || args.access).then_some(time);
    let modified = (both || args.modification).then_some(time);
    change_each(&args.paths, location, |fs, at, _| {
        one(args, fs, at, accessed, modified).map_err(|e| at.failure(&e))
    })
}

fn one(
    args: &Touch,
    fs: &Filesystem,
    at: &ImagePath,
    accessed: Option<Timestamp>,
    modified: Option<Timestamp>,
) -> extant::Result<()> {
    let found = if args.no_dereference {
        look_at_link(fs, &at.path)?
    } else {
        look(fs, &at.path)?
    };
    if found.is_none() {
        if args.no_create || args.no_dereference {
            return if args.no_create {
                Ok(())
            } else {
                // Says that it is missing.
                fs.symlink_metadata(&at.path).map(drop)
            };
        }
        OpenOptions::new()
            .write(true)
            .create(true)
            .open(fs, &at.path)?;
    }
    let path = if args.no_dereference {
        at.path.clone()
    } else {
        follow(fs, &at.path)?
    };
    fs.set_times(path, accessed, modified)
}
