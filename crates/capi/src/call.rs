//! What becomes of a failure on the way to C.

use crate::constants::{
    ERROR_CANCELLED, ERROR_DAMAGED, ERROR_DEVICE, ERROR_FILE, ERROR_INTERNAL, ERROR_MISUSE,
    ERROR_NOT_EXT4, ERROR_REFUSED, ERROR_UNSUPPORTED,
};
use crate::watch::ECANCELED;
use extant::container::FormatError;
use extant::errno::{
    EBADMSG, EBUSY, EEXIST, EINVAL, EIO, ENODATA, ENOSPC, ENXIO, EOPNOTSUPP, EPERM, ERANGE, EUCLEAN,
};
use extant::{Cause, DeviceError};
use extant_mkfs::output::OutputError;
use extant_mkfs::tables::TableError;
use extant_mkfs::write::WriteError;
use extant_mkfs::{BuildError, layout::PlanError};
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The error number of what is no ext4, which Linux has for a wrong medium.
const EMEDIUMTYPE: i32 = 124;

thread_local! {
    /// Why the last call of this thread failed that did.
    static MESSAGE: RefCell<CString> = RefCell::default();
    /// What kind of failure that was.
    static KIND: Cell<u32> = const { Cell::new(0) };
}

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    kind: u32,
    message: String,
}

impl Failure {
    fn new(errno: i32, kind: u32, message: impl Into<String>) -> Self {
        Self {
            errno,
            kind,
            message: message.into(),
        }
    }

    /// NULL where something is needed.
    pub(crate) fn null(what: &str) -> Self {
        Self::invalid(format!("NULL was passed where {what} is needed"))
    }

    /// An argument that means nothing.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(EINVAL, ERROR_MISUSE, message)
    }

    /// Flags that mean nothing.
    pub(crate) fn unknown(what: &str, flags: u32) -> Self {
        Self::invalid(format!("{what}: {flags:#x} is not known"))
    }

    /// What this library cannot do.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(EOPNOTSUPP, ERROR_UNSUPPORTED, message)
    }

    /// Something that is there and is not replaced.
    pub(crate) fn in_the_way(message: impl Into<String>) -> Self {
        Self::new(EEXIST, ERROR_REFUSED, message)
    }

    /// What is not done, since it would not be sound.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(EPERM, ERROR_REFUSED, message)
    }

    /// Work that was ended.
    pub(crate) fn cancelled() -> Self {
        Self::new(
            ECANCELED,
            ERROR_CANCELLED,
            "it was ended before it was done, as it was asked to be",
        )
    }

    /// Whether it was ended as it was asked to be.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.kind == ERROR_CANCELLED
    }

    /// The sentence.
    pub(crate) fn text(&self) -> &str {
        &self.message
    }

    /// Adds what the failure is about, in front, unless the sentence says so.
    pub(crate) fn about(mut self, what: &dyn std::fmt::Display) -> Self {
        let what = what.to_string();
        if !self.message.starts_with(&what) {
            self.message = format!("{what}: {}", self.message);
        }
        self
    }

    /// Adds what else there is to say, behind.
    pub(crate) fn adding(mut self, what: &str) -> Self {
        self.message.push_str(what);
        self
    }

    /// An attribute that the file does not have.
    pub(crate) fn no_attribute() -> Self {
        Self::new(ENODATA, ERROR_FILE, "the file has no such attribute")
    }

    /// An offset behind which there is nothing of the kind.
    pub(crate) fn past_end() -> Self {
        Self::new(ENXIO, ERROR_FILE, "there is none up to the end of the file")
    }

    /// A buffer that is too small for `needed` bytes.
    pub(crate) fn too_small(needed: usize) -> Self {
        Self::new(
            ERANGE,
            ERROR_MISUSE,
            format!("the buffer is too small for {needed} bytes"),
        )
    }
}

impl Failure {
    /// Room for fewer things than there are.
    pub(crate) fn too_few(message: impl Into<String>) -> Self {
        Self::new(ERANGE, ERROR_MISUSE, message)
    }
}

impl From<extant::Error> for Failure {
    fn from(e: extant::Error) -> Self {
        let (errno, kind) = match e.cause() {
            Cause::Image(image) if image.is_not_ext4() => (EMEDIUMTYPE, ERROR_NOT_EXT4),
            Cause::Image(image) if image.device().is_some_and(is_cut_short) => {
                (EUCLEAN, ERROR_DAMAGED)
            }
            Cause::Image(image) if image.device().is_some() => (e.errno(), ERROR_DEVICE),
            Cause::Image(image) if image.unsupported_features().is_some() => {
                (e.errno(), ERROR_UNSUPPORTED)
            }
            Cause::Host { .. } => (e.errno(), ERROR_DEVICE),
            _ => (e.errno(), kind_of(e.errno())),
        };
        Self::new(errno, kind, e.to_string())
    }
}

/// Whether a file system leads to what lies behind the end of its device: that was cut short.
fn is_cut_short(e: &DeviceError) -> bool {
    matches!(e, DeviceError::OutOfRange { .. })
}

/// The kind of most failures with an error number.
fn kind_of(errno: i32) -> u32 {
    match errno {
        EUCLEAN | EBADMSG => ERROR_DAMAGED,
        EIO | EBUSY => ERROR_DEVICE,
        EINVAL => ERROR_MISUSE,
        EOPNOTSUPP => ERROR_UNSUPPORTED,
        ECANCELED => ERROR_CANCELLED,
        _ => ERROR_FILE,
    }
}

impl From<DeviceError> for Failure {
    fn from(e: DeviceError) -> Self {
        Self::new(e.errno(), ERROR_DEVICE, e.to_string())
    }
}

