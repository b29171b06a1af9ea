//! Batches of a disk whose parts lie elsewhere on the device below: as many requests are under way
//! there as for a raw disk.
//!
//! Tables say where a part lies. A request all of whose parts are there, and are the disk's own, is
//! done on the device below; together with the others of its batch, flushes among them. What needs
//! more than that (new parts, compressed ones, a backing file) is done by itself, by several
//! threads.

use extant_blockdev::{AlignedBuf, BlockDevice, Completion, DeviceError, DeviceResult};
use extant_blockdev::{Done, Request};
use extant_sync::thread;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// Threads at most that do what is done by itself.
const MOST_THREADS: usize = 16;

/// Where a part of a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// On the device below, from this byte on, as it is.
    Below(u64),
    /// Nowhere: zeros.
    Zeros,
    /// Where only the disk itself finds it.
    Other,
}

/// The tables of a disk.
pub(crate) trait Tables {
    /// Returns where the byte at `offset` is, and for how many bytes, at most `len` and at least
    /// one, that goes on. To be written to, a part must be the disk's own. What fails is `Other`.
    fn find(&self, offset: u64, len: u64, writes: bool) -> (Part, u64);

    /// Sees to it that a flush of the device below makes durable all that was written to the disk
    /// before.
    ///
    /// # Errors
    /// What the device below fails with.
    fn settle(&self) -> DeviceResult<()>;
}

/// The parts of a request: ranges of its buffer.
type Places = Vec<(Range<usize>, Part)>;

/// Reads as a batch does, where the tables lead to all of it and each request below takes a round
/// trip; `None` where the disk itself is to do it.
pub(crate) fn read<T: Tables>(
    disk: &dyn BlockDevice,
    below: &dyn BlockDevice,
    offset: u64,
    buf: &mut [u8],
    look: impl Fn() -> T,
) -> Option<DeviceResult<()>> {
    let ended = one(disk, below, || Request::read(offset, buf.len()), look)?;
    if let Request::Read { buf: found, .. } = &ended.request {
        buf.copy_from_slice(found);
    }
    Some(ended.result)
}

/// Writes as a batch does, under the same conditions as [`read`].
pub(crate) fn write<T: Tables>(
    disk: &dyn BlockDevice,
    below: &dyn BlockDevice,
    offset: u64,
    buf: &[u8],
    look: impl Fn() -> T,
) -> Option<DeviceResult<()>> {
    let request = || Request::write(offset, AlignedBuf::copy_of(buf));
    one(disk, below, request, look).map(|ended| ended.result)
}

fn one<T: Tables>(
    disk: &dyn BlockDevice,
    below: &dyn BlockDevice,
    request: impl FnOnce() -> Request,
    look: impl Fn() -> T,
) -> Option<Done> {
    if below.in_flight() < 2 {
        return None;
    }
    let tables = look();
    let request = request();
    let places = places(disk, &tables, &request)?;
    on_device(below, vec![request], &[places]).pop()
}

