//! What several functions do with their arguments and results.
#![allow(unsafe_code)]

use crate::call::Failure;
use crate::constants::OMIT;
use crate::pointers::bytes_mut;
use crate::types::Time;
use extant::{Mode, Timestamp};
use std::ffi::c_void;

/// Copies `found` to where the caller wants it, unless it only asks for its length. Returns that.
///
/// # Safety
/// As for [`bytes_mut`].
pub(super) unsafe fn answer(found: &[u8], into: *mut c_void, size: usize) -> Result<u64, Failure> {
    if size != 0 {
        if found.len() > size {
            return Err(Failure::too_small(found.len()));
        }
        // SAFETY: as the caller promises.
        unsafe { bytes_mut(into, found.len())? }.copy_from_slice(found);
    }
    Ok(found.len() as u64)
}

/// The permissions of a mode, which may have a type as well, as `st_mode` has.
pub(super) fn permissions(mode: u32) -> Result<u16, Failure> {
    let bits = u16::try_from(mode).map_err(|_| no_mode(mode))?;
    Ok(Mode::from_bits(bits).permissions())
}

pub(super) fn no_mode(mode: u32) -> Failure {
    Failure::invalid(format!("{mode:#o} is no mode that this call takes"))
}

pub(super) fn time(time: &Time) -> Result<Option<Timestamp>, Failure> {
    match time.nanoseconds {
        OMIT => Ok(None),
        nanos @ 0..1_000_000_000 => Ok(Some(Timestamp {
            secs: time.seconds,
            nanos,
        })),
        _ => Err(Failure::invalid("nanoseconds are below a thousand million")),
    }
}

/// Refuses bits beyond `all`.
pub(super) fn known(what: &str, flags: u32, all: u32) -> Result<(), Failure> {
    match flags & !all {
        0 => Ok(()),
        beyond => Err(unknown(what, beyond)),
    }
}

pub(super) fn unknown(what: &str, flags: u32) -> Failure {
    Failure::invalid(format!("{what}: {flags:#x} is not known"))
}
