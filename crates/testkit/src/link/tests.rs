//! Links over servers of the tests' own.

use super::*;
use std::os::unix::net::UnixListener;

/// A web server that answers each request with so many bytes.
fn web_server(folder: &Path, bytes: usize) -> PathBuf {
    let path = folder.join("server");
    let listener = UnixListener::bind(&path).expect("a socket");
    // It ends with the process.
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || answer(&client, bytes));
        }
    });
    path
}

fn answer(mut client: &UnixStream, bytes: usize) {
    let mut asked = Vec::new();
    let mut byte = [0];
    while client.read(&mut byte).is_ok_and(|n| n == 1) {
        asked.push(byte[0]);
        if asked.ends_with(b"\r\n\r\n") {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
            let content = if asked.starts_with(b"HEAD") { 0 } else { bytes };
            let all = [head.as_bytes(), &vec![b'x'; content]].concat();
            if client.write_all(&all).is_err() {
                return;
            }
            asked.clear();
        }
    }
}

/// Asks over a connection that is there, and takes the answer.
fn ask(mut client: &TcpStream, method: &str, content: usize) {
    let request = format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(request.as_bytes()).expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("an answer");
        head.extend(byte);
    }
    client.read_exact(&mut vec![0; content]).expect("content");
}

fn connect(link: &Link) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, link.port())).expect("a connection")
}

fn long(millis: u64) -> Speed {
    Speed {
        round_trip: Duration::from_millis(millis),
        bytes_per_second: None,
    }
}

#[test]
fn connecting_and_each_request_take_a_round_trip() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = web_server(folder.path(), 100);
    let link = Link::open(Protocol::Http, &server, long(40)).expect("a link");
    let began = Instant::now();
    let client = connect(&link);
    ask(&client, "GET", 100);
    assert!(began.elapsed() >= Duration::from_millis(80));
    ask(&client, "HEAD", 0);
    ask(&client, "GET", 100);
    assert!(began.elapsed() >= Duration::from_millis(160));
    let counts = link.counts().expect("counted");
    assert_eq!((counts.round_trips, counts.to_connect), (4, 1));
    assert_eq!((counts.requests, counts.most_under_way), (3, 1));
    // Three headers of 40 bytes, and what was asked for twice.
    assert_eq!(counts.to_client, 3 * 40 + 2 * 100);
    assert_eq!(counts.to_server, 2 * 27 + 28);
}

#[test]
fn requests_of_several_connections_are_under_way_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = web_server(folder.path(), 10);
    let link = Link::open(Protocol::Http, &server, long(200)).expect("a link");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| ask(&connect(&link), "GET", 10));
        }
    });
    let counts = link.counts().expect("counted");
    assert_eq!((counts.requests, counts.round_trips), (4, 2));
    assert_eq!(counts.most_under_way, 4);
}

#[test]
fn a_link_carries_so_many_bytes_a_second() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = web_server(folder.path(), 1 << 20);
    let speed = Speed {
        round_trip: Duration::ZERO,
        bytes_per_second: Some(4.0 * 1_048_576.0),
    };
    let link = Link::open(Protocol::Http, &server, speed).expect("a link");
    let began = Instant::now();
    ask(&connect(&link), "GET", 1 << 20);
    assert!(began.elapsed() >= Duration::from_millis(250));
}

#[test]
fn a_server_that_is_not_there_ends_the_connection_and_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let nothing = folder.path().join("nothing");
    let link = Link::open(Protocol::Http, &nothing, long(0)).expect("a link");
    let mut client = connect(&link);
    assert_eq!(client.read(&mut [0]).expect("the end"), 0);
    let told = link.counts().expect_err("told");
    assert!(told.contains("no connection to the server"), "{told}");
}

#[test]
fn a_link_ends_with_clients_still_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = web_server(folder.path(), 10);
    let link = Link::open(Protocol::Http, &server, long(0)).expect("a link");
    let mut client = connect(&link);
    ask(&client, "GET", 10);
    drop(link);
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
}

/// Feeds what a client and a server say by turns, cut into pieces of so many bytes.
fn overheard(
    (mut client, mut server): (Messages, Messages),
    said: &[(Way, Vec<u8>)],
    piece: usize,
) -> Result<Counts, String> {
    let mut ledger = Ledger::default();
    for (way, bytes) in said {
        let messages = match way {
            Way::ToServer => &mut client,
            Way::ToClient => &mut server,
        };
        for some in bytes.chunks(piece) {
            messages.take(some, &mut ledger)?;
        }
    }
    ledger.counts()
}

