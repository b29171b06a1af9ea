//! What the kernel may ask for, in the engine's terms.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the way from a node to an inode, attributes, errors |
//! | `gate` | how a request comes to the file system, and how it is contained |
//! | `names` | whatever changes or reads a directory |
//! | `content` | file data |
//! | `attributes` | the record, flags and extended attributes |
//! | `whole` | what an `ioctl` asks of the file system as a whole |
//! | `guest` | what is different where a kernel is a guest's: it is not trusted, and may not be alone |
//!
//! # Invariants
//!
//! - Permissions are the kernel's business: it is told to check modes and access control lists
//!   itself (`default_permissions`), with the caller's groups, which a daemon cannot know without
//!   looking them up. Where only the superuser gets in and asks for that
//!   (`no_default_permissions`), nobody checks. Nor where one user alone gets in, who asks to be
//!   taken for the superuser (`fakeroot`): the image is that user's own.
//! - Nobody else changes the file system, so what the kernel was told stays true until it changes
//!   it.

mod attributes;
mod content;
mod gate;
mod guest;
mod names;
#[cfg(test)]
mod tests;
mod whole;

pub(crate) use attributes::{Changes, SET_FLAGS, Stamp, changes_record, makes_immutable};
pub(crate) use content::Writing;
pub(crate) use guest::Shared;
pub(crate) use names::{Listed, Made, Renaming};
pub(crate) use whole::is_about_whole;

use crate::farewell::Farewell;
use crate::metrics::{Metrics, TellsAlso};
use crate::nodes::Nodes;
use crate::options::Options;
use crate::view::View;
use extant_core::alloc::Spending;
use extant_core::fs::{Fs, StatFs};
use extant_core::inode::{Caller, FileType, Held, Inode, Metadata};
use extant_core::{Error, ops};
use extant_format::Ino;
use extant_format::features::Incompat;
use extant_format::inode::InodeFlags;
use extant_sync::{CountedAtomicU64, JoinGate, LockClass, Rank, RmwClass};
use guest::Guest;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

static REQUESTS: LockClass = LockClass::new("fuse requests", Rank::Leaf);
static PAUSES: RmwClass = RmwClass::new("fuse pauses");
static INSIDE: RmwClass = RmwClass::new("fuse requests under way");

/// Permission bits that let anybody start a program.
const EXECUTABLE: u16 = 0o111;

/// A number by which the kernel knows an inode: the inode's, but 1 for the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node(pub(crate) u64);

impl Node {
    pub(crate) const ROOT: Self = Self(1);

    fn of(ino: Ino) -> Self {
        match ino {
            Ino::ROOT => Self::ROOT,
            ino => Self(ino.get().into()),
        }
    }

    fn ino(self) -> Answer<Ino> {
        match self {
            Self::ROOT => Ok(Ino::ROOT),
            Self(number) => match u32::try_from(number) {
                Ok(number) => Ok(Ino::new(number)),
                Err(_) => Err(Errno::STALE),
            },
        }
    }
}

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const NOT_PERMITTED: Self = Self(libc::EPERM);
    pub(crate) const IO: Self = Self(libc::EIO);
    pub(crate) const NO_DEVICE: Self = Self(libc::ENXIO);
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
    pub(crate) const ACCESS: Self = Self(libc::EACCES);
    /// The mount is over.
    pub(crate) const GONE: Self = Self(libc::ENODEV);
    pub(crate) const NOT_A_DIRECTORY: Self = Self(libc::ENOTDIR);
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const NOT_A_TTY: Self = Self(libc::ENOTTY);
    pub(crate) const NO_SPACE: Self = Self(libc::ENOSPC);
    pub(crate) const RANGE: Self = Self(libc::ERANGE);
    pub(crate) const NO_SYSCALL: Self = Self(libc::ENOSYS);
    pub(crate) const NOT_SUPPORTED: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const STALE: Self = Self(libc::ESTALE);
    pub(crate) const NO_DATA: Self = Self(libc::ENODATA);
    pub(crate) const OVERFLOW: Self = Self(libc::EOVERFLOW);
    pub(crate) const CORRUPT: Self = Self(libc::EUCLEAN);
}

impl From<Error> for Errno {
    fn from(e: Error) -> Self {
        if e.is_corruption() || matches!(e, Error::Device(_) | Error::Log(_) | Error::Stopped(_)) {
            tracing::error!("{e}");
        }
        Self(e.errno())
    }
}

/// What a request gets.
pub(crate) type Answer<T = ()> = Result<T, Errno>;

