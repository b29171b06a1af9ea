//! Pieces that stay on disk: several processes, damage, a full disk.

use crate::server::{Answer, Asked, Server, part};
use crate::support::{hasty, object, read_all};
use extant_remote::{RemoteOptions, open};
use extant_testkit::require;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PIECE: usize = 64 << 10;

fn kept_in(dir: &Path) -> RemoteOptions {
    let mut options = hasty();
    options.cache_dir = Some(dir.to_owned());
    options
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn a_second_run_fetches_the_beginning_only() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = object(40 * PIECE + 5);
    let server = Server::of(bytes.clone());
    let url = server.url("a.img?X-Amz-Credential=a&X-Amz-Signature=1");
    assert_eq!(
        read_all(&open(&url, kept_in(dir.path())).unwrap()).unwrap(),
        bytes
    );
    let first = server.requests();
    // Another signature, the same object.
    let url = server.url("a.img?X-Amz-Credential=a&X-Amz-Signature=2");
    assert_eq!(
        read_all(&open(&url, kept_in(dir.path())).unwrap()).unwrap(),
        bytes
    );
    assert_eq!(server.requests(), first + 1);
    // A parameter that may name another object.
    read_all(&open(&server.url("a.img?key=2"), kept_in(dir.path())).unwrap()).unwrap();
    assert!(server.requests() > first + 2);
}

#[test]
fn another_version_of_the_object_finds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let first = object(4 * PIECE);
    let mut second = first.clone();
    second.reverse();
    let is_second = Arc::new(AtomicBool::new(false));
    let (asked_for, served) = (Arc::clone(&is_second), [first.clone(), second.clone()]);
    let server = Server::start(move |asked| {
        Answer::Bytes(if asked_for.load(Ordering::Relaxed) {
            part(asked, &served[1], "\"two\"")
        } else {
            part(asked, &served[0], "\"one\"")
        })
    });
    for bytes in [first, second] {
        let device = open(&server.url("a.img"), kept_in(dir.path())).unwrap();
        assert_eq!(read_all(&device).unwrap(), bytes);
        is_second.store(true, Ordering::Relaxed);
    }
}

/// An answer of S3 where versioning is suspended.
fn of_null_version(asked: &Asked, object: &[u8], etag: &str) -> Answer {
    let mut bytes = part(asked, object, etag);
    let more = "x-amz-version-id: null\r\nLast-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\n";
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let at = end.unwrap() + 2;
    bytes.splice(at..at, more.bytes());
    Answer::Bytes(bytes)
}

#[test]
fn a_version_called_null_is_no_version() {
    let dir = tempfile::tempdir().unwrap();
    let first = object(4 * PIECE);
    let mut second = first.clone();
    second.reverse();
    let is_second = Arc::new(AtomicBool::new(false));
    let (asked_for, served) = (Arc::clone(&is_second), [first.clone(), second.clone()]);
    let server = Server::start(move |asked| {
        if asked_for.load(Ordering::Relaxed) {
            of_null_version(asked, &served[1], "\"two\"")
        } else {
            of_null_version(asked, &served[0], "\"one\"")
        }
    });
    let mut options = kept_in(dir.path());
    options.settings = server.settings();
    for bytes in [first, second] {
        let device = open("s3://images/a.img", options.clone()).unwrap();
        assert!(read_all(&device).unwrap() == bytes);
        drop(device);
        assert!(!files(dir.path()).is_empty());
        is_second.store(true, Ordering::Relaxed);
    }
}

#[test]
fn weak_etags_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = object(4 * PIECE);
    let served = bytes.clone();
    let server = Server::start(move |asked| Answer::Bytes(part(asked, &served, "W/\"one\"")));
    let device = open(&server.url("a.img"), kept_in(dir.path())).unwrap();
    assert_eq!(read_all(&device).unwrap(), bytes);
    drop(device);
    assert!(files(dir.path()).is_empty());
}

