//! Servers that take what is said to them at once, and servers that do not.

use super::fake::{ALL, Listener, chunk, handshake, option_reply, request, take};
use extant_blockdev::{AlignedBuf, BlockDevice, DeviceError, NbdDevice, NbdOptions, Request};
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SIZE: u64 = 1 << 20;

/// Answers reads with sevens until the client leaves.
fn serve_sevens(stream: &mut UnixStream, structured: bool) -> std::io::Result<()> {
    loop {
        let asked = request(stream)?;
        if asked.command == 2 {
            return Ok(());
        }
        let data = vec![7; asked.len as usize];
        let answer = if structured {
            let data = [&asked.offset.to_be_bytes()[..], &data].concat();
            chunk(1, 1, asked.cookie, &data)
        } else {
            let head = [
                &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0],
                &asked.cookie.to_be_bytes()[..],
            ];
            [&head.concat()[..], &data].concat()
        };
        stream.write_all(&answer)?;
    }
}

fn options() -> NbdOptions {
    NbdOptions::read_only().connect_timeout(Duration::from_secs(6))
}

fn reads_sevens(device: &NbdDevice) {
    let mut bytes = [0; 4096];
    device.read_at(8192, &mut bytes).expect("a read");
    assert_eq!(bytes, [7; 4096]);
}

/// A server with this way to negotiate, which is told how many connections there were before.
fn server(
    negotiate: impl Fn(&mut UnixStream, usize) -> std::io::Result<bool> + Send + Sync + 'static,
) -> (Listener, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let listener = Listener::new(move |mut stream| {
        let before = counted.fetch_add(1, Ordering::SeqCst);
        let structured = negotiate(&mut stream, before)?;
        serve_sevens(&mut stream, structured)
    });
    (listener, connections)
}

