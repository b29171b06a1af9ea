//! A server that does as the test tells it: right, wrong, or until it is killed.

use extant_blockdev::NbdAddress;
use extant_testkit::rng::Rng;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;

/// Flags of an export with all that there is, and without several connections.
pub(super) const ALL: u16 = 0b0000_0110_1101;
/// Several connections are safe.
pub(super) const MULTI: u16 = 1 << 8;

pub(super) type Conversation = dyn Fn(UnixStream) -> std::io::Result<()> + Send + Sync;

/// Listens on a Unix socket until it is dropped.
pub(super) struct Listener {
    pub(super) address: NbdAddress,
    ends: Arc<AtomicBool>,
    dir: TempDir,
}

impl Listener {
    /// Has `talk` with each client, in a thread of its own.
    pub(super) fn new(
        talk: impl Fn(UnixStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let dir = TempDir::new().expect("a directory");
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let ends = Arc::new(AtomicBool::new(false));
        let talk: Arc<Conversation> = Arc::new(talk);
        let over = Arc::clone(&ends);
        thread::spawn(move || {
            for client in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let talk = Arc::clone(&talk);
                // Clients leave at any time; that is their business.
                thread::spawn(move || client.and_then(|client| talk(client)));
            }
        });
        Self {
            address: super::on_socket(&path),
            ends,
            dir,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(self.dir.path().join("socket"));
    }
}

pub(super) fn take<const N: usize>(from: &mut impl Read) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub(super) fn chunk(flags: u16, kind: u16, cookie: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The greeting and the options, done right.
pub(super) fn handshake(
    stream: &mut (impl Read + Write),
    size: u64,
    flags: u16,
) -> std::io::Result<()> {
    handshake_with(stream, size, flags, None)
}

/// As [`handshake`], with limits of requests: smallest, preferred and largest.
pub(super) fn handshake_with(
    stream: &mut (impl Read + Write),
    size: u64,
    flags: u16,
    blocks: Option<[u32; 3]>,
) -> std::io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
    take::<4>(stream)?;
    loop {
        take::<8>(stream)?;
        let option = u32::from_be_bytes(take(stream)?);
        let len = u32::from_be_bytes(take(stream)?);
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
        match option {
            8 => stream.write_all(&option_reply(option, 1, &[]))?,
            10 => {
                let context = [&7_u32.to_be_bytes()[..], b"base:allocation"].concat();
                stream.write_all(&option_reply(option, 4, &context))?;
                stream.write_all(&option_reply(option, 1, &[]))?;
            }
            7 => {
                let export = [&[0, 0][..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
                stream.write_all(&option_reply(option, 3, &export))?;
                if let Some(blocks) = blocks {
                    let limits = [&[0, 3][..], &blocks.map(u32::to_be_bytes).concat()].concat();
                    stream.write_all(&option_reply(option, 3, &limits))?;
                }
                stream.write_all(&option_reply(option, 1, &[]))?;
                return Ok(());
            }
            _ => stream.write_all(&option_reply(option, 0x8000_0001, &[]))?,
        }
    }
}

/// A request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) flags: u16,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) data: Vec<u8>,
}

pub(super) fn request(stream: &mut impl Read) -> std::io::Result<Asked> {
    let head: [u8; 28] = take(stream)?;
    let mut asked = Asked {
        flags: u16::from_be_bytes([head[4], head[5]]),
        command: u16::from_be_bytes([head[6], head[7]]),
        cookie: u64::from_be_bytes(head[8..16].try_into().expect("eight bytes")),
        offset: u64::from_be_bytes(head[16..24].try_into().expect("eight bytes")),
        len: u32::from_be_bytes(head[24..28].try_into().expect("four bytes")),
        data: Vec::new(),
    };
    if asked.command == 1 {
        asked.data = vec![0; asked.len as usize];
        stream.read_exact(&mut asked.data)?;
    }
    Ok(asked)
}

/// When the server dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// It has the request, and has done nothing about it.
    BeforeDoing,
    /// It has done it, and not said so.
    BeforeAnswering,
}

/// What a server with memory holds.
#[derive(Default)]
struct Memory {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Requests so far.
    count: usize,
    /// Dies at the request with this number, counted from 0.
    dies_at: Option<(usize, Moment)>,
    deaths: usize,
    flushes: usize,
    clients: Vec<UnixStream>,
    rng: Option<Rng>,
}

impl Memory {
    /// Loses connections, and of what is not durable a part.
    fn die(&mut self) {
        for client in self.clients.drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
        self.dies_at = None;
        self.deaths += 1;
        let rng = self.rng.as_mut();
        let mut kept = |_| true;
        let mut random;
        let keeps: &mut dyn FnMut(usize) -> bool = match rng {
            Some(rng) => {
                random = |_| rng.one_in(2);
                &mut random
            }
            None => &mut kept,
        };
        for (number, sector) in self.now.chunks_mut(512).enumerate() {
            if !keeps(number) {
                let at = number * 512;
                sector.copy_from_slice(&self.durable[at..at + sector.len()]);
            }
        }
        // What survived is on the medium.
        self.durable.clone_from(&self.now);
    }
}

/// A right server with a volatile cache, that dies when it is told and is there again at once.
pub(super) struct Mortal {
    pub(super) listener: Listener,
    memory: Arc<Mutex<Memory>>,
}

impl Mortal {
    pub(super) fn new(size: usize, flags: u16, rng: Option<Rng>) -> Self {
        let memory = Arc::new(Mutex::new(Memory {
            now: vec![0; size],
            durable: vec![0; size],
            rng,
            ..Memory::default()
        }));
        let shared = Arc::clone(&memory);
        let listener = Listener::new(move |mut stream| {
            shared
                .lock()
                .expect("the memory")
                .clients
                .push(stream.try_clone()?);
            handshake(&mut stream, size as u64, flags)?;
            loop {
                let asked = request(&mut stream)?;
                if asked.command == 2 {
                    return Ok(());
                }
                let answer = {
                    let mut memory = shared.lock().expect("the memory");
                    let number = memory.count;
                    memory.count += 1;
                    let dies = memory.dies_at.filter(|(at, _)| *at == number);
                    if dies.is_some_and(|(_, moment)| moment == Moment::BeforeDoing) {
                        memory.die();
                        return Ok(());
                    }
                    let answer = perform(&mut memory, &asked);
                    if dies.is_some() {
                        memory.die();
                        return Ok(());
                    }
                    answer
                };
                stream.write_all(&answer)?;
            }
        });
        Self { listener, memory }
    }

