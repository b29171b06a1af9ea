//! What comes over connections: the two sides of NBD. A side that is under test has a socket whose
//! other end says what the input is, and then no more.

use crate::split;
use extant_blockdev::{BlockDevice, DeviceResult, MemoryDevice, NbdDevice, NbdOptions};
use extant_serve::{Limits, serve_connection};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of an input: they fit what a socket keeps.
const MOST: usize = 64 << 10;
/// Most bytes of replies: a client that reads ahead has all of them at once.
const MOST_REPLIES: usize = 16 << 10;
/// What begins an answer to an option.
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// The number of the context that a server tells of holes under.
const CONTEXT: u32 = 7;
/// All that an export can be: without several connections.
const FLAGS: u16 = 0b0000_0110_1101;

/// A socket whose other end has said these bytes, and that end.
fn saying(bytes: &[u8]) -> (UnixStream, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    theirs.set_nonblocking(true).expect("a socket");
    // What does not fit is not said.
    let _ = theirs.write(&bytes[..bytes.len().min(MOST)]);
    theirs.shutdown(Shutdown::Write).expect("a socket");
    theirs.set_nonblocking(false).expect("a socket");
    (ours, theirs)
}

fn connected(socket: UnixStream) -> DeviceResult<NbdDevice> {
    let options = NbdOptions::read_write()
        .connect_timeout(Duration::from_secs(20))
        .answer_timeout(Duration::from_secs(20));
    NbdDevice::connected(socket.into(), "input", options)
}

/// Has a client use the export of a server that says `greeting`, and `replies` once it has been
/// asked something.
fn conversation<T>(greeting: &[u8], replies: &[u8], client: impl FnOnce(NbdDevice) -> T) -> T {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It ends when the client has left, at the latest.
            let _ = answer(&mut theirs, greeting, replies);
        });
        client(connected(ours).expect("the greeting is right"))
    })
}

fn answer(client: &mut UnixStream, greeting: &[u8], replies: &[u8]) -> io::Result<()> {
    client.write_all(greeting)?;
    client.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        client.read_exact(&mut head)?;
        let [.., a, b, c, d, e, f, g, h] = head;
        let len = u32::from_be_bytes([e, f, g, h]);
        client.read_exact(&mut vec![0; len as usize])?;
        if u32::from_be_bytes([a, b, c, d]) == 7 {
            break;
        }
    }
    client.read_exact(&mut [0])?;
    client.write_all(&replies[..replies.len().min(MOST_REPLIES)])?;
    client.shutdown(Shutdown::Write)?;
    io::copy(client, &mut io::sink()).map(drop)
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let head = [option, kind, data.len() as u32].map(u32::to_be_bytes);
    [&OPTION_REPLY.to_be_bytes()[..], &head.concat(), data].concat()
}

/// What a server says until the export is chosen.
fn negotiation(structured: bool, size: u64, blocks: [u32; 3]) -> Vec<u8> {
    let mut said = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
    if structured {
        said.extend(option_reply(8, 1, &[]));
        let context = [&CONTEXT.to_be_bytes()[..], b"base:allocation"].concat();
        said.extend(option_reply(10, 4, &context));
        said.extend(option_reply(10, 1, &[]));
    } else {
        said.extend(option_reply(8, 0x8000_0001, b"not here"));
    }
    let export = [&[0, 0][..], &size.to_be_bytes(), &FLAGS.to_be_bytes()].concat();
    said.extend(option_reply(7, 3, &export));
    let limits = [&[0, 3][..], &blocks.map(u32::to_be_bytes).concat()].concat();
    said.extend(option_reply(7, 3, &limits));
    said.extend(option_reply(7, 1, &[]));
    said
}

/// What an NBD server says until a client has chosen the export.
pub fn nbd_negotiation(input: &[u8]) -> bool {
    let (socket, _end) = saying(input);
    let Ok(device) = connected(socket) else {
        return false;
    };
    assert!(i64::try_from(device.size()).is_ok());
    let sector = device.logical_sector();
    assert!(sector.is_power_of_two() && (512..=64 << 10).contains(&sector));
    assert!((4096..=1 << 20).contains(&device.preferred_io()));
    true
}

/// What a server says of the export that the first byte of an input chooses, and the rest.
fn chosen(input: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let ([choice], rest) = split::<1>(input)?;
    let smallest = [1, 512, 4096, 64 << 10][usize::from(choice >> 1 & 3)];
    let largest = if choice & 8 == 0 { 32 << 20 } else { smallest };
    let size = if choice & 16 == 0 { 1 << 20 } else { 1 << 40 };
    let said = negotiation(choice & 1 == 0, size, [smallest, 64 << 10, largest]);
    Some((said, rest))
}

