//! From a name to an inode, through the cache.

use super::cache::is_kept;
use super::{LockedName, NameLock, NameLocks, Names};
use crate::fs::Fs;
use crate::inode::{Held, Inode, InodeId};
use crate::{Error, Result, dir};
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
    /// As for [`dir::lookup`]; those of reading the inode.
    pub(crate) fn lookup_name(&self, dir: &Held, name: &[u8]) -> Result<Option<InodeId>> {
        if let Some(known) = self.names.get(dir.ino(), name) {
            return Ok(known);
        }
        if !is_kept(name) {
            let found = dir::find(self, dir, name)?;
            return found
                .map(|found| self.with_inode(found.ino, Inode::id))
                .transpose();
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
    /// As for [`Fs::lookup_name`].
    pub(crate) fn lookup_locked(
        &self,
        dir: &Held,
        name: &LockedName<'_>,
    ) -> Result<Option<InodeId>> {
        debug_assert_eq!(dir.ino(), name.dir(), "another directory's name is locked");
        if let Some(known) = self.names.get(dir.ino(), name.name()) {
            return Ok(known);
        }
        // Asked after the look: what was there then, and is not any more, has been counted.
        if is_kept(name.name()) && dir.knows_all_names(self.names.losses(dir.ino())) {
            return Ok(None);
        }
        let Some(found) = dir::find(self, dir, name.name())? else {
            return Ok(None);
        };
        // The name keeps the inode alive while it is locked.
        let id = self.with_inode(found.ino, Inode::id)?;
        self.names.insert(name, id);
        Ok(Some(id))
    }

    /// Takes hold of the inode that `name` stands for in `dir`, or `None` if the directory does not
    /// have it. The caller holds no lock of a name.
    ///
    /// # Errors
    /// As for [`Fs::lookup_name`].
    pub(crate) fn hold_name(&self, dir: &Held, name: &[u8]) -> Result<Option<Held>> {
        let Some(id) = self.lookup_name(dir, name)? else {
            return Ok(None);
        };
        match self.hold_same(id) {
            Err(Error::Stale) => {}
            held => return held.map(Some),
        }
        // Removed or replaced since the look, or about to be: whoever does that holds the lock.
        let locked = self.lock_name(dir.ino(), name);
        let found = self.lookup_locked(dir, &locked)?;
        found.map(|id| self.hold_same(id)).transpose()
    }
}
