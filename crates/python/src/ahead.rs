//! Reading directories ahead of a walk.
//!
//! A thread reads those that come next, while Python makes objects of the names that it has. It
//! does so only for a file system that is open for reading: in another one, what the caller changes
//! while it walks would be missed. It never takes the GIL, so it may be waited for with it.
//!
//! The walk has a stack of steps. Its uppermost directories are planned: each is a [`Job`], which
//! either thread may begin and only one does. The walk knows the jobs in order ([`Ahead`]); of
//! those, the thread has a list of what it may begin ([`Desk`]). So each takes and puts directories
//! under locks of their own, and the two meet where jobs are handed over, several at once.

use crate::walk::{Dir, Listed, Step};
use extant::{Filesystem, NameReader};
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Directories that are planned at most, unless others come before them.
const PLANNED: usize = 256;

/// Planned directories below which others are planned.
const FEW: usize = PLANNED / 2;

/// Directories that stay planned when others come before them.
const KEPT: usize = 1024;

/// Directories that the thread takes at once.
const BATCH: usize = 16;

/// Directories for which the thread is woken.
const WORTH_WAKING: usize = 4;

/// Bytes that lie ready, beyond which no other directory is begun.
const READY: usize = 4 << 20;

/// Bytes of what is kept to be used again, each at most.
const SPARE: usize = 32 << 10;

/// How many of those are kept at most.
const SPARES: usize = 64;

/// A directory that is planned.
#[derive(Debug)]
pub(crate) struct Job {
    dir: Dir,
    work: Mutex<Work>,
}

/// How far a directory is.
#[derive(Debug, Default)]
enum Work {
    /// Nobody reads it.
    #[default]
    Free,
    /// It is not planned any more, or the walk has entered it: what is read of it is not kept.
    Withdrawn,
    /// One of the two reads it.
    Begun,
    Done(extant::Result<Listed>),
}

impl Job {
    fn new(dir: Dir) -> Arc<Self> {
        Arc::new(Self {
            dir,
            work: Mutex::default(),
        })
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody has begun it: the caller does.
    fn begin(&self) -> bool {
        let mut work = self.lock();
        let is_free = matches!(*work, Work::Free);
        if is_free {
            *work = Work::Begun;
        }
        is_free
    }

    /// Nobody wants it any more, or somebody reads it who takes it at once.
    pub(crate) fn withdraw(&self) {
        *self.lock() = Work::Withdrawn;
    }

    /// Withdraws it, unless it has been begun, and says whether it did.
    fn withdraw_unless_begun(&self) -> bool {
        let mut work = self.lock();
        let is_free = matches!(*work, Work::Free | Work::Withdrawn);
        if is_free {
            *work = Work::Withdrawn;
        }
        is_free
    }

    fn is_begun(&self) -> bool {
        matches!(*self.lock(), Work::Begun)
    }
}

/// What reads ahead of one walk. Its thread ends when this is dropped.
pub(crate) struct Ahead {
    desk: Arc<Desk>,
    /// The uppermost directories among the steps of the walk, the next first.
    jobs: VecDeque<Arc<Job>>,
    /// Memory to be used again: what one thread allocates and the other frees makes both wait for
    /// the allocator.
    spare: Vec<Listed>,
}

/// What the thread and the walk share.
pub(crate) struct Desk {
    state: Mutex<State>,
    /// Something is to be read, or everything is to end.
    wanted: Condvar,
    /// A directory is ready that is waited for, or the thread has ended.
    done: Condvar,
    /// What the walk reads with, while it does not read.
    reader: Mutex<Option<NameReader>>,
    /// Bytes of what is ready.
    bytes: AtomicUsize,
    /// Somebody waits for `done`.
    is_awaited: AtomicBool,
    is_ending: AtomicBool,
    /// A process that was forked has no such thread.
    process: u32,
}

#[derive(Default)]
struct State {
    /// What the thread may begin, the next first.
    todo: VecDeque<Arc<Job>>,
    spare: Vec<Listed>,
    /// The thread waits for `wanted`.
    is_idle: bool,
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

impl Desk {
    /// Whether the thread is one of this process.
    fn is_here(&self) -> bool {
        self.process == process::id()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < READY
    }

