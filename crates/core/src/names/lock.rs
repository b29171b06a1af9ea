//! One name, or two, held still.

use super::Names;
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
        let lock = self.stripes.get(stripe)?;
        Some(lock.lock_ascending(stripe as u64))
    }

    /// Which lock a name has.
    fn stripe(&self, dir: Ino, name: &[u8]) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = u64::from(dir.get()).wrapping_mul(ODD);
        for chunk in name.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(ODD);
            hash ^= hash >> 29;
        }
        (hash >> 32) as usize % self.stripes.len().max(1)
    }
}
