//! `extant chmod`.

use super::like;
use crate::args::{Chmod, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown};
use crate::images::{Problems, change_each, change_tree};
use crate::mode::ModeChange;
use crate::path::follow;
use crate::verbose::Verbose;
use extant::{Escaped, FileType, Filesystem, Metadata, Result};
use std::path::Path;

/// What is done to each file.
struct Work<'a> {
    change: &'a ModeChange,
    verbose: &'a Verbose,
}

pub(super) fn run(args: &Chmod, location: &Whereabouts) -> Outcome {
    let mut paths = args.paths.clone();
    let change = match &args.reference {
        Some(file) => {
            // There is no mode then.
            paths.insert(0, args.mode.clone());
            like::permissions(file, location)?
        }
        None => ModeChange::parse(&args.mode.to_string_lossy()).map_err(Failure::usage)?,
    };
    let verbose = Verbose::new(args.verbose);
    let work = Work {
        change: &change,
        verbose: &verbose,
    };
    let done = change_each(&paths, location, |fs, at, problems| {
        let found = fs.metadata(&at.path).map_err(|e| at.failure(&e))?;
        if args.recursive && found.is_dir() {
            return work.tree(fs, at, problems);
        }
        work.one(fs, at, &at.path, &found)
            .map_err(|e| at.failure(&e))
    });
    verbose.finish(done)
}

impl Work<'_> {
    fn one(&self, fs: &Filesystem, at: &ImagePath, path: &Path, found: &Metadata) -> Result<()> {
        let before = found.mode().permissions();
        let after = self.change.apply(before, found.is_dir());
        fs.set_permissions(path, after)?;
        let (image, path) = (shown(&at.image), Escaped::path(path));
        self.verbose.tell(format_args!(
            "mode of {image}:{path}: {before:04o} -> {after:04o}"
        ));
        Ok(())
    }

    /// Everything at and below a directory, symbolic links left alone.
    fn tree(&self, fs: &Filesystem, at: &ImagePath, problems: &mut Problems) -> Outcome {
        let start = follow(fs, &at.path).map_err(|e| at.failure(&e))?;
        change_tree(fs, at, &start, problems, |entry| match entry.file_type() {
            FileType::Symlink => Ok(()),
            _ => self.one(fs, at, entry.path(), &entry.metadata()),
        })
    }
}