/// Fills buffers one after the other; with one read where each read below takes a round trip.
///
/// # Errors
/// As for `read_at` of the disk.
pub(crate) fn read_vectored(
    disk: &dyn BlockDevice,
    below: &dyn BlockDevice,
    offset: u64,
    bufs: &mut [IoSliceMut<'_>],
) -> DeviceResult<()> {
    let len = bufs.iter().map(|buf| buf.len()).sum();
    disk.check_range("read", offset, len as u64)?;
    if bufs.len() < 2 || below.in_flight() < 2 {
        let mut at = offset;
        for buf in bufs {
            disk.read_at(at, buf)?;
            at += buf.len() as u64;
        }
        return Ok(());
    }
    let mut all = AlignedBuf::zeroed(len);
    disk.read_at(offset, &mut all)?;
    let mut rest = &all[..];
    for buf in bufs {
        let (now, after) = rest.split_at(buf.len());
        buf.copy_from_slice(now);
        rest = after;
    }
    Ok(())
}

/// Writes buffers one after the other; with one write where each write below takes a round trip.
///
/// # Errors
/// As for `write_at` of the disk.
pub(crate) fn write_vectored(
    disk: &dyn BlockDevice,
    below: &dyn BlockDevice,
    offset: u64,
    bufs: &[IoSlice<'_>],
) -> DeviceResult<()> {
    if bufs.len() < 2 || below.in_flight() < 2 {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        disk.check_writable("write", offset, len)?;
        let mut at = offset;
        for buf in bufs {
            disk.write_at(at, buf)?;
            at += buf.len() as u64;
        }
        return Ok(());
    }
    let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
    disk.write_at(offset, &all)
}

/// Does a batch of `disk`, whose parts lie on `below`. `look` gives the tables, which do not let go
/// of a part while what it returns is there.
pub(crate) fn submit<T: Tables>(
    disk: &dyn BlockDevice,
    below: &dyn BlockDevice,
    batch: Vec<Request>,
    look: impl Fn() -> T,
) -> Completion {
    if below.in_flight() < 2 {
        return Completion::inline(disk, batch);
    }
    {
        let tables = look();
        let places = batch.iter().map(|request| places(disk, &tables, request));
        if let Some(places) = places.collect::<Option<Vec<_>>>() {
            let flushes = batch.iter().any(|part| matches!(part, Request::Flush));
            // What fails here fails again where it is told.
            if !flushes || tables.settle().is_ok() {
                return Completion::ended(on_device(below, batch, &places));
            }
        }
    }
    let mut done = Vec::with_capacity(batch.len());
    let (mut is_failed, mut is_cancelled) = (false, false);
    let mut rest = batch.into_iter().peekable();
    while rest.peek().is_some() {
        let mut group = Vec::new();
        while let Some(request) = rest.next_if(|next| !matches!(next, Request::Flush)) {
            group.push(request);
        }
        let ended = if is_cancelled {
            cancelled(group)
        } else {
            one_group(disk, below, group, &look)
        };
        is_failed |= ended.iter().any(|done| done.result.is_err());
        done.extend(ended);
        if let Some(request) = rest.next() {
            is_cancelled |= is_failed;
            let result = if is_cancelled {
                Err(DeviceError::Cancelled)
            } else {
                disk.flush()
            };
            is_failed |= result.is_err();
            is_cancelled = is_failed;
            done.push(Done { request, result });
        }
    }
    Completion::ended(done)
}

fn cancelled(group: Vec<Request>) -> Vec<Done> {
    let cancel = |request| Done {
        request,
        result: Err(DeviceError::Cancelled),
    };
    group.into_iter().map(cancel).collect()
}

/// Where all of a request is; `None` where the disk itself has to do it.
fn places(disk: &dyn BlockDevice, tables: &impl Tables, request: &Request) -> Option<Places> {
    let (offset, len, writes) = match request {
        Request::Flush => return Some(Vec::new()),
        Request::Read { offset, buf } => (*offset, buf.len() as u64, false),
        Request::Write { offset, buf } => (*offset, buf.len() as u64, true),
        _ => return None,
    };
    if writes && disk.is_read_only() || disk.check_range("use", offset, len).is_err() {
        return None;
    }
    let mut found: Places = Vec::new();
    let mut at = 0;
    while at < len {
        let (part, some) = tables.find(offset + at, len - at, writes);
        if part == Part::Other || writes && part == Part::Zeros || some == 0 {
            return None;
        }
        let end = at + some.min(len - at);
        let range = at as usize..end as usize;
        match found.last_mut() {
            Some((last, Part::Below(from)))
                if part == Part::Below(*from + (last.end - last.start) as u64) =>
            {
                last.end = range.end;
            }
            _ => found.push((range, part)),
        }
        at = end;
    }
    Some(found)
}

/// Does requests on the device below, all of them under way together.
fn on_device(below: &dyn BlockDevice, batch: Vec<Request>, places: &[Places]) -> Vec<Done> {
    let mut done: Vec<Done> = Vec::with_capacity(batch.len());
    // For each request below the number of that above, and the part of its buffer.
    let (mut requests, mut owners) = (Vec::new(), Vec::new());
    for (number, (mut request, places)) in batch.into_iter().zip(places).enumerate() {
        match &mut request {
            Request::Flush => {
                requests.push(Request::Flush);
                owners.push((number, 0..0));
            }
            Request::Read { buf, .. } => {
                for (range, part) in places {
                    if let Part::Below(at) = part {
                        requests.push(Request::read(*at, range.len()));
                        owners.push((number, range.clone()));
                    } else {
                        buf[range.clone()].fill(0);
                    }
                }
            }
            Request::Write { buf, .. } => {
                for (range, part) in places {
                    if let Part::Below(at) = part {
                        let bytes = AlignedBuf::copy_of(&buf[range.clone()]);
                        requests.push(Request::write(*at, bytes));
                        owners.push((number, range.clone()));
                    }
                }
            }
            _ => {}
        }
        done.push(Done {
            request,
            result: Ok(()),
        });
    }
    let ended = below.submit(requests).wait();
    for (Done { request, result }, (number, range)) in ended.into_iter().zip(owners) {
        let above = &mut done[number];
        match (result, &mut above.request) {
            (Ok(()), Request::Read { buf, .. }) => {
                if let Request::Read { buf: found, .. } = request {
                    buf[range].copy_from_slice(&found);
                }
            }
            (Ok(()), _) => {}
            (Err(error), _) => {
                if above.result.is_ok() {
                    above.result = Err(error);
                }
            }
        }
    }
    done
}

/// Does what stands between two flushes: what tables lead to on the device below, the rest by
/// itself.
fn one_group<T: Tables>(
    disk: &dyn BlockDevice,
    below: &dyn BlockDevice,
    group: Vec<Request>,
    look: &impl Fn() -> T,
) -> Vec<Done> {
    let mut done: Vec<Option<Done>> = group.iter().map(|_| None).collect();
    let mut alone = Vec::new();
    {
        let tables = look();
        let (mut direct, mut numbers, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for (number, request) in group.into_iter().enumerate() {
            match places(disk, &tables, &request) {
                Some(places) => {
                    direct.push(request);
                    numbers.push(number);
                    found.push(places);
                }
                None => alone.push((number, request)),
            }
        }
        for (number, ended) in numbers.into_iter().zip(on_device(below, direct, &found)) {
            done[number] = Some(ended);
        }
    }
    for (number, ended) in by_threads(disk, below.in_flight(), alone) {
        done[number] = Some(ended);
    }
    done.into_iter().flatten().collect()
}

/// Does requests one by one, from several threads.
fn by_threads(
    disk: &dyn BlockDevice,
    most: usize,
    requests: Vec<(usize, Request)>,
) -> Vec<(usize, Done)> {
    let threads = requests.len().min(most).min(MOST_THREADS);
    let one = |(number, request): (usize, Request)| {
        let mut ended = Completion::inline(disk, vec![request]).wait();
        ended.pop().map(|ended| (number, ended))
    };
    if threads < 2 {
        return requests.into_iter().filter_map(one).collect();
    }
    let mut shares: Vec<Vec<(usize, Request)>> = (0..threads).map(|_| Vec::new()).collect();
    for (request, turn) in requests.into_iter().zip((0..threads).cycle()) {
        shares[turn].push(request);
    }
    thread::scope(|scope| {
        let work = |share: Vec<_>| share.into_iter().filter_map(one).collect::<Vec<_>>();
        let all: Vec<_> = shares
            .into_iter()
            .map(|share| scope.spawn(move || work(share)))
            .collect();
        let mut ended = Vec::new();
        for thread in all {
            match thread.join() {
                Ok(some) => ended.extend(some),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        ended
    })
}
