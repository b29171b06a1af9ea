//! Why a command failed, and the exit code for it.

use crate::closed;
use crate::commands::e2fsprogs::Called;
use crate::image_path::shown;
use extant_image::ImageLocation;
use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether anything that was told is damage of an image.
static HAS_MET_DAMAGE: AtomicBool = AtomicBool::new(false);

/// Result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line makes no sense; the text says what to do about it.
    Usage(String),
    /// Something was not done; the text says what and why.
    Failed(String),
    /// Something was not done, and standard error says so already.
    Said,
    /// Something is to be told by this exit code alone; all has been said.
    Code(u8),
    /// The reader of the output has closed the pipe.
    PipeClosed,
}

impl Failure {
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Self::Failed(text.to_string())
    }

    pub(crate) fn usage(text: impl fmt::Display) -> Self {
        Self::Usage(text.to_string())
    }

    /// Says what happened and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Usage(text) => {
                say(&text);
                ExitCode::from(2)
            }
            Self::Failed(text) => {
                say(&text);
                ExitCode::FAILURE
            }
            Self::Said => ExitCode::FAILURE,
            Self::Code(code) => ExitCode::from(code),
            Self::PipeClosed => ExitCode::SUCCESS,
        }
    }
}

/// Prints a message for people.
pub(crate) fn say(text: impl fmt::Display) {
    use io::Write;
    // With standard error gone there is no place to tell it.
    let name = Called::now().map_or("extant", |called| called.name);
    let _ = writeln!(io::stderr(), "{name}: {text}");
}

/// Whether anything that was told is damage of an image.
pub(crate) fn has_met_damage() -> bool {
    HAS_MET_DAMAGE.load(Ordering::Relaxed)
}

/// A failure of writing to standard output.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            Self::PipeClosed
        } else {
            let e = closed::why_not_written(e);
            Self::Failed(format!("cannot write the output: {e}"))
        }
    }
}

/// What an error inside an image is called: with the image in front, `rootfs.img:/etc: ...`.
pub(crate) fn in_image(image: &ImageLocation, e: &extant::Error) -> String {
    let is_damage = match e.cause() {
        // What has no superblock may be anything.
        extant::Cause::Image(e) => {
            e.is_corruption() && !matches!(e.place(), Some(extant::Place::Superblock))
        }
        extant::Cause::Unread(unread) => unread.reason().is_corruption(),
        extant::Cause::DirectoryTwice | extant::Cause::NameTwice | extant::Cause::BadName => true,
        _ => false,
    };
    if is_damage {
        HAS_MET_DAMAGE.store(true, Ordering::Relaxed);
    }
    match e.cause() {
        extant::Cause::Host { .. } => e.to_string(),
        _ if e.path().as_os_str().is_empty() => format!("{}: {e}", shown(image)),
        _ => format!("{}:{e}", shown(image)),
    }
}
