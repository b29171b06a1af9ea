//! The way to the kernel: what is agreed upon with it, by the `fuser` crate, and the threads that
//! requests come to.
//!
//! Beside the [`notifier`](crate::notifier) the only file that knows `fuser`: it answers
//! `FUSE_INIT`, and mounts nothing. Requests after that are taken apart by
//! [`protocol`](crate::protocol) and answered by [`Answerer`], whichever way they come:
//!
//! | file | owns |
//! |---|---|
//! | `device` | the descriptors by which the kernel is read and answered |
//! | `classic` | requests that are read from there |
//! | `turn` | how a thread comes to them, among others |
//! | `watch` | which thread reads there when requests come through rings |
//! | [`ring`] | requests that come through io_uring |

mod classic;
mod device;
mod turn;
mod watch;

pub(crate) use device::Device;

use crate::answer::{Agreed, Answerer};
use crate::attach::{self, MissingBlockDevice};
use crate::awake::Awake;
use crate::mounts::MountId;
use crate::notifier::Notifier;
use crate::options::{Options, machine_memory};
use crate::protocol::Form;
use crate::rights;
use crate::ring::{self, MissingRings, Rings};
use crate::service::Service;
use crate::threads::{Threads, WriteBackThread};
use crate::unmount::clear;
use device::Reading;
use extant_sync::{Leaders, LockClass, Rank};
use fuser::{Config, Filesystem, InitFlags, KernelConfig, Request, Session, SessionACL};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use turn::Turn;
use watch::Watch;

/// Largest transfer that is asked for: what the kernel allows unless told otherwise.
pub(crate) const LARGEST_TRANSFER: u32 = 1 << 20;
/// Transfers in the background at a time.
const BACKGROUND: u16 = 64;

static LEADERS: LockClass = LockClass::new("fuse leaders", Rank::Leaf);

/// A mount whose requests wait to be answered.
#[derive(Debug)]
pub(crate) struct Channel {
    session: Session<Handshake>,
    agreed: Agreed,
    devices: Vec<Device>,
    reception: Arc<Reception>,
    rings: Option<Rings>,
    /// Why there are none, though there were to be some.
    lacks_rings: Option<MissingRings>,
}

/// The threads that wait for what comes through the device.
#[derive(Debug)]
enum Reception {
    /// All threads.
    All,
    /// One, while rings bring the requests.
    One(Watch),
    /// As few as needed, which stay awake.
    Few(Leaders, Awake),
}

impl Reception {
    fn new(has_rings: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        match Awake::among(processors) {
            _ if has_rings => Self::One(Watch::new()),
            Some(awake) => Self::Few(Leaders::new(&LEADERS), awake),
            None => Self::All,
        }
    }

    fn reading(&self) -> Reading {
        match self {
            Self::All | Self::One(_) => Reading::Waits,
            Self::Few(..) => Reading::Looks,
        }
    }

    /// Returns the turn of the thread of this number.
    fn turn(&self, number: usize) -> Turn<'_> {
        match self {
            Self::All => Turn::Waits,
            Self::One(watch) => Turn::BesideRings(watch.reader(number == 0)),
            Self::Few(leaders, awake) => Turn::leads(leaders.join(), awake.clone()),
        }
    }
}

/// A session with the kernel, in threads of its own.
#[derive(Debug)]
pub(crate) struct Connection {
    _session: Session<Handshake>,
    threads: Threads,
}

impl Channel {
    /// Mounts `image` on `point`, and agrees with the kernel upon what it does. Returns the mount's
    /// identity as well, and why it has no block device if it was to have one.
    ///
    /// # Errors
    /// When the system does not mount, or the kernel speaks no protocol that this knows.
    pub(crate) fn open(
        image: &Path,
        point: &Path,
        options: &Options,
    ) -> io::Result<(Self, MountId, Option<MissingBlockDevice>)> {
        let is_asked = options.default_permissions || !rights::is_superuser();
        let checks = options.allow_other || is_asked && !options.fakeroot;
        let acl = if options.allow_other {
            SessionACL::All
        } else {
            SessionACL::Owner
        };
        let memory = options.memory_limit(machine_memory());
        let rings = match options.io_uring {
            Some(false) => None,
            wish => Some(Rings::prepare(LARGEST_TRANSFER, memory, wish.is_some())),
        };
        let rings = rings.transpose();
        let fresh = attach::mount(image, point, options, checks)?;
        let id = fresh.id;
        let attached = rings.and_then(|rings| {
            let attach = |rings: Rings| rings.attach(fresh.device.as_fd());
            rings.map(attach).transpose()
        });
        let (rings, lacks_rings) = match attached {
            Ok(rings) => (rings, None),
            Err(why) => (None, Some(why)),
        };
        let handshake = Handshake {
            writeback_cache: options.uses_writeback_cache() && !options.read_only,
            direct_io: options.direct_io,
            checks,
            lists: checks && !options.shows_other_owners(),
            idmap: options.idmap,
            read_only: options.read_only,
            has_rings: rings.is_some(),
            outcome: Arc::default(),
        };
        Self::agree(fresh.device, handshake, acl, rings, options)
            .map(|channel| Self {
                lacks_rings: lacks_rings.or(channel.lacks_rings),
                ..channel
            })
            .map(|channel| (channel, id, fresh.lacks))
            .inspect_err(|_| clear(&id))
    }

