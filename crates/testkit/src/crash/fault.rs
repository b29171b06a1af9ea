//! A device that fails when it is told to.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};

/// The kinds of I/O that faults tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// Reads.
    Read,
    /// Writes; discards and zeroed ranges count among them.
    Write,
    /// Flushes.
    Flush,
    /// All of them.
    Any,
}

impl IoKind {
    fn covers(self, kind: IoKind) -> bool {
        self == IoKind::Any || self == kind
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done and this error number is reported (`EIO` is 5, `ENOSPC` 28).
    Error(i32),
    /// Of a write only so many bytes arrive, and `EIO` is reported; so it is for the rest.
    Short(usize),
    /// It is done, but only after this time.
    Late(Duration),
    /// Nothing is done and success is reported: a lost write or flush. A read is done.
    Lost,
}

/// When something goes wrong.
#[derive(Debug, Clone)]
pub struct FaultRule {
    /// Which I/O is counted.
    pub kind: IoKind,
    /// Only I/O that touches these bytes is counted; flushes touch everything.
    pub within: Option<Range<u64>>,
    /// How many such I/Os go well first.
    pub after: u64,
    /// How many fail then; `u64::MAX` for all from then on.
    pub times: u64,
    /// What happens to them.
    pub fault: Fault,
}

impl FaultRule {
    /// Makes the `n`th I/O of this kind from now on (counted from 0) fail with `EIO`, once.
    pub fn fail_nth(kind: IoKind, n: u64) -> FaultRule {
        FaultRule {
            kind,
            within: None,
            after: n,
            times: 1,
            fault: Fault::Error(EIO),
        }
    }

    /// Has all after it fail as well.
    #[must_use]
    pub fn from_then_on(self) -> FaultRule {
        FaultRule {
            times: u64::MAX,
            ..self
        }
    }

    /// Sets another fault.
    #[must_use]
    pub fn with(self, fault: Fault) -> FaultRule {
        FaultRule { fault, ..self }
    }

    /// Limits the rule to I/O that touches these bytes.
    #[must_use]
    pub fn within(self, range: Range<u64>) -> FaultRule {
        FaultRule {
            within: Some(range),
            ..self
        }
    }
}

const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// I/O that reached a fault device, whatever came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Reads.
    pub reads: u64,
    /// Writes, discards and zeroed ranges.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// I/Os that a rule struck.
    pub faults: u64,
}

impl IoCounts {
    /// Returns all of them.
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.flushes
    }
}

#[derive(Debug, Default)]
struct State {
    /// With how many I/Os each has counted.
    rules: Vec<(FaultRule, u64)>,
    counts: IoCounts,
}

/// Another device with faults. Joined and vectored transfers count as one I/O.
#[derive(Debug)]
pub struct FaultDevice {
    inner: SharedDevice,
    in_flight: usize,
    state: Mutex<State>,
}

impl FaultDevice {
    /// `inner`, without faults at first.
    pub fn new(inner: SharedDevice) -> FaultDevice {
        FaultDevice {
            inner,
            in_flight: 1,
            state: Mutex::default(),
        }
    }

    /// Has the device say that each request takes a round trip, and that so many may be under way.
    #[must_use]
    pub fn far(self, in_flight: usize) -> FaultDevice {
        FaultDevice { in_flight, ..self }
    }

    /// Adds a rule; its count starts now. Of several rules that strike, the first added wins.
    pub fn inject(&self, rule: FaultRule) {
        self.state().rules.push((rule, 0));
    }

    /// Removes all rules.
    pub fn heal(&self) {
        self.state().rules.clear();
    }

    /// Returns what came through so far.
    pub fn counts(&self) -> IoCounts {
        self.state().counts
    }

