//! From one device to another: data only, read and written by several threads.

use extant_blockdev::{AlignedBuf, BlockDevice, DeviceError, DeviceResult};
use extant_sync::{CountedAtomicUsize, RmwClass, thread};
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Bytes of a disk whose holes are asked for at once, which bounds the list of them.
const WINDOW: u64 = 1 << 30;

/// Bytes that a thread reads and writes at once: few enough to stay in a processor's cache.
const PIECE: u64 = 512 << 10;

/// As [`PIECE`], from a server: fewer messages.
const SERVED_PIECE: u64 = 1 << 20;

/// Threads at most that copy because they wait for a device that is far: one that writes, and
/// readers with 4 MiB under way.
const MOST_FAR: usize = 5;

/// Zeros that are worth leaving out, in bytes: a multiple of what is looked at.
const GAP: usize = 32 << 10;

/// Bytes that are looked at together for zeros.
const LOOK: usize = 4096;

/// Bytes that are written before they are sent to the disk, while more is copied.
const BEHIND: u64 = 32 << 20;

static NEXT_CLASS: RmwClass = RmwClass::new("next piece to copy");

/// Hears how far a copy is. Called from several threads.
pub trait CopyProgress: Sync {
    /// So many more bytes of the disk are done, holes among them.
    fn advance(&self, bytes: u64);
}

impl CopyProgress for () {
    fn advance(&self, _: u64) {}
}

/// What a copy had to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Bytes that were read: all but the holes.
    pub read: u64,
}

/// Copies all of `from` to `to`, which is at least as large and reads as zeros. Holes are not read,
/// and zeros are not written. `threads` is one for each processor if `None`. What was written is
/// durable after a flush by the caller.
///
/// # Errors
/// What either device fails with; `to` then has a part of the content.
pub fn copy(
    from: &dyn BlockDevice,
    to: &dyn BlockDevice,
    threads: Option<NonZero<usize>>,
    progress: &dyn CopyProgress,
) -> DeviceResult<Copied> {
    let size = from.size();
    to.check_writable("write", 0, size)?;
    let mut copied = Copied::default();
    if to.parallel_writes() <= 1 {
        // Several writers would only wait for each other.
        written_behind(to, |written| {
            let each = |range: Range<u64>, data: Option<(&[u8], ())>| {
                progress.advance(range.end - range.start);
                let Some((buf, ())) = data else {
                    return Ok(());
                };
                copied.read += buf.len() as u64;
                write_data(to, range.start, buf)?;
                written(buf.len() as u64)
            };
            let piece = if from.is_served() {
                SERVED_PIECE
            } else {
                PIECE
            };
            in_order(from, piece, 1, threads, |_| (), each)
        })?;
        return Ok(copied);
    }
    let threads = count(from, to.in_flight(), threads);
    let mut start = 0;
    while start < size {
        let window = start..size.min(start + WINDOW);
        let pieces = pieces(from, window.clone(), PIECE, 1)?;
        let data: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        progress.advance(window.end - window.start - data);
        copied.read += data;
        let next = CountedAtomicUsize::new(&NEXT_CLASS, 0);
        let failed = AtomicBool::new(false);
        let work = || -> DeviceResult<()> {
            let mut buf = AlignedBuf::zeroed(PIECE as usize);
            while !failed.load(Ordering::Relaxed) {
                let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    break;
                };
                let buf = &mut buf[..(piece.end - piece.start) as usize];
                let done = from
                    .read_at(piece.start, buf)
                    .and_then(|()| write_data(to, piece.start, buf));
                done.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
                progress.advance(buf.len() as u64);
            }
            Ok(())
        };
        let threads = threads.min(pieces.len());
        if threads <= 1 {
            work()?;
        } else {
            thread::scope(|scope| {
                let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
                let mut done = work();
                for other in others {
                    done = done.and(other.join().unwrap_or(Err(DeviceError::Cancelled)));
                }
                done
            })?;
        }
        start = window.end;
    }
    Ok(copied)
}

/// Does `work`, which tells of the bytes that it has written to `to`. Another thread flushes them
/// meanwhile, so that a flush in the end has little left to wait for.
pub(crate) fn written_behind(
    to: &dyn BlockDevice,
    work: impl FnOnce(&mut dyn FnMut(u64) -> DeviceResult<()>) -> DeviceResult<()>,
) -> DeviceResult<()> {
    let (tell, told) = sync_channel(1);
    thread::scope(|scope| {
        let flusher = scope.spawn(move || told.iter().try_for_each(|()| to.flush()));
        let mut since = 0;
        let done = work(&mut |bytes| {
            since += bytes;
            if since < BEHIND {
                return Ok(());
            }
            since = 0;
            match tell.try_send(()) {
                // It has failed, and is asked below.
                Err(TrySendError::Disconnected(())) => Err(DeviceError::Cancelled),
                // It is busy: what is written now is for the next time.
                Ok(()) | Err(TrySendError::Full(())) => Ok(()),
            }
        });
        drop(tell);
        // A system tells of a failure once: it must not be lost here.
        flusher.join().unwrap_or(Err(DeviceError::Cancelled))?;
        done
    })
}