    /// What the thread does until it is to end.
    fn work(&self, fs: &Filesystem) {
        let mut reader = fs.name_reader();
        let mut spare = Vec::new();
        while let Some(mut jobs) = self.next(&mut spare) {
            while let Some(job) = jobs.pop_front() {
                if self.is_ending() {
                    return;
                }
                if !self.has_room() {
                    jobs.push_front(job);
                    let mut state = self.lock();
                    jobs.append(&mut state.todo);
                    state.todo = jobs;
                    break;
                }
                if job.begin() {
                    let memory = spare.pop().unwrap_or_default();
                    let listed = Listed::read(fs, &mut reader, &job.dir, memory);
                    self.put(&job, listed);
                }
            }
        }
    }

    /// Waits for directories that can be begun. `None` when it is to end.
    fn next(&self, spare: &mut Vec<Listed>) -> Option<VecDeque<Arc<Job>>> {
        let mut state = self.lock();
        while !self.is_ending() {
            if self.has_room() && !state.todo.is_empty() {
                let count = state.todo.len().min(BATCH);
                let from = state.spare.len().saturating_sub(count);
                spare.extend(state.spare.drain(from..));
                spare.truncate(2 * BATCH);
                return Some(state.todo.drain(..count).collect());
            }
            state.is_idle = true;
            let wait = self.wanted.wait(state);
            state = wait.unwrap_or_else(PoisonError::into_inner);
            state.is_idle = false;
        }
        None
    }

