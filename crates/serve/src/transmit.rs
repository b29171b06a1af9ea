//! Requests and replies.

use crate::activity::Activity;
use crate::negotiate::{ALLOCATION, Settled, wrong};
use crate::server::Shared;
use crate::wire::{self, chunk, command, error, flag};
use extant_blockdev::{AlignedBuf, DeviceError};
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::io::{self, Read, Write};

static READING: LockClass = LockClass::new("served requests", Rank::DeviceQueue);
static WRITING: LockClass = LockClass::new("served replies", Rank::DeviceQueue);
static ROOM: LockClass = LockClass::new("served bytes", Rank::Leaf);

/// Most extents that are told at a time.
const MOST_EXTENTS: usize = 4096;
/// Most bytes of an error's text.
const MOST_TEXT: usize = 1024;
/// Bytes of zeroes that are written at a time where they must take space.
const ZEROES: usize = 1 << 20;

/// Bytes of data that each thread has memory for.
const USUAL: usize = 1 << 20;

/// How a request failed: a number of the protocol, and a sentence.
struct Failure(u32, String);

impl From<DeviceError> for Failure {
    fn from(source: DeviceError) -> Self {
        let number = match source.errno().unsigned_abs() {
            // EROFS and EACCES have no number of their own.
            1 | 13 | 30 => error::PERM,
            number @ (error::NOMEM
            | error::INVAL
            | error::NOSPC
            | error::OVERFLOW
            | error::NOTSUP) => number,
            _ => error::IO,
        };
        Self(number, source.to_string())
    }
}

/// A request without its data.
struct Request {
    flags: u16,
    command: u16,
    cookie: [u8; 8],
    offset: u64,
    len: u32,
}

impl Request {
    /// Whether it is one that changes the export.
    fn changes(&self) -> bool {
        matches!(
            self.command,
            command::WRITE | command::TRIM | command::WRITE_ZEROES
        )
    }
}

/// Memory for the data of requests. That of usual ones is kept from one to the next; more is had
/// and given back with each.
struct Memory {
    usual: AlignedBuf,
    large: Option<AlignedBuf>,
}

impl Memory {
    fn new() -> Self {
        Self {
            usual: AlignedBuf::zeroed(USUAL),
            large: None,
        }
    }

    fn of(&mut self, len: usize) -> &mut [u8] {
        if len <= USUAL {
            self.large = None;
            &mut self.usual[..len]
        } else {
            self.large.insert(AlignedBuf::zeroed(len))
        }
    }
}

/// A request, its data, and the room for that.
type Taken<'s, 'm> = Option<(Request, &'m mut [u8], Room<'s>)>;

/// One connection after its negotiation, as its threads share it.
pub(crate) struct Session<'a, R, W> {
    reading: Mutex<R>,
    writing: Mutex<W>,
    /// Bytes that requests may carry beside those under way.
    room: Mutex<u32>,
    more: Condvar,
    settled: Settled,
    activity: &'a Activity,
}

/// Room for the data of one request.
struct Room<'a> {
    room: &'a Mutex<u32>,
    more: &'a Condvar,
    bytes: u32,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        *self.room.lock() += self.bytes;
        self.more.notify_all();
    }
}

impl<'a, R: Read, W: Write> Session<'a, R, W> {
    pub(crate) fn new(
        reading: R,
        writing: W,
        shared: &Shared,
        settled: Settled,
        activity: &'a Activity,
    ) -> Self {
        Self {
            reading: Mutex::new(&READING, reading),
            writing: Mutex::new(&WRITING, writing),
            room: Mutex::new(&ROOM, shared.limits.payload),
            more: Condvar::new(),
            settled,
            activity,
        }
    }

    /// Does requests until the client leaves. Several threads do this at a time.
    ///
    /// # Errors
    /// Those of the stream, and that the client breaks the protocol.
    pub(crate) fn work(&self, shared: &Shared) -> io::Result<()> {
        let mut memory = Memory::new();
        while let Some((request, data, room)) = self.take(shared, &mut memory)? {
            self.serve(shared, &request, data)?;
            memory.large = None;
            drop(room);
        }
        Ok(())
    }

