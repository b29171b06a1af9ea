//! An image in chunks as a block device. Chunks are fetched when they are read.

use super::index::{Algorithm, Index};
use super::store::{Store, as_url};
use crate::error::RemoteError;
use crate::options::RemoteOptions;
use crate::pieces::{Pieces, Wanted};
use crate::runtime;
use extant_blockdev::{
    BlockDevice, Completion, DeviceError, DeviceResult, Done, Request, SharedDevice,
};
use extant_sync::debug_assert_may_wait_for_device;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The largest index that is read: of an image of some terabytes.
const LARGEST_INDEX: u64 = 1 << 30;
/// What casync calls a store, unless it is told another name.
const STORE: &str = "default.castr";
/// Bytes of a read, and of the chunks for a batch, that are asked for before the first of them is
/// waited for.
const STEP: u64 = 8 << 20;

/// Opens the image whose index is on the device `index`, with chunks from `store`.
pub(crate) fn open(
    index: &dyn BlockDevice,
    store: &OsStr,
    options: RemoteOptions,
) -> DeviceResult<SharedDevice> {
    let size = index.size();
    let failed = |e: RemoteError| DeviceError::Open {
        op: "open",
        path: PathBuf::from(index.name()),
        source: e.into_io(),
    };
    if size > LARGEST_INDEX {
        let reason = format!("it has {size} bytes, and {LARGEST_INDEX} are the most");
        return Err(failed(RemoteError::BadIndex { reason }));
    }
    let mut bytes = vec![0; size as usize];
    index.read_at(0, &mut bytes)?;
    let listed = Index::read(&bytes).map_err(|reason| RemoteError::BadIndex { reason });
    let listed = listed.map_err(failed)?;
    let store = Store::of(store, &options).map_err(failed)?;
    Ok(Arc::new(begin(index.name(), listed, store, &options)))
}

/// Returns the store that casync uses unless it is told another one: `default.castr` beside the
/// index.
pub(crate) fn store_beside(index: &OsStr) -> OsString {
    match as_url(index) {
        Some(url) => {
            let plain = url.split('?').next().unwrap_or(url);
            let folder = plain.rsplit_once('/').map_or(plain, |(folder, _)| folder);
            format!("{folder}/{STORE}").into()
        }
        None => Path::new(index).with_file_name(STORE).into(),
    }
}

fn begin(name: String, index: Index, store: Store, options: &RemoteOptions) -> ChunkDevice {
    let largest = index.sizes[2];
    let zeroes = index.algorithm.digest(&vec![0; largest as usize]);
    let in_flight = options.in_flight.clamp(1, 256);
    ChunkDevice {
        name,
        worth_having: if store.is_far() { in_flight } else { 1 },
        shared: Arc::new(Shared {
            // At least two of the largest, or nothing would stay while another one comes.
            chunks: Pieces::new(options.cache_bytes.max(2 * largest)),
            most_ahead: (options.cache_bytes / 2 / index.sizes[1].max(1)) as usize,
            in_flight: Semaphore::new(in_flight),
            zeroes,
            store,
            index,
        }),
    }
}

#[derive(Debug)]
struct Shared {
    index: Index,
    store: Store,
    chunks: Pieces,
    most_ahead: usize,
    in_flight: Semaphore,
    /// The digest of the largest chunk if it is all zeroes: such a chunk is a hole.
    zeroes: [u8; 32],
}

impl Shared {
    fn is_hole(&self, chunk: usize) -> bool {
        let range = self.index.range(chunk);
        range.end - range.start == self.index.sizes[2] && self.index.chunks[chunk].1 == self.zeroes
    }

    /// The chunks of a range of bytes, by number.
    fn chunks_of(&self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        let last = self.index.chunk_at(range.end - 1) as u64;
        self.index.chunk_at(range.start) as u64..last + 1
    }

