//! Reading from servers that do everything right.

use crate::server::{Answer, Server, answer, part};
use crate::support::{hasty, object, read_all};
use extant_blockdev::{Completion, Request};
use extant_remote::open;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const PIECE: usize = 64 << 10;

#[test]
fn every_way_of_reading_gives_the_same_bytes() {
    let bytes = object(3 * (1 << 20) + 777);
    let server = Server::of(bytes.clone());
    let mut options = hasty();
    options.cache_bytes = 1 << 20;
    let device = open(&server.url("a.img"), options).unwrap();
    assert_eq!(device.size(), bytes.len() as u64);
    assert!(device.is_read_only());
    assert_eq!(device.name(), server.url("a.img"));
    assert_eq!(read_all(&device).unwrap(), bytes);
    for (at, len) in [
        (0, 1),
        (PIECE - 1, 2),
        (PIECE, PIECE),
        (777, 5 * PIECE),
        (bytes.len() - 1, 1),
        (bytes.len(), 0),
        (1 << 20, 2 << 20),
    ] {
        let mut buf = vec![0; len];
        device.read_at(at as u64, &mut buf).unwrap();
        assert!(buf == bytes[at..at + len], "{len} bytes at {at}");
        let (mut one, mut two) = (vec![0; len / 3], vec![0; len - len / 3]);
        let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        device.read_vectored_at(at as u64, &mut bufs).unwrap();
        assert!(
            [one, two].concat() == bytes[at..at + len],
            "{len} bytes at {at}"
        );
    }
    let mut buf = [0; 2];
    assert!(device.read_at(bytes.len() as u64 - 1, &mut buf).is_err());
    assert!(device.write_at(0, &buf).is_err());
}

#[test]
fn a_batch_is_fetched_at_once_and_in_merged_ranges() {
    let bytes = object(16 * PIECE);
    let served = bytes.clone();
    let server = Server::start(move |asked| {
        thread::sleep(Duration::from_millis(20));
        Answer::Bytes(part(asked, &served, "\"one\""))
    });
    let device = open(&server.url("a.img"), hasty()).unwrap();
    // Pieces 2, 3 and 4 are neighbours; 8 and 12 stand alone.
    let places = [
        2 * PIECE,
        3 * PIECE + 4096,
        4 * PIECE,
        8 * PIECE,
        12 * PIECE,
        4 * PIECE + 8192,
    ];
    let batch = places.map(|at| Request::read(at as u64, 4096)).into();
    let done = Completion::wait_all(device.submit(batch)).unwrap();
    for (at, request) in places.iter().zip(done) {
        let buf = request.into_read_buf().unwrap();
        assert!(buf[..] == bytes[*at..*at + 4096], "at {at}");
    }
    // One to open, one for each stretch of neighbours.
    assert_eq!(server.requests(), 4);
    assert!(
        server.largest_transfer() >= 3,
        "{} at once",
        server.largest_transfer()
    );
    let failed = device.submit(vec![
        Request::read(0, 512),
        Request::Discard {
            offset: 0,
            len: 512,
        },
    ]);
    assert!(failed.wait_all().is_err());
}

#[test]
fn a_piece_is_fetched_once_however_many_want_it() {
    let bytes = object(8 * PIECE);
    let served = bytes.clone();
    let server = Server::start(move |asked| {
        thread::sleep(Duration::from_millis(50));
        Answer::Bytes(part(asked, &served, "\"one\""))
    });
    let device = open(&server.url("a.img"), hasty()).unwrap();
    let bytes = Arc::new(bytes);
    thread::scope(|scope| {
        for thread in 0..16 {
            let (device, bytes) = (&device, &bytes);
            scope.spawn(move || {
                let at = 5 * PIECE + thread * 100;
                let mut buf = [0; 100];
                device.read_at(at as u64, &mut buf).unwrap();
                assert_eq!(buf, bytes[at..at + 100]);
            });
        }
    });
    assert_eq!(server.requests(), 2);
}

#[test]
fn opening_takes_one_round_trip_and_brings_the_beginning() {
    let server = Server::of(object(8 * PIECE));
    let device = open(&server.url("a.img"), hasty()).unwrap();
    let mut buf = [0; 4096];
    device.read_at(1024, &mut buf).unwrap();
    assert_eq!(server.requests(), 1);
}

#[test]
fn every_request_after_the_first_asks_for_the_same_version() {
    let server = Server::of(object(32 * PIECE));
    let device = open(&server.url("a.img"), hasty()).unwrap();
    read_all(&device).unwrap();
    let asked = server.asked();
    assert!(asked.len() > 1 && asked[0].header("if-match").is_none());
    for later in &asked[1..] {
        assert_eq!(later.header("if-match"), Some("\"one\""));
        assert_eq!(later.header("accept-encoding"), Some("identity"));
    }
}