/// What an NBD server answers to requests. Of what was read, the server has said every byte.
pub fn nbd_replies(input: &[u8]) -> bool {
    let Some((greeting, replies)) = chosen(input) else {
        return false;
    };
    let use_it = |before: u8| {
        conversation(&greeting, replies, |device| {
            let mut first = vec![before; 4096];
            let mut second = vec![before; 700];
            let read = device.read_at(8192, &mut first).is_ok();
            let _ = device.write_at(4096, &[1; 4096]);
            let parts = device.read_at(100, &mut second).is_ok();
            let _ = device.zero(0, 64 << 10);
            let _ = device.discard(0, 64 << 10);
            let _ = device.flush();
            (read.then_some(first), parts.then_some(second))
        })
    };
    let found = use_it(0x55);
    assert_eq!(found, use_it(0xaa), "some of it was there before");
    found.0.is_some() || found.1.is_some()
}

/// What an NBD server tells of holes.
pub fn nbd_extents(input: &[u8]) -> bool {
    let Some((greeting, replies)) = chosen(input) else {
        return false;
    };
    conversation(&greeting, replies, |device| {
        let (mut at, size) = (0, device.size());
        let mut told = false;
        while let Ok(found) = device.next_data(at, size) {
            told = true;
            let Some(found) = found else {
                break;
            };
            assert!(found.start >= at && found.start < found.end && found.end <= size);
            at = found.end;
        }
        told
    })
}

/// What a client says to the server of a disk of 1 MiB, and what it answers.
fn served(said: &[u8]) -> Vec<u8> {
    let (socket, mut end) = saying(said);
    let disk = MemoryDevice::new(1 << 20);
    disk.write_at(70_000, &[3; 5000]).expect("memory");
    let limits = Limits {
        threads: 1,
        payload: 4096,
        ..Limits::default()
    };
    std::thread::scope(|scope| {
        let answers = scope.spawn(move || {
            let mut all = Vec::new();
            // A connection that is reset has said what it had to.
            let _ = end.read_to_end(&mut all);
            all
        });
        serve_connection(socket, Arc::new(disk), limits).expect("memory is durable");
        answers.join().expect("it reads")
    })
}

fn number<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (now, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*now)
}

/// Takes the greeting and the answers to options from the front of what a server said. Returns
/// whether an export was chosen by `GO`.
fn options_answered(said: &mut &[u8]) -> bool {
    let greeting = number::<18>(said).expect("a greeting");
    assert_eq!(greeting[..16], *b"NBDMAGICIHAVEOPT");
    while said.starts_with(&OPTION_REPLY.to_be_bytes()) {
        let _ = number::<8>(said);
        let heads = [(); 3].map(|()| number(said).map_or(u32::MAX, u32::from_be_bytes));
        let [option, kind, len] = heads;
        let rest = said.get(len as usize..).expect("the whole of an answer");
        *said = rest;
        if (option, kind) == (7, 1) {
            return true;
        }
    }
    false
}

/// What a client says to an NBD server from its flags on.
pub fn nbd_options(input: &[u8]) -> bool {
    let answers = served(input);
    let mut rest = &answers[..];
    options_answered(&mut rest)
}

/// Requests to an NBD server. All that it answers is whole, and to what was asked.
pub fn nbd_requests(input: &[u8]) -> bool {
    let Some(([choice], rest)) = split::<1>(input) else {
        return false;
    };
    let (structured, allocation) = (choice & 1 == 0, choice & 2 == 0);
    let mut said = 3_u32.to_be_bytes().to_vec();
    let mut ask = |option: u32, data: &[u8]| {
        said.extend(b"IHAVEOPT");
        said.extend(option.to_be_bytes());
        said.extend((data.len() as u32).to_be_bytes());
        said.extend(data);
    };
    if structured {
        ask(8, &[]);
    }
    if structured && allocation {
        let query = [
            &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15][..],
            b"base:allocation",
        ]
        .concat();
        ask(10, &query);
    }
    ask(7, &[0; 6]);
    said.extend(rest);
    let answers = served(&said);
    let mut rest = &answers[..];
    assert!(options_answered(&mut rest));
    if !structured {
        // Without the requests at hand it is not known where a reply ends.
        return rest.starts_with(&0x6744_6698_u32.to_be_bytes());
    }
    let mut count = 0;
    while !rest.is_empty() {
        let magic = number(&mut rest).map(u32::from_be_bytes);
        assert_eq!(magic, Some(0x668e_33ef));
        let flags = number(&mut rest).map(u16::from_be_bytes);
        assert_eq!(flags, Some(1), "each reply is one chunk");
        let kind = number(&mut rest).map(u16::from_be_bytes).expect("a kind");
        let _cookie = number::<8>(&mut rest).expect("a cookie");
        let len = number(&mut rest).map(u32::from_be_bytes).expect("a length");
        let data = rest.get(..len as usize).expect("the whole of a reply");
        rest = &rest[data.len()..];
        match kind {
            0 => assert!(data.is_empty()),
            1 => assert!((9..=8 + 4096).contains(&data.len())),
            5 => assert!(allocation && data.len() >= 12 && data.len() % 8 == 4),
            0x8001 => assert!(data.len() >= 6 && data[..4] != [0; 4]),
            other => panic!("a reply of the kind {other}"),
        }
        count += 1;
    }
    count > 0
}