/// An option with its data.
fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let numbers = [number, data.len() as u32].map(u32::to_be_bytes).concat();
    [&b"IHAVEOPT"[..], &numbers[..], data].concat()
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
    let numbers = [option, kind, data.len() as u32].map(u32::to_be_bytes);
    [&magic[..], &numbers.concat()[..], data].concat()
}

fn request(command: u16, cookie: u64, len: u32, data: &[u8]) -> Vec<u8> {
    [
        &0x2560_9513_u32.to_be_bytes()[..],
        &[0, 0],
        &command.to_be_bytes(),
        &cookie.to_be_bytes(),
        &0_u64.to_be_bytes(),
        &len.to_be_bytes(),
        data,
    ]
    .concat()
}

fn simple_reply(cookie: u64, data: &[u8]) -> Vec<u8> {
    [
        &0x6744_6698_u32.to_be_bytes()[..],
        &[0; 4],
        &cookie.to_be_bytes(),
        data,
    ]
    .concat()
}

fn chunk(cookie: u64, is_last: bool, data: &[u8]) -> Vec<u8> {
    [
        &0x668e_33ef_u32.to_be_bytes()[..],
        &u16::from(is_last).to_be_bytes(),
        &1_u16.to_be_bytes(),
        &cookie.to_be_bytes(),
        &(data.len() as u32).to_be_bytes(),
        data,
    ]
    .concat()
}

fn nbd_talk() -> Vec<(Way, Vec<u8>)> {
    use Way::{ToClient, ToServer};
    // Content that looks like a header.
    let data = request(9, 9, 9, b"");
    vec![
        (ToClient, b"NBDMAGICIHAVEOPT\0\x03".to_vec()),
        (ToServer, [&[0, 0, 0, 3][..], &option(8, b"")[..]].concat()),
        (ToClient, option_reply(8, 1, b"")),
        (ToServer, option(7, b"\0\0\0\0\0\0")),
        (ToClient, option_reply(7, 3, &[0; 12])),
        (ToClient, option_reply(7, 1, b"")),
        (
            ToServer,
            [request(0, 1, 28, b""), request(0, 2, 28, b"")].concat(),
        ),
        (ToClient, chunk(2, false, &data)),
        (
            ToClient,
            [simple_reply(1, &data), chunk(2, true, b"")].concat(),
        ),
        (ToServer, request(1, 3, 28, &data)),
        (ToClient, simple_reply(3, b"")),
        (ToServer, request(2, 4, 0, b"")),
    ]
}

#[test]
fn a_talk_of_nbd_is_understood_however_it_is_cut() {
    for piece in [1, 7, 1 << 20] {
        let counts = overheard(nbd::conversation(1), &nbd_talk(), piece).expect("understood");
        // The connection, the greeting, two options, the reads, the write.
        assert_eq!((counts.round_trips, counts.to_connect), (6, 4), "{piece}");
        assert_eq!((counts.requests, counts.most_under_way), (3, 2), "{piece}");
    }
}

#[test]
fn what_is_not_understood_is_an_error() {
    use Way::{ToClient, ToServer};
    for (at, (way, what), expected) in [
        (
            0,
            (
                ToClient,
                b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0".to_vec(),
            ),
            "newstyle",
        ),
        (2, (ToServer, option(5, b"")), "option 5"),
        (6, (ToServer, b"GET /".to_vec()), "begins with 0x47455420"),
        (7, (ToClient, simple_reply(7, b"")), "was not made"),
        (7, (ToClient, chunk(7, true, b"")), "was not made"),
        (7, (ToClient, b"HTTP".to_vec()), "begins with"),
    ] {
        let mut talk = nbd_talk();
        talk.truncate(at);
        talk.push((way, what));
        let told = overheard(nbd::conversation(1), &talk, 5).expect_err("not understood");
        assert!(told.contains(expected), "{told}");
    }
    for (answer, expected) in [
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "without a length",
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", "without a length"),
        ("HTTP/1.0 200 OK\r\n\r\n", "begins with HTTP/1.0"),
    ] {
        let asked = (ToServer, b"GET / HTTP/1.1\r\n\r\n".to_vec());
        let talk = [asked, (ToClient, answer.as_bytes().to_vec())];
        let told = overheard(http::conversation(1), &talk, 5).expect_err("not understood");
        assert!(told.contains(expected), "{told}");
    }
}
