//! `extant mount` and `extant umount`.

mod background;

use crate::args::{Mount, Umount, Where};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::place::Place;
use background::Background;
use extant::{Filesystem, MountOptions};
use extant_fuse::{Ended, Mounted, Options, Signals};
use std::time::Duration;

pub(super) fn run(args: &Mount, place: &Where) -> Outcome {
    let mut options = Options::default();
    for list in &args.options {
        options.parse(list).map_err(Failure::usage)?;
    }
    options.read_only |= args.read_only || place.as_is;
    // Before anything is started in the background.
    extant_fuse::check_point(&args.point).map_err(Failure::new)?;
    match args.foreground || args.in_background {
        true => serve(args, place, &options),
        false => background::start(args, place),
    }
}

/// Mounts, and answers until the mount ends.
fn serve(args: &Mount, place: &Where, options: &Options) -> Outcome {
    let background = match args.in_background {
        true => Some(Background::begin()?),
        false => None,
    };
    let signals = Signals::hold_back().map_err(Failure::new)?;
    let image = args.image.canonicalize().unwrap_or(args.image.clone());
    let at = Place {
        image: image.clone(),
        path: "/".into(),
        has_path: false,
    };
    let fs = open(&at, place, options)?;
    let mounted = Mounted::new(fs.engine().clone(), &image, &args.point, options);
    let served = mounted.map_err(Failure::new).and_then(|mounted| {
        if let Some(background) = background {
            background.ready()?;
        }
        mounted.wait(Some(signals)).map_err(Failure::new)
    });
    if let Ok(Ended::StillUsed) = served {
        say(
            "the mount was still in use when it ended; what was written until then is in the image",
        );
    }
    let closed = match options.read_only {
        true => Ok(()),
        false => fs.close().map_err(|e| {
            Failure::new(format!(
                "{}; what was changed last may be lost",
                in_image(&image, &e)
            ))
        }),
    };
    served.map(drop).and(closed)
}

fn open(at: &Place, place: &Where, options: &Options) -> Outcome<Filesystem> {
    if options.read_only {
        return at.open(place);
    }
    let mut engine = MountOptions::read_write()
        .discard(options.discard)
        .delalloc(options.delalloc);
    if let Some(secs) = options.commit_secs {
        engine = engine.commit_interval(Duration::from_secs(secs.into()));
    }
    at.open_writable_with(place, engine)
}

/// `extant umount`.
pub(super) fn unmount(args: &Umount) -> Outcome {
    extant_fuse::unmount(&args.point, args.lazy).map_err(Failure::new)
}
