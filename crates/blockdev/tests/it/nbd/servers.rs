//! The servers of others, and the files behind them.

use super::{Running, on_socket};
use extant_blockdev::{
    AlignedBuf, BlockDevice, DeviceError, NbdAddress, NbdDevice, NbdOptions, NbdTransport, Request,
};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::{free_port, tool};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SIZE: usize = 4 << 20;

/// Random changes and reads, also across the server's blocks. Returns what the device holds.
fn exercise(device: &dyn BlockDevice, rng: &mut Rng, rounds: usize) -> Vec<u8> {
    let size = device.size() as usize;
    let mut model = vec![0; size];
    device.read_at(0, &mut model).expect("all of it");
    for round in 0..rounds {
        let sector = *rng.pick(&[1, 512, 4096]);
        let offset = rng.below(size as u64) / sector * sector;
        let most = (size as u64 - offset).min(*rng.pick(&[3000, 70_000, 900_000]));
        let len = (rng.below(most + 1) / sector * sector) as usize;
        let range = offset as usize..offset as usize + len;
        match rng.below(7) {
            0 | 1 => {
                let mut data = vec![0; len];
                rng.fill(&mut data);
                device.write_at(offset, &data).expect("a write");
                model[range].copy_from_slice(&data);
            }
            2 => {
                device.zero(offset, len as u64).expect("zeroes");
                model[range].fill(0);
            }
            3 => {
                // As before or zeroes, so that the model has to look.
                device.discard(offset, len as u64).expect("a discard");
                let mut now = vec![0; len];
                device.read_at(offset, &mut now).expect("a read");
                for (now, before) in now.iter().zip(&mut model[range]) {
                    assert!(*now == *before || *now == 0, "round {round}");
                    *before = *now;
                }
            }
            4 => {
                let data = vec![round as u8; len];
                let batch = vec![
                    Request::write(offset, AlignedBuf::copy_of(&data)),
                    Request::Flush,
                    Request::read(offset, len),
                ];
                let mut done = device.submit(batch).wait_all().expect("a batch");
                let read = done
                    .pop()
                    .and_then(Request::into_read_buf)
                    .expect("a buffer");
                assert!(read[..] == data[..], "round {round}");
                model[range].copy_from_slice(&data);
            }
            _ => {
                let mut got = vec![1; len];
                device.read_at(offset, &mut got).expect("a read");
                assert!(got == model[range], "round {round}: wrong content");
            }
        }
    }
    let mut covered = 0;
    for extent in device.data_extents(0..size as u64).expect("extents") {
        let hole = &model[covered..extent.start as usize];
        assert!(hole.iter().all(|byte| *byte == 0), "a hole holds data");
        covered = extent.end as usize;
    }
    assert!(model[covered..].iter().all(|byte| *byte == 0));
    device.flush().expect("a flush");
    model
}

fn raw_file(dir: &TempDir) -> std::path::PathBuf {
    let path = dir.path().join("raw");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(SIZE as u64).expect("a size");
    path
}

fn check_file(path: &Path, model: &[u8], context: &str) {
    let found = std::fs::read(path).expect("the file behind");
    assert!(found == model, "{context}: the file has other content");
}

