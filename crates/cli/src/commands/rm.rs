//! `extant rm`.

use crate::args::{Rm, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::ImagePath;
use crate::images::{Problems, change_each, is_final};
use crate::path::{last_name, look_at_link};
use crate::verbose::Verbose;
use extant::{Escaped, Filesystem};
use std::ops::ControlFlow;
use std::path::Path;

/// Where checkers put what they find: no pattern means it.
const LOST_AND_FOUND: &str = "/lost+found";

pub(super) fn run(args: &Rm, location: &Whereabouts) -> Outcome {
    let verbose = Verbose::new(args.verbose);
    // The images in which it is.
    let mut named = Vec::new();
    for path in &args.paths {
        let at = ImagePath::inside(path)?;
        if is_lost_and_found(&at.path) {
            named.push(at.image);
        }
    }
    let done = change_each(&args.paths, location, |fs, at, problems| {
        if last_name(&at.path).is_none() {
            return Err(Failure::new(format!(
                "{} is not removed: name what is in it, not the directory by `.`, `..` or `/`",
                at.shown()
            )));
        }
        let found = look_at_link(fs, &at.path).map_err(|e| at.failure(&e))?;
        if is_lost_and_found(&at.path) && !named.contains(&at.image) && found.is_some() {
            say(format_args!(
                "note: {} stays: checkers put there what they find; name it to remove it",
                at.shown()
            ));
            return Ok(());
        }
        match found {
            None if args.force => return Ok(()),
            Some(found) if found.is_dir() => return directory(args, fs, at, &verbose, problems),
            // What is missing is an error of removing it.
            _ => fs.remove_file(&at.path).map_err(|e| at.failure(&e))?,
        }
        verbose.tell(format_args!("removed {}", at.shown()));
        Ok(())
    });
    verbose.finish(done)
}

fn is_lost_and_found(path: &Path) -> bool {
    path.components().eq(Path::new(LOST_AND_FOUND).components())
}

fn directory(
    args: &Rm,
    fs: &Filesystem,
    at: &ImagePath,
    verbose: &Verbose,
    problems: &mut Problems,
) -> Outcome {
    if args.recursive {
        return if verbose.is_on() {
            told_tree(fs, at, verbose, problems)
        } else {
            tree(fs, at, problems)
        };
    }
    if args.dir {
        fs.remove_dir(&at.path).map_err(|e| at.failure(&e))?;
        verbose.tell(format_args!("removed directory {}", at.shown()));
        return Ok(());
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

/// As [`tree`], and tells of each file. Memory grows with their number.
fn told_tree(
    fs: &Filesystem,
    at: &ImagePath,
    verbose: &Verbose,
    problems: &mut Problems,
) -> Outcome {
    let mut all = Vec::new();
    let mut walk = fs.walk(&at.path).map_err(|e| at.failure(&e))?;
    while let Some(entry) = walk.next() {
        match entry.and_then(|entry| entry.check_name().map(|()| entry)) {
            Ok(entry) => all.push((entry.path().to_owned(), entry.metadata().is_dir())),
            Err(e) => {
                walk.skip_children();
                problems.note(at.failure(&e));
            }
        }
    }
    // What is in a directory before the directory.
    for (path, is_dir) in all.iter().rev() {
        let (removed, what) = if *is_dir {
            (fs.remove_dir(path), "removed directory")
        } else {
            (fs.remove_file(path), "removed")
        };
        match removed {
            Ok(()) => verbose.tell(format_args!(
                "{what} {}:{}",
                crate::image_path::shown(&at.image),
                Escaped::path(path)
            )),
            Err(e) => {
                problems.note(at.failure(&e));
                if is_final(&e) {
                    return Err(Failure::Said);
                }
            }
        }
    }
    Ok(())
}
