//! `remote`: images behind servers, over links with delays, and in formats of disk images, used by
//! the command `extant` as a process of its own.
//!
//! | variant | work |
//! |---|---|
//! | `first-byte-nbd-*`, `first-byte-http-*` | time until the first byte of a small file comes out of an image of 10 GiB with many files, behind nbdkit or nginx |
//! | `copy-out-*`, `copy-in-*` | `cp -a` of many small files out of and into an image behind nbdkit |
//! | `stream-read`, `stream-write` | a large file out of and into an image behind nbdkit on a Unix socket; of `nbdcopy` an export out of and into a file |
//! | `stream-convert` | a disk with holes behind nbdkit on a Unix socket into a file |
//! | `qcow2-in`, `qcow2-out`, `simg-in`, `simg-out` | such a disk from and to a format |
//!
//! The end of a name says how long a round trip takes. A link with a delay carries 125 MB a second
//! each way, all connections together.
//!
//! | file | owns |
//! |---|---|
//! | `first_byte` | the first byte of a small file |
//! | `copies` | many small files |
//! | `streams` | one large file, and formats |

mod copies;
mod first_byte;
mod streams;

use crate::args::{Config, Side};
use crate::command::Extant;
use crate::peer::{Figures, Measured};
use crate::server::{self, Server};
use crate::store::Store;
use crate::workload::{Case, Shape, Workload};
use copies::{Copies, Direction};
use extant_testkit::link::{Counts, Link, Protocol, Speed};
use first_byte::FirstByte;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use streams::{Stream, Streams};

/// Bytes that a link with a delay carries in a second: 1 Gbit.
const LINK: f64 = 125e6;

/// What a variant does.
#[derive(Clone, Copy)]
enum Work {
    FirstByte(Protocol),
    Copy(Direction),
    Stream(Stream),
}

/// What is measured: its name, what is done, and the milliseconds of a round trip.
const VARIANTS: [(&str, Work, u64); 19] = [
    ("first-byte-nbd-0ms", Work::FirstByte(Protocol::Nbd), 0),
    ("first-byte-nbd-1ms", Work::FirstByte(Protocol::Nbd), 1),
    ("first-byte-nbd-20ms", Work::FirstByte(Protocol::Nbd), 20),
    ("first-byte-http-0ms", Work::FirstByte(Protocol::Http), 0),
    ("first-byte-http-1ms", Work::FirstByte(Protocol::Http), 1),
    ("first-byte-http-20ms", Work::FirstByte(Protocol::Http), 20),
    ("copy-out-0ms", Work::Copy(Direction::Out), 0),
    ("copy-out-1ms", Work::Copy(Direction::Out), 1),
    ("copy-out-20ms", Work::Copy(Direction::Out), 20),
    ("copy-in-0ms", Work::Copy(Direction::In), 0),
    ("copy-in-1ms", Work::Copy(Direction::In), 1),
    ("copy-in-20ms", Work::Copy(Direction::In), 20),
    ("stream-read", Work::Stream(Stream::Read), 0),
    ("stream-write", Work::Stream(Stream::Write), 0),
    ("stream-convert", Work::Stream(Stream::Convert), 0),
    ("qcow2-in", Work::Stream(Stream::FromQcow2), 0),
    ("qcow2-out", Work::Stream(Stream::ToQcow2), 0),
    ("simg-in", Work::Stream(Stream::FromSimg), 0),
    ("simg-out", Work::Stream(Stream::ToSimg), 0),
];

/// The names alone.
const NAMES: [&str; VARIANTS.len()] = {
    let mut names = [""; VARIANTS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = VARIANTS[at].0;
        at += 1;
    }
    names
};

/// See the module.
pub(crate) struct Remote {
    place: Place,
    first_byte: FirstByte,
    copies: Copies,
    streams: Streams,
    /// Peers that this machine does not have.
    missing: Vec<Side>,
}