    /// Puts what was read to be taken, unless nobody wants it any more.
    fn put(&self, job: &Job, listed: extant::Result<Listed>) {
        let mut work = job.lock();
        if !matches!(*work, Work::Begun) {
            return;
        }
        let bytes = listed.as_ref().map_or(0, Listed::bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        *work = Work::Done(listed);
        drop(work);
        if self.is_awaited.swap(false, Ordering::SeqCst) {
            let _state = self.lock();
            self.done.notify_all();
        }
    }

    /// Takes what was read, if it is ready.
    fn take(&self, job: &Job) -> Option<extant::Result<Listed>> {
        let mut work = job.lock();
        if !matches!(*work, Work::Done(_)) {
            return None;
        }
        let Work::Done(listed) = mem::replace(&mut *work, Work::Withdrawn) else {
            return None;
        };
        drop(work);
        let bytes = listed.as_ref().map_or(0, Listed::bytes);
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if before >= READY && self.has_room() {
            // The thread may wait for just this.
            self.wake(&self.lock(), 1);
        }
        Some(listed)
    }

    fn wake(&self, state: &State, worth: usize) {
        if state.is_idle && state.todo.len() >= worth {
            self.wanted.notify_all();
        }
    }

    /// Waits for a directory that the thread has begun. If it never will be ready, nobody has begun
    /// it then.
    fn wait(&self, job: &Job) {
        let mut state = self.lock();
        loop {
            // Told before it is looked at: what is put after the look wakes this.
            self.is_awaited.store(true, Ordering::SeqCst);
            if !job.is_begun() {
                return;
            }
            if state.has_ended {
                *job.lock() = Work::Free;
                return;
            }
            let wait = self.done.wait(state);
            state = wait.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has the thread end.
    fn tell_end(&self) {
        let _state = self.lock();
        self.is_ending.store(true, Ordering::SeqCst);
        self.wanted.notify_all();
    }

    /// Has the thread end, and waits until it has.
    pub(crate) fn end(&self) {
        if !self.is_here() {
            return;
        }
        self.tell_end();
        // It would keep the file system open.
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut state = self.lock();
        while !state.has_ended {
            let wait = self.done.wait(state);
            state = wait.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Says that the thread has ended, also where it panics.
struct Ending(Arc<Desk>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
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
            reader: Mutex::default(),
            bytes: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
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
        Some(Self {
            desk,
            jobs: VecDeque::new(),
            spare: Vec::new(),
        })
    }

    /// Whether it reads in this process, and not in one from which this was forked.
    pub(crate) fn is_here(&self) -> bool {
        self.desk.is_here()
    }

    /// What ends it when its file system closes.
    pub(crate) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Plans the uppermost directories of the steps, of which so many have come since this was
    /// asked last.
    pub(crate) fn plan(&mut self, steps: &mut [Step], new: usize) {
        let kept = if new > PLANNED {
            // Between the new that are planned and those planned before would be others.
            0
        } else if !self.desk.has_room() {
            PLANNED
        } else if self.jobs.len() > KEPT {
            KEPT / 2
        } else {
            self.jobs.len()
        };
        for job in self.jobs.drain(kept.min(self.jobs.len())..) {
            self.desk.take(&job);
            job.withdraw();
        }
        let first = self.planned(steps, 0, new.min(PLANNED));
        let last = if self.jobs.len() + first.len() < FEW {
            let after = self.jobs.len() + first.len();
            self.planned(steps, after, PLANNED - after)
        } else {
            Vec::new()
        };
        if first.is_empty() && last.is_empty() {
            return;
        }
        let mut state = self.desk.lock();
        for job in first.into_iter().rev() {
            state.todo.push_front(Arc::clone(&job));
            self.jobs.push_front(job);
        }
        state.todo.extend(last.iter().cloned());
        self.jobs.extend(last);
        if state.todo.len() > 2 * KEPT {
            state.todo.retain(|job| matches!(*job.lock(), Work::Free));
        }
        let from = self.spare.len().min(BATCH);
        state.spare.extend(self.spare.drain(from..));
        state.spare.truncate(SPARES);
        self.desk.wake(&state, WORTH_WAKING);
    }

    /// Makes jobs of so many directories of the steps, which come after so many others.
    fn planned(&self, steps: &mut [Step], after: usize, count: usize) -> Vec<Arc<Job>> {
        let mut jobs = Vec::new();
        if count == 0 {
            return jobs;
        }
        // Between them may be steps that are none of directories, and those are not gone through
        // without an end.
        let seen = 4 * (after + PLANNED);
        let dirs = steps.iter_mut().rev().take(seen);
        let dirs = dirs.filter(|step| !matches!(step, Step::Give(_)));
        for step in dirs.skip(after).take(count) {
            let job = match step {
                Step::Enter(dir) => Job::new(mem::take(dir)),
                // It was planned before.
                Step::Planned(job) => {
                    let mut work = job.lock();
                    if matches!(*work, Work::Withdrawn) {
                        *work = Work::Free;
                    }
                    drop(work);
                    Arc::clone(job)
                }
                Step::Give(_) => continue,
            };
            *step = Step::Planned(Arc::clone(&job));
            jobs.push(job);
        }
        jobs
    }

    /// Memory to read a directory into.
    pub(crate) fn spare(&mut self) -> Listed {
        self.spare.pop().unwrap_or_default()
    }

    /// Gives memory back, to be used again.
    pub(crate) fn give_back(&mut self, listed: Listed) {
        if listed.bytes() <= SPARE && self.spare.len() < SPARES {
            self.spare.push(listed);
        }
    }

    /// Takes the directory that the walk enters now out of the plan, and what was read of it, if
    /// that is ready.
    pub(crate) fn take(&mut self, job: &Arc<Job>) -> Option<extant::Result<Listed>> {
        if let Some(at) = self.jobs.iter().position(|other| Arc::ptr_eq(other, job)) {
            self.jobs.remove(at);
        }
        let ready = self.desk.take(job);
        if ready.is_none() {
            job.withdraw_unless_begun();
        }
        ready
    }

    /// Reads a directory that was planned and is not ready. While the thread reads just that, the
    /// caller reads what comes behind it.
    pub(crate) fn read(&self, fs: &Filesystem, job: &Job, spare: Listed) -> extant::Result<Listed> {
        let mut behind = self.jobs.iter();
        loop {
            if let Some(listed) = self.desk.take(job) {
                return listed;
            }
            if job.withdraw_unless_begun() {
                return self.read_here(fs, &job.dir, spare);
            }
            let next = behind.find(|_| true).filter(|_| self.desk.has_room());
            match next {
                Some(next) if next.begin() => {
                    let listed = self.read_here(fs, &next.dir, Listed::default());
                    self.desk.put(next, listed);
                }
                Some(_) => {}
                None => self.desk.wait(job),
            }
        }
    }

    /// Reads a directory in this thread.
    pub(crate) fn read_here(
        &self,
        fs: &Filesystem,
        dir: &Dir,
        spare: Listed,
    ) -> extant::Result<Listed> {
        let kept = self.desk.reader.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
        let mut reader = kept.take().unwrap_or_else(|| fs.name_reader());
        let listed = Listed::read(fs, &mut reader, dir, spare);
        // What is kept would keep the file system open.
        if !self.desk.is_ending() {
            *kept = Some(reader);
        }
        listed
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.desk.is_here() {
            self.desk.tell_end();
        }
    }
}