/// Valid inputs of a target of this module.
pub(crate) fn corpus(name: &str) -> Vec<Vec<u8>> {
    match name {
        "nbd_negotiation" => vec![
            negotiation(true, 1 << 20, [1, 4096, 32 << 20]),
            negotiation(false, 1 << 20, [512, 4096, 1 << 20]),
            by_name(),
        ],
        "nbd_replies" => vec![
            [vec![0], structured_replies()].concat(),
            [vec![1], simple_replies()].concat(),
        ],
        "nbd_extents" => vec![
            [
                vec![0],
                extents(&[(64 << 10, 0), (64 << 10, 3), (896 << 10, 2)]),
            ]
            .concat(),
            [vec![16], extents(&[(1 << 30, 0)])].concat(),
        ],
        "nbd_options" => vec![asking(&[(3, vec![]), (8, vec![]), (7, vec![0; 6])])],
        _ => vec![
            [vec![0], requests()].concat(),
            [vec![1], requests()].concat(),
            [vec![2], requests()].concat(),
        ],
    }
}

/// A server that knows no options but the name.
fn by_name() -> Vec<u8> {
    let mut said = b"NBDMAGICIHAVEOPT\x00\x00".to_vec();
    said.extend((1_u64 << 20).to_be_bytes());
    said.extend(FLAGS.to_be_bytes());
    said.extend([0; 124]);
    said
}

fn chunk(flags: u16, kind: u16, cookie: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Answers to the requests of [`nbd_replies`], in their order.
fn structured_replies() -> Vec<u8> {
    let data = |at: u64, bytes: &[u8]| [&at.to_be_bytes()[..], bytes].concat();
    let hole = [&9216_u64.to_be_bytes()[..], &3072_u32.to_be_bytes()].concat();
    [
        chunk(0, 1, 1, &data(8192, &[7; 1024])),
        chunk(1, 2, 1, &hole),
        chunk(1, 0, 2, &[]),
        chunk(1, 1, 3, &data(100, &[9; 700])),
        chunk(1, 0, 4, &[]),
        chunk(1, 0x8001, 5, b"\x00\x00\x00\x1c\x00\x04full"),
        chunk(1, 0, 6, &[]),
    ]
    .concat()
}

fn simple_replies() -> Vec<u8> {
    let reply = |cookie: u64, data: &[u8]| {
        let head = [0x6744_6698_u32, 0].map(u32::to_be_bytes).concat();
        [&head[..], &cookie.to_be_bytes(), data].concat()
    };
    [
        reply(1, &[7; 4096]),
        reply(2, &[]),
        reply(3, &[9; 700]),
        reply(4, &[]),
        reply(5, &[]),
        reply(6, &[]),
    ]
    .concat()
}

fn extents(told: &[(u32, u32)]) -> Vec<u8> {
    let mut data = CONTEXT.to_be_bytes().to_vec();
    for (len, flags) in told {
        data.extend(len.to_be_bytes());
        data.extend(flags.to_be_bytes());
    }
    (1..4)
        .flat_map(|cookie| chunk(1, 5, cookie, &data))
        .collect()
}

fn asking(options: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut said = 3_u32.to_be_bytes().to_vec();
    for (option, data) in options {
        said.extend(b"IHAVEOPT");
        said.extend(option.to_be_bytes());
        said.extend((data.len() as u32).to_be_bytes());
        said.extend(data);
    }
    said
}

fn requests() -> Vec<u8> {
    let request = |command: u16, cookie: u64, offset: u64, len: u32| {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(0_u16.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    };
    [
        request(0, 1, 70_000, 512),
        request(1, 2, 4096, 8),
        b"8 bytes.".to_vec(),
        request(7, 3, 0, 1 << 20),
        request(6, 4, 0, 8192),
        request(4, 5, 8192, 8192),
        request(3, 6, 0, 0),
        request(2, 7, 0, 0),
    ]
    .concat()
}