impl Remote {
    /// Finds the command and makes the scratch folder. Names the peers that this machine does not
    /// have.
    ///
    /// # Errors
    /// Without a command that is up to date.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let place = Place::new(config)?;
        let is_asked = |side: &Side| match &config.against {
            _ if config.engine_only => false,
            None => true,
            Some(asked) => asked.contains(side),
        };
        let mut missing = Vec::new();
        for (side, why) in [
            (Side::Guestfish, guestfish_is_missing()),
            (Side::QemuNbd, first_byte::kernel_is_missing()),
        ] {
            let Some(why) = why else { continue };
            if is_asked(&side) {
                eprintln!("remote: skipped: {}: {why}", side.name());
            }
            missing.push(side);
        }
        Ok(Self {
            place,
            first_byte: FirstByte::new(config.image_files),
            copies: Copies::new(config.copied, config.peer_copied.unwrap_or(config.copied)),
            streams: Streams::new(config.stream_mib),
            missing,
        })
    }
}

/// Looks for the command, before others are measured for an hour.
///
/// # Errors
/// Without a command that is up to date, with what to do.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    Extant::find(config.extant.as_deref()).map(drop)
}

fn guestfish_is_missing() -> Option<&'static str> {
    (!server::is_installed("guestfish")).then_some("it is not installed")
}

/// What a variant does, and how long a round trip takes.
fn variant(name: &str) -> Result<(Work, Speed), String> {
    let found = VARIANTS.iter().find(|(known, ..)| *known == name);
    let (_, work, millis) = found.ok_or_else(|| format!("remote has no variant {name}"))?;
    let speed = Speed {
        round_trip: Duration::from_millis(*millis),
        bytes_per_second: (*millis > 0).then_some(LINK),
    };
    Ok((*work, speed))
}

impl Workload for Remote {
    fn name(&self) -> &'static str {
        "remote"
    }

    fn shape(&self) -> Shape {
        Shape {
            peers: &[
                Side::Nbdfuse,
                Side::Guestfish,
                Side::QemuNbd,
                Side::Nbdcopy,
                Side::QemuImg,
                Side::Img2simg,
                Side::Simg2img,
            ],
            variants: &NAMES,
            unit: "s",
            better: "lower",
            workers: &[1],
            peers_have_workers: true,
        }
    }

    fn unit(&self, name: &str) -> Option<(&'static str, &'static str)> {
        match variant(name) {
            Ok((Work::FirstByte(_), _)) => Some(("ms", "lower")),
            Ok((Work::Stream(_), _)) => Some(("MB/s", "higher")),
            _ => None,
        }
    }

    fn does(&self, side: Side, name: &str) -> bool {
        let Ok((work, _)) = variant(name) else {
            return false;
        };
        let peers: &[Side] = match work {
            Work::FirstByte(_) => &[Side::Nbdfuse, Side::Guestfish, Side::QemuNbd],
            Work::Copy(_) => &[Side::Nbdfuse],
            Work::Stream(stream) => stream.peers(),
        };
        side == Side::Engine || (peers.contains(&side) && !self.missing.contains(&side))
    }

    fn options(&self, case: &Case) -> String {
        // Names say how long a link is: what is the same at all lengths is told once.
        const LINK: &str = "over a link of this delay, and of 125 MB/s where it has one";
        match variant(case.variant) {
            Ok((Work::FirstByte(protocol), _)) => {
                let work = self.first_byte.options(case.side, protocol);
                format!("{work}; {LINK}")
            }
            Ok((Work::Copy(direction), _)) => {
                let work = self.copies.options(case.side, direction);
                format!("{work}; {LINK}")
            }
            Ok((Work::Stream(stream), _)) => self.streams.options(case.side, stream),
            Err(_) => String::new(),
        }
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        if case.workers != 1 {
            return Err(
                "remote measures one program at a time: leave --workers away, or say 1".to_owned(),
            );
        }
        let (work, speed) = variant(case.variant)?;
        let place = &self.place;
        match work {
            Work::FirstByte(protocol) => self.first_byte.run(place, case.side, protocol, speed),
            Work::Copy(direction) => self.copies.run(place, case.side, direction, speed),
            Work::Stream(stream) => self.streams.run(place, case.side, stream),
        }
    }
}

