//! The device that remembers everything it was told, in order.
//!
//! # Invariants
//! - A write enters the log when it completes, together with the length of the log when it began:
//!   it may have reached the medium at any moment in between.
//! - A flush covers what was in the log when it began, and enters the log when it ends.
//! - A batch begins when it is submitted, but its requests are carried out only when somebody waits
//!   for them: an engine that forgets to wait sees what a slow device would show it.

use std::collections::HashMap;
use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use extant_blockdev::{
    BlockDevice, Completion, DeviceError, DeviceResult, DirectMemory, Done, PendingBatch, Request,
};

use super::images::{Budget, CrashImages};
use super::memory::Copies;
use super::{Content, SECTOR};

/// One thing that happened to the device.
#[derive(Clone, PartialEq, Eq)]
pub enum Event {
    /// A write completed: whole sectors, as the device had them afterwards.
    Write {
        /// First byte, a multiple of the sector size.
        offset: u64,
        /// What the sectors held afterwards.
        bytes: Arc<[u8]>,
        /// Length of the log when the write began.
        begun: usize,
    },
    /// A range was discarded or zeroed, and read as zeros from then on.
    Zero {
        /// First byte, a multiple of the sector size.
        offset: u64,
        /// Length in bytes, a multiple of the sector size.
        len: u64,
        /// Length of the log when it began.
        begun: usize,
    },
    /// A flush ended well.
    Flush {
        /// Length of the log when it began: everything before that is durable.
        covers: usize,
    },
    /// What the test noted, for example that an operation was acknowledged.
    Mark(u64),
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Write {
                offset,
                bytes,
                begun,
            } => write!(f, "write {} bytes at {offset} since {begun}", bytes.len()),
            Event::Zero { offset, len, begun } => {
                write!(f, "zero {len} bytes at {offset} since {begun}")
            }
            Event::Flush { covers } => write!(f, "flush of everything before {covers}"),
            Event::Mark(mark) => write!(f, "mark {mark}"),
        }
    }
}

#[derive(Debug)]
struct State {
    base: Content,
    now: Content,
    events: Vec<Event>,
    copies: Copies,
}

impl State {
    /// Changes bytes; returns the sectors that have them, and the write of those.
    fn put(&mut self, offset: u64, bytes: &[u8], begun: usize) -> (Range<u64>, Event) {
        self.now.write(offset, bytes);
        let sectors = whole_sectors(offset, bytes.len() as u64);
        let mut whole = vec![0; (sectors.end - sectors.start) as usize];
        self.now.read(sectors.start, &mut whole);
        let event = Event::Write {
            offset: sectors.start,
            bytes: whole.into(),
            begun,
        };
        (sectors, event)
    }
}

/// A device in memory that records writes, flushes and marks. Clones are the same device.
#[derive(Debug, Clone)]
pub struct CrashDevice {
    size: u64,
    state: Arc<RwLock<State>>,
}

impl CrashDevice {
    /// Returns a device that holds `base`, which counts as durable; nothing is recorded yet.
    ///
    /// # Panics
    ///
    /// When the size is not a whole number of sectors.
    pub fn over(base: Content) -> CrashDevice {
        let size = base.size();
        assert!(
            size.is_multiple_of(SECTOR as u64),
            "{size} bytes are no sectors"
        );
        CrashDevice {
            size,
            state: Arc::new(RwLock::new(State {
                now: base.clone(),
                base,
                events: Vec::new(),
                copies: Copies::default(),
            })),
        }
    }

    /// Notes something in the log, between what completed before and what will complete later.
    pub fn mark(&self, mark: u64) {
        self.write_state().events.push(Event::Mark(mark));
    }

    /// Returns what was recorded so far.
    pub fn log(&self) -> CrashLog {
        let state = self.read_state();
        let events = state.events.iter().cloned().chain(state.copies.events());
        CrashLog::new(state.base.clone(), events.collect())
    }

    /// Returns what reads see now.
    pub fn content(&self) -> Content {
        self.read_state().now.clone()
    }

    /// Forgets the log: what reads see now counts as durable.
    pub fn restart(&self) {
        let mut state = self.write_state();
        state.base = state.now.clone();
        state.events.clear();
        state.copies = Copies::default();
    }

    fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place in the log at which something begins.
    fn begin(&self) -> usize {
        self.read_state().events.len()
    }

    fn write_begun(&self, offset: u64, bytes: &[u8], begun: usize) -> DeviceResult<()> {
        self.check_writable("write", offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut state = self.write_state();
        let (sectors, event) = state.put(offset, bytes, begun);
        let copied = state.copies.take(sectors);
        state.events.extend(copied);
        state.events.push(event);
        Ok(())
    }

    fn zero_begun(
        &self,
        op: &'static str,
        offset: u64,
        len: u64,
        begun: usize,
    ) -> DeviceResult<()> {
        self.check_writable(op, offset, len)?;
        let sector = SECTOR as u64;
        if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) {
            let len = usize::try_from(len).expect("a range that fits a test");
            return self.write_begun(offset, &vec![0; len], begun);
        }
        if len > 0 {
            let mut state = self.write_state();
            state.now.zero(offset, len);
            let copied = state.copies.take(offset..offset + len);
            state.events.extend(copied);
            state.events.push(Event::Zero { offset, len, begun });
        }
        Ok(())
    }

    fn flush_begun(&self, covers: usize) {
        self.write_state().events.push(Event::Flush { covers });
    }

