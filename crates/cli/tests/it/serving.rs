//! `extant serve`, with the clients of others.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::tool::tool;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A server that is told to end when this is dropped.
struct Serving {
    child: Child,
    uri: String,
}

impl Serving {
    fn new(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
            .arg("serve")
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut uri = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut uri).expect("a line");
        let uri = uri.trim().to_owned();
        Self { child, uri }
    }

    /// Ends it with a signal; returns its exit code.
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
fn an_image_is_served_changed_and_clean_afterwards() {
    let place = Place::new();
    let image = place.arg("disk.img");
    mke2fs(image.as_ref(), 16 << 20, &["-t", "ext4"]);
    let socket = format!("unix:{}", place.arg("socket"));
    let serving = Serving::new(&[&image, "--nbd", &socket]);
    // It has the image alone.
    extant(["rm", &format!("{image}:/x")]).fails(1);
    let copy = place.arg("copy.img");
    tool("nbdcopy").arg(&serving.uri).arg(&copy).ok();
    assert_clean(copy.as_ref());
    let host = place.arg("file");
    std::fs::write(&host, "content").expect("a file");
    extant(["cp", &host, &format!("{copy}:/file")]).ok();
    tool("nbdcopy")
        .arg("--flush")
        .arg(&copy)
        .arg(&serving.uri)
        .ok();
    assert_eq!(serving.end(), Some(0));
    assert!(!place.path().join("socket").exists());
    assert_clean(image.as_ref());
    assert_eq!(
        extant(["cat", &format!("{image}:/file")]).ok().text(),
        "content"
    );
}

#[test]
fn formats_and_names_are_served_and_raw_bytes_where_asked_for() {
    let place = Place::new();
    let (raw, image) = (place.arg("raw.img"), place.arg("disk.qcow2"));
    mke2fs(raw.as_ref(), 16 << 20, &["-t", "ext4"]);
    extant(["convert", &raw, &image, "-q"]).ok();
    let serving = Serving::new(&[&image, "--nbd", "127.0.0.1:0", "--export", "a"]);
    let size = |uri: &str| {
        tool("nbdinfo")
            .args(["--size", uri])
            .ok()
            .text()
            .trim()
            .to_owned()
    };
    assert!(serving.uri.ends_with("/a"), "{}", serving.uri);
    assert_eq!(size(&serving.uri), (16 << 20).to_string());
    let commands = ["-c", "write -P 7 1M 64k", "-c", "flush"];
    tool("qemu-io")
        .args(["-f", "raw"])
        .args(commands)
        .arg(&serving.uri)
        .ok();
    assert_eq!(serving.end(), Some(0));
    tool("qemu-img").args(["check", "-q", &image]).ok();
    tool("qemu-io")
        .args(["-f", "qcow2", "-c", "read -P 7 1M 64k", &image])
        .ok();
    let socket = format!("unix:{}", place.arg("socket"));
    let serving = Serving::new(&[&image, "--nbd", &socket, "--read-only", "--format", "raw"]);
    let bytes = std::fs::metadata(&image).expect("the file").len();
    assert_eq!(size(&serving.uri), bytes.to_string());
    assert_ne!(tool("nbdcopy").arg(&raw).arg(&serving.uri).run().code, 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    let image = place.arg("disk.img");
    mke2fs(image.as_ref(), 16 << 20, &["-t", "ext4"]);
    let socket = format!("unix:{}", place.arg("socket"));
    extant(["serve", &image]).fails(2);
    extant(["serve", &image, "--nbd", "nowhere"]).fails(2);
    extant(["serve", &image, "--nbd", &socket, "--format", "qcow2"]).fails(2);
    extant(["serve", &image, "--nbd", &socket, "--as-is"]).fails(2);
    extant(["serve", &place.arg("missing"), "--nbd", &socket]).fails(1);
    std::fs::write(place.arg("socket"), "a file").expect("a file");
    let said = extant(["serve", &image, "--nbd", &socket]).fails(1).stderr;
    assert!(said.contains("something else at that path"), "{said}");
}
