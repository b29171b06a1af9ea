//! Bringing pieces: runs of neighbours in one request each, many at a time.

use crate::address::Address;
use crate::attempts::{Attempts, limited};
use crate::disk::DiskCache;
use crate::error::RemoteError;
use crate::options::{RemoteOptions, Timeouts};
use crate::pieces::{PIECE, Pieces};
use crate::runtime;
use crate::source::{Pin, Sink, Source};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// The most pieces that one request brings: 2 MiB.
const MOST_IN_A_RUN: usize = 32;

/// What brings the pieces of one object.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(crate) pieces: Pieces,
    disk: Option<Arc<DiskCache>>,
    source: Source,
    pin: Pin,
    timeouts: Timeouts,
    runtime: Handle,
    /// Requests that may be under way, and how many these are at first.
    in_flight: Semaphore,
    pub(crate) most_in_flight: usize,
    /// Those of them that nobody waits for yet.
    ahead: Semaphore,
    /// Pieces that may be coming before reading ahead stops.
    most_coming: usize,
}

impl Fetcher {
    pub(crate) fn new(
        source: Source,
        pin: Pin,
        address: &Address,
        options: RemoteOptions,
    ) -> Result<Arc<Self>, RemoteError> {
        let disk = match (&options.cache_dir, pin.identity()) {
            (Some(dir), Some(identity)) => {
                let most = options.cache_dir_bytes;
                let url = address.lasting(&options.settings);
                DiskCache::new(dir, most, &url, &identity).map(Arc::new)
            }
            // What cannot be told from its next version is not kept.
            _ => None,
        };
        let in_flight = options.in_flight.clamp(1, 256);
        Ok(Arc::new(Self {
            pieces: Pieces::new(options.cache_bytes),
            disk,
            source,
            pin,
            timeouts: options.timeouts,
            runtime: runtime::handle()?,
            in_flight: Semaphore::new(in_flight),
            most_in_flight: in_flight,
            ahead: Semaphore::new(in_flight.div_ceil(2)),
            most_coming: (options.cache_bytes / PIECE / 2) as usize,
        }))
    }

    /// Takes the first piece, which came when the object was opened.
    pub(crate) fn put_first(&self, bytes: Bytes) {
        if self.pieces.claim(0..1, 1) == [0] {
            self.pieces.end(0, Ok(bytes));
        }
    }

    /// Ends what waits for its turn, and waits for what is being kept on disk.
    pub(crate) fn close(&self) {
        self.in_flight.close();
        self.ahead.close();
        if let Some(disk) = &self.disk {
            disk.finish();
        }
    }

    /// A piece came. It is told to those that wait, and kept on disk.
    fn put(&self, piece: u64, bytes: Bytes) {
        self.pieces.end(piece, Ok(bytes.clone()));
        if let Some(disk) = self.disk.as_ref().filter(|disk| disk.may_put()) {
            let disk = Arc::clone(disk);
            self.runtime.spawn_blocking(move || disk.put(piece, &bytes));
        }
    }

    /// Ends the coming of pieces that are on disk, and returns the others.
    fn missing_on_disk(&self, mut claimed: Vec<u64>) -> Vec<u64> {
        if let Some(disk) = &self.disk {
            claimed.retain(|&piece| {
                let bytes = self.bytes_of(&(piece..piece + 1));
                let found = disk.get(piece, (bytes.end - bytes.start) as usize);
                let is_missing = found.is_none();
                if let Some(bytes) = found {
                    self.pieces.end(piece, Ok(bytes));
                }
                is_missing
            });
        }
        claimed
    }

    /// Makes pieces come that the caller has claimed, ascending. They are waited for.
    pub(crate) fn fetch(self: &Arc<Self>, claimed: Vec<u64>) {
        self.start(claimed, false);
    }

    /// Makes the pieces of a range of bytes come, as far as there is room.
    pub(crate) fn fetch_ahead(self: &Arc<Self>, range: Range<u64>) {
        let (_, coming) = self.pieces.counts();
        let most = self.most_coming.saturating_sub(coming);
        if range.is_empty() || most == 0 {
            return;
        }
        let pieces = range.start / PIECE..range.end.div_ceil(PIECE);
        let claimed = self.pieces.claim(pieces, most);
        self.start(claimed, true);
    }

    fn start(self: &Arc<Self>, claimed: Vec<u64>, is_ahead: bool) {
        let missing = self.missing_on_disk(claimed);
        for run in runs(&missing) {
            let claim = Claim {
                fetcher: Arc::clone(self),
                rest: run,
                filling: Vec::new(),
            };
            self.runtime.spawn(bring(claim, is_ahead));
        }
    }

    fn bytes_of(&self, pieces: &Range<u64>) -> Range<u64> {
        pieces.start * PIECE..(pieces.end * PIECE).min(self.pin.size)
    }
}

/// Neighbours of a list, in runs that one request brings each.
fn runs(pieces: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &piece in pieces {
        match runs.last_mut() {
            Some(run) if run.end == piece && run.end - run.start < MOST_IN_A_RUN as u64 => {
                run.end += 1;
            }
            _ => runs.push(piece..piece + 1),
        }
    }
    runs
}

/// The duty to bring a run of pieces. Dropped, those that are missing have failed.
struct Claim {
    fetcher: Arc<Fetcher>,
    /// Pieces that are not complete.
    rest: Range<u64>,
    /// The beginning of the first of them.
    filling: Vec<u8>,
}

impl Claim {
    fn fail(&mut self, error: &Arc<RemoteError>) {
        for piece in self.rest.clone() {
            self.fetcher.pieces.end(piece, Err(Arc::clone(error)));
        }
        self.rest.start = self.rest.end;
    }

    /// The bytes that are missing.
    fn missing(&self) -> Range<u64> {
        let bytes = self.fetcher.bytes_of(&self.rest);
        bytes.start + self.filling.len() as u64..bytes.end
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.fail(&Arc::new(RemoteError::Closed));
    }
}

impl Sink for Claim {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.rest.is_empty() {
            let piece = self.rest.start;
            let whole = self.fetcher.bytes_of(&(piece..piece + 1));
            let whole = (whole.end - whole.start) as usize;
            if self.filling.is_empty() {
                self.filling.reserve_exact(whole);
            }
            let n = (whole - self.filling.len()).min(bytes.len());
            self.filling.extend_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            if self.filling.len() == whole {
                let complete = Bytes::from(std::mem::take(&mut self.filling));
                self.rest.start += 1;
                self.fetcher.put(piece, complete);
            }
        }
    }
}

/// Brings a run of pieces, with as many attempts as are allowed. What came stays.
async fn bring(mut claim: Claim, is_ahead: bool) {
    let fetcher = Arc::clone(&claim.fetcher);
    let mut attempts = Attempts::new(&fetcher.timeouts);
    let turn = async {
        let ahead = if is_ahead {
            Some(fetcher.ahead.acquire().await.ok()?)
        } else {
            None
        };
        Some((ahead, fetcher.in_flight.acquire().await.ok()?))
    };
    let Some(_turn) = turn.await else {
        return;
    };
    while !claim.rest.is_empty() {
        let missing = claim.missing();
        let len = missing.end - missing.start;
        let fetched = fetcher.source.fetch(missing, &fetcher.pin, &mut claim);
        if let Err(error) = limited(&fetcher.timeouts, len, fetched).await
            && let Err(error) = attempts.pause_after(error).await
        {
            claim.fail(&Arc::new(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn neighbours_come_together() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[1, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
        let many: Vec<u64> = (0..100).collect();
        assert_eq!(runs(&many), [0..32, 32..64, 64..96, 96..100]);
    }
}