#[test]
fn a_file_behind_nbdkit_has_what_was_written_through_each_filter() {
    let seed = seed_from_env("nbdkit");
    let filters: [&[&str]; 10] = [
        &[],
        &["--filter=noextents"],
        &["--filter=nozero"],
        &["--filter=nozero", "zeromode=notrim"],
        &["--filter=multi-conn", "multi-conn-mode=disable"],
        &["--filter=noparallel", "serialize=all-requests"],
        &["--filter=fua", "fuamode=discard"],
        &[
            "--filter=blocksize-policy",
            "blocksize-minimum=4096",
            "blocksize-error-policy=error",
        ],
        &[
            "--filter=blocksize-policy",
            "blocksize-minimum=512",
            "blocksize-preferred=65536",
            "blocksize-maximum=131072",
            "blocksize-error-policy=error",
        ],
        &[
            "--filter=blocksize-policy",
            "blocksize-minimum=65536",
            "blocksize-preferred=65536",
            "blocksize-error-policy=error",
        ],
    ];
    for (number, filter) in filters.into_iter().enumerate() {
        let dir = TempDir::new().expect("a directory");
        let path = raw_file(&dir);
        let file = path.display().to_string();
        let (names, settings): (Vec<&str>, Vec<&str>) =
            filter.iter().partition(|arg| arg.starts_with("--"));
        let args = [&names[..], &["file", &file], &settings].concat();
        let running = Running::nbdkit(&args);
        let device = running.open();
        if number == 7 {
            assert_eq!(device.logical_sector(), 4096);
        }
        if number == 8 {
            assert_eq!(
                (device.logical_sector(), device.preferred_io()),
                (512, 65536)
            );
        }
        if number == 9 {
            assert_eq!(device.logical_sector(), 65536);
        }
        assert!(device.knows_holes());
        let model = exercise(&device, &mut Rng::new(seed + number as u64), 150);
        check_file(&path, &model, &format!("seed {seed:#x}, {filter:?}"));
    }
}

#[test]
fn raw_and_qcow2_files_behind_qemu_have_what_was_written() {
    let seed = seed_from_env("qemu-nbd");
    let dir = TempDir::new().expect("a directory");
    let path = raw_file(&dir);
    let running = Running::qemu(&path, &["-f", "raw"]);
    let model = exercise(&running.open(), &mut Rng::new(seed), 200);
    drop(running);
    check_file(&path, &model, &format!("seed {seed:#x}"));

    let qcow2 = dir.path().join("image.qcow2");
    let create = tool("qemu-img").args(["create", "-q", "-f", "qcow2"]);
    create.arg(&qcow2).arg("4M").ok();
    let running = Running::qemu(&qcow2, &["-f", "qcow2"]);
    let model = {
        let device = running.open();
        assert_eq!(device.data_extents(0..SIZE as u64).expect("extents"), []);
        exercise(&device, &mut Rng::new(seed), 200)
    };
    drop(running);
    tool("qemu-img").args(["check", "-q"]).arg(&qcow2).ok();
    let raw = dir.path().join("converted");
    let convert = tool("qemu-img").args(["convert", "-O", "raw"]);
    convert.arg(&qcow2).arg(&raw).ok();
    check_file(&raw, &model, &format!("qcow2, seed {seed:#x}"));
}

/// A server in the background, whose number is in a file.
struct Daemon(std::path::PathBuf);

impl Drop for Daemon {
    fn drop(&mut self) {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let number = text
            .trim()
            .parse()
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(number) = number {
            let _ = rustix::process::kill_process(number, rustix::process::Signal::TERM);
        }
    }
}

#[test]
fn nbd_server_over_tcp_serves_what_it_can_make_durable() {
    let dir = TempDir::new().expect("a directory");
    let path = raw_file(&dir);
    let port = free_port();
    let config = dir.path().join("config");
    let section = |name: &str, more: &str| {
        let file = path.display();
        format!("[{name}]\nexportname = {file}\n{more}\n")
    };
    let text = [
        format!("[generic]\nlistenaddr = 127.0.0.1\nport = {port}\nallowlist = true\n"),
        section("disk", "flush = true\nfua = true\ntrim = true"),
        section("forgetful", "flush = false"),
        section("fixed", "readonly = true\nflush = true"),
    ];
    std::fs::write(&config, text.concat()).expect("a configuration");
    // It leaves its parent; its number tells whom to end.
    let pid = dir.path().join("pid");
    tool("nbd-server")
        .arg("-C")
        .arg(&config)
        .arg("-p")
        .arg(&pid)
        .ok();
    let _ends = Daemon(pid);
    let over = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < over, "nothing listens");
        thread::sleep(Duration::from_millis(20));
    }
    let address = |export: &str| NbdAddress {
        transport: NbdTransport::Tcp("127.0.0.1".to_owned(), port),
        export: export.to_owned(),
        tls: false,
    };
    let connect = |export: &str, options| NbdDevice::connect(&address(export), options);
    let seed = seed_from_env("nbd-server");
    let device = connect("disk", NbdOptions::read_write()).expect("it opens");
    let model = exercise(&device, &mut Rng::new(seed), 150);
    check_file(&path, &model, &format!("seed {seed:#x}"));
    let said = |export, options| connect(export, options).expect_err("refused").to_string();
    let forgetful = said("forgetful", NbdOptions::read_write());
    assert!(forgetful.contains("flush = true"), "{forgetful}");
    let fixed = said("fixed", NbdOptions::read_write());
    assert!(fixed.contains("for reading only"), "{fixed}");
    let unknown = said("other", NbdOptions::read_only());
    assert!(unknown.contains("`other`"), "{unknown}");
    let device = connect("fixed", NbdOptions::read_only()).expect("it opens");
    assert!(matches!(
        device.write_at(0, &[1]),
        Err(DeviceError::ReadOnly { .. })
    ));
    let mut start = [0; 4096];
    device.read_at(0, &mut start).expect("a read");
    assert_eq!(start, model[..4096]);
}

