//! The process that reaches an image which is no plain file: over a network, or in a format of disk
//! images.
//!
//! It opens what the address names and serves it, over a socket pair that exists before the worker
//! is confined, to that one process. The worker decides what is read and written; this process
//! knows bytes of a disk, and answers. It ends when the worker does.

use super::UNTIL_FREE;
use super::background::{Background, Said, launch, why_ended, words};
use crate::args::{Mount, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown, whole_image};
use extant_blockdev::{DeviceError, FileOptions, NbdDevice, NbdOptions, SharedDevice};
use extant_fuse::{Options, Signals};
use extant_image::{Carrier, ImageFormat};
use extant_serve::{Limits, serve_connection};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The role of this process.
pub(super) const CARRIER: &str = "--carrier";

/// Requests that are done at a time: what is far away is quick only by many.
const REQUESTS: usize = 32;

/// How long the worker waits for a sign of this process, which itself waits for servers and for
/// slow disks. If this process ends, the worker knows at once.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns whether an image needs this process: it is no file, or a file in a format of disk
/// images. Of a file only the marks of such formats are looked at, unless it is said what it is.
pub(super) fn is_needed(args: &Mount, place: &Whereabouts) -> Outcome<bool> {
    let location = whole_image(args.image.as_os_str())?;
    match location.carrier() {
        Carrier::Descriptor(_) => Err(Failure::usage(format!(
            "{}: the processes of a mount are started with no open files: name the image by its path",
            shown(&location)
        ))),
        Carrier::File(path) => {
            if let Some(said) = place.format_of(&location) {
                return Ok(said != ImageFormat::RAW);
            }
            // What cannot be opened here is refused, with the reason, where it is used.
            let Ok(file) = FileOptions::read_only().open(path) else {
                return Ok(false);
            };
            match extant_formats::recognise(&file) {
                Ok(format) => Ok(format.is_some()),
                // It could be one or the other.
                Err(e @ DeviceError::Refused { .. }) => Err(Failure::new(e)),
                Err(_) => Ok(false),
            }
        }
        _ => Ok(true),
    }
}

/// The process, of which its end is to be waited for.
pub(super) struct Started(Receiver<()>);

impl Started {
    /// Waits for its end, which follows that of the worker: it lets go of the image then. A server
    /// that is gone is not waited for. What the worker had made durable is so by then.
    pub(super) fn wait(self) {
        let _ = self.0.recv_timeout(UNTIL_FREE);
    }
}

/// Starts the process, and waits until it has opened the image. Returns the socket behind which the
/// disk is.
pub(super) fn start(args: &Mount, location: &Whereabouts) -> Outcome<(OwnedFd, Started)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut child = launch(CARRIER, args, location, OwnedFd::from(theirs).into())?;
    if words(child.stdout.take()).any(|said| matches!(said, Said::Ready)) {
        return Ok((ours.into(), reap_at_its_end(child)));
    }
    Err(why_ended(&child.wait()?))
}

/// Has a thread ask how the process ended, so that its number becomes free.
fn reap_at_its_end(mut child: Child) -> Started {
    let (ended, wait) = channel();
    // Without a thread it stays in the list of processes until this one ends.
    let _ = std::thread::Builder::new()
        .name("extant-carrier".to_owned())
        .spawn(move || {
            let _ = child.wait();
            let _ = ended.send(());
        });
    Started(wait)
}

/// Opens the image, and serves it to the process at the other end of standard input.
pub(super) fn carry(args: &Mount, place: &Whereabouts, options: &Options) -> Outcome {
    let background = Background::begin(args)?;
    // The worker's end ends this process. Signals would come before it has everything.
    let _signals = Signals::hold_back().map_err(Failure::new)?;
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let at = ImagePath::root_of(whole_image(args.image.as_os_str())?);
    let device = at.open_when_free(place, !options.read_only, UNTIL_FREE, || true, true)?;
    background.ready()?;
    let limits = Limits {
        threads: REQUESTS,
        ..Limits::default()
    };
    serve_connection(socket, device, limits).map_err(Failure::new)
}

/// Opens what the process at the other end of standard input serves. Returns the number of the
/// socket too, which the device uses as long as it lives.
pub(super) fn device(name: &str, options: &Options) -> Outcome<(SharedDevice, RawFd)> {
    let how = if options.read_only {
        NbdOptions::read_only()
    } else {
        NbdOptions::read_write()
    };
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let number = socket.as_raw_fd();
    let device = NbdDevice::connected(socket, name, how.answer_timeout(PATIENCE));
    Ok((Arc::new(device.map_err(Failure::new)?), number))
}
