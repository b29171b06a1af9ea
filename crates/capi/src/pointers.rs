//! From what C passes to what Rust may use.
//!
//! Every function here believes its caller, which is C by way of `abi`: the header says what
//! pointers must point to.
#![allow(unsafe_code)]

use crate::call::Failure;
use crate::types::Options;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of [`Options`] when there was no later version of them.
const OPTIONS_OF_FIRST_VERSION: usize = 32;
/// More than any version will have.
const OPTIONS_AT_MOST: usize = 4096;

/// What a handle stands for.
///
/// # Safety
/// `handle` is NULL or came from [`give`] and was not taken back.
pub(crate) unsafe fn object<'a, T>(handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::null("a handle"))
}

/// What a handle stands for that only one thread uses.
///
/// # Safety
/// As for [`object`]; nobody else uses it meanwhile.
pub(crate) unsafe fn object_mut<'a, T>(handle: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { handle.as_mut() }.ok_or_else(|| Failure::null("a handle"))
}

/// Takes back what a handle stands for; `None` for NULL.
///
/// # Safety
/// As for [`object`]; the handle is not used again.
pub(crate) unsafe fn taken<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: as the caller promises, it came from `Box::into_raw`.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Hands out a new handle: NULL if it cannot be made.
///
/// # Safety
/// `to` is NULL or points to memory for a pointer.
pub(crate) unsafe fn give<T>(
    to: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    unsafe { put(to, std::ptr::null_mut())? };
    let handle = Box::into_raw(Box::new(make()?));
    // SAFETY: as the caller promises.
    unsafe { put(to, handle) }
}

/// Stores a result.
///
/// # Safety
/// `to` is NULL or points to memory for a `T`, aligned, of whatever content.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null("a place for the result"));
    }
    // SAFETY: as the caller promises.
    unsafe { to.write(value) };
    Ok(())
}

/// Values that may be left out.
///
/// # Safety
/// `from` is NULL or points to `len` values of `T`.
pub(crate) unsafe fn optional<'a, T>(from: *const T, len: usize) -> Option<&'a [T]> {
    // SAFETY: as the caller promises.
    (!from.is_null()).then(|| unsafe { std::slice::from_raw_parts(from, len) })
}

/// Options that may be left out, as far as the caller knows them: the rest is 0.
///
/// # Safety
/// `from` is NULL or points to a structure of the number of bytes that is in its first member.
pub(crate) unsafe fn options(from: *const Options) -> Result<Options, Failure> {
    let mut options = Options::default();
    if from.is_null() {
        return Ok(options);
    }
    // SAFETY: as the caller promises; it may have been built for a shorter structure, aligned less.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if !(OPTIONS_OF_FIRST_VERSION..=OPTIONS_AT_MOST).contains(&size) {
        return Err(Failure::invalid(format!(
            "extant_options.size is {size}: set it to sizeof(struct extant_options)"
        )));
    }
    // SAFETY: as the caller promises, there are `size` bytes.
    let given = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    let known = size.min(size_of::<Options>());
    if given[known..].iter().any(|&byte| byte != 0) {
        return Err(Failure::invalid(
            "extant_options asks for something that this version of the library does not know",
        ));
    }
    // SAFETY: the structure has integers and pointers only, of which any bytes are a value.
    unsafe {
        let to = (&raw mut options).cast::<u8>();
        to.copy_from_nonoverlapping(given.as_ptr(), known);
    }
    Ok(options)
}

/// A path.
///
/// # Safety
/// `text` is NULL or ends with a zero byte.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, Failure> {
    // SAFETY: as the caller promises.
    Ok(Path::new(unsafe { name(text)? }))
}

/// A name, of an attribute for example.
///
/// # Safety
/// As for [`path`].
pub(crate) unsafe fn name<'a>(text: *const c_char) -> Result<&'a OsStr, Failure> {
    if text.is_null() {
        return Err(Failure::null("a path or name"));
    }
    // SAFETY: as the caller promises.
    Ok(OsStr::from_bytes(
        unsafe { CStr::from_ptr(text) }.to_bytes(),
    ))
}

/// A word that may be left out.
///
/// # Safety
/// As for [`path`].
pub(crate) unsafe fn word<'a>(text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let word = unsafe { CStr::from_ptr(text) };
    word.to_str()
        .map(Some)
        .map_err(|_| Failure::invalid(format!("{word:?} is no word")))
}

/// Bytes to read.
///
/// # Safety
/// `from` is NULL or points to `len` bytes.
pub(crate) unsafe fn bytes<'a>(from: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    match (from.is_null(), checked(len)?) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::null("a buffer")),
        // SAFETY: as the caller promises.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(from.cast(), len) }),
    }
}

/// Bytes to fill.
///
/// # Safety
/// `into` is NULL or points to `len` bytes that nobody else uses meanwhile. They need not have been
/// written to: they are cleared first.
pub(crate) unsafe fn bytes_mut<'a>(into: *mut c_void, len: usize) -> Result<&'a mut [u8], Failure> {
    match (into.is_null(), checked(len)?) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Failure::null("a buffer")),
        (false, len) => {
            let into = into.cast::<u8>();
            // SAFETY: as the caller promises; a slice of `u8` must be of bytes that have a value.
            unsafe {
                into.write_bytes(0, len);
                Ok(std::slice::from_raw_parts_mut(into, len))
            }
        }
    }
}

/// A length that a slice can have.
fn checked(len: usize) -> Result<usize, Failure> {
    match isize::try_from(len) {
        Ok(_) => Ok(len),
        Err(_) => Err(Failure::invalid("no buffer is so large")),
    }
}
