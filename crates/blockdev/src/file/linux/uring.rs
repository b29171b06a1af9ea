//! Transfers through io_uring: many at once, with one system call.
//!
//! A [`Rings`] keeps rings that nobody uses. A thread that has something to do takes one for the
//! time that takes, so no two threads share a ring and no lock is held while the device works.
//! Files are registered with each ring, so that the kernel does not look them up with each
//! transfer; buffers are not: they belong to callers and come and go.
//!
//! # Invariants
//!
//! - [`Rings::run`] returns, or unwinds, only when the kernel has nothing of what it was given:
//!   buffers are borrowed for that long.
//! - A ring that may have something left in it is closed, not kept.
#![allow(unsafe_code)]

use super::jobs::{Job, Outcome, Through};
use extant_sync::{LockClass, Mutex, Rank};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

static RINGS: LockClass = LockClass::new("io_uring rings", Rank::Leaf);

/// Transfers of one ring that are under way at most.
const DEPTH: u32 = 64;
/// Rings that are kept for later.
const KEPT: usize = 16;
/// Bytes of one transfer at most; the rest follows.
const MOST: usize = 1 << 30;

/// The operations that are asked for.
const USED: [u8; 5] = [
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
];

/// Rings for the same files.
#[derive(Debug)]
pub(super) struct Rings {
    /// The file, and the same for direct transfers.
    files: Vec<i32>,
    idle: Mutex<Vec<Ring>>,
}

/// One ring, to be printed.
struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ring")
    }
}

impl Rings {
    /// Rings for a file, and the same opened for direct transfers. Both must stay open for as long.
    ///
    /// # Errors
    /// When the system has no io_uring, or not for us.
    pub(super) fn new(file: &File, direct: Option<&File>) -> io::Result<Self> {
        let files = std::iter::once(file).chain(direct);
        let rings = Self {
            files: files.map(AsRawFd::as_raw_fd).collect(),
            idle: Mutex::new(&RINGS, Vec::new()),
        };
        // What does not work now never will.
        let ring = rings.open()?;
        let mut known = Probe::new();
        ring.submitter().register_probe(&mut known)?;
        // Linux has had them since 5.6 only.
        if !USED.iter().all(|&code| known.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        rings.idle.lock().push(Ring(ring));
        Ok(rings)
    }

    fn open(&self) -> io::Result<IoUring> {
        let ring = IoUring::new(DEPTH)?;
        ring.submitter().register_files(&self.files)?;
        Ok(ring)
    }

    /// Does all `jobs`. They may be done in any order and must not overlap, but for barriers. Each
    /// one's outcome goes to `ended`, with its number, which says whether it succeeded after all.
    ///
    /// # Errors
    /// When there is no ring: nothing was done.
    pub(super) fn run(
        &self,
        through: Through,
        jobs: &mut [Job<'_, '_>],
        mut ended: impl FnMut(usize, &mut Job<'_, '_>, Outcome) -> bool,
    ) -> io::Result<()> {
        let kept = self.idle.lock().pop();
        let mut ring = match kept {
            Some(Ring(ring)) => ring,
            None => self.open()?,
        };
        let mut run = Run {
            jobs,
            waiting: VecDeque::new(),
            under_way: 0,
            is_flushing: false,
            over: Vec::new(),
            failed: false,
            cancelled: false,
        };
        run.over.resize(run.jobs.len(), false);
        run.waiting.extend(0..run.jobs.len());
        let all = AssertUnwindSafe(|| run.all(&mut ring, through, &mut ended));
        let clean = catch_unwind(all).unwrap_or_else(|panic| {
            run.wait_until_idle(&mut ring);
            resume_unwind(panic)
        });
        if clean {
            let mut idle = self.idle.lock();
            if idle.len() < KEPT {
                idle.push(Ring(ring));
            }
        }
        Ok(())
    }
}

/// Jobs being done.
struct Run<'r, 'b, 's> {
    jobs: &'r mut [Job<'b, 's>],
    /// Numbers of those that are not begun, or to be begun again.
    waiting: VecDeque<usize>,
    /// How many were given to the ring, and have not ended.
    under_way: usize,
    /// What is under way is a barrier.
    is_flushing: bool,
    /// Which have ended, and their outcome was told.
    over: Vec<bool>,
    failed: bool,
    /// A barrier failed: nothing more is begun.
    cancelled: bool,
}

