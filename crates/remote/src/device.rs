//! The block device over an object.

use crate::address::{Address, Scheme, shown_text};
use crate::attempts::{Attempts, limited};
use crate::error::RemoteError;
use crate::fetch::Fetcher;
use crate::options::RemoteOptions;
use crate::pieces::{Coming, PIECE, Wanted};
use crate::runtime;
use crate::source::{Beginning, Bucket, HttpSource, Source, StoreSource};
use extant_blockdev::{
    BlockDevice, Completion, DeviceError, DeviceResult, Done, PendingBatch, Request, SharedDevice,
};
use extant_sync::debug_assert_may_wait_for_device;
use object_store::RetryConfig;
use std::io::IoSliceMut;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a read that are asked for before the first of them is waited for.
const STEP: u64 = 8 << 20;

/// The largest object, in bytes: places in it, rounded up, are numbers still.
const LARGEST: u64 = 1 << 62;

/// Opens an object for reading.
pub(crate) fn open(url: &str, options: RemoteOptions) -> DeviceResult<SharedDevice> {
    let opened = begin(url, options).map_err(|e| DeviceError::Open {
        op: "open",
        path: PathBuf::from(shown_text(url)),
        source: e.into_io(),
    })?;
    Ok(Arc::new(opened))
}

fn begin(url: &str, options: RemoteOptions) -> Result<RemoteDevice, RemoteError> {
    let address = Address::parse(url)?;
    let client = runtime::client(address.scheme, &options.timeouts)?;
    let source = match address.scheme {
        Scheme::Http => Source::Http(HttpSource::new(client, &address)),
        Scheme::S3 | Scheme::Gcs | Scheme::Azure => {
            let bucket = Bucket::of(
                &address,
                &client,
                &options.timeouts,
                &options.settings,
                no_retries(),
            )?;
            Source::Store(StoreSource::new(bucket, &address)?)
        }
    };
    let timeouts = options.timeouts;
    let (source, beginning) = runtime::wait_for(async move {
        let mut attempts = Attempts::new(&timeouts);
        loop {
            match limited(&timeouts, PIECE, source.begin(PIECE)).await {
                Ok(beginning) => return Ok((source, beginning)),
                // A wrong name is more probable than a server that comes back.
                Err(e @ RemoteError::Unreachable { .. }) => return Err(e),
                Err(e) => attempts.pause_after(e).await?,
            }
        }
    })?;
    let Beginning { pin, bytes } = beginning;
    let name = address.shown();
    let size = pin.size;
    if size > LARGEST {
        return Err(RemoteError::BadAnswer {
            reason: format!("the object is said to have {size} bytes"),
        });
    }
    let fetcher = Fetcher::new(source, pin, &address, options)?;
    if size > 0 {
        fetcher.put_first(bytes);
    }
    Ok(RemoteDevice {
        name,
        size,
        fetcher,
    })
}

/// Failures are repeated here, not by `object_store`.
pub(crate) fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        retry_timeout: Duration::ZERO,
        ..RetryConfig::default()
    }
}

/// An object, read in pieces.
#[derive(Debug)]
struct RemoteDevice {
    name: String,
    size: u64,
    fetcher: Arc<Fetcher>,
}

impl RemoteDevice {
    fn pieces_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start / PIECE..range.end.div_ceil(PIECE)
    }

    fn failed(&self, offset: u64, len: u64, error: &Arc<RemoteError>) -> DeviceError {
        DeviceError::Io {
            op: "read",
            device: self.name.clone(),
            offset,
            len,
            source: std::io::Error::new(error.kind(), Arc::clone(error)),
        }
    }

    /// The pieces of a part of a read; those that are missing are on their way.
    fn start(&self, range: &Range<u64>) -> Vec<Wanted> {
        let (wanted, claimed) = self.fetcher.pieces.want(self.pieces_of(range));
        // One that stands alone: what is read in portions needs no guess.
        let missed = (claimed.len() == 1).then(|| claimed[0]);
        self.fetcher.fetch(claimed);
        if let Some(piece) = missed {
            let around = self.fetcher.pieces.note_miss(piece);
            let bytes = around.start * PIECE..around.end * PIECE;
            self.fetcher
                .fetch_ahead(bytes.start.min(self.size)..bytes.end.min(self.size));
        }
        wanted
    }

    fn read_ahead(&self, read: &Range<u64>) {
        if let Some(ahead) = self.fetcher.pieces.note_read(read) {
            self.fetcher
                .fetch_ahead(ahead.start.min(self.size)..ahead.end.min(self.size));
        }
    }
}

impl Drop for RemoteDevice {
    fn drop(&mut self) {
        self.fetcher.close();
    }
}

/// Copies what a part of a read wants to the buffers, as far as they go.
struct Filler<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    buf: usize,
    at: usize,
}

impl Filler<'_, '_> {
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(buf) = self.bufs.get_mut(self.buf) else {
                return;
            };
            let room = &mut buf[self.at..];
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            self.at += n;
            if self.at == buf.len() {
                self.buf += 1;
                self.at = 0;
            }
        }
    }
}

