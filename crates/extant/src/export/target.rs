//! The destination: directories by descriptor, never by path.
//!
//! # Invariants
//!
//! A directory is reached from the root's descriptor one name at a time, with `O_NOFOLLOW`, so that a
//! symbolic link in the destination, planted by the image or by somebody else, is never walked through.

use super::plan::{Plan, ROOT};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
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
        let mut reached: Option<OwnedFd> = None;
        for step in chain.into_iter().rev() {
            let from = reached.as_ref().map_or(start, AsFd::as_fd);
            let name = self.plan.name(self.plan.dir(step).name);
            reached = Some(open_path(from, name)?);
        }
        reached.ok_or(Errno::BADF)
    }
}

/// Opens a directory as a place to work in.
fn open_path(from: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(from, name, flags, Mode::empty())
}
