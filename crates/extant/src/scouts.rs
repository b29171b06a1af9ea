//! Threads that go through a tree ahead of a walk, where each request to the device takes a round
//! trip: what the walk asks for one after the other is in memory by then.
//!
//! They change nothing that the walk finds. A directory is listed, the records of its entries are
//! brought into memory together, then the first blocks of the directories among these; so the
//! number of round trips follows from the depth of the tree and from how many requests are under
//! way at once, and not from the number of directories. Of a file system with few inodes whose root
//! is walked through, all of that comes first, wherever it lies in the tree.
//!
//! # Invariants
//!
//! - They stay a bounded number of entries ahead, so that the caches still have what they brought.
//! - There are none on a device at hand, nor on a file system that may change.
//! - What cannot be read is left to the walk.

use crate::read_dir::Listing;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::ops::{self, Ahead};
use extant_format::Ino;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::collections::HashSet;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

static SCOUTS: LockClass = LockClass::new("scouts of a walk", Rank::Leaf);

const MOST_THREADS: usize = 32;
/// Entries that they are ahead at most, but for the directories they are in by then.
const MOST_AHEAD: i64 = 32_768;
/// Entries of a directory that are looked at together.
const TOGETHER: usize = 4096;

/// The threads of one walk; they end with this.
#[derive(Debug)]
pub(crate) struct Scouts {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    fs: Arc<Fs>,
    what: Ahead,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Directories to be looked at, the next one last.
    rest: Vec<Ino>,
    entered: HashSet<Ino>,
    /// Threads that are in a directory.
    busy: usize,
    /// Entries that were looked at and that the walk has not come to. The walk may be ahead, too.
    ahead: i64,
    stop: bool,
}

impl Scouts {
    /// Sends threads through what is below a directory, if that is of use.
    pub(crate) fn start(fs: &Arc<Fs>, root: Ino, what: Ahead) -> Option<Self> {
        let count = ops::in_flight(fs).min(MOST_THREADS);
        if count < 2 || fs.check_writable().is_ok() {
            return None;
        }
        if root == Ino::ROOT {
            ops::whole_ahead(fs, what);
        }
        let shared = Arc::new(Shared {
            fs: Arc::clone(fs),
            what,
            state: Mutex::new(
                &SCOUTS,
                State {
                    rest: vec![root],
                    entered: HashSet::from([root]),
                    busy: 0,
                    ahead: 0,
                    stop: false,
                },
            ),
            changed: Condvar::new(),
        });
        let spawn = |_| {
            let shared = Arc::clone(&shared);
            let builder = Builder::new().name("extant-scout".to_owned());
            // Fewer will do.
            builder.spawn(move || shared.run()).ok()
        };
        let threads = (0..count).filter_map(spawn).collect();
        Some(Self { shared, threads })
    }

    /// Notes that the walk has listed a directory of so many entries.
    pub(crate) fn passed(&self, entries: usize) {
        let mut state = self.shared.state.lock();
        let was_far = state.ahead >= MOST_AHEAD;
        state.ahead -= entries as i64;
        if was_far {
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for Scouts {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // What one met, the walk meets as well.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Some(dir) = self.next() {
            let mut dirs = Vec::new();
            self.look(dir, &mut dirs);
            let mut state = self.state.lock();
            state.busy -= 1;
            // Taken from the end: in the order of names, as the walk goes.
            for dir in dirs.into_iter().rev() {
                if state.entered.insert(dir) {
                    state.rest.push(dir);
                }
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// The next directory to look at; `None` when there will be none.
    fn next(&self) -> Option<Ino> {
        let mut state = self.state.lock();
        loop {
            if state.stop || state.rest.is_empty() && state.busy == 0 {
                return None;
            }
            if state.ahead < MOST_AHEAD
                && let Some(dir) = state.rest.pop()
            {
                state.busy += 1;
                return Some(dir);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits until there is room for more entries, and counts them. `false` when it is over.
    fn take_room(&self, entries: usize) -> bool {
        let mut state = self.state.lock();
        while state.ahead >= MOST_AHEAD && !state.stop {
            self.changed.wait(&mut state);
        }
        state.ahead += entries as i64;
        !state.stop
    }

    /// Brings what a walk through a directory needs into memory. Adds the directories in it.
    fn look(&self, dir: Ino, dirs: &mut Vec<Ino>) {
        let Ok(inode) = self.fs.inode(dir) else {
            return;
        };
        let (listing, _) = Listing::read(&self.fs, &inode);
        let inos: Vec<Ino> = listing.iter().map(|(_, ino)| ino).collect();
        for some in inos.chunks(TOGETHER) {
            if !self.take_room(some.len()) {
                return;
            }
            ops::inodes_ahead(&self.fs, some);
            let load = |ino: &Ino| self.fs.named_inode(*ino).ok();
            let inodes: Vec<Arc<Inode>> = some.iter().filter_map(load).collect();
            ops::content_ahead(&self.fs, inodes.iter(), self.what);
            let found = inodes.iter().filter(|inode| inode.is_dir());
            dirs.extend(found.map(|inode| inode.ino()));
        }
    }
}
