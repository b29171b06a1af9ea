//! One name, or two, held still.

use super::Names;
use super::cache::GROUP;
use extant_format::Ino;
use extant_sync::MutexGuard;
use std::ops::Deref;

/// A name that is locked: nobody else changes what it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockedName<'a> {
    dir: Ino,
    name: &'a [u8],
}

impl<'a> LockedName<'a> {
    /// The directory.
    pub(crate) fn dir(&self) -> Ino {
        self.dir
    }

    /// The name in it.
    pub(crate) fn name(&self) -> &'a [u8] {
        self.name
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
    /// The name that was given first.
    pub(crate) fn first(&self) -> &LockedName<'a> {
        &self.first
    }

    /// The name that was given second.
    pub(crate) fn second(&self) -> &LockedName<'a> {
        &self.second
    }
}

impl Names {
    /// Locks a name; waits for who has it. Two names may share a lock, so whoever needs two takes them
    /// through [`Names::lock_two`].
    pub(crate) fn lock<'a>(&'a self, dir: Ino, name: &'a [u8]) -> NameLock<'a> {
        let stripe = self.stripe(dir, name);
        NameLock {
            name: LockedName { dir, name },
            _guard: self.lock_stripe(stripe),
        }
    }

    /// Locks two names, each of a directory.
    pub(crate) fn lock_two<'a>(
        &'a self,
        first: (Ino, &'a [u8]),
        second: (Ino, &'a [u8]),
    ) -> NameLocks<'a> {
        let a = self.stripe(first.0, first.1);
        let b = self.stripe(second.0, second.1);
        let lower = self.lock_stripe(a.min(b));
        let upper = match a == b {
            true => None,
            false => self.lock_stripe(a.max(b)),
        };
        let locked = |(dir, name)| LockedName { dir, name };
        NameLocks {
            first: locked(first),
            second: locked(second),
            _guards: (lower, upper),
        }
    }

    /// The lock of this number; there always is one.
    fn lock_stripe(&self, stripe: usize) -> Option<MutexGuard<'_, ()>> {
        let lock = self.stripes.get(stripe / GROUP)?.0.get(stripe % GROUP)?;
        Some(lock.lock_ascending(stripe as u64))
    }
}
