//! What is to be made, moved, removed and set, from what differs.
//!
//! # Invariants
//!
//! - A file whose content differs is made anew, and so is a symbolic link or a device; what has
//!   other owners, permissions, times or attributes only gets these where it is.
//! - Names of one file of the source are names of one file of the image afterwards. The file that
//!   is there stays if one of them is right; otherwise one is made.
//! - What flags of `chattr` protect is refused before anything is written, and so is a change of
//!   names where none can be changed.
//! - Nothing is taken away if anything that the source has does not come in its place.
//! - What is excluded stays, wherever it lies.

use super::is_excluded;
use super::source::Source;
use crate::commands::apply::place::Placing;
use crate::commands::apply::rules::Rules;
use crate::commands::apply::steps::{Move, Old, Removal, Steps, Touched, why_closed};
use crate::commands::cp::into::plan::Plan;
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{ImagePath, shown};
use crate::images::Problems;
use crate::path::look_at_link;
use crate::room;
use extant::compare::{Difference, Report, What, Which};
use extant::{Escaped, FileFlags, FileType, Filesystem, Metadata};
use extant_core::ops::changeable;
use extant_mkfs::source::Excludes;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Component, Path, PathBuf};

/// Where checkers put what they find.
const LOST_AND_FOUND: &str = "/lost+found";

/// What is to be done.
pub(super) struct Planned {
    pub(super) steps: Steps,
    /// Files that are there, with flags to set and to take, and the project to give.
    flags: Vec<(PathBuf, FileFlags, FileFlags, Option<u32>)>,
}

pub(super) struct Planner<'a> {
    fs: &'a Filesystem,
    dest: &'a ImagePath,
    source: &'a Source,
    excludes: &'a Excludes,
    stage: &'a Path,
    steps: Steps,
    /// Whether names that the source does not have go.
    pub(super) deletes: bool,
    /// Files that are there and get what else the source has, with what is known of them there.
    described: BTreeMap<PathBuf, FileType>,
    /// What takes the place of directories, which it does last.
    instead: Vec<(PathBuf, Rules)>,
    /// Directories whose names change.
    touched: BTreeSet<PathBuf>,
    flags: Vec<(PathBuf, FileFlags, FileFlags, Option<u32>)>,
    /// Directories of an image that are made, by number: one that has a second place makes a tree
    /// without end.
    entered: HashSet<u32>,
}

impl<'a> Planner<'a> {
    /// `root` is the directory that `stage` is made in.
    pub(super) fn new(
        fs: &'a Filesystem,
        dest: &'a ImagePath,
        source: &'a Source,
        excludes: &'a Excludes,
        root: &Path,
        stage: &'a Path,
    ) -> Outcome<Self> {
        let top = fs.symlink_metadata(root).map_err(|e| dest.failure(&e))?;
        Ok(Self {
            fs,
            dest,
            source,
            excludes,
            stage,
            steps: Steps::begin(stage, Rules::of(&top)),
            deletes: false,
            described: BTreeMap::new(),
            instead: Vec::new(),
            touched: BTreeSet::new(),
            flags: Vec::new(),
            entered: HashSet::new(),
        })
    }