#[test]
fn everything_is_said_before_the_greeting_has_come() {
    let (listener, connections) = server(|stream, _| {
        // Flags, and three options of 16 bytes with 0, 27 and 8 bytes of data.
        let mut said = [0; 4 + 3 * 16 + 27 + 8];
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut at = 0;
        while at < said.len() {
            let (_, count) = recv(&*stream, &mut said[..], RecvFlags::PEEK)?;
            if count == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            at = count;
            thread::sleep(Duration::from_millis(1));
        }
        handshake(stream, SIZE, ALL)?;
        Ok(true)
    });
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    assert!(device.knows_holes());
    reads_sevens(&device);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// One option, as a whole.
fn option(stream: &mut UnixStream) -> std::io::Result<u32> {
    take::<8>(stream)?;
    let option = u32::from_be_bytes(take(stream)?);
    let len = u32::from_be_bytes(take(stream)?);
    stream.read_exact(&mut vec![0; len as usize])?;
    Ok(option)
}

#[test]
fn a_server_without_structured_replies_may_refuse_or_accept_a_context() {
    for (kind, name) in [
        (0x8000_0001, "it is not known"),
        (0x8000_0003, "it is not valid"),
        (0x8000_0006, "there is no such export"),
        (1, "it is accepted"),
    ] {
        let (listener, connections) = server(move |stream, _| {
            stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
            take::<4>(stream)?;
            loop {
                match option(stream)? {
                    10 => {
                        if kind == 1 {
                            let context = [&7_u32.to_be_bytes()[..], b"base:allocation"].concat();
                            stream.write_all(&option_reply(10, 4, &context))?;
                        }
                        stream.write_all(&option_reply(10, kind, &[]))?;
                    }
                    7 => {
                        let export = [&[0, 0][..], &SIZE.to_be_bytes(), &[0, 1]].concat();
                        stream.write_all(&option_reply(7, 3, &export))?;
                        stream.write_all(&option_reply(7, 1, &[]))?;
                        return Ok(false);
                    }
                    other => stream.write_all(&option_reply(other, 0x8000_0001, &[]))?,
                }
            }
        });
        let device = NbdDevice::connect(&listener.address, options()).expect(name);
        assert!(!device.knows_holes(), "{name}");
        reads_sevens(&device);
        assert_eq!(connections.load(Ordering::SeqCst), 1, "{name}");
    }
}

#[test]
fn a_server_that_knows_names_only_is_asked_by_name() {
    let (listener, connections) = server(|stream, _| {
        stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
        take::<4>(stream)?;
        loop {
            match option(stream)? {
                1 => {
                    stream.write_all(&SIZE.to_be_bytes())?;
                    stream.write_all(&[0, 1])?;
                    return Ok(false);
                }
                other => stream.write_all(&option_reply(other, 0x8000_0001, &[]))?,
            }
        }
    });
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    reads_sevens(&device);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// Takes one message with each look, as a server does that does not expect several.
fn by_messages(stream: &mut UnixStream, ends: bool) -> std::io::Result<bool> {
    stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
    take::<4>(stream)?;
    loop {
        let mut message = [0; 4096];
        let count = stream.read(&mut message)?;
        if count < 16 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let number = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().expect("four"));
        let (option, len) = (number(8), number(12) as usize);
        if ends && count > 16 + len {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        match option {
            8 => stream.write_all(&option_reply(8, 1, &[]))?,
            7 => {
                let export = [&[0, 0][..], &SIZE.to_be_bytes(), &[0, 1]].concat();
                stream.write_all(&option_reply(7, 3, &export))?;
                stream.write_all(&option_reply(7, 1, &[]))?;
                return Ok(true);
            }
            other => stream.write_all(&option_reply(other, 0x8000_0001, &[]))?,
        }
    }
}

#[test]
fn a_server_that_takes_one_message_at_a_time_is_asked_one_by_one() {
    for ends in [true, false] {
        let (listener, connections) = server(move |stream, _| by_messages(stream, ends));
        let began = Instant::now();
        let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
        reads_sevens(&device);
        assert_eq!(connections.load(Ordering::SeqCst), 2, "{ends}");
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(5), "{ends} {waited:?}");
    }
}

#[test]
fn an_older_greeting_is_answered_on_a_connection_of_its_own() {
    let (listener, connections) = server(|stream, before| {
        // Without the flag that leaves out zeroes.
        stream.write_all(b"NBDMAGICIHAVEOPT\x00\x01")?;
        let flags = take::<4>(stream)?;
        assert!(before == 0 || flags == [0, 0, 0, 1], "{flags:?}");
        loop {
            match option(stream)? {
                7 => {
                    let export = [&[0, 0][..], &SIZE.to_be_bytes(), &[0, 1]].concat();
                    stream.write_all(&option_reply(7, 3, &export))?;
                    stream.write_all(&option_reply(7, 1, &[]))?;
                    return Ok(false);
                }
                other => stream.write_all(&option_reply(other, 0x8000_0001, &[]))?,
            }
        }
    });
    let device = NbdDevice::connect(&listener.address, options()).expect("it opens");
    reads_sevens(&device);
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[test]
fn what_a_server_refuses_is_not_asked_again() {
    let (listener, connections) = server(|stream, _| {
        stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
        take::<4>(stream)?;
        loop {
            let option = option(stream)?;
            let kind = if option == 7 { 0x8000_0006 } else { 1 };
            stream.write_all(&option_reply(option, kind, &[]))?;
        }
    });
    let refused = NbdDevice::connect(&listener.address, options()).expect_err("no such export");
    assert!(matches!(refused, DeviceError::Export { .. }), "{refused}");
    assert!(refused.to_string().contains("does not have"), "{refused}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn both_ends_come_with_one_look_where_they_are_kept() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let size = 4 << 20;
    let listener = Listener::new(move |mut stream| {
        handshake(&mut stream, size, ALL)?;
        loop {
            let asked = request(&mut stream)?;
            if asked.command == 2 {
                return Ok(());
            }
            let before = counted.fetch_add(1, Ordering::SeqCst);
            if asked.command != 0 {
                stream.write_all(&chunk(1, 0, asked.cookie, &[]))?;
                continue;
            }
            let place = |byte: u64| (byte >> 9) as u8 ^ before.min(2) as u8;
            let data: Vec<u8> = (asked.offset..)
                .take(asked.len as usize)
                .map(place)
                .collect();
            let data = [&asked.offset.to_be_bytes()[..], &data].concat();
            stream.write_all(&chunk(1, 1, asked.cookie, &data))?;
        }
    });
    let options = options().keeps_ends(true);
    let device = NbdDevice::connect(&listener.address, options.clone()).expect("it opens");
    let read = |at: u64| {
        let mut bytes = [0; 512];
        device.read_at(at, &mut bytes).expect("a read");
        bytes
    };
    let tables = [0, 512, 1024, 100 << 10, size - 512, size - 33 * 512];
    let before = tables.map(read);
    assert_eq!(asked.load(Ordering::SeqCst), 2, "the head and the end");
    assert_eq!(tables.map(read), before);
    let mut bytes = [0; 512];
    device.read_uncached_at(512, &mut bytes).expect("a read");
    assert_eq!(bytes, [1 ^ 2; 512], "past what is kept");
    assert_eq!(read(1 << 20), [(1 << 11) as u8 ^ 2; 512]);
    assert_eq!(asked.load(Ordering::SeqCst), 4);

    // Of what is open for writing they are kept until one is changed.
    let options = NbdOptions::read_write().keeps_ends(true);
    let device = NbdDevice::connect(&listener.address, options).expect("it opens");
    let read_on = |count: usize| {
        for _ in 0..3 {
            device.read_at(0, &mut [0; 512]).expect("a read");
        }
        assert_eq!(asked.load(Ordering::SeqCst), count);
    };
    read_on(6);
    device.discard(2 << 20, 512).expect("a change");
    read_on(7);
    device.discard(size - 512, 512).expect("a change");
    read_on(11);
}

#[test]
fn a_few_durable_writes_and_a_flush_are_under_way_together_where_the_server_is_far() {
    const FUA: u16 = 1;
    let listener = Listener::new(|mut stream| {
        handshake(&mut stream, SIZE, ALL)?;
        let mut held = Vec::new();
        loop {
            let asked = request(&mut stream)?;
            let done = |cookie| chunk(1, 0, cookie, &[]);
            match asked.command {
                0 => {
                    thread::sleep(Duration::from_millis(2));
                    let data = vec![7; asked.len as usize];
                    let data = [&asked.offset.to_be_bytes()[..], &data].concat();
                    stream.write_all(&chunk(1, 1, asked.cookie, &data))?;
                }
                2 => return Ok(()),
                1 if asked.flags & FUA == 0 => stream.write_all(&done(asked.cookie))?,
                // Answered when all of them have come.
                _ => {
                    held.push(asked.cookie);
                    if held.len() == 3 {
                        for cookie in held.drain(..) {
                            stream.write_all(&done(cookie))?;
                        }
                    }
                }
            }
        }
    });
    let limit = Duration::from_secs(20);
    let options = NbdOptions::read_write()
        .connect_timeout(limit)
        .answer_timeout(limit)
        .flush_timeout(limit);
    let device = NbdDevice::connect(&listener.address, options).expect("it opens");
    device.read_at(8192, &mut [0; 512]).expect("a read");
    assert!(device.in_flight() > 1);
    device.write_at(0, &[1; 512]).expect("a write");
    let write = |at| Request::write(at, AlignedBuf::zeroed(512));
    let batch = vec![write(512), write(4096), Request::Flush];
    device.submit(batch).wait_all().expect("all are answered");
}
