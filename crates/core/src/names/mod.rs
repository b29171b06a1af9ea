//! The name cache, and the locks of names.
//!
//! | file | owns |
//! |---|---|
//! | `cache` | [`Names`]: what is known about names, within a budget |
//! | `lock` | [`NameLock`], [`NameLocks`]: one name, or two, held still |
//! | `lookup` | from a name to an inode, through the cache |
//!
//! # Locking
//!
//! A lookup that hits takes no lock and stores nothing shared. A miss takes the lock of the name
//! (rank `Name`, one of a few hundred that names share), searches the directory, and notes the
//! answer before it lets go. A change of what a name stands for holds the same lock, and tells the
//! cache before it lets go. So the cache never keeps an answer that a change has made wrong.
//!
//! # Invariants
//!
//! - An entry says what the directory says, or what it said until a change that still holds the
//!   name's lock.
//! - `.` and `..` are never kept.
//! - Entries name an inode by number and generation, so that one that has been deleted since is not
//!   taken for the next one of its number.
//! - A directory is deleted only when it is empty, so by then every name that stood for something
//!   has left the cache; what is left says "absent", which is right for the next directory of the
//!   same number too.
//! - Of a directory that does not tell upper from lower case nothing is asked here. Its flag only
//!   changes while it is empty, when all that is known of it says "absent".

mod cache;
mod lock;
mod lookup;

pub(crate) use cache::Names;
pub(crate) use lock::{LockedName, NameLock, NameLocks};

#[cfg(test)]
mod tests;