    /// Carries out a batch whose first part began at `begun`.
    fn run(&self, batch: Vec<Request>, mut begun: usize) -> Vec<Done> {
        let (mut failed, mut cancelled) = (false, false);
        let mut done = Vec::with_capacity(batch.len());
        for mut request in batch {
            cancelled |= failed && matches!(request, Request::Flush);
            let result = if cancelled {
                Err(DeviceError::Cancelled)
            } else {
                match &mut request {
                    Request::Read { offset, buf } => self.read_at(*offset, buf),
                    Request::Write { offset, buf } => self.write_begun(*offset, buf, begun),
                    Request::Flush => {
                        self.flush_begun(self.begin());
                        begun = self.begin();
                        Ok(())
                    }
                    Request::Discard { offset, len } => {
                        self.zero_begun("discard", *offset, *len, begun)
                    }
                    Request::Zero { offset, len } => self.zero_begun("zero", *offset, *len, begun),
                    _ => Err(DeviceError::Cancelled),
                }
            };
            failed |= result.is_err();
            done.push(Done { request, result });
        }
        done
    }
}

/// The range rounded out to sectors.
fn whole_sectors(offset: u64, len: u64) -> Range<u64> {
    let sector = SECTOR as u64;
    offset / sector * sector..(offset + len).div_ceil(sector) * sector
}

impl BlockDevice for CrashDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        "the crash device".to_owned()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        self.read_state().now.read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let begun = self.begin();
        self.write_begun(offset, buf, begun)
    }

    /// One write of many sectors, however many buffers there are.
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        let begun = self.begin();
        let joined: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.write_begun(offset, &joined, begun)
    }

    fn flush(&self) -> DeviceResult<()> {
        let covers = self.begin();
        // Others may write while the flush is on its way: it does not cover them.
        std::thread::yield_now();
        self.flush_begun(covers);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        let begun = self.begin();
        self.zero_begun("discard", offset, len, begun)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        let begun = self.begin();
        self.zero_begun("zero", offset, len, begun)
    }

    fn direct(&self) -> Option<&dyn DirectMemory> {
        Some(self)
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        Completion::pending(Box::new(LateBatch {
            begun: self.begin(),
            device: self.clone(),
            work: Mutex::new(Work::Waiting(batch)),
        }))
    }
}

impl DirectMemory for CrashDevice {
    fn copy_in(&self, offset: u64, src: &[u8]) -> DeviceResult<()> {
        self.check_writable("copy", offset, src.len() as u64)?;
        if !src.is_empty() {
            let mut state = self.write_state();
            let begun = state.events.len();
            let (sectors, event) = state.put(offset, src, begun);
            state.copies.note(sectors, event);
        }
        Ok(())
    }

    fn copy_out(&self, offset: u64, dst: &mut [u8]) -> DeviceResult<()> {
        self.read_at(offset, dst)
    }

    fn persist(&self, range: Range<u64>) -> DeviceResult<()> {
        let len = range.end.saturating_sub(range.start);
        self.check_range("persist", range.start, len)?;
        let mut state = self.write_state();
        let copied = state.copies.take(range);
        state.events.extend(copied);
        let covers = state.events.len();
        state.events.push(Event::Flush { covers });
        Ok(())
    }
}

enum Work {
    Waiting(Vec<Request>),
    Ended(Vec<Done>),
}

/// A batch that is carried out when somebody asks for it, and at the latest when it is dropped.
struct LateBatch {
    device: CrashDevice,
    begun: usize,
    work: Mutex<Work>,
}

impl LateBatch {
    fn work(&self) -> MutexGuard<'_, Work> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Work::Waiting(batch) = &mut *work {
            let batch = std::mem::take(batch);
            *work = Work::Ended(self.device.run(batch, self.begun));
        }
        work
    }
}

impl PendingBatch for LateBatch {
    fn is_done(&self) -> bool {
        drop(self.work());
        true
    }

    fn wait(self: Box<Self>) -> Vec<Done> {
        match &mut *self.work() {
            Work::Ended(done) => std::mem::take(done),
            Work::Waiting(_) => Vec::new(),
        }
    }
}

impl Drop for LateBatch {
    fn drop(&mut self) {
        drop(self.work());
    }
}

/// A recorded run. Clones share the recording.
#[derive(Clone)]
pub struct CrashLog {
    base: Content,
    events: Arc<[Event]>,
    /// Where each mark was set first.
    marks: Arc<HashMap<u64, usize>>,
}

impl CrashLog {
    fn new(base: Content, events: Vec<Event>) -> CrashLog {
        let mut marks = HashMap::new();
        for (at, event) in events.iter().enumerate() {
            if let Event::Mark(mark) = event {
                marks.entry(*mark).or_insert(at);
            }
        }
        CrashLog {
            base,
            events: events.into(),
            marks: Arc::new(marks),
        }
    }

    /// Returns what the device held before the first event.
    pub fn base(&self) -> &Content {
        &self.base
    }

    /// Returns everything that happened, in order of completion.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the number of writes, discards and zeroed ranges.
    pub fn writes(&self) -> usize {
        let changes = |event: &&Event| matches!(event, Event::Write { .. } | Event::Zero { .. });
        self.events.iter().filter(changes).count()
    }

    /// Returns the number of flushes.
    pub fn flushes(&self) -> usize {
        let flushes = |event: &&Event| matches!(event, Event::Flush { .. });
        self.events.iter().filter(flushes).count()
    }

    /// Returns where `mark` was set first.
    pub fn position_of(&self, mark: u64) -> Option<usize> {
        self.marks.get(&mark).copied()
    }

    /// Returns the images that a crash during this run could have left.
    pub fn images(&self, budget: Budget) -> CrashImages {
        CrashImages::new(self.clone(), budget)
    }
}

impl fmt::Debug for CrashLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.events.iter()).finish()
    }
}
