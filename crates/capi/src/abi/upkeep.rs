//! Making, checking and changing file systems that are not open.
#![allow(unsafe_code)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header has the contract of each"
)]
#![expect(missing_docs, reason = "the header documents each")]

use super::arguments::{answer, known};
use crate::call::{counted, done};
use crate::constants::{
    CHECK_AS_IS, CHECK_VERITY, REPAIR_ALLOW_LOSS, REPAIR_DISCARD_JOURNAL, REPAIR_DRY_RUN,
};
use crate::device::Device;
use crate::pointers::{give, name, object, path, put, sized, strings, taken};
use crate::report::Report;
use crate::types::{Finding, Summary, Watch};
use crate::watch::Watching;
use crate::{checking, making, settings, tuning};
use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkfs(
    image: *const c_char,
    settings: *const *const c_char,
    watch: *const Watch,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let asked = settings::read(&strings(settings))?;
        making::at_path(path(image)?, &asked, &Watching::new(sized(watch)?))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkfs_device(
    device: *const Device,
    settings: *const *const c_char,
    watch: *const Watch,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let asked = settings::read(&strings(settings))?;
        making::on_device(&object(device)?.0, &asked, &Watching::new(sized(watch)?))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_check(
    device: *const Device,
    flags: u32,
    watch: *const Watch,
    report: *mut *mut Report,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(report, || {
            known("the flags of a check", flags, CHECK_AS_IS | CHECK_VERITY)?;
            let watching = Watching::new(sized(watch)?);
            checking::check(&object(device)?.0, None, flags, &watching)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_check_with_journal(
    device: *const Device,
    journal: *const Device,
    flags: u32,
    watch: *const Watch,
    report: *mut *mut Report,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(report, || {
            known("the flags of a check", flags, CHECK_AS_IS | CHECK_VERITY)?;
            let journal = &object(journal)?.0;
            let watching = Watching::new(sized(watch)?);
            checking::check(&object(device)?.0, Some(journal), flags, &watching)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_repair(
    device: *const Device,
    flags: u32,
    undo: *const c_char,
    watch: *const Watch,
    report: *mut *mut Report,
) -> c_int {
    const ALL: u32 = REPAIR_DRY_RUN | REPAIR_ALLOW_LOSS | REPAIR_DISCARD_JOURNAL;
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(report, || {
            known("the flags of a repair", flags, ALL)?;
            let undo = if undo.is_null() {
                None
            } else {
                Some(path(undo)?)
            };
            let watching = Watching::new(sized(watch)?);
            checking::repair(&object(device)?.0, flags, undo, &watching)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_revert(device: *const Device, undo: *const c_char) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { checking::revert(&object(device)?.0, path(undo)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_report_summary(report: *const Report) -> *const Summary {
    // SAFETY: as the header asks of callers.
    match unsafe { object(report) } {
        Ok(report) => &raw const report.summary,
        Err(_) => ptr::null(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_report_entry(
    report: *const Report,
    list: u32,
    index: usize,
) -> *const Finding {
    // SAFETY: as the header asks of callers.
    let report = unsafe { object(report) };
    let found = report.ok().and_then(|report| report.entry(list, index));
    found.map_or(ptr::null(), ptr::from_ref)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_report_close(report: *mut Report) {
    done(|| {
        // SAFETY: as the header asks of callers.
        drop(unsafe { taken(report) });
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_resize(
    device: *const Device,
    bytes: u64,
    watch: *const Watch,
    now: *mut u64,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let watching = Watching::new(sized(watch)?);
        let size = tuning::resize(&object(device)?.0, bytes, None, &watching)?;
        if now.is_null() {
            return Ok(());
        }
        put(now, size)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_resize_with_undo(
    device: *const Device,
    bytes: u64,
    undo: *const c_char,
    watch: *const Watch,
    now: *mut u64,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let watching = Watching::new(sized(watch)?);
        let undo = path(undo)?;
        let size = tuning::resize(&object(device)?.0, bytes, Some(undo), &watching)?;
        if now.is_null() {
            return Ok(());
        }
        put(now, size)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_minimum(
    device: *const Device,
    watch: *const Watch,
    bytes: *mut u64,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        put(bytes, 0)?;
        let watching = Watching::new(sized(watch)?);
        put(bytes, tuning::minimum(&object(device)?.0, &watching)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_tune(
    device: *const Device,
    settings: *const *const c_char,
    watch: *const Watch,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let watching = Watching::new(sized(watch)?);
        tuning::tune(&object(device)?.0, &strings(settings), &watching)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_add_journal(
    device: *const Device,
    journal: *const Device,
    major: u32,
    minor: u32,
    watch: *const Watch,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let watching = Watching::new(sized(watch)?);
        let journal = &object(journal)?.0;
        tuning::add_journal(&object(device)?.0, journal, (major, minor), &watching)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_remove_journal(
    device: *const Device,
    journal: *const Device,
    watch: *const Watch,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let watching = Watching::new(sized(watch)?);
        let journal = journal.as_ref().map(|journal| &journal.0);
        tuning::remove_journal(&object(device)?.0, journal, &watching)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_setting(
    device: *const Device,
    setting: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        let found = tuning::setting(&object(device)?.0, name(setting)?.as_bytes())?;
        answer(&found, value, size)
    })
}
