//! Clients that do not keep to the protocol: they lose their connection, and no other one notices.

use super::Running;
use extant_blockdev::{DeviceError, DeviceResult, MemoryDevice};
use extant_serve::{Limits, ServeOptions};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const SIZE: u64 = 8 << 20;

fn running() -> Running {
    Running::new(MemoryDevice::new(SIZE), ServeOptions::default())
}

fn client(running: &Running) -> UnixStream {
    let stream = UnixStream::connect(running.socket()).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(15)))
        .expect("a limit");
    stream
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// A client that has chosen the export, with simple replies.
fn chosen(running: &Running) -> UnixStream {
    let mut stream = client(running);
    stream.write_all(&3_u32.to_be_bytes()).expect("flags");
    stream.write_all(&option(1, b"")).expect("a name");
    let mut answer = [0; 18 + 10];
    stream.read_exact(&mut answer).expect("the export");
    assert_eq!(answer[18..26], SIZE.to_be_bytes());
    stream
}

fn request(flags: u16, command: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(77_u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// The error number of a simple reply.
fn answer(stream: &mut UnixStream) -> u32 {
    let mut head = [0; 16];
    stream.read_exact(&mut head).expect("a reply");
    assert_eq!(head[..4], 0x6744_6698_u32.to_be_bytes());
    assert_eq!(head[8..], 77_u64.to_be_bytes());
    u32::from_be_bytes([head[4], head[5], head[6], head[7]])
}

fn is_closed(stream: &mut UnixStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn still_serves(running: &Running) {
    let said = tool("nbdinfo").arg("--size").arg(running.uri("")).ok();
    assert_eq!(said.text().trim(), SIZE.to_string());
}

#[test]
fn requests_that_cannot_be_are_refused_and_the_connection_goes_on() {
    let running = running();
    let mut stream = chosen(&running);
    for (bytes, number) in [
        (request(0, 0, SIZE, 1), 22),
        (request(0, 0, u64::MAX, 512), 22),
        (request(0, 0, 0, 0), 22),
        (request(0, 0, 0, (32 << 20) + 1), 22),
        (request(0, 4, SIZE - 1, 2), 28),
        (request(0, 6, u64::MAX - 5, 100), 28),
        (request(0, 77, 0, 512), 22),
        (request(0, 7, 0, 512), 22),
        (request(0x80, 4, 0, 512), 22),
        (request(2, 3, 0, 0), 22),
        ([request(0, 1, SIZE, 4), vec![1; 4]].concat(), 28),
        (request(0, 3, 0, 0), 0),
        (request(1, 6, 0, 512), 0),
    ] {
        stream.write_all(&bytes).expect("a request");
        assert_eq!(answer(&mut stream), number, "{bytes:?}");
    }
    stream.write_all(&request(0, 2, 0, 0)).expect("a farewell");
    assert!(is_closed(&mut stream));
}

#[test]
fn wrong_beginnings_and_giant_writes_end_the_connection() {
    let running = running();
    let wrong: [&[u8]; 4] = [
        &[0; 64],
        &request(0, 1, 0, (32 << 20) + 1),
        &request(0, 1, 0, u32::MAX),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    for bytes in wrong {
        let mut stream = chosen(&running);
        let _ = stream.write_all(bytes);
        assert!(is_closed(&mut stream), "{bytes:?}");
    }
    for bytes in [
        vec![0xff; 4],
        [3_u32.to_be_bytes().to_vec(), vec![0; 16]].concat(),
        [3_u32.to_be_bytes().to_vec(), option(1, b"other")].concat(),
        [
            &3_u32.to_be_bytes()[..],
            b"IHAVEOPT",
            &[0, 0, 0, 7],
            &[0xff; 4],
        ]
        .concat(),
        [3_u32.to_be_bytes().to_vec(), option(3, b"").repeat(1000)].concat(),
    ] {
        let mut stream = client(&running);
        let _ = stream.write_all(&bytes);
        assert!(is_closed(&mut stream), "{bytes:?}");
    }
    still_serves(&running);
}

#[test]
fn options_that_cannot_be_read_are_refused() {
    let running = running();
    let mut stream = client(&running);
    stream.write_all(&3_u32.to_be_bytes()).expect("flags");
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    for (number, data) in [
        (7_u32, &b""[..]),
        (7, &[0, 0, 0, 9, 1]),
        (7, &[0, 0, 0, 0, 0, 9]),
        (6, &[0xff; 40]),
        (8, b"x"),
        (3, b"x"),
        (9, &[0, 0, 0, 0]),
        (9, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
        (10, &[0, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        stream.write_all(&option(number, data)).expect("an option");
        let mut head = [0; 20];
        stream.read_exact(&mut head).expect("an answer");
        assert_eq!(
            head[12..16],
            0x8000_0003_u32.to_be_bytes(),
            "{number} {data:?}"
        );
        let len = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
        stream
            .read_exact(&mut vec![0; len as usize])
            .expect("a text");
    }
    stream.write_all(&option(2, b"")).expect("a farewell");
    assert!(is_closed(&mut stream));
}

#[test]
fn noise_is_no_end_of_the_server() {
    let seed = seed_from_env("noise");
    let mut rng = Rng::new(seed);
    let running = running();
    for round in 0..60 {
        let mut stream = if round % 2 == 0 {
            client(&running)
        } else {
            chosen(&running)
        };
        let mut noise = request(
            0,
            rng.below(9) as u16,
            rng.below(SIZE),
            rng.below(5000) as u32,
        );
        noise.resize(rng.below(6000) as usize, 0);
        for _ in 0..rng.below(6) {
            let at = rng.below(noise.len().max(1) as u64) as usize;
            if let Some(byte) = noise.get_mut(at) {
                *byte = rng.next_u64() as u8;
            }
        }
        let _ = stream.write_all(&noise);
    }
    still_serves(&running);
}

#[test]
fn clients_that_ask_and_do_not_listen_keep_nobody_else_waiting() {
    let running = running();
    let mut deaf = chosen(&running);
    deaf.set_write_timeout(Some(Duration::from_millis(300)))
        .expect("a limit");
    let ask = request(0, 0, 0, 8 << 20);
    while deaf.write_all(&ask.repeat(100)).is_ok() {}
    let began = Instant::now();
    still_serves(&running);
    assert!(began.elapsed() < Duration::from_secs(5));
    // And the server ends while it is there.
    let began = Instant::now();
    drop(running);
    assert!(began.elapsed() < Duration::from_secs(15));
    drop(deaf);
}

#[test]
fn no_more_connections_than_said_are_served_at_a_time() {
    let options = ServeOptions {
        limits: Limits {
            connections: 2,
            ..Limits::default()
        },
        ..ServeOptions::default()
    };
    let running = Running::new(MemoryDevice::new(SIZE), options);
    let (first, second) = (chosen(&running), chosen(&running));
    assert!(is_closed(&mut client(&running)));
    drop(first);
    let over = Instant::now() + Duration::from_secs(10);
    while tool("nbdinfo")
        .arg("--size")
        .arg(running.uri(""))
        .run()
        .code
        != 0
    {
        assert!(Instant::now() < over, "the place is free again");
    }
    drop(second);
}

#[test]
fn a_client_that_does_not_come_to_an_end_with_its_options_loses_its_place() {
    let running = |connections| {
        let limits = Limits {
            connections,
            negotiation: Duration::from_millis(600),
            ..Limits::default()
        };
        let options = ServeOptions {
            limits,
            ..ServeOptions::default()
        };
        Running::new(MemoryDevice::new(SIZE), options)
    };
    let server = running(1);
    // A byte of an option now and then: each comes soon enough, and the whole never does.
    let mut slow = client(&server);
    let said = [&3_u32.to_be_bytes()[..], &option(7, &[0; 100])].concat();
    let began = Instant::now();
    for byte in said {
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(is_closed(&mut slow));
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "before it was done"
    );
    still_serves(&server);
    // One that has chosen may rest.
    let server = running(2);
    let mut idle = chosen(&server);
    std::thread::sleep(Duration::from_millis(900));
    idle.write_all(&request(0, 3, 0, 0)).expect("a request");
    assert_eq!(answer(&mut idle), 0);
}

/// A device on which nothing works.
#[derive(Debug)]
struct Broken;

impl extant_blockdev::BlockDevice for Broken {
    fn size(&self) -> u64 {
        SIZE
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        Err(DeviceError::Io {
            op: "read",
            device: "it".to_owned(),
            offset,
            len: buf.len() as u64,
            source: std::io::Error::from_raw_os_error(28),
        })
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        Err(DeviceError::Cancelled)
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}

#[test]
fn errors_of_the_device_are_told_by_their_numbers() {
    let running = Running::new(Broken, ServeOptions::default());
    let mut stream = chosen(&running);
    stream.write_all(&request(0, 0, 0, 512)).expect("a request");
    assert_eq!(answer(&mut stream), 28);
    let write = [request(0, 1, 0, 4), vec![0; 4]].concat();
    stream.write_all(&write).expect("a request");
    assert_eq!(answer(&mut stream), 5);
}

/// Time after which clients of the crowded server are idle.
const IDLE: Duration = Duration::from_millis(1500);

/// A server with two places, on which clients are soon idle.
fn crowded() -> Running {
    let options = ServeOptions {
        limits: Limits {
            connections: 2,
            idle: IDLE,
            ..Limits::default()
        },
        ..ServeOptions::default()
    };
    Running::new(MemoryDevice::new(SIZE), options)
}

/// Has a client do something, without an error.
fn asks(stream: &mut UnixStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("a request");
    assert_eq!(answer(stream), 0);
}

#[test]
fn where_all_places_are_taken_the_client_that_is_idle_for_longest_gives_way() {
    let running = crowded();
    let (mut first, mut second) = (chosen(&running), chosen(&running));
    assert!(is_closed(&mut client(&running)), "nobody is idle yet");
    std::thread::sleep(IDLE + Duration::from_millis(100));
    asks(&mut first, &request(0, 3, 0, 0));
    std::thread::sleep(IDLE + Duration::from_millis(100));
    // Both are idle, and the first one has asked something since.
    let mut third = chosen(&running);
    assert!(is_closed(&mut second));
    asks(&mut first, &request(0, 3, 0, 0));
    asks(&mut third, &request(0, 3, 0, 0));
    // Half a request is none, if the rest does not come.
    let half = [request(0, 1, 0, 512), vec![1; 100]].concat();
    first.write_all(&half).expect("a part");
    std::thread::sleep(IDLE + Duration::from_millis(100));
    asks(&mut third, &request(0, 3, 0, 0));
    still_serves(&running);
    assert!(is_closed(&mut first));
    asks(&mut third, &request(0, 3, 0, 0));
}

#[test]
fn a_client_that_sends_a_request_slowly_keeps_its_place() {
    let running = crowded();
    let (mut slow, mut other) = (chosen(&running), chosen(&running));
    slow.write_all(&request(0, 1, 0, 10)).expect("a part");
    for byte in 0..10 {
        std::thread::sleep(IDLE / 6);
        if byte == 9 {
            assert!(is_closed(&mut client(&running)), "nobody is idle");
        }
        slow.write_all(&[byte]).expect("a part");
        asks(&mut other, &request(0, 3, 0, 0));
    }
    assert_eq!(answer(&mut slow), 0);
}

#[test]
fn a_client_with_changes_that_no_flush_has_covered_keeps_its_place() {
    let running = crowded();
    let (mut writer, mut other) = (chosen(&running), chosen(&running));
    let write = [request(0, 1, 0, 4), vec![1; 4]].concat();
    asks(&mut writer, &write);
    std::thread::sleep(IDLE + Duration::from_millis(100));
    asks(&mut other, &[request(1, 1, 4096, 4), vec![2; 4]].concat());
    // What the other one wrote was made durable at once, and with it all from before.
    asks(&mut writer, &write);
    std::thread::sleep(IDLE + Duration::from_millis(100));
    let mut third = chosen(&running);
    assert!(is_closed(&mut other), "it is idle for as long");
    std::thread::sleep(IDLE + Duration::from_millis(100));
    asks(&mut third, &request(0, 0, 0, 4096));
    let mut content = [0; 4096];
    third.read_exact(&mut content).expect("data");
    assert_eq!(content[..4], [1; 4]);
    assert!(is_closed(&mut client(&running)), "nobody can give way");
    // A flush on any connection covers it.
    asks(&mut third, &request(0, 3, 0, 0));
    still_serves(&running);
    assert!(is_closed(&mut writer));
    asks(&mut third, &request(0, 3, 0, 0));
}
