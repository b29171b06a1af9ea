//! Transfers of file data from folios to the device.

use super::WritebackRun;
use crate::Result;
use crate::data::cache::folio::{FOLIO_BYTES, Folio};
use crate::data::cache::page::PAGE;
use crate::data::cache::{self, FileCache};
use crate::data::io::device_offset;
use crate::data::writeback::offload::spawn_or_keep;
use crate::fs::Fs;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Folios that are locked for one transfer at most, and slices in it.
const MOST_FOLIOS: usize = 128;
const MOST_SLICES: usize = 1024;
/// Bytes for which a thread of their own is worth starting.
const WORTH_A_THREAD: usize = 4 << 20;
/// Threads at once, whatever the device says.
const MOST_THREADS: usize = 8;

/// A part of a piece that lies in one folio.
struct Part {
    folio: u32,
    bytes: Range<usize>,
    to: u64,
}

/// Writes what folios of a file hold.
#[derive(Clone, Copy)]
pub(super) struct Sender<'a> {
    fs: &'a Fs,
    cache: &'a Arc<FileCache>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(fs: &'a Fs, cache: &'a Arc<FileCache>) -> Self {
        Self { fs, cache }
    }

    /// Writes pieces, in blocks of 2^`log2` bytes, to where they lie.
    ///
    /// # Errors
    /// The first of what went wrong; what other threads had begun is complete by then.
    pub(super) fn send(self, pieces: &[WritebackRun], log2: u32) -> Result<()> {
        let mut parts = Vec::new();
        for piece in pieces {
            self.parts(piece, log2, &mut parts)?;
        }
        let bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
        let threads = match bytes / WORTH_A_THREAD {
            0 | 1 => 1,
            worth => worth
                .min(MOST_THREADS)
                .min(self.fs.device().parallel_writes()),
        };
        if threads < 2 {
            return self.write(&parts);
        }
        let (own, others) = share(&parts, bytes.div_ceil(threads));
        std::thread::scope(|scope| {
            let others: Vec<_> = others
                .into_iter()
                .map(|parts| spawn_or_keep(scope, move || self.write(parts)))
                .collect();
            let own = self.write(own);
            others
                .into_iter()
                .fold(own, |result, other| result.and(other.finish()))
        })
    }

    /// Cuts a piece where folios end.
    fn parts(self, piece: &WritebackRun, log2: u32, parts: &mut Vec<Part>) -> Result<()> {
        let mut to = device_offset(self.fs, piece.pblk, 0)?;
        let (mut at, end) = (piece.lblk << log2, piece.end() << log2);
        while at < end {
            let inside = at as usize & (FOLIO_BYTES - 1);
            let len = (FOLIO_BYTES - inside).min((end - at) as usize);
            parts.push(Part {
                folio: cache::number(at),
                bytes: inside..inside + len,
                to,
            });
            at += len as u64;
            to += len as u64;
        }
        Ok(())
    }

    /// Writes parts, whose folios ascend, transfer by transfer.
    fn write(self, parts: &[Part]) -> Result<()> {
        let mut rest = parts;
        while !rest.is_empty() {
            let (mut folios, mut slices, mut last) = (0, 0, None);
            let count = rest
                .iter()
                .take_while(|part| {
                    folios += usize::from(last != Some(part.folio));
                    last = Some(part.folio);
                    slices += part.bytes.len().div_ceil(PAGE) + 1;
                    folios <= MOST_FOLIOS && slices <= MOST_SLICES
                })
                .count();
            let (now, after) = rest.split_at(count.max(1));
            self.transfer(now)?;
            rest = after;
        }
        Ok(())
    }

    /// Writes parts; those side by side on the device at once.
    fn transfer(self, parts: &[Part]) -> Result<()> {
        let mut folios: Vec<Arc<Folio>> = Vec::new();
        for part in parts {
            if folios.last().is_none_or(|last| last.index() != part.folio) {
                folios.push(self.cache.folio_at(part.folio));
            }
        }
        // Users of these wait for the transfer: then what is written is of one moment.
        let states: Vec<_> = folios.iter().map(|folio| folio.read()).collect();
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        let (mut start, mut end) = (0, 0);
        let mut at = 0;
        for part in parts {
            while folios[at].index() != part.folio {
                at += 1;
            }
            if part.to != end && !slices.is_empty() {
                self.fs.device().write_vectored_at(start, &slices)?;
                slices.clear();
            }
            if slices.is_empty() {
                start = part.to;
            }
            end = part.to + part.bytes.len() as u64;
            slices.extend(states[at].slices(part.bytes.clone()).map(IoSlice::new));
        }
        if !slices.is_empty() {
            self.fs.device().write_vectored_at(start, &slices)?;
        }
        Ok(())
    }
}

/// Cuts parts into shares of about `bytes` each, the first apart, so that no folio is in two of
/// them.
fn share(parts: &[Part], bytes: usize) -> (&[Part], Vec<&[Part]>) {
    let mut shares = Vec::new();
    let mut rest = parts;
    while !rest.is_empty() {
        let (mut sum, mut last) = (0, None);
        let count = rest
            .iter()
            .take_while(|part| {
                let goes_on = sum < bytes || last == Some(part.folio);
                (sum, last) = (sum + part.bytes.len(), Some(part.folio));
                goes_on
            })
            .count();
        let (now, after) = rest.split_at(count);
        shares.push(now);
        rest = after;
    }
    match shares.split_first() {
        Some((first, others)) => (first, others.to_vec()),
        None => (&[], Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::rng::{Rng, seed_from_env};

    #[test]
    fn shares_are_all_parts_in_order_and_no_folio_is_in_two() {
        let mut rng = Rng::new(seed_from_env("writeback_shares"));
        for _ in 0..200 {
            let mut folio = 0;
            let parts: Vec<Part> = (0..rng.between(0, 60))
                .map(|to| {
                    folio += rng.below(2) as u32;
                    let len = rng.between(1, 100) as usize;
                    Part {
                        folio,
                        bytes: 0..len,
                        to,
                    }
                })
                .collect();
            let all: usize = parts.iter().map(|part| part.bytes.len()).sum();
            let threads = rng.between(1, 6) as usize;
            let (first, others) = share(&parts, all.div_ceil(threads));
            assert!(others.len() < threads, "{} shares", others.len() + 1);
            let shares: Vec<&[Part]> = std::iter::once(first).chain(others).collect();
            let order: Vec<u64> = shares
                .iter()
                .copied()
                .flatten()
                .map(|part| part.to)
                .collect();
            assert!(order.iter().copied().eq(0..parts.len() as u64));
            for pair in shares.windows(2) {
                let last = pair[0].last().map(|part| part.folio);
                assert_ne!(last, pair[1].first().map(|part| part.folio));
            }
        }
    }
}
