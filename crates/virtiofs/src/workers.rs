//! The threads for requests of one guest that may take long, so that others do not wait for them.

use crate::answering::{Head, Scratch};
use crate::chain::Chain;
use crate::ring::{Live, Pending};
use extant_fuse::Guest;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

static JOBS: LockClass = LockClass::new("long requests of a guest", Rank::Leaf);

/// Threads of a guest at most.
const MOST: usize = 4;

/// A request that may take long.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) chain: Chain,
    pub(crate) head: Head,
    pub(crate) queue: Arc<Live>,
    /// What says that it is under way, until this is dropped.
    pub(crate) pending: Pending,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_over: bool,
}

#[derive(Debug)]
struct Jobs {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The threads. They end when this is dropped, after what they were given.
#[derive(Debug)]
pub(crate) struct Workers {
    jobs: Arc<Jobs>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts them.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(crate) fn start(guest: &Arc<Guest>) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut workers = Self {
            jobs: Arc::new(Jobs {
                waiting: Mutex::new(&JOBS, Waiting::default()),
                changed: Condvar::new(),
            }),
            threads: Vec::new(),
        };
        for _ in 0..processors.clamp(2, MOST) {
            let (jobs, guest) = (Arc::clone(&workers.jobs), Arc::clone(guest));
            let thread = Builder::new().name("extant-guest-io".to_owned());
            workers
                .threads
                .push(thread.spawn(move || jobs.run(&guest))?);
        }
        Ok(workers)
    }

    /// Makes none: what they are given stays until this is dropped.
    #[cfg(test)]
    pub(crate) fn idle() -> Self {
        Self {
            jobs: Arc::new(Jobs {
                waiting: Mutex::new(&JOBS, Waiting::default()),
                changed: Condvar::new(),
            }),
            threads: Vec::new(),
        }
    }

    /// Has a request answered by one of them.
    pub(crate) fn answer(&self, job: Job) {
        self.jobs.waiting.lock().jobs.push_back(job);
        self.jobs.changed.notify_one();
    }
}

impl Jobs {
    fn run(&self, guest: &Guest) {
        let mut scratch = Scratch::new();
        while let Some(job) = self.next() {
            let Job {
                chain,
                head,
                queue,
                pending,
            } = job;
            queue.answer(chain, &head, guest, &mut scratch);
            drop(pending);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |waiting| {
            waiting.jobs.is_empty() && !waiting.is_over
        });
        waiting.jobs.pop_front()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs.waiting.lock().is_over = true;
        self.jobs.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