#[test]
fn holes_are_those_of_the_file_behind() {
    let dir = TempDir::new().expect("a directory");
    let path = raw_file(&dir);
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("the file");
    for at in [0, 1 << 20, 3 << 20] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 65536], at).expect("data");
    }
    let running = Running::nbdkit(&["-r", "file", &path.display().to_string()]);
    let device = running.read_only().expect("it opens");
    let expected = [0_u64, 1 << 20, 3 << 20].map(|at| at..at + 65536);
    assert_eq!(
        device.data_extents(0..SIZE as u64).expect("extents"),
        expected
    );
    assert_eq!(
        device.next_data(100, 200).expect("data"),
        Some(100..200),
        "no more than was asked for"
    );
    assert_eq!(device.next_data(65536, 1 << 20).expect("a hole"), None);
}

#[test]
fn errors_of_the_server_are_told_with_their_number_and_are_no_end() {
    let running = Running::nbdkit(&[
        "--filter=error",
        "memory",
        "size=1M",
        "error-pread-rate=100%",
        "error=ENOSPC",
    ]);
    let device = running.open();
    let error = device.read_at(4096, &mut [0; 512]).expect_err("an error");
    assert_eq!(error.errno(), 28);
    assert!(
        error.to_string().contains("512 bytes at offset 4096"),
        "{error}"
    );
    device.write_at(0, &[1; 512]).expect("writes work");
    device.flush().expect("flushes too");
}

#[test]
fn requests_of_one_and_of_many_threads_are_under_way_together() {
    let running = Running::nbdkit(&["--filter=delay", "memory", "size=64M", "delay-read=50ms"]);
    let device = running.open();
    let mut buf = vec![0; 8 << 20];
    let began = Instant::now();
    device.read_at(0, &mut buf).expect("32 requests");
    let alone = began.elapsed();
    assert!(
        alone < Duration::from_millis(50 * 16),
        "{alone:?} for 32 requests"
    );
    let began = Instant::now();
    let batch = (0..16).map(|n| Request::read(n << 20, 4096)).collect();
    device.submit(batch).wait_all().expect("16 requests");
    let batch = began.elapsed();
    assert!(
        batch < Duration::from_millis(50 * 8),
        "{batch:?} for a batch of 16"
    );
    let began = Instant::now();
    thread::scope(|scope| {
        for n in 0..16 {
            let device = &device;
            scope.spawn(move || device.read_at(n << 20, &mut [0; 4096]).expect("a read"));
        }
    });
    let many = began.elapsed();
    assert!(
        many < Duration::from_millis(50 * 8),
        "{many:?} for 16 threads"
    );
}

