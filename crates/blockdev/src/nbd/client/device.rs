//! The export as a block device.

use super::address::{NbdAddress, NbdOptions, NbdTransport};
use super::ends::Ends;
use super::extents::{Answer, Extents, Found};
use super::job::{Data, Fault, Job, cut_mut, cut_shared};
use super::parts;
use super::pool::Pool;
use super::stream::Stream;
use super::wire::{self, Command, FUA, export};
use crate::device::{total_len, write_zeroes};
use crate::{AlignedBuf, BlockDevice, Completion, DeviceError, DeviceResult, Done, Request};
use extant_sync::{CountedAtomicU64, RmwClass, debug_assert_may_wait_for_device};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static CHANGES: RmwClass = RmwClass::new("nbd changes");

/// Bytes that one request carries at most: enough to be quick, few enough that many are under way.
const PIECE: u32 = 256 << 10;
/// Bytes that one request without data is about at most.
const STRETCH: u32 = 64 << 20;
/// Most bytes that are copied at a time where a request does not fit the server's blocks.
const BOUNCE: u64 = 1 << 20;
/// Time that a byte takes from a server at hand, in nanoseconds: it is copied twice or three times.
const NANOS_A_BYTE: u64 = 1;
/// Most bytes of reads whose time says how far a server is: with more, the time without the bytes
/// is too uncertain.
const TIMED: u64 = 256 << 10;
/// From this time on that the quickest read took, the server is far: several requests at a time are
/// quicker than one after the other, whatever the processors are busy with.
const FAR: Duration = Duration::from_micros(300);
/// Requests that are worth having under way with a server that is far.
const IN_FLIGHT: usize = 32;

/// An export of an NBD server as a device.
#[derive(Debug)]
pub struct NbdDevice {
    pub(super) pool: Arc<Pool>,
    is_writable: bool,
    name: String,
    /// Changes that have begun, and that have ended.
    begun: CountedAtomicU64,
    ended: CountedAtomicU64,
    extents: Extents,
    /// Both ends, where they are kept, and whether this device has changed any of them.
    ends: Option<Ends>,
    has_changed_ends: AtomicBool,
    /// Nanoseconds that the quickest read took, bytes aside; the largest number before the first.
    quickest: AtomicU64,
    /// A flush has succeeded.
    pub(super) has_flushed: AtomicBool,
    /// Stands for the export where parts of blocks are changed.
    pub(super) identity: u64,
}

impl NbdDevice {
    /// Connects to the server and opens the export.
    ///
    /// # Errors
    /// `Export`: the server is not there, does not have the export or does not allow it, or, for
    /// writing, the export is read-only or nothing on it can be made durable.
    pub fn connect(address: &NbdAddress, options: NbdOptions) -> DeviceResult<Self> {
        // Later connections are made wherever the process is by then.
        let (address, options) = (&address.absolute(), options.absolute());
        let refuse = |reason: String, errno| DeviceError::Export {
            device: address.to_string(),
            reason,
            errno,
        };
        let pool = Pool::open(address, &options)
            .map_err(|refusal| refuse(refusal.reason, refusal.errno))?;
        Self::of(pool, &options, address.to_string())
    }

    /// Opens the export that a process at the other end of a connected socket serves. There is
    /// never another connection: where this one breaks, requests fail from then on. Errors call
    /// the device `name`.
    ///
    /// # Errors
    /// `Export`: no NBD server is at the other end, or, for writing, the export is read-only or
    /// nothing on it can be made durable.
    pub fn connected(socket: OwnedFd, name: &str, options: NbdOptions) -> DeviceResult<Self> {
        let refuse = |reason: String, errno| DeviceError::Export {
            device: name.to_owned(),
            reason,
            errno,
        };
        // What is at the other end has no address; the negotiation asks for its default export.
        let address = NbdAddress {
            transport: NbdTransport::Unix(PathBuf::new()),
            export: String::new(),
            tls: false,
        };
        let stream = Stream::given(socket)
            .map_err(|e| refuse(e.to_string(), e.raw_os_error().unwrap_or_default()))?;
        let pool = Pool::on(stream, &address, &options)
            .map_err(|refusal| refuse(refusal.reason, refusal.errno))?;
        Self::of(pool, &options, name.to_owned())
    }

