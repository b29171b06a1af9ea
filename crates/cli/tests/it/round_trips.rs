//! How many round trips it takes until the first byte of a small file of a large image is there,
//! behind servers that are far.

use crate::support::{Place, extant_with};
use extant::{Filesystem, MountOptions};
use extant_blockdev::FileOptions;
use extant_testkit::link::{Counts, Link, Protocol, Speed};
use extant_testkit::nginx;
use extant_testkit::oracle::mke2fs;
use extant_testkit::tool::tool;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The size of the image, in bytes, and how many inodes it has.
const SIZE: u64 = 10 << 30;
const INODES: u64 = 1_130_000;
/// Directories in the root, and files in that in the middle, which one is looked for in.
const DIRS: u64 = 1000;
const FILES: u64 = 1000;

const MOST_ROUND_TRIPS: u64 = 8;
const MOST_BYTES: u64 = 1 << 20;

/// Long enough that requests that are sent one after the other, without waiting for an answer, are
/// under way together also where the processors are busy.
const SPEED: Speed = Speed {
    round_trip: Duration::from_millis(40),
    bytes_per_second: None,
};

fn content(number: u64) -> Vec<u8> {
    format!("This is file {number}.\n").repeat(100).into_bytes()
}

/// An image of the size, in which the directory in the middle has many files. Returns a path in it.
fn image(place: &Place) -> (String, u64) {
    let image = place.join("far.img");
    mke2fs(&image, SIZE, &["-N", &INODES.to_string()]);
    let device = FileOptions::read_write().open(&image).expect("a device");
    let options = MountOptions::read_write().background(false);
    let fs = Filesystem::open_device(Arc::new(device), options).expect("it opens");
    for dir in 0..DIRS {
        let path = format!("/d{dir:05}");
        fs.create_dir(&path).expect("a directory");
        let files = if dir == DIRS / 2 { FILES } else { 2 };
        for number in 0..files {
            fs.write(format!("{path}/f{number:04}"), content(number))
                .expect("a file");
        }
    }
    fs.close().expect("closed");
    let wanted = FILES / 2;
    (format!("/d{:05}/f{wanted:04}", DIRS / 2), wanted)
}

/// Has `extant cat` read the file over a link.
fn measure(protocol: Protocol, socket: &Path, rest: &str, wanted: u64) -> Counts {
    let link = Link::open(protocol, socket, SPEED).expect("a link");
    let scheme = match protocol {
        Protocol::Nbd => "nbd",
        Protocol::Http => "http",
    };
    let address = format!("{scheme}://127.0.0.1:{}/{rest}", link.port());
    let run = extant_with(["cat", &address], |command| {
        command.env_remove("EXTANT_CACHE_DIR");
        command.env("NO_PROXY", "127.0.0.1");
    })
    .ok();
    assert_eq!(run.stdout, content(wanted));
    let counts = link.counts().expect("all of it is understood");
    eprintln!("{scheme}: {counts:?}");
    counts
}

fn judge(counts: &Counts) {
    assert!(counts.round_trips <= MOST_ROUND_TRIPS, "{counts:?}");
    let bytes = counts.to_server + counts.to_client;
    assert!(bytes <= MOST_BYTES, "{counts:?}");
}

#[test]
fn the_first_byte_of_a_file_takes_few_round_trips_over_nbd_and_http() {
    let place = Place::new();
    let (path, wanted) = image(&place);
    let socket = place.join("nbd");
    let mut nbdkit = tool("nbdkit")
        .args(["-f", "-r", "-U", &place.arg("nbd"), "file"])
        .args([place.arg("far.img")])
        .background(&place.join("nbdkit.log"));
    nbdkit.wait_for_socket(&socket);
    let over_nbd = measure(Protocol::Nbd, &socket, &format!(":{path}"), wanted);
    judge(&over_nbd);
    // Connecting, and all of the negotiation with the greeting.
    assert_eq!(over_nbd.to_connect, 2, "{over_nbd:?}");

    let _nginx = nginx::on_socket(place.path());
    let socket = place.join("http");
    let rest = format!("far.img:{path}");
    judge(&measure(Protocol::Http, &socket, &rest, wanted));
}
