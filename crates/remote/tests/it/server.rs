//! A small HTTP server that counts requests and misbehaves as it is told.

use extant_remote::StoreSettings;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request, as far as the tests look at it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Requests before it.
    pub(crate) number: u64,
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The range asked for, cut to what there is.
    pub(crate) fn range(&self, size: u64) -> Option<Range<u64>> {
        let (first, last) = self
            .header("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        let last: u64 = last.parse().ok()?;
        Some(first.parse().ok()?..(last + 1).min(size))
    }
}

/// What the server sends, byte for byte.
pub(crate) enum Answer {
    /// Head and body.
    Bytes(Vec<u8>),
    /// These bytes, and then the connection is cut.
    Cut(Vec<u8>),
    /// The first bytes, and then these for ever.
    Endless(Vec<u8>, Vec<u8>),
    /// These bytes one by one, with this pause before each.
    Slow(Vec<u8>, Duration),
    /// The connection stays open and nothing comes.
    Silence,
}

/// An answer with a head of these lines, and a body.
pub(crate) fn answer(status: &str, headers: &[(&str, String)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// The right answer to a request for a part of `object`.
pub(crate) fn part(asked: &Asked, object: &[u8], etag: &str) -> Vec<u8> {
    let size = object.len() as u64;
    if asked
        .header("if-match")
        .is_some_and(|wanted| wanted != etag)
    {
        return answer(
            "412 Precondition Failed",
            &[("Content-Length", "0".into())],
            b"",
        );
    }
    match asked.range(size) {
        Some(range) if range.start < range.end => {
            let body = &object[range.start as usize..range.end as usize];
            let headers = [
                ("Content-Length", body.len().to_string()),
                (
                    "Content-Range",
                    format!("bytes {}-{}/{size}", range.start, range.end - 1),
                ),
                ("ETag", etag.to_owned()),
            ];
            answer("206 Partial Content", &headers, body)
        }
        Some(_) => {
            let headers = [
                ("Content-Length", "0".to_owned()),
                ("Content-Range", format!("bytes */{size}")),
            ];
            answer("416 Range Not Satisfiable", &headers, b"")
        }
        None => whole(asked, object, etag),
    }
}

/// The whole object, as servers send it that know no ranges.
pub(crate) fn whole(asked: &Asked, object: &[u8], etag: &str) -> Vec<u8> {
    let headers = [
        ("Content-Length", object.len().to_string()),
        ("ETag", etag.to_owned()),
    ];
    let body = if asked.method == "HEAD" { b"" } else { object };
    answer("200 OK", &headers, body)
}

type Rule = dyn Fn(&Asked) -> Answer + Send + Sync;

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
    at_once: AtomicU64,
    largest_transfer: AtomicU64,
    over: AtomicBool,
    asked: Mutex<Vec<Asked>>,
}

/// A server on a port of its own, which ends when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    counts: Arc<Counts>,
}

impl Server {
    /// Starts a server that answers each request by `rule`.
    pub(crate) fn start(rule: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let rule: Arc<Rule> = Arc::new(rule);
        let shared = Arc::clone(&counts);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.over.load(Ordering::Relaxed) {
                    return;
                }
                let (counts, rule) = (Arc::clone(&shared), Arc::clone(&rule));
                thread::spawn(move || stream.and_then(|stream| serve(stream, &counts, &*rule)));
            }
        });
        Self { address, counts }
    }

    /// A server of one object that does everything right.
    pub(crate) fn of(object: Vec<u8>) -> Self {
        Self::start(move |asked| Answer::Bytes(part(asked, &object, "\"one\"")))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// What makes the client of S3 ask this server, without a signature.
    pub(crate) fn settings(&self) -> StoreSettings {
        let mut settings = StoreSettings::default();
        settings.set("AWS_ENDPOINT_URL", &format!("http://{}", self.address));
        settings.set("AWS_ALLOW_HTTP", "true");
        settings.set("AWS_SKIP_SIGNATURE", "true");
        settings.set("AWS_REGION", "us-east-1");
        settings
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Bytes sent.
    pub(crate) fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// The most requests that waited for their answers at the same time.
    pub(crate) fn largest_transfer(&self) -> u64 {
        self.counts.largest_transfer.load(Ordering::Relaxed)
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.counts.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.counts.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, counts: &Counts, rule: &Rule) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let path = words.next().unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.and_then(|(_, value)| value.parse().ok());
        io::copy(
            &mut reader.by_ref().take(length.unwrap_or(0)),
            &mut io::sink(),
        )?;
        let number = counts.requests.fetch_add(1, Ordering::Relaxed);
        let asked = Asked {
            number,
            method,
            path,
            headers,
        };
        counts.asked.lock().unwrap().push(asked.clone());
        let at_once = counts.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        counts
            .largest_transfer
            .fetch_max(at_once, Ordering::Relaxed);
        let goes_on = send(rule(&asked), &mut writer, counts);
        counts.at_once.fetch_sub(1, Ordering::Relaxed);
        if !goes_on? {
            return stream.shutdown(Shutdown::Both);
        }
    }
}

/// Sends an answer, and returns whether the connection is still good for another.
fn send(answer: Answer, writer: &mut TcpStream, counts: &Counts) -> std::io::Result<bool> {
    let mut write = |bytes: &[u8]| {
        for bytes in bytes.chunks(64 << 10) {
            writer.write_all(bytes)?;
            counts
                .bytes
                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    match answer {
        Answer::Bytes(bytes) => write(&bytes).map(|()| true),
        Answer::Cut(bytes) => write(&bytes).map(|()| false),
        Answer::Endless(first, again) => {
            write(&first)?;
            while !counts.over.load(Ordering::Relaxed) {
                write(&again)?;
            }
            Ok(false)
        }
        Answer::Slow(bytes, pause) => {
            for byte in bytes {
                if counts.over.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                thread::sleep(pause);
                write(&[byte])?;
            }
            Ok(true)
        }
        Answer::Silence => {
            while !counts.over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(false)
        }
    }
}
