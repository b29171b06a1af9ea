//! From a name to an inode number, through the cache.

use super::cache::is_kept;
use super::{LockedName, NameLock, NameLocks, Names};
use crate::fs::Fs;
use crate::inode::Held;
use crate::{Result, dir};
use extant_format::Ino;

impl Fs {
    /// What is known about names.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Locks a name of a directory: what it stands for stays, until the lock is dropped. Whoever
    /// changes it tells [`Fs::names`] before that.
    pub(crate) fn lock_name<'a>(&'a self, dir: Ino, name: &'a [u8]) -> NameLock<'a> {
        self.names.lock(dir, name)
    }

    /// Locks two names, in whichever order is safe.
    pub(crate) fn lock_names<'a>(
        &'a self,
        first: (Ino, &'a [u8]),
        second: (Ino, &'a [u8]),
    ) -> NameLocks<'a> {
        self.names.lock_two(first, second)
    }

    /// The inode that `name` stands for in `dir`, or `None` if the directory does not have it. Without
    /// any lock, if that is known.
    ///
    /// The caller holds no lock of a name.
    ///
    /// # Errors
    /// As for [`dir::lookup`].
    pub(crate) fn lookup_name(&self, dir: &Held, name: &[u8]) -> Result<Option<Ino>> {
        if let Some(known) = self.names.get(dir.ino(), name) {
            return Ok(known);
        }
        if !is_kept(name) {
            return Ok(dir::find(self, dir, name)?.map(|found| found.ino));
        }
        let locked = self.lock_name(dir.ino(), name);
        let found = self.lookup_locked(dir, &locked)?;
        if found.is_none() {
            self.names.insert_absent(&locked);
        }
        Ok(found)
    }

    /// The same for whoever has locked the name, and may be about to change it.
    ///
    /// # Errors
    /// As for [`dir::lookup`].
    pub(crate) fn lookup_locked(&self, dir: &Held, name: &LockedName<'_>) -> Result<Option<Ino>> {
        debug_assert_eq!(dir.ino(), name.dir(), "another directory's name is locked");
        if let Some(known) = self.names.get(dir.ino(), name.name()) {
            return Ok(known);
        }
        let found = dir::find(self, dir, name.name())?.map(|found| found.ino);
        if let Some(ino) = found {
            self.names.insert(name, ino);
        }
        Ok(found)
    }
}