#[test]
fn damaged_pieces_are_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = object(20 * PIECE);
    let server = Server::of(bytes.clone());
    let url = server.url("a.img");
    // All but the first, which comes with opening. Where the disk is slower than the server, a
    // piece is left out until it is read again.
    let mut kept = Vec::new();
    for _ in 0..50 {
        read_all(&open(&url, kept_in(dir.path())).unwrap()).unwrap();
        kept = files(dir.path());
        if kept.len() == 19 {
            break;
        }
    }
    assert_eq!(kept.len(), 19);
    for (n, path) in kept.iter().enumerate() {
        let mut file = fs::read(path).unwrap();
        match n % 4 {
            0 => file.truncate(n * 1000),
            1 => file[n * 999] ^= 0x10,
            2 => file.extend_from_slice(b"more"),
            _ => continue,
        }
        fs::write(path, file).unwrap();
    }
    let device = open(&url, kept_in(dir.path())).unwrap();
    assert_eq!(read_all(&device).unwrap(), bytes);
    drop(device);
    let before = server.requests();
    assert_eq!(
        read_all(&open(&url, kept_in(dir.path())).unwrap()).unwrap(),
        bytes
    );
    assert_eq!(
        server.requests(),
        before + 1,
        "what was damaged is whole again"
    );
}

/// Not a test of its own: what the processes of the next one do.
#[test]
fn one_process_of_several() {
    let (Some(url), Some(dir)) = (
        std::env::var_os("EXTANT_TEST_URL"),
        std::env::var_os("EXTANT_TEST_DIR"),
    ) else {
        return;
    };
    let bytes = object(100 * PIECE);
    for _ in 0..5 {
        let mut options = kept_in(Path::new(&dir));
        // Small enough that pieces go while others read them.
        options.cache_dir_bytes = 60 * PIECE as u64;
        let device = open(url.to_str().unwrap(), options).unwrap();
        assert!(read_all(&device).unwrap() == bytes);
    }
}

#[test]
fn several_processes_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::of(object(100 * PIECE));
    let children: Vec<_> = (0..3)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "disk_cache::one_process_of_several"])
                .env("EXTANT_TEST_URL", server.url("a.img"))
                .env("EXTANT_TEST_DIR", dir.path())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert!(
        server.requests() >= 15,
        "each process opens the object five times"
    );
    let total: u64 = files(dir.path())
        .iter()
        .map(|f| f.metadata().unwrap().len())
        .sum();
    // Of 100 pieces; what is written while room is made comes on top of the 60.
    assert!(total < 96 * PIECE as u64, "{total} bytes are kept");
}

#[test]
fn a_full_disk_is_no_error() {
    require!(Root);
    let dir = tempfile::tempdir().unwrap();
    let small = SmallTmpfs::mount(dir.path());
    let bytes = object(60 * PIECE);
    let server = Server::of(bytes.clone());
    for _ in 0..2 {
        let device = open(&server.url("a.img"), kept_in(dir.path())).unwrap();
        assert_eq!(read_all(&device).unwrap(), bytes);
    }
    let kept = files(dir.path());
    assert!(
        !kept.is_empty() && kept.len() < 17,
        "{} pieces on 1 MiB",
        kept.len()
    );
    drop(small);
    // A place where nothing can be written.
    let device = open(&server.url("a.img"), kept_in(Path::new("/proc/none"))).unwrap();
    assert_eq!(read_all(&device).unwrap(), bytes);
}

/// A tmpfs of 1 MiB, unmounted when it is dropped.
struct SmallTmpfs<'a>(&'a Path);

impl<'a> SmallTmpfs<'a> {
    fn mount(at: &'a Path) -> Self {
        rustix::mount::mount(
            "none",
            at,
            "tmpfs",
            rustix::mount::MountFlags::empty(),
            c"size=1m,mode=700",
        )
        .unwrap();
        Self(at)
    }
}

impl Drop for SmallTmpfs<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
