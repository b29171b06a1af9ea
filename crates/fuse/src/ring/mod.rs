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
//! | `queue` | the thread of one processor |
//! | `offload` | requests that may take long, and the worker threads that answer them |
//!
//! Forgotten nodes and interrupts come by the [device](crate::kernel) all the same, and so does
//! everything if the kernel refuses what a ring is registered with. A ring that fails later ends
//! the mount: nobody else is asked what is asked on its processor.
//!
//! The rings are made before a process is confined, which cannot make any; each does two kinds of
//! work on two files only, commands to the mount and waiting for its event, and the kernel refuses
//! it all others.

mod memory;
mod offload;
mod queue;

use crate::answer::Answerer;
use crate::awake::Awake;
use crate::notifier::Notifier;
use crate::threads::{Threads, WriteBackThread};
use offload::Offload;
use queue::Queue;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Whether the kernel may offer it: a setting that only root can make.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
/// Processors that there may be: the kernel has a queue for each.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Requests that one processor's queue can have under way.
const DEPTH: usize = 8;
/// Requests more that it can have because others wait for the kernel.
const MORE: usize = 56;
/// Memory for all of it at most. It is taken when it is used, but counts against limits before.
const MOST_MEMORY: u64 = 256 << 20;

/// Rings that are ready, one for each processor.
#[derive(Debug)]
pub(crate) struct Rings {
    queues: Vec<Queue>,
}

impl Rings {
    /// Makes rings for transfers of so many bytes at most, where the kernel may take them. They
    /// take no more than an eighth of `memory` bytes.
    pub(crate) fn prepare(largest: u32, memory: u64) -> Option<Self> {
        let enabled = std::fs::read_to_string(ENABLED).ok()?;
        if !matches!(enabled.trim(), "Y" | "1") {
            return None;
        }
        let cpus = count(&std::fs::read_to_string(POSSIBLE).ok()?)?;
        let budget = usize::try_from(MOST_MEMORY.min(memory / 8)).ok()?;
        let each = budget / 2 / largest as usize / cpus;
        if each == 0 {
            return None;
        }
        let depth = (each.min(DEPTH), each.min(MORE));
        let awake = Awake::among(cpus);
        let queues = (0..cpus)
            .map(|number| {
                let number = u16::try_from(number).ok()?;
                Queue::new(number, depth, largest as usize, awake.clone()).ok()
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self { queues })
    }

    /// Says which mount they are for, and has them do nothing else from now on.
    ///
    /// # Errors
    /// When the system does not take it.
    pub(crate) fn attach(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        self.queues
            .iter()
            .try_for_each(|queue| queue.attach(device))
    }
}

/// Starts a thread for each of the `rings`, and as many as `workers` for each kind of request that
/// may take long.
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
    let offload = Arc::new(Offload::new(answerer, notifier, writeback));
    for (kind, jobs) in offload.jobs() {
        for number in 0..workers {
            let jobs = Arc::clone(&jobs);
            threads.start(format!("extant-{kind}-{number}"), move || {
                jobs.run();
                Ok(())
            })?;
        }
    }
    for queue in rings.queues {
        let (answerer, offload) = (answerer.clone(), Arc::clone(&offload));
        let name = format!("extant-ring-{}", queue.number());
        threads.start(name, move || queue.run(&answerer, &offload))?;
    }
    Ok(())
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
