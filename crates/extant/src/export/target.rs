//! The destination: directories by descriptor, never by path.
//!
//! # Invariants
//!
//! A directory is reached from the root's descriptor without passing a symbolic link, by `openat2`
//! or one name at a time, so that a link in the destination, planted by the image or by somebody
//! else, is never walked through.

use super::plan::{Plan, ROOT};
use extant_host::{openat, openat2};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};

/// Descriptors of directories, the most recent ones kept open. Each thread has its own.
///
/// On a long way down the last directories are kept open each, so that going through a deep tree up
/// or down opens a directory a small number of times, not once for every one above it.
pub(super) struct OpenDirs<'a> {
    plan: &'a Plan,
    root: &'a OwnedFd,
    open: HashMap<u32, OwnedFd>,
    order: VecDeque<u32>,
    most: usize,
}

/// Descriptors that all threads together keep open: most systems give a process 1024.
const MOST_OPEN: usize = 512;

impl<'a> OpenDirs<'a> {
    pub(super) fn new(plan: &'a Plan, root: &'a OwnedFd, threads: usize) -> Self {
        Self {
            plan,
            root,
            open: HashMap::new(),
            order: VecDeque::new(),
            most: (MOST_OPEN / threads.max(1)).max(4),
        }
    }

    /// The descriptor of a directory of the plan: good for making things in it, not for reading it.
    pub(super) fn get(&mut self, dir: u32) -> Result<BorrowedFd<'_>, Errno> {
        if dir == ROOT {
            return Ok(self.root.as_fd());
        }
        if !self.open.contains_key(&dir) {
            self.descend(dir)?;
        }
        self.open.get(&dir).map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    fn keep(&mut self, dir: u32, fd: OwnedFd) {
        if self.open.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.open.remove(&oldest);
        }
        self.order.push_back(dir);
        self.open.insert(dir, fd);
    }

    /// Opens the directories from the nearest open one down to `dir`.
    fn descend(&mut self, dir: u32) -> Result<(), Errno> {
        let mut chain = vec![dir];
        let mut at = self.plan.dir(dir).parent;
        while at != ROOT && !self.open.contains_key(&at) {
            chain.push(at);
            at = self.plan.dir(at).parent;
        }
        chain.reverse();
        let start = self.open.get(&at).unwrap_or(self.root).as_fd();
        let jump = match chain.len() {
            short if short <= SHORT => short,
            long => long.saturating_sub(self.most / 2).max(1),
        };
        let (first, rest) = chain.split_at(jump.min(chain.len()));
        let mut reached = open_chain(start, &self.names(first))?;
        let mut last = first.last().copied().unwrap_or(dir);
        for &next in rest {
            let name = self.plan.name(self.plan.dir(next).name);
            let fd = openat(&reached, name, PLACE, Mode::empty())?;
            self.keep(last, reached);
            (last, reached) = (next, fd);
        }
        self.keep(last, reached);
        Ok(())
    }

    fn names(&self, chain: &[u32]) -> Vec<&[u8]> {
        let name = |&dir: &u32| self.plan.name(self.plan.dir(dir).name);
        chain.iter().map(name).collect()
    }
}

/// Directories that are passed with one call and not kept open.
const SHORT: usize = 16;
/// Bytes of path given to the system at once, which takes 4096 with a zero byte.
const MOST_BYTES: usize = 4000;

/// What a directory to work in is opened as.
const PLACE: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens a directory some names below `from`, as a place to work in, passing no symbolic link.
pub(crate) fn open_below(from: &OwnedFd, below: &[u8]) -> Result<OwnedFd, Errno> {
    let names: Vec<&[u8]> = below
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .collect();
    if names.is_empty() {
        return from.try_clone().map_err(|_| Errno::MFILE);
    }
    open_chain(from.as_fd(), &names)
}

/// Opens a directory any number of names below `from`, passing no symbolic link.
fn open_chain(from: BorrowedFd<'_>, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
    let mut reached: Option<OwnedFd> = None;
    let mut rest = names;
    while !rest.is_empty() {
        let mut len = 0;
        let fits = rest.iter().take_while(|name| {
            len += name.len() + 1;
            len <= MOST_BYTES
        });
        let (piece, after) = rest.split_at(fits.count().max(1));
        let at = reached.as_ref().map_or(from, AsFd::as_fd);
        reached = Some(match open_beneath(at, &piece.join(&b'/')) {
            // An older kernel, or a filter that does not know the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => open_by_steps(at, piece)?,
            opened => opened?,
        });
        rest = after;
    }
    reached.ok_or(Errno::BADF)
}

/// Opens a directory some names below `from` in one call that passes no symbolic link.
fn open_beneath(from: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let never = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(from, path, PLACE, never)
}

/// Opens a directory some names below `from`, one name at a time.
fn open_by_steps(from: BorrowedFd<'_>, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
    let mut reached: Option<OwnedFd> = None;
    for name in names {
        let at = reached.as_ref().map_or(from, AsFd::as_fd);
        reached = Some(openat(at, name, PLACE, Mode::empty())?);
    }
    reached.ok_or(Errno::BADF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{mkdirat, symlinkat};

    #[test]
    fn neither_way_down_passes_a_symbolic_link() {
        let base = std::env::temp_dir().join(format!("extant-target-{}", std::process::id()));
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        let root = extant_host::open(&base, PLACE, Mode::empty()).unwrap();
        let _ = symlinkat("a", &root, "link");
        let _ = mkdirat(&root, "c", Mode::RWXU);
        assert!(open_beneath(root.as_fd(), b"a/b").is_ok());
        assert!(open_by_steps(root.as_fd(), &[b"a", b"b"]).is_ok());
        assert_eq!(
            open_beneath(root.as_fd(), b"link/b").unwrap_err(),
            Errno::LOOP
        );
        assert!(open_by_steps(root.as_fd(), &[b"link", b"b"]).is_err());
        assert!(open_beneath(root.as_fd(), b"../b").is_err());
        std::fs::remove_dir_all(base).unwrap();
    }
}
