//! Idle polling: processors that stay awake between requests which follow each other closely.
//!
//! A program that waits for an answer is often woken on another processor, which is idle. In a
//! virtual machine an idle processor halts. To wake one that has halted costs more than the
//! request: the hypervisor has to be entered and to give the processor back. The kernel has a
//! remedy, [halt polling in the guest](https://docs.kernel.org/virt/guest-halt-polling.html), which
//! is often off. Where it is, a thread on each processor does the same from here, at the priority
//! `SCHED_IDLE`: everything in its session or control group goes first. It polls while requests
//! come, and a moment more.
//!
//! Where processors have idle states of their own, or are many, there are no such threads: what
//! they would save is little, and what they would use much. Nor are there any for one processor, or
//! where the process may not use all of them.
#![allow(unsafe_code)]

use crossbeam_utils::CachePadded;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

static BURSTS: LockClass = LockClass::new("fuse idle polling", Rank::Leaf);

/// Most processors that are kept awake.
const FEW: usize = 4;
/// How long a processor stays awake after a request. Requests that are closer together than this
/// are one burst.
const AWAKE: Duration = Duration::from_micros(100);
/// Requests of a burst before processors stay awake: fewer do not pay for waking them once.
const BURST: u32 = 8;
/// A thread that got its processor back no sooner than this has company that needs it, and gives
/// way entirely for a while: priorities hold within one session or control group only.
const CROWDED: Duration = Duration::from_millis(1);
const RESTS: Duration = Duration::from_millis(50);

/// Says whether the processors are a virtual machine's, and what the kernel itself does with idle
/// ones.
const PROCESSORS: &str = "/proc/cpuinfo";
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const GUEST_POLLS: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// What keeps the processors of one mount awake.
#[derive(Debug)]
pub(super) struct IdlePolling {
    /// Requests that came to each thread with a ring: those of the processors, and others.
    beats: Box<[CachePadded<AtomicU64>]>,
    /// Whether a thread waits to be told of the next burst.
    asleep: AtomicBool,
    is_over: AtomicBool,
    /// Bursts that began.
    begun: Mutex<u64>,
    changed: Condvar,
}

impl IdlePolling {
    /// Makes one for a machine with these processors, of which so many are usable, if it pays
    /// there. There are so many rings beside those of the processors.
    pub(super) fn where_it_pays(
        processors: usize,
        usable: usize,
        others: usize,
    ) -> Option<Arc<Self>> {
        let all = (2..=FEW).contains(&processors) && usable == processors;
        let paths = [PROCESSORS, DRIVER, GUEST_POLLS].map(Path::new);
        (all && halts(paths)).then(|| Self::new(processors + others))
    }

    fn new(rings: usize) -> Arc<Self> {
        Arc::new(Self {
            beats: (0..rings).map(|_| CachePadded::default()).collect(),
            asleep: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            begun: Mutex::new(&BURSTS, 0),
            changed: Condvar::new(),
        })
    }

    /// Returns what tells of the requests that come to each ring.
    pub(super) fn pulses(self: &Arc<Self>) -> impl Iterator<Item = Pulse> + use<> {
        let polling = Arc::clone(self);
        (0..self.beats.len()).map(move |ring| Pulse {
            polling: Arc::clone(&polling),
            ring,
            last: Instant::now(),
            burst: 0,
        })
    }

    /// Polls on the processor of this thread while requests come, until a [`Pulse`] is gone: a
    /// mount is over with the first of its rings.
    pub(super) fn run(&self) {
        // Without that priority it would keep others from the processor.
        if !give_way_to_all() {
            return;
        }
        let mut seen = 0;
        while let Some(begun) = self.next_burst(seen) {
            seen = begun;
            if self.poll().is_break() {
                self.rest();
            }
        }
    }

    /// Waits until another burst than the one of this number has begun. `None` when it is over.
    fn next_burst(&self, seen: u64) -> Option<u64> {
        let mut begun = self.begun.lock();
        while !self.is_over.load(Relaxed) && *begun == seen {
            self.asleep.store(true, Relaxed);
            self.changed.wait(&mut begun);
        }
        (!self.is_over.load(Relaxed)).then_some(*begun)
    }

    /// Leaves the processor alone for a while, whatever begins.
    fn rest(&self) {
        let end = Instant::now() + RESTS;
        let mut begun = self.begun.lock();
        while !self.is_over.load(Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.changed.wait_for(&mut begun, left);
        }
    }

    /// Stays awake until no request has come for a while; breaks off if others need the processor.
    fn poll(&self) -> ControlFlow<()> {
        let mut beats = self.sum();
        let mut looked = Instant::now();
        let mut since = looked;
        loop {
            // To read the clock takes long enough to leave the memory to others.
            let now = Instant::now();
            if now - looked >= CROWDED {
                return ControlFlow::Break(());
            }
            looked = now;
            let sum = self.sum();
            if sum != beats {
                beats = sum;
                since = now;
            } else if now - since >= AWAKE {
                return ControlFlow::Continue(());
            }
        }
    }

    fn sum(&self) -> u64 {
        let beats = self.beats.iter().map(|beats| beats.load(Relaxed));
        beats.fold(0, u64::wrapping_add)
    }