/// Threads to use: one for each processor, and where a server takes several connections, at least
/// one that writes and two that read: a near server may need the processors itself. Where each
/// request takes a round trip, from `from` or to a device with `to_in_flight` of them under way at
/// once, as many as keep the way busy.
fn count(from: &dyn BlockDevice, to_in_flight: usize, threads: Option<NonZero<usize>>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
    // What takes several large writes at a time gives several pieces at a time.
    let readers = match from.parallel_writes() {
        2.. if from.is_served() => 2,
        _ => 0,
    };
    let far = match from.in_flight().max(to_in_flight) {
        0..2 => 0,
        many => many.min(MOST_FAR),
    };
    let wanted = || processors().max(readers + 1).max(far);
    threads.map_or_else(wanted, NonZero::get)
}

/// Writes a buffer without its long runs of zeros.
fn write_data(to: &dyn BlockDevice, offset: u64, buf: &[u8]) -> DeviceResult<()> {
    let put = |range: Range<usize>| to.write_at(offset + range.start as u64, &buf[range]);
    // Data that is to be written, and zeros behind it that may be too few to leave out.
    let (mut data, mut zeros) = (0..0, 0);
    for (n, part) in buf.chunks(LOOK).enumerate() {
        let at = n * LOOK;
        if is_zero(part) {
            zeros += part.len();
            continue;
        }
        if data.is_empty() {
            data.start = at;
        } else if zeros >= GAP {
            put(data.clone())?;
            data.start = at;
        }
        data.end = at + part.len();
        zeros = 0;
    }
    if data.is_empty() {
        return Ok(());
    }
    put(data)
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Most blocks show it in their first bytes; comparing a slice with itself is quick.
    match bytes {
        [] => true,
        [first, ..] => *first == 0 && bytes[1..] == bytes[..bytes.len() - 1],
    }
}

/// The data of a window in pieces that begin and end at multiples of `align` (but for the end of
/// the disk) and have at most `most` bytes.
fn pieces(
    from: &dyn BlockDevice,
    window: Range<u64>,
    most: u64,
    align: u64,
) -> DeviceResult<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut done = window.start;
    for extent in from.data_extents(window.clone())? {
        let start = (extent.start / align * align).max(done);
        let end = extent.end.next_multiple_of(align).min(window.end);
        done = done.max(end);
        let mut at = start;
        while at < end {
            // Pieces end at multiples of their size, so that blocks of formats are written whole.
            let stop = end.min((at / most + 1) * most);
            found.push(at..stop);
            at = stop;
        }
    }
    Ok(found)
}

/// Reads the data of `from` by several threads, has `look` examine each piece there, and calls
/// `each`, in order and in this thread, with all of the disk: pieces, and holes (`None`). What lies
/// behind the end of the disk in the last of its blocks, of `align` bytes, is zeros of its piece.
pub(crate) fn in_order<T: Send>(
    from: &dyn BlockDevice,
    most: u64,
    align: u64,
    threads: Option<NonZero<usize>>,
    look: impl Fn(&[u8]) -> T + Sync,
    mut each: impl FnMut(Range<u64>, Option<(&[u8], T)>) -> DeviceResult<()>,
) -> DeviceResult<()> {
    let size = from.size();
    // One thread is the caller's.
    let threads = count(from, 1, threads).saturating_sub(1).max(1);
    let window_len = WINDOW / most * most;
    let mut start = 0;
    while start < size {
        let window = start..size.min(start + window_len);
        let pieces = pieces(from, window.clone(), most, align)?;
        let read = |piece: &Range<u64>, mut buf: Vec<u8>| -> DeviceResult<(Vec<u8>, T)> {
            let len = (piece.end - piece.start) as usize;
            buf.resize(len.next_multiple_of(align as usize), 0);
            let (data, behind) = buf.split_at_mut(len);
            from.read_at(piece.start, data)?;
            behind.fill(0);
            let found = look(&buf);
            Ok((buf, found))
        };
        thread::scope(|scope| -> DeviceResult<()> {
            // Each thread has its own lane: it does every n-th piece, and gets its buffers back.
            let lanes: Vec<Lane<T>> = (0..threads.min(pieces.len()))
                .map(|lane| {
                    let (to, results) = sync_channel(2);
                    let (back, buffers): (SyncSender<Vec<u8>>, _) = sync_channel(4);
                    let (pieces, read) = (&pieces, &read);
                    scope.spawn(move || {
                        for piece in pieces.iter().skip(lane).step_by(threads) {
                            let buf = buffers.try_recv().unwrap_or_default();
                            let done = read(piece, buf);
                            let is_last = done.is_err();
                            if to.send(done).is_err() || is_last {
                                break;
                            }
                        }
                    });
                    Lane { results, back }
                })
                .collect();
            let mut at = window.start;
            for (n, piece) in pieces.iter().enumerate() {
                if at < piece.start {
                    each(at..piece.start, None)?;
                }
                let lane = &lanes[n % lanes.len()];
                let (buf, found) = lane.results.recv().unwrap_or(Err(DeviceError::Cancelled))?;
                each(piece.clone(), Some((&buf, found)))?;
                let _ = lane.back.try_send(buf);
                at = piece.end;
            }
            if at < window.end {
                each(at..window.end, None)?;
            }
            Ok(())
        })?;
        start = window.end;
    }
    Ok(())
}

/// What a reading thread and the caller's exchange.
struct Lane<T> {
    results: Receiver<DeviceResult<(Vec<u8>, T)>>,
    back: SyncSender<Vec<u8>>,
}
