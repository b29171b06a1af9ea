//! The content of a large file of an image behind a server: pieces of it are read by several
//! threads, each over a connection of its own where the server has several, while another thread
//! writes.

use super::create::{Failure, Maker, host, write_all_at};
use super::gaps::Gaps;
use crate::Cause;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::ops::{self, Extent};
use rustix::fd::BorrowedFd;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};

/// Bytes from which on a file is read so.
const LARGE: u64 = 8 << 20;
/// Threads that read at most.
pub(super) const MOST_READERS: usize = 4;
/// Pieces that are read, or wait to be written, for each of them.
const UNDER_WAY: usize = 2;
/// Bytes of a piece.
const PIECE: u64 = 1 << 20;

/// A piece of a file.
struct Piece {
    at: u64,
    bytes: Vec<u8>,
    /// How much of it was read.
    read: extant_core::Result<usize>,
}

/// A thread that reads, as the one that writes knows it.
struct Lane {
    pieces: Sender<Piece>,
    results: Receiver<Piece>,
}

impl Lane {
    fn start<'s>(scope: &'s Scope<'s, '_>, fs: &'s Fs, inode: &'s Inode) -> Self {
        let (pieces, asked) = channel::<Piece>();
        let (done, results) = channel();
        scope.spawn(move || {
            for mut piece in asked {
                piece.read = ops::read(fs, inode, piece.at, &mut piece.bytes);
                if done.send(piece).is_err() {
                    return;
                }
            }
        });
        Self { pieces, results }
    }
}

impl Maker<'_> {
    /// Whether a file of `size` bytes is worth threads that read.
    pub(super) fn is_large(&self, size: u64) -> bool {
        size >= LARGE && self.readers > 1
    }

    /// Copies the content of a large file; what has no blocks stays a hole. Returns where what was
    /// written ends.
    pub(super) fn large_content(
        &mut self,
        file: BorrowedFd<'_>,
        inode: &Inode,
        gaps: &mut Gaps,
    ) -> Result<u64, Failure> {
        let (fs, readers) = (self.fs, self.readers);
        thread::scope(|scope| {
            let lanes: Vec<Lane> = (0..readers)
                .map(|_| Lane::start(scope, fs, inode))
                .collect();
            let lane = |number: usize| &lanes[number % readers];
            let mut places = Places {
                extents: ops::extents(fs, inode),
                rest: 0..0,
                end: 0,
                is_over: false,
            };
            let mut spare = Vec::new();
            let (mut asked, mut done, mut end) = (0, 0, 0);
            loop {
                while asked - done < UNDER_WAY * readers
                    && let Some(place) = self.next_place(&mut places, inode, gaps)?
                {
                    let mut bytes: Vec<u8> = spare.pop().unwrap_or_default();
                    bytes.resize((place.end - place.start) as usize, 0);
                    let piece = Piece {
                        at: place.start,
                        bytes,
                        read: Ok(0),
                    };
                    lane(asked).pieces.send(piece).map_err(|_| gone())?;
                    asked += 1;
                }
                if asked == done {
                    return Ok(end);
                }
                let mut piece = lane(done).results.recv().map_err(|_| gone())?;
                done += 1;
                let read = match piece.read {
                    Ok(read) => read,
                    Err(_) => gaps.read(fs, inode, piece.at, &mut piece.bytes),
                };
                self.has_gaps(gaps)?;
                let bytes = piece.bytes.get(..read).unwrap_or(&piece.bytes);
                write_all_at(file, bytes, piece.at).map_err(host("write"))?;
                self.report.bytes += bytes.len() as u64;
                end = end.max(piece.at + bytes.len() as u64);
                spare.push(piece.bytes);
            }
        })
    }
}

impl Maker<'_> {
    /// The next piece; none where the map is damaged, and where the rest lies is not known.
    fn next_place<I: Iterator<Item = extant_core::Result<Extent>>>(
        &mut self,
        places: &mut Places<I>,
        inode: &Inode,
        gaps: &mut Gaps,
    ) -> Result<Option<Range<u64>>, Failure> {
        if places.is_over {
            return Ok(None);
        }
        match places.next(&mut self.data_left) {
            Err(Failure::Image(Cause::Image(why))) => {
                places.is_over = true;
                gaps.add_last(places.end..inode.size().max(places.end), why);
                self.has_gaps(gaps)?;
                Ok(None)
            }
            next => next,
        }
    }
}

/// A thread that read has ended before its time, which its panic tells.
fn gone() -> Failure {
    Failure::Image(Cause::engine(extant_core::Error::Internal(
        "a thread that reads has ended",
    )))
}

/// The pieces of a file that have data, ascending.
struct Places<I> {
    extents: I,
    /// What is left of the extent that was come to.
    rest: Range<u64>,
    /// Where that ends.
    end: u64,
    is_over: bool,
}

impl<I: Iterator<Item = extant_core::Result<Extent>>> Places<I> {
    /// The next one. Takes what extents hold from what may still be written.
    fn next(&mut self, data_left: &mut u64) -> Result<Option<Range<u64>>, Failure> {
        while self.rest.is_empty() {
            let Some(extent) = self.extents.next() else {
                return Ok(None);
            };
            let extent = extent?;
            if extent.unwritten {
                continue;
            }
            *data_left = data_left
                .checked_sub(extent.len)
                .ok_or(Failure::Image(Cause::TooMuchData))?;
            self.rest = extent.offset..extent.offset.saturating_add(extent.len);
            self.end = self.rest.end;
        }
        let start = self.rest.start;
        self.rest.start = self.rest.end.min(start + PIECE);
        Ok(Some(start..self.rest.start))
    }
}
