//! From a path to an inode: symbolic links, `..`, limits.
//!
//! # Invariants
//!
//! - `..` goes to the directory that was walked through, so it cannot leave the root whatever the
//!   `..` entries of a hostile image say.
//! - At most [`MAX_LINKS`] symbolic links are followed, and a target has at most one block, so
//!   every walk ends.
//! - Inodes are named by number and generation on the way: one that is removed meanwhile is not
//!   mistaken for the next one of its number.
//! - Names and inodes that are in memory are passed without a lock and without a count of
//!   references.

use crate::Cause;
use crate::error::Why;
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Held, Inode, InodeId};
use extant_core::ops::{self, OpContext};
use extant_core::{Error, Result};
use extant_format::Ino;

/// Symbolic links followed at most, as under Linux.
pub(crate) const MAX_LINKS: u32 = 40;

/// Walks at most for one path, when what it leads through is replaced all the time.
const TRIES: usize = 100;

/// Whether a symbolic link at the end of a path stands for itself or for what it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Keep,
}

/// What is to be done with the last name of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Something new gets the name.
    Make,
    /// The file of the name is opened, or made.
    OpenOrMake,
    /// A file loses the name.
    RemoveFile,
    /// An empty directory is removed.
    RemoveDir,
    /// A name is given up for another one, or taken.
    Rename,
}

/// How a path ends.
#[derive(Debug)]
enum End {
    Name(Vec<u8>),
    Root,
    Dot,
    DotDot,
}

/// The directory that a path ends in, and how.
#[derive(Debug)]
pub(crate) struct Parent {
    dir: InodeId,
    end: End,
    must_be_dir: bool,
}

impl Parent {
    /// The last name. Without one, the error is that of Linux for what was to be done.
    pub(crate) fn last(self, purpose: Purpose) -> std::result::Result<Last, Why> {
        let special = match self.end {
            End::Name(name) => {
                return Ok(Last {
                    dir: self.dir,
                    name,
                    must_be_dir: self.must_be_dir,
                });
            }
            special => special,
        };
        Err(match (purpose, special) {
            (Purpose::Make, _) => Error::Exists.into(),
            (Purpose::OpenOrMake | Purpose::RemoveFile, _) => Error::IsADirectory.into(),
            (Purpose::RemoveDir, End::Dot) => Error::InvalidInput("the path ends in `.`").into(),
            (Purpose::RemoveDir, End::DotDot) => Error::NotEmpty.into(),
            (Purpose::RemoveDir | Purpose::Rename, _) => Cause::Busy.into(),
        })
    }
}

/// Where the last name of a path is looked for.
#[derive(Debug)]
pub(crate) struct Last {
    /// The directory.
    pub(crate) dir: InodeId,
    /// The name in it: neither empty nor `.` or `..`.
    pub(crate) name: Vec<u8>,
    /// Whether the path says that it is a directory, by a `/` at its end.
    pub(crate) must_be_dir: bool,
}

impl Last {
    /// Takes hold of the directory.
    pub(crate) fn hold_dir(&self, fs: &Fs) -> Result<Held> {
        match fs.hold_same(self.dir) {
            Err(Error::Stale) => Err(Error::NotFound),
            held => held,
        }
    }

    /// Makes sure that something new that is no directory can have the name: with a `/` behind it,
    /// it cannot.
    pub(crate) fn check_new_file(&self, by: OpContext<'_>) -> Result<()> {
        if !self.must_be_dir {
            return Ok(());
        }
        ops::lookup_with(by, self.dir, &self.name, Inode::id)?;
        Err(Error::Exists)
    }
}

/// The inode at `path`, which is taken from the root. A path that ends in `/` must be a directory.
pub(crate) fn resolve(by: OpContext<'_>, path: &[u8], last: LastLink) -> Result<InodeId> {
    again(|| walk_to(by, path, last))
}

fn walk_to(by: OpContext<'_>, path: &[u8], last: LastLink) -> Result<InodeId> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    if let Some(id) = look_in_memory(by, path, Inode::id) {
        return Ok(id);
    }
    let mut walk = Walk::from_root(by, path)?;
    while let Some(name) = walk.rest.pop() {
        let follow = last == LastLink::Follow || !walk.rest.is_empty();
        walk.step(&name, follow)?;
    }
    Ok(walk.at)
}

/// Takes hold of the inode at `path`.
pub(crate) fn resolve_held(by: OpContext<'_>, path: &[u8], last: LastLink) -> Result<Held> {
    again(|| by.fs().hold_same(walk_to(by, path, last)?))
}

/// Looks at the inode at `path`. `look` must not wait for the device.
pub(crate) fn resolve_with<R>(
    by: OpContext<'_>,
    path: &[u8],
    last: LastLink,
    look: impl Fn(&Inode) -> R,
) -> Result<R> {
    if let Some(found) = look_in_memory(by, path, &look) {
        return Ok(found);
    }
    again(|| by.fs().with_same(walk_to(by, path, last)?, &look))
}

