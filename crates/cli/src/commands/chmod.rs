//! `extant chmod`.

use crate::args::{Chmod, Where};
use crate::failure::{Failure, Outcome};
use crate::images::{Problems, change_each, is_final};
use crate::mode::ModeChange;
use crate::path::follow;
use crate::place::Place;
use extant::{Filesystem, Metadata, Result};
use std::path::Path;

pub(super) fn run(args: &Chmod, place: &Where) -> Outcome {
    let change = ModeChange::parse(&args.mode).map_err(Failure::usage)?;
    change_each(&args.paths, place, |fs, at, problems| {
        let found = fs.metadata(&at.path).map_err(|e| at.failure(&e))?;
        if args.recursive && found.is_dir() {
            return tree(fs, at, &change, problems);
        }
        one(fs, &at.path, &found, &change).map_err(|e| at.failure(&e))
    })
}

fn one(fs: &Filesystem, path: &Path, found: &Metadata, change: &ModeChange) -> Result<()> {
    let before = found.mode().permissions();
    fs.set_permissions(path, change.apply(before, found.is_dir()))
}

/// Everything below a directory, symbolic links left alone.
fn tree(fs: &Filesystem, at: &Place, change: &ModeChange, problems: &mut Problems) -> Outcome {
    let start = follow(fs, &at.path).and_then(|path| fs.walk(path));
    for entry in start.map_err(|e| at.failure(&e))? {
        let changed = match entry {
            Ok(entry) if entry.metadata().is_symlink() => Ok(()),
            Ok(entry) => one(fs, entry.path(), &entry.metadata(), change),
            Err(e) => Err(e),
        };
        if let Err(e) = changed {
            problems.note(at.failure(&e));
            if is_final(&e) {
                return Err(Failure::Said);
            }
        }
    }
    Ok(())
}
