//! Removing a directory with everything in it.
//!
//! # Invariants
//!
//! - What is entered is held, and names are removed in directories that are held: however names are exchanged
//!   meanwhile, nothing is removed that did not lie below the directory.
//! - Depth is on the heap, as a hostile image may have a great deal of it.

use crate::filesystem::bytes;
use crate::path::resolve_parent;
use crate::read_dir::{Listing, join};
use crate::walk::MAX_DEPTH;
use crate::{Cause, Error, Filesystem, Result};
use extant_core::Error as EngineError;
use extant_core::inode::Held;
use extant_core::ops::{self, Acting, OpenFor};
use std::path::{Path, PathBuf};

impl Filesystem {
    /// Removes a directory and everything in it. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// When there is no such directory, or something in it cannot be removed, also because it has just been put there;
    /// what had been removed by then is gone.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let found = resolve_parent(self.by(), bytes(path), false)
            .and_then(|last| Ok((last.hold_dir(self.fs())?, last.name)));
        let (parent, name) = found.map_err(|e| Error::engine(path, e))?;
        let mut removal = Removal {
            by: self.by(),
            parent,
            levels: Vec::new(),
        };
        let removed = removal.enter(&name).and_then(|()| removal.run());
        removed.map_err(|cause| Error::new(removal.place(path), cause))
    }
}

struct Removal<'f> {
    by: Acting<'f>,
    /// Where the directory lies.
    parent: Held,
    /// Directories that are being emptied, outermost first.
    levels: Vec<Level>,
}

struct Level {
    dir: Held,
    /// Its name in the one before.
    name: Vec<u8>,
    listing: Listing,
    next: usize,
}

impl Removal<'_> {
    /// Begins to empty the directory of this name in the last one.
    fn enter(&mut self, name: &[u8]) -> Result<(), Cause> {
        // In a damaged file system a directory may lie within itself.
        if self.levels.len() >= MAX_DEPTH {
            return Err(Cause::TooDeep);
        }
        if matches!(name, b"." | b"..") {
            return Err(Cause::BadName);
        }
        let dir = ops::lookup_held(self.by, self.last(), name)?;
        if !dir.snapshot().is_dir() {
            return Err(EngineError::NotADirectory.into());
        }
        ops::open(self.by, &dir, OpenFor::reading())?;
        let (listing, read) = Listing::read(self.by.fs(), &dir.snapshot());
        read?;
        self.levels.push(Level {
            dir,
            name: name.to_vec(),
            listing,
            next: 0,
        });
        Ok(())
    }

    fn last(&self) -> &Held {
        self.levels.last().map_or(&self.parent, |level| &level.dir)
    }

    fn run(&mut self) -> Result<(), Cause> {
        while let Some(level) = self.levels.last_mut() {
            if let Some((name, _)) = level.listing.get(level.next) {
                let name = name.to_vec();
                match ops::unlink(self.by, &level.dir, &name) {
                    Err(EngineError::IsADirectory) => self.enter(&name)?,
                    removed => {
                        removed?;
                        level.next += 1;
                    }
                }
            } else if let Some(emptied) = self.levels.pop() {
                ops::rmdir(self.by, self.last(), &emptied.name)?;
                if let Some(above) = self.levels.last_mut() {
                    above.next += 1;
                }
            }
        }
        Ok(())
    }

    /// Where it is, below `path`: at the name that comes next.
    fn place(&self, path: &Path) -> PathBuf {
        let below = self.levels.get(1..).unwrap_or_default();
        let mut place = path.to_owned();
        for level in below {
            place = join(&place, &level.name);
        }
        let next = self.levels.last();
        match next.and_then(|level| level.listing.get(level.next)) {
            Some((name, _)) => join(&place, name),
            None => place,
        }
    }
}
