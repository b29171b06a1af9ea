//! `extant chmod`.

use crate::args::{Chmod, Where};
use crate::failure::{Failure, Outcome};
use crate::images::{Problems, change_each, change_tree};
use crate::mode::ModeChange;
use crate::path::follow;
use crate::place::Place;
use extant::{FileType, Filesystem, Metadata, Result};
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

/// Everything at and below a directory, symbolic links left alone.
fn tree(fs: &Filesystem, at: &Place, change: &ModeChange, problems: &mut Problems) -> Outcome {
    let start = follow(fs, &at.path).map_err(|e| at.failure(&e))?;
    change_tree(fs, at, &start, problems, |entry| match entry.file_type() {
        FileType::Symlink => Ok(()),
        _ => one(fs, entry.path(), &entry.metadata(), change),
    })
}
