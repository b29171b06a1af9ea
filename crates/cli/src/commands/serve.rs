//! `extant serve`.

use crate::args::{ImageLocation, Serve};
use crate::failure::{Failure, Outcome, say};
use extant::Escaped;
use extant_blockdev::{FileOptions, OpenSpec, SharedDevice};
use extant_formats::{Format, OpenHow, open, recognise};
use extant_fuse::Signals;
use extant_serve::{Listen, NbdServer, ServeOptions};
use std::io::Write;
use std::sync::Arc;

pub(super) fn run(args: &Serve, location: &ImageLocation) -> Outcome {
    if location.superblock.is_some() || location.as_is || location.journal.is_some() {
        return Err(Failure::usage(
            "a disk is served as it is: --superblock, --as-is and --journal mean nothing to it",
        ));
    }
    let is_raw = match args.format.as_deref() {
        None => false,
        Some("raw") => true,
        Some(other) => {
            return Err(Failure::usage(format!(
                "--format {other}: formats are seen from the content; only raw can be said"
            )));
        }
    };
    // Before there are threads, which would die of them.
    let signals = Signals::hold_back().map_err(Failure::new)?;
    let disk = disk(args, location, is_raw)?;
    let options = ServeOptions {
        name: args.export.clone(),
        read_only: args.read_only,
        ..ServeOptions::default()
    };
    let server = NbdServer::bind(&args.nbd, disk, options).map_err(Failure::new)?;
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
    let stop = server.stop();
    let ended = std::thread::scope(|scope| {
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
            .map_err(|error| {
                Failure::new(format!("what was written last may not be durable: {error}"))
            })
    });
    ended
}

/// The disk in the image.
fn disk(args: &Serve, location: &ImageLocation, is_raw: bool) -> Outcome<SharedDevice> {
    let options = if args.read_only {
        FileOptions::read_only().guarded(true)
    } else {
        FileOptions::read_write()
    };
    let file: SharedDevice = Arc::new(options.open(&args.image).map_err(Failure::new)?);
    let seen = if is_raw {
        None
    } else {
        recognise(&*file).map_err(Failure::new)?
    };
    let how = if args.read_only {
        OpenHow::read_only()
    } else {
        OpenHow::read_write()
    };
    let how = how.beside(&args.image).tell(|notice| say(notice));
    let format = seen.unwrap_or(Format::Raw);
    let disk = open(file, format, &how).map_err(|error| {
        Failure::new(format!(
            "cannot serve {}: {error}",
            Escaped::path(&args.image)
        ))
    })?;
    OpenSpec::read_only(&args.image)
        .offset(location.offset)
        .partition(location.partition)
        .part_of(disk)
        .map_err(Failure::new)
}
