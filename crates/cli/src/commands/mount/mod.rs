//! `extant mount` and `extant umount`.
//!
//! | process | does |
//! |---|---|
//! | the command (`background`) | starts the next one and ends when the mount works; in the foreground it is the next one itself |
//! | the supervisor (`supervisor`) | waits for signals, unmounts, clears up behind a worker that died; never looks at the image, but for the marks of formats |
//! | the worker (`serve`) | opens the image and the mount, gives up everything else, and answers |
//! | the carrier (`carrier`) | reaches an image that is no plain file, and serves its bytes to the worker |
//!
//! `listing` shows what is mounted, and `manager` tells the service manager that started the
//! supervisor in the foreground how far that is.
//!
//! Without a sandbox there is neither: the worker can unmount, and opens whatever is named.

mod background;
mod carrier;
mod listing;
mod manager;
mod supervisor;

use crate::args::{Mount, SaidFormat, Stats, Umount, Whereabouts};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::{ImagePath, shown, whole_image, with_journal};
use background::Background;
use extant::{Enforced, JournalChoice, MountOptions};
use extant_fuse::{Attached, Ended, MissingRings, Options, Signals, machine_memory};
use extant_image::ImageLocation;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

/// What is said when somebody does not wait for an image to open.
const INTERRUPTED: &str = "interrupted while the image was opened; nothing is mounted";

/// How long an image may be in use by a mount that is ending.
const UNTIL_FREE: Duration = Duration::from_secs(5);

pub(super) fn run(args: &Mount, location: &Whereabouts) -> Outcome {
    let mut args = args.clone();
    match (args.asked_image.take(), args.asked_point.take()) {
        (None, _) => return listing::run(&args),
        (Some(image), Some(point)) => (args.image, args.point) = (image, point),
        (Some(_), None) => {
            return Err(Failure::usage(
                "the directory to mount on is missing: `extant mount IMAGE DIR`",
            ));
        }
    }
    background::take_name();
    let mut options = Options::default();
    // mount(8) does not pass on what it takes for the default.
    let is_by_root = args.as_helper && rustix::process::geteuid().is_root();
    (options.dev, options.suid) = (is_by_root, is_by_root);
    for list in &args.options {
        options.parse(list).map_err(Failure::usage)?;
    }
    options.read_only |= args.read_only || location.as_is || location.journal.is_some();
    options.read_only |= location.mend || location.superblock.is_some();
    options.check().map_err(Failure::usage)?;
    let location = &Whereabouts {
        superblock: location.superblock,
        mend: location.mend || options.mend,
        partition: location.partition.or(options.partition),
        offset: location.offset.or(options.offset),
        as_is: location.as_is || options.no_replay,
        journal: location.journal.clone(),
        image_format: formats(&args, location, &options)?,
        ..Whereabouts::default()
    };
    options.offset = location.offset;
    if args.fake {
        return Ok(());
    }
    if let Some(image) = background::image_of_parent(&args) {
        args.image = image;
    }
    extant_fuse::keep_descriptors(carrier::inherited(&args)?.as_slice()).map_err(Failure::new)?;
    if args.carrier {
        return carrier::carry(&args, location, &options);
    }
    if !args.carried && !args.worker && !args.in_background {
        args.carried = !args.no_sandbox && carrier::is_needed(&args, location)?;
        refuse_far_journal(location, &args)?;
    }
    let args = &args;
    // Before anything is started in the background.
    extant_fuse::check_point(&args.point).map_err(Failure::new)?;
    if args.worker || args.no_sandbox && (args.foreground || args.in_background) {
        serve(args, location, &options)
    } else if args.foreground || args.in_background {
        supervisor::supervise(args, location)
    } else {
        background::start(args, location)
    }
}

