//! A large file of the host into an image behind a server at hand: past the memory of the file
//! system, while another thread reads what comes next.
//!
//! Through memory all of it would be copied once more, and sent when much of it is there.

use super::content::{cannot_read_all, next_data};
use super::make::Why;
use crate::time::is_reproducible;
use extant::Filesystem;
use extant_core::ops;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

/// Bytes from which on a file goes this way.
const LARGE: u64 = 8 << 20;
/// Bytes that are written at once: as many requests as are worth having under way.
const PIECE: u64 = 4 << 20;
/// Pieces in memory.
const PIECES: usize = 3;
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

/// Gives what is no hole of a file of the host to `put`, ascending, in pieces that begin and end at
/// multiples of [`ALIGN`]: what is more than the file has is zeros.
pub(super) fn copy(
    path: &Path,
    file: &File,
    size: u64,
    mut put: impl FnMut(u64, &[u8]) -> Result<(), Why>,
) -> Result<(), Why> {
    thread::scope(|scope| {
        let (fill, filled) = sync_channel(PIECES);
        let (give_back, spare) = channel();
        let reader = scope.spawn(move || read(path, file, size, &fill, &spare));
        let mut done = Ok(());
        for (at, piece) in &filled {
            done = put(at, &piece);
            // There is no next piece for it if the reader is done.
            let _ = give_back.send(piece);
            if done.is_err() {
                break;
            }
        }
        // A reader that waits finds out.
        drop((filled, give_back));
        match reader.join() {
            Ok(read) => done.and(read),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Reads piece by piece, until nobody takes them any more.
fn read(
    path: &Path,
    file: &File,
    size: u64,
    fill: &SyncSender<(u64, Vec<u8>)>,
    spare: &Receiver<Vec<u8>>,
) -> Result<(), Why> {
    let (mut made, mut done) = (0, 0);
    while let Some(data) = next_data(path, file, done, size)? {
        let end = data.end.next_multiple_of(ALIGN);
        let mut at = (data.start - data.start % ALIGN).max(done);
        while at < end {
            let mut piece = if made < PIECES {
                made += 1;
                Vec::new()
            } else {
                match spare.recv() {
                    Ok(piece) => piece,
                    Err(_) => return Ok(()),
                }
            };
            // Pieces end at multiples of their length, as extents of the image mostly do.
            let stop = end.min((at / PIECE + 1) * PIECE);
            piece.resize((stop - at) as usize, 0);
            let there = (size.min(stop) - at) as usize;
            let (front, behind) = piece.split_at_mut(there);
            file.read_exact_at(front, at)
                .map_err(|e| cannot_read_all(path, &e))?;
            behind.fill(0);
            if fill.send((at, piece)).is_err() {
                return Ok(());
            }
            at = stop;
        }
        done = end;
    }
    Ok(())
}