impl From<extant::image::UnknownFormat> for Failure {
    fn from(e: extant::image::UnknownFormat) -> Self {
        Self::invalid(e.to_string())
    }
}

impl From<extant::image::AddressError> for Failure {
    fn from(e: extant::image::AddressError) -> Self {
        let e = DeviceError::from(e);
        Self::new(e.errno(), ERROR_MISUSE, e.to_string())
    }
}

impl From<extant::FormatError> for Failure {
    fn from(e: extant::FormatError) -> Self {
        Self::invalid(e.to_string())
    }
}

impl From<extant_fsck::Error> for Failure {
    fn from(e: extant_fsck::Error) -> Self {
        use extant_fsck::Error;
        let (errno, kind) = match &e {
            Error::Device(device) if is_cut_short(device) => (EUCLEAN, ERROR_DAMAGED),
            Error::Device(device) => (device.errno(), ERROR_DEVICE),
            Error::NotExt4 { .. } => (EMEDIUMTYPE, ERROR_NOT_EXT4),
            Error::Unsupported { .. } | Error::ExternalJournal | Error::TooLarge { .. } => {
                (EOPNOTSUPP, ERROR_UNSUPPORTED)
            }
            Error::Undo(e) => (e.raw_os_error().unwrap_or(EIO), ERROR_DEVICE),
            Error::PerhapsMade(_) | Error::NotHome(_) => (EIO, ERROR_DEVICE),
            Error::InUse { .. } => (EBUSY, ERROR_REFUSED),
            Error::Refused { .. } => (EINVAL, ERROR_REFUSED),
            Error::Loss { .. } => (EPERM, ERROR_REFUSED),
            _ => (EUCLEAN, ERROR_DAMAGED),
        };
        Self::new(errno, kind, e.to_string())
    }
}

impl From<BuildError> for Failure {
    fn from(e: BuildError) -> Self {
        let (errno, kind) = match &e {
            BuildError::Plan(PlanError::TooLarge { .. }) => (ENOSPC, ERROR_DEVICE),
            BuildError::Plan(_) => (EINVAL, ERROR_MISUSE),
            BuildError::Place(_) => (ENOSPC, ERROR_REFUSED),
            BuildError::Output(OutputError::Device(device))
            | BuildError::Write(WriteError::Device(device)) => (device.errno(), ERROR_DEVICE),
            BuildError::Output(OutputError::Appeared { .. }) => (EEXIST, ERROR_REFUSED),
            BuildError::Output(OutputError::Format(e)) => match e.downcast_ref() {
                Some(FormatError::Unsupported { .. }) => (EOPNOTSUPP, ERROR_UNSUPPORTED),
                Some(FormatError::BadSize { .. }) => (EINVAL, ERROR_MISUSE),
                _ => (EIO, ERROR_DEVICE),
            },
            other => (of_system(other).unwrap_or(EIO), ERROR_DEVICE),
        };
        Self::new(errno, kind, e.to_string())
    }
}

impl From<OutputError> for Failure {
    fn from(e: OutputError) -> Self {
        BuildError::from(e).into()
    }
}

impl From<extant_mkfs::source::SourceError> for Failure {
    fn from(e: extant_mkfs::source::SourceError) -> Self {
        let errno = of_system(&e).unwrap_or(EINVAL);
        Self::new(errno, ERROR_DEVICE, e.to_string())
    }
}

impl From<TableError> for Failure {
    fn from(e: TableError) -> Self {
        match e {
            TableError::Source(e) => e.into(),
            e => {
                let errno = of_system(&e);
                let kind = errno.map_or(ERROR_MISUSE, |_| ERROR_DEVICE);
                Self::new(errno.unwrap_or(EINVAL), kind, e.to_string())
            }
        }
    }
}

/// What the system said, if it is below an error.
fn of_system(e: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut e = Some(e);
    while let Some(this) = e {
        if let Some(device) = this.downcast_ref::<DeviceError>() {
            return Some(device.errno());
        }
        if let Some(errno) = this
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
        {
            return Some(errno);
        }
        e = this.source();
    }
    None
}

/// Does what C asked for. Returns 0, or the negative error number.
pub(crate) fn done(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match caught(work) {
        Ok(()) => 0,
        Err(errno) => -errno,
    }
}

/// Does what C asked for, where there is a count or an offset to tell. Returns that, or the
/// negative error number.
pub(crate) fn counted(work: impl FnOnce() -> Result<u64, Failure>) -> i64 {
    let count = || {
        i64::try_from(work()?)
            .map_err(|_| Failure::new(EIO, ERROR_INTERNAL, "the result is too large to be told"))
    };
    caught(count).unwrap_or_else(|errno| -i64::from(errno))
}

fn caught<R>(work: impl FnOnce() -> Result<R, Failure>) -> Result<R, i32> {
    // What is behind the handles keeps its own invariants: after a panic, too.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Failure::new(
            EIO,
            ERROR_INTERNAL,
            "an internal error, which is a defect of this library; the standard error output tells more",
        ))
    });
    result.map_err(|failure| {
        let mut text = failure.message.into_bytes();
        text.retain(|&byte| byte != 0);
        let text = CString::new(text).unwrap_or_default();
        // A thread that is ending has no place for it any more.
        let _ = MESSAGE.try_with(|message| message.replace(text));
        let _ = KIND.try_with(|kind| kind.set(failure.kind));
        failure.errno
    })
}

/// The sentence of this thread's last failure.
pub(crate) fn message() -> *const c_char {
    MESSAGE
        .try_with(|message| message.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// What kind of failure that was.
pub(crate) fn kind() -> u32 {
    KIND.try_with(Cell::get).unwrap_or(0)
}