/// Mounts, and answers until the mount ends.
fn serve(args: &Mount, location: &Whereabouts, options: &Options) -> Outcome {
    // The supervisor tells a worker to end.
    if args.worker {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::USR1))
            .map_err(Failure::new)?;
    }
    let background = if args.in_background || args.worker {
        Some(Background::begin(args)?)
    } else {
        None
    };
    let mut signals = Signals::hold_back().map_err(Failure::new)?;
    if args.worker {
        signals = signals.for_worker();
    }
    crate::log::start(options.log.as_deref(), args.foreground, &args.point)?;
    let named = whole_image(args.image.as_os_str())?;
    let (image, at) = match named.path() {
        Some(path) => {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let whole = ImageLocation::file(&path).with_partition(named.partition().cloned());
            (path, whole)
        }
        None => (PathBuf::from(shown(&named)), named),
    };
    let at = ImagePath::root_of(at);
    // A loop device would be over the file, and not over the disk in it.
    let mut options = options.clone();
    options.blkdev &= !args.carried && at.image.path().is_some();
    let options = &options;
    let engine = with_journal(engine_options(location, options), location)?;
    // One that was unmounted a moment ago is about to let go of it.
    let may_end = || !extant_fuse::is_mounted(&image);
    let (device, socket) = if args.carried {
        let (device, socket) = carrier::device(&shown(&at.image), options)?;
        (device, Some(socket))
    } else {
        let in_format = args.no_sandbox;
        let writable = !options.read_only;
        let open = || at.open_when_free(location, writable, UNTIL_FREE, may_end, in_format);
        let device = if args.worker {
            // The process beside this one ends it where somebody is in a hurry.
            open()?
        } else {
            let stdout = std::io::stdout();
            let command = background.is_some().then(|| stdout.as_fd());
            let opened = signals.end_during(command, || say(INTERRUPTED), open);
            opened.map_err(Failure::new)??
        };
        // An open file that is the image is nothing for the system's helper.
        extant_fuse::keep_descriptors(&[]).map_err(Failure::new)?;
        (device, None)
    };
    let spool = if location.mend {
        // As long as files can be made. Without one all is kept in memory.
        extant::mend::temporary_spool(device.size()).ok()
    } else {
        None
    };
    let mut attached = Attached::new(&image, &args.point, options).map_err(Failure::new)?;
    if let Some(socket) = socket {
        attached.keeps_socket(socket);
    }
    if let Some(why) = attached.without_block_device() {
        say(format_args!("warning: {why}"));
    }
    match attached.without_rings() {
        // Not where nobody reads it: most mounts are made by scripts and at boot.
        Some(why @ MissingRings::NotAllowed) if std::io::stderr().is_terminal() => {
            say(format_args!("note: {why}"));
        }
        // The kernel offers it, and something else keeps it from this mount.
        Some(why @ (MissingRings::Refused(_) | MissingRings::NotAgreed))
            if options.io_uring.is_none() =>
        {
            say(format_args!("note: {why}"));
        }
        Some(why) if options.io_uring.is_some() => say(format_args!("warning: {why}")),
        _ => {}
    }
    attached.gives_memory_back(crate::allocator::give_back);
    // Everybody who gets in may read the metrics, and the lines have names in them.
    attached.tells_also(if options.allow_other {
        crate::log::counts
    } else {
        crate::log::metrics
    });
    if args.worker {
        if let Some(background) = &background {
            background.attached(&attached.id());
        }
        attached.confine().map_err(Failure::new)?;
    } else {
        extant_fuse::show_presence(&attached.id());
    }
    let fs = at.open_on(device, location, engine, spool)?;
    let mounted = attached.serve(fs.engine().clone()).map_err(Failure::new);
    let mounted = mounted.and_then(|mounted| {
        if let Some(background) = background {
            background.ready()?;
        } else {
            manager::tell(manager::READY);
        }
        Ok(mounted)
    });
    let close = || {
        if options.read_only {
            Ok(())
        } else {
            fs.close().map_err(|e| {
                Failure::new(format!(
                    "{}; what was changed last may be lost",
                    in_image(&at.image, &e)
                ))
            })
        }
    };
    let (served, closed) = match mounted {
        Ok(mounted) => mounted.wait_and_close(Some(signals), close),
        Err(e) => return close().and(Err(e)),
    };
    if let Ok(Ended::StillUsed) = served {
        say(
            "the mount was still in use when it ended; what was written until then is in the image",
        );
    }
    served.map_err(Failure::new)?;
    closed
}