    /// Reads a request, with the data to write or memory for the data to read. `None` when the
    /// client leaves.
    fn take<'m>(&self, shared: &Shared, memory: &'m mut Memory) -> io::Result<Taken<'_, 'm>> {
        let mut stream = self.reading.lock();
        let mut head = [0; 28];
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        self.activity.goes_on();
        let [m0, m1, m2, m3, f0, f1, c0, c1, rest @ ..] = head;
        let [k @ .., l0, l1, l2, l3] = rest;
        if u32::from_be_bytes([m0, m1, m2, m3]) != wire::REQUEST {
            return Err(wrong("a request begins with a wrong number"));
        }
        let (mut cookie, mut offset) = ([0; 8], [0; 8]);
        cookie.copy_from_slice(&k[..8]);
        offset.copy_from_slice(&k[8..]);
        let request = Request {
            flags: u16::from_be_bytes([f0, f1]),
            command: u16::from_be_bytes([c0, c1]),
            cookie,
            offset: u64::from_be_bytes(offset),
            len: u32::from_be_bytes([l0, l1, l2, l3]),
        };
        let carries = match request.command {
            command::DISCONNECT => return Ok(None),
            command::READ | command::WRITE => request.len,
            _ => 0,
        };
        if carries > shared.limits.payload {
            if request.command == command::WRITE {
                return Err(wrong("a write of more than the server takes"));
            }
            // Refused later, and nothing is kept for it.
            return Ok(Some((request, memory.of(0), self.take_room(0))));
        }
        let room = self.take_room(carries);
        let data = memory.of(carries as usize);
        if request.command == command::WRITE {
            self.receive(&mut *stream, data)?;
        }
        Ok(Some((request, data, room)))
    }

    /// Reads data to write. A client that sends it slowly is at work as long as some of it comes.
    fn receive(&self, stream: &mut R, mut data: &mut [u8]) -> io::Result<()> {
        while !data.is_empty() {
            match stream.read(data) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    data = &mut data[count..];
                    self.activity.goes_on();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until there is room for the data of a request. Requests under way need no other room,
    /// so that there will be.
    fn take_room(&self, bytes: u32) -> Room<'_> {
        let mut room = self.room.lock();
        while *room < bytes {
            self.more.wait(&mut room);
        }
        *room -= bytes;
        Room {
            room: &self.room,
            more: &self.more,
            bytes,
        }
    }

    fn serve(&self, shared: &Shared, request: &Request, data: &mut [u8]) -> io::Result<()> {
        self.activity.begin();
        let result = perform(shared, request, data, self.settled);
        // One that failed may have changed a part.
        let needs_flush = request.changes() && !shared.is_read_only;
        let is_covered = result.is_ok() && request.flags & flag::FUA != 0;
        let needs = (needs_flush && !is_covered).then(|| shared.flushes.next());
        self.activity.end(needs);
        match result {
            Ok(Reply::Done) => self.reply_done(request),
            Ok(Reply::Data) => self.reply_data(request, data),
            Ok(Reply::Extents(extents)) => {
                let mut payload = ALLOCATION.to_be_bytes().to_vec();
                for (len, flags) in extents {
                    payload.extend(len.to_be_bytes());
                    payload.extend(flags.to_be_bytes());
                }
                self.reply_chunk(request, chunk::BLOCK_STATUS, &payload, &[])
            }
            Err(Failure(number, text)) if self.settled.structured => {
                let mut end = text.len().min(MOST_TEXT);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let mut payload = number.to_be_bytes().to_vec();
                payload.extend((end as u16).to_be_bytes());
                payload.extend(&text.as_bytes()[..end]);
                self.reply_chunk(request, chunk::ERROR, &payload, &[])
            }
            Err(Failure(number, _)) => self.reply_simple(request, number, &[]),
        }
    }

    fn reply_done(&self, request: &Request) -> io::Result<()> {
        if self.settled.structured {
            self.reply_chunk(request, chunk::NONE, &[], &[])
        } else {
            self.reply_simple(request, 0, &[])
        }
    }

    fn reply_data(&self, request: &Request, data: &[u8]) -> io::Result<()> {
        if self.settled.structured {
            let place = request.offset.to_be_bytes();
            self.reply_chunk(request, chunk::OFFSET_DATA, &place, data)
        } else {
            self.reply_simple(request, 0, data)
        }
    }

    fn reply_simple(&self, request: &Request, number: u32, data: &[u8]) -> io::Result<()> {
        let mut head = wire::SIMPLE_REPLY.to_be_bytes().to_vec();
        head.extend(number.to_be_bytes());
        head.extend(request.cookie);
        self.send(&head, data)
    }

    /// A reply that is one chunk, the last one.
    fn reply_chunk(
        &self,
        request: &Request,
        kind: u16,
        payload: &[u8],
        data: &[u8],
    ) -> io::Result<()> {
        let mut head = wire::CHUNK.to_be_bytes().to_vec();
        head.extend(chunk::DONE.to_be_bytes());
        head.extend(kind.to_be_bytes());
        head.extend(request.cookie);
        head.extend(((payload.len() + data.len()) as u32).to_be_bytes());
        head.extend(payload);
        self.send(&head, data)
    }

    fn send(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let mut stream = self.writing.lock();
        let mut slices = &mut [io::IoSlice::new(head), io::IoSlice::new(data)][..];
        io::IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match stream.write_vectored(slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    io::IoSlice::advance_slices(&mut slices, count);
                    if !slices.is_empty() {
                        self.activity.goes_on();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What is answered when all went well.
enum Reply {
    Done,
    Data,
    Extents(Vec<(u32, u32)>),
}

fn perform(
    shared: &Shared,
    request: &Request,
    data: &mut [u8],
    settled: Settled,
) -> Result<Reply, Failure> {
    let Request {
        flags,
        command,
        offset,
        len,
        ..
    } = *request;
    let device = &shared.device;
    let known = match command {
        command::READ => flag::FUA | flag::DF,
        command::WRITE | command::TRIM | command::FLUSH => flag::FUA,
        command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE,
        command::BLOCK_STATUS if settled.allocation => flag::FUA | flag::REQ_ONE,
        _ => {
            let text = format!("there is no request with the number {command} here");
            return Err(Failure(error::INVAL, text));
        }
    };
    if flags & !known != 0 {
        let text = format!("the flags {flags:#x} mean nothing to this request");
        return Err(Failure(error::INVAL, text));
    }
    let is_change = request.changes();
    if is_change && shared.is_read_only {
        let text = "the export is for reading only".to_owned();
        return Err(Failure(error::PERM, text));
    }
    let end = offset.checked_add(len.into());
    if command != command::FLUSH && end.is_none_or(|end| end > shared.size) {
        let number = if is_change {
            error::NOSPC
        } else {
            error::INVAL
        };
        let size = shared.size;
        let text = format!("{len} bytes at {offset} do not lie on the export, which has {size}");
        return Err(Failure(number, text));
    }
    if len == 0 && command != command::FLUSH {
        return Err(Failure(
            error::INVAL,
            "the request is about no bytes".to_owned(),
        ));
    }
    match command {
        command::READ => {
            if len > shared.limits.payload {
                let text = format!("a read has at most {} bytes", shared.limits.payload);
                return Err(Failure(error::OVERFLOW, text));
            }
            device.read_at(offset, data)?;
            return Ok(Reply::Data);
        }
        command::BLOCK_STATUS => {
            let extents = extents(shared, offset, len, flags & flag::REQ_ONE != 0)?;
            return Ok(Reply::Extents(extents));
        }
        command::WRITE => device.write_at(offset, data)?,
        command::TRIM => device.discard(offset, len.into())?,
        command::WRITE_ZEROES if flags & flag::NO_HOLE == 0 => device.zero(offset, len.into())?,
        command::WRITE_ZEROES => {
            let zeroes = AlignedBuf::zeroed(ZEROES.min(len as usize));
            let mut done = 0;
            while done < len as usize {
                let now = zeroes.len().min(len as usize - done);
                device.write_at(offset + done as u64, &zeroes[..now])?;
                done += now;
            }
        }
        _ => shared.flush()?,
    }
    if is_change && flags & flag::FUA != 0 {
        shared.flush()?;
    }
    Ok(Reply::Done)
}

/// Which parts of a range are holes: lengths and flags, one after the other.
fn extents(
    shared: &Shared,
    offset: u64,
    len: u32,
    only_one: bool,
) -> Result<Vec<(u32, u32)>, Failure> {
    let end = offset + u64::from(len);
    let mut found: Vec<(u32, u32)> = Vec::new();
    // All lengths lie within one of 32 bits.
    let mut add = |from: u64, to: u64, flags: u32| {
        let len = (to - from) as u32;
        match found.last_mut() {
            Some((last, same)) if *same == flags => *last += len,
            _ if len > 0 => found.push((len, flags)),
            _ => {}
        }
        found.len()
    };
    let mut at = offset;
    while at < end {
        let data = shared.device.next_data(at, end)?;
        let data = data.map_or(end..end, |data| {
            data.start.clamp(at, end)..data.end.min(end)
        });
        add(at, data.start, wire::HOLE_AND_ZERO);
        let count = add(data.start, data.end.max(data.start), 0);
        // Also ends where a device tells of nothing new.
        if data.end <= at || count >= MOST_EXTENTS || (only_one && count > 1) {
            break;
        }
        at = data.end;
    }
    found.truncate(if only_one { 1 } else { MOST_EXTENTS });
    Ok(found)
}