    /// Agrees with the kernel about a mount. If that fails, nobody answers for it.
    fn agree(
        device: OwnedFd,
        handshake: Handshake,
        acl: SessionACL,
        rings: Option<Rings>,
        options: &Options,
    ) -> io::Result<Self> {
        let outcome = Arc::clone(&handshake.outcome);
        let session = Session::from_fd(handshake, device, acl, Config::default())?;
        let (agreed, over_rings) = outcome.get().copied().unwrap_or_default();
        let lacks_rings = (rings.is_some() && !over_rings).then_some(MissingRings::NotAgreed);
        let rings = rings.filter(|_| over_rings);
        let reception = Reception::new(rings.is_some());
        let devices =
            Device::several(session.as_fd(), options.thread_count(), reception.reading())?;
        Ok(Self {
            session,
            agreed,
            devices,
            reception: Arc::new(reception),
            rings,
            lacks_rings,
        })
    }

    /// Tells whether requests are going to come through io_uring.
    pub(crate) fn has_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// Says why they are not, though they were to.
    pub(crate) fn without_rings(&self) -> Option<&MissingRings> {
        self.lacks_rings.as_ref()
    }

    /// Answers from now on.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn serve(self, service: Arc<Service>) -> io::Result<Connection> {
        let notifier = Notifier::new(self.session.notifier());
        let answerer = Answerer::new(service, self.agreed, Arc::new(notifier.clone()));
        let mut threads = Threads::new();
        let writeback = WriteBackThread::start(&mut threads)?;
        let count = self.devices.len();
        // What does not come through rings, and all where there are none.
        for (number, device) in self.devices.into_iter().enumerate() {
            let (answerer, notifier) = (answerer.clone(), notifier.clone());
            let writeback = writeback.clone();
            let reception = Arc::clone(&self.reception);
            threads.start(format!("extant-fuse-{number}"), move || {
                let turn = reception.turn(number);
                classic::run(&Arc::new(device), &answerer, &notifier, &writeback, turn)
            })?;
        }
        if let Some(rings) = self.rings {
            ring::serve(
                rings,
                &answerer,
                (&notifier, writeback),
                count,
                &mut threads,
            )?;
        }
        Ok(Connection {
            _session: self.session,
            threads,
        })
    }
}

impl Connection {
    /// Waits until the kernel has given the mount up.
    pub(crate) fn wait(self) -> io::Result<()> {
        self.threads.wait()
    }
}

/// Agrees with the kernel upon what it does and what is done here.
#[derive(Debug)]
struct Handshake {
    /// The kernel shall keep writes back.
    writeback_cache: bool,
    /// The kernel shall keep no data of files that are read and written.
    direct_io: bool,
    /// The kernel shall check permissions.
    checks: bool,
    /// It shall know access control lists.
    lists: bool,
    /// It shall let users be mapped.
    idmap: bool,
    /// Nothing is written.
    read_only: bool,
    /// Rings are ready.
    has_rings: bool,
    /// What came of it, and whether requests come through the rings.
    outcome: Arc<OnceLock<(Agreed, bool)>>,
}

impl Filesystem for Handshake {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = config.capabilities();
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_SETXATTR_EXT
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        // Not where there are writes: at the end of a direct write that nobody waits for the kernel
        // keeps what it has read of the range meanwhile, and makes an I/O error of a write that
        // found no room for all.
        wanted.set(InitFlags::FUSE_ASYNC_DIO, self.read_only);
        // With this it checks modes, too.
        wanted.set(InitFlags::FUSE_POSIX_ACL, self.lists);
        if self.idmap && !offered.contains(InitFlags::FUSE_ALLOW_IDMAP) {
            return Err(io::Error::other(
                "this kernel maps no users of FUSE: Linux 6.12 and later can (-o idmap)",
            ));
        }
        wanted.set(InitFlags::FUSE_ALLOW_IDMAP, self.idmap);
        // Mapped memory is the kernel's all the same.
        let allow_mmap = InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        let direct_io = self.direct_io && offered.contains(allow_mmap);
        if self.direct_io && !direct_io {
            tracing::warn!("direct_io is left out: before Linux 6.6 no file could be mapped");
        }
        wanted.set(allow_mmap, direct_io);
        let writeback = InitFlags::FUSE_WRITEBACK_CACHE;
        let writeback_cache = self.writeback_cache && offered.contains(writeback);
        wanted.set(writeback, writeback_cache);
        let over_rings = self.has_rings && offered.contains(InitFlags::FUSE_OVER_IO_URING);
        wanted.set(InitFlags::FUSE_OVER_IO_URING, over_rings);
        let stateless =
            offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT | InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // What the kernel does not offer was left out.
        let _ = config.add_capabilities(wanted & offered);
        // What is not allowed stays as it is.
        let _ = config.set_max_write(LARGEST_TRANSFER);
        let _ = config.set_max_background(BACKGROUND);
        let agreed = Agreed {
            stateless,
            direct_io,
            writeback_cache,
            checks: self.checks,
            is_shared: false,
            form: Form {
                extends_setxattr: offered.contains(InitFlags::FUSE_SETXATTR_EXT),
            },
        };
        // Set once: a kernel that begins with a newer protocol asks again before this is called.
        let _ = self.outcome.set((agreed, over_rings));
        Ok(())
    }
}
