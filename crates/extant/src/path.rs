//! From a path to an inode: symbolic links, `..`, limits.
//!
//! # Invariants
//!
//! - `..` goes to the directory that was walked through, so it cannot leave the root whatever the
//!   `..` entries of a hostile image say.
//! - At most [`MAX_LINKS`] symbolic links are followed, and a target has at most one block, so every
//!   walk ends.
//! - Names and inodes that are in memory are passed without a lock and without a count of references.

use extant_core::fs::Fs;
use extant_core::inode::FileType;
use extant_core::{Error, Result, ops};
use extant_format::Ino;

/// Symbolic links followed at most, as under Linux.
const MAX_LINKS: u32 = 40;

/// Whether a symbolic link at the end of a path stands for itself or for what it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Keep,
}

/// Where the last name of a path is looked for.
#[derive(Debug)]
pub(crate) struct Last {
    /// The directory.
    pub(crate) dir: Ino,
    /// The name in it: neither empty nor `.` or `..`.
    pub(crate) name: Vec<u8>,
    /// Whether the path says that it is a directory, by a `/` at its end.
    pub(crate) must_be_dir: bool,
}

/// The inode at `path`, which is taken from the root. A path that ends in `/` must be a directory.
pub(crate) fn resolve(fs: &Fs, path: &[u8], last: LastLink) -> Result<Ino> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    let mut walk = Walk::from_root(fs, path);
    while let Some(name) = walk.rest.pop() {
        let follow = last == LastLink::Follow || !walk.rest.is_empty();
        walk.step(&name, follow)?;
    }
    Ok(walk.at)
}

/// The directory that the last name of `path` is in, and that name. Symbolic links on the way are
/// followed; with `follow` also one that the last name stands for, so that what the name leads to is
/// returned, whether or not it exists.
pub(crate) fn resolve_parent(fs: &Fs, path: &[u8], follow: bool) -> Result<Last> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    let mut walk = Walk::from_root(fs, path);
    loop {
        let Some(name) = walk.rest.pop() else {
            return Err(Error::InvalidInput("the path is that of a directory"));
        };
        let must_be_dir = !walk.rest.is_empty() && walk.rest.iter().all(|name| name == b".");
        if must_be_dir {
            walk.rest.clear();
        }
        if !walk.rest.is_empty() {
            walk.step(&name, true)?;
            continue;
        }
        walk.must_be_dir |= must_be_dir;
        if name == b"." || name == b".." {
            return Err(Error::InvalidInput("the path ends in `.` or `..`"));
        }
        if follow && walk.enter_link(&name)? {
            continue;
        }
        if !walk.is_dir()? {
            return Err(Error::NotADirectory);
        }
        return Ok(Last {
            dir: walk.at,
            name,
            must_be_dir: walk.must_be_dir,
        });
    }
}

/// A walk on its way.
struct Walk<'f> {
    fs: &'f Fs,
    at: Ino,
    /// Directories walked through, the root first.
    dirs: Vec<Ino>,
    /// Names to go, the next one last.
    rest: Vec<Vec<u8>>,
    links: u32,
    must_be_dir: bool,
}

impl<'f> Walk<'f> {
    fn from_root(fs: &'f Fs, path: &[u8]) -> Self {
        let mut rest = Vec::new();
        push_names(&mut rest, path);
        Self {
            fs,
            at: Ino::ROOT,
            dirs: vec![Ino::ROOT],
            rest,
            links: 0,
            must_be_dir: false,
        }
    }

    fn is_dir(&self) -> Result<bool> {
        self.fs.with_inode(self.at, |inode| inode.is_dir())
    }

    /// Goes on by one name.
    fn step(&mut self, name: &[u8], follow: bool) -> Result<()> {
        if !self.is_dir()? {
            return Err(Error::NotADirectory);
        }
        match name {
            b"." => return Ok(()),
            b".." => {
                if self.dirs.len() > 1 {
                    self.dirs.pop();
                }
                self.at = self.dirs.last().copied().unwrap_or(Ino::ROOT);
                return Ok(());
            }
            _ => {}
        }
        let ino = ops::lookup_ino(self.fs, self.at, name)?;
        match self.fs.with_inode(ino, |inode| inode.file_type())? {
            FileType::Symlink if follow => return self.follow(ino),
            FileType::Directory => self.dirs.push(ino),
            _ => {}
        }
        self.at = ino;
        Ok(())
    }

    /// Follows the last name if it is a symbolic link; whether it was.
    fn enter_link(&mut self, name: &[u8]) -> Result<bool> {
        if !self.is_dir()? {
            return Err(Error::NotADirectory);
        }
        let ino = match ops::lookup_ino(self.fs, self.at, name) {
            Ok(ino) => ino,
            Err(Error::NotFound) => return Ok(false),
            Err(e) => return Err(e),
        };
        let is_link = self.fs.with_inode(ino, |inode| inode.file_type())? == FileType::Symlink;
        if is_link {
            self.follow(ino)?;
        }
        Ok(is_link)
    }

    /// Puts the target of a link in front of the names to go.
    fn follow(&mut self, link: Ino) -> Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Error::Loop);
        }
        let target = ops::readlink(self.fs, &*self.fs.inode(link)?)?;
        if target.starts_with(b"/") {
            self.dirs.truncate(1);
        }
        self.at = self.dirs.last().copied().unwrap_or(Ino::ROOT);
        push_names(&mut self.rest, &target);
        Ok(())
    }
}

/// Puts the names of `path` in front of the names to go. A trailing `/` counts as `/.`, which only
/// directories have.
fn push_names(rest: &mut Vec<Vec<u8>>, path: &[u8]) {
    if path.ends_with(b"/") {
        rest.push(b".".to_vec());
    }
    let names = path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty());
    rest.extend(names.rev().map(<[u8]>::to_vec));
}
