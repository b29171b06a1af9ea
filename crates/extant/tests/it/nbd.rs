//! The file system over NBD: exports of others, servers that die, and every crash of the disk.

use extant::{Filesystem, MountOptions};
use extant_blockdev::{NbdAddress, NbdDevice, NbdOptions, NbdTransport, SharedDevice};
use extant_serve::{Listen, NbdServer, ServeOptions};
use extant_testkit::crash::{Budget, Content, CrashDevice};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::rng::seed_from_env;
use extant_testkit::tool::{Background, tool};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

fn connect(socket: &Path) -> NbdDevice {
    let address = NbdAddress {
        transport: NbdTransport::Unix(socket.to_owned()),
        export: String::new(),
        tls: false,
    };
    let options = NbdOptions::read_write().reconnect_for(Duration::from_secs(2));
    NbdDevice::connect(&address, options).expect("the export opens")
}

/// A program that serves on this socket.
fn start(program: &str, args: &[&str], socket: &Path) -> Background {
    let mut server = tool(program)
        .args(args)
        .background(&socket.with_extension("log"));
    server.wait_for_socket(socket);
    server
}

fn pattern(number: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (number * 31 + at as u64 / 3) as u8)
        .collect()
}

/// Makes, changes and removes files from several threads; some are synchronised.
fn fill(fs: &Filesystem) {
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let dir = format!("/t{thread}");
                fs.create_dir(&dir).expect("a directory");
                for number in 0..25_u64 {
                    let path = format!("{dir}/f{number}");
                    let data = pattern(thread * 100 + number, 3000 * number as usize + 17);
                    fs.write(&path, &data).expect("a file");
                    if number % 5 == 0 {
                        fs.open_file(&path)
                            .and_then(|f| f.sync_all())
                            .expect("a sync");
                    }
                    if number % 4 == 1 {
                        fs.rename(&path, format!("{dir}/r{number}"))
                            .expect("a rename");
                    }
                    if number % 4 == 3 {
                        fs.remove_file(&path).expect("a removal");
                    }
                }
            });
        }
    });
}

fn check(fs: &Filesystem) {
    for thread in 0..4_u64 {
        for number in 0..25_u64 {
            let name = if number % 4 == 1 { "r" } else { "f" };
            let path = format!("/t{thread}/{name}{number}");
            if number % 4 == 3 {
                assert!(!fs.exists(&path).expect("a look"), "{path}");
                continue;
            }
            let data = pattern(thread * 100 + number, 3000 * number as usize + 17);
            assert!(fs.read(&path).expect("a file") == data, "{path}");
        }
    }
}

#[test]
fn files_made_over_nbd_are_in_the_image_which_is_clean() {
    let dir = TempDir::new().expect("a directory");
    let raw = dir.path().join("raw");
    mke2fs(&raw, 64 << 20, &["-t", "ext4"]);
    let qcow2 = dir.path().join("qcow2");
    let convert = tool("qemu-img").args(["convert", "-O", "qcow2"]);
    convert.arg(&raw).arg(&qcow2).ok();
    let text = |path: &Path| path.display().to_string();
    for (number, (program, image, format)) in [("nbdkit", &raw, ""), ("qemu-nbd", &qcow2, "qcow2")]
        .into_iter()
        .enumerate()
    {
        let socket = dir.path().join(format!("socket{number}"));
        let (place, file) = (text(&socket), text(image));
        let args = match program {
            "nbdkit" => vec!["-f", "-U", &place, "file", &file],
            _ => vec![
                "-t",
                "-e",
                "16",
                "--discard=unmap",
                "-f",
                format,
                "-k",
                &place,
                &file,
            ],
        };
        let server = start(program, &args, &socket);
        let device: SharedDevice = Arc::new(connect(&socket));
        let options = || MountOptions::read_write();
        let fs = Filesystem::open_device(Arc::clone(&device), options()).expect("it opens");
        fill(&fs);
        check(&fs);
        fs.close().expect("it closes");
        let fs = Filesystem::open_device(device, MountOptions::read_only()).expect("it opens");
        check(&fs);
        drop(fs);
        drop(server);
    }
    tool("qemu-img").args(["check", "-q"]).arg(&qcow2).ok();
    let back = dir.path().join("back");
    tool("qemu-img")
        .args(["convert", "-O", "raw"])
        .arg(&qcow2)
        .arg(&back)
        .ok();
    for image in [&raw, &back] {
        assert_clean(image);
        check(&Filesystem::open(image).expect("it opens"));
    }
}

