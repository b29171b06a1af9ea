//! `extant serve`.
//!
//! | process | does |
//! |---|---|
//! | the command (`supervisor`) | waits for signals, removes the socket at the end, also where the worker fails; reaches an image that is on another machine, and serves its bytes to the worker; never hears a client |
//! | the worker (`worker`) | opens the image, or plans one (`planned`); listens, gives up everything else, and answers clients, or guests that use the files in it (`guests`) |
//!
//! `activation` finds the socket that a service manager hands over.
//!
//! Without a sandbox one process does everything.

mod activation;
#[cfg(feature = "virtiofs")]
mod guests;
#[cfg(not(feature = "virtiofs"))]
#[path = "no_guests.rs"]
mod guests;
mod planned;
mod supervisor;
mod worker;

use crate::args::{NbdAt, Serve, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{as_raw, how, whole_image};
use extant_blockdev::SharedDevice;
use extant_fuse::Signals;
use extant_image::ImageLocation;
use extant_serve::{Listen, NbdServer, ServeOptions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use worker::Role;

pub(super) fn run(args: &Serve, location: &Whereabouts) -> Outcome {
    refuse_nonsense(args, location)?;
    let nbd = match &args.virtiofs {
        Some(_) => None,
        None => Some(activation::where_to_listen(args)?),
    };
    let args = &Serve {
        nbd,
        // However it is said, the image is opened that way.
        read_only: args.read_only || guests::options(args)?.read_only,
        ..args.clone()
    };
    // Before there are threads, which would die of them.
    let signals = Signals::hold_back().map_err(Failure::new)?;
    match Role::of_this_process() {
        Some(role) => worker::work(args, location, signals, role),
        None if args.no_sandbox => {
            let disk = disk(args, location)?;
            answer(args, disk, signals, |_| Ok(()))
        }
        None => supervisor::supervise(args, location, signals),
    }
}

fn refuse_nonsense(args: &Serve, location: &Whereabouts) -> Outcome {
    if args.is_planned() && *location != Whereabouts::default() {
        return Err(Failure::usage(
            "--from makes a file system, which is all of the disk: --partition, --offset and the \
             like mean nothing to it",
        ));
    }
    let reads = location.superblock.is_some() || location.as_is || location.mend;
    if reads || location.journal.is_some() {
        return Err(Failure::usage(
            "a disk is served as it is: --superblock, --as-is, --mend and --journal mean nothing to it",
        ));
    }
    args.refuse_meaningless_plan()?;
    args.refuse_guests_of_disks()?;
    guests::options(args)?;
    match args.format.as_deref() {
        None | Some("raw") => Ok(()),
        Some(other) => Err(Failure::usage(format!(
            "--format {other}: only raw can be said here; --image-format says any format"
        ))),
    }
}

/// Listens, has `confine` take away what is not needed to answer at this socket, and answers until
/// a signal comes.
fn answer(
    args: &Serve,
    disk: SharedDevice,
    signals: Signals,
    confine: impl FnOnce(RawFd) -> Outcome,
) -> Outcome {
    if args.virtiofs.is_some() {
        return guests::answer(args, disk, signals, confine);
    }
    let options = ServeOptions {
        name: args.export.clone(),
        read_only: args.read_only,
        ..ServeOptions::default()
    };
    let server = match &args.nbd {
        Some(NbdAt::Address(listen)) => NbdServer::bind(listen, disk, options),
        Some(NbdAt::Open(number)) => {
            let socket = extant_fuse::inherited_descriptor(*number);
            let socket = socket.map_err(|e| Failure::new(format!("--nbd fd:{number}: {e}")))?;
            NbdServer::adopt(socket, disk, options)
        }
        None => return Err(Failure::usage(activation::NOWHERE)),
    };
    let server = server.map_err(Failure::new)?;
    let address = match server.listens_on() {
        Listen::Unix(path) => {
            let path = std::path::absolute(path)?;
            format!("nbd+unix:///{}?socket={}", args.export, path.display())
        }
        Listen::Tcp(host, port) if host.contains(':') => {
            format!("nbd://[{host}]:{port}/{}", args.export)
        }
        Listen::Tcp(host, port) => format!("nbd://{host}:{port}/{}", args.export),
    };
    confine(server.as_fd().as_raw_fd())?;
    let stop = server.stop();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.run());
        let mut stdout = std::io::stdout();
        // A reader that has seen enough is no reason to end.
        let _ = writeln!(stdout, "{address}").and_then(|()| stdout.flush());
        let waited = signals.wait();
        stop.stop();
        let served = serving.join();
        waited.map_err(Failure::new)?;
        served
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map_err(not_durable)
    })
}

fn not_durable(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("what was written last may not be durable: {error}"))
}

/// The disk that is served, whatever it is.
fn disk(args: &Serve, location: &Whereabouts) -> Outcome<SharedDevice> {
    match &args.image {
        _ if args.is_planned() => planned::disk(args),
        Some(image) => disk_in(&whole_image(image.as_os_str())?, args, location),
        None => Err(Failure::usage("name an image, or a source with --from")),
    }
}

/// The disk in an image.
fn disk_in(image: &ImageLocation, args: &Serve, location: &Whereabouts) -> Outcome<SharedDevice> {
    let how = how(location, image, !args.read_only).guarded(args.read_only);
    let how = match &args.format {
        Some(_) => as_raw(how, location, image, "--format")?,
        None => how,
    };
    image.open(&how).map_err(Failure::new)
}
