//! Writing back what nobody asked to have written: by age, when much is dirty, and when space or
//! memory run out.

use crate::data::Caches;
use crate::data::writeback::offload::spawn_or_keep;
use crate::data::writeback::small_files::write_back_files;
use crate::data::writeback::write_back;
use crate::fs::Fs;
use crate::inode::{Inode, LiveInode};
use crate::{Error, Result};
use extant_sync::{Condvar, CountedAtomicU64, LockClass, Mutex, Rank, RmwClass};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

static SIGNALS: LockClass = LockClass::new("flusher", Rank::Leaf);
static NEXT: RmwClass = RmwClass::new("next file to write back");

/// Turns of the thread after which what is dirty is written back: with the usual age of commits, as
/// old as under Linux.
const TURNS: u32 = 6;

/// Dirty files from which on several threads write them back, and how many of these there are at
/// most.
const MANY_FILES: usize = 256;
const MOST_WORKERS: usize = 8;
/// As many where each request takes a round trip: larger files are written one after the other.
const MOST_FAR_WORKERS: usize = 32;
/// Files that one of these takes at a time, so that the link has something to carry while others
/// wait for answers.
const FAR_SHARE: usize = 64;
/// Threads from which on they do so on and on.
const FEWEST_FAR_WORKERS: usize = 8;

#[derive(Debug, Default)]
struct Signals {
    write: bool,
    stop: bool,
    /// Pages are wanted.
    prefault: bool,
    /// Files that somebody writes on and on.
    streams: Vec<Arc<LiveInode>>,
}

#[derive(Debug)]
struct Bell {
    signals: Mutex<Signals>,
    rung: Condvar,
}

/// The thread that writes file data back, if there is one.
#[derive(Debug)]
pub(crate) struct Flusher {
    bell: Arc<Bell>,
    /// Rung, and not awake yet.
    is_rung: AtomicBool,
    /// There is a thread.
    runs: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    /// None yet.
    pub(in crate::data) fn new() -> Self {
        Self {
            bell: Arc::new(Bell {
                signals: Mutex::new(&SIGNALS, Signals::default()),
                rung: Condvar::new(),
            }),
            is_rung: AtomicBool::new(false),
            runs: AtomicBool::new(false),
            thread: Mutex::new(&SIGNALS, None),
        }
    }

    /// Starts the thread, which looks around every `interval`.
    pub(crate) fn start(&self, fs: Weak<Fs>, interval: Duration) -> Result<()> {
        let bell = Arc::clone(&self.bell);
        let thread = std::thread::Builder::new()
            .name("extant-data".to_owned())
            .spawn(move || run(&fs, &bell, interval))
            .map_err(|_| Error::Internal("the system has no thread for file data"))?;
        *self.thread.lock() = Some(thread);
        self.runs.store(true, Ordering::Release);
        Ok(())
    }

    /// Asks the thread, if there is one, to write back a file that somebody writes on and on.
    fn write_behind(&self, live: &Arc<LiveInode>) {
        if !self.runs.load(Ordering::Acquire) {
            return;
        }
        let mut signals = self.bell.signals.lock();
        // What it has not come to yet is no less by asking again.
        if !signals.streams.iter().any(|other| Arc::ptr_eq(other, live)) {
            signals.streams.push(Arc::clone(live));
            drop(signals);
            self.bell.rung.notify_all();
        }
    }

    /// Asks the thread to write back what is dirty.
    fn ring(&self) {
        if !self.is_rung.load(Ordering::Relaxed) {
            self.is_rung.store(true, Ordering::Relaxed);
            self.bell.signals.lock().write = true;
            self.bell.rung.notify_all();
        }
    }

    /// Asks the thread, if there is one, to make pages ready for writers.
    #[cold]
    pub(in crate::data) fn make_ready(&self) {
        if self.runs.load(Ordering::Acquire) {
            self.bell.signals.lock().prefault = true;
            self.bell.rung.notify_all();
        }
    }

