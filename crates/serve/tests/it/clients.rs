//! Clients that keep to the protocol: those of others, and ours.

use super::Running;
use extant_blockdev::{
    BlockDevice, DeviceError, DeviceResult, FileDevice, MemoryDevice, NbdAddress, NbdDevice,
    NbdOptions, NbdTransport,
};
use extant_serve::{Listen, NbdServer, ServeError, ServeOptions};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const SIZE: u64 = 8 << 20;

fn named(name: &str) -> ServeOptions {
    ServeOptions {
        name: name.to_owned(),
        ..ServeOptions::default()
    }
}

fn connect(running: &Running, name: &str) -> NbdDevice {
    let address = NbdAddress {
        transport: NbdTransport::Unix(running.socket()),
        export: name.to_owned(),
        tls: false,
    };
    let options = NbdOptions::read_write().reconnect_for(Duration::ZERO);
    NbdDevice::connect(&address, options).expect("the export opens")
}

#[test]
fn nbdinfo_shows_the_export_and_what_it_can_do() {
    let running = Running::new(MemoryDevice::new(SIZE), named("disk"));
    let info = tool("nbdinfo").arg("--json").arg(running.uri("disk")).ok();
    let text = info.text();
    for said in [
        "\"export-size\": 8388608",
        "\"structured\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"can_fua\": true",
        "\"can_flush\": true",
        "\"can_df\": true",
        "\"is_read_only\": false",
        "\"base:allocation\"",
        "\"block_size_minimum\": 1",
        "\"block_size_maximum\": 33554432",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let list = tool("nbdinfo")
        .arg("--list")
        .arg(running.uri(""))
        .ok()
        .text();
    assert!(list.contains("export=\"disk\""), "{list}");
    let other = tool("nbdinfo").arg(running.uri("other")).run();
    assert_ne!(other.code, 0);
    assert!(
        other.to_string().contains("No such file or directory"),
        "{other}"
    );
}

#[test]
fn nbdcopy_copies_in_and_out_and_sees_holes() {
    let dir = TempDir::new().expect("a directory");
    let (path, source, copy) = (
        dir.path().join("served"),
        dir.path().join("source"),
        dir.path().join("copy"),
    );
    let mut data = vec![0; SIZE as usize];
    Rng::new(7).fill(&mut data[1 << 20..3 << 20]);
    std::fs::write(&source, &data).expect("a source");
    let device = FileDevice::create(&path, SIZE).expect("a file");
    let running = Running::new(device, ServeOptions::default());
    for connections in ["1", "4"] {
        let args = ["--flush", "--connections", connections];
        let into = tool("nbdcopy").args(args).arg(&source);
        into.arg(running.uri("")).ok();
        assert!(std::fs::read(&path).expect("the file") == data);
        let out = tool("nbdcopy").args(args).arg(running.uri(""));
        out.arg(&copy).ok();
        assert!(std::fs::read(&copy).expect("the copy") == data);
    }
    tool("nbdcopy")
        .arg("--destination-is-zero")
        .arg(&source)
        .arg(running.uri(""))
        .ok();
    let map = tool("nbdinfo")
        .args(["--map", "--totals"])
        .arg(running.uri(""));
    let map = map.ok().text();
    assert!(map.contains("data") && map.contains("hole,zero"), "{map}");
}

#[test]
fn qemu_compares_writes_discards_and_zeroes() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("served");
    let device = FileDevice::create(&path, SIZE).expect("a file");
    let running = Running::new(device, named("x"));
    let url = format!("nbd+unix:///x?socket={}", running.socket().display());
    let commands = [
        "write -P 0x11 0 1M",
        "write -P 0x22 1M 4k",
        "write -f -P 0x33 3000000 12345",
        "write -z 512k 64k",
        "write -z -u 600k 64k",
        "discard 1M 4k",
        "flush",
        "read -P 0x11 0 512k",
        "read -P 0 512k 64k",
        "read -P 0 600k 64k",
        "read -P 0 1M 4k",
        "read -P 0x33 3000000 12345",
    ];
    let mut io = tool("qemu-io").args(["-f", "raw", "-d", "unmap"]);
    for command in commands {
        io = io.args(["-c", command]);
    }
    let said = io.arg(&url).ok().text();
    assert!(!said.contains("failed"), "{said}");
    let compare = tool("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]);
    compare.arg(&path).arg(&url).ok();
    let out = dir.path().join("out.qcow2");
    let convert = tool("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2"]);
    convert.arg(&url).arg(&out).ok();
    let compare = tool("qemu-img").args(["compare", "-f", "raw", "-F", "qcow2"]);
    compare.arg(&path).arg(&out).ok();
}

