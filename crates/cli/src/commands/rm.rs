//! `extant rm`.

use crate::args::{Rm, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::{Problems, change_each, is_final};
use crate::path::{last_name, look_at_link};
use extant::Filesystem;
use std::ops::ControlFlow;

pub(super) fn run(args: &Rm, location: &Whereabouts) -> Outcome {
    change_each(&args.paths, location, |fs, at, problems| {
        if last_name(&at.path).is_none() {
            return Err(Failure::new(format!(
                "{} is not removed: name what is in it, not the directory by `.`, `..` or `/`",
                at.shown()
            )));
        }
        let found = look_at_link(fs, &at.path).map_err(|e| at.failure(&e))?;
        match found {
            None if args.force => Ok(()),
            Some(found) if found.is_dir() => directory(args, fs, at, problems),
            // What is missing is an error of removing it.
            _ => fs.remove_file(&at.path).map_err(|e| at.failure(&e)),
        }
    })
}

fn directory(args: &Rm, fs: &Filesystem, at: &ImagePath, problems: &mut Problems) -> Outcome {
    if args.recursive {
        return tree(fs, at, problems);
    }
    if args.dir {
        return fs.remove_dir(&at.path).map_err(|e| at.failure(&e));
    }
    Err(Failure::new(format!(
        "{} is a directory: remove it and all that is in it with -r",
        at.shown()
    )))
}

/// Removes a directory and all that is in it. What cannot be removed is said, and the rest is
/// removed all the same.
fn tree(fs: &Filesystem, at: &ImagePath, problems: &mut Problems) -> Outcome {
    let mut stopped = false;
    let removed = fs.remove_dir_all_with(&at.path, |e| {
        problems.note(at.failure(&e));
        stopped = is_final(&e);
        if stopped {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    removed.map_err(|e| at.failure(&e))?;
    if stopped { Err(Failure::Said) } else { Ok(()) }
}
