//! Images behind servers and links, and in formats. The command that is measured is the one beside
//! the bench.

use crate::{cases, check_row, refused, rows};
use extant_testkit::require;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn figure(row: &Value, name: &str) -> f64 {
    let value = row["figures"][name].as_f64();
    value.unwrap_or_else(|| panic!("{name} in {row}"))
}

/// Small work.
const SMALL: [&str; 6] = [
    "--image-files",
    "500",
    "--copied",
    "40",
    "--stream-mib",
    "5",
];

fn small(variants: &str) -> Vec<Value> {
    rows(&[&["remote", "--variant", variants], &SMALL[..]].concat())
}

#[test]
fn the_first_byte_behind_a_link_comes_after_the_round_trips_that_are_counted() {
    require!(Fuse);
    let rows = small("first-byte");
    rows.iter().for_each(check_row);
    let is_of_two = |(side, ..): &&(&str, &str, u64)| matches!(*side, "engine" | "nbdfuse");
    let all = cases(&rows);
    let found: Vec<_> = all.iter().filter(is_of_two).copied().collect();
    let mut expected = Vec::new();
    for variant in [
        "first-byte-nbd-0ms",
        "first-byte-nbd-1ms",
        "first-byte-nbd-20ms",
        "first-byte-http-0ms",
        "first-byte-http-1ms",
        "first-byte-http-20ms",
    ] {
        expected.extend([("engine", variant, 1), ("nbdfuse", variant, 1)]);
    }
    assert_eq!(found, expected);
    for row in &rows {
        assert_eq!(row["unit"], "ms", "{row}");
        let (all, connecting) = (
            figure(row, "round trips"),
            figure(row, "round trips to connect"),
        );
        assert!(1.0 <= connecting && connecting < all, "{row}");
        // On a busy machine a client may have one more connection, which takes one as well.
        assert!(figure(row, "requests") + 1.0 >= all - connecting, "{row}");
        // Superblock, descriptors, inodes, directories and the file have some ten blocks.
        assert!(figure(row, "MiB moved") > 0.03, "{row}");
        let is_far = row["variant"]
            .as_str()
            .is_some_and(|name| name.ends_with("-20ms"));
        if is_far {
            // At least one more, which brings the content, is waited for.
            let waited = (connecting + 1.0) * 20.0;
            assert!(row["median"].as_f64() >= Some(waited), "{row}");
        }
    }
}

#[test]
fn copies_over_a_link_take_what_it_allows_or_longer_and_peers_may_copy_less() {
    require!(Fuse);
    let fewer = ["remote", "--variant", "copy-out-20ms,copy-in-1ms"];
    let rows = rows(&[&fewer[..], &SMALL, &["--peer-copied", "20"]].concat());
    rows.iter().for_each(check_row);
    let expected = [
        ("engine", "copy-out-20ms", 1),
        ("nbdfuse", "copy-out-20ms", 1),
        ("engine", "copy-in-1ms", 1),
        ("nbdfuse", "copy-in-1ms", 1),
    ];
    assert_eq!(cases(&rows), expected);
    for row in &rows {
        assert_eq!(row["unit"], "s", "{row}");
        let is_peer = row["side"] == "nbdfuse";
        let told = row["options"].as_str().unwrap_or_default();
        assert_eq!(
            told.contains("2.0 times those of 20 files"),
            is_peer,
            "{row}"
        );
        // 40 files of 8 KiB on average.
        assert!(figure(row, "MiB moved") > 0.3, "{row}");
        assert!(figure(row, "times the link's bound") > 0.0, "{row}");
    }
    // Whatever is done at once, round trips in a row take their time.
    let far = figure(&rows[0], "round trips") * 0.020;
    assert!(rows[0]["median"].as_f64() >= Some(far), "{}", rows[0]);
}

#[test]
fn streams_and_formats_are_measured_beside_the_programs_that_do_the_same() {
    require!(KernelExt4);
    let rows = small("stream,qcow2,simg");
    rows.iter().for_each(check_row);
    let mut expected = Vec::new();
    for (variant, peer) in [
        ("stream-read", "nbdcopy"),
        ("stream-write", "nbdcopy"),
        ("stream-convert", "nbdcopy"),
        ("qcow2-in", "qemu-img"),
        ("qcow2-out", "qemu-img"),
        ("simg-in", "simg2img"),
        ("simg-out", "img2simg"),
    ] {
        expected.extend([("engine", variant, 1), (peer, variant, 1)]);
    }
    assert_eq!(cases(&rows), expected);
    assert!(rows.iter().all(|row| row["unit"] == "MB/s"));
}

#[test]
fn what_remote_cannot_measure_is_refused_with_what_to_do() {
    let said = refused(&["remote", "--extant", "/nowhere/extant"]);
    assert!(said.contains("cargo build"), "{said}");
    let said = refused(&["remote", "--variant", "simg-in", "--workers", "2"]);
    assert!(said.contains("one program at a time"), "{said}");
    let said = refused(&["remote", "--variant", "fir"]);
    assert!(said.contains("first-byte-nbd-0ms"), "{said}");
}

/// A program in the place of the command.
fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("command");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("made executable");
    path.display().to_string()
}

/// Processes with this text in their arguments, but for the bench.
fn processes(text: &str) -> Vec<String> {
    let of = |path: PathBuf| fs::read(path.join("cmdline")).ok();
    let entries = fs::read_dir("/proc").expect("listed").flatten();
    let lines = entries.filter_map(|entry| of(entry.path()));
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(text) && line.contains("server.sock"))
        .collect()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn servers_end_when_the_bench_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().display().to_string();
    let fails = script(folder.path(), "echo no such export >&2; exit 1");
    let variant = ["remote", "--variant", "first-byte-nbd-0ms"];
    let place = ["--dir", &dir, "--extant", &fails];
    let said = refused(&[&variant[..], &SMALL, &place].concat());
    assert!(said.contains("no such export"), "{said}");
    assert_eq!(processes(&dir), Vec::<String>::new());
}

/// A bench that is killed with this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn servers_end_when_the_bench_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().display().to_string();
    let waits = script(folder.path(), "exec sleep 5");
    let variant = ["remote", "--variant", "first-byte-nbd-0ms"];
    let place = ["--dir", &dir, "--extant", &waits];
    let bench = Command::new(env!("CARGO_BIN_EXE_extant-bench"))
        .args([&variant[..], &SMALL, &place].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the bench starts");
    let bench = Killed(bench);
    // Before it is the server, a process has not asked for the signal that ends it.
    let is_server = |line: &String| !line.contains("setpriv");
    until("a server runs", || processes(&dir).iter().any(is_server));
    drop(bench);
    until("the server has ended", || processes(&dir).is_empty());
}