#[test]
fn random_changes_of_several_threads_are_in_the_file() {
    let seed = seed_from_env("served file");
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("served");
    let device = FileDevice::create(&path, SIZE).expect("a file");
    let running = Running::new(device, ServeOptions::default());
    let client = connect(&running, "");
    const PART: usize = SIZE as usize / 4;
    let models: Vec<Vec<u8>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let client = &client;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed + thread);
                    let base = thread * PART as u64;
                    let mut model = vec![0; PART];
                    for round in 0..120 {
                        let at = rng.below(PART as u64) as usize;
                        let len = rng.below(300_000.min(PART as u64 - at as u64) + 1) as usize;
                        let place = base + at as u64;
                        match rng.below(5) {
                            0 | 1 => {
                                rng.fill(&mut model[at..at + len]);
                                client
                                    .write_at(place, &model[at..at + len])
                                    .expect("a write");
                            }
                            2 => {
                                model[at..at + len].fill(0);
                                client.zero(place, len as u64).expect("zeroes");
                            }
                            3 => client.flush().expect("a flush"),
                            _ => {
                                let mut got = vec![1; len];
                                client.read_at(place, &mut got).expect("a read");
                                assert!(got == model[at..at + len], "seed {seed:#x}, {round}");
                            }
                        }
                    }
                    model
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .collect()
    });
    let extents = client.data_extents(0..SIZE).expect("extents");
    drop(client);
    drop(running);
    let file = std::fs::read(&path).expect("the file");
    assert!(file == models.concat(), "seed {seed:#x}");
    let mut covered = 0;
    for extent in extents {
        assert!(
            file[covered..extent.start as usize]
                .iter()
                .all(|byte| *byte == 0)
        );
        covered = extent.end as usize;
    }
}

#[test]
fn a_read_only_export_refuses_changes() {
    let options = ServeOptions {
        read_only: true,
        ..ServeOptions::default()
    };
    let running = Running::new(MemoryDevice::new(SIZE), options);
    let text = tool("nbdinfo")
        .arg("--json")
        .arg(running.uri(""))
        .ok()
        .text();
    assert!(text.contains("\"is_read_only\": true"), "{text}");
    assert_ne!(
        tool("nbdcopy")
            .arg("/etc/passwd")
            .arg(running.uri(""))
            .run()
            .code,
        0
    );
}

#[test]
fn sockets_in_use_and_other_files_are_left_alone() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("socket");
    let bind = || {
        let device = Arc::new(MemoryDevice::new(SIZE));
        NbdServer::bind(&Listen::Unix(path.clone()), device, ServeOptions::default())
    };
    std::fs::write(&path, "a file").expect("a file");
    assert!(matches!(bind(), Err(ServeError::NoSocket { .. })));
    std::fs::remove_file(&path).expect("it is there still");
    // One that somebody listens on.
    let other = UnixListener::bind(&path).expect("a socket");
    assert!(matches!(bind(), Err(ServeError::Listen { .. })));
    // One that was left behind.
    drop(other);
    let server = bind().expect("it listens");
    drop(server);
    assert!(!path.exists(), "the server removes its socket");
}

#[test]
fn over_tcp_on_a_port_that_the_system_chooses() {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let listen: Listen = "127.0.0.1:0".parse().expect("an address");
    let server = NbdServer::bind(&listen, device, ServeOptions::default()).expect("it listens");
    let Listen::Tcp(host, port) = server.listens_on().clone() else {
        panic!("TCP became something else");
    };
    let stop = server.stop();
    thread::scope(|scope| {
        let run = scope.spawn(|| server.run());
        let said = tool("nbdinfo")
            .args(["--size", &format!("nbd://{host}:{port}")])
            .ok();
        assert_eq!(said.text().trim(), SIZE.to_string());
        stop.stop();
        run.join().expect("no panic").expect("the last flush");
    });
}

/// A device whose first flush fails, as Linux tells of lost writes: once.
#[derive(Debug)]
struct LosesOnce(MemoryDevice, AtomicBool);

impl BlockDevice for LosesOnce {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        if self.1.swap(true, Ordering::SeqCst) {
            return self.0.flush();
        }
        Err(DeviceError::Io {
            op: "flush",
            device: self.name(),
            offset: 0,
            len: 0,
            source: std::io::Error::other("lost"),
        })
    }
}

#[test]
fn what_one_client_was_told_is_lost_no_other_is_told_to_be_durable() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("socket");
    let device = LosesOnce(MemoryDevice::new(1 << 20), AtomicBool::new(false));
    let listen = Listen::Unix(socket.clone());
    let server = NbdServer::bind(&listen, Arc::new(device), ServeOptions::default()).unwrap();
    let stop = server.stop();
    let serving = std::thread::spawn(move || server.run());
    let address = NbdAddress {
        transport: NbdTransport::Unix(socket),
        export: String::new(),
        tls: false,
    };
    let one = NbdDevice::connect(&address, NbdOptions::read_write()).unwrap();
    let other = NbdDevice::connect(&address, NbdOptions::read_write()).unwrap();
    one.write_at(0, b"one").unwrap();
    other.write_at(4096, b"other").unwrap();
    one.flush().unwrap_err();
    other.flush().unwrap_err();
    drop((one, other));
    stop.stop();
    let ended = serving.join().unwrap();
    assert!(ended.is_err(), "nor is it at the end");
}
