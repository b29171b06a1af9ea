//! Batches of requests and their completion.
//!
//! A caller hands a device a batch and gets a [`Completion`] to wait on. Buffers move into the
//! request and come back when it is done, so that a device may work on them in the background
//! (io_uring, a thread pool) without borrowing from the caller.
//!
//! # Order inside a batch
//! Requests of a batch may be done in any order and must not overlap, except that a
//! [`Request::Flush`] is a barrier: it starts when everything before it in the batch is done,
//! and nothing after it starts before it is done. If anything before the flush failed, the flush
//! and everything after it are not started and end as [`DeviceError::Cancelled`]; if the flush
//! itself failed, so does everything after it. So `[log blocks.., Flush, commit block, Flush]` is
//! a whole commit in one batch: the commit block is not written unless the log blocks are durable.

use crate::{AlignedBuf, BlockDevice, DeviceError, DeviceResult, WriteBuf};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};

/// One piece of work for a device. Offsets and lengths are bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Request {
    /// Fill the whole buffer from `offset`.
    Read {
        /// First byte on the device.
        offset: u64,
        /// Where the data goes; its length is the length of the read.
        buf: AlignedBuf,
    },
    /// Write the whole buffer at `offset`.
    Write {
        /// First byte on the device.
        offset: u64,
        /// What to write.
        buf: WriteBuf,
    },
    /// Make everything done before durable; a barrier inside the batch.
    Flush,
    /// The range's content is no longer needed.
    Discard {
        /// First byte on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The range reads as zeroes afterwards.
    Zero {
        /// First byte on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

impl Request {
    /// Makes a read of `len` bytes at `offset` into a new buffer.
    pub fn read(offset: u64, len: usize) -> Self {
        Self::Read {
            offset,
            buf: AlignedBuf::zeroed(len),
        }
    }

    /// Makes a write of `buf` at `offset`.
    pub fn write(offset: u64, buf: impl Into<WriteBuf>) -> Self {
        Self::Write {
            offset,
            buf: buf.into(),
        }
    }

    /// Makes a write of a copy of the slices, one after the other, at `offset`.
    pub fn write_copy(offset: u64, slices: &[IoSlice<'_>]) -> Self {
        let mut buf = AlignedBuf::zeroed(slices.iter().map(|slice| slice.len()).sum());
        let mut at = 0;
        for slice in slices {
            buf[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        Self::write(offset, buf)
    }

    /// Returns the buffer a read filled; nothing for other requests.
    pub fn into_read_buf(self) -> Option<AlignedBuf> {
        match self {
            Self::Read { buf, .. } => Some(buf),
            _ => None,
        }
    }

    /// Returns the offset and length in bytes; nothing for a flush.
    pub fn range(&self) -> Option<(u64, u64)> {
        match self {
            Self::Read { offset, buf } => Some((*offset, buf.len() as u64)),
            Self::Write { offset, buf } => Some((*offset, buf.len() as u64)),
            Self::Discard { offset, len } | Self::Zero { offset, len } => Some((*offset, *len)),
            Self::Flush => None,
        }
    }

    /// Moves the request to another place on the device.
    pub(crate) fn move_by(&mut self, shift: impl Fn(u64) -> u64) {
        match self {
            Self::Read { offset, .. }
            | Self::Write { offset, .. }
            | Self::Discard { offset, .. }
            | Self::Zero { offset, .. } => *offset = shift(*offset),
            Self::Flush => {}
        }
    }

    /// Whether `next` does the same kind of transfer and starts where this one ends.
    fn is_continued_by(&self, next: &Request) -> bool {
        let same_kind = matches!(
            (self, next),
            (Self::Read { .. }, Self::Read { .. }) | (Self::Write { .. }, Self::Write { .. })
        );
        let (Some((offset, len)), Some((start, _))) = (self.range(), next.range()) else {
            return false;
        };
        same_kind && offset.checked_add(len) == Some(start)
    }
}

/// A request that has ended: the request itself with its buffer, and how it ended.
#[derive(Debug)]
pub struct Done {
    /// The request; a read's buffer holds data only if `result` is `Ok`.
    pub request: Request,
    /// How it ended.
    pub result: DeviceResult<()>,
}

/// A batch that a device is still working on. Implemented by asynchronous devices.
///
/// Dropping it must not free the buffers under the device: it waits, or hands them to the code that
/// reaps the batch.
pub trait PendingBatch: Send {
    /// Whether [`PendingBatch::wait`] would return at once.
    fn is_done(&self) -> bool;

    /// Waits until every request of the batch has ended, and returns them in the order given.
    fn wait(self: Box<Self>) -> Vec<Done>;
}

/// The promise of a submitted batch.
#[must_use = "a batch whose completion is dropped has an unknown outcome"]
pub struct Completion(State);

enum State {
    Ended(Vec<Done>),
    Pending(Box<dyn PendingBatch>),
}

impl Completion {
    /// Makes a batch that has already ended, in the order it was given.
    pub fn ended(done: Vec<Done>) -> Self {
        Self(State::Ended(done))
    }

    /// Does a batch on a device in the calling thread, one request after the other, and makes it
    /// one that has ended: what [`BlockDevice::submit`] does unless a device does better.
    pub fn inline<D: BlockDevice + ?Sized>(device: &D, batch: Vec<Request>) -> Self {
        Self::ended(run_inline(device, batch))
    }

    /// Makes a batch that ends later.
    pub fn pending(batch: Box<dyn PendingBatch>) -> Self {
        Self(State::Pending(batch))
    }

    /// Returns whether [`Completion::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            State::Ended(_) => true,
            State::Pending(batch) => batch.is_done(),
        }
    }

    /// Waits until every request has ended, and returns them in the order given.
    pub fn wait(self) -> Vec<Done> {
        match self.0 {
            State::Ended(done) => done,
            State::Pending(batch) => batch.wait(),
        }
    }

    /// Waits, and returns the requests if all of them succeeded.
    ///
    /// # Errors
    /// The first failure in batch order that is not merely [`DeviceError::Cancelled`].
    pub fn wait_all(self) -> DeviceResult<Vec<Request>> {
        let mut requests = Vec::new();
        let mut failure: Option<DeviceError> = None;
        for Done { request, result } in self.wait() {
            match (result, &failure) {
                (Ok(()), _) => requests.push(request),
                (Err(err), None | Some(DeviceError::Cancelled)) => failure = Some(err),
                (Err(_), Some(_)) => {}
            }
        }
        failure.map_or(Ok(requests), Err)
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Ended(done) => write!(f, "Completion({} ended)", done.len()),
            State::Pending(_) => f.write_str("Completion(pending)"),
        }
    }
}

/// Does a batch in the calling thread, in order, joining transfers that continue each other.
pub(crate) fn run_inline<D: BlockDevice + ?Sized>(device: &D, batch: Vec<Request>) -> Vec<Done> {
    let mut done = Vec::with_capacity(batch.len());
    let mut failed = false;
    let mut cancelled = false;
    let mut rest = batch.into_iter().peekable();
    while let Some(request) = rest.next() {
        cancelled |= failed && matches!(request, Request::Flush);
        if cancelled {
            done.push(Done {
                request,
                result: Err(DeviceError::Cancelled),
            });
            continue;
        }
        let mut run = vec![request];
        while let Some(next) =
            rest.next_if(|next| run.last().is_some_and(|last| last.is_continued_by(next)))
        {
            run.push(next);
        }
        if run.len() > 1 && run_joined(device, &mut run).is_ok() {
            done.extend(run.into_iter().map(|request| Done {
                request,
                result: Ok(()),
            }));
            continue;
        }
        // Alone, or joined and failed: one by one, so that each gets its own result.
        for mut request in run {
            let result = run_one(device, &mut request);
            failed |= result.is_err();
            cancelled |= result.is_err() && matches!(request, Request::Flush);
            done.push(Done { request, result });
        }
    }
    done
}

fn run_one<D: BlockDevice + ?Sized>(device: &D, request: &mut Request) -> DeviceResult<()> {
    match request {
        Request::Read { offset, buf } => device.read_at(*offset, buf),
        Request::Write { offset, buf } => device.write_at(*offset, buf),
        Request::Flush => device.flush(),
        Request::Discard { offset, len } => device.discard(*offset, *len),
        Request::Zero { offset, len } => device.zero(*offset, *len),
    }
}

/// Does reads, or writes, that continue each other as one vectored transfer.
fn run_joined<D: BlockDevice + ?Sized>(device: &D, run: &mut [Request]) -> DeviceResult<()> {
    let start = match run.first() {
        Some(Request::Read { offset, .. } | Request::Write { offset, .. }) => *offset,
        _ => return Err(DeviceError::Cancelled),
    };
    if matches!(run.first(), Some(Request::Read { .. })) {
        let mut bufs: Vec<IoSliceMut<'_>> = run
            .iter_mut()
            .filter_map(|request| match request {
                Request::Read { buf, .. } => Some(IoSliceMut::new(buf)),
                _ => None,
            })
            .collect();
        return device.read_vectored_at(start, &mut bufs);
    }
    let bufs: Vec<IoSlice<'_>> = run
        .iter()
        .filter_map(|request| match request {
            Request::Write { buf, .. } => Some(IoSlice::new(buf)),
            _ => None,
        })
        .collect();
    device.write_vectored_at(start, &bufs)
}
