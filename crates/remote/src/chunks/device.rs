//! An image in chunks as a block device. Chunks are fetched when they are read.

use super::index::{Algorithm, Index};
use super::store::{Store, as_url};
use crate::error::RemoteError;
use crate::options::RemoteOptions;
use crate::pieces::{Pieces, Wanted};
use crate::runtime;
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_sync::debug_assert_may_wait_for_device;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The largest index that is read: of an image of some terabytes.
const LARGEST_INDEX: u64 = 1 << 30;
/// What casync calls a store, unless it is told another name.
const STORE: &str = "default.castr";
/// Bytes of a read that are asked for before the first of them is waited for.
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
    ChunkDevice {
        name,
        shared: Arc::new(Shared {
            // At least two of the largest, or nothing would stay while another one comes.
            chunks: Pieces::new(options.cache_bytes.max(2 * largest)),
            most_ahead: (options.cache_bytes / 2 / index.sizes[1].max(1)) as usize,
            in_flight: Semaphore::new(options.in_flight.clamp(1, 256)),
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
    shared: Arc<Shared>,
}

impl Drop for ChunkDevice {
    fn drop(&mut self) {
        self.shared.in_flight.close();
    }
}

impl ChunkDevice {
    fn start(&self, range: &Range<u64>) -> (u64, Vec<Wanted>) {
        let chunks = self.shared.chunks_of(range);
        let first = chunks.start;
        let (wanted, claimed) = self.shared.chunks.want(chunks);
        self.shared.fetch(claimed);
        (first, wanted)
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
        while let Some((step, (first, wanted))) = current {
            let next = step_from(step.end);
            for (chunk, wanted) in (first..).zip(wanted) {
                let bytes = match wanted {
                    Wanted::Held(bytes) => Ok(bytes),
                    Wanted::Coming(coming) => coming.wait(),
                };
                let bytes = bytes.map_err(|error| DeviceError::Io {
                    op: "read",
                    device: self.name.clone(),
                    offset,
                    len,
                    source: std::io::Error::new(error.kind(), error),
                })?;
                let place = self.shared.index.range(chunk as usize);
                let part = place.start.max(step.start)..place.end.min(step.end);
                let into = (part.start - offset) as usize..(part.end - offset) as usize;
                let from = (part.start - place.start) as usize..(part.end - place.start) as usize;
                buf[into].copy_from_slice(&bytes[from]);
            }
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
