//! `extant rm`.

use crate::args::{Rm, Where};
use crate::failure::{Failure, Outcome};
use crate::images::{Problems, change_each, is_final};
use crate::path::{last_name, look_at_link};
use crate::place::Place;
use extant::{FileType, Filesystem};

pub(super) fn run(args: &Rm, place: &Where) -> Outcome {
    change_each(&args.paths, place, |fs, at, problems| {
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

fn directory(args: &Rm, fs: &Filesystem, at: &Place, problems: &mut Problems) -> Outcome {
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

/// Removes a directory and all that is in it, children before parents.
fn tree(fs: &Filesystem, at: &Place, problems: &mut Problems) -> Outcome {
    let mut found = Vec::new();
    for entry in fs.walk(&at.path).map_err(|e| at.failure(&e))? {
        match entry {
            Ok(entry) => found.push((
                entry.path().to_owned(),
                entry.file_type() == FileType::Directory,
            )),
            Err(e) => problems.note(at.failure(&e)),
        }
    }
    for (path, is_dir) in found.iter().rev() {
        let removed = match is_dir {
            true => fs.remove_dir(path),
            false => fs.remove_file(path),
        };
        if let Err(e) = removed {
            problems.note(at.failure(&e));
            if is_final(&e) {
                return Err(Failure::Said);
            }
        }
    }
    Ok(())
}
