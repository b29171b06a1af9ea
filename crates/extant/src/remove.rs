//! Removing a directory with everything in it.
//!
//! # Invariants
//!
//! - What is entered is held, and names are removed in directories that are held: however names are
//!   exchanged meanwhile, nothing is removed that did not lie below the directory.
//! - Depth is on the heap, as a hostile image may have a great deal of it.

use crate::error::Why;
use crate::filesystem::bytes;
use crate::path::{Purpose, resolve_parent};
use crate::read_dir::Listing;
use crate::{Cause, Error, Filesystem, Result};
use extant_core::Error as EngineError;
use extant_core::inode::Held;
use extant_core::ops::{self, OpContext, OpenFor};
use extant_format::Ino;
use std::collections::HashSet;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

impl Filesystem {
    /// Removes a directory and everything in it. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// When there is no such directory, or something in it cannot be removed, also because it has
    /// just been put there; what had been removed by then is gone.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut first = Ok(());
        self.remove_dir_all_with(path, |problem| {
            first = Err(problem);
            ControlFlow::Break(())
        })?;
        first
    }

    /// Removes a directory and everything in it, as far as that is possible. Symbolic links are
    /// removed, not followed. What cannot be removed is given to `problem`, which says whether to
    /// go on with the rest; the directories above it stay, and are not named as well.
    ///
    /// # Errors
    /// When there is no such directory.
    pub fn remove_dir_all_with(
        &self,
        path: impl AsRef<Path>,
        mut problem: impl FnMut(Error) -> ControlFlow<()>,
    ) -> Result<()> {
        let path = path.as_ref();
        let find = || -> std::result::Result<_, Why> {
            let last = resolve_parent(self.by(), bytes(path), false)?.last(Purpose::RemoveDir)?;
            Ok((last.hold_dir(self.fs())?, last.name))
        };
        let (parent, name) = find().map_err(|why| Error::new(path, why.0))?;
        let mut removal = Removal {
            by: self.by(),
            parent,
            levels: Vec::new(),
            entered: HashSet::new(),
        };
        removal
            .enter(&name)
            .map_err(|why| Error::new(path, why.0))?;
        while !removal.levels.is_empty() {
            if let Err(why) = removal.step() {
                let said = problem(Error::new(removal.place(path), why.0));
                if said.is_break() {
                    break;
                }
                removal.pass();
            }
        }
        Ok(())
    }
}

struct Removal<'f> {
    by: OpContext<'f>,
    /// Where the directory lies.
    parent: Held,
    /// Directories that are being emptied, outermost first.
    levels: Vec<Level>,
    /// Their numbers: in a damaged file system a directory may lie within itself.
    entered: HashSet<Ino>,
}

struct Level {
    dir: Held,
    /// Its name in the one before.
    name: Vec<u8>,
    listing: Listing,
    next: usize,
    /// Whether something in it stays.
    keeps_something: bool,
}

impl Removal<'_> {
    /// Begins to empty the directory of this name in the last one.
    fn enter(&mut self, name: &[u8]) -> Result<(), Why> {
        if matches!(name, b"." | b"..") {
            return Err(Cause::BadName.into());
        }
        let dir = ops::lookup_held(self.by, self.last(), name)?;
        let found = dir.snapshot();
        if !found.is_dir() {
            return Err(EngineError::NotADirectory.into());
        }
        if self.entered.contains(&found.ino()) {
            return Err(Cause::DirectoryTwice.into());
        }
        ops::open(self.by, &dir, OpenFor::reading())?;
        let (listing, read) = Listing::read(self.by.fs(), &found);
        read?;
        self.entered.insert(found.ino());
        self.levels.push(Level {
            dir,
            name: name.to_vec(),
            listing,
            next: 0,
            keeps_something: false,
        });
        Ok(())
    }

    fn last(&self) -> &Held {
        self.levels.last().map_or(&self.parent, |level| &level.dir)
    }

    /// Removes the next name, or enters the directory that has it, or removes the last directory
    /// once it is empty.
    fn step(&mut self) -> Result<(), Why> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        if let Some((name, _)) = level.listing.get(level.next) {
            let name = name.to_vec();
            return match ops::unlink(self.by, &level.dir, &name) {
                Err(EngineError::IsADirectory) => self.enter(&name),
                removed => {
                    removed?;
                    level.next += 1;
                    Ok(())
                }
            };
        }
        if level.keeps_something {
            self.leave(true);
            return Ok(());
        }
        let above = self.levels.len().checked_sub(2);
        let above = above.and_then(|index| self.levels.get(index));
        let parent = above.map_or(&self.parent, |level| &level.dir);
        if let Some(level) = self.levels.last() {
            ops::rmdir(self.by, parent, &level.name)?;
        }
        self.leave(false);
        Ok(())
    }

    /// Leaves the last directory.
    fn leave(&mut self, it_stays: bool) {
        let Some(left) = self.levels.pop() else {
            return;
        };
        self.entered.remove(&left.dir.snapshot().ino());
        if let Some(above) = self.levels.last_mut() {
            above.next += 1;
            above.keeps_something |= it_stays;
        }
    }

    /// Goes on behind what could not be removed.
    fn pass(&mut self) {
        match self.levels.last_mut() {
            Some(level) if level.next < level.listing.len() => {
                level.next += 1;
                level.keeps_something = true;
            }
            _ => self.leave(true),
        }
    }

    /// Where it is, below `path`: at the name that comes next.
    fn place(&self, path: &Path) -> PathBuf {
        let mut place = path.as_os_str().as_bytes().to_vec();
        let below = self.levels.get(1..).unwrap_or_default();
        let names = below.iter().map(|level| &*level.name);
        let last = self.levels.last();
        let next = last.and_then(|level| level.listing.get(level.next));
        for name in names.chain(next.map(|(name, _)| name)) {
            if !place.ends_with(b"/") {
                place.push(b'/');
            }
            place.extend_from_slice(name);
        }
        PathBuf::from(OsString::from_vec(place))
    }
}
