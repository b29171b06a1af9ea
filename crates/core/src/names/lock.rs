//! One name, or two, held still.

use super::Names;
use super::cache::{GROUP, is_kept};
use extant_format::Ino;
use extant_sync::MutexGuard;
use std::ops::Deref;

/// A name that is locked: nobody else changes what it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockedName<'a> {
    dir: Ino,
    name: &'a [u8],
    /// What it stands for may be kept under its bytes.
    is_kept: bool,
}

/// A name that is to be locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming<'a, 'f> {
    pub(super) dir: Ino,
    pub(super) name: &'a [u8],
    /// What all names have in common that the directory does not tell apart, if there are others:
    /// the lock is that of all.
    pub(super) folded: Option<&'f [u8]>,
}

impl<'a> LockedName<'a> {
    /// Returns the directory.
    pub(crate) fn dir(&self) -> Ino {
        self.dir
    }

    /// Returns the name in it.
    pub(crate) fn name(&self) -> &'a [u8] {
        self.name
    }

    /// Tells whether what it stands for may be kept.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }
}

/// The lock of one name.
#[derive(Debug)]
#[must_use]
pub(crate) struct NameLock<'a> {
    name: LockedName<'a>,
    _guard: Option<MutexGuard<'a, ()>>,
}

impl<'a> Deref for NameLock<'a> {
    type Target = LockedName<'a>;

    fn deref(&self) -> &LockedName<'a> {
        &self.name
    }
}

/// The locks of two names, which may be the same.
#[derive(Debug)]
#[must_use]
pub(crate) struct NameLocks<'a> {
    first: LockedName<'a>,
    second: LockedName<'a>,
    _guards: (Option<MutexGuard<'a, ()>>, Option<MutexGuard<'a, ()>>),
}

impl<'a> NameLocks<'a> {
    /// Returns the name that was given first.
    pub(crate) fn first(&self) -> &LockedName<'a> {
        &self.first
    }

    /// Returns the name that was given second.
    pub(crate) fn second(&self) -> &LockedName<'a> {
        &self.second
    }
}

impl<'a> Naming<'a, '_> {
    /// One of a directory that tells all names apart.
    #[cfg(test)]
    pub(super) fn of(dir: Ino, name: &'a [u8]) -> Self {
        Self {
            dir,
            name,
            folded: None,
        }
    }

    fn locked(self) -> LockedName<'a> {
        LockedName {
            dir: self.dir,
            name: self.name,
            is_kept: self.folded.is_none() && is_kept(self.name),
        }
    }
}

impl Names {
    /// Locks a name; waits for its holder. Two names may share a lock, so a caller that needs two
    /// takes them through [`Names::lock_two`].
    pub(super) fn lock<'a>(&'a self, naming: Naming<'a, '_>) -> NameLock<'a> {
        NameLock {
            name: naming.locked(),
            _guard: self.lock_stripe(self.stripe_of(naming)),
        }
    }

    fn stripe_of(&self, naming: Naming<'_, '_>) -> usize {
        self.stripe(naming.dir, naming.folded.unwrap_or(naming.name))
    }

    /// Locks two names, each of a directory.
    pub(super) fn lock_two<'a>(
        &'a self,
        first: Naming<'a, '_>,
        second: Naming<'a, '_>,
    ) -> NameLocks<'a> {
        let a = self.stripe_of(first);
        let b = self.stripe_of(second);
        let lower = self.lock_stripe(a.min(b));
        let upper = if a == b {
            None
        } else {
            self.lock_stripe(a.max(b))
        };
        NameLocks {
            first: first.locked(),
            second: second.locked(),
            _guards: (lower, upper),
        }
    }

    /// Returns the lock of this number; there always is one.
    fn lock_stripe(&self, stripe: usize) -> Option<MutexGuard<'_, ()>> {
        let lock = self.stripes.get(stripe / GROUP)?.0.get(stripe % GROUP)?;
        Some(lock.lock_ascending(stripe as u64))
    }
}