/// The extended attribute of the root that holds what a mount has done, as `extant stats` prints
/// it. It is not listed.
pub const METRICS: &str = "system.extant.metrics";

/// The user and the group that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Credentials {
    /// Tells whether the kernel says who it is. Where users may be mapped it does so only of those
    /// that make something.
    pub(crate) fn is_known(self) -> bool {
        self.uid != u32::MAX
    }
}

/// What nobody is exempt from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// A program that somebody may start, or a directory.
    pub(crate) executable: bool,
    pub(crate) immutable: bool,
}

/// What the kernel is told about an inode.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) node: Node,
    pub(crate) metadata: Metadata,
    /// Names that differ in case may stand for it too.
    pub(crate) has_other_names: bool,
    /// How long it stays true.
    pub(crate) stays: Stays,
}

/// How long what a kernel is told stays true, if nothing else says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stays {
    /// What a name stands for, or that it stands for nothing.
    pub(crate) names: Duration,
    pub(crate) attributes: Duration,
}

impl Stays {
    /// Nobody but the kernel changes the file system, and what it does not expect it is told.
    const FOREVER: Self = Self {
        names: Duration::from_secs(365 * 24 * 3600),
        attributes: Duration::from_secs(365 * 24 * 3600),
    };
}

/// The file system as the kernel uses it.
#[derive(Debug)]
pub(crate) struct Service {
    fs: Arc<Fs>,
    nodes: Arc<Nodes>,
    /// What is known of the guest that asks, if it is one.
    guest: Option<Guest>,
    stays: Stays,
    metrics: Metrics,
    /// Closed when the mount is over: the file system can be closed once nobody is inside.
    gate: JoinGate,
    /// When nobody read for a while what the kernel forgets, for the last time: microseconds after
    /// [`since`](Self::since).
    paused: CountedAtomicU64,
    since: Instant,
    /// Transfers from this length on go past the engine's memory, if any do.
    direct_from: Option<usize>,
    tells_holes: bool,
    view: View,
    /// Whether names are durable when they have been changed.
    syncs_names: bool,
    /// Whether everything else is, where the kernel does not ask for it.
    syncs_all: bool,
    farewell: Farewell,
    tells_also: Option<TellsAlso>,
    /// The user ID of the mount's process.
    owner: u32,
}

impl Service {
    pub(crate) fn new(fs: Arc<Fs>, options: &Options) -> Self {
        Self {
            fs,
            nodes: Arc::new(Nodes::new()),
            guest: None,
            stays: Stays::FOREVER,
            metrics: Metrics::new(),
            gate: JoinGate::new(&REQUESTS, &INSIDE),
            paused: CountedAtomicU64::new(&PAUSES, 0),
            since: Instant::now(),
            direct_from: options.direct_from,
            tells_holes: options.seek_holes,
            view: View::new(options),
            syncs_names: options.dirsync || options.sync,
            syncs_all: options.sync,
            farewell: Farewell::new(),
            tells_also: None,
            owner: rustix::process::getuid().as_raw(),
        }
    }

    /// Has this thread take only space that the caller may have. Of the caller's groups the kernel
    /// names one.
    fn spending_for(&self, caller: Credentials) -> Spending {
        self.fs.spending_for(&Caller::new(caller.uid, caller.gid))
    }

    /// Makes a change of an inode durable, if the mount is to. The kernel asks for it itself after
    /// it has written.
    fn sync_inode(&self, held: &Held) -> Answer {
        if self.syncs_all {
            Ok(ops::fsync(&self.fs, held)?)
        } else {
            Ok(())
        }
    }

    /// Tells whether changes are durable when they are done.
    pub(crate) fn syncs(&self) -> bool {
        self.syncs_names || self.syncs_all
    }

    /// Tells whether the kernel may learn where holes are.
    pub(crate) fn tells_holes(&self) -> bool {
        self.tells_holes
    }

    fn hold(&self, node: Node) -> Answer<Held> {
        let held = self.fs.hold(self.known(node)?);
        held.map_err(|e| self.met(e))
    }

    /// Tells whether directories may take names that differ in case for the same.
    pub(crate) fn folds_names(&self) -> bool {
        self.fs.superblock().has_incompat(Incompat::CASEFOLD)
    }

    /// Describes an inode as the mount shows it.
    fn describe(&self, inode: &Inode) -> Attributes {
        let mut metadata = ops::stat(&self.fs, inode);
        self.view.show(&mut metadata);
        Attributes {
            node: Node::of(inode.ino()),
            metadata: self.dated(metadata),
            has_other_names: self.folds_names(),
            stays: self.stays,
        }
    }

