//! Threads that work together for a while, watched from outside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

/// How long no thread may take a step before that counts as a deadlock.
const STALL: Duration = Duration::from_secs(90);

#[derive(Default)]
struct Progress {
    steps: AtomicU64,
    doing: Mutex<String>,
}

struct Shared {
    progress: Vec<Progress>,
    over: AtomicBool,
}

/// One thread's place in the crew.
pub(crate) struct Post {
    pub(crate) number: usize,
    shared: Arc<Shared>,
}

impl Post {
    /// Says what comes next, for the watcher that finds out that it never ended.
    pub(crate) fn doing(&self, what: impl Into<String>) {
        let progress = &self.shared.progress[self.number];
        *progress.doing.lock().unwrap() = what.into();
        progress.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Relaxed)
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let doing = self.shared.progress[self.number].doing.lock().unwrap();
            println!("thread {} fails at: {doing}", self.number);
            self.shared.over.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs `work` in many threads, which start together and are told when the time is over.
///
/// # Panics
/// When one of them does, and when all of them stand still for long: they wait for each other then.
pub(crate) fn run<R: Send + 'static>(
    threads: usize,
    time: Duration,
    work: impl Fn(Post) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let shared = Arc::new(Shared {
        progress: (0..threads).map(|_| Progress::default()).collect(),
        over: AtomicBool::new(false),
    });
    let start = Arc::new(Barrier::new(threads));
    let work = Arc::new(work);
    let spawn = |number| {
        let (shared, start, work) = (shared.clone(), start.clone(), work.clone());
        std::thread::spawn(move || {
            start.wait();
            work(Post { number, shared })
        })
    };
    let handles: Vec<_> = (0..threads).map(spawn).collect();
    let began = Instant::now();
    let (mut steps, mut moved) = (0, Instant::now());
    while !handles.iter().all(|handle| handle.is_finished()) {
        std::thread::sleep(Duration::from_millis(20));
        if began.elapsed() > time {
            shared.over.store(true, Ordering::Relaxed);
        }
        let progress = shared.progress.iter();
        let now = progress.map(|p| p.steps.load(Ordering::Relaxed)).sum();
        if now != steps {
            (steps, moved) = (now, Instant::now());
        }
        // The threads stay behind: nothing can end them but the end of the process.
        assert!(moved.elapsed() < STALL, "{}", standing(&shared, &handles));
    }
    println!("{threads} threads, {steps} steps in {:?}", began.elapsed());
    let join = |handle: std::thread::JoinHandle<R>| match handle.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    handles.into_iter().map(join).collect()
}

fn standing<R>(shared: &Shared, handles: &[std::thread::JoinHandle<R>]) -> String {
    let mut text = format!("deadlock: no thread got further in {STALL:?}");
    for (number, progress) in shared.progress.iter().enumerate() {
        if !handles[number].is_finished() {
            let doing = progress.doing.lock().unwrap();
            text += &format!("\n  thread {number} waits in: {doing}");
        }
    }
    text
}
