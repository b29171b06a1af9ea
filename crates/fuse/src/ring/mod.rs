//! Requests through io_uring (Linux 6.14 and later): each processor's come to a thread that stays
//! on it, and an answer and the next request are one system call.
//!
//! Waking a thread on another processor costs more than most answers do. Here the program that asks
//! and the thread that answers take turns on one processor. So that nobody waits for somebody
//! else's slow request, those that may take long are offloaded to worker threads.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | whether there are rings, and how many |
//! | `memory` | what the kernel writes requests to and reads answers from |
//! | `commands` | what a thread tells the kernel, and how it waits for what comes |
//! | `inbox` | what other threads hand to such a thread |
//! | `queue` | the thread of one processor |
//! | `transfers` | threads that answer large transfers and give the answers to the kernel |
//! | `reads` | threads that do so with small reads which come several at a time |
//! | `offload` | requests that other threads answer, and the workers for those that may take long |
//! | `idle` | processors that stay awake between requests |
//!
//! Forgotten nodes and interrupts come by the [device](crate::kernel) all the same, and so does
//! everything if the system refuses any of the calls that rings take, which is tried before the
//! kernel is promised any, or if the kernel refuses what a ring is registered with. A ring that
//! fails later ends the mount: nobody else is asked what is asked on its processor.
//!
//! The rings are made before a process is confined, which cannot make any; each does two kinds of
//! work on two files only, commands to the mount and waiting for its event, and the kernel refuses
//! it all others.

mod commands;
mod idle;
mod inbox;
mod memory;
mod offload;
mod queue;
mod reads;
mod transfers;

use crate::answer::Answerer;
use crate::notifier::Notifier;
use crate::threads::{Threads, WriteBackThread};
use commands::Commands;
use idle::IdlePolling;
use offload::{Beside, Homes, Offload};
use queue::Queue;
use reads::{ReadThread, Reads};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use transfers::{TransferThread, Transfers};

/// Whether the kernel may offer it: a setting that only root can make.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
/// Processors that there may be: the kernel has a queue for each.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Requests that one processor's queue can have under way.
const DEPTH: usize = 8;
/// Requests more that it can have because others wait for the kernel.
const MORE: usize = 56;
/// Threads for small reads that come several at a time, at most.
const READERS: usize = 4;
/// Memory for all of it at most. It is taken when it is used, but counts against limits before.
const MOST_MEMORY: u64 = 256 << 20;

/// Rings that are ready: one for each processor, and those of the threads beside.
#[derive(Debug)]
pub(crate) struct Rings {
    queues: Vec<Queue>,
    /// By processor.
    transfers: Vec<TransferThread>,
    /// None where there is one processor only.
    reads: Vec<ReadThread>,
    /// Where it pays.
    idle: Option<Arc<IdlePolling>>,
}

/// Why requests come by the device, though they were to come through io_uring. Displays as a
/// sentence for people.
#[derive(Debug, thiserror::Error)]
pub enum MissingRings {
    /// Root has not allowed the kernel to offer them.
    #[error(
        "this kernel answers faster through io_uring once root has allowed it, which holds for mounts that are made \
         after: `echo Y > {ENABLED}` (-o no_io_uring: this one is to do without)"
    )]
    NotAllowed,
    /// The kernel knows no such thing.
    #[error("this kernel passes no requests on through io_uring: Linux 6.14 and later can")]
    Unknown,
    /// The kernel offers it, and did not take it up for this mount.
    #[error("this kernel did not agree to pass requests of this mount on through io_uring")]
    NotAgreed,
    /// The memory is too little for so many processors.
    #[error(
        "{processors} processors would take more memory for requests through io_uring than the mount has (-o memory=)"
    )]
    Memory {
        /// Processors that there may be.
        processors: usize,
    },
    /// The system makes no rings.
    #[error(
        "requests of this mount do not come through io_uring, as the system refuses it ({0}): \
         /proc/sys/kernel/io_uring_disabled or the filter of a container may say so (-o no_io_uring: this one is to do \
         without)"
    )]
    Refused(io::Error),
}

impl Rings {
    /// Makes rings for transfers of so many bytes at most. Their slots take no more than an eighth
    /// of `memory` bytes; threads and rings are not counted. With `few`, fewer requests of a
    /// processor under way than do good are enough.
    ///
    /// # Errors
    /// When the kernel does not offer to use them, or the system makes none.
    pub(crate) fn prepare(largest: u32, memory: u64, few: bool) -> Result<Self, MissingRings> {
        if !Path::new(ENABLED).exists() {
            // The module may not be loaded yet. What is wrong shows when the mount is made.
            let _ = std::fs::File::open("/dev/fuse");
        }
        let enabled = std::fs::read_to_string(ENABLED).map_err(|_| MissingRings::Unknown)?;
        if !matches!(enabled.trim(), "Y" | "1") {
            return Err(MissingRings::NotAllowed);
        }
        let possible = std::fs::read_to_string(POSSIBLE).map_err(MissingRings::Refused)?;
        let processors = count(&possible).ok_or(MissingRings::Unknown)?;
        let budget = MOST_MEMORY.min(memory / 8) / 2 / u64::from(largest);
        let each = usize::try_from(budget).unwrap_or(usize::MAX) / processors.max(1);
        if each < if few { 1 } else { DEPTH } {
            return Err(MissingRings::Memory { processors });
        }
        Commands::try_out().map_err(MissingRings::Refused)?;
        let depth = (each.min(DEPTH), each.min(MORE));
        let queues = (0..processors)
            .map(|number| {
                // The kernel has no more.
                let number = u16::try_from(number).map_err(io::Error::other)?;
                Queue::new(number, depth, largest as usize)
            })
            .collect::<io::Result<_>>()
            .map_err(MissingRings::Refused)?;
        let transfers: Vec<_> = (0..processors)
            .map(|_| TransferThread::new())
            .collect::<io::Result<_>>()
            .map_err(MissingRings::Refused)?;
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        let readers = if usable > 1 { usable.min(READERS) } else { 0 };
        let slots = processors.div_ceil(readers.max(1)) * (depth.0 + depth.1);
        let reads: Vec<_> = (0..readers)
            .map(|_| ReadThread::new(slots))
            .collect::<io::Result<_>>()
            .map_err(MissingRings::Refused)?;
        let idle = IdlePolling::where_it_pays(processors, usable, transfers.len() + reads.len());
        Ok(Self {
            queues,
            transfers,
            reads,
            idle,
        })
    }

