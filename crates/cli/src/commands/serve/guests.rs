//! Files for guests of virtual machines, by virtio-fs.

use crate::args::{Serve, Whereabouts};
use crate::commands::mount::engine_options;
use crate::failure::{Failure, Outcome, in_image};
use crate::image_path::{shown, whole_image};
use extant::Filesystem;
use extant_blockdev::SharedDevice;
use extant_fuse::{Guests, MemoryPressure, Options, Signals};
use extant_image::ImageLocation;
use extant_virtiofs::VirtioFs;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

/// What a mount decides. Each guest mounts by itself.
const OF_GUESTS: [&str; 10] = [
    "idmap",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "dev",
    "nodev",
    "blkdev",
    "no_blkdev",
    "no_io_uring",
];

/// What `-o` says of the image.
pub(super) fn options(args: &Serve) -> Outcome<Options> {
    let mut options = Options::default();
    for list in &args.options {
        options.parse(list).map_err(Failure::usage)?;
    }
    let words = args.options.iter().flat_map(|list| list.split(','));
    if let Some(name) = words.map(str::trim).find(|word| OF_GUESTS.contains(word)) {
        return Err(Failure::usage(format!(
            "-o {name} does nothing for guests: leave it out here, and say what a guest's mount is to \
             allow where the guest mounts (mount -t virtiofs -o ...)"
        )));
    }
    let of_mounts = [
        (options.allow_other, "allow_other"),
        (options.fakeroot, "fakeroot"),
        (!options.default_permissions, "no_default_permissions"),
        (options.mend, "mend"),
        (options.no_replay, "noload"),
        (options.offset.is_some(), "offset="),
        (options.partition.is_some(), "partition="),
        (options.image_format.is_some(), "image_format="),
        (options.io_uring.is_some(), "io_uring"),
        (options.threads.is_some(), "threads="),
    ];
    if let Some((_, name)) = of_mounts.iter().find(|(is_given, _)| *is_given) {
        return Err(Failure::usage(format!(
            "-o {name} means nothing to guests: say where the image lies by --partition, --offset and \
             --image-format; who may do what is for the guests to say"
        )));
    }
    options.read_only |= args.read_only;
    options.check().map_err(Failure::usage)?;
    Ok(options)
}

/// Listens, has `confine` take away what is not needed to answer, opens the file system, and
/// answers guests until a signal comes.
pub(super) fn answer(
    args: &Serve,
    disk: SharedDevice,
    signals: Signals,
    confine: impl FnOnce(RawFd) -> Outcome,
) -> Outcome {
    let options = options(args)?;
    let socket = args.virtiofs.as_deref().unwrap_or(Path::new(""));
    let image = whole_image(args.image.as_deref().unwrap_or(Path::new("")).as_os_str())?;
    crate::log::start(options.log.as_deref(), true, socket)?;
    let most = usize::from(args.guests.unwrap_or(1));
    let server = VirtioFs::bind(socket, most).map_err(Failure::new)?;
    let socket = std::path::absolute(socket)?;
    // While files can be opened.
    let pressure = MemoryPressure::open();
    confine(server.as_fd().as_raw_fd())?;
    let engine = engine_options(&Whereabouts::default(), &options);
    let fs = Filesystem::open_device(disk, engine).map_err(|e| refused(&image, &e))?;
    let give_back = Some(crate::allocator::give_back as fn(bool));
    let fs_of_guests = fs.engine().clone();
    let guests = Guests::new(fs_of_guests, &options, most > 1, give_back, pressure);
    let served = match guests {
        Ok(guests) => serve(server, &guests, &socket, signals),
        Err(e) => Err(Failure::new(e)),
    };
    let closed = if options.read_only {
        Ok(())
    } else {
        fs.close().map_err(|e| {
            let why = in_image(&image, &e);
            Failure::new(format!("{why}; what was changed last may be lost"))
        })
    };
    served.and(closed)
}

fn refused(image: &ImageLocation, e: &extant::Error) -> Failure {
    Failure::new(format!("{}: {e}", shown(image)))
}

fn serve(server: VirtioFs, guests: &Guests, socket: &Path, signals: Signals) -> Outcome {
    let stop = server.stop();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(guests));
        let mut stdout = std::io::stdout();
        // A reader that has seen enough is no reason to end.
        let _ = writeln!(stdout, "{}", socket.display()).and_then(|()| stdout.flush());
        let waited = signals.wait();
        stop.stop();
        let served = serving.join();
        waited.map_err(Failure::new)?;
        served
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map_err(Failure::new)
    })
}
