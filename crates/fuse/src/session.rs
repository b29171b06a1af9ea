//! The life of a mount.

use crate::error::MountError;
use crate::kernel::Channel;
use crate::mounts::{self, Keeping, set_keeping};
use crate::options::{Options, machine_memory};
use crate::sandbox;
use crate::service::Service;
use crate::signals::Signals;
use crate::unmount::{detach, has_helper, leave};
use extant_core::fs::Fs;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// How long those who still use a mount have to leave it after a signal.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that the kernel reads ahead: as much as one request may be for.
const READ_AHEAD: u32 = 1 << 20;

/// Percent of the data that waits for being written on this machine which may be of one mount. With the kernel's 1 whoever writes
/// to what it gathers waits for the daemon after some tens of MiB; with much more, the daemon has nothing to do until somebody asks for `fsync`.
const DIRTY: u32 = 10;

const DEVICE: &str = "/dev/fuse";

/// A directory on which something is mounted that nobody answers for yet: who uses it waits.
#[derive(Debug)]
pub struct Attached {
    channel: Channel,
    point: PathBuf,
    options: Options,
}

impl Attached {
    /// Mounts on the directory `point`. `image` is what the mount table shows.
    ///
    /// # Errors
    /// [`MountError`] says why the directory or the system does not take it.
    pub fn new(image: &Path, point: &Path, options: &Options) -> Result<Self, MountError> {
        let point = check_point(point)?;
        check_device()?;
        let channel = Channel::open(image, &point, options).map_err(|e| refused(&point, e))?;
        // It works without, but each read of a file read in sequence is smaller then.
        let _ = set_keeping(&point, Keeping::ReadAhead(READ_AHEAD));
        // And whoever writes to what is gathered waits sooner.
        let _ = set_keeping(&point, Keeping::Dirty(DIRTY));
        Ok(Self {
            channel,
            point,
            options: options.clone(),
        })
    }

    /// Gives up what this process may do beyond answering: it opens no files, makes
    /// no connections and starts no programs any more, and takes no more memory than [`Options::memory_limit`] says. Call
    /// it before there are other threads, and before anything is read from the image; files that are open stay so.
    /// Whoever mounted is left to unmount: a confined process cannot.
    ///
    /// # Errors
    /// [`MountError::Sandbox`] when the kernel has neither of the two mechanisms. Nothing is mounted any more then,
    /// unless the process has given up too much for that already.
    pub fn confine(&mut self) -> Result<(), MountError> {
        let memory = self.options.memory_limit(machine_memory());
        sandbox::confine(memory, self.channel.has_rings()).map_err(|e| {
            // What is to be said is why.
            let _ = detach(&self.point, true);
            MountError::Sandbox(e)
        })
    }

    /// Answers with `fs` from now on.
    ///
    /// # Errors
    /// When the system has no threads for it.
    pub fn serve(self, fs: Arc<Fs>) -> Result<Mounted, MountError> {
        let service = Arc::new(Service::new(fs, &self.options));
        let connection = self
            .channel
            .serve(Arc::clone(&service))
            .map_err(MountError::Session)?;
        let (sender, events) = mpsc::channel();
        let over = sender.clone();
        std::thread::Builder::new()
            .name("extant-session".to_owned())
            .spawn(move || {
                // Nobody listens any more: the mount is given up.
                let _ = over.send(Event::Over(connection.wait()));
            })
            .map_err(MountError::Session)?;
        Ok(Mounted {
            service,
            point: self.point,
            events,
            sender,
        })
    }
}

/// A file system that is mounted.
#[derive(Debug)]
pub struct Mounted {
    service: Arc<Service>,
    point: PathBuf,
    events: Receiver<Event>,
    sender: Sender<Event>,
}

#[derive(Debug)]
enum Event {
    /// The kernel gave the mount up.
    Over(io::Result<()>),
    Signal,
}

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nobody uses it any more.
    Unmounted,
    /// A signal came, and somebody still uses it.
    StillUsed,
}