    /// Has the threads that sleep poll. Does nothing where one of them is about to sleep and has no
    /// processor for that: whoever answers requests does not wait for it.
    fn wake(&self) {
        let Some(mut begun) = self.begun.try_lock() else {
            return;
        };
        // Changed with the lock only.
        if self.asleep.load(Relaxed) {
            self.asleep.store(false, Relaxed);
            *begun += 1;
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        if self.is_over.load(Relaxed) {
            return;
        }
        // With the lock: a thread is not between looking and waiting. One that has no processor
        // there holds up the end of the mount once, and no request.
        let _begun = self.begun.lock();
        self.is_over.store(true, Relaxed);
        self.changed.notify_all();
    }
}

/// Tells of the requests that come to one ring.
#[derive(Debug)]
pub(super) struct Pulse {
    polling: Arc<IdlePolling>,
    ring: usize,
    last: Instant,
    /// Requests that came closely after each other.
    burst: u32,
}

impl Pulse {
    /// Notes a request.
    pub(super) fn beat(&mut self) {
        if let Some(beats) = self.polling.beats.get(self.ring) {
            // Nobody else writes it.
            beats.store(beats.load(Relaxed).wrapping_add(1), Relaxed);
        }
        let now = Instant::now();
        let is_close = now - self.last < AWAKE;
        self.burst = if is_close {
            self.burst.saturating_add(1)
        } else {
            0
        };
        self.last = now;
        if self.burst >= BURST && self.polling.asleep.load(Relaxed) {
            self.polling.wake();
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.polling.end();
    }
}

/// Tells whether idle processors halt at once: there is a hypervisor (the flag of that name of
/// x86), and no driver with idle states, or the one for guests, which is told not to poll.
fn halts([processors, driver, guest_polls]: [&Path; 3]) -> bool {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let is_flag = |line: &str| line.starts_with("flags");
    let processors = read(processors);
    let mut flags = processors.lines().find(|line| is_flag(line)).into_iter();
    let is_guest = flags.any(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
    is_guest
        && match read(driver).trim() {
            "" | "none" => true,
            "haltpoll" => read(guest_polls).trim() == "0",
            _ => false,
        }
}

/// Gives this thread the lowest priority; `false` if the system refuses it.
fn give_way_to_all() -> bool {
    let parameter: libc::c_int = 0;
    // SAFETY: it is this thread, and the kernel only reads the parameter. The function of some C
    // libraries refuses it always.
    unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_IDLE,
            &raw const parameter,
        ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn polls_where_nothing_else_keeps_processors_awake() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["cpuinfo", "driver", "polls"].map(|name| dir.path().join(name));
        let [cpuinfo, driver, polls] = &paths;
        let halts = || halts([cpuinfo, driver, polls]);
        let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
        assert!(!halts(), "nothing is known of the processors");
        write(cpuinfo, "processor\t: 0\nflags\t\t: fpu rdrand lahf_lm\n");
        assert!(!halts(), "no hypervisor");
        write(
            cpuinfo,
            "processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n",
        );
        assert!(halts(), "a machine without idle states");
        for (name, expected) in [
            ("none\n", true),
            ("intel_idle\n", false),
            ("acpi_idle\n", false),
        ] {
            write(driver, name);
            assert_eq!(halts(), expected, "{name}");
        }
        write(driver, "haltpoll\n");
        write(polls, "0\n");
        assert!(halts(), "the kernel is told not to poll");
        write(polls, "200000\n");
        assert!(!halts(), "the kernel polls");
    }

    /// Waits until this holds.
    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let since = Instant::now();
        while !holds() {
            assert!(since.elapsed() < Duration::from_secs(60), "{what}");
            thread::yield_now();
        }
    }

    #[test]
    fn bursts_wake_and_pauses_do_not() {
        let polling = IdlePolling::new(2);
        let mut pulses: Vec<_> = polling.pulses().collect();
        let threads = [(); 2].map(|()| {
            let polling = Arc::clone(&polling);
            thread::spawn(move || polling.run())
        });
        let begun = || *polling.begun.lock();
        for round in 0..3 {
            until("asleep", || polling.asleep.load(Relaxed));
            let before = begun();
            // A program that asks now and then lets the processors sleep.
            for pulse in &mut pulses {
                for _ in 0..2 * BURST {
                    pulse.last = pulse.last.checked_sub(AWAKE).unwrap();
                    pulse.beat();
                }
            }
            assert_eq!(begun(), before, "round {round}");
            until("a burst", || {
                pulses[round % 2].beat();
                begun() > before
            });
        }
        drop(pulses);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_thread_polls_as_long_as_requests_come() {
        let polling = IdlePolling::new(1);
        let mut pulse = polling.pulses().next().unwrap();
        // Where the machine takes the processor away for long, it breaks off: that is tried again.
        until("it polls while requests come", || {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let polls = scope.spawn(|| {
                    let ended = polling.poll();
                    over.store(true, Relaxed);
                    ended
                });
                let since = Instant::now();
                let mut beats = 0_u64;
                while !over.load(Relaxed) && since.elapsed() < 20 * AWAKE {
                    pulse.beat();
                    beats += 1;
                }
                let lasted = !over.load(Relaxed) && beats > 0;
                // Without requests it is over soon.
                polls.join().unwrap().is_continue() && lasted
            })
        });
    }

    #[test]
    fn a_rest_lasts_whatever_begins() {
        let polling = IdlePolling::new(1);
        let since = Instant::now();
        thread::scope(|scope| {
            let rests = scope.spawn(|| {
                polling.rest();
                since.elapsed()
            });
            while !rests.is_finished() {
                polling.changed.notify_all();
                thread::yield_now();
            }
            assert!(rests.join().unwrap() >= RESTS);
        });
        polling.end();
        until("no rest at the end", || {
            let since = Instant::now();
            polling.rest();
            since.elapsed() < RESTS
        });
    }
}
