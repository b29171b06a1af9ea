//! The destination: directories by descriptor, never by path.
//!
//! # Invariants
//!
//! A directory is reached from the root's descriptor without passing a symbolic link, by `openat2` or
//! one name at a time, so that a link in the destination, planted by the image or by somebody else,
//! is never walked through.

use super::plan::{Plan, ROOT};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};

/// Descriptors of directories, the most recent ones kept open. Each thread has its own.
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
            let fd = self.descend(dir)?;
            if self.open.len() >= self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.open.remove(&oldest);
            }
            self.order.push_back(dir);
            self.open.insert(dir, fd);
        }
        self.open.get(&dir).map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    /// Opens the directories from the nearest open one down to `dir`.
    fn descend(&self, dir: u32) -> Result<OwnedFd, Errno> {
        let mut chain = vec![dir];
        let mut at = self.plan.dir(dir).parent;
        while at != ROOT && !self.open.contains_key(&at) {
            chain.push(at);
            at = self.plan.dir(at).parent;
        }
        let start = self.open.get(&at).unwrap_or(self.root).as_fd();
        let names: Vec<&[u8]> = chain
            .into_iter()
            .rev()
            .map(|step| self.plan.name(self.plan.dir(step).name))
            .collect();
        match open_beneath(start, &names.join(&b'/')) {
            // An older kernel, a filter that does not know the call, or a path too long for one.
            Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => open_by_steps(start, &names),
            opened => opened,
        }
    }
}

/// What a directory to work in is opened as.
const PLACE: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens a directory some names below `from` in one call that passes no symbolic link.
fn open_beneath(from: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let never = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(from, path, PLACE, Mode::empty(), never)
}

/// The same, one name at a time.
fn open_by_steps(from: BorrowedFd<'_>, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
    let mut reached: Option<OwnedFd> = None;
    for name in names {
        let at = reached.as_ref().map_or(from, AsFd::as_fd);
        reached = Some(openat(at, *name, PLACE, Mode::empty())?);
    }
    reached.ok_or(Errno::BADF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mkdirat, symlinkat};

    #[test]
    fn neither_way_down_passes_a_symbolic_link() {
        let base = std::env::temp_dir().join(format!("extant-target-{}", std::process::id()));
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        let root = openat(CWD, &base, PLACE, Mode::empty()).unwrap();
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
