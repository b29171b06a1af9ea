//! Servers that misbehave: an error in bounded time and memory, or the right bytes.

use crate::server::{Answer, Asked, Server, answer, part, whole};
use crate::support::{hasty, object, read_all, soon, text};
use extant_remote::open;
use std::net::TcpListener;
use std::time::Duration;

const PIECE: usize = 64 << 10;

fn status(line: &str) -> Answer {
    Answer::Bytes(answer(line, &[("Content-Length", "0".to_owned())], b""))
}

/// The error of opening an object by this rule.
fn refused(rule: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (String, i32) {
    let server = Server::start(rule);
    let url = server.url("a.img");
    let error = soon("opening", || open(&url, hasty())).unwrap_err();
    assert!(text(&error).contains(&url), "{error}");
    (text(&error), error.errno())
}

/// The error of reading an object whose requests after the first are answered by this rule.
fn failed(rule: impl Fn(&Asked, &[u8]) -> Answer + Send + Sync + 'static) -> (String, i32) {
    let bytes = object(8 * PIECE);
    let server = Server::start(move |asked| match asked.number {
        0 => Answer::Bytes(part(asked, &bytes, "\"one\"")),
        _ => rule(asked, &bytes),
    });
    let device = open(&server.url("a.img"), hasty()).unwrap();
    let error = soon("reading", || {
        device.read_at(4 * PIECE as u64, &mut [0; 512])
    })
    .unwrap_err();
    assert!(text(&error).contains("/a.img"), "{error}");
    // What came before the fault is still there.
    device.read_at(0, &mut [0; 512]).unwrap();
    (text(&error), error.errno())
}

/// The server does `rule` twice, and right afterwards.
fn recovered(rule: impl Fn(&Asked, &[u8]) -> Answer + Send + Sync + 'static) {
    let bytes = object(8 * PIECE);
    let served = bytes.clone();
    let server = Server::start(move |asked| match asked.number {
        1 | 2 => rule(asked, &served),
        _ => Answer::Bytes(part(asked, &served, "\"one\"")),
    });
    let device = open(&server.url("a.img"), hasty()).unwrap();
    let mut buf = vec![0; 2 * PIECE];
    device.read_at(4 * PIECE as u64, &mut buf).unwrap();
    assert!(buf == bytes[4 * PIECE..6 * PIECE]);
    assert_eq!(server.requests(), 4);
}

#[test]
fn a_server_without_ranges_is_refused_with_advice_and_little_is_read() {
    let bytes = object(64 << 20);
    let server = Server::start(move |asked| Answer::Bytes(whole(asked, &bytes, "\"one\"")));
    let error = open(&server.url("a.img"), hasty()).unwrap_err();
    assert!(text(&error).contains("download"), "{error}");
    assert_eq!(error.errno(), 95);
    // What fits into the buffers of the system between here and there.
    std::thread::sleep(Duration::from_millis(100));
    assert!(server.bytes() < 16 << 20, "{} bytes", server.bytes());
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_small_object_is_read_from_a_server_without_ranges() {
    let bytes = object(PIECE);
    let served = bytes.clone();
    let server = Server::start(move |asked| Answer::Bytes(whole(asked, &served, "\"one\"")));
    let device = open(&server.url("a.img"), hasty()).unwrap();
    assert_eq!(read_all(&device).unwrap(), bytes);
}

#[test]
fn a_whole_object_in_place_of_a_later_range_is_an_error() {
    let (error, _) = failed(|asked, bytes| {
        Answer::Endless(
            answer(
                "200 OK",
                &[
                    ("ETag", "\"one\"".into()),
                    ("Content-Length", "524288".into()),
                ],
                b"",
            ),
            bytes[..asked.number as usize % 2 + 1].to_vec(),
        )
    });
    assert!(error.contains("ignores the range"), "{error}");
}

#[test]
fn missing_and_forbidden_objects_are_told_apart() {
    assert_eq!(refused(|_| status("404 Not Found")).1, 2);
    assert_eq!(refused(|_| status("403 Forbidden")).1, 13);
    let (error, _) = refused(|_| status("418 I'm a teapot"));
    assert!(error.contains("418"), "{error}");
}

#[test]
fn nobody_there_is_told_soon() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{port}/a.img");
    let options = extant_remote::RemoteOptions::default();
    let error = soon("opening", || open(&url, options)).unwrap_err();
    assert!(text(&error).contains("refused"), "{error}");
}

#[test]
fn failures_that_pass_are_tried_again() {
    recovered(|_, _| status("500 Internal Server Error"));
    recovered(|_, _| status("503 Service Unavailable"));
    recovered(|_, _| status("429 Too Many Requests"));
    recovered(|_, _| Answer::Cut(Vec::new()));
    recovered(|_, _| Answer::Cut(b"HTTP/1.1 206 Part".to_vec()));
    recovered(|_, _| Answer::Silence);
    // Cut in the middle: what came is kept, and the rest is asked for.
    recovered(|asked, bytes| {
        let mut answer = part(asked, bytes, "\"one\"");
        answer.truncate(answer.len() - 1000);
        Answer::Cut(answer)
    });
}

#[test]
fn what_came_before_a_cut_is_not_fetched_again() {
    let bytes = object(32 * PIECE);
    let served = bytes.clone();
    let server = Server::start(move |asked| {
        let mut answer = part(asked, &served, "\"one\"");
        if asked.number == 0 {
            return Answer::Bytes(answer);
        }
        answer.truncate(answer.len().min(10 * PIECE));
        Answer::Cut(answer)
    });
    let device = open(&server.url("a.img"), hasty()).unwrap();
    let mut buf = vec![0; 30 * PIECE];
    device.read_at(PIECE as u64, &mut buf).unwrap();
    assert!(buf == bytes[PIECE..31 * PIECE]);
    assert!(server.bytes() < 34 * PIECE as u64);
}

#[test]
fn failures_that_stay_end_in_time() {
    let (error, _) = failed(|_, _| status("500 Internal Server Error"));
    assert!(
        error.contains("500") && error.contains("attempts"),
        "{error}"
    );
    let (error, _) = failed(|_, _| Answer::Silence);
    assert!(
        error.contains("too long") || error.contains("no answer"),
        "{error}"
    );
    failed(|_, _| Answer::Cut(Vec::new()));
    failed(|asked, bytes| {
        let mut answer = part(asked, bytes, "\"one\"");
        answer.truncate(200);
        Answer::Cut(answer)
    });
    let long = [
        ("Retry-After", "86400".to_owned()),
        ("Content-Length", "0".to_owned()),
    ];
    failed(move |_, _| Answer::Bytes(answer("503 Service Unavailable", &long, b"")));
}

#[test]
fn slow_heads_and_endless_heads_end() {
    failed(|asked, bytes| Answer::Slow(part(asked, bytes, "\"one\""), Duration::from_millis(100)));
    let head = || b"HTTP/1.1 206 Partial Content\r\n".to_vec();
    failed(move |_, _| Answer::Endless(head(), b"X-More: 0123456789\r\n".to_vec()));
    failed(move |_, _| Answer::Endless(b"HTTP/1.1 206 ".to_vec(), b"Partial ".to_vec()));
    refused(|_| Answer::Endless(Vec::new(), b"noise".to_vec()));
}

#[test]
fn endless_bodies_of_any_kind_are_cut() {
    failed(|asked, bytes| {
        let mut answer = part(asked, bytes, "\"one\"");
        // No length: until the connection ends.
        let text = String::from_utf8_lossy(&answer).replacen("Content-Length", "X-Length", 1);
        answer = text.into_bytes();
        Answer::Endless(answer, vec![7; 4096])
    });
    failed(|_, _| {
        let chunked = [("Transfer-Encoding", "chunked".to_owned())];
        Answer::Endless(answer("500 Oh", &chunked, b""), b"5\r\nhello\r\n".to_vec())
    });
    refused(|_| {
        let headers = [("Content-Length", "99999999999".to_owned())];
        Answer::Endless(answer("404 Not Found", &headers, b""), vec![b'x'; 4096])
    });
}

#[test]
fn another_range_than_the_one_asked_for_is_refused() {
    let lie = |range: &str| {
        let headers = [
            ("Content-Range", range.to_owned()),
            ("Content-Length", PIECE.to_string()),
            ("ETag", "\"one\"".to_owned()),
        ];
        answer("206 Partial Content", &headers, &[0; PIECE])
    };
    for range in [
        "bytes 0-65535/524288",
        "bytes 262144-262655/524288",
        "pages 1-2/3",
        "bytes 9-1/4",
    ] {
        let bytes = lie(range);
        let (error, _) = failed(move |_, _| Answer::Bytes(bytes.clone()));
        assert!(error.contains("makes no sense"), "{range}: {error}");
    }
    let none = [("Content-Length", "3".to_owned())];
    let bytes = answer("206 Partial Content", &none, b"abc");
    let (error, _) = refused(move |_| Answer::Bytes(bytes.clone()));
    assert!(error.contains("Content-Range"), "{error}");
    let bytes = lie("bytes 5-65540/524288");
    refused(move |_| Answer::Bytes(bytes.clone()));
}

#[test]
fn sizes_beyond_all_reason_are_no_panic() {
    let claim = |size: u64| {
        move |asked: &Asked| {
            let range = asked.range(size).unwrap();
            let headers = [
                (
                    "Content-Range",
                    format!("bytes {}-{}/{size}", range.start, range.end - 1),
                ),
                ("Content-Length", (range.end - range.start).to_string()),
            ];
            let body = vec![0; (range.end - range.start) as usize];
            Answer::Bytes(answer("206 Partial Content", &headers, &body))
        }
    };
    refused(claim(u64::MAX));
    refused(claim((1 << 62) + 1));
    let size = 1 << 62;
    let server = Server::start(claim(size));
    let device = open(&server.url("a.img"), hasty()).unwrap();
    device.read_at(size - 1, &mut [0]).unwrap();
    device.prefetch(&[size - 10..u64::MAX, u64::MAX - 1..u64::MAX]);
    assert!(device.read_at(size - 1, &mut [0; 2]).is_err());
}

#[test]
fn compressed_answers_are_refused() {
    let (error, _) = refused(|_| {
        let headers = [
            ("Content-Range", "bytes 0-2/3".to_owned()),
            ("Content-Encoding", "gzip".to_owned()),
            ("Content-Length", "3".to_owned()),
        ];
        Answer::Bytes(answer("206 Partial Content", &headers, b"abc"))
    });
    assert!(error.contains("gzip"), "{error}");
}

#[test]
fn a_changed_object_is_told_however_the_server_says_it() {
    // By the precondition, by its ETag, by its size, and by the end of it.
    for (etag, len) in [
        ("\"two\"", 8),
        ("\"one\"", 9),
        ("\"one\"", 6),
        ("\"one\"", 2),
    ] {
        let (error, errno) = failed(move |asked, _| {
            let mut asked = asked.clone();
            asked
                .headers
                .retain(|(name, _)| name != "if-match" || etag == "\"one\"");
            Answer::Bytes(part(&asked, &object(len * PIECE), etag))
        });
        assert!(error.contains("changed"), "{etag} {len}: {error}");
        assert_eq!(errno, 116);
    }
    let (error, _) = failed(|asked, bytes| Answer::Bytes(part(asked, bytes, "\"two\"")));
    assert!(error.contains("another version"), "{error}");
}

#[test]
fn redirects_without_end_and_to_nowhere_are_errors() {
    let moved = |to: &str| {
        let headers = [
            ("Location", to.to_owned()),
            ("Content-Length", "0".to_owned()),
        ];
        Answer::Bytes(answer("302 Found", &headers, b""))
    };
    let (error, _) = refused(move |_| moved("/a.img"));
    assert!(error.contains("redirects"), "{error}");
    refused(move |_| moved("http://"));
    refused(move |_| moved("ftp://127.0.0.1/a"));
    refused(|_| status("302 Found"));
}

#[test]
fn urls_that_name_nothing_are_refused_without_asking() {
    for url in [
        "http://",
        "s3://bucket",
        "s3://bucket/a/../b",
        "gs://bucket:80/a",
        "ftp://host/x",
        "nonsense",
    ] {
        let error = open(url, hasty()).unwrap_err();
        assert_eq!(error.errno(), 22, "{error}");
    }
}

#[test]
fn a_server_that_asks_for_any_pause_is_given_up() {
    let server = Server::start(|asked| {
        // The largest on top of a second.
        let pause = if asked.number == 0 { 1 } else { u64::MAX };
        let headers = [
            ("Content-Length", "0".to_owned()),
            ("Retry-After", pause.to_string()),
        ];
        Answer::Bytes(answer("503 Service Unavailable", &headers, b""))
    });
    let error = soon("a pause", || open(&server.url("a.img"), hasty())).unwrap_err();
    assert!(text(&error).contains("503"), "{error}");
    assert_eq!(server.requests(), 2);
}
