//! `extant serve`.

use crate::args::{Serve, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{as_raw, how, whole_image};
use extant_blockdev::SharedDevice;
use extant_fuse::Signals;
use extant_serve::{Listen, NbdServer, ServeOptions};
use std::io::Write;

pub(super) fn run(args: &Serve, location: &Whereabouts) -> Outcome {
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
                "--format {other}: only raw can be said here; --image-format says any format"
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
            .map_err(|error| {
                Failure::new(format!("what was written last may not be durable: {error}"))
            })
    })
}

/// The disk in the image.
fn disk(args: &Serve, location: &Whereabouts, is_raw: bool) -> Outcome<SharedDevice> {
    let image = whole_image(args.image.as_os_str())?;
    let how = how(location, &image, !args.read_only).guarded(args.read_only);
    let how = if is_raw {
        as_raw(how, location, &image, "--format")?
    } else {
        how
    };
    image.open(&how).map_err(Failure::new)
}