    /// Where in the image a path is, as it was compared.
    fn to(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(below) if !below.as_os_str().is_empty() => self.dest.path.join(below),
            _ => self.dest.path.clone(),
        }
    }

    /// Plans to make the directory that is not there, with all that the source has.
    pub(super) fn make_all(&mut self, problems: &mut Problems) -> Outcome {
        let parent = self.dest.path.parent().unwrap_or(Path::new("/")).to_owned();
        let found = self.fs.symlink_metadata(&parent);
        let found = found.map_err(|e| self.dest.failure(&e))?;
        self.refuse_closed(&parent, &found)?;
        // It keeps the times that it has.
        self.steps.touched.push(Touched {
            path: parent.clone(),
            accessed: found.atime(),
            modified: found.mtime(),
        });
        self.make(Path::new("/"), Old::Nothing, Rules::of(&found), problems)
    }

    /// Plans what follows from differences.
    pub(super) fn differences(
        &mut self,
        all: Vec<Difference>,
        report: &Report,
        problems: &mut Problems,
    ) -> Outcome {
        let mut by_path: Vec<(PathBuf, Vec<What>)> = Vec::new();
        for Difference { path, what, .. } in all {
            match by_path.last_mut() {
                Some((last, whats)) if *last == path => whats.push(what),
                _ => by_path.push((path, vec![what])),
            }
        }
        let anew = by_path.iter();
        let anew = anew.filter(|(_, whats)| whats.iter().any(is_of_the_file));
        let anew: BTreeSet<&Path> = anew.map(|(path, _)| path.as_path()).collect();
        // What stays is what further names of the source's file are given to.
        for (number, path) in report.first_names() {
            if !anew.contains(path) {
                let to = self.to(path);
                self.source.stays(&mut self.steps.staged, number, to);
            }
        }
        for (path, whats) in by_path {
            self.path(&path, &whats, problems)?;
        }
        for (path, rules) in std::mem::take(&mut self.instead) {
            let to = self.to(&path);
            if problems.count() > 0 && self.has_names(&to)? {
                problems.note(self.refused(
                    &to,
                    "is a directory with files, and stays as long as anything of SRC is missing",
                ));
                continue;
            }
            self.make(&path, Old::Directory, rules, problems)?;
        }
        // What is missing may be what goes, under another name.
        if problems.count() > 0 && !self.steps.removals.is_empty() {
            self.steps.removals.clear();
            say("nothing is removed, since not everything of SRC comes to be there");
        }
        Ok(())
    }

    /// Plans what follows from the differences of one path.
    fn path(&mut self, path: &Path, whats: &[What], problems: &mut Problems) -> Outcome {
        // Names that are stored encrypted may be any bytes, and lead anywhere.
        if path.components().any(|name| name == Component::ParentDir) {
            problems.note(self.refused(path, "has a name that only a key makes one"));
            return Ok(());
        }
        let to = self.to(path);
        let parent = to.parent().unwrap_or(Path::new("/")).to_owned();
        for what in whats {
            match what {
                What::OnlyIn(Which::First, kind) => {
                    self.refuse_for_checkers(path, *kind)?;
                    let dir = self.names_change(&parent)?;
                    if self.there(&to)?.is_some() {
                        // Another name by its bytes, in a directory that ignores case.
                        problems.note(self.refused(
                            &to,
                            "is there under a name that differs in case only: rename one of the two",
                        ));
                        return Ok(());
                    }
                    return self.make(path, Old::Nothing, Rules::of(&dir), problems);
                }
                What::OnlyIn(Which::Second, kind) => return self.remove(path, to, *kind),
                What::Kind(kind, there) => {
                    self.refuse_for_checkers(path, *kind)?;
                    let was_dir = *there == FileType::Directory;
                    if was_dir && !self.deletes && self.has_names(&to)? {
                        problems.note(self.refused(
                            &to,
                            "is a directory with files, and SRC has something else there: give \
                             --delete to have it replaced",
                        ));
                        return Ok(());
                    }
                    if was_dir && !self.kept_of(&to)?.is_empty() {
                        problems.note(self.refused(
                            &to,
                            "is a directory with files that are excluded, and SRC has something \
                             else there: move them away, or exclude the directory as well",
                        ));
                        return Ok(());
                    }
                    let dir = self.names_change(&parent)?;
                    self.refuse_fixed_below(&to)?;
                    let rules = Rules::of(&dir);
                    if was_dir {
                        self.instead.push((path.to_owned(), rules));
                        return Ok(());
                    }
                    return self.make(path, Old::File, rules, problems);
                }
                _ => {}
            }
        }
        let Some(there) = self.there(&to)? else {
            return Ok(());
        };
        let is_of_flags = |what: &What| matches!(what, What::Flags(..) | What::Project(..));
        if !whats.iter().all(is_of_flags) {
            self.refuse_fixed(&to, &there)?;
        }
        if whats.iter().any(is_of_the_file) {
            let dir = self.names_change(&parent)?;
            return self.make(path, Old::File, Rules::of(&dir), problems);
        }
        for what in whats {
            match what {
                What::Flags(source, here) => {
                    let may = changeable(there.file_type());
                    let (set, clear) = (*source & !*here & may, *here & !*source & may);
                    self.flags.push((to.clone(), set, clear, None));
                    if ((*source ^ *here) & !may).is_empty() {
                        continue;
                    }
                    problems.note(self.refused(&to, "has flags that nobody can give or take"));
                }
                What::Project(source, _) => {
                    let none = FileFlags::empty();
                    self.flags.push((to.clone(), none, none, Some(*source)));
                }
                _ => {
                    self.described.insert(path.to_owned(), there.file_type());
                }
            }
        }
        Ok(())
    }

    /// What is at a place of the image.
    fn there(&self, to: &Path) -> Outcome<Option<Metadata>> {
        look_at_link(self.fs, to).map_err(|e| self.dest.failure(&e))
    }

    /// Notes that names of a directory change, and gives what is known of it.
    fn names_change(&mut self, dir: &Path) -> Outcome<Metadata> {
        let found = self.fs.symlink_metadata(dir);
        let found = found.map_err(|e| self.dest.failure(&e))?;
        if self.touched.insert(dir.to_owned()) {
            self.refuse_closed(dir, &found)?;
        }
        Ok(found)
    }

    fn has_names(&self, dir: &Path) -> Outcome<bool> {
        let mut names = self.fs.read_dir(dir).map_err(|e| self.dest.failure(&e))?;
        Ok(names.next().is_some())
    }

    /// Plans to take a name away.
    fn remove(&mut self, path: &Path, to: PathBuf, kind: FileType) -> Outcome {
        let is_of_checkers = path == Path::new(LOST_AND_FOUND) && self.dest.path == Path::new("/");
        if !self.deletes || is_of_checkers {
            return Ok(());
        }
        let is_dir = kind == FileType::Directory;
        if is_dir {
            let kept = self.kept_of(&to)?;
            if !kept.is_empty() {
                return self.remove_all_but(&to, &kept);
            }
        }
        let parent = to.parent().unwrap_or(Path::new("/")).to_owned();
        self.names_change(&parent)?;
        self.refuse_fixed_below(&to)?;
        self.steps.removals.push(Removal { path: to, is_dir });
        Ok(())
    }

    /// What of a directory is excluded, with the directories down to that; nothing if nothing is.
    fn kept_of(&self, dir: &Path) -> Outcome<HashSet<PathBuf>> {
        let mut kept = HashSet::new();
        if self.excludes.is_empty() {
            return Ok(kept);
        }
        let failed = |e: extant::Error| self.dest.failure(&e);
        let mut walk = self.fs.walk(dir).map_err(failed)?;
        while let Some(entry) = walk.next() {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let below = path.strip_prefix(&self.dest.path).unwrap_or(path);
            let is_dir = entry.file_type() == FileType::Directory;
            if entry.depth() == 0 || !is_excluded(self.excludes, below, is_dir) {
                continue;
            }
            for path in path.ancestors().take_while(|path| path.starts_with(dir)) {
                if !kept.insert(path.to_owned()) {
                    break;
                }
            }
            walk.skip_children();
        }
        Ok(kept)
    }

    /// Plans to take everything in a directory away but for what stays.
    fn remove_all_but(&mut self, dir: &Path, kept: &HashSet<PathBuf>) -> Outcome {
        let failed = |e: extant::Error| self.dest.failure(&e);
        let mut removals: Vec<Removal> = Vec::new();
        let mut changed = HashSet::new();
        let mut walk = self.fs.walk(dir).map_err(failed)?;
        while let Some(entry) = walk.next() {
            let entry = entry.map_err(failed)?;
            let (path, found) = (entry.path(), entry.metadata());
            if kept.contains(path) {
                let below = path.strip_prefix(&self.dest.path).unwrap_or(path);
                if entry.depth() > 0 && is_excluded(self.excludes, below, found.is_dir()) {
                    walk.skip_children();
                }
                continue;
            }
            self.refuse_fixed(path, &found)?;
            let goes_along = removals.last();
            if goes_along.is_some_and(|above| path.starts_with(&above.path)) {
                continue;
            }
            entry.check_name().map_err(failed)?;
            let parent = path.parent().unwrap_or(Path::new("/"));
            if changed.insert(parent.to_owned()) {
                let found = self.fs.symlink_metadata(parent).map_err(failed)?;
                self.refuse_closed(parent, &found)?;
            }
            removals.push(Removal {
                path: path.to_owned(),
                is_dir: found.is_dir(),
            });
        }
        self.steps.removals.append(&mut removals);
        Ok(())
    }

    /// Refuses to put anything but a directory where checkers put what they find.
    fn refuse_for_checkers(&self, path: &Path, kind: FileType) -> Outcome {
        let is_theirs = path == Path::new(LOST_AND_FOUND) && self.dest.path == Path::new("/");
        if !is_theirs || kind == FileType::Directory {
            return Ok(());
        }
        Err(self.refused(
            path,
            "is where checkers put what they find, and has to be a directory: leave it out with \
             --exclude /lost+found",
        ))
    }

    /// Plans to make what the source has at a path, with all that is below it, in the stage, and
    /// to move it to its place.
    fn make(&mut self, path: &Path, old: Old, rules: Rules, problems: &mut Problems) -> Outcome {
        let to = self.to(path);
        let number = self.steps.moves.len().to_string();
        let from = self.steps.workshop(self.stage, rules).join(number);
        let (mark, noted) = (self.steps.staged.mark(), problems.count());
        let mut is_dir = None;
        let mut waiting = vec![(path.to_owned(), from.clone(), None)];
        while let Some((path, at, parent)) = waiting.pop() {
            let file = match self.source.file(&path) {
                Ok(Some(file)) => file,
                Ok(None) => {
                    say(format_args!(
                        "note: {} is an image in use and was left out",
                        Escaped::path(&path)
                    ));
                    continue;
                }
                Err(failure) => {
                    problems.note(failure);
                    continue;
                }
            };
            if file.is_encrypted() {
                problems.note(self.refused(
                    &self.to(&path),
                    "is encrypted in SRC, and its key stays there: leave it out with --exclude",
                ));
                continue;
            }
            if let Some(number) = file.directory_number()
                && !self.entered.insert(number)
            {
                problems.note(self.refused(
                    &self.to(&path),
                    "is a directory that has a second place in SRC, whose file system is corrupt",
                ));
                continue;
            }
            let kind = file.kind();
            is_dir = is_dir.or(Some(kind == FileType::Directory));
            let number = file.add(&mut self.steps.staged, at.clone(), parent);
            if kind != FileType::Directory {
                continue;
            }
            let names = match self.source.names(&path) {
                Ok(names) => names,
                Err(failure) => {
                    problems.note(failure);
                    continue;
                }
            };
            for name in names.into_iter().rev() {
                let below = path.join(&name);
                // What is no directory is excluded as that; one is when it is come to.
                if self.is_excluded(&below) {
                    continue;
                }
                waiting.push((below, at.join(&name), number));
            }
        }
        if old != Old::Nothing && problems.count() > noted {
            self.steps.staged.rewind(&mark, &from);
            let to = Escaped::path(&to);
            say(format_args!(
                "{to} stays, since what SRC has there is not complete"
            ));
            return Ok(());
        }
        if let Some(is_dir) = is_dir {
            self.steps.moves.push(Move {
                from,
                to,
                is_dir,
                old,
            });
        }
        Ok(())
    }

    /// Whether a path below what is new is left out.
    fn is_excluded(&self, path: &Path) -> bool {
        if self.excludes.is_empty() {
            return false;
        }
        let file = self.source.file(path).ok().flatten();
        let is_dir = file.is_some_and(|file| file.kind() == FileType::Directory);
        is_excluded(
            self.excludes,
            path.strip_prefix("/").unwrap_or(path),
            is_dir,
        )
    }

    /// The plan, once it is complete.
    pub(super) fn finish(mut self) -> Outcome<Planned> {
        let has_work = !self.steps.is_empty() || !self.touched.is_empty();
        if has_work || !self.described.is_empty() {
            // The stage is made in it.
            let root = self.stage.parent().unwrap_or(Path::new("/")).to_owned();
            if self.dest.path == root {
                self.touched.insert(root);
            }
        }
        for dir in std::mem::take(&mut self.touched) {
            if let Ok(below) = dir.strip_prefix(&self.dest.path) {
                let path = Path::new("/").join(below);
                self.described.insert(path, FileType::Directory);
            }
        }
        // Directories before what is below them, as the order of paths is.
        let mut files = Plan::of_trees();
        for (path, kind) in &self.described {
            let Some(file) = self.source.file(path)? else {
                continue;
            };
            if file.kind() != *kind {
                return Err(self.refused(&self.to(path), "became something else meanwhile in SRC"));
            }
            let to = self.to(path);
            file.add(&mut files, to, None);
        }
        self.steps.described.dirs.append(&mut files.dirs);
        self.steps.described.dirs.append(&mut files.files);
        self.fit()?;
        Ok(Planned {
            steps: self.steps,
            flags: self.flags,
        })
    }

    /// Refuses what there is no room for, as far as that can be told.
    fn fit(&self) -> Outcome {
        let failed = |e: extant::Error| self.dest.failure(&e);
        let block = room::block_size(self.fs).map_err(failed)?;
        let staged = &self.steps.staged;
        let blocks = staged.bytes.div_ceil(block.max(1)) + staged.dirs.len() as u64;
        self.steps
            .fit_blocks(self.fs, self.dest, blocks, "SRC brings")
    }

    /// Refuses to change what a flag of `chattr` protects.
    fn refuse_fixed(&self, path: &Path, found: &Metadata) -> Outcome {
        let flags = FileFlags::from_bits_retain(found.flags());
        if !flags.intersects(FileFlags::IMMUTABLE | FileFlags::APPEND) {
            return Ok(());
        }
        Err(self.refused(
            path,
            "may not be changed, as its flags say: take these away with `extant chattr -ia`",
        ))
    }

    /// Refuses directories in which no name can be changed.
    fn refuse_closed(&self, dir: &Path, found: &Metadata) -> Outcome {
        self.refuse_fixed(dir, found)?;
        match why_closed(self.fs, found) {
            Some(why) => Err(self.refused(dir, why)),
            None => Ok(()),
        }
    }

    /// As [`refuse_fixed`](Self::refuse_fixed), of everything that goes with a directory.
    fn refuse_fixed_below(&self, path: &Path) -> Outcome {
        for entry in self.fs.walk(path).map_err(|e| self.dest.failure(&e))? {
            let entry = entry.map_err(|e| self.dest.failure(&e))?;
            self.refuse_fixed(entry.path(), &entry.metadata())?;
        }
        Ok(())
    }

    fn refused(&self, path: &Path, problem: &str) -> Failure {
        Failure::new(format!(
            "{}:{} {problem}",
            shown(&self.dest.image),
            Escaped::path(path)
        ))
    }
}