impl<'b, 's> Run<'_, 'b, 's> {
    /// Does them. Whether nothing is left in the ring; in the kernel there is nothing left in any
    /// case.
    fn all(
        &mut self,
        ring: &mut IoUring,
        through: Through,
        ended: &mut impl FnMut(usize, &mut Job<'b, 's>, Outcome) -> bool,
    ) -> bool {
        loop {
            self.begin(ring, through, ended);
            if self.under_way == 0 {
                return true;
            }
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if is_passing(&e) => {}
                Err(e) => {
                    self.give_up(ring, &e, ended);
                    return false;
                }
            }
            self.reap(ring, ended);
        }
    }

    /// Gives the ring what there is room for and no barrier forbids.
    fn begin(
        &mut self,
        ring: &mut IoUring,
        through: Through,
        ended: &mut impl FnMut(usize, &mut Job<'b, 's>, Outcome) -> bool,
    ) {
        while self.under_way < DEPTH as usize && !self.is_flushing {
            let Some(number) = self.waiting.front().copied() else {
                return;
            };
            let is_barrier = matches!(self.jobs[number], Job::Flush);
            if is_barrier && self.under_way > 0 {
                return;
            }
            if self.cancelled || is_barrier && self.failed {
                for number in std::mem::take(&mut self.waiting) {
                    self.over[number] = true;
                    ended(number, &mut self.jobs[number], Outcome::Cancelled);
                }
                return;
            }
            let entry = entry(&mut self.jobs[number], through).user_data(number as u64);
            // SAFETY: the entry points to the buffers of a job, or to slices of buffers, which are
            // borrowed for as long as `self.jobs` is, and what is written to exclusively. Nothing
            // else touches them until the job has ended: `under_way` counts it, and neither `all`
            // nor what it calls returns before the kernel has ended what it was given. The files
            // are open: `Rings` says so.
            let pushed = unsafe { ring.submission().push(&entry) };
            if pushed.is_err() {
                return;
            }
            self.waiting.pop_front();
            self.under_way += 1;
            self.is_flushing = is_barrier;
        }
    }

    /// Takes in what has ended.
    fn reap(
        &mut self,
        ring: &mut IoUring,
        ended: &mut impl FnMut(usize, &mut Job<'b, 's>, Outcome) -> bool,
    ) {
        for entry in ring.completion() {
            let number = entry.user_data() as usize;
            self.under_way -= 1;
            // A barrier is alone.
            self.is_flushing = false;
            let outcome = match usize::try_from(entry.result()) {
                Ok(moved) => Outcome::Moved(moved),
                Err(_) => Outcome::Failed(io::Error::from_raw_os_error(-entry.result())),
            };
            if matches!(&outcome, Outcome::Failed(e) if is_passing(e)) {
                // Before whatever waits for a barrier.
                self.waiting.push_front(number);
                continue;
            }
            self.over[number] = true;
            let has_failed = !ended(number, &mut self.jobs[number], outcome);
            self.failed |= has_failed;
            self.cancelled |= has_failed && matches!(self.jobs[number], Job::Flush);
        }
    }

    /// Waits until the kernel has nothing any more, and tells nobody how it ended. What it has not
    /// taken goes with the ring.
    fn wait_until_idle(&mut self, ring: &mut IoUring) {
        let untaken = ring.submission().len();
        loop {
            self.under_way -= ring.completion().count().min(self.under_way);
            if self.under_way <= untaken {
                return;
            }
            wait_for_one(ring);
        }
    }

    /// The ring takes nothing more. Waits for what the kernel has, and ends everything.
    fn give_up(
        &mut self,
        ring: &mut IoUring,
        why: &io::Error,
        ended: &mut impl FnMut(usize, &mut Job<'b, 's>, Outcome) -> bool,
    ) {
        // What the kernel has not taken goes with the ring.
        let untaken = ring.submission().len();
        while self.under_way > untaken {
            self.reap(ring, ended);
            if self.under_way > untaken {
                wait_for_one(ring);
            }
        }
        let errno = why.raw_os_error().unwrap_or(0);
        for (number, job) in self.jobs.iter_mut().enumerate() {
            if !self.over[number] {
                let again = io::Error::from_raw_os_error(errno);
                ended(number, job, Outcome::Failed(again));
            }
        }
        self.under_way = 0;
    }
}

