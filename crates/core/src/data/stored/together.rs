//! Reading the content of many small files with one batch of reads.

use crate::data::io::device_offset;
use crate::fs::Fs;
use crate::inode::{FileType, Inode};
use crate::map::{Runs, Target};
use extant_blockdev::Request;
use std::ops::Range;
use std::sync::Arc;

/// Bytes between two pieces that are read along with them: less than what moves in the time that
/// another request takes.
const GAP: u64 = 16 << 10;
/// Bytes of one request, where pieces do not lie over each other.
const LONGEST: u64 = 1 << 20;

/// A piece of a file on the device.
struct Piece {
    /// Which of the files.
    file: usize,
    /// Where in the file, in bytes.
    at: usize,
    /// Where on the device, in whole blocks.
    from: Range<u64>,
}

/// Reads regular files of a file system that is open for reading, with one batch of reads. The
/// files that were read come whole, with zeros for their holes, in the order asked for. Others are
/// to be read by themselves: what is no regular file or cannot be read, what lies in the inode, and
/// what would make more than `most` bytes of all.
pub fn read_together(fs: &Fs, inodes: &[Arc<Inode>], most: u64) -> Vec<Option<Vec<u8>>> {
    let mut files: Vec<Option<Vec<u8>>> = inodes.iter().map(|_| None).collect();
    // What may change is read at one moment each.
    if fs.journal().is_ok() {
        return files;
    }
    let mut pieces = Vec::new();
    let mut total = 0_u64;
    for (number, (inode, file)) in inodes.iter().zip(&mut files).enumerate() {
        if inode.file_type() != FileType::Regular || inode.is_inline() || inode.is_encrypted() {
            continue;
        }
        if inode.size() > most.saturating_sub(total) {
            continue;
        }
        total += inode.size();
        let before = pieces.len();
        if add_pieces(fs, inode, number, &mut pieces).is_some() {
            *file = Some(vec![0; inode.size() as usize]);
        } else {
            pieces.truncate(before);
        }
    }
    pieces.sort_unstable_by_key(|piece| piece.from.start);
    let spans = spans(&pieces);
    let requests = spans
        .iter()
        .map(|span| Request::read(span.start, (span.end - span.start) as usize));
    let done = fs.device().submit(requests.collect()).wait();
    let mut pieces = pieces.into_iter().peekable();
    for (span, done) in spans.into_iter().zip(done) {
        let bytes = done.result.ok().and_then(|()| done.request.into_read_buf());
        while let Some(piece) = pieces.next_if(|piece| piece.from.start < span.end) {
            let Some(place) = files.get_mut(piece.file) else {
                continue;
            };
            let from = (piece.from.start - span.start) as usize;
            let part = bytes.as_ref().and_then(|bytes| bytes.get(from..));
            match (place.as_mut(), part) {
                (Some(file), Some(part)) => {
                    let into = file.get_mut(piece.at..).unwrap_or_default();
                    let len = (piece.from.end - piece.from.start) as usize;
                    for (to, from) in into.chunks_mut(len).zip(part.chunks(len)).take(1) {
                        let len = to.len().min(from.len());
                        to[..len].copy_from_slice(&from[..len]);
                    }
                }
                // Read again, so that the error is told.
                _ => *place = None,
            }
        }
    }
    files
}

/// Adds the pieces of a file that hold data; `None` if its map cannot be read.
fn add_pieces(fs: &Fs, inode: &Inode, file: usize, pieces: &mut Vec<Piece>) -> Option<()> {
    let log2 = fs.block_size().log2();
    for run in Runs::over(fs, inode, 0..inode.size_in_blocks(fs.block_size())) {
        let run = run.ok()?;
        if let Target::Written(pblk) = run.target {
            let start = device_offset(fs, pblk, 0).ok()?;
            pieces.push(Piece {
                file,
                at: usize::try_from(u64::from(run.lblk.get()) << log2).ok()?,
                from: start..start.checked_add(run.len << log2)?,
            });
        }
    }
    Some(())
}

/// The ranges of the device to read for pieces, which ascend. They ascend as well, and do not
/// overlap.
fn spans(pieces: &[Piece]) -> Vec<Range<u64>> {
    let mut spans: Vec<Range<u64>> = Vec::new();
    for piece in pieces {
        let joins = |span: &&mut Range<u64>| {
            let is_near = piece.from.start <= span.end.saturating_add(GAP);
            let fits = piece.from.end.saturating_sub(span.start) <= LONGEST;
            piece.from.start < span.end || is_near && fits
        };
        match spans.last_mut().filter(joins) {
            Some(span) => span.end = span.end.max(piece.from.end),
            None => spans.push(piece.from.clone()),
        }
    }
    spans
}
