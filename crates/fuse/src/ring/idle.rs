//! Idle polling: processors that stay awake between requests which follow each other closely.
//!
//! A program that waits for an answer is often woken on another processor, which is idle. In a
//! virtual machine an idle processor halts. To wake one that has halted costs more than the
//! request: the hypervisor has to be entered and to give the processor back. The kernel has a
//! remedy, [halt polling in the guest](https://docs.kernel.org/virt/guest-halt-polling.html), which
//! is often off. Where it is, a thread on each processor does the same from here, at the priority
//! `SCHED_IDLE`: it gives way to everything else. It polls while requests come, and a moment more.
//!
//! Where processors have idle states of their own, or are many, there are no such threads: what
//! they would save is little, and what they would use much.
#![allow(unsafe_code)]

use crossbeam_utils::CachePadded;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

static TURNS: LockClass = LockClass::new("fuse idle polling", Rank::Leaf);

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

/// What the kernel itself does with idle processors.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const GUEST_POLLS: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// What keeps the processors of one mount awake.
#[derive(Debug)]
pub(super) struct IdlePolling {
    /// Requests that came on each processor.
    beats: Box<[CachePadded<AtomicU64>]>,
    /// Whether a thread waits to be told of the next burst.
    asleep: AtomicBool,
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    /// Bursts that began.
    begun: u64,
    is_over: bool,
}

impl IdlePolling {
    /// Makes one for the `processors` of this machine, if it pays there.
    pub(super) fn where_it_pays(processors: usize) -> Option<Arc<Self>> {
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        let all = (2..=FEW).contains(&processors) && usable == processors;
        (all && halts(Path::new(DRIVER), Path::new(GUEST_POLLS))).then(|| Self::new(processors))
    }

    fn new(processors: usize) -> Arc<Self> {
        Arc::new(Self {
            beats: (0..processors).map(|_| CachePadded::default()).collect(),
            asleep: AtomicBool::new(false),
            turns: Mutex::new(&TURNS, Turns::default()),
            changed: Condvar::new(),
        })
    }

    /// Returns what tells of the requests of one processor.
    pub(super) fn pulse(self: &Arc<Self>, processor: u16) -> Pulse {
        Pulse {
            polling: Arc::clone(self),
            processor: usize::from(processor),
            last: Instant::now(),
            burst: 0,
        }
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
                let mut turns = self.turns.lock();
                if !turns.is_over {
                    self.changed.wait_for(&mut turns, RESTS);
                }
            }
        }
    }

    /// Waits until another burst than the one of this number has begun. `None` when it is over.
    fn next_burst(&self, seen: u64) -> Option<u64> {
        let mut turns = self.turns.lock();
        while !turns.is_over && turns.begun == seen {
            self.asleep.store(true, Relaxed);
            self.changed.wait(&mut turns);
        }
        (!turns.is_over).then_some(turns.begun)
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

    fn wake(&self) {
        let mut turns = self.turns.lock();
        // Changed with the lock only.
        if self.asleep.load(Relaxed) {
            self.asleep.store(false, Relaxed);
            turns.begun += 1;
            self.changed.notify_all();
        }
    }
}

/// Tells of the requests that come on one processor.
#[derive(Debug)]
pub(super) struct Pulse {
    polling: Arc<IdlePolling>,
    processor: usize,
    last: Instant,
    /// Requests that came closely after each other.
    burst: u32,
}

impl Pulse {
    /// Notes a request.
    pub(super) fn beat(&mut self) {
        if let Some(beats) = self.polling.beats.get(self.processor) {
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
        self.polling.turns.lock().is_over = true;
        self.polling.changed.notify_all();
    }
}

/// Tells whether idle processors halt at once: there is no driver with idle states, or it is the
/// one for guests, and told not to poll.
fn halts(driver: &Path, guest_polls: &Path) -> bool {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    match read(driver).trim() {
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
        let (driver, polls) = (dir.path().join("driver"), dir.path().join("polls"));
        assert!(halts(&driver, &polls), "a machine without idle states");
        let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
        for (name, expected) in [
            ("none\n", true),
            ("intel_idle\n", false),
            ("acpi_idle\n", false),
        ] {
            write(&driver, name);
            assert_eq!(halts(&driver, &polls), expected, "{name}");
        }
        write(&driver, "haltpoll\n");
        write(&polls, "0\n");
        assert!(halts(&driver, &polls), "the kernel is told not to poll");
        write(&polls, "200000\n");
        assert!(!halts(&driver, &polls), "the kernel polls");
    }

    /// Waits until a thread polls or sleeps, as `asleep` says.
    fn until(polling: &IdlePolling, asleep: bool) {
        let since = Instant::now();
        while polling.asleep.load(Relaxed) != asleep {
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "asleep: {}",
                !asleep
            );
            thread::yield_now();
        }
    }

    #[test]
    fn polls_during_bursts_and_ends_with_the_mount() {
        let polling = IdlePolling::new(2);
        let mut pulses = [polling.pulse(0), polling.pulse(1)];
        let threads = [(); 2].map(|()| {
            let polling = Arc::clone(&polling);
            thread::spawn(move || polling.run())
        });
        for round in 0..3 {
            until(&polling, true);
            for pulse in &mut pulses {
                // A program that asks now and then is let sleep.
                for _ in 0..2 * BURST {
                    pulse.burst = 0;
                    pulse.beat();
                }
                assert!(polling.asleep.load(Relaxed), "round {round}");
            }
            let begun = polling.turns.lock().begun;
            while polling.turns.lock().begun == begun {
                pulses[round % 2].beat();
            }
            assert!(pulses[round % 2].burst >= BURST);
        }
        drop(pulses);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_pause_ends_a_burst() {
        let polling = IdlePolling::new(2);
        let mut pulse = polling.pulse(1);
        pulse.burst = BURST;
        pulse.last = pulse.last.checked_sub(AWAKE).unwrap();
        pulse.beat();
        assert_eq!(pulse.burst, 0);
        assert_eq!(polling.sum(), 1);
        // Without requests it is over at once.
        assert!(polling.poll().is_continue());
    }
}
