//! `extant touch`.

use crate::args::{Touch, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::change_each;
use crate::mode::ModeChange;
use crate::owner::{Giving, Owner};
use crate::path::{follow, look, look_at_link};
use crate::time::{now, parse_date, parse_stamp};
use crate::verbose::Verbose;
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
    let mode = args.mode.as_deref().map(ModeChange::parse).transpose();
    let mode = mode.map_err(Failure::usage)?;
    let giving = Giving::of(&args.owner)?;
    let verbose = Verbose::new(args.verbose);
    let done = change_each(&args.paths, location, |fs, at, _| {
        let new = New {
            owner: giving.look_up(fs)?,
            mode: mode.as_ref().map_or(MODE, |mode| mode.apply(MODE, false)),
        };
        let done = one(args, fs, at, &new, accessed, modified).map_err(|e| at.failure(&e))?;
        match done {
            Done::Nothing => {}
            Done::Made => verbose.tell(format_args!("created {}", at.shown())),
            Done::Touched => verbose.tell(format_args!("touched {}", at.shown())),
        }
        Ok(())
    });
    verbose.finish(done)
}

/// Permissions unless said otherwise.
const MODE: u16 = 0o644;

/// What a file that is made gets.
struct New {
    owner: Option<Owner>,
    mode: u16,
}

/// What was done to a file.
enum Done {
    Nothing,
    Made,
    Touched,
}

fn one(
    args: &Touch,
    fs: &Filesystem,
    at: &ImagePath,
    new: &New,
    accessed: Option<Timestamp>,
    modified: Option<Timestamp>,
) -> extant::Result<Done> {
    let found = if args.no_dereference {
        look_at_link(fs, &at.path)?
    } else {
        look(fs, &at.path)?
    };
    let is_new = found.is_none();
    if is_new {
        if args.no_create || args.no_dereference {
            return if args.no_create {
                Ok(Done::Nothing)
            } else {
                // Says that it is missing.
                fs.symlink_metadata(&at.path).map(|_| Done::Nothing)
            };
        }
        OpenOptions::new()
            .write(true)
            .create(true)
            .mode(new.mode)
            .open(fs, &at.path)?;
    }
    let path = if args.no_dereference {
        at.path.clone()
    } else {
        follow(fs, &at.path)?
    };
    if let Some(owner) = new.owner.filter(|_| is_new) {
        owner.give(fs, &path, Some(new.mode))?;
    }
    fs.set_times(path, accessed, modified)?;
    Ok(if is_new { Done::Made } else { Done::Touched })
}
