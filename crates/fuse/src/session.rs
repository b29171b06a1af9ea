//! The life of a mount.

use crate::attach::{DEVICE, MissingBlockDevice};
use crate::error::MountError;
use crate::farewell::Event;
use crate::kernel::Channel;
use crate::memory::{GiveBack, Giving, Pressure};
use crate::metrics::TellsAlso;
use crate::mounts::{self, Keeping, MountId, set_keeping};
use crate::options::{Options, machine_memory};
use crate::ring::MissingRings;
use crate::service::Service;
use crate::signals::Signals;
use crate::unmount::{clear, has_helper, sync_and_detach};
use extant_confine::Confinement;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_format::Ino;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How long programs that still use a mount have to leave it after a signal.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that the kernel reads ahead: as much as one request may be for.
const READ_AHEAD: u32 = 1 << 20;

/// Percent of the data that waits for being written on this machine which may be of one mount. With
/// the kernel's 1 a program that writes to what it gathers waits for the daemon after some tens of
/// MiB; with much more, the daemon has nothing to do until a program asks for `fsync`.
const DIRTY: u32 = 10;

/// How long the last request may take to be read as answered, after which the kernel gives the
/// mount up.
const GOODBYE: Duration = Duration::from_secs(1);

/// A directory on which something is mounted that nobody answers for yet: programs that use it
/// wait.
#[derive(Debug)]
pub struct Attached {
    channel: Channel,
    // Behind the channel: nobody answers any more when it is cleared away.
    cleared: Cleared,
    lacks: Option<MissingBlockDevice>,
    /// System calls of this process are filtered.
    is_filtered: bool,
    point: PathBuf,
    options: Options,
    pressure: Pressure,
    give_back: Option<GiveBack>,
    tells_also: Option<TellsAlso>,
    /// The socket behind which the device is.
    carrier: Option<RawFd>,
}

/// A mount that is cleared away when this is dropped, if it is still there and this process may.
#[derive(Debug)]
struct Cleared(MountId);

impl Drop for Cleared {
    fn drop(&mut self) {
        clear(&self.0);
    }
}

impl Attached {
    /// Mounts on the directory `point`. `image` is what the mount table shows.
    ///
    /// # Errors
    /// [`MountError`] says why the directory or the system does not take it.
    pub fn new(image: &Path, point: &Path, options: &Options) -> Result<Self, MountError> {
        let point = check_point(point)?;
        check_device()?;
        let (channel, id, lacks) =
            Channel::open(image, &point, options).map_err(|e| refused(&point, e))?;
        // It works without, but each read of a file read in sequence is smaller then.
        let _ = set_keeping(&id, Keeping::ReadAhead(READ_AHEAD));
        // And programs that write to what is gathered wait sooner.
        let _ = set_keeping(&id, Keeping::Dirty(DIRTY));
        Ok(Self {
            channel,
            cleared: Cleared(id),
            lacks,
            is_filtered: false,
            point,
            options: options.clone(),
            // While files can be opened.
            pressure: Pressure::open(),
            give_back: None,
            tells_also: None,
            carrier: None,
        })
    }

    /// Returns what it is known by among all mounts.
    #[must_use]
    pub fn id(&self) -> MountId {
        self.cleared.0
    }

    /// Says why it has no block device, though it was to have one.
    #[must_use]
    pub fn without_block_device(&self) -> Option<&MissingBlockDevice> {
        self.lacks.as_ref()
    }

    /// Says why requests do not come through io_uring, though they were to.
    #[must_use]
    pub fn without_rings(&self) -> Option<&MissingRings> {
        self.channel.without_rings()
    }

    /// Has free memory of the process given back to the system by `how`, of which only the program
    /// knows the allocator.
    pub fn gives_memory_back(&mut self, how: GiveBack) {
        self.give_back = Some(how);
    }

    /// Adds what `more` returns to the metrics of the mount ([`METRICS`](crate::METRICS)), in the
    /// same format.
    pub fn tells_also(&mut self, more: TellsAlso) {
        self.tells_also = Some(more);
    }

    /// Says that the device is a server at the other end of the connected socket of this number. Of
    /// all sockets, a confined process goes on using this one. It must stay open as long as the
    /// mount does.
    pub fn keeps_socket(&mut self, number: RawFd) {
        self.carrier = Some(number);
    }

    /// Gives up what this process may do beyond answering: it opens no files, makes no connections
    /// and starts no programs any more, and takes no more memory than [`Options::memory_limit`]
    /// says. Call it before there are other threads, and before anything is read from the image;
    /// files that are open stay so. Another process has to unmount: a confined one cannot.
    ///
    /// # Errors
    /// [`MountError::Sandbox`] when the kernel has neither of the two mechanisms. Dropping this
    /// unmounts, unless the process has given up too much for that already.
    pub fn confine(&mut self) -> Result<(), MountError> {
        let memory = self.options.memory_limit(machine_memory());
        let confinement = Confinement::new(memory)
            .rings(self.channel.has_rings())
            .socket(self.carrier);
        self.is_filtered = confinement.enforce().map_err(MountError::Sandbox)?;
        Ok(())
    }