    /// Says which mount they are for, and has them do nothing else from now on. Call it before
    /// anything is agreed upon with the kernel, which waits for rings that it was promised.
    ///
    /// # Errors
    /// When the system does not take it.
    pub(crate) fn attach(self, device: BorrowedFd<'_>) -> Result<Self, MissingRings> {
        let queues = self.queues.iter().map(|queue| &queue.commands);
        let transfers = self.transfers.iter().map(|thread| &thread.commands);
        let reads = self.reads.iter().map(|thread| &thread.commands);
        let attached = queues
            .chain(transfers)
            .chain(reads)
            .try_for_each(|commands| commands.attach(device));
        attached.map_err(MissingRings::Refused)?;
        Ok(self)
    }
}

/// Starts a thread for each of the `rings`, as many as `workers` for each kind of request that may
/// take long, and those that keep processors awake.
///
/// # Errors
/// When the system has no thread for one.
pub(crate) fn serve(
    rings: Rings,
    answerer: &Answerer,
    (notifier, writeback): (&Notifier, WriteBackThread),
    workers: usize,
    threads: &mut Threads,
) -> io::Result<()> {
    let inbox = |commands: &Commands| Arc::clone(commands.inbox());
    let beside = Beside {
        transfers: Transfers::new(rings.transfers.iter().map(|thread| inbox(&thread.commands))),
        reads: Reads::new(rings.reads.iter().map(|thread| inbox(&thread.commands))),
        homes: Homes::new(rings.queues.iter().map(|queue| inbox(&queue.commands))),
    };
    let offload = Arc::new(Offload::new(answerer, notifier, writeback, beside));
    for (kind, jobs) in offload.jobs() {
        for number in 0..workers {
            let jobs = Arc::clone(&jobs);
            threads.start(format!("extant-{kind}-{number}"), move || {
                jobs.run();
                Ok(())
            })?;
        }
    }
    let mut pulses = rings.idle.as_ref().map(IdlePolling::pulses);
    let mut next_pulse = || pulses.as_mut().and_then(Iterator::next);
    for (processor, thread) in (0..).zip(rings.transfers) {
        let (answerer, beside) = (answerer.clone(), offload.beside());
        let pulse = next_pulse();
        threads.start(format!("extant-move-{processor}"), move || {
            let shared = (&beside.transfers, &beside.homes);
            thread.run(processor, &answerer, shared, pulse)
        })?;
    }
    for (number, thread) in rings.reads.into_iter().enumerate() {
        let (answerer, beside) = (answerer.clone(), offload.beside());
        let pulse = next_pulse();
        threads.start(format!("extant-read-{number}"), move || {
            thread.run(&answerer, (&beside.reads, &beside.homes), pulse)
        })?;
    }
    for queue in rings.queues {
        let number = queue.number();
        let pulse = next_pulse();
        if let Some(idle) = rings.idle.clone() {
            // Nobody waits for its end: it gives way to all others, for however long.
            let thread = std::thread::Builder::new().name(format!("extant-idle-{number}"));
            let started = thread.spawn(move || {
                if stay_on(number) {
                    idle.run();
                }
            });
            if let Err(e) = started {
                tracing::warn!("no thread keeps processor {number} awake: {e}");
            }
        }
        let (answerer, offload) = (answerer.clone(), Arc::clone(&offload));
        threads.start(format!("extant-ring-{number}"), move || {
            // Of a processor that is not there nothing comes.
            stay_on(number);
            queue.run(&answerer, &offload, pulse)
        })?;
    }
    Ok(())
}

/// Keeps this thread on one processor; `false` if it is not there, or not for us.
fn stay_on(processor: u16) -> bool {
    let mut only = CpuSet::new();
    let number = usize::from(processor);
    number < CpuSet::MAX_CPU && {
        only.set(number);
        sched_setaffinity(None, &only).is_ok()
    }
}

/// Counts the processors that a list such as `0-3,8` names.
fn count(list: &str) -> Option<usize> {
    list.trim().split(',').try_fold(0_usize, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count("3-0"), None);
        assert_eq!(count(""), None);
        assert_eq!(count("0-18446744073709551615"), None);
    }
}
