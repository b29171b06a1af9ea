//! `extant serve --virtiofs`: its process, its socket, and what it refuses. Guests are tested in
//! `extant-virtiofs`, and in virtual machines by `cargo xtask vm`.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, mke2fs};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// A server that is ended when this is dropped.
struct Serving {
    child: Child,
    socket: String,
}

impl Serving {
    fn new(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        command.arg("serve").args(args).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the command runs");
        let mut socket = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout)
            .read_line(&mut socket)
            .expect("a line");
        let socket = socket.trim().to_owned();
        Self { child, socket }
    }

    /// Asks a message of the vhost-user protocol that has an answer of eight bytes.
    fn asks(&self, number: u32) -> Option<u64> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        let message = [number, 1, 0].map(u32::to_ne_bytes).concat();
        stream.write_all(&message).ok()?;
        let mut answer = [0; 20];
        stream.read_exact(&mut answer).ok()?;
        answer.last_chunk().map(|value| u64::from_ne_bytes(*value))
    }

    fn end(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn monitors_connect_to_a_confined_process_and_the_image_is_clean_afterwards() {
    let place = Place::new();
    let image = place.arg("disk.img");
    mke2fs(image.as_ref(), 16 << 20, &["-t", "ext4"]);
    let socket = place.arg("socket");
    for more in [
        &[][..],
        &["--no-sandbox"],
        &["--read-only", "--guests", "3"],
    ] {
        let args = [&[image.as_str(), "--virtiofs", &socket][..], more].concat();
        let serving = Serving::new(&args);
        assert_eq!(serving.socket, socket);
        // VIRTIO_F_VERSION_1 is offered, and a queue for requests beside the urgent one.
        let features = serving.asks(1).expect("an answer");
        assert_eq!(features >> 32 & 1, 1);
        assert!(serving.asks(17).expect("an answer") >= 2);
        if !more.contains(&"--read-only") {
            extant(["rm", &format!("{image}:/x")]).fails(1);
        }
        assert_eq!(serving.end(), Some(0), "{more:?}");
        assert!(!place.path().join("socket").exists(), "{more:?}");
        assert_clean(image.as_ref());
    }
}

#[test]
fn an_image_that_guests_only_read_is_opened_for_reading() {
    let place = Place::new();
    let image = place.arg("disk.img");
    mke2fs(image.as_ref(), 8 << 20, &["-t", "ext4"]);
    for how in [&["--read-only"][..], &["-o", "ro"]] {
        let [one, other] = ["one", "other"].map(|name| place.arg(name));
        let args = |socket| [&[image.as_str(), "--virtiofs", socket][..], how].concat();
        // Two that lock it for reading, at a time.
        let servers = [Serving::new(&args(&one)), Serving::new(&args(&other))];
        for serving in servers {
            assert!(serving.asks(1).is_some(), "{how:?}");
            assert_eq!(serving.end(), Some(0), "{how:?}");
        }
    }
}

#[test]
fn what_means_nothing_to_guests_is_refused() {
    let place = Place::new();
    let image = place.arg("disk.img");
    mke2fs(image.as_ref(), 8 << 20, &["-t", "ext4"]);
    let socket = place.arg("socket");
    let base = ["serve", &image, "--virtiofs", &socket];
    for wrong in [
        &["--nbd", "127.0.0.1:0"][..],
        &["--guests", "0"],
        &["--guests", "65"],
        &["--export", "a"],
        &["-o", "allow_other"],
        &["-o", "threads=4"],
        &["-o", "colour=red"],
        &["-o", "sync,nosuid"],
        &["-o", "no_blkdev"],
        &["-o", "no_io_uring"],
        &["--as-is"],
    ] {
        extant([&base[..], wrong].concat()).fails(2);
    }
    extant(["serve", &image]).fails(2);
    extant(["serve", &image, "--nbd", "127.0.0.1:0", "-o", "sync"]).fails(2);
    // What is no file system is no service.
    let empty = place.arg("empty.img");
    std::fs::write(&empty, vec![0; 1 << 20]).expect("a file");
    for more in [&[][..], &["--no-sandbox"]] {
        extant([&["serve", &empty, "--virtiofs", &socket][..], more].concat()).fails(1);
        assert!(!place.path().join("socket").exists(), "{more:?}");
    }
    std::fs::write(place.path().join("taken"), "x").expect("a file");
    extant(["serve", &image, "--virtiofs", &place.arg("taken")]).fails(1);
}
