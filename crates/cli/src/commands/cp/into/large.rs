//! A large file of the host into an image behind a server at hand: past the memory of the file
//! system, while another thread reads what comes next.
//!
//! Through memory all of it would be copied once more, and sent when much of it is there.

use super::content::{cannot_read_all, next_data};
use super::make::Why;
use crate::time::is_reproducible;
use extant::Filesystem;
use extant_core::ops;
use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, Builder, ScopedJoinHandle};

/// Bytes from which on a file goes this way.
const LARGE: u64 = 8 << 20;
/// Bytes that are written at once: as many requests as are worth having under way.
const PIECE: u64 = 4 << 20;
/// Pieces in memory.
const PIECES: usize = 4;
/// Threads that write them.
const WRITERS: usize = 2;
/// Bytes that are reserved at once, a multiple of those of a piece.
const SPAN: u64 = 1 << 30;
/// Threads that copy files, each with so many pieces; more take the memory that there is for data.
const MOST_THREADS: usize = 4;
/// What pieces begin and end at multiples of: as long as any sector, and as short as most blocks.
const ALIGN: u64 = 4096;

/// Whether a file of `size` bytes goes this way into the file system, by one of so many threads.
/// Where the image is to depend on nothing but what is copied, it is not by how quick a server is.
pub(super) fn is_large(fs: &Filesystem, size: u64, threads: usize) -> bool {
    size >= LARGE
        && threads <= MOST_THREADS
        && !is_reproducible()
        && ops::takes_streams(fs.engine(), ALIGN)
}

/// Gives what is no hole of a file of the host to `put`, in pieces that begin and end at multiples
/// of [`ALIGN`]: what is more than the file has is zeros. `reserve` takes blocks for some bytes
/// before these come, and says whether it could: then several threads give pieces, as writes into
/// reserved blocks do not wait for one another, and while the last of a piece is under way the next
/// one is. Otherwise pieces come one by one, ascending.
pub(super) fn copy(
    path: &Path,
    file: &File,
    size: u64,
    reserve: impl Fn(Range<u64>) -> bool + Sync,
    put: impl Fn(u64, &[u8]) -> Result<(), Why> + Sync,
) -> Result<(), Why> {
    let Some(first) = next_data(path, file, 0, size)? else {
        return Ok(());
    };
    let first = span(aligned(&first, 0));
    let reserved = first.end;
    let is_reserved = reserve(first);
    let writers = if is_reserved { WRITERS } else { 1 };
    // If there is no room for what comes later, writing says so.
    let reserve = |range| is_reserved && reserve(range);
    let (fill, filled) = sync_channel(PIECES);
    let (give_back, spare) = channel();
    let pieces = Pieces {
        filled: Mutex::new(Some(filled)),
        give_back: Mutex::new(Some(give_back)),
    };
    let write = || pieces.write(&put);
    let reading = Reading {
        path,
        file,
        size,
        reserved,
    };
    thread::scope(|scope| {
        let (reading, reserve) = (&reading, &reserve);
        let reader = Builder::new().spawn_scoped(scope, move || {
            let mut made = 0;
            let empty = || {
                made += 1;
                let is_new = made <= PIECES;
                is_new.then(Vec::new).or_else(|| spare.recv().ok())
            };
            reading.read(reserve, empty, |at, piece| {
                Ok(fill.send((at, piece)).is_ok())
            })
        });
        let Ok(reader) = reader else {
            // The system has no thread: this one does both.
            let spare = Cell::new(Some(Vec::new()));
            return reading.read(
                reserve,
                || spare.take(),
                |at, piece| {
                    put(at, &piece)?;
                    spare.set(Some(piece));
                    Ok(true)
                },
            );
        };
        let others = (1..writers).map_while(|_| Builder::new().spawn_scoped(scope, write).ok());
        let others: Vec<_> = others.collect();
        let done = write();
        let done = others
            .into_iter()
            .fold(done, |done, other| done.and(joined(other)));
        done.and(joined(reader))
    })
}

/// What a thread did. Its panic goes on in this one.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A piece, and where it goes.
type Filled = (u64, Vec<u8>);

/// Pieces on their way from the reader and back.
struct Pieces {
    filled: Mutex<Option<Receiver<Filled>>>,
    give_back: Mutex<Option<Sender<Vec<u8>>>>,
}

impl Pieces {
    /// Gives pieces to `put` as they come, until there are no more. After a failure nobody gets
    /// any.
    fn write(&self, put: &impl Fn(u64, &[u8]) -> Result<(), Why>) -> Result<(), Why> {
        let _end = End(self);
        loop {
            let next = lock(&self.filled).as_ref().and_then(|all| all.recv().ok());
            let Some((at, piece)) = next else {
                return Ok(());
            };
            put(at, &piece)?;
            if let Some(give_back) = &*lock(&self.give_back) {
                // There is no next piece for it if the reader is done.
                let _ = give_back.send(piece);
            }
        }
    }
}

