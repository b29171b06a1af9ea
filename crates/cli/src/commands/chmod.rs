//! `extant chmod`.

use crate::args::{Chmod, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::{Problems, change_each, change_tree};
use crate::mode::ModeChange;
use crate::path::follow;
use extant::{FileType, Filesystem, Metadata, Result};
use std::path::Path;

pub(super) fn run(args: &Chmod, location: &Whereabouts) -> Outcome {
    let change = ModeChange::parse(&args.mode).map_err(Failure::usage)?;
    change_each(&args.paths, location, |fs, at, problems| {
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
fn tree(fs: &Filesystem, at: &ImagePath, change: &ModeChange, problems: &mut Problems) -> Outcome {
    let start = follow(fs, &at.path).map_err(|e| at.failure(&e))?;
    change_tree(fs, at, &start, problems, |entry| match entry.file_type() {
        FileType::Symlink => Ok(()),
        _ => one(fs, entry.path(), &entry.metadata(), change),
    })
}