    /// Ends the thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.runs.store(false, Ordering::Release);
        self.bell.signals.lock().stop = true;
        self.bell.rung.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // What it met is in the files it met it at.
            let _ = thread.join();
        }
        // They hold on to this.
        let streams = std::mem::take(&mut self.bell.signals.lock().streams);
        drop(streams);
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // Not waited for: it may be the thread itself that drops the last reference. And only
        // tried: a file that was forgotten may go later, in the middle of anything, and take this
        // along. The thread then learns of the end when it looks around.
        if self.runs.load(Ordering::Acquire)
            && let Some(mut signals) = self.bell.signals.try_lock()
        {
            signals.stop = true;
            drop(signals);
            self.bell.rung.notify_all();
        }
    }
}

fn run(fs: &Weak<Fs>, bell: &Bell, interval: Duration) {
    let mut next = Instant::now() + interval;
    let mut turns = 0;
    loop {
        let signals = wait(bell, next);
        if signals.stop {
            return;
        }
        let Some(fs) = fs.upgrade() else { return };
        fs.data().flusher.is_rung.store(false, Ordering::Relaxed);
        if Instant::now() >= next {
            turns += 1;
            fs.data().pool.ready.trim();
            next = Instant::now() + interval;
        }
        if signals.prefault {
            fs.data().pool.ready.fill();
        }
        // Files keep what went wrong until they are asked.
        for live in signals.streams {
            let _ = write_back(&fs, &live);
        }
        if signals.write || turns >= TURNS {
            turns = 0;
            let _ = if fs.device().in_flight() > 1 {
                fs.write_back_on_and_on()
            } else {
                fs.write_back_all()
            };
        }
    }
}

/// Waits for a signal, or until `end`.
fn wait(bell: &Bell, end: Instant) -> Signals {
    let mut signals = bell.signals.lock();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let has_work = signals.write || signals.prefault || !signals.streams.is_empty();
        if signals.stop || has_work || left.is_zero() {
            return std::mem::take(&mut *signals);
        }
        bell.rung.wait_for(&mut signals, left);
    }
}

impl Caches {
    /// Asks the thread, if there is one, to write back what is dirty, if that makes good use of a
    /// link with long round trips.
    pub(crate) fn write_behind(&self) {
        if self.is_worth_a_link() {
            self.flusher.ring();
        }
    }
}

impl Fs {
    /// Returns the inode of an image, if memory has data of the file that the device may not have.
    pub(in crate::data) fn with_data(&self, image: &Inode) -> Option<Arc<LiveInode>> {
        if !self.data().is_write_back() || image.is_inline() || self.journal().is_err() {
            return None;
        }
        let live = self.inode_table().get_live(image.ino())?;
        (live.id() == image.id() && live.file_cache().is_some()).then_some(live)
    }

    /// Writes back what is dirty of all files, so that images of their inodes lead to it. The
    /// caller holds nothing.
    ///
    /// # Errors
    /// The first of what went wrong; all files are tried.
    pub fn write_back(&self) -> Result<()> {
        self.write_back_all()
    }