    /// Tells how long it stays true that a name stands for nothing.
    pub(crate) fn nothing_stays(&self) -> Duration {
        if self.folds_names() {
            Duration::ZERO
        } else {
            self.stays.names
        }
    }

    /// Describes an inode that the kernel gets an entry for, and counts the entry.
    fn entry(&self, held: &Held) -> Attributes {
        self.remember(held.ino());
        self.describe(&held.view())
    }

    /// Takes `count` entries back from the kernel.
    pub(crate) fn forget(&self, node: Node, count: u64) {
        let Ok(ino) = node.ino() else {
            return;
        };
        let count = self.given(ino, count);
        if let Some(held) = self.nodes.forget(ino.get(), count) {
            self.release(held);
        }
    }

    /// Gives up a hold, which may be the last of a file without names.
    fn release(&self, held: Held) {
        if let Err(e) = ops::release(&self.fs, held) {
            tracing::error!("a file without names was not deleted: {e}");
        }
    }

    /// Returns the end that the kernel asks for.
    pub(crate) fn farewell(&self) -> &Farewell {
        &self.farewell
    }

    /// Makes everything durable.
    pub(crate) fn syncfs(&self) -> Answer {
        Ok(ops::syncfs(&self.fs)?)
    }

    /// Counts a request that came through io_uring.
    pub(crate) fn came_through_ring(&self) {
        self.metrics.came_through_ring();
    }

    /// Notes that forgotten nodes are not read for a while.
    pub(crate) fn forgets_later(&self) {
        let now = self.since.elapsed().as_micros() as u64;
        // 0 stands for never.
        self.paused.store(now.max(1), Relaxed);
    }

    /// Tells whether forgotten nodes have been left unread for less than `within`, though there may
    /// be some.
    pub(crate) fn has_unread_forgets(&self, within: Duration) -> bool {
        let now = self.since.elapsed().as_micros() as u64;
        match self.paused.load(Relaxed) {
            0 => false,
            paused => u128::from(now.saturating_sub(paused)) < within.as_micros(),
        }
    }

    /// Tells whether any request came through io_uring.
    pub(crate) fn uses_rings(&self) -> bool {
        self.metrics.uses_rings()
    }

    /// Has the metrics end with what this returns.
    pub(crate) fn telling_also(self, tells_also: Option<TellsAlso>) -> Self {
        Self { tells_also, ..self }
    }

    /// The user ID of the mount's process.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns what was done so far, as text.
    fn metrics(&self) -> String {
        let mut text = self.metrics.text(&self.fs, self.nodes.counts());
        if let Some(more) = self.tells_also {
            text.push_str(&more());
        }
        text
    }

    /// Counts space and inodes, as limits leave them to the files there.
    pub(crate) fn statfs(&self, node: Node) -> Answer<StatFs> {
        match self.hold(node) {
            Ok(held) => Ok(ops::statfs_at(&self.fs, &held)?),
            Err(_) => Ok(self.fs.statfs()?),
        }
    }

    pub(crate) fn getattr(&self, node: Node) -> Answer<Attributes> {
        let found = self
            .fs
            .with_inode(self.known(node)?, |inode| self.describe(inode));
        found.map_err(|e| self.met(e))
    }

    /// Finds what decides what even the superuser may do to an inode.
    pub(crate) fn access(&self, node: Node) -> Answer<Rights> {
        let rights = self.fs.with_inode(self.known(node)?, |inode| Rights {
            executable: inode.is_dir() || inode.disk().mode.permissions() & EXECUTABLE != 0,
            immutable: inode.flags().contains(InodeFlags::IMMUTABLE),
        });
        rights.map_err(|e| self.met(e))
    }

    pub(crate) fn readlink(&self, node: Node) -> Answer<Vec<u8>> {
        let held = self.hold(node)?;
        ops::readlink(&self.fs, &held.snapshot()).map_err(|e| self.met(e))
    }

    /// Finds what a request gets that only reads. Damage that it met is recorded, as Linux records
    /// it.
    fn met(&self, e: Error) -> Errno {
        self.fs.report_found(&e);
        e.into()
    }
}

/// Finds the file type in a mode word, as `mknod` has it: no bits mean a regular file.
fn file_type_of(mode: u32) -> Answer<FileType> {
    match mode & 0o170_000 {
        0 => Ok(FileType::Regular),
        bits => u16::try_from(bits)
            .ok()
            .and_then(FileType::from_mode_bits)
            .ok_or(Errno::INVALID),
    }
}