#[test]
fn a_sequential_reader_takes_few_requests_and_a_random_one_little_more_than_it_reads() {
    let server = Server::of(object(512 * PIECE));
    let device = open(&server.url("a.img"), hasty()).unwrap();
    let mut buf = vec![0; 4096];
    for at in (0..device.size()).step_by(4096) {
        device.read_at(at, &mut buf).unwrap();
    }
    let sequential = server.requests();
    assert!(sequential < 60, "{sequential} requests for 512 pieces");
    let server = Server::of(object(512 * PIECE));
    let device = open(&server.url("a.img"), hasty()).unwrap();
    for step in 0..50_u64 {
        device
            .read_at(step * 37 % 511 * PIECE as u64, &mut buf)
            .unwrap();
    }
    assert!(
        server.bytes() < 53 * PIECE as u64,
        "{} bytes",
        server.bytes()
    );
}

#[test]
fn a_hint_brings_pieces_before_they_are_read() {
    let server = Server::of(object(64 * PIECE));
    let device = open(&server.url("a.img"), hasty()).unwrap();
    let piece = PIECE as u64;
    device.prefetch(&[
        4 * piece..6 * piece,
        40 * piece..40 * piece + 1,
        63 * piece..u64::MAX,
    ]);
    // It begins without a reader.
    let began = Instant::now();
    while server.requests() < 4 && began.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(1));
    }
    let mut buf = [0; 512];
    for at in [40, 5, 63] {
        device.read_at(at * piece, &mut buf).unwrap();
    }
    assert_eq!(server.requests(), 4);
}

#[test]
fn requests_in_flight_are_bounded() {
    let bytes = object(256 * PIECE);
    let server = Server::start(move |asked| {
        thread::sleep(Duration::from_millis(10));
        Answer::Bytes(part(asked, &bytes, "\"one\""))
    });
    let mut options = hasty();
    options.in_flight = 3;
    let device = open(&server.url("a.img"), options).unwrap();
    let batch = (0..128)
        .map(|at| Request::read(at * 2 * PIECE as u64, 512))
        .collect();
    device.submit(batch).wait_all().unwrap();
    assert_eq!(server.largest_transfer(), 3);
}

#[test]
fn empty_and_tiny_objects_are_devices_too() {
    for len in [0, 1, 511, PIECE, PIECE + 1] {
        let bytes = object(len);
        let server = Server::of(bytes.clone());
        let device = open(&server.url("a.img"), hasty()).unwrap();
        assert_eq!(read_all(&device).unwrap(), bytes, "{len} bytes");
    }
}

#[test]
fn redirects_are_followed_once_and_again_when_the_place_expires() {
    let bytes = object(8 * PIECE);
    let served = bytes.clone();
    let server = Server::start(move |asked| {
        let moved = |to: &str| {
            let headers = [
                ("Location", to.to_owned()),
                ("Content-Length", "0".to_owned()),
            ];
            Answer::Bytes(answer("302 Found", &headers, b""))
        };
        let expired = || {
            let headers = [("Content-Length", "0".to_owned())];
            Answer::Bytes(answer("403 Forbidden", &headers, b""))
        };
        match asked.path.as_str() {
            "/a.img" if asked.number < 4 => moved("/old?sig=1"),
            "/a.img" => moved("/new?sig=2"),
            "/old?sig=1" if asked.number >= 3 => expired(),
            _ => Answer::Bytes(part(asked, &served, "\"one\"")),
        }
    });
    let device = open(&server.url("a.img"), hasty()).unwrap();
    assert_eq!(server.requests(), 2);
    let mut buf = [0; 512];
    device.read_at(2 * PIECE as u64, &mut buf).unwrap();
    assert_eq!(server.requests(), 3, "straight to where it was sent");
    device.read_at(4 * PIECE as u64, &mut buf).unwrap();
    assert_eq!(buf, bytes[4 * PIECE..4 * PIECE + 512]);
    assert_eq!(server.requests(), 6, "refused, sent elsewhere, read");
    device.read_at(6 * PIECE as u64, &mut buf).unwrap();
    assert_eq!(server.requests(), 7);
}

#[test]
fn user_and_password_are_sent_and_never_told() {
    let bytes = object(8 * PIECE);
    let served = bytes.clone();
    let server = Server::start(move |asked| {
        if asked.header("authorization") == Some("Basic Ym9iOnBhc3M=") {
            return Answer::Bytes(part(asked, &served, "\"one\""));
        }
        let headers = [("Content-Length", "0".to_owned())];
        Answer::Bytes(answer("401 Unauthorized", &headers, b""))
    });
    let address = server.address();
    let device = open(
        &format!("http://bob:pass@{address}/a.img?token=pass"),
        hasty(),
    )
    .unwrap();
    assert_eq!(device.name(), format!("http://{address}/a.img?..."));
    let mut buf = [0; 512];
    for piece in [3, 6] {
        let at = piece * PIECE;
        device.read_at(at as u64, &mut buf).unwrap();
        assert_eq!(buf, bytes[at..at + 512]);
    }
    // None was refused and asked again.
    assert_eq!(server.requests(), 3);
    let asked = server.asked();
    assert!(asked.iter().all(|a| a.header("authorization").is_some()));
    assert!(!format!("{device:?}").contains("bob"));
    let error = open(
        &format!("http://bob:word@{address}/a.img?token=word"),
        hasty(),
    )
    .unwrap_err();
    assert_eq!(error.errno(), 13, "{error}");
    assert!(!error.to_string().contains("word@") && !error.to_string().contains("token"));
}
