//! Requests through io_uring (Linux 6.14 and later): each processor's come to a thread that stays on it, and an answer and
//! the next request are one system call.
//!
//! Waking a thread on another processor costs more than most answers do. Here whoever asks and whoever answers take
//! turns on one processor. So that nobody waits for somebody else's slow request, those that may take long are handed to
//! threads beside it.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | whether there are rings, and how many |
//! | `memory` | what the kernel writes requests to and reads answers from |
//! | `queue` | the thread of one processor |
//! | `aside` | requests that may take long |
//!
//! Forgotten nodes and interrupts come by the [device](crate::kernel) all the same, and so does everything if the kernel takes
//! one of the rings amiss.
//!
//! The rings are made before a process is confined, which cannot make any; each does two kinds of work only, commands to
//! the mount and waiting for an event, and the kernel refuses it all others.

mod aside;
mod memory;
mod queue;

use crate::answer::Answerer;
use crate::kernel::Kernel;
use aside::Aside;
use queue::Queue;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Whether the kernel may offer it: a setting that only root can make.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
/// Processors that there may be: the kernel has a queue for each.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Requests that one processor's queue can have under way.
const DEPTH: usize = 8;
/// Threads for what may take long.
const ASIDE: usize = 4;
/// How long a thread stays awake after a request, giving way to everybody, where processors are so few that whoever asked
/// is woken on one that would sleep otherwise. In a virtual machine that costs more than the answer.
const AWAKE: Duration = Duration::from_micros(50);
const FEW: usize = 4;
/// Memory for all of it at most. It is taken when it is used.
const MOST_MEMORY: usize = 256 << 20;

/// Rings that are ready, one for each processor.
#[derive(Debug)]
pub(crate) struct Rings {
    queues: Vec<Queue>,
}

impl Rings {
    /// Makes rings for transfers of so many bytes at most, where the kernel may take them.
    pub(crate) fn prepare(largest: u32) -> Option<Self> {
        let enabled = std::fs::read_to_string(ENABLED).ok()?;
        if !matches!(enabled.trim(), "Y" | "1") {
            return None;
        }
        let cpus = count(&std::fs::read_to_string(POSSIBLE).ok()?)?;
        let depth = (MOST_MEMORY / largest as usize / cpus).min(DEPTH);
        if depth == 0 {
            return None;
        }
        let awake = (cpus <= FEW).then_some(AWAKE);
        let queues = (0..cpus)
            .map(|number| {
                let number = u16::try_from(number).ok()?;
                Queue::new(number, depth, largest as usize, awake).ok()
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self { queues })
    }
}

/// Starts the threads that answer what comes through `rings`.
///
/// # Errors
/// When the system has no thread for one.
pub(crate) fn serve(
    rings: Rings,
    device: OwnedFd,
    answerer: &Answerer,
    kernel: &Kernel,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let aside = Arc::new(Aside::new(answerer, kernel));
    let mut threads = Vec::new();
    for number in 0..ASIDE {
        let jobs = aside.jobs();
        let builder = std::thread::Builder::new().name(format!("extant-aside-{number}"));
        threads.push(builder.spawn(move || {
            jobs.run();
            Ok(())
        })?);
    }
    let device = Arc::new(device);
    for queue in rings.queues {
        let (device, answerer, aside) = (Arc::clone(&device), answerer.clone(), Arc::clone(&aside));
        let name = format!("extant-ring-{}", queue.number());
        threads.push(
            std::thread::Builder::new()
                .name(name)
                .spawn(move || queue.run(&device, &answerer, &aside))?,
        );
    }
    Ok(threads)
}

/// How many processors a list such as `0-3,8` names.
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