    pub(super) fn dies_at(&self, number: usize, moment: Moment) {
        self.memory.lock().expect("the memory").dies_at = Some((number, moment));
    }

    pub(super) fn die_now(&self) {
        self.memory.lock().expect("the memory").die();
    }

    pub(super) fn requests(&self) -> usize {
        self.memory.lock().expect("the memory").count
    }

    pub(super) fn deaths(&self) -> usize {
        self.memory.lock().expect("the memory").deaths
    }

    pub(super) fn flushes(&self) -> usize {
        self.memory.lock().expect("the memory").flushes
    }

    /// What is there after the power failed now.
    pub(super) fn durable(&self) -> Vec<u8> {
        self.memory.lock().expect("the memory").durable.clone()
    }
}

fn perform(memory: &mut Memory, asked: &Asked) -> Vec<u8> {
    let range = asked.offset as usize..asked.offset as usize + asked.len as usize;
    let mut answer = Vec::new();
    match asked.command {
        0 => {
            let data = [&asked.offset.to_be_bytes()[..], &memory.now[range.clone()]].concat();
            answer = chunk(1, 1, asked.cookie, &data);
        }
        1 => memory.now[range.clone()].copy_from_slice(&asked.data),
        3 => {
            let now = memory.now.clone();
            memory.durable = now;
            memory.flushes += 1;
        }
        4 | 6 => memory.now[range.clone()].fill(0),
        7 => {
            let extent = [7, asked.len, 0].map(u32::to_be_bytes).concat();
            answer = chunk(1, 5, asked.cookie, &extent);
        }
        _ => answer = chunk(1, 0x8001, asked.cookie, &[0, 0, 0, 22, 0, 0]),
    }
    if asked.flags & 1 != 0 {
        let (now, durable) = (&memory.now[range.clone()], &mut memory.durable[range]);
        durable.copy_from_slice(now);
    }
    if answer.is_empty() {
        answer = chunk(1, 0, asked.cookie, &[]);
    }
    answer
}
