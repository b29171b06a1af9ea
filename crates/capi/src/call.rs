//! What becomes of a failure on the way to C.

use extant::errno::{EFAULT, EINVAL, EIO, ENODATA, ENXIO, ERANGE};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Why the last call of this thread failed that did.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    message: String,
}

impl Failure {
    fn new(errno: i32, message: impl Into<String>) -> Self {
        Self {
            errno,
            message: message.into(),
        }
    }

    /// NULL where something is needed.
    pub(crate) fn null(what: &str) -> Self {
        Self::new(EFAULT, format!("NULL was passed where {what} is needed"))
    }

    /// An argument that means nothing.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(EINVAL, message)
    }

    /// What this library cannot do.
    #[cfg(not(feature = "mend"))]
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(extant::errno::EOPNOTSUPP, message)
    }

    /// An attribute that the file does not have.
    pub(crate) fn no_attribute() -> Self {
        Self::new(ENODATA, "the file has no such attribute")
    }

    /// An offset behind which there is nothing of the kind.
    pub(crate) fn past_end() -> Self {
        Self::new(ENXIO, "there is none up to the end of the file")
    }

    /// A buffer that is too small for `needed` bytes.
    pub(crate) fn too_small(needed: usize) -> Self {
        Self::new(
            ERANGE,
            format!("the buffer is too small for {needed} bytes"),
        )
    }
}

impl From<extant::Error> for Failure {
    fn from(e: extant::Error) -> Self {
        Self::new(e.errno(), e.to_string())
    }
}

impl From<extant::image::UnknownFormat> for Failure {
    fn from(e: extant::image::UnknownFormat) -> Self {
        Self::invalid(e.to_string())
    }
}

impl From<extant::image::AddressError> for Failure {
    fn from(e: extant::image::AddressError) -> Self {
        let e = extant::DeviceError::from(e);
        Self::new(e.errno(), e.to_string())
    }
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
        i64::try_from(work()?).map_err(|_| Failure::new(EIO, "the result is too large to be told"))
    };
    caught(count).unwrap_or_else(|errno| -i64::from(errno))
}

fn caught<R>(work: impl FnOnce() -> Result<R, Failure>) -> Result<R, i32> {
    // What is behind the handles keeps its own invariants: after a panic, too.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Failure::new(
            EIO,
            "an internal error, which is a defect of this library; the standard error output tells more",
        ))
    });
    result.map_err(|failure| {
        let mut text = failure.message.into_bytes();
        text.retain(|&byte| byte != 0);
        let text = CString::new(text).unwrap_or_default();
        // A thread that is ending has no place for it any more.
        let _ = MESSAGE.try_with(|message| message.replace(text));
        failure.errno
    })
}

/// The sentence of this thread's last failure.
pub(crate) fn message() -> *const c_char {
    MESSAGE
        .try_with(|message| message.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