/// Gives the bytes of `range` to `put`, from its pieces.
fn collect(
    range: &Range<u64>,
    wanted: Vec<Wanted>,
    mut put: impl FnMut(&[u8]),
) -> Result<(), Arc<RemoteError>> {
    for (piece, wanted) in (range.start / PIECE..).zip(wanted) {
        let bytes = match wanted {
            Wanted::Held(bytes) => bytes,
            Wanted::Coming(coming) => coming.wait()?,
        };
        let base = piece * PIECE;
        let from = range.start.saturating_sub(base) as usize;
        let to = (range.end - base).min(PIECE) as usize;
        // A piece has all bytes of the object that belong to it.
        put(&bytes[from.min(bytes.len())..to.min(bytes.len())]);
    }
    Ok(())
}

impl BlockDevice for RemoteDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        let len = bufs
            .iter()
            .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        self.check_range("read", offset, len)?;
        if len == 0 {
            return Ok(());
        }
        debug_assert_may_wait_for_device();
        let read = offset..offset + len;
        let mut filler = Filler {
            bufs,
            buf: 0,
            at: 0,
        };
        // While one step is waited for, the next one is under way.
        let steps = |from: u64| (from < read.end).then(|| from..(from + STEP).min(read.end));
        let mut current = steps(read.start).map(|step| (step.clone(), self.start(&step)));
        self.read_ahead(&read);
        while let Some((step, wanted)) = current {
            let next = steps(step.end).map(|next| (next.clone(), self.start(&next)));
            collect(&step, wanted, |bytes| filler.put(bytes))
                .map_err(|e| self.failed(offset, len, &e))?;
            current = next;
        }
        Ok(())
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        debug_assert_may_wait_for_device();
        let mut claimed = Vec::new();
        let started = batch
            .into_iter()
            .map(|request| {
                let state = match (&request, request.range()) {
                    (Request::Read { .. }, Some((offset, len))) => {
                        match self.check_range("read", offset, len) {
                            Ok(()) if len == 0 => State::Ended(Ok(())),
                            Ok(()) => {
                                let range = offset..offset + len;
                                let pieces = self.pieces_of(&range);
                                let (wanted, mine) = self.fetcher.pieces.want(pieces);
                                claimed.extend(mine);
                                State::Coming(range, wanted)
                            }
                            Err(e) => State::Ended(Err(e)),
                        }
                    }
                    (_, Some((offset, len))) => {
                        State::Ended(self.check_writable("write", offset, len))
                    }
                    (_, None) => State::Flush,
                };
                (request, state)
            })
            .collect();
        // All of them together, so that neighbours come together.
        claimed.sort_unstable();
        self.fetcher.fetch(claimed);
        Completion::pending(Box::new(Batch {
            name: self.name.clone(),
            fetcher: Arc::clone(&self.fetcher),
            started,
        }))
    }

    fn preferred_io(&self) -> u32 {
        PIECE as u32
    }

    fn in_flight(&self) -> usize {
        self.fetcher.most_in_flight
    }

    fn is_served(&self) -> bool {
        true
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            self.fetcher
                .fetch_ahead(range.start.min(self.size)..range.end.min(self.size));
        }
    }
}

#[derive(Debug)]
enum State {
    Coming(Range<u64>, Vec<Wanted>),
    Ended(DeviceResult<()>),
    Flush,
}

/// Requests that were started together.
struct Batch {
    name: String,
    /// Keeps what fetches alive when the device is closed meanwhile.
    fetcher: Arc<Fetcher>,
    started: Vec<(Request, State)>,
}

impl PendingBatch for Batch {
    fn is_done(&self) -> bool {
        let coming = self.started.iter().filter_map(|(_, state)| match state {
            State::Coming(_, wanted) => Some(wanted),
            _ => None,
        });
        coming.flatten().all(|wanted| match wanted {
            Wanted::Held(_) => true,
            Wanted::Coming(coming) => Coming::has_ended(coming),
        })
    }

    fn wait(self: Box<Self>) -> Vec<Done> {
        let mut failed = false;
        let mut cancelled = false;
        let Self {
            name,
            fetcher,
            started,
        } = *self;
        let done = started
            .into_iter()
            .map(|(mut request, state)| {
                cancelled |= failed && matches!(state, State::Flush);
                let result = match state {
                    _ if cancelled => Err(DeviceError::Cancelled),
                    State::Flush => Ok(()),
                    State::Ended(result) => result,
                    State::Coming(range, wanted) => fill(&name, &mut request, &range, wanted),
                };
                failed |= result.is_err();
                Done { request, result }
            })
            .collect();
        drop(fetcher);
        done
    }
}

fn fill(
    name: &str,
    request: &mut Request,
    range: &Range<u64>,
    wanted: Vec<Wanted>,
) -> DeviceResult<()> {
    let Request::Read { buf, .. } = request else {
        return Ok(());
    };
    let mut at = 0;
    collect(range, wanted, |bytes| {
        buf[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    })
    .map_err(|error| DeviceError::Io {
        op: "read",
        device: name.to_owned(),
        offset: range.start,
        len: range.end - range.start,
        source: std::io::Error::new(error.kind(), error),
    })
}