    /// Makes chunks come that the caller has claimed.
    fn fetch(self: &Arc<Self>, claimed: Vec<u64>) {
        for chunk in claimed {
            let range = self.index.range(chunk as usize);
            if self.is_hole(chunk as usize) {
                let zeroes = vec![0; (range.end - range.start) as usize];
                self.chunks.end(chunk, Ok(zeroes.into()));
                continue;
            }
            let claim = Claim {
                shared: Arc::clone(self),
                chunk: Some(chunk),
            };
            match runtime::handle() {
                Ok(runtime) => drop(runtime.spawn(bring(claim, range.end - range.start))),
                // Dropped, it has failed.
                Err(_) => drop(claim),
            }
        }
    }
}

/// The duty to bring a chunk. Dropped, it has failed.
struct Claim {
    shared: Arc<Shared>,
    chunk: Option<u64>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            self.shared
                .chunks
                .end(chunk, Err(Arc::new(RemoteError::Closed)));
        }
    }
}

async fn bring(mut claim: Claim, len: u64) {
    let shared = Arc::clone(&claim.shared);
    let Ok(_turn) = shared.in_flight.acquire().await else {
        return;
    };
    let Some(chunk) = claim.chunk else {
        return;
    };
    let algorithm: Algorithm = shared.index.algorithm;
    let id = shared.index.chunks[chunk as usize].1;
    let outcome = shared.store.get(id, len, algorithm).await;
    claim.chunk = None;
    shared.chunks.end(chunk, outcome.map_err(Arc::new));
}

/// An image in chunks.
#[derive(Debug)]
struct ChunkDevice {
    name: String,
    /// Requests that are worth having under way at once.
    worth_having: usize,
    shared: Arc<Shared>,
}

impl Drop for ChunkDevice {
    fn drop(&mut self) {
        self.shared.in_flight.close();
    }
}

/// The chunks of a range of bytes: the number of the first one, and all of them.
type Started = (u64, Vec<Wanted>);

impl ChunkDevice {
    fn start(&self, range: &Range<u64>) -> Started {
        let chunks = self.shared.chunks_of(range);
        let first = chunks.start;
        let (wanted, claimed) = self.shared.chunks.want(chunks);
        self.shared.fetch(claimed);
        (first, wanted)
    }

    /// Copies a range of bytes out of its chunks, as these come.
    fn take(
        &self,
        range: &Range<u64>,
        (first, wanted): Started,
        into: &mut [u8],
    ) -> Result<(), Arc<RemoteError>> {
        for (chunk, wanted) in (first..).zip(wanted) {
            let bytes = match wanted {
                Wanted::Held(bytes) => bytes,
                Wanted::Coming(coming) => coming.wait()?,
            };
            let place = self.shared.index.range(chunk as usize);
            let part = place.start.max(range.start)..place.end.min(range.end);
            let to = (part.start - range.start) as usize..(part.end - range.start) as usize;
            let from = (part.start - place.start) as usize..(part.end - place.start) as usize;
            into[to].copy_from_slice(&bytes[from]);
        }
        Ok(())
    }

    fn failed(&self, read: &Range<u64>, error: Arc<RemoteError>) -> DeviceError {
        DeviceError::Io {
            op: "read",
            device: self.name.clone(),
            offset: read.start,
            len: read.end - read.start,
            source: std::io::Error::new(error.kind(), error),
        }
    }

    /// Makes the chunks of a request come that is no longer than a step.
    fn start_request(&self, request: &Request) -> Option<(Range<u64>, Started)> {
        let (Request::Read { .. }, Some((offset, len))) = (request, request.range()) else {
            return None;
        };
        if len > STEP || self.check_range("read", offset, len).is_err() {
            return None;
        }
        let range = offset..offset + len;
        let started = self.start(&range);
        Some((range, started))
    }