/// A server of ours in a thread, over any device.
struct Serving {
    socket: PathBuf,
    stop: extant_serve::Stop,
    thread: Option<thread::JoinHandle<()>>,
    _dir: TempDir,
}

impl Serving {
    fn new(device: SharedDevice) -> Self {
        let dir = TempDir::new().expect("a directory");
        let socket = dir.path().join("socket");
        let listen = Listen::Unix(socket.clone());
        let server = NbdServer::bind(&listen, device, ServeOptions::default()).expect("a socket");
        let stop = server.stop();
        let thread = thread::spawn(move || server.run().expect("the last flush"));
        Self {
            socket,
            stop,
            thread: Some(thread),
            _dir: dir,
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn after_every_crash_of_the_disk_behind_the_server_what_was_synchronised_is_there() {
    let seed = seed_from_env("crashes over nbd");
    let dir = TempDir::new().expect("a directory");
    let base = dir.path().join("base");
    mke2fs(&base, 8 << 20, &["-t", "ext4", "-J", "size=1"]);
    let disk = CrashDevice::over(Content::of_file(&base));
    let serving = Serving::new(Arc::new(disk.clone()));
    let device = connect(&serving.socket);
    let fs = Filesystem::open_device(Arc::new(device), MountOptions::read_write()).expect("open");
    const FILES: u64 = 8;
    for number in 0..FILES {
        let path = format!("/f{number}");
        let data = pattern(number, 5000 * number as usize + 100);
        fs.write(&path, &data).expect("a file");
        fs.open_file(&path)
            .and_then(|f| f.sync_all())
            .expect("a sync");
        // From here on it is promised.
        disk.mark(number);
        fs.write(format!("/loose{number}"), &data).expect("a file");
        if number % 2 == 1 {
            fs.remove_file(format!("/loose{number}"))
                .expect("a removal");
        }
    }
    fs.close().expect("it closes");
    drop(serving);
    let images = disk.log().images(Budget::limited(300, seed));
    let mut count = 0;
    for image in images {
        let context = format!("seed {seed:#x}: {image}");
        let fs = Filesystem::open_device(image.open(), MountOptions::read_write())
            .unwrap_or_else(|e| panic!("{context}: {e}"));
        for number in (0..FILES).filter(|number| image.holds(*number)) {
            let found = fs.read(format!("/f{number}"));
            let found = found.unwrap_or_else(|e| panic!("{context}: {e}"));
            assert!(
                found == pattern(number, 5000 * number as usize + 100),
                "{context}: /f{number}"
            );
        }
        drop(fs);
        // The judge recovers by itself: of some.
        if count % 40 == 0 {
            let path = dir.path().join("crashed");
            image.write_to(&path);
            let fs = Filesystem::open_writable(&path).expect("it opens");
            fs.close().expect("it closes");
            assert_clean(&path);
        }
        count += 1;
    }
    assert!(count > 100, "{count} images");
}

#[test]
fn a_server_killed_at_any_time_costs_nothing_that_was_synchronised() {
    let dir = TempDir::new().expect("a directory");
    let image = dir.path().join("image");
    let file = image.display().to_string();
    for (round, pause) in [0_u64, 5, 20, 60].into_iter().enumerate() {
        mke2fs(&image, 32 << 20, &["-t", "ext4", "-F"]);
        let socket = dir.path().join(format!("socket{round}"));
        let place = socket.display().to_string();
        let mut server = start("nbdkit", &["-f", "-U", &place, "file", &file], &socket);
        let device = connect(&socket);
        let fs = Filesystem::open_device(Arc::new(device), MountOptions::read_write());
        let fs = fs.expect("it opens");
        let mut promised = Vec::new();
        let mut failed = false;
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20 + pause));
                server.kill();
            });
            for number in 0..10_000_u64 {
                let path = format!("/f{number}");
                let data = pattern(number, 9000);
                let done = fs
                    .write(&path, &data)
                    .and_then(|()| fs.open_file(&path))
                    .and_then(|file| file.sync_all());
                match done {
                    Ok(()) => promised.push(number),
                    Err(_) => {
                        failed = true;
                        break;
                    }
                }
            }
        });
        assert!(failed, "nothing was told");
        drop(fs);
        // The journal is replayed, and what was promised is there.
        let fs = Filesystem::open_writable(&image).expect("it opens");
        for number in promised {
            let found = fs.read(format!("/f{number}")).expect("it was promised");
            assert!(found == pattern(number, 9000), "/f{number}");
        }
        fs.close().expect("it closes");
        assert_clean(&image);
    }
}
