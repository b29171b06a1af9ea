//! Reading a whole file in order, holes kept apart: what copying out needs.

use crate::Result;
use crate::data::buffered::seek::{seek_data_live, seek_hole_live};
use crate::data::dispatch::read_live;
use crate::data::stored::read::{read_at, read_content, read_device};
use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::map::{Runs, Target};
use std::sync::mpsc;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Files from this size on are read ahead by a second thread.
const READ_AHEAD_FROM: u64 = 8 << 20;
/// Chunks in memory while reading ahead.
const CHUNKS_AHEAD: usize = 4;

/// Takes the content of a file in ascending order.
pub trait Sink {
    /// What can go wrong on this side.
    type Error;

    /// Bytes of the file, from `offset` on.
    ///
    /// # Errors
    /// Ends the copy.
    fn data(&mut self, offset: u64, bytes: &[u8]) -> std::result::Result<(), Self::Error>;

    /// Returns a range of zeros without blocks of its own. By default nothing is done.
    ///
    /// # Errors
    /// Ends the copy.
    fn hole(&mut self, offset: u64, len: u64) -> std::result::Result<(), Self::Error> {
        let _ = (offset, len);
        Ok(())
    }
}

/// What the reading side hands on. A receiver may take the buffer and leave another.
enum Chunk<'a> {
    Data(u64, &'a mut Vec<u8>),
    Hole(u64, u64),
}

/// What goes from the reading thread to the sink.
enum Sent {
    Data(u64, Vec<u8>),
    Hole(u64, u64),
}

/// Hands the whole content of a regular file to `sink`, in order and without gaps.
///
/// Large files are read ahead by a second thread while the sink works.
///
/// # Errors
/// The outer error is that of reading, as for [`read_at`]; the inner one is the sink's.
pub fn stream<S: Sink>(
    fs: &Fs,
    inode: &Inode,
    sink: &mut S,
) -> Result<std::result::Result<(), S::Error>> {
    // Refuses what cannot be read with the error that reading gives.
    read_at(fs, inode, 0, &mut [])?;
    let written = inode.disk().sectors(fs.block_size()).saturating_mul(512);
    if inode.size().min(written) < READ_AHEAD_FROM {
        return produce(fs, inode, |chunk| match chunk {
            Chunk::Data(offset, bytes) => sink.data(offset, bytes),
            Chunk::Hole(offset, len) => sink.hole(offset, len),
        });
    }
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(CHUNKS_AHEAD);
        let (give_back, spare) = mpsc::channel();
        let reader = scope.spawn(move || {
            produce(fs, inode, |chunk| {
                send.send(match chunk {
                    Chunk::Data(offset, bytes) => {
                        let next = spare.try_recv().unwrap_or_default();
                        Sent::Data(offset, std::mem::replace(bytes, next))
                    }
                    Chunk::Hole(offset, len) => Sent::Hole(offset, len),
                })
            })
        });
        let mut outcome = Ok(());
        for sent in receive {
            outcome = match sent {
                Sent::Data(offset, bytes) => {
                    let result = sink.data(offset, &bytes);
                    // The reader may be done already; then nobody needs the buffer.
                    let _ = give_back.send(bytes);
                    result
                }
                Sent::Hole(offset, len) => sink.hole(offset, len),
            };
            if outcome.is_err() {
                // Leaving drops the receiving end, which ends the reader.
                break;
            }
        }
        match reader.join() {
            Ok(Err(e)) => Err(e),
            Ok(Ok(_)) => Ok(outcome),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Hands the content of a regular file to `sink` that others may change meanwhile, in order and
/// without gaps. Each piece is as the file was at one moment; they are not all of the same.
///
/// Blocks are not kept where they are while the sink works.
///
/// # Errors
/// As for [`stream`].
pub fn stream_live<S: Sink>(
    fs: &Fs,
    held: &Held,
    sink: &mut S,
) -> Result<std::result::Result<(), S::Error>> {
    // Refuses what cannot be read.
    read_live(fs, held, 0, &mut [])?;
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let size = held.live_size();
        let data = seek_data_live(fs, held, at)?.unwrap_or(size.max(at));
        if data > at {
            if let Err(e) = sink.hole(at, data - at) {
                return Ok(Err(e));
            }
            at = data;
        }
        let end = seek_hole_live(fs, held, at)?.unwrap_or(at);
        let len = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        // Less if the file was cut meanwhile.
        let len = read_live(fs, held, at, &mut buf[..len])?;
        if len == 0 {
            if at >= held.live_size() {
                return Ok(Ok(()));
            }
            // Cut and made longer again: what comes next is looked for anew.
            continue;
        }
        if let Err(e) = sink.data(at, &buf[..len]) {
            return Ok(Err(e));
        }
        at += len as u64;
    }
}

/// Reads the file and hands it on; ends early when `emit` fails.
fn produce<E>(
    fs: &Fs,
    inode: &Inode,
    mut emit: impl FnMut(Chunk<'_>) -> std::result::Result<(), E>,
) -> Result<std::result::Result<(), E>> {
    let size = inode.size();
    let mut buf = Vec::new();
    if inode.is_inline() {
        // Less than an inode has.
        let stored = fs.inline_data(inode)?.stored();
        buf.resize(stored, 0);
        read_content(fs, inode, 0, &mut buf)?;
        let left = size.saturating_sub(stored as u64);
        let told = emit(Chunk::Data(0, &mut buf));
        return Ok(match (told, left) {
            (Ok(()), 1..) => emit(Chunk::Hole(stored as u64, left)),
            (told, _) => told,
        });
    }
    let log2 = fs.block_size().log2();
    for run in Runs::over(fs, inode, 0..inode.size_in_blocks(fs.block_size())) {
        let run = run?;
        let start = u64::from(run.lblk.get()) << log2;
        let end = (run.end() << log2).min(size);
        let Target::Written(pblk) = run.target else {
            if let Err(e) = emit(Chunk::Hole(start, end.saturating_sub(start))) {
                return Ok(Err(e));
            }
            continue;
        };
        let mut at = start;
        while at < end {
            let len = (end - at).min(CHUNK as u64);
            buf.resize(len as usize, 0);
            read_device(fs, pblk, at - start, &mut buf)?;
            if let Err(e) = emit(Chunk::Data(at, &mut buf)) {
                return Ok(Err(e));
            }
            at += len;
        }
    }
    Ok(Ok(()))
}