/// Takes what is said of the image, and of its journal, from both ways to say it. Then it holds for
/// the image whatever that is called in the processes of the mount.
fn formats(args: &Mount, location: &Whereabouts, options: &Options) -> Outcome<Vec<SaidFormat>> {
    let of_image = match &options.image_format {
        Some(word) => Some(word.parse().map_err(Failure::usage)?),
        None => None,
    };
    if location.image_format.is_empty() && of_image.is_none() {
        return Ok(Vec::new());
    }
    let of_image = location
        .format_of(&whole_image(args.image.as_os_str())?)
        .or(of_image);
    let mut all = Vec::new();
    if let Some(format) = of_image {
        all.push(SaidFormat {
            image: None,
            format,
        });
    }
    if let Some(journal) = &location.journal {
        match location.format_of(&whole_image(journal.as_os_str())?) {
            Some(format) => all.push(SaidFormat {
                image: Some(journal.as_os_str().to_owned()),
                format,
            }),
            None if of_image.is_some() => {
                return Err(Failure::usage(
                    "the format of the image is said, and not that of its journal: give \
                     --image-format JOURNAL=FORMAT as well",
                ));
            }
            None => {}
        }
    }
    Ok(all)
}

/// Refuses a journal that the process which reads the image could not reach.
fn refuse_far_journal(location: &Whereabouts, args: &Mount) -> Outcome {
    let Some(journal) = &location.journal else {
        return Ok(());
    };
    let journal = whole_image(journal.as_os_str())?;
    if args.carried || journal.path().is_none() {
        return Err(Failure::usage(format!(
            "a mount reads a journal on another device only where both are files or block devices here: {} is read \
             by the other commands",
            shown(&journal)
        )));
    }
    Ok(())
}

/// Collects what the engine is told.
pub(crate) fn engine_options(location: &Whereabouts, options: &Options) -> MountOptions {
    let engine = match (options.read_only, location.as_is) {
        (false, _) => MountOptions::read_write()
            .discard(options.discard)
            .delalloc(options.delalloc)
            .errors(options.errors)
            .quotas(Enforced {
                users: options.user_limits,
                groups: options.group_limits,
                projects: options.project_limits,
            }),
        (true, false) => MountOptions::read_only(),
        (true, true) => MountOptions::read_only().journal(JournalChoice::Ignore),
    };
    let engine = engine.cache_bytes(share_of_memory(options));
    match options.commit_secs {
        Some(secs) => engine.commit_interval(Duration::from_secs(secs.into())),
        None => engine,
    }
}

/// Computes how many bytes of file data the engine keeps: less than usual, as the kernel keeps it
/// too, and a part of what a confined process can have.
fn share_of_memory(options: &Options) -> usize {
    const SHARE: u64 = 8;
    const SHARE_OF_LIMIT: u64 = 4;
    const LEAST: u64 = 64 << 20;
    let machine = machine_memory();
    let share = (machine / SHARE).min(options.memory_limit(machine) / SHARE_OF_LIMIT);
    usize::try_from(share.max(LEAST)).unwrap_or(usize::MAX)
}

/// Runs `extant stats`.
pub(super) fn stats(args: &Stats) -> Outcome {
    /// No attribute is longer.
    const ROOM: usize = 64 << 10;
    let mut text = vec![0; ROOM];
    let len = rustix::fs::getxattr(&args.point, extant_fuse::METRICS, &mut text[..]);
    let len = len.map_err(|e| {
        let point = args.point.display();
        Failure::new(format!(
            "{point}: {e}: give the directory that `extant mount` was given"
        ))
    })?;
    text.truncate(len);
    std::io::stdout().write_all(&text)?;
    Ok(())
}

/// Runs `extant umount`.
pub(super) fn unmount(args: &Umount) -> Outcome {
    let waits = |what: &str| say(what);
    extant_fuse::unmount(&args.point, args.lazy, &waits).map_err(Failure::new)
}
