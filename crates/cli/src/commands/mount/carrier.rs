//! The process that reaches an image which is no plain file: over a network, or in a format of disk
//! images.
//!
//! It opens what the address names and serves it, over a socket pair that exists before the worker
//! is confined, to that one process. The worker decides what is read and written; this process
//! knows bytes of a disk, and answers. It ends when the worker does.

use super::UNTIL_FREE;
use super::background::{Background, Said, launch, why_ended, words};
use super::supervisor::{start_thread, wait_for};
use crate::args::{Mount, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, how, shown, whole_image};
use extant_blockdev::{BlockDevice, DeviceError, FileOptions, NbdDevice, NbdOptions, SharedDevice};
use extant_fuse::{Options, Signals};
use extant_image::{Carrier, ImageFormat};
use extant_serve::{Limits, serve_connection};
use rustix::process::Pid;
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

/// How long this process has to end after its worker, where somebody is in a hurry.
const MOMENT: Duration = Duration::from_secs(1);

/// How long the worker waits for a sign of this process, which itself waits for servers and for
/// slow disks. If this process ends, the worker knows at once.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns whether an image needs this process: it is no file, or a file in a format of disk
/// images. Of a file only the marks of such formats are looked at, unless it is said what it is.
pub(super) fn is_needed(args: &Mount, place: &Whereabouts) -> Outcome<bool> {
    let location = whole_image(args.image.as_os_str())?;
    let said = || {
        place
            .format_of(&location)
            .map(|said| said != ImageFormat::RAW)
    };
    match location.carrier() {
        Carrier::Descriptor(_) => match said() {
            Some(is_in_format) => Ok(is_in_format),
            None => {
                let how = how(place, &location, false);
                looks_so(&*location.open_carrier(&how).map_err(Failure::new)?)
            }
        },
        Carrier::File(path) => match (said(), FileOptions::read_only().open(path)) {
            (Some(is_in_format), _) => Ok(is_in_format),
            (None, Ok(file)) => looks_so(&file),
            // What cannot be opened here is refused, with the reason, where it is used.
            (None, Err(_)) => Ok(false),
        },
        _ => Ok(true),
    }
}

/// Returns whether a file looks as if it were in a format of disk images.
fn looks_so(file: &dyn BlockDevice) -> Outcome<bool> {
    match extant_formats::recognise(file) {
        Ok(format) => Ok(format.is_some()),
        // It could be one or the other.
        Err(e @ DeviceError::Refused { .. }) => Err(Failure::new(e)),
        Err(_) => Ok(false),
    }
}

/// Returns the number of the open file that is the image: all processes of the mount are started
/// with it.
pub(super) fn inherited(args: &Mount) -> Outcome<Option<RawFd>> {
    let location = whole_image(args.image.as_os_str())?;
    match location.carrier() {
        Carrier::Descriptor(0..=2) => Err(Failure::usage(format!(
            "{}: the processes of a mount have another standard input, output and error: have the file opened by \
             another number, in a shell with 3<>FILE and fd:3",
            shown(&location)
        ))),
        Carrier::Descriptor(number) => Ok(Some(*number)),
        _ => Ok(None),
    }
}

/// The process, as long as it opens the image.
pub(super) struct Starting {
    child: Child,
    socket: OwnedFd,
}

impl Starting {
    /// Takes over the process, which has opened the image, and the socket behind which the disk is.
    pub(super) fn opened(self) -> (OwnedFd, Started) {
        let (told, ended) = channel();
        let number = Pid::from_child(&self.child);
        // Without a thread for it the end is not waited for.
        let _ = start_thread("extant-carrier", move || {
            wait_for(number);
            let _ = told.send(());
        });
        let child = self.child;
        (self.socket, Started { child, ended })
    }

    /// Explains why the process ended, which it has.
    pub(super) fn why(mut self) -> Failure {
        match self.child.wait() {
            Ok(status) => why_ended(&status),
            Err(e) => Failure::new(e),
        }
    }

    /// Ends the process, whatever it waits for.
    pub(super) fn give_up(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process, of which its end is to be waited for.
pub(super) struct Started {
    child: Child,
    ended: Receiver<()>,
}

impl Started {
    /// Waits for its end, which follows that of the worker: it lets go of the image then. A server
    /// that is gone is not waited for. What the worker had made durable is so by then.
    pub(super) fn wait(mut self) {
        if self.ended.recv_timeout(UNTIL_FREE).is_ok() {
            let _ = self.child.wait();
        }
    }

    /// Ends it after a moment in which it can let go of the image, whatever it waits for.
    pub(super) fn give_up(mut self) {
        let _ = self.ended.recv_timeout(MOMENT);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the process. A thread calls `tell` with whether it has opened the image, or has ended
/// before.
pub(super) fn start(
    args: &Mount,
    location: &Whereabouts,
    tell: impl FnOnce(bool) + Send + 'static,
) -> Outcome<Starting> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut child = launch(CARRIER, args, location, OwnedFd::from(theirs).into())?;
    let output = child.stdout.take();
    let starting = Starting {
        child,
        socket: ours.into(),
    };
    let listens = start_thread("extant-carrier", move || {
        tell(words(output).any(|said| matches!(said, Said::Ready)));
    });
    match listens {
        Ok(()) => Ok(starting),
        Err(failure) => {
            starting.give_up();
            Err(failure)
        }
    }
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
        // It comes as soon as it is started.
        negotiation: PATIENCE,
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