    /// Writes back what is dirty of all files, with what others are writing back already:
    /// everything that was written before. The caller holds nothing.
    ///
    /// # Errors
    /// The first of what went wrong; all files are tried.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let _alone = self.data().flush_turn();
        let files = self.data().take_files();
        let workers = self.workers_for(files.len());
        if workers == 1 {
            return write_back_files(self, &files);
        }
        let share = if self.device().in_flight() > 1 {
            // Some files take longer than others: a thread that is done takes more.
            (files.len() / workers).clamp(1, FAR_SHARE)
        } else {
            files.len().div_ceil(workers)
        };
        let next = CountedAtomicU64::new(&NEXT, 0);
        all_do(workers, || {
            let mut result = Ok(());
            loop {
                let at = next.fetch_add(share as u64, Ordering::Relaxed) as usize;
                let at = at.min(files.len());
                let some = &files[at..files.len().min(at + share)];
                if some.is_empty() {
                    return result;
                }
                result = result.and(write_back_files(self, some));
            }
        })
    }

    /// Writes back what is dirty of all files, and what becomes dirty meanwhile as long as that is
    /// enough for a link with long round trips: which then always has something to carry. Ends when
    /// it has caught up, or somebody waits to write back everything. The caller holds nothing.
    ///
    /// # Errors
    /// As for [`Fs::write_back_all`].
    fn write_back_on_and_on(&self) -> Result<()> {
        let data = self.data();
        let workers = (data.listed_files() / FAR_SHARE).min(MOST_FAR_WORKERS);
        if workers < FEWEST_FAR_WORKERS {
            return self.write_back_all();
        }
        let _alone = data.flushing.lock();
        // Fewer threads would be slower than the link: all of them go on, or none.
        let is_over = AtomicBool::new(false);
        all_do(workers, || {
            let mut result = Ok(());
            while !is_over.load(Ordering::Relaxed) {
                let files = data.take_some_files(FAR_SHARE);
                result = result.and(write_back_files(self, &files));
                if files.is_empty() || !data.is_worth_going_on() {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
            result
        })
    }

    /// How many threads write back so many files.
    fn workers_for(&self, files: usize) -> usize {
        match files {
            0..MANY_FILES => 1,
            _ => std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(MOST_WORKERS)
                .max(self.device().in_flight().min(MOST_FAR_WORKERS)),
        }
    }
}

/// Has so many threads do `work`, this one among them. The first of what went wrong counts.
fn all_do(workers: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| spawn_or_keep(scope, work)).collect();
        let own = work();
        others
            .into_iter()
            .fold(own, |result, other| result.and(other.finish()))
    })
}

/// Keeps memory within its limits before something is written to `live`. The caller holds nothing.
///
/// # Errors
/// When so much is dirty that it has to be written back first, and that fails.
pub(in crate::data) fn balance(fs: &Fs, live: &Arc<LiveInode>) -> Result<()> {
    let Some(file) = live.file_cache().filter(|file| file.dirty.take_grown()) else {
        return Ok(());
    };
    let caches = fs.data();
    if caches.is_full() {
        caches.evict();
    }
    if caches.is_too_dirty() || caches.is_full() && file.is_dirty() {
        write_back(fs, live)?;
        if caches.is_too_dirty() {
            fs.write_back_all()?;
        }
        caches.evict();
    } else if caches.is_rather_dirty() {
        caches.flusher.ring();
    } else if file.dirty.take_streams() {
        caches.flusher.write_behind(live);
    }
    Ok(())
}

/// Gives back what space can be had: that of promises for the worst case, by writing back; what is
/// kept ready for files; what waits for a commit. The caller holds nothing.
///
/// # Errors
/// What stopped the journal.
pub(crate) fn make_room(fs: &Fs, live: &Arc<LiveInode>) -> Result<()> {
    // What fails is found by what asks for the file.
    let _ = write_back(fs, live);
    let _ = fs.write_back_all();
    fs.alloc()?.discard_preallocations(u64::MAX);
    if fs.is_space_pending() {
        fs.commit(fs.journal()?.running())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_sync::Mutex;

    #[test]
    fn names_are_committed_after_5_seconds_and_data_is_written_back_after_30() {
        let interval = crate::fs::MountOptions::read_write().commit_interval;
        assert_eq!(interval, Duration::from_secs(5));
        assert_eq!(interval * TURNS, Duration::from_secs(30));
    }

    #[test]
    fn what_goes_in_the_middle_of_anything_waits_for_no_lock() {
        static HELD: LockClass = LockClass::new("anything", Rank::Leaf);
        let flusher = Flusher::new();
        flusher.runs.store(true, Ordering::Release);
        let bell = Arc::clone(&flusher.bell);
        let held = Mutex::new(&HELD, ());
        let guard = held.lock();
        drop(flusher);
        drop(guard);
        assert!(bell.signals.lock().stop);
    }
}
