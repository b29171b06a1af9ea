//! How far long work is, told to C, and ending it.
//!
//! Work is ended through its device: once that is asked for, everything fails that uses it. So all
//! work that reads or writes can be ended, and nothing of it has to know.
#![allow(unsafe_code)]

use crate::call::Failure;
use crate::types::Watch;
use extant::device::{Completion, DirectMemory, Done, Request};
use extant::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_sync::{LockClass, Mutex, Rank};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The error number of work that was ended.
pub(crate) const ECANCELED: i32 = 125;

/// At least so long lies between two calls about one part of the work.
const PAUSE: Duration = Duration::from_millis(50);

static CLASS: LockClass = LockClass::new("progress told to C", Rank::Leaf);

/// Ends the work that has it: `extant_token`.
#[derive(Debug, Default)]
pub struct Token(Arc<AtomicBool>);

impl Token {
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The function of C that is told, with what it is called with.
struct Told {
    call: unsafe extern "C" fn(*mut c_void, *const c_char, u64, u64) -> c_int,
    user: *mut c_void,
}

// SAFETY: the header says that the function is called from any thread, with that pointer.
unsafe impl Send for Told {}
// SAFETY: as above; it is never called from two threads at once.
unsafe impl Sync for Told {}

/// One piece of work.
pub(crate) struct Watching {
    told: Option<Told>,
    stop: Stop,
    state: Mutex<State>,
}

/// What there is to tell.
struct State {
    what: &'static CStr,
    done: u64,
    total: u64,
    last: Option<Instant>,
    /// Whether a thread is telling.
    is_telling: bool,
}

/// Whether work is to end.
#[derive(Clone, Default)]
struct Stop {
    token: Option<Arc<AtomicBool>>,
    asked: Arc<AtomicBool>,
    /// Whether the work is past the point where it can end.
    is_too_late: Arc<AtomicBool>,
}

impl Stop {
    fn is_asked(&self) -> bool {
        let token = self.token.as_ref();
        let is_on = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        (is_on(&self.asked) || token.is_some_and(is_on)) && !is_on(&self.is_too_late)
    }
}

impl Watching {
    /// Follows work as C asks for it.
    ///
    /// # Safety
    /// The token of `watch` is NULL or a handle, and its function is what the header asks for.
    pub(crate) unsafe fn new(watch: Watch) -> Self {
        // SAFETY: as the caller promises.
        let token = unsafe { watch.token.as_ref() };
        let user = watch.user;
        Self {
            told: watch.progress.map(|call| Told { call, user }),
            stop: Stop {
                token: token.map(|token| Arc::clone(&token.0)),
                ..Stop::default()
            },
            state: Mutex::new(
                &CLASS,
                State {
                    what: c"",
                    done: 0,
                    total: 0,
                    last: None,
                    is_telling: false,
                },
            ),
        }
    }

    /// The device as the work uses it: nothing of it can be used once the work is to end.
    pub(crate) fn over(&self, below: &SharedDevice) -> SharedDevice {
        if self.told.is_none() && self.stop.token.is_none() {
            return Arc::clone(below);
        }
        Arc::new(Stoppable {
            below: Arc::clone(below),
            stop: self.stop.clone(),
        })
    }

