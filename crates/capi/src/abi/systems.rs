//! File systems: opening and closing them, and what is true of the whole.
#![allow(unsafe_code)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header has the contract of each"
)]
#![expect(missing_docs, reason = "the header documents each")]

use crate::bulk;
use crate::call::{Failure, counted, done};
use crate::device::{Device, part_of};
use crate::open;
use crate::pointers::{give, object, path, put, sized, taken, word};
use crate::types::{Bulkstat, Fs, Mended, Options, Space};
use extant::SharedDevice;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open(
    image: *const c_char,
    options: *const Options,
    fs: *mut *mut Fs,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(fs, || {
            let options: Options = sized(options)?;
            let journal = journal_of(&options);
            open::by_name(path(image)?, &options, word(options.format)?, journal)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open_device(
    device: *const Device,
    options: *const Options,
    fs: *mut *mut Fs,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(fs, || {
            let options: Options = sized(options)?;
            let device = Arc::clone(&object(device)?.0);
            let device = part_of(device, options.partition, options.offset)?;
            open::on_device(device, &options, journal_of(&options))
        })
    })
}

/// The device of the journal, where one is named.
///
/// # Safety
/// The journal of `options` is NULL or a handle.
unsafe fn journal_of(options: &Options) -> Option<SharedDevice> {
    // SAFETY: as the caller promises.
    let journal = unsafe { options.journal.as_ref() };
    journal.map(|journal| Arc::clone(&journal.0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_close(fs: *mut Fs) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| match unsafe { taken(fs) }.map(|fs| *fs) {
        // What is not committed is forgotten, however closing goes: files that are still open
        // change nothing any more, and say so.
        Some(Fs(fs, Some(_), _)) => {
            let _ = fs.close();
            Ok(())
        }
        Some(fs) => Ok(fs.0.close()?),
        None => Ok(()),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_commit(fs: *mut Fs) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| match unsafe { taken(fs) }.map(|fs| *fs) {
        Some(Fs(fs, Some(transaction), _)) => {
            drop(fs);
            transaction.commit()?;
            Ok(())
        }
        Some(Fs(fs, None, _)) => Ok(fs.close()?),
        None => Ok(()),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_sync(fs: *const Fs) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| Ok(unsafe { object(fs)? }.0.sync()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_statfs(fs: *const Fs, space: *mut Space) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { put(space, object(fs)?.0.statfs()?.into()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_bulkstat(fs: *const Fs, how: *const Bulkstat) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        if how.is_null() {
            return Err(Failure::null("struct extant_bulkstat"));
        }
        bulk::stat_all(&object(fs)?.0, &sized(how)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mended(fs: *const Fs, mended: *mut Mended) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { put(mended, object(fs)?.2) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_is_in_doubt(fs: *const Fs, file: *const c_char) -> c_int {
    let found = counted(|| {
        // SAFETY: as the header asks of callers.
        let (fs, path) = unsafe { (&object(fs)?.0, path(file)?) };
        Ok(open::is_in_doubt(fs, fs.metadata(path)?.ino()).into())
    });
    // 1, 0 or an error number.
    found as c_int
}
