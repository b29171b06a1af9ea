//! Locking several inodes for one operation.

use super::LiveInode;
use extant_format::Ino;
use extant_sync::{BiasedReadGuard, BiasedWriteGuard, thread};

/// Inodes that an operation locks, at the most.
const MOST: usize = 4;

/// How an operation needs an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Together with others: reads, writes inside a file, names coming and going in a directory.
    Shared,
    /// Alone: what changes the inode as a whole.
    Exclusive,
}

/// The `op` locks of the inodes an operation works on, taken in the one order in which all
/// operations take them.
///
/// Directories come first, ancestors before what is below them; then all others, ascending by
/// number. Which directory is an ancestor of another the caller knows, which holds `RenameTopology`
/// if it needs two that are not parent and child. An inode that is asked for twice is locked once,
/// for the stronger of the two.
///
/// # Finding out what to lock
///
/// An operation on a name learns which inode to lock by looking the name up, which it does without
/// locks; so it must look again under them, and start anew if the name means something else by
/// then:
///
/// 1. look the name up, take hold of the inode;
/// 2. lock the parent and the inode through this;
/// 3. lock the name, look it up again; if it is not that inode, unlock everything and go to 1.
///
/// So in step 2 the order may be one that was right in step 1 and is no longer: what was beside
/// another directory may be below it by now. That is why no thread that holds one of these locks
/// waits for another one: what is not free is waited for while none is held, and then, with it
/// held, the others are tried again.
#[derive(Debug)]
pub(crate) struct LockSet<'a> {
    _guards: [Option<Guard<'a>>; MOST],
}

#[derive(Debug)]
#[expect(dead_code, reason = "guards are there to be dropped")]
enum Guard<'a> {
    Shared(BiasedReadGuard<'a, ()>),
    Exclusive(BiasedWriteGuard<'a, ()>),
}

impl<'a> Guard<'a> {
    fn lock(inode: &'a LiveInode, access: Access) -> Self {
        match access {
            Access::Shared => Self::Shared(inode.op().read()),
            Access::Exclusive => Self::Exclusive(inode.op().write()),
        }
    }

    fn try_lock(inode: &'a LiveInode, access: Access) -> Option<Self> {
        match access {
            Access::Shared => inode.op().try_read().map(Self::Shared),
            Access::Exclusive => inode.op().try_write().map(Self::Exclusive),
        }
    }
}

/// An inode to lock, and how.
type Wanted<'a> = Option<(&'a LiveInode, Access)>;

impl<'a> LockSet<'a> {
    /// Locks `directories` in this order, then `others` ascending by number: two of each at the
    /// most.
    pub(crate) fn lock(
        directories: &[(&'a LiveInode, Access)],
        others: &[(&'a LiveInode, Access)],
    ) -> Self {
        debug_assert!(directories.len() + others.len() <= MOST, "a longer set");
        let mut wanted: [Wanted<'a>; MOST] = [None; MOST];
        let mut len = 0;
        let mut want = |inode: &'a LiveInode, access: Access| {
            let known = wanted.iter_mut().flatten();
            if let Some((_, known)) = known
                .into_iter()
                .find(|(known, _)| known.ino() == inode.ino())
            {
                *known = (*known).max(access);
            } else if let Some(place) = wanted.get_mut(len) {
                *place = Some((inode, access));
                len += 1;
            }
        };
        for &(inode, access) in directories {
            want(inode, access);
        }
        match others {
            [a, b] if a.0.ino() > b.0.ino() => {
                want(b.0, b.1);
                want(a.0, a.1);
            }
            _ => others
                .iter()
                .for_each(|&(inode, access)| want(inode, access)),
        }
        let mut awaited = 0;
        loop {
            match Self::wait_for_one(&wanted, awaited) {
                Ok(guards) => return Self { _guards: guards },
                // Nothing is held here. Its holder gets a chance to let go of it.
                Err(busy) => {
                    awaited = busy;
                    thread::yield_now();
                }
            }
        }
    }

    /// Waits for the inode at place `awaited` and takes the others if they are free; or holds none
    /// and says the place of one that was not.
    ///
    /// What was found busy is held, not only seen free, when the others are tried again: a reader
    /// can pass where a writer has come to the lock and is yet to shut it, and would go round
    /// without ever waiting for him.
    fn wait_for_one(
        wanted: &[Wanted<'a>; MOST],
        awaited: usize,
    ) -> Result<[Option<Guard<'a>>; MOST], usize> {
        let held = wanted
            .get(awaited)
            .copied()
            .flatten()
            .map(|(inode, access)| Guard::lock(inode, access));
        let mut guards = [const { None }; MOST];
        for (place, (guard, wanted)) in guards.iter_mut().zip(wanted).enumerate() {
            let Some((inode, access)) = *wanted else {
                break;
            };
            if place != awaited {
                *guard = Some(Guard::try_lock(inode, access).ok_or(place)?);
            }
        }
        if let Some(guard) = guards.get_mut(awaited) {
            *guard = held;
        }
        Ok(guards)
    }

    /// How to order two directories neither of which is known to be an ancestor of the other.
    pub(crate) fn in_order(a: Ino, b: Ino, a_is_above: bool, b_is_above: bool) -> bool {
        a_is_above || (!b_is_above && a <= b)
    }
}