    fn of(pool: Pool, options: &NbdOptions, name: String) -> DeviceResult<Self> {
        let refuse = |reason: String, errno| DeviceError::Export {
            device: name.clone(),
            reason,
            errno,
        };
        let found = pool.export();
        if options.writable && found.can(export::READ_ONLY) {
            return Err(refuse(
                "the server exports it for reading only".to_owned(),
                Errno::ROFS.raw_os_error(),
            ));
        }
        if options.writable && !found.can(export::FLUSH) && !found.can(export::FUA) {
            return Err(refuse(
                "nothing that is written to it can be made durable: have the server offer flushes \
                 (nbd-server: `flush = true`), or open it for reading only"
                    .to_owned(),
                Errno::OPNOTSUPP.raw_os_error(),
            ));
        }
        Ok(Self {
            extents: Extents::new(),
            ends: options.keeps_ends.then(Ends::default),
            has_changed_ends: AtomicBool::new(false),
            quickest: AtomicU64::new(u64::MAX),
            pool: Arc::new(pool),
            is_writable: options.writable,
            identity: parts::identity(&name),
            name,
            begun: CountedAtomicU64::new(&CHANGES, 0),
            ended: CountedAtomicU64::new(&CHANGES, 0),
            has_flushed: AtomicBool::new(false),
        })
    }

    /// Returns where the export is; `None` where only a connection to it was given.
    pub fn address(&self) -> Option<&NbdAddress> {
        self.pool.address()
    }

    /// Returns whether the server says which parts of the export are holes.
    pub fn knows_holes(&self) -> bool {
        self.pool.export().allocation.is_some()
    }

    pub(super) fn can(&self, flag: u16) -> bool {
        self.pool.export().can(flag)
    }

    /// Bytes of a request with data at most: a multiple of the server's smallest.
    pub(super) fn piece(&self) -> u32 {
        self.pool.export().largest.min(PIECE)
    }

    pub(super) fn is_whole(&self, offset: u64, len: u64) -> bool {
        let smallest = u64::from(self.pool.export().smallest);
        offset.is_multiple_of(smallest) && len.is_multiple_of(smallest)
    }

    /// The blocks of the server that a range touches.
    pub(super) fn around(&self, offset: u64, len: u64) -> Range<u64> {
        let smallest = u64::from(self.pool.export().smallest);
        let start = offset - offset % smallest;
        start..(offset + len).next_multiple_of(smallest)
    }

    pub(super) fn failed(
        &self,
        command: Command,
        offset: u64,
        len: u64,
        fault: Fault,
    ) -> DeviceError {
        let source = match fault {
            Fault::Server { errno, text } => wire::told(errno, &text),
            Fault::Unanswered(reason) => io::Error::other(format!(
                "the connection broke before the server answered ({reason})"
            )),
            Fault::NoConnection { reason, errno } if errno == Errno::IO.raw_os_error() => {
                io::Error::other(reason)
            }
            Fault::NoConnection { reason, .. } => io::Error::other(format!(
                "the connection broke, and there is no other: {reason}"
            )),
        };
        DeviceError::Io {
            op: command.verb(),
            device: self.name(),
            offset,
            len,
            source,
        }
    }

