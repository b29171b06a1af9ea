//! Putting a new file in the place of an older one, of which it keeps all but the content.
//!
//! # Invariants
//!
//! - The older file is as it was until the new one is complete. Then each name of it stands for the
//!   new one, in one step a name.
//! - What the older file had besides content the new one has, and what it has not is told.

use crate::images::is_in_the_way;
use crate::path::{follow, look, look_at_link};
use extant::{Error, Escaped, FileFlags, FileType, Filesystem, Metadata, OpenOptions, Result};
use extant_core::ops;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Names tried beside a file that is to be replaced.
const NAMES_MAX: u32 = 1000;
/// What the names begin with under which files are made that are to replace others.
const ASIDE: &str = ".extant-new-";
/// What made a program of the older content powerful, which any change of content takes away.
const CAPABILITIES: &str = "security.capability";
const SET_IDS: u16 = 0o6000;

/// Why nothing can take the place of what is there.
pub(crate) enum Obstacle {
    /// What the image said.
    Image(Error),
    /// What is wrong with the place.
    Place(&'static str),
}

impl From<Error> for Obstacle {
    fn from(e: Error) -> Self {
        Self::Image(e)
    }
}

/// Takes what the new file lacks, as the end of a sentence that begins with "copied without", and
/// why.
pub(crate) type Note<'a> = &'a mut dyn FnMut(&str, &Error);

/// Makes something under a name of its own in the directory of `path`, where something else stands
/// that is no directory.
pub(crate) fn beside<T>(
    path: &Path,
    there: &Metadata,
    make: impl Fn(&Path) -> Result<T>,
) -> std::result::Result<(T, PathBuf), Obstacle> {
    if there.is_dir() {
        return Err(Obstacle::Place("a directory is in the way"));
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    // The number of what is replaced keeps threads out of each other's way.
    for number in 0..NAMES_MAX {
        let at = dir.join(format!("{ASIDE}{}-{number}", there.ino()));
        match make(&at) {
            Err(e) if is_in_the_way(&e) => {}
            made => return Ok((made?, at)),
        }
    }
    Err(Obstacle::Place(
        "no name is free beside it for the new file: remove what is called .extant-new-* there",
    ))
}

/// Whether something has a name that [`beside`] gives.
pub(crate) fn is_aside(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_bytes);
    name.is_some_and(|name| name.starts_with(ASIDE.as_bytes()))
}

/// The names of files, by their inode numbers.
type ByNumber = HashMap<u32, Vec<PathBuf>>;

/// The names of files that have several. They are looked for, all over the image, when they are
/// asked for first.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Option<ByNumber>>);

impl Names {
    fn lock(&self) -> MutexGuard<'_, Option<ByNumber>> {
        // A walk that was broken off has left nothing.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn all_names(fs: &Filesystem) -> Result<ByNumber> {
    let mut all = ByNumber::new();
    let mut walk = fs.walk("/")?;
    while let Some(entry) = walk.next() {
        // Names in what cannot be read are missed when those that were found are counted.
        let Ok(entry) = entry else { continue };
        if entry.check_name().is_err() {
            walk.skip_children();
            continue;
        }
        let found = entry.metadata();
        if found.is_file() && found.nlink() > 1 {
            let names = all.entry(found.ino()).or_default();
            names.push(entry.path().to_owned());
        }
    }
    Ok(all)
}

/// An older file that a new one is to replace.
pub(crate) struct Older<'a> {
    fs: &'a Filesystem,
    /// Where it is, by a path that does not end in a symbolic link.
    path: PathBuf,
    found: Metadata,
    /// Held if it has several names: they change together.
    names: Option<MutexGuard<'a, Option<ByNumber>>>,
}

impl<'a> Older<'a> {
    /// The file at `to`, or the one that a symbolic link there leads to, if its content may be
    /// changed; `None` if nothing is there.
    pub(crate) fn find(
        fs: &'a Filesystem,
        to: &Path,
        names: &'a Names,
    ) -> std::result::Result<Option<Self>, Obstacle> {
        let Some((path, found)) = Self::look(fs, to)? else {
            return Ok(None);
        };
        let (path, found, names) = if found.nlink() > 1 {
            let names = names.lock();
            // Another thread may have replaced it under this name meanwhile.
            let Some((path, found)) = Self::look(fs, to)? else {
                return Ok(None);
            };
            (path, found, Some(names))
        } else {
            (path, found, None)
        };
        // Says what forbids to change it before anything is made.
        OpenOptions::new().write(true).open(fs, &path)?;
        Ok(Some(Self {
            fs,
            path,
            found,
            names,
        }))
    }

    fn look(
        fs: &Filesystem,
        to: &Path,
    ) -> std::result::Result<Option<(PathBuf, Metadata)>, Obstacle> {
        let Some(there) = look_at_link(fs, to)? else {
            return Ok(None);
        };
        let (path, found) = if there.is_symlink() {
            let led_to = look(fs, to)?.ok_or(Obstacle::Place(
                "a symbolic link that leads nowhere is in the way: remove it first with `extant rm`",
            ))?;
            (follow(fs, to)?, led_to)
        } else {
            (to.to_owned(), there)
        };
        match found.file_type() {
            FileType::Regular => Ok(Some((path, found))),
            FileType::Directory => Err(Obstacle::Place("a directory is in the way")),
            _ => Err(Obstacle::Place(
                "a device, a pipe or a socket is in the way, and in an image nothing is written to \
                 one: remove it first with `extant rm`",
            )),
        }
    }

