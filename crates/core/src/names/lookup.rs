//! From a name to an inode, through the cache.

use super::cache::is_kept;
use super::lock::Naming;
use super::{LockedName, NameLock, NameLocks, Names};
use crate::fs::Fs;
use crate::inode::{Held, InodeId};
use crate::{Error, Result, dir};
use extant_format::dir::fold_name;
use extant_format::features::Incompat;
use extant_sync::pin;

impl Fs {
    /// Returns what is known about names.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Locks a name of a directory: what it stands for stays, until the lock is dropped. A thread
    /// that changes it tells [`Fs::names`] before that.
    pub(crate) fn lock_name<'a>(&'a self, dir: &Held, name: &'a [u8]) -> NameLock<'a> {
        let folded = self.folded(dir, name);
        self.names.lock(naming(dir, name, folded.as_deref()))
    }

    /// Locks two names, in whichever order is safe.
    pub(crate) fn lock_names<'a>(
        &'a self,
        first: (&Held, &'a [u8]),
        second: (&Held, &'a [u8]),
    ) -> NameLocks<'a> {
        let folded = [first, second].map(|(dir, name)| self.folded(dir, name));
        let [a, b] = &folded;
        self.names.lock_two(
            naming(first.0, first.1, a.as_deref()),
            naming(second.0, second.1, b.as_deref()),
        )
    }

    /// Tells whether the directory takes names that differ in case for the same. What they stand
    /// for is not kept.
    #[inline]
    pub(crate) fn folds_names(&self, dir: &Held) -> bool {
        self.superblock().has_incompat(Incompat::CASEFOLD) && dir.image(&pin()).is_casefolded()
    }

    /// Returns what a name has in common with all that the directory takes for the same, if there
    /// may be others.
    fn folded(&self, dir: &Held, name: &[u8]) -> Option<Vec<u8>> {
        self.folds_names(dir)
            .then(|| fold_name(name).unwrap_or_else(|| name.to_vec()))
    }

    /// Returns the inode that `name` stands for in `dir`, or `None` if the directory does not have
    /// it. Without any lock, if that is known.
    ///
    /// The caller holds no lock of a name.
    ///
    /// # Errors
    /// As for [`dir::lookup`]; those of reading the inode.
    pub(crate) fn lookup_name(&self, dir: &Held, name: &[u8]) -> Result<Option<InodeId>> {
        let folds = self.folds_names(dir);
        if !folds && let Some(known) = self.names.get(dir.ino(), name) {
            return Ok(known);
        }
        if !is_kept(name) {
            let found = dir::find(self, dir, name)?;
            return found.map(|found| self.named_id(found.ino)).transpose();
        }
        let locked = self.lock_name(dir, name);
        let found = self.lookup_locked(dir, &locked)?;
        if found.is_none() {
            self.names.insert_absent(&locked);
        }
        Ok(found)
    }

    /// Looks a name up that the caller has locked, and may be about to change.
    ///
    /// # Errors
    /// As for [`Fs::lookup_name`].
    pub(crate) fn lookup_locked(
        &self,
        dir: &Held,
        name: &LockedName<'_>,
    ) -> Result<Option<InodeId>> {
        debug_assert_eq!(dir.ino(), name.dir(), "another directory's name is locked");
        let folds = self.folds_names(dir);
        if !folds && let Some(known) = self.names.get(dir.ino(), name.name()) {
            return Ok(known);
        }
        // Asked after the look: what was there then, and is not any more, has been counted.
        if !folds && is_kept(name.name()) && dir.knows_all_names(self.names.evictions(dir.ino())) {
            return Ok(None);
        }
        let Some(found) = dir::find(self, dir, name.name())? else {
            return Ok(None);
        };
        // The name keeps the inode alive while it is locked.
        let id = self.named_id(found.ino)?;
        self.names.insert(name, id);
        Ok(Some(id))
    }

    /// Takes hold of the inode that `name` stands for in `dir`, or `None` if the directory does not
    /// have it. The caller holds no lock of a name.
    ///
    /// # Errors
    /// As for [`Fs::lookup_name`].
    pub(crate) fn hold_name(&self, dir: &Held, name: &[u8]) -> Result<Option<Held>> {
        if let Some(held) = self.hold_known(dir, name) {
            return Ok(Some(held));
        }
        let Some(id) = self.lookup_name(dir, name)? else {
            return Ok(None);
        };
        match self.hold_same(id) {
            Err(Error::Stale) => {}
            held => return held.map(Some),
        }
        // Removed or replaced since the look, or about to be: the lock is held for that.
        let locked = self.lock_name(dir, name);
        let found = self.lookup_locked(dir, &locked)?;
        found.map(|id| self.hold_same(id)).transpose()
    }

    /// Holds the inode of a name if both are in memory, and it is certain that the inode has names.
    fn hold_known(&self, dir: &Held, name: &[u8]) -> Option<Held> {
        if self.folds_names(dir) {
            return None;
        }
        let guard = pin();
        let id = self.names.get_under(dir.ino(), name, &guard)??;
        let held = self.hold_in_memory(id.ino)?;
        let image = held.image(&guard);
        (image.id() == id && image.disk().links > 0).then_some(held)
    }
}

fn naming<'a, 'f>(dir: &Held, name: &'a [u8], folded: Option<&'f [u8]>) -> Naming<'a, 'f> {
    Naming {
        dir: dir.ino(),
        name,
        folded,
    }
}
