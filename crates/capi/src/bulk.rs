//! All files at once, told to C many at a time.
//!
//! Each thread of the walk gathers what it finds in memory of its own, and tells that when it is
//! full. No lock is held meanwhile.
#![allow(unsafe_code)]

use crate::call::Failure;
use crate::constants::BULKSTAT_CACHE;
use crate::types::{Bulkstat, Stat};
use extant::{BulkstatWay, Filesystem};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Files that are told at once.
const TOGETHER: usize = 256;

/// The functions of C that are told, with what they are called with.
struct Told {
    files: unsafe extern "C" fn(*mut c_void, *const Stat, usize) -> c_int,
    failed: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int>,
    user: *mut c_void,
    /// One of them has asked for an end.
    is_over: AtomicBool,
}

// SAFETY: the header says that the functions are called from any thread, with that pointer.
unsafe impl Send for Told {}
// SAFETY: as above, from several at once.
unsafe impl Sync for Told {}

/// What one thread has found.
#[derive(Default)]
struct Found {
    /// What is not told yet.
    files: Vec<Stat>,
    /// How many were told.
    count: u64,
    /// The first failure, where nothing is told of those.
    failure: Option<Failure>,
}

impl Told {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn goes_on(&self, answer: c_int) {
        if answer != 0 {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Tells what a thread has found.
    fn tell(&self, found: &mut Found) {
        if !found.files.is_empty() && !self.is_over() {
            // SAFETY: as the header asks of the function.
            let answer =
                unsafe { (self.files)(self.user, found.files.as_ptr(), found.files.len()) };
            self.goes_on(answer);
            found.count += found.files.len() as u64;
        }
        found.files.clear();
    }

    fn tell_failure(&self, found: &mut Found, failure: Failure) {
        let Some(failed) = self.failed else {
            found.failure.get_or_insert(failure);
            return;
        };
        if !self.is_over() {
            let text = CString::new(failure.text().replace('\0', "")).unwrap_or_default();
            // SAFETY: as the header asks of the function.
            self.goes_on(unsafe { failed(self.user, text.as_ptr()) });
        }
    }
}

/// Tells C about all files. Returns how many were told.
pub(crate) fn stat_all(fs: &Filesystem, how: &Bulkstat) -> Result<u64, Failure> {
    let way = match how.flags {
        0 => BulkstatWay::Tables,
        BULKSTAT_CACHE => BulkstatWay::Cache,
        other => return Err(Failure::unknown("extant_bulkstat.flags", other)),
    };
    let told = Told {
        files: how
            .files
            .ok_or_else(|| Failure::null("files of struct extant_bulkstat"))?,
        failed: how.failed,
        user: how.user,
        is_over: AtomicBool::new(false),
    };
    let threads = usize::try_from(how.threads).unwrap_or(usize::MAX);
    let states = fs.bulkstat_fold(
        extant::Bulkstat::new(way, threads),
        Found::default,
        |found, file| match file {
            _ if told.is_over() => {}
            Ok(file) => {
                found.files.push((&file).into());
                if found.files.len() == TOGETHER {
                    told.tell(found);
                }
            }
            Err(e) => told.tell_failure(found, e.into()),
        },
    );
    let mut count = 0;
    let mut failure = None;
    for mut found in states {
        told.tell(&mut found);
        count += found.count;
        failure = failure.or(found.failure);
    }
    if told.is_over() {
        return Err(Failure::cancelled());
    }
    failure.map_or(Ok(count), Err)
}
