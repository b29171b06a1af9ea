//! Doing what is planned: beside the rest first, and then in its place.
//!
//! # Invariants
//!
//! - Until all that is new is complete and durable, no name of the image changes but that of the
//!   stage. What fails before leaves the image's files as they were.
//! - Then each name changes in one step: by a rename, an exchange or an unlink. What is replaced or
//!   removed goes to the stage if it is a directory, and is removed with it.

use super::Words;
use super::steps::{APART, Move, Old, Removal, Steps};
use crate::commands::cp::into::{OfTrees, set_flags};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{ImagePath, shown};
use crate::images::Problems;
use crate::path::look_at_link;
use crate::verbose::Verbose;
use extant::{Error, Escaped, Filesystem};
use std::path::{Path, PathBuf};

/// Permissions of the stage, whose owner is root: by them it is known again.
const PRIVATE: u16 = 0o700;

pub(in crate::commands) struct Placing<'a> {
    pub(in crate::commands) fs: &'a Filesystem,
    pub(in crate::commands) image: &'a ImagePath,
    /// Where what is new is made.
    pub(in crate::commands) stage: &'a Path,
    pub(in crate::commands) threads: usize,
    pub(in crate::commands) words: Words,
}

impl Placing<'_> {
    /// Removes what a run that was broken off left behind.
    pub(in crate::commands) fn clear_the_last(&self) -> Outcome {
        let failed = |e: Error| self.image.failure(&e);
        let Some(found) = look_at_link(self.fs, self.stage).map_err(failed)? else {
            return Ok(());
        };
        let place = format!("{}:{}", shown(&self.image.image), Escaped::path(self.stage));
        if !found.is_dir() || found.uid() != 0 || found.mode().permissions() & 0o777 != PRIVATE {
            return Err(Failure::new(format!(
                "{place} has the name that new files are made under, and was not made for that: \
                 give it another name with `extant mv`"
            )));
        }
        self.fs.remove_dir_all(self.stage).map_err(failed)?;
        say(format_args!(
            "note: {place} was left by a run that was broken off, and is removed"
        ));
        Ok(())
    }

    /// Does it. What could not be set once all names are in their places is said and counted.
    pub(in crate::commands) fn run(&self, steps: &Steps) -> Outcome<Problems> {
        let place_of = |staged: &Path| {
            let place = self.final_place(steps, staged);
            place.unwrap_or_else(|| staged.to_owned())
        };
        let files = OfTrees {
            fs: self.fs,
            dest: self.image,
            threads: self.threads,
            verbose: &Verbose::new(false),
            place_of: &place_of,
        };
        self.make(&files, steps)?;
        let total = steps.moves.len() + steps.removals.len();
        let mut done = 0;
        let placed = self.place(steps, &mut done).map_err(|e| {
            Failure::new(format!(
                "{}. {done} of {total} names are {}, and the others as they were; the same command \
                 again goes on",
                self.about(&e),
                self.words.placed
            ))
        });
        placed?;
        let removed = self.fs.remove_dir_all(self.stage);
        let mut problems = files.describe(&steps.described);
        if let Err(e) = removed {
            problems.note(self.image.failure(&e));
        }
        self.set_times(steps, &mut problems);
        self.set_flags(steps, &mut problems);
        Ok(problems)
    }

    /// Makes all that is new in the stage, durably.
    fn make(&self, files: &OfTrees<'_>, steps: &Steps) -> Outcome {
        let staged = &steps.staged;
        let is_empty = staged.dirs.is_empty() && staged.files.is_empty() && staged.links.is_empty();
        let failed = |e: Error| self.image.failure(&e);
        let root = self.stage.parent().unwrap_or(Path::new("/"));
        let before = self.fs.symlink_metadata(root).map_err(failed)?;
        self.fs
            .create_dir_with(self.stage, PRIVATE)
            .map_err(failed)?;
        let made = self.prepare(steps).map_err(failed).and_then(|()| {
            if !is_empty {
                files.make(staged).outcome()?;
            }
            // What is replaced and removed comes here, whatever project it belongs to.
            for one in &steps.workshops {
                let changed = one.rules.take_any_project(self.fs, &one.path);
                changed.map_err(failed)?;
            }
            if is_empty {
                return Ok(());
            }
            self.fs.sync().map_err(failed)
        });
        let Err(failure) = made else {
            return Ok(());
        };
        // If that fails too, the first failure still says what happened.
        let cleared = self.fs.remove_dir_all(self.stage);
        let (accessed, modified) = (Some(before.atime()), Some(before.mtime()));
        let cleared = cleared.and_then(|()| self.fs.set_times(root, accessed, modified));
        let left = match cleared {
            Ok(()) => "the files of the image are as they were".to_owned(),
            Err(e) => format!(
                "{} could not be removed without a trace ({e}), and all other files are as they were",
                Escaped::path(self.stage)
            ),
        };
        if let Failure::Failed(text) = failure {
            say(text);
        }
        Err(Failure::new(format!(
            "{}: {}, and {left}",
            shown(&self.image.image),
            self.words.nothing
        )))
    }

    /// Makes the directories of the stage that hand down other things than the root.
    fn prepare(&self, steps: &Steps) -> Result<(), Error> {
        // The stage itself has the rules of the root.
        for one in steps.workshops.iter().skip(1) {
            self.fs.create_dir_with(&one.path, PRIVATE)?;
            one.rules.give(self.fs, &one.path)?;
        }
        Ok(())
    }

    /// Gives all names what they shall stand for; counts those that are done.
    fn place(&self, steps: &Steps, done: &mut usize) -> Result<(), Error> {
        // What goes makes way in directories that are there.
        for (number, removal) in steps.removals.iter().enumerate() {
            self.remove(removal, number)?;
            *done += 1;
        }
        for one in &steps.moves {
            self.move_in(one)?;
            *done += 1;
        }
        Ok(())
    }

    fn remove(&self, removal: &Removal, number: usize) -> Result<(), Error> {
        if !removal.is_dir {
            return self.fs.remove_file(&removal.path);
        }
        let aside = self.stage.join(format!("gone-{number}"));
        self.fs.rename_new(&removal.path, aside)
    }

    fn move_in(&self, one: &Move) -> Result<(), Error> {
        match (one.old, one.is_dir) {
            (Old::Nothing, _) => self.fs.rename_new(&one.from, &one.to),
            (Old::File, false) => self.fs.rename(&one.from, &one.to),
            // What was there is in the stage then.
            (Old::File, true) | (Old::Directory, _) => self.fs.exchange(&one.from, &one.to),
        }
    }

    /// Puts back the times of directories in which names changed.
    fn set_times(&self, steps: &Steps, problems: &mut Problems) {
        for touched in &steps.touched {
            let (accessed, modified) = (touched.accessed, touched.modified);
            let set = self
                .fs
                .set_times(&touched.path, Some(accessed), Some(modified));
            if let Err(e) = set {
                problems.note(self.image.failure(&e));
            }
        }
    }

    /// Flags come last: some forbid every other change.
    fn set_flags(&self, steps: &Steps, problems: &mut Problems) {
        let staged = steps.staged.dirs.iter().chain(&steps.staged.files);
        let staged = staged.filter_map(|node| Some((node, self.final_place(steps, node.place())?)));
        let described = steps.described.dirs.iter();
        let described = described.map(|node| (node, node.place().to_owned()));
        set_flags(self.fs, self.image, staged.chain(described), problems);
    }

    /// Where something of the stage is in the end: its first name there, or in a directory with
    /// rules of its own, is the number of a move.
    pub(in crate::commands) fn final_place(&self, steps: &Steps, staged: &Path) -> Option<PathBuf> {
        let inside = staged.strip_prefix(self.stage).ok()?;
        let mut names = inside.components();
        let mut first = names.next()?.as_os_str().to_str()?;
        if first.starts_with(APART) {
            first = names.next()?.as_os_str().to_str()?;
        }
        let number = first.parse::<usize>().ok()?;
        let to = &steps.moves.get(number)?.to;
        let rest = names.as_path();
        Some(if rest.as_os_str().is_empty() {
            to.clone()
        } else {
            to.join(rest)
        })
    }

    fn about(&self, e: &Error) -> String {
        crate::failure::in_image(&self.image.image, e)
    }
}