#[test]
fn many_threads_read_what_they_wrote() {
    let running = Running::nbdkit(&["memory", "size=64M"]);
    for connections in [1, 4] {
        let options = NbdOptions::read_write().connections(connections);
        let device = NbdDevice::connect(&running.address, options).expect("it opens");
        thread::scope(|scope| {
            for thread in 0..8_u64 {
                let device = &device;
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    let mut data = vec![0; 600_000];
                    let mut got = data.clone();
                    for _ in 0..30 {
                        let len = rng.between(1, 600_000) as usize;
                        let at = (thread << 23) + rng.below(4 << 20);
                        rng.fill(&mut data[..len]);
                        device.write_at(at, &data[..len]).expect("a write");
                        device.read_at(at, &mut got[..len]).expect("a read");
                        assert!(got[..len] == data[..len]);
                        device.flush().expect("a flush");
                    }
                });
            }
        });
    }
}

#[test]
fn slow_links_are_no_errors() {
    let running = Running::nbdkit(&["--filter=rate", "memory", "size=4M", "rate=32M"]);
    let device = running.open();
    device.write_at(0, &vec![3; SIZE]).expect("slow, but right");
    let mut buf = vec![0; SIZE];
    device.read_at(0, &mut buf).expect("slow, but right");
    assert!(buf.iter().all(|byte| *byte == 3));
}

#[test]
fn dropping_the_device_ends_the_session_in_good_form() {
    // The server ends itself when its last client has left.
    let dir = TempDir::new().expect("a directory");
    let path = raw_file(&dir);
    let socket = dir.path().join("socket");
    let log = dir.path().join("log");
    let server = tool("nbdkit")
        .args(["-f", "-v", "-U"])
        .arg(&socket)
        .arg("file");
    let mut server = server.arg(&path).background(&log);
    server.wait_for_socket(&socket);
    let device = NbdDevice::connect(&on_socket(&socket), NbdOptions::read_write()).expect("open");
    device.write_at(0, &[1; 512]).expect("a write");
    drop(device);
    let over = Instant::now() + Duration::from_secs(10);
    loop {
        let said = std::fs::read_to_string(&log).expect("the log");
        if said.contains("client sent NBD_CMD_DISC") {
            break;
        }
        assert!(Instant::now() < over, "{said}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_that_is_far_is_known_by_its_quickest_answer() {
    let server = Running::nbdkit(&["memory", "size=1M"]);
    let near = server.open();
    assert_eq!(near.in_flight(), 1, "nothing is known yet");
    let mut block = [0; 512];
    // One of so many comes back at once, whatever else the processors have to do.
    let is_near = (0..10_000).any(|_| {
        near.read_at(0, &mut block).expect("a read");
        near.in_flight() == 1
    });
    assert!(is_near);
    let delayed = ["--filter=delay", "memory", "size=1M", "rdelay=2ms"];
    let server = Running::nbdkit(&delayed);
    let far = server.open();
    assert_eq!(far.in_flight(), 1, "nothing is known yet");
    for _ in 0..3 {
        far.read_at(0, &mut block).expect("a read");
        assert!(far.in_flight() > 8);
    }
}

#[test]
fn reads_of_a_batch_say_how_far_a_server_is_whatever_they_carry() {
    let batch = || {
        [(1 << 20, 4096), (2 << 20, 188 << 10), (3 << 20, 4096)]
            .map(|(at, len)| Request::read(at, len))
            .into()
    };
    let server = Running::nbdkit(&["memory", "size=16M"]);
    let near = server.open();
    // The first pages of a buffer, and threads of the server, may make the first of them slow.
    let is_near = (0..1000).any(|_| {
        let done = near.submit(batch()).wait();
        assert!(done.iter().all(|done| done.result.is_ok()));
        near.in_flight() == 1
    });
    assert!(is_near);
    let server = Running::nbdkit(&["--filter=delay", "memory", "size=16M", "rdelay=2ms"]);
    let far = server.open();
    far.submit(batch()).wait();
    assert!(far.in_flight() > 8);
    for len in [4096, 256 << 10, 4 << 20] {
        far.submit(vec![Request::read(0, len)]).wait();
        assert!(far.in_flight() > 8, "{len}");
    }
}
