//! The process that answers clients.
//!
//! It opens the disk and listens; then it opens nothing and connects to nothing any more, except
//! that it reads files beneath the directories it serves, and those that were added to them.

use super::{answer, disk, guests};
use crate::args::{Serve, Whereabouts};
use crate::commands::mkfs::hosts_with_data;
use crate::failure::{Failure, Outcome};
use crate::image_path::{shown, whole_image};
use extant::Escaped;
use extant_blockdev::{NbdDevice, NbdOptions, SharedDevice};
use extant_confine::Confinement;
use extant_fuse::{Signals, machine_memory};
use extant_mkfs::source::Source;
use rustix::process::Signal;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a process that was started by this program learns its role.
const ROLE: &str = "EXTANT_SERVE_ROLE";

/// How long it waits for a sign of the process that reaches the image, which itself waits for
/// servers. If that process ends, it knows at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The process opens it by itself.
    Opens,
    /// At the other end of standard input.
    Carried,
}

impl Role {
    /// The variable that tells a process its role, and its value.
    pub(super) fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::Opens => (ROLE, "opens"),
            Self::Carried => (ROLE, "carried"),
        }
    }

    /// The role that this process was told, if it was started to answer clients.
    pub(super) fn of_this_process() -> Option<Self> {
        let told = std::env::var_os(ROLE)?;
        [Self::Opens, Self::Carried]
            .into_iter()
            .find(|role| told == role.told().1)
    }
}

/// Opens the disk, gives up everything else, and answers.
pub(super) fn work(args: &Serve, location: &Whereabouts, signals: Signals, role: Role) -> Outcome {
    // Signals of the terminal go to the other process, which passes them on; so does its end.
    let _ = rustix::process::setsid();
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).map_err(Failure::new)?;
    let (disk, socket) = match role {
        Role::Opens => (disk(args, location)?, None),
        Role::Carried => {
            let (disk, socket) = carried(args)?;
            (disk, Some(socket))
        }
    };
    let directories = directories_of(args)?;
    answer(args, disk, signals, |listener| {
        let mut confinement = Confinement::new(memory(args)?)
            .socket(socket)
            .listener(listener)
            .guests(args.virtiofs.is_some());
        if !directories.is_empty() {
            wait_until_alone()?;
        }
        for directory in directories {
            confinement = confinement.directory(directory);
        }
        confinement.enforce().map(drop).map_err(|e| {
            Failure::new(format!(
                "the process that answers clients cannot be confined: {e}. Serve what you trust \
                 to clients that you trust with --no-sandbox"
            ))
        })
    })
}

/// The directories whose files are read while clients are answered, and single files that are.
fn directories_of(args: &Serve) -> Outcome<Vec<File>> {
    let sources = args.plan.sources.from.iter();
    let sources = sources.filter_map(|text| Source::parse(text).ok());
    let directories = sources.filter(Source::is_directory);
    let directories = directories.map(|directory| directory.path().to_owned());
    let all = directories.chain(hosts_with_data(&args.plan.tables));
    all.map(|path| {
        File::open(&path).map_err(|e| {
            let path = Escaped::path(&path);
            Failure::new(format!("{path} cannot be opened to be served: {e}"))
        })
    })
    .collect()
}

/// Waits until the threads that planned are gone: Landlock does not reach threads that are there.
fn wait_until_alone() -> Outcome {
    const LONGEST: Duration = Duration::from_secs(10);
    const PAUSE: Duration = Duration::from_millis(1);
    let end = Instant::now() + LONGEST;
    while std::fs::read_dir("/proc/self/task")?.count() > 1 {
        if Instant::now() > end {
            return Err(Failure::new(
                "the threads that planned the image do not end; --no-sandbox serves with them",
            ));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// The disk that the process at the other end of standard input serves, and the number of the
/// socket.
fn carried(args: &Serve) -> Outcome<(SharedDevice, i32)> {
    let image = args.image.as_deref().unwrap_or(Path::new(""));
    let name = shown(&whole_image(image.as_os_str())?);
    let how = if args.read_only {
        NbdOptions::read_only()
    } else {
        NbdOptions::read_write()
    };
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let number = socket.as_raw_fd();
    let device = NbdDevice::connected(socket, &name, how.answer_timeout(PATIENCE));
    Ok((Arc::new(device.map_err(Failure::new)?), number))
}

/// The most memory that this process may take: what it has, and as much as a mount's.
fn memory(args: &Serve) -> Outcome<u64> {
    let more = guests::options(args)?.memory_limit(machine_memory());
    Ok(more.saturating_add(data_now()))
}

/// Bytes that this process has mapped to write to.
fn data_now() -> u64 {
    // A plan may be large, and what there is of it counts.
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text
        .split(' ')
        .nth(5)
        .and_then(|pages| pages.trim().parse().ok())
        .unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}