    fn end_request(
        &self,
        request: &mut Request,
        started: Option<(Range<u64>, Started)>,
    ) -> DeviceResult<()> {
        match (request, started) {
            (Request::Read { buf, .. }, Some((range, started))) => {
                if let Some(ahead) = self.shared.chunks.note_read(&range) {
                    self.fetch_ahead(ahead);
                }
                let taken = self.take(&range, started, buf);
                taken.map_err(|error| self.failed(&range, error))
            }
            (Request::Read { offset, buf }, None) => self.read_at(*offset, buf),
            (other, _) => other.range().map_or(Ok(()), |(offset, len)| {
                self.check_writable("write", offset, len)
            }),
        }
    }

    fn fetch_ahead(&self, range: Range<u64>) {
        let (_, coming) = self.shared.chunks.counts();
        let most = self.shared.most_ahead.saturating_sub(coming);
        let range = range.start.min(self.size())..range.end.min(self.size());
        if !range.is_empty() && most > 0 {
            let chunks = self.shared.chunks_of(&range);
            self.shared.fetch(self.shared.chunks.claim(chunks, most));
        }
    }
}

impl BlockDevice for ChunkDevice {
    fn size(&self) -> u64 {
        self.shared.index.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let len = buf.len() as u64;
        self.check_range("read", offset, len)?;
        debug_assert_may_wait_for_device();
        let read = offset..offset + len;
        let step_from = |from: u64| {
            let step = from..(from + STEP).min(read.end);
            (!step.is_empty()).then(|| (step.clone(), self.start(&step)))
        };
        let mut current = step_from(offset);
        if let Some(ahead) = self.shared.chunks.note_read(&read) {
            self.fetch_ahead(ahead);
        }
        while let Some((step, started)) = current {
            let next = step_from(step.end);
            let into = (step.start - offset) as usize..(step.end - offset) as usize;
            let taken = self.take(&step, started, &mut buf[into]);
            taken.map_err(|error| self.failed(&read, error))?;
            current = next;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    /// Does the requests in order, while the chunks of those that follow come.
    fn submit(&self, batch: Vec<Request>) -> Completion {
        debug_assert_may_wait_for_device();
        let mut done = Vec::with_capacity(batch.len());
        let mut rest = batch.into_iter();
        let mut under_way = VecDeque::new();
        let (mut bytes_coming, mut counted) = (0, 0);
        let (mut failed, mut cancelled) = (false, false);
        loop {
            while bytes_coming < STEP {
                let Some(request) = rest.next() else {
                    break;
                };
                let started = self.start_request(&request);
                let mut bytes = 0;
                if let Some((_, (first, wanted))) = &started {
                    // Neighbours share a chunk.
                    let behind = first + wanted.len() as u64;
                    for chunk in counted.clamp(*first, behind)..behind {
                        let range = self.shared.index.range(chunk as usize);
                        bytes += range.end - range.start;
                    }
                    counted = behind;
                }
                bytes_coming += bytes;
                under_way.push_back((request, started, bytes));
            }
            let Some((mut request, started, bytes)) = under_way.pop_front() else {
                break;
            };
            cancelled |= failed && matches!(request, Request::Flush);
            let result = if cancelled {
                Err(DeviceError::Cancelled)
            } else {
                self.end_request(&mut request, started)
            };
            bytes_coming -= bytes;
            failed |= result.is_err();
            done.push(Done { request, result });
        }
        Completion::ended(done)
    }

    fn in_flight(&self) -> usize {
        self.worth_having
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            self.fetch_ahead(range.clone());
        }
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size());
        if from >= end {
            return Ok(None);
        }
        let last = self.shared.index.chunk_at(end - 1);
        let mut chunks = self.shared.index.chunk_at(from)..last + 1;
        let Some(first) = chunks.find(|&chunk| !self.shared.is_hole(chunk)) else {
            return Ok(None);
        };
        let hole = chunks.find(|&chunk| self.shared.is_hole(chunk));
        let start = self.shared.index.range(first).start.max(from);
        let until = hole.map_or(end, |chunk| self.shared.index.range(chunk).start.min(end));
        Ok(Some(start..until))
    }
}
