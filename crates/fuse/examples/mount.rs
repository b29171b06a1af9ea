//! Mounts an image for every program, until it is unmounted or SIGINT or SIGTERM comes.
//!
//! ```console
//! cargo run -p extant-fuse --example mount -- disk.img /mnt
//! ```

use extant::{Filesystem, MountOptions, OpenSpec};
use extant_fuse::{Mounted, Options, Signals};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [image, point] = args.as_slice() else {
        return Err("give an image, and a directory to mount it on".into());
    };
    // Before there are other threads: they shall not be ended by the signals.
    let signals = Signals::hold_back()?;
    serve(Path::new(image), Path::new(point), Some(signals))
}

/// Serves the mount until its end, and closes the file system.
pub(crate) fn serve(
    image: &Path,
    point: &Path,
    signals: Option<Signals>,
) -> Result<(), Box<dyn Error>> {
    // What `-o` says in fstab. A mount without a block device ends when it is unmounted.
    let mut options = Options::default();
    options.parse("no_blkdev")?;
    let fs = Filesystem::open_spec(&OpenSpec::read_write(image), MountOptions::read_write())?;
    // The mount serves the engine, which is behind the feature `unstable` of `extant`.
    let mounted = Mounted::new(Arc::clone(fs.engine()), image, point, &options)?;
    let (ended, closed) = mounted.wait_and_close(signals, || fs.close());
    closed?;
    ended?;
    Ok(())
}