/// Where files and sockets lie, and the command.
struct Place {
    store: Store,
    /// Sockets and what servers say.
    serving: PathBuf,
    extant: Extant,
}

impl Place {
    fn new(config: &Config) -> Result<Self, String> {
        let extant = Extant::find(config.extant.as_deref())?;
        let store = Store::new(&config.dir).map_err(|e| format!("scratch folder: {e}"))?;
        let serving = store.path("serving");
        fs::create_dir(&serving).map_err(|e| format!("{}: {e}", serving.display()))?;
        Ok(Self {
            store,
            serving,
            extant,
        })
    }

    /// Serves an image over a link.
    fn behind_a_link(
        &self,
        protocol: Protocol,
        image: &Path,
        is_writable: bool,
        speed: Speed,
    ) -> Result<Far, String> {
        let server = Server::of(protocol, &self.serving, image, is_writable)?;
        let link = Link::open(protocol, server.socket(), speed)?;
        let port = link.port();
        let name = image.file_name().unwrap_or_default().to_string_lossy();
        let address = match protocol {
            Protocol::Nbd => format!("nbd://127.0.0.1:{port}/"),
            Protocol::Http => format!("http://127.0.0.1:{port}/{name}"),
        };
        Ok(Far {
            address,
            link,
            _server: server,
        })
    }

    /// The path of a file that is not there.
    fn free(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.store.path(name);
        let removed = match path.symlink_metadata() {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(_) => Ok(()),
        };
        match removed {
            Ok(()) => Ok(path),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }
}

/// A server behind a link, until this is dropped.
struct Far {
    /// Where clients find it.
    address: String,
    // The link goes first: a server waits for its clients to leave.
    link: Link,
    _server: Server,
}

impl Far {
    /// What went over the link.
    fn counts(&self) -> Result<Counts, String> {
        self.link.counts()
    }
}

/// What was counted, by names.
fn figures(counts: &Counts) -> Figures {
    let bytes = counts.to_server + counts.to_client;
    Figures::from([
        ("round trips", counts.round_trips as f64),
        ("round trips to connect", counts.to_connect as f64),
        ("requests", counts.requests as f64),
        ("most requests under way", counts.most_under_way as f64),
        ("MiB moved", bytes as f64 / 1_048_576.0),
    ])
}

/// The seconds that a link with a delay allows for bytes each way and for requests, whichever take
/// longer: as if as many requests had been under way all the time as there were at most.
fn allowed(counts: &Counts, speed: Speed) -> Option<f64> {
    let rate = speed.bytes_per_second?;
    let carrying = counts.to_server.max(counts.to_client) as f64 / rate;
    let together = counts.most_under_way.max(1) as f64;
    let waiting = counts.requests as f64 / together * speed.round_trip.as_secs_f64();
    Some(carrying.max(waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_long_a_round_trip_takes() {
        for (name, work, millis) in VARIANTS {
            let said = name.rsplit_once('-').map_or("", |(_, end)| end);
            match work {
                Work::Stream(_) => assert!(!said.ends_with("ms"), "{name}"),
                _ => assert_eq!(said, format!("{millis}ms"), "{name}"),
            }
        }
    }

    #[test]
    fn a_link_allows_what_its_bytes_or_its_requests_take() {
        let speed = Speed {
            round_trip: Duration::from_millis(20),
            bytes_per_second: Some(LINK),
        };
        let counts = Counts {
            round_trips: 10,
            to_connect: 3,
            requests: 3200,
            to_server: 1000,
            to_client: 125_000_000,
            most_under_way: 32,
        };
        // A hundred times 20 ms are two seconds, the bytes take one.
        let is_about = |found: Option<f64>, seconds: f64| {
            found.is_some_and(|found| (found - seconds).abs() < 1e-9)
        };
        assert!(is_about(allowed(&counts, speed), 2.0));
        let few = Counts {
            requests: 32,
            ..counts
        };
        assert!(is_about(allowed(&few, speed), 1.0));
        assert_eq!(allowed(&counts, Speed::default()), None);
    }
}
