//! From what C passes to what Rust may use.
//!
//! Every function here believes its caller, which is C by way of `abi`: the header says what
//! pointers must point to.
#![allow(unsafe_code)]

use crate::call::Failure;
use crate::types::{Bulkstat, DeviceOps, Options, Watch};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// More bytes than any version of a structure will have.
const SIZE_AT_MOST: usize = 4096;

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

/// A structure of C that begins with its size: integers, pointers and optional functions, of which
/// zeros are a value.
///
/// # Safety
/// `#[repr(C)]`, of which the first member is a `usize`, and any bytes that C can write are a
/// value.
pub(crate) unsafe trait SizedInC: Copy {
    /// Its name in C.
    const NAME: &'static str;
    /// Bytes of it when there was no later version.
    const FIRST_VERSION: usize;
}

// SAFETY: integers and pointers.
unsafe impl SizedInC for Options {
    const NAME: &'static str = "extant_options";
    const FIRST_VERSION: usize = 32;
}

// SAFETY: integers, and functions that may be NULL, as the header asks of callers.
unsafe impl SizedInC for DeviceOps {
    const NAME: &'static str = "extant_device_ops";
    const FIRST_VERSION: usize = size_of::<Self>();
}

// SAFETY: an integer, pointers, and a function that may be NULL, as the header asks of callers.
unsafe impl SizedInC for Watch {
    const NAME: &'static str = "extant_watch";
    const FIRST_VERSION: usize = size_of::<Self>();
}

// SAFETY: integers, a pointer, and functions that may be NULL, as the header asks of callers.
unsafe impl SizedInC for Bulkstat {
    const NAME: &'static str = "extant_bulkstat";
    const FIRST_VERSION: usize = size_of::<Self>();
}

/// A structure that may be left out, as far as the caller knows it: the rest is 0.
///
/// # Safety
/// `from` is NULL or points to a structure of the number of bytes that is in its first member.
pub(crate) unsafe fn sized<T: SizedInC>(from: *const T) -> Result<T, Failure> {
    let mut value = MaybeUninit::<T>::zeroed();
    if !from.is_null() {
        // SAFETY: as the caller promises; it may have been built for a shorter structure, aligned
        // less.
        let size = unsafe { from.cast::<usize>().read_unaligned() };
        let name = T::NAME;
        if !(T::FIRST_VERSION..=SIZE_AT_MOST).contains(&size) {
            return Err(Failure::invalid(format!(
                "{name}.size is {size}: set it to sizeof(struct {name})"
            )));
        }
        // SAFETY: as the caller promises, there are `size` bytes.
        let given = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
        let known = size.min(size_of::<T>());
        if given[known..].iter().any(|&byte| byte != 0) {
            return Err(Failure::invalid(format!(
                "{name} asks for something that this version of the library does not know"
            )));
        }
        // SAFETY: there is room for so many bytes.
        unsafe {
            let to = value.as_mut_ptr().cast::<u8>();
            to.copy_from_nonoverlapping(given.as_ptr(), known);
        }
    }
    // SAFETY: zeros, or what C has written, are a value of such structures.
    Ok(unsafe { value.assume_init() })
}

/// Stores as many results as there is room for. Returns how many there are.
///
/// # Safety
/// `to` is NULL or points to memory for `count` values, aligned, of whatever content.
pub(crate) unsafe fn put_some<T>(
    to: *mut T,
    count: usize,
    all: impl ExactSizeIterator<Item = T>,
) -> Result<u64, Failure> {
    let there = all.len() as u64;
    if to.is_null() && count != 0 {
        return Err(Failure::null("a place for the results"));
    }
    for (index, value) in all.take(count).enumerate() {
        // SAFETY: as the caller promises, there is room for it.
        unsafe { to.add(index).write(value) };
    }
    Ok(there)
}

/// Strings of which the last has a NULL behind it; none for NULL.
///
/// # Safety
/// `from` is NULL or points to such strings.
pub(crate) unsafe fn strings<'a>(from: *const *const c_char) -> Vec<&'a [u8]> {
    let mut all = Vec::new();
    if from.is_null() {
        return all;
    }
    loop {
        // SAFETY: as the caller promises, NULL comes behind the last.
        let text = unsafe { from.add(all.len()).read() };
        if text.is_null() {
            return all;
        }
        // SAFETY: as the caller promises, it is a string.
        all.push(unsafe { CStr::from_ptr(text) }.to_bytes());
    }
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