    /// Does jobs. The error is that of the first that failed.
    pub(super) fn perform(&self, jobs: &mut [Job<'_>]) -> DeviceResult<()> {
        let changes = self.begin_changes(jobs);
        self.perform_timed(jobs);
        if changes {
            self.end_changes();
        }
        jobs.iter_mut().try_for_each(|job| self.outcome(job))
    }

    /// Does jobs, and notes how long they took if they are reads of not too much.
    pub(super) fn perform_timed(&self, jobs: &mut [Job<'_>]) {
        let bytes: u64 = jobs.iter().map(|job| u64::from(job.len)).sum();
        let are_reads = jobs.iter().all(|job| job.command == Command::Read);
        let begun = (are_reads && (1..=TIMED).contains(&bytes)).then(Instant::now);
        self.pool.perform(jobs);
        let are_done = || jobs.iter().all(|job| matches!(job.outcome, Some(Ok(()))));
        if let Some(begun) = begun.filter(|_| are_done()) {
            self.note_time(begun, bytes);
        }
    }

    /// Notes that changes begin, if there are any among these.
    pub(super) fn begin_changes(&self, jobs: &[Job<'_>]) -> bool {
        let mut changes = jobs.iter().filter(|job| job.command.changes()).peekable();
        if changes.peek().is_none() {
            return false;
        }
        let size = self.size();
        if self.kept_ends().is_some()
            && changes.any(|job| Ends::touch(job.offset, job.len.into(), size))
        {
            self.has_changed_ends.store(true, Ordering::SeqCst);
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Notes that changes have ended which [`NbdDevice::begin_changes`] noted.
    pub(super) fn end_changes(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes how long reads took that began together then, without the time that so many bytes take
    /// between two programs of one machine.
    fn note_time(&self, begun: Instant, bytes: u64) {
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let took = took.saturating_sub(bytes.saturating_mul(NANOS_A_BYTE));
        // Of two that meet one may be lost: there are more.
        if took < self.quickest.load(Ordering::Relaxed) {
            self.quickest.store(took, Ordering::Relaxed);
            self.pool.set_far(self.in_flight() > 1);
        }
    }

    /// The ends of the export, where they are kept: until the first change of one begins.
    fn kept_ends(&self) -> Option<&Ends> {
        let is_unchanged = || !self.has_changed_ends.load(Ordering::SeqCst);
        self.ends.as_ref().filter(|_| is_unchanged())
    }

    /// Fills `buf` from the ends of the export, if they are kept and it lies in one of them. What
    /// cannot be brought is left to a read of its own, which tells why.
    fn fill_from_ends(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(ends) = self.kept_ends() else {
            return false;
        };
        let size = self.size();
        if !Ends::hold(offset, buf.len() as u64, size) {
            return false;
        }
        if !ends.are_kept() {
            let mut room = Ends::room(size, self.pool.export().smallest);
            let mut jobs = Ends::jobs(&mut room, self.piece());
            if self.perform(&mut jobs).is_err() {
                return false;
            }
            drop(jobs);
            ends.keep(room);
        }
        ends.fill(offset, buf)
    }

    pub(super) fn outcome(&self, job: &mut Job<'_>) -> DeviceResult<()> {
        match job.outcome.take() {
            Some(Err(fault)) => Err(self.failed(job.command, job.offset, job.len.into(), fault)),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// The flags of changes: where the server knows no flush, each is durable at once.
    fn flags(&self) -> u16 {
        if self.can(export::FLUSH) { 0 } else { FUA }
    }

    pub(super) fn read_jobs<'b>(
        &self,
        offset: u64,
        into: impl Iterator<Item = &'b mut [u8]>,
        jobs: &mut Vec<Job<'b>>,
    ) {
        let piece = self.piece() as usize;
        cut_mut(offset, into, piece, |at, group| {
            jobs.push(Job::read(at, group))
        });
    }

    pub(super) fn write_jobs<'b>(
        &self,
        offset: u64,
        from: impl Iterator<Item = &'b [u8]>,
        piece: u32,
        jobs: &mut Vec<Job<'b>>,
    ) {
        let flags = self.flags();
        cut_shared(offset, from, piece as usize, |at, group| {
            jobs.push(Job {
                flags,
                ..Job::write(at, group)
            });
        });
    }

    pub(super) fn plain_jobs(&self, command: Command, range: Range<u64>, jobs: &mut Vec<Job<'_>>) {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(STRETCH.into()) as u32;
            jobs.push(Job {
                flags: self.flags(),
                ..Job::plain(command, at, len)
            });
            at += u64::from(len);
        }
    }

    /// Reads a range that does not fit the server's blocks.
    pub(super) fn read_parts(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let now = (buf.len() - done).min(BOUNCE as usize);
            let around = self.around(at, now as u64);
            let mut whole = AlignedBuf::zeroed((around.end - around.start) as usize);
            let mut jobs = Vec::new();
            self.read_jobs(around.start, std::iter::once(&mut whole[..]), &mut jobs);
            self.perform(&mut jobs)?;
            drop(jobs);
            let skip = (at - around.start) as usize;
            buf[done..done + now].copy_from_slice(&whole[skip..skip + now]);
            done += now;
        }
        Ok(())
    }
}

impl BlockDevice for NbdDevice {
    fn size(&self) -> u64 {
        self.pool.export().size
    }

    fn is_read_only(&self) -> bool {
        !self.is_writable
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("read", offset, buf.len() as u64)?;
        if self.fill_from_ends(offset, buf) {
            return Ok(());
        }
        self.read_uncached_at(offset, buf)
    }

    fn read_uncached_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("read", offset, buf.len() as u64)?;
        if !self.is_whole(offset, buf.len() as u64) {
            return self.read_parts(offset, buf);
        }
        let mut jobs = Vec::new();
        self.read_jobs(offset, std::iter::once(buf), &mut jobs);
        self.perform(&mut jobs)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_writable("write", offset, buf.len() as u64)?;
        if !self.is_whole(offset, buf.len() as u64) {
            return self.write_parts(offset, &[buf]);
        }
        let mut jobs = Vec::new();
        self.write_jobs(offset, std::iter::once(buf), self.piece(), &mut jobs);
        self.perform(&mut jobs)
    }

    fn flush(&self) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        if !self.is_writable {
            return Ok(());
        }
        self.pool
            .flush()
            .map_err(|fault| self.failed(Command::Flush, 0, self.size(), fault))?;
        self.has_flushed.store(true, Ordering::Release);
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        let len = total_len(bufs.iter().map(|b| &**b));
        self.check_range("read", offset, len)?;
        if self.kept_ends().is_some() && Ends::hold(offset, len, self.size()) {
            let mut at = offset;
            for buf in bufs {
                self.read_at(at, buf)?;
                at += buf.len() as u64;
            }
            return Ok(());
        }
        if !self.is_whole(offset, len) {
            let mut at = offset;
            for buf in bufs {
                self.read_parts(at, buf)?;
                at += buf.len() as u64;
            }
            return Ok(());
        }
        let mut jobs = Vec::new();
        self.read_jobs(offset, bufs.iter_mut().map(|buf| &mut **buf), &mut jobs);
        self.perform(&mut jobs)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        let len = total_len(bufs.iter().map(|b| &**b));
        self.check_writable("write", offset, len)?;
        if !self.is_whole(offset, len) {
            let bufs: Vec<&[u8]> = bufs.iter().map(|buf| &**buf).collect();
            return self.write_parts(offset, &bufs);
        }
        let mut jobs = Vec::new();
        let bufs = bufs.iter().map(|buf| &**buf);
        self.write_jobs(offset, bufs, self.piece(), &mut jobs);
        self.perform(&mut jobs)
    }

    /// Ends before it returns. All requests between two flushes are under way together, over one
    /// connection.
    fn submit(&self, batch: Vec<Request>) -> Completion {
        debug_assert_may_wait_for_device();
        let mut all: Vec<_> = batch.into_iter().map(|request| (request, Ok(()))).collect();
        let mut start = 0;
        let mut is_failed = false;
        let mut is_cancelled = false;
        while start < all.len() {
            let rest = &all[start..];
            let flush = rest
                .iter()
                .position(|(request, _)| matches!(request, Request::Flush));
            let end = flush.map_or(all.len(), |at| start + at);
            let stop = flush.map_or(end, |_| end + 1);
            if is_cancelled {
                for (_, result) in &mut all[start..] {
                    *result = Err(DeviceError::Cancelled);
                }
                break;
            }
            let mut flushed = None;
            if start < end {
                flushed = self.run_group(&mut all[start..end], flush.is_some());
                is_failed |= all[start..end].iter().any(|(_, result)| result.is_err());
            }
            if flush.is_some() {
                let result = if is_failed {
                    Err(DeviceError::Cancelled)
                } else if let Some(flushed) = flushed {
                    flushed
                } else if self.is_writable && start < end && self.is_all_durable() {
                    Ok(())
                } else {
                    self.flush()
                };
                is_failed |= result.is_err();
                is_cancelled = is_failed;
                all[end].1 = result;
            }
            start = stop;
        }
        let done = all
            .into_iter()
            .map(|(request, result)| Done { request, result });
        Completion::ended(done.collect())
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.try_discard(offset, len).map(drop)
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        debug_assert_may_wait_for_device();
        self.check_writable("discard", offset, len)?;
        if !self.can(export::TRIM) {
            return Ok(false);
        }
        // Whole blocks of the server that lie inside.
        let smallest = u64::from(self.pool.export().smallest);
        let (start, end) = (offset.next_multiple_of(smallest), offset + len);
        let end = end - end % smallest;
        if start < end {
            let mut jobs = Vec::new();
            self.plain_jobs(Command::Trim, start..end, &mut jobs);
            self.perform(&mut jobs)?;
        }
        Ok(true)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_writable("zero", offset, len)?;
        let smallest = u64::from(self.pool.export().smallest);
        let (start, stop) = (offset.next_multiple_of(smallest), offset + len);
        let end = stop - stop % smallest;
        if !self.can(export::WRITE_ZEROES) || start >= end {
            return write_zeroes(self, offset, len);
        }
        write_zeroes(self, offset, start - offset)?;
        let mut jobs = Vec::new();
        self.plain_jobs(Command::WriteZeroes, start..end, &mut jobs);
        self.perform(&mut jobs)?;
        write_zeroes(self, end, stop - end)
    }

    fn grow(&self, size: u64) -> DeviceResult<()> {
        let own = self.size();
        self.check_writable("write", own, 0)?;
        if size <= own {
            return Ok(());
        }
        Err(DeviceError::Export {
            device: self.name(),
            reason: format!(
                "the image in it would have to become {size} bytes long, and the export keeps its \
                 {own}: have the server show the disk that is in the image (as `qemu-nbd -f qcow2` \
                 and `-f vpc` do, whose file grows), or make the export larger"
            ),
            errno: Errno::FBIG.raw_os_error(),
        })
    }

    fn logical_sector(&self) -> u32 {
        self.pool.export().smallest.max(512)
    }

    fn preferred_io(&self) -> u32 {
        self.pool.export().preferred.clamp(4096, 1 << 20)
    }

    fn parallel_writes(&self) -> usize {
        self.pool.most().min(4)
    }

    /// Many, where no read came back at once so far.
    fn in_flight(&self) -> usize {
        let quickest = self.quickest.load(Ordering::Relaxed);
        let is_far = quickest != u64::MAX && Duration::from_nanos(quickest) >= FAR;
        if is_far { IN_FLIGHT } else { 1 }
    }

    fn is_served(&self) -> bool {
        true
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size());
        if from >= end {
            return Ok(None);
        }
        let export = *self.pool.export();
        if export.allocation.is_none() {
            return Ok(Some(from..end));
        }
        debug_assert_may_wait_for_device();
        let mut at = from;
        while at < end {
            let ended = self.ended.load(Ordering::SeqCst);
            let begun = self.begun.load(Ordering::SeqCst);
            let found = match self.extents.look(at, end, begun) {
                Some(found) => found,
                None => {
                    let (start, len) = Extents::stretch(at, export.size, export.smallest);
                    let mut job = Job::block_status(start, len);
                    self.perform(std::slice::from_mut(&mut job))?;
                    let Data::Extents(told) = &job.data else {
                        return Ok(Some(at..end));
                    };
                    let answer = Answer::new(start, told, export.size);
                    // An answer that stops short of the place would be asked for again for ever.
                    let Some(found) = answer.look(at, end) else {
                        return Ok(Some(at..end));
                    };
                    if ended == begun && begun == self.begun.load(Ordering::SeqCst) {
                        self.extents.keep(begun, answer);
                    }
                    found
                }
            };
            match found {
                Found::Data(data) => return Ok(Some(data)),
                Found::Zeroes(until) => at = until,
            }
        }
        Ok(None)
    }
}