/// Waits until the kernel has ended something, and gives it nothing.
fn wait_for_one(ring: &IoUring) {
    /// `IORING_ENTER_GETEVENTS`: some rings have the kernel's work done by the thread that waits,
    /// and by no other.
    const GET_EVENTS: u32 = 1;
    // SAFETY: nothing is submitted, so that no memory is lent, and the argument is none.
    let waited = unsafe { ring.submitter().enter::<()>(0, 1, GET_EVENTS, None) };
    if waited.is_err() {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Whether it means: again.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)
    )
}

/// What the kernel is told to do.
fn entry(job: &mut Job<'_, '_>, through: Through) -> squeue::Entry {
    let file = types::Fixed(through as u32);
    // No more than `MOST`, which fits.
    let len = |len: usize| len.min(MOST) as u32;
    match job {
        Job::Read(at, to) => opcode::Read::new(file, to.as_mut_ptr(), len(to.len()))
            .offset(*at)
            .build(),
        Job::Write(at, from) => opcode::Write::new(file, from.as_ptr(), len(from.len()))
            .offset(*at)
            .build(),
        // These slices have the layout of `iovec`: that is what they are for.
        Job::ReadMany(at, to) => opcode::Readv::new(file, to.as_mut_ptr().cast(), len(to.len()))
            .offset(*at)
            .build(),
        Job::WriteMany(at, from) => {
            opcode::Writev::new(file, from.as_ptr().cast(), len(from.len()))
                .offset(*at)
                .build()
        }
        Job::Flush => opcode::Fsync::new(types::Fixed(Through::Cache as u32))
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_callback_that_panics_unwinds_when_the_kernel_has_given_the_buffers_back() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let Ok(rings) = Rings::new(&file, None) else {
            eprintln!("left out: the system has no io_uring for this test");
            return;
        };
        let is_written = AtomicBool::new(false);
        let mut buffers = [[0; 1]; 2];
        std::thread::scope(|scope| {
            // One of the two reads ends with this, and the other one waits.
            writer.write_all(b"a").unwrap();
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                is_written.store(true, Ordering::SeqCst);
                writer.write_all(b"b").unwrap();
            });
            let mut jobs: Vec<_> = buffers.iter_mut().map(|b| Job::Read(0, b)).collect();
            let run = AssertUnwindSafe(|| {
                rings.run(Through::Cache, &mut jobs, |_, _, _| panic!("on purpose"))
            });
            assert!(catch_unwind(run).is_err());
            assert!(is_written.load(Ordering::SeqCst), "it did not wait");
        });
        buffers.sort_unstable();
        assert_eq!(buffers, [*b"a", *b"b"]);
        assert!(rings.idle.lock().is_empty(), "a ring that was left is kept");
    }

    #[test]
    fn nothing_is_begun_after_a_barrier_that_fails() {
        // A pipe holds nothing that could be made durable.
        let (_reader, writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let Ok(rings) = Rings::new(&file, None) else {
            eprintln!("left out: the system has no io_uring for this test");
            return;
        };
        let mut jobs = [
            Job::Write(0, b"early"),
            Job::Flush,
            Job::Write(0, b"late"),
            Job::Flush,
        ];
        let mut outcomes = Vec::new();
        let run = rings.run(Through::Cache, &mut jobs, |number, _, outcome| {
            let has_moved = matches!(outcome, Outcome::Moved(_));
            outcomes.push((number, outcome));
            has_moved
        });
        run.unwrap();
        assert!(
            matches!(
                outcomes[..],
                [
                    (0, Outcome::Moved(5)),
                    (1, Outcome::Failed(_)),
                    (2, Outcome::Cancelled),
                    (3, Outcome::Cancelled),
                ]
            ),
            "{:?}",
            outcomes
                .iter()
                .map(|(number, _)| number)
                .collect::<Vec<_>>()
        );
    }
}