/// Has the reader end when a thread that writes does, however that does.
struct End<'a>(&'a Pieces);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // A reader that waits for a piece ends, and with it threads that wait for the reader: these
        // hold the other lock.
        *lock(&self.0.give_back) = None;
        *lock(&self.0.filled) = None;
    }
}

/// Nothing is done under these locks that could leave them poisoned.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// What is written for some bytes of the file, of which those before `done` are.
fn aligned(data: &Range<u64>, done: u64) -> Range<u64> {
    (data.start - data.start % ALIGN).max(done)..data.end.next_multiple_of(ALIGN)
}

/// What of some bytes is reserved at once.
fn span(range: Range<u64>) -> Range<u64> {
    range.start..range.end.min((range.start / SPAN + 1) * SPAN)
}

/// A file that is read. What lies before `reserved` is reserved already.
struct Reading<'a> {
    path: &'a Path,
    file: &'a File,
    size: u64,
    reserved: u64,
}

impl Reading<'_> {
    /// Reads piece by piece into what `empty` gives, and hands each to `give`, with its place;
    /// until there is none, or `give` says that no more are wanted.
    fn read(
        &self,
        reserve: impl Fn(Range<u64>) -> bool,
        mut empty: impl FnMut() -> Option<Vec<u8>>,
        mut give: impl FnMut(u64, Vec<u8>) -> Result<bool, Why>,
    ) -> Result<(), Why> {
        let (mut done, mut reserved) = (0, self.reserved);
        while let Some(data) = next_data(self.path, self.file, done, self.size)? {
            let Range { start: mut at, end } = aligned(&data, done);
            while at < end {
                if at >= reserved {
                    let next = span(at..end);
                    reserved = next.end;
                    reserve(next);
                }
                let Some(mut piece) = empty() else {
                    return Ok(());
                };
                // Pieces end at multiples of their length, as extents of the image mostly do.
                let stop = end.min((at / PIECE + 1) * PIECE);
                piece.resize((stop - at) as usize, 0);
                let there = (self.size.min(stop) - at) as usize;
                let (front, behind) = piece.split_at_mut(there);
                self.file
                    .read_exact_at(front, at)
                    .map_err(|e| cannot_read_all(self.path, &e))?;
                behind.fill(0);
                if !give(at, piece)? {
                    return Ok(());
                }
                at = stop;
            }
            done = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A file of data, and its size.
    fn file() -> (tempfile::NamedTempFile, u64) {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let size = 10 * PIECE + 1;
        let content: Vec<u8> = (0..size).map(|at| (at / 4096 + at) as u8).collect();
        file.write_all(&content).expect("room");
        (file, size)
    }

    #[test]
    fn all_pieces_come_once_whether_they_are_reserved_or_not() {
        let (file, size) = file();
        for can_reserve in [true, false] {
            let copied = Mutex::new(vec![0; size.next_multiple_of(ALIGN) as usize]);
            let reserved = Mutex::new(Vec::new());
            let reserve = |range| {
                reserved.lock().expect("a list").push(range);
                can_reserve
            };
            let bytes = AtomicUsize::new(0);
            let put = |at: u64, piece: &[u8]| {
                let at = at as usize;
                copied.lock().expect("content")[at..at + piece.len()].copy_from_slice(piece);
                bytes.fetch_add(piece.len(), Ordering::Relaxed);
                Ok(())
            };
            assert!(copy(file.path(), file.as_file(), size, reserve, put).is_ok());
            let copied = copied.into_inner().expect("content");
            assert_eq!(bytes.into_inner(), copied.len());
            let (front, behind) = copied.split_at(size as usize);
            assert!(front == std::fs::read(file.path()).expect("a file"));
            assert!(behind.iter().all(|byte| *byte == 0));
            let whole = 0..copied.len() as u64;
            assert_eq!(reserved.into_inner().expect("a list"), [whole]);
        }
    }

    #[test]
    fn a_piece_that_cannot_be_written_ends_the_copy_and_so_does_a_panic() {
        let (file, size) = file();
        for fails_at in 0..11 {
            for panics in [false, true] {
                let count = AtomicUsize::new(0);
                let put = |_: u64, _: &[u8]| {
                    if count.fetch_add(1, Ordering::Relaxed) != fails_at {
                        return Ok(());
                    }
                    assert!(!panics, "the piece that panics");
                    Err(Why::ImagePath("no room"))
                };
                let copied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    copy(file.path(), file.as_file(), size, |_| true, put)
                }));
                match copied {
                    Ok(copied) => assert!(!panics && copied.is_err(), "{fails_at}"),
                    Err(_) => assert!(panics, "{fails_at}"),
                }
            }
        }
    }
}