    /// Sets the counts to zero.
    pub fn reset_counts(&self) {
        self.state().counts = IoCounts::default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an I/O and says what is to happen to it.
    fn strike(&self, kind: IoKind, offset: u64, len: u64) -> Option<Fault> {
        let mut state = self.state();
        match kind {
            IoKind::Read => state.counts.reads += 1,
            IoKind::Write => state.counts.writes += 1,
            IoKind::Flush | IoKind::Any => state.counts.flushes += 1,
        }
        let mut struck = None;
        for (rule, seen) in &mut state.rules {
            let touches = |range: &Range<u64>| {
                kind == IoKind::Flush || offset < range.end && offset + len > range.start
            };
            if !rule.kind.covers(kind) || !rule.within.as_ref().is_none_or(touches) {
                continue;
            }
            let number = *seen;
            *seen += 1;
            if number >= rule.after && number - rule.after < rule.times {
                struck = struck.or(Some(rule.fault));
            }
        }
        state.counts.faults += u64::from(struck.is_some());
        struck
    }

    fn error(&self, op: &'static str, offset: u64, len: u64, errno: i32) -> DeviceError {
        DeviceError::Io {
            op,
            device: self.name(),
            offset,
            len,
            source: io::Error::from_raw_os_error(errno),
        }
    }

    /// Does a write with its fault; `part` writes the first so many bytes.
    fn changed(
        &self,
        op: &'static str,
        offset: u64,
        len: u64,
        whole: impl FnOnce() -> DeviceResult<()>,
        part: impl FnOnce(usize) -> DeviceResult<()>,
    ) -> DeviceResult<()> {
        self.check_writable(op, offset, len)?;
        match self.strike(IoKind::Write, offset, len) {
            None => whole(),
            Some(Fault::Error(errno)) => Err(self.error(op, offset, len, errno)),
            Some(Fault::Short(bytes)) => {
                part(bytes.min(usize::try_from(len).unwrap_or(usize::MAX)))?;
                Err(self.error(op, offset, len, EIO))
            }
            Some(Fault::Late(time)) => {
                std::thread::sleep(time);
                whole()
            }
            Some(Fault::Lost) => Ok(()),
        }
    }

    fn looked(
        &self,
        offset: u64,
        len: u64,
        whole: impl FnOnce() -> DeviceResult<()>,
    ) -> DeviceResult<()> {
        self.check_range("read", offset, len)?;
        match self.strike(IoKind::Read, offset, len) {
            None | Some(Fault::Lost) => whole(),
            Some(Fault::Error(errno)) => Err(self.error("read", offset, len, errno)),
            Some(Fault::Short(_)) => Err(self.error("read", offset, len, EIO)),
            Some(Fault::Late(time)) => {
                std::thread::sleep(time);
                whole()
            }
        }
    }
}

impl BlockDevice for FaultDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn name(&self) -> String {
        "the faulty device".to_owned()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let len = buf.len() as u64;
        self.looked(offset, len, || self.inner.read_at(offset, buf))
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.looked(offset, len, || self.inner.read_vectored_at(offset, bufs))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let whole = || self.inner.write_at(offset, buf);
        let part = |bytes| self.inner.write_at(offset, &buf[..bytes]);
        self.changed("write", offset, buf.len() as u64, whole, part)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let whole = || self.inner.write_vectored_at(offset, bufs);
        let part = |bytes| {
            let joined: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            self.inner.write_at(offset, &joined[..bytes])
        };
        self.changed("write", offset, len, whole, part)
    }

    fn flush(&self) -> DeviceResult<()> {
        match self.strike(IoKind::Flush, 0, self.size()) {
            None => self.inner.flush(),
            Some(Fault::Error(errno)) => Err(self.error("flush", 0, self.size(), errno)),
            Some(Fault::Short(_)) => Err(self.error("flush", 0, self.size(), EIO)),
            Some(Fault::Late(time)) => {
                std::thread::sleep(time);
                self.inner.flush()
            }
            Some(Fault::Lost) => Ok(()),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        let whole = || self.inner.discard(offset, len);
        let part = |bytes| self.inner.discard(offset, bytes as u64);
        self.changed("discard", offset, len, whole, part)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        let whole = || self.inner.zero(offset, len);
        let part = |bytes| self.inner.zero(offset, bytes as u64);
        self.changed("zero", offset, len, whole, part)
    }

    fn logical_sector(&self) -> u32 {
        self.inner.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.inner.preferred_io()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        self.inner.next_data(from, end)
    }
}