    /// Refuses work that is to end.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.stop.is_asked() {
            return Err(Failure::cancelled());
        }
        Ok(())
    }

    /// Gives what came of the work, unless it was to end: what failed then failed for that reason.
    pub(crate) fn outcome<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        self.check()?;
        outcome
    }

    /// Says that what follows is done to its end.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        self.check()?;
        self.stop.is_too_late.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Says that what follows may end before it is done, as what came before it is.
    pub(crate) fn may_end_again(&self) {
        self.stop.is_too_late.store(false, Ordering::Relaxed);
    }

    /// A part of the work begins that has so many units.
    pub(crate) fn begin(&self, what: &'static CStr, total: u64) {
        {
            let mut state = self.state.lock();
            state.what = what;
            state.done = 0;
            state.total = total;
            state.last = None;
        }
        self.tell();
    }

    /// So many more units are done.
    pub(crate) fn advance(&self, units: u64) {
        {
            let mut state = self.state.lock();
            state.done = state.done.saturating_add(units);
        }
        self.tell();
    }

    /// Calls the function, unless another thread does or it is too early. No lock is held
    /// meanwhile.
    fn tell(&self) {
        let Some(told) = &self.told else {
            return;
        };
        let (what, done, total) = {
            let mut state = self.state.lock();
            let is_due = state.last.is_none_or(|last| last.elapsed() >= PAUSE);
            let is_end = state.total != 0 && state.done >= state.total;
            if state.is_telling || !(is_due || is_end) {
                return;
            }
            state.is_telling = true;
            state.last = Some(Instant::now());
            (state.what, state.done, state.total)
        };
        // SAFETY: as the header asks of the function.
        let answer = unsafe { (told.call)(told.user, what.as_ptr(), done, total) };
        if answer != 0 {
            self.stop.asked.store(true, Ordering::Relaxed);
        }
        self.state.lock().is_telling = false;
    }
}

/// A device that fails once its user is to end.
struct Stoppable {
    below: SharedDevice,
    stop: Stop,
}

impl fmt::Debug for Stoppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stoppable").field(&self.below).finish()
    }
}

impl Stoppable {
    /// The device below, if it may still be used.
    fn go_on(&self, op: &'static str, offset: u64, len: u64) -> DeviceResult<&dyn BlockDevice> {
        if !self.stop.is_asked() {
            return Ok(&*self.below);
        }
        Err(DeviceError::Io {
            op,
            device: self.below.name(),
            offset,
            len,
            source: io::Error::from_raw_os_error(ECANCELED),
        })
    }
}

impl Stoppable {
    /// A request that is not done any more.
    fn refused(&self, request: Request) -> Done {
        let result = self.go_on("use", 0, self.below.size()).map(|_| ());
        Done {
            request,
            result: result.and(Err(DeviceError::Cancelled)),
        }
    }
}

fn bytes_of<'a>(slices: impl Iterator<Item = &'a [u8]>) -> u64 {
    slices.map(|slice| slice.len() as u64).sum()
}

impl BlockDevice for Stoppable {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let below = self.go_on("read", offset, buf.len() as u64)?;
        below.read_at(offset, buf)
    }

    fn read_uncached_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let below = self.go_on("read", offset, buf.len() as u64)?;
        below.read_uncached_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let below = self.go_on("write", offset, buf.len() as u64)?;
        below.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.go_on("flush", 0, self.size())?.flush()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        let len = bytes_of(bufs.iter().map(|buf| &**buf));
        self.go_on("read", offset, len)?
            .read_vectored_at(offset, bufs)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        let len = bytes_of(bufs.iter().map(|buf| &**buf));
        self.go_on("write", offset, len)?
            .write_vectored_at(offset, bufs)
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.go_on("discard", offset, len)?.discard(offset, len)
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        self.go_on("discard", offset, len)?.try_discard(offset, len)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.go_on("zero", offset, len)?.zero(offset, len)
    }

    fn grow(&self, size: u64) -> DeviceResult<()> {
        self.below.grow(size)
    }

    fn write_growing_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let below = self.go_on("write", offset, buf.len() as u64)?;
        below.write_growing_at(offset, buf)
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        match self.go_on("use", 0, self.size()) {
            Ok(below) => below.submit(batch),
            Err(_) => Completion::ended(
                batch
                    .into_iter()
                    .map(|request| self.refused(request))
                    .collect(),
            ),
        }
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        self.below.prefetch(ranges);
    }

    fn direct(&self) -> Option<&dyn DirectMemory> {
        self.below.direct()
    }

    fn logical_sector(&self) -> u32 {
        self.below.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.below.preferred_io()
    }

    fn parallel_writes(&self) -> usize {
        self.below.parallel_writes()
    }

    fn in_flight(&self) -> usize {
        self.below.in_flight()
    }

    fn is_served(&self) -> bool {
        self.below.is_served()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        self.go_on("read", from, 0)?.next_data(from, end)
    }
}
