//! Reading directories ahead of a walk.
//!
//! A thread reads those that come next, while Python makes objects of the names that it has. It
//! does so only for a file system that is open for reading: in another one, what the caller changes
//! while it walks would be missed. It never takes the GIL, so it may be waited for with it.

use crate::walk::{Dir, Listed};
use extant::{Filesystem, NameReader};
use std::collections::HashMap;
use std::fmt;
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Directories that are planned at most.
pub(crate) const PLANNED: usize = 32;

/// Bytes that lie ready, beyond which no other directory is begun.
const READY: usize = 4 << 20;

/// Bytes of what is kept to be used again, each at most.
const SPARE: usize = 64 << 10;

/// A thread that reads ahead. It ends when this is dropped.
pub(crate) struct Ahead {
    desk: Arc<Desk>,
}

/// What the thread and the walk share.
pub(crate) struct Desk {
    state: Mutex<State>,
    /// Something is to be read, or everything is to end.
    wanted: Condvar,
    /// A directory is ready, or the thread has ended.
    done: Condvar,
    /// A process that was forked has no such thread.
    process: u32,
}

#[derive(Default)]
struct State {
    /// Directories that come next, the first last.
    plan: Vec<Dir>,
    /// What the thread reads now.
    under_way: Option<Dir>,
    ready: HashMap<Dir, extant::Result<Listed>>,
    /// Bytes of what is ready.
    bytes: usize,
    /// Memory to be used again: what one thread allocates and the other frees makes both wait for
    /// the allocator.
    spare: Vec<Listed>,
    /// What the walk reads with, while it does not read.
    reader: Option<NameReader>,
    /// The thread waits for `wanted`.
    is_idle: bool,
    /// Somebody waits for `done`.
    is_awaited: bool,
    is_ending: bool,
    has_ended: bool,
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").finish_non_exhaustive()
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl State {
    fn put(&mut self, dir: Dir, listed: extant::Result<Listed>) {
        self.bytes += listed.as_ref().map_or(0, Listed::bytes);
        self.ready.insert(dir, listed);
    }

    fn take(&mut self, dir: &Dir) -> Option<extant::Result<Listed>> {
        let listed = self.ready.remove(dir)?;
        self.bytes -= listed.as_ref().map_or(0, Listed::bytes);
        Some(listed)
    }
}

impl Desk {
    /// Whether the thread is one of this process.
    fn is_here(&self) -> bool {
        self.process == process::id()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does until it is to end.
    fn work(&self, fs: &Filesystem) {
        let mut reader = fs.name_reader();
        let mut state = self.lock();
        while !state.is_ending {
            let next = if state.bytes < READY {
                state.plan.pop()
            } else {
                None
            };
            let Some(dir) = next else {
                state.is_idle = true;
                state = self
                    .wanted
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.is_idle = false;
                continue;
            };
            state.under_way = Some(dir.clone());
            let spare = state.spare.pop().unwrap_or_default();
            drop(state);
            let listed = Listed::read(fs, &mut reader, &dir, spare);
            state = self.lock();
            state.under_way = None;
            state.put(dir, listed);
            if state.is_awaited {
                state.is_awaited = false;
                self.done.notify_all();
            }
        }
    }

    /// Has the thread end, and waits until it has.
    pub(crate) fn end(&self) {
        if !self.is_here() {
            return;
        }
        let mut state = self.lock();
        state.is_ending = true;
        state.reader = None;
        self.wanted.notify_all();
        while !state.has_ended {
            state.is_awaited = true;
            state = self
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Says that the thread has ended, also where it panics.
struct Ending(Arc<Desk>);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.under_way = None;
        state.has_ended = true;
        self.0.done.notify_all();
    }
}

impl Ahead {
    /// Begins, unless there can be no more threads.
    pub(crate) fn begin(fs: Filesystem) -> Option<Self> {
        let desk = Arc::new(Desk {
            state: Mutex::default(),
            wanted: Condvar::new(),
            done: Condvar::new(),
            process: process::id(),
        });
        let theirs = Arc::clone(&desk);
        let thread = thread::Builder::new().name("extant-walk".to_owned());
        let begun = thread.spawn(move || {
            let ending = Ending(theirs);
            // Gone before the end is told: to close waits for that.
            let fs = fs;
            ending.0.work(&fs);
            drop(fs);
        });
        begun.ok()?;
        Some(Self { desk })
    }

    /// Whether it reads in this process, and not in one from which this was forked.
    pub(crate) fn is_here(&self) -> bool {
        self.desk.is_here()
    }

    /// What ends it when its file system closes.
    pub(crate) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Whether a directory is planned, read now, or ready.
    pub(crate) fn knows(&self, dir: &Dir) -> bool {
        let state = self.desk.lock();
        state.ready.contains_key(dir)
            || state.under_way.as_ref() == Some(dir)
            || state.plan.last().is_some_and(|first| first == dir)
    }

    /// How many directories are planned or ready.
    pub(crate) fn len(&self) -> usize {
        let state = self.desk.lock();
        state.plan.len() + state.ready.len()
    }

    /// Says what comes after the directory that the walk enters now, the first first. Of what is
    /// ready all else is forgotten.
    pub(crate) fn plan<'a>(&self, now: &Dir, next: impl Iterator<Item = &'a Dir>) {
        let mut state = self.desk.lock();
        let state = &mut *state;
        let mut before = std::mem::take(&mut state.ready);
        state.plan.clear();
        state.bytes = 0;
        if let Some((dir, listed)) = before.remove_entry(now) {
            state.put(dir, listed);
        }
        for dir in next.take(PLANNED) {
            if let Some((dir, listed)) = before.remove_entry(dir) {
                state.put(dir, listed);
            } else if state.under_way.as_ref() != Some(dir) {
                state.plan.push(dir.clone());
            }
        }
        state.plan.reverse();
        if state.is_idle && !state.plan.is_empty() {
            self.desk.wanted.notify_all();
        }
    }

    /// Gives memory back, to be used again.
    pub(crate) fn give_back(&self, listed: Listed) {
        if listed.bytes() <= SPARE {
            let mut state = self.desk.lock();
            if state.spare.len() < PLANNED {
                state.spare.push(listed);
            }
        }
    }

    /// Reads a directory, or gives it if it has been read. While the thread reads just that, the
    /// caller reads what comes behind it.
    pub(crate) fn read(&self, fs: &Filesystem, dir: &Dir) -> extant::Result<Listed> {
        let mut state = self.desk.lock();
        loop {
            if let Some(listed) = state.take(dir) {
                if state.is_idle && !state.plan.is_empty() {
                    self.desk.wanted.notify_all();
                }
                return listed;
            }
            if state.under_way.as_ref() != Some(dir) {
                // It is read here, and by nobody else.
                state.plan.retain(|planned| planned != dir);
                return self.read_here(fs, state, dir).1;
            }
            let next = if state.bytes < READY {
                state.plan.pop()
            } else {
                None
            };
            if let Some(next) = next {
                let (now, listed) = self.read_here(fs, state, &next);
                state = now;
                state.put(next, listed);
            } else {
                state.is_awaited = true;
                state = self
                    .desk
                    .done
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Reads a directory in this thread, while others may use the state.
    fn read_here<'a>(
        &'a self,
        fs: &Filesystem,
        mut state: MutexGuard<'a, State>,
        dir: &Dir,
    ) -> (MutexGuard<'a, State>, extant::Result<Listed>) {
        let spare = state.spare.pop().unwrap_or_default();
        let reader = state.reader.take();
        drop(state);
        let mut reader = reader.unwrap_or_else(|| fs.name_reader());
        let listed = Listed::read(fs, &mut reader, dir, spare);
        let mut state = self.desk.lock();
        // What is kept would keep the file system open.
        if !state.is_ending {
            state.reader = Some(reader);
        }
        (state, listed)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.desk.is_here() {
            self.desk.lock().is_ending = true;
            self.desk.wanted.notify_all();
        }
    }
}