    /// What is known of it.
    pub(crate) const fn metadata(&self) -> &Metadata {
        &self.found
    }

    /// Makes the new file under a name of its own beside it.
    pub(crate) fn beside<T>(
        &self,
        make: impl Fn(&Path) -> Result<T>,
    ) -> std::result::Result<(T, PathBuf), Obstacle> {
        beside(&self.path, &self.found, make)
    }

    /// Gives the new file at `at` what the older one has besides content.
    pub(crate) fn give(&self, at: &Path, note: Note<'_>) {
        let fs = self.fs;
        let mut permissions = self.found.mode().permissions();
        if let Err(e) = fs.set_owner(at, Some(self.found.uid()), Some(self.found.gid())) {
            // The owner's powers are not for the owner that the file gets instead.
            permissions &= !SET_IDS;
            note("its owner", &e);
        }
        if let Err(e) = self.give_xattrs(at, note) {
            note("its extended attributes", &e);
        }
        if let Err(e) = fs.set_permissions(at, permissions) {
            note("its mode", &e);
        }
        if let Err(e) = self.give_flags(at) {
            note("its flags", &e);
        }
    }

    fn give_xattrs(&self, at: &Path, note: Note<'_>) -> Result<()> {
        let fs = self.fs;
        let mut wanted = fs.xattrs(&self.path)?;
        wanted.retain(|(name, _)| name != CAPABILITIES);
        // A directory hands down lists.
        for name in fs.list_xattrs(at)? {
            if wanted.iter().all(|(wanted, _)| *wanted != name) {
                fs.remove_xattr(at, name)?;
            }
        }
        for (name, value) in wanted {
            if let Err(e) = fs.set_xattr(at, &name, value) {
                note(&format!("its attribute {}", Escaped(name.as_bytes())), &e);
            }
        }
        Ok(())
    }

    /// Flags of `chattr`, and the project.
    fn give_flags(&self, at: &Path) -> Result<()> {
        let new = self.fs.symlink_metadata(at)?;
        let flags = |found: &Metadata| {
            let mine = ops::changeable(FileType::Regular) & !FileFlags::EXTENTS;
            FileFlags::from_bits_retain(found.flags()) & mine
        };
        let (had, has) = (flags(&self.found), flags(&new));
        if had != has {
            self.fs.set_flags(at, had & !has, has & !had)?;
        }
        match self.found.project() {
            Some(project) if new.project() != Some(project) => self.fs.set_project(at, project),
            _ => Ok(()),
        }
    }

    /// Has all names of the older file stand for the new one at `at`, in one step each; that by
    /// which it was found is the last. Returns what is to be said of names that are not found, as
    /// they lie in what cannot be read: the end of a sentence that begins with "copied without".
    pub(crate) fn replace(mut self, at: &Path, note: Note<'_>) -> Result<Option<String>> {
        let fs = self.fs;
        let old = self.found.ino();
        let mut names = Vec::new();
        let mut known = 0;
        if let Some(held) = &mut self.names {
            if held.is_none() {
                **held = Some(all_names(fs)?);
            }
            let all = held.get_or_insert_default();
            names = all.remove(&old).unwrap_or_default();
            let new = fs.symlink_metadata(at)?.ino();
            all.insert(new, names.clone());
        }
        for name in names.iter().filter(|name| **name != self.path) {
            let there = look_at_link(fs, name)?;
            if there.is_none_or(|there| there.ino() != old) {
                continue;
            }
            if let Err(e) = self.replace_name(at, name) {
                let name = Escaped::path(name);
                note(&format!("its name {name}, which has the older content"), &e);
            }
            known += 1;
        }
        fs.rename(at, &self.path)?;
        // It was there already, as the same file by another path.
        if !names.is_empty() && look_at_link(fs, at)?.is_some() {
            fs.remove_file(at)?;
        } else {
            known += 1;
        }
        let hidden = self.found.nlink().saturating_sub(known);
        Ok((hidden > 0).then(|| {
            format!(
                "{hidden} of its {} names, not found, where the older content stays (`extant check` \
                 tells more)",
                self.found.nlink()
            )
        }))
    }

    fn replace_name(&self, at: &Path, name: &Path) -> Result<()> {
        let linked = beside(name, &self.found, |aside| self.fs.hard_link(at, aside));
        let aside = match linked {
            Ok(((), aside)) => aside,
            Err(Obstacle::Image(e)) => return Err(e),
            // The error of the last name tried.
            Err(Obstacle::Place(_)) => return self.fs.hard_link(at, name),
        };
        self.fs.rename(&aside, name).inspect_err(|_| {
            // The failure of renaming is what matters.
            let _ = self.fs.remove_file(&aside);
        })
    }
}