/// Whether a difference is one of the file itself, so that another one takes its place.
fn is_of_the_file(what: &What) -> bool {
    matches!(
        what,
        What::Content { .. }
            | What::Target(..)
            | What::Device(..)
            | What::Link(..)
            | What::Kind(..)
            | What::OnlyIn(..)
    )
}

impl Planned {
    /// Gives files flags and projects, as files of an image have them: some forbid every other
    /// change, so they come last.
    pub(super) fn set_flags(&self, placing: &Placing<'_>, problems: &mut Problems) {
        // Where another project is handed down, having none is to be set as well.
        let workshops = &self.steps.workshops;
        let sets_none = workshops.iter().any(|one| one.rules.give_a_project());
        let staged = self
            .steps
            .staged
            .dirs
            .iter()
            .chain(&self.steps.staged.files);
        for node in staged {
            let Some(found) = node.metadata() else {
                continue;
            };
            let Some(to) = placing.final_place(&self.steps, node.place()) else {
                continue;
            };
            let kind = found.file_type();
            let flags = FileFlags::from_bits_retain(found.flags()) & changeable(kind);
            let flags = flags & !FileFlags::EXTENTS;
            let project = found.project();
            let project = project.filter(|project| *project != 0 || sets_none);
            if kind != FileType::Symlink {
                self.set(placing, &to, flags, FileFlags::empty(), project, problems);
            }
        }
        for (path, set, clear, project) in &self.flags {
            self.set(placing, path, *set, *clear, *project, problems);
        }
    }

    fn set(
        &self,
        placing: &Placing<'_>,
        path: &Path,
        set: FileFlags,
        clear: FileFlags,
        project: Option<u32>,
        problems: &mut Problems,
    ) {
        let mut done = match project {
            Some(project) => placing.fs.set_project(path, project),
            None => Ok(()),
        };
        if done.is_ok() && !(set | clear).is_empty() {
            done = placing.fs.set_flags(path, set, clear);
        }
        if let Err(e) = done {
            problems.note(placing.image.failure(&e));
        }
    }
}