impl Mounted {
    /// Mounts `fs` on the directory `point`. `image` is what the mount table shows.
    ///
    /// # Errors
    /// [`MountError`] says why the directory or the system does not take it.
    pub fn new(
        fs: Arc<Fs>,
        image: &Path,
        point: &Path,
        options: &Options,
    ) -> Result<Self, MountError> {
        Attached::new(image, point, options)?.serve(fs)
    }

    /// Where it is mounted, from the root.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Waits until it is unmounted. One of `signals` unmounts it: those who use it then have some seconds to
    /// leave.
    ///
    /// Close the file system then, also after an error.
    ///
    /// # Errors
    /// [`MountError::Session`] when the session with the kernel broke off.
    pub fn wait(self, signals: Option<Signals>) -> Result<Ended, MountError> {
        if let Some(signals) = signals {
            let sender = self.sender.clone();
            std::thread::Builder::new()
                .name("extant-signals".to_owned())
                .spawn(
                    move || {
                        while signals.wait().is_ok() && sender.send(Event::Signal).is_ok() {}
                    },
                )
                .map_err(MountError::Session)?;
        }
        let ended = self.until_over(signals.is_some_and(Signals::at_once));
        self.service.finish();
        ended
    }

    fn until_over(&self, at_once: bool) -> Result<Ended, MountError> {
        let over = |result: io::Result<()>| match result {
            Ok(()) => Ok(Ended::Unmounted),
            Err(e) => Err(MountError::Session(e)),
        };
        // One sender is here, so there is an event some time.
        if let Ok(Event::Over(result)) = self.events.recv() {
            return over(result);
        }
        if at_once {
            return Ok(Ended::StillUsed);
        }
        leave(&self.point);
        match self.events.recv_timeout(PATIENCE) {
            Ok(Event::Over(result)) => over(result),
            // Somebody is in a hurry.
            Ok(Event::Signal) | Err(RecvTimeoutError::Timeout) => Ok(Ended::StillUsed),
            Err(RecvTimeoutError::Disconnected) => Ok(Ended::Unmounted),
        }
    }
}

/// The directory to mount on, as an absolute path.
///
/// # Errors
/// When it is none, or something is mounted there.
pub fn check_point(point: &Path) -> Result<PathBuf, MountError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            MountError::NoPoint(point.to_owned())
        }
        _ => MountError::Point {
            point: point.to_owned(),
            source,
        },
    };
    let path = point.canonicalize().map_err(failed)?;
    if !path.is_dir() {
        return Err(MountError::NotADirectory(point.to_owned()));
    }
    match mounts::is_mount_point(&path) {
        Ok(false) => Ok(path),
        Ok(true) => Err(MountError::Busy(point.to_owned())),
        Err(source) => Err(MountError::Point {
            point: point.to_owned(),
            source,
        }),
    }
}

fn check_device() -> Result<(), MountError> {
    let opened = File::options().read(true).write(true).open(DEVICE);
    match opened {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(MountError::NoDevice),
        Err(e) => return Err(MountError::Device(e)),
    }
    match rustix::process::geteuid().is_root() || has_helper() {
        true => Ok(()),
        false => Err(MountError::NoHelper),
    }
}

/// Why the system does not mount, as far as it says.
fn refused(point: &Path, e: io::Error) -> MountError {
    let text = e.to_string();
    let advice = if text.contains("user_allow_other") {
        "only root may let other users in (allow_other), unless /etc/fuse.conf says user_allow_other".to_owned()
    } else if text.contains("EPERM") || text.contains("Operation not permitted") {
        "the system does not allow it: mount as root; in a container, start it with --cap-add SYS_ADMIN".to_owned()
    } else {
        text.trim().to_owned()
    };
    MountError::Refused {
        point: point.to_owned(),
        source: io::Error::new(e.kind(), advice),
    }
}