/// Looks at the inode at `path`, if everything on the way is in memory and leads there straight.
#[inline]
fn look_in_memory<R>(by: OpContext<'_>, path: &[u8], look: impl FnOnce(&Inode) -> R) -> Option<R> {
    if path.is_empty() || path.ends_with(b"/") {
        return None;
    }
    let names = path.split(|&byte| byte == b'/');
    ops::look_along(by, names.filter(|name| !name.is_empty()), look)
}

/// Walks again when something was removed between being found and being used: in its place there
/// may be something else by now. Not for ever, as damaged directories lead to what is no inode.
fn again<R>(mut walk: impl FnMut() -> Result<R>) -> Result<R> {
    for _ in 1..TRIES {
        match walk() {
            Err(Error::Stale) => {}
            done => return done,
        }
    }
    walk()
}

/// The directory that the last name of `path` is in, and that name. Symbolic links on the way are
/// followed; with `follow` also one that the last name stands for, so that what the name leads to
/// is returned, whether or not it exists.
pub(crate) fn resolve_parent(by: OpContext<'_>, path: &[u8], follow: bool) -> Result<Parent> {
    again(|| walk_to_parent(by, path, follow))
}

fn walk_to_parent(by: OpContext<'_>, path: &[u8], follow: bool) -> Result<Parent> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    let mut walk = Walk::from_root(by, path)?;
    loop {
        let name = walk.rest.pop().unwrap_or_default();
        let must_be_dir = !walk.rest.is_empty() && walk.rest.iter().all(Vec::is_empty);
        if must_be_dir {
            walk.rest.clear();
        }
        if !walk.rest.is_empty() {
            walk.step(&name, true)?;
            continue;
        }
        walk.must_be_dir |= must_be_dir;
        let end = match &*name {
            b"" => End::Root,
            b"." => End::Dot,
            b".." => End::DotDot,
            _ if follow && walk.enter_link(&name)? => continue,
            _ => End::Name(name),
        };
        if !walk.is_dir()? {
            return Err(Error::NotADirectory);
        }
        ops::search(by, walk.at)?;
        return Ok(Parent {
            dir: walk.at,
            end,
            must_be_dir: walk.must_be_dir,
        });
    }
}

/// A walk on its way.
struct Walk<'f> {
    by: OpContext<'f>,
    at: InodeId,
    /// Directories walked through, the root first.
    dirs: Vec<InodeId>,
    /// Names to go, the next one last.
    rest: Vec<Vec<u8>>,
    links: u32,
    must_be_dir: bool,
}

impl<'f> Walk<'f> {
    fn from_root(by: OpContext<'f>, path: &[u8]) -> Result<Self> {
        let mut rest = Vec::new();
        push_names(&mut rest, path);
        let root = by.fs().with_inode(Ino::ROOT, Inode::id)?;
        Ok(Self {
            by,
            at: root,
            dirs: vec![root],
            rest,
            links: 0,
            must_be_dir: false,
        })
    }

    fn is_dir(&self) -> Result<bool> {
        match self.by.fs().with_same(self.at, Inode::is_dir) {
            Err(Error::Stale) => Err(Error::NotFound),
            is_dir => is_dir,
        }
    }

    /// The directory that was walked through last.
    fn dir(&self) -> InodeId {
        self.dirs.last().copied().unwrap_or(self.at)
    }

    /// Goes on by one name.
    fn step(&mut self, name: &[u8], follow: bool) -> Result<()> {
        if matches!(name, b"" | b"." | b"..") {
            if !self.is_dir()? {
                return Err(Error::NotADirectory);
            }
            ops::search(self.by, self.at)?;
            if name == b".." && self.dirs.len() > 1 {
                self.dirs.pop();
                self.at = self.dir();
            }
            return Ok(());
        }
        let (id, kind) = ops::lookup_with(self.by, self.at, name, Inode::file_type)?;
        match kind {
            FileType::Symlink if follow => return self.follow(id),
            FileType::Directory => self.dirs.push(id),
            _ => {}
        }
        self.at = id;
        Ok(())
    }

    /// Follows the last name if it is a symbolic link; whether it was.
    fn enter_link(&mut self, name: &[u8]) -> Result<bool> {
        let (id, kind) = match ops::lookup_with(self.by, self.at, name, Inode::file_type) {
            Err(Error::NotFound) => return Ok(false),
            found => found?,
        };
        if kind == FileType::Symlink {
            self.follow(id)?;
        }
        Ok(kind == FileType::Symlink)
    }

    /// Puts the target of a link in front of the names to go.
    fn follow(&mut self, link: InodeId) -> Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Error::Loop);
        }
        // Held, so that its blocks stay its own.
        let held = self.by.fs().hold_same(link)?;
        let target = ops::readlink(self.by.fs(), &held.snapshot())?;
        if target.starts_with(b"/") {
            self.dirs.truncate(1);
        }
        self.at = self.dir();
        push_names(&mut self.rest, &target);
        Ok(())
    }
}

/// Puts the names of `path` in front of the names to go. Behind a trailing `/` there is an empty
/// name, which only directories have.
fn push_names(rest: &mut Vec<Vec<u8>>, path: &[u8]) {
    if path.ends_with(b"/") {
        rest.push(Vec::new());
    }
    let names = path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty());
    rest.extend(names.rev().map(<[u8]>::to_vec));
}