    /// Answers with `fs` from now on.
    ///
    /// # Errors
    /// [`MountError::Root`] when there is no root directory that can be read; when the system has
    /// no threads for it.
    pub fn serve(self, fs: Arc<Fs>) -> Result<Mounted, MountError> {
        let is_dir = fs.with_inode(Ino::ROOT, Inode::is_dir);
        match is_dir.map_err(|e| e.to_string()) {
            Ok(true) => {}
            Ok(false) => return Err(MountError::Root("it is no directory".to_owned())),
            Err(why) => return Err(MountError::Root(why)),
        }
        let giving = Giving::start(&fs, self.pressure, self.give_back);
        let giving = giving.map_err(MountError::Session)?;
        let service = Service::new(fs, &self.options).telling_also(self.tells_also);
        let service = Arc::new(service);
        let (sender, events) = mpsc::channel();
        service.farewell().report_to(sender.clone());
        let connection = self
            .channel
            .serve(Arc::clone(&service))
            .map_err(MountError::Session)?;
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
            cleared: self.cleared,
            is_filtered: self.is_filtered,
            point: self.point,
            events,
            sender,
            _giving: giving,
        })
    }
}

/// A file system that is mounted.
#[derive(Debug)]
pub struct Mounted {
    service: Arc<Service>,
    cleared: Cleared,
    is_filtered: bool,
    point: PathBuf,
    events: Receiver<Event>,
    sender: Sender<Event>,
    _giving: Giving,
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

    /// Returns where it is mounted, from the root.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Returns what it is known by among all mounts.
    #[must_use]
    pub fn id(&self) -> MountId {
        self.cleared.0
    }

    /// Waits until it is unmounted. One of `signals` unmounts it: programs that use it then have
    /// some seconds to leave. A [confined](Attached::confine) process starts no threads any more
    /// from now on.
    ///
    /// Close the file system then, also after an error. The process that unmounts does not wait for
    /// that: see [`wait_and_close`](Self::wait_and_close).
    ///
    /// # Errors
    /// [`MountError::Session`] when the session with the kernel broke off.
    pub fn wait(self, signals: Option<Signals>) -> Result<Ended, MountError> {
        self.wait_and_close(signals, || ()).0
    }

    /// Waits until it is unmounted, as [`wait`](Self::wait) does, calls `close`, which is to close
    /// the file system, and returns what that returned as well. A mount with a block device keeps
    /// the process that unmounts it waiting until then.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_and_close<T>(
        self,
        signals: Option<Signals>,
        close: impl FnOnce() -> T,
    ) -> (Result<Ended, MountError>, T) {
        let ended = match signals {
            Some(signals) => self.listen(signals),
            None => Ok(()),
        };
        // All that are needed are there.
        let ended = ended.and_then(|()| {
            if self.is_filtered {
                extant_confine::start_no_more_threads().map_err(MountError::Sandbox)
            } else {
                Ok(())
            }
        });
        let is_immediate = signals.is_some_and(Signals::ends_immediately);
        let ended = ended.and_then(|()| self.until_over(is_immediate));
        self.service.finish();
        let closed = close();
        self.service.farewell().closed();
        if let Ok((Ended::Unmounted, false)) = ended {
            // It was asked for, and the answer is under way.
            self.until_given_up();
        }
        (ended.map(|(ended, _)| ended), closed)
    }

    fn listen(&self, signals: Signals) -> Result<(), MountError> {
        let sender = self.sender.clone();
        let thread = std::thread::Builder::new().name("extant-signals".to_owned());
        let started =
            thread.spawn(
                move || {
                    while signals.wait().is_ok() && sender.send(Event::Signal).is_ok() {}
                },
            );
        started.map(drop).map_err(MountError::Session)
    }

    /// Waits for the end, and tells how it ends and whether the kernel has given it up then.
    fn until_over(&self, is_immediate: bool) -> Result<(Ended, bool), MountError> {
        let over = |result: io::Result<()>| match result {
            Ok(()) => Ok((Ended::Unmounted, true)),
            Err(e) => Err(MountError::Session(e)),
        };
        // One sender is here, so there is an event some time.
        match self.events.recv() {
            Ok(Event::Over(result)) => return over(result),
            Ok(Event::Requested) => return Ok((Ended::Unmounted, false)),
            Ok(Event::Signal) | Err(_) => {}
        }
        if is_immediate {
            return Ok((Ended::StillUsed, false));
        }
        let id = self.id();
        // It may wait for the end. Without a thread for it, programs that use the mount have their
        // time all the same.
        let thread = std::thread::Builder::new().name("extant-sync_and_detach".to_owned());
        let leaves = thread.spawn(move || sync_and_detach(&id));
        if let Err(e) = leaves {
            tracing::error!("nobody can be asked to leave the mount: {e}");
        }
        match self.events.recv_timeout(PATIENCE) {
            Ok(Event::Over(result)) => over(result),
            Ok(Event::Requested) => Ok((Ended::Unmounted, false)),
            // Somebody is in a hurry.
            Ok(Event::Signal) | Err(RecvTimeoutError::Timeout) => Ok((Ended::StillUsed, false)),
            Err(RecvTimeoutError::Disconnected) => Ok((Ended::Unmounted, true)),
        }
    }

    fn until_given_up(&self) {
        let end = Instant::now() + GOODBYE;
        while let Ok(event) = self
            .events
            .recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            if matches!(event, Event::Over(_)) {
                return;
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The kernel may have asked for the end, and gets it.
        self.service.farewell().closed();
    }
}

/// Checks the directory to mount on, and returns it as an absolute path.
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
    if rustix::process::geteuid().is_root() || has_helper() {
        Ok(())
    } else {
        Err(MountError::NoHelper)
    }
}

/// Explains why the system does not mount, as far as it says.
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
