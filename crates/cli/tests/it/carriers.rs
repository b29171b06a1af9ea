//! All commands over everything that carries an image, compared with the raw file.

use crate::support::{Place, Run, extant, extant_with};
use extant_testkit::nginx::Nginx;
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::require;
use extant_testkit::stores::StoreServer;
use extant_testkit::tool::{Background, tool};
use std::path::{Path, PathBuf};

const SIZE: u64 = 32 << 20;

/// Variables of the environment.
type Variables<'a> = &'a [(&'static str, String)];

/// Runs with one clock, so that the same commands give the same bytes.
fn run(args: &[&str], input: &str) -> Run {
    run_with(args, input, &[])
}

fn run_with(args: &[&str], input: &str, variables: Variables<'_>) -> Run {
    extant_with(args, |command| {
        command.env("SOURCE_DATE_EPOCH", "1700000000");
        command.envs(variables.iter().cloned());
        command.write_stdin(input.to_owned());
    })
}

/// The arguments with the image in the place of `IMG`, and the directory of sources of `SRC`.
fn with(args: &[&str], image: &str, source: &Path) -> Vec<String> {
    let source = source.display().to_string();
    let one = |arg: &&str| arg.replace("IMG", image).replace("SRC", &source);
    args.iter().map(one).collect()
}

/// Every command that changes an image, at least once.
const CHANGES: &[&[&str]] = &[
    &["mkdir", "-p", "IMG:/d/e"],
    &["cp", "SRC/small", "SRC/large", "IMG:/d/"],
    &["cp", "-r", "SRC/tree", "IMG:/tree"],
    &["cp", "-a", "IMG:/tree", "IMG:/d/again"],
    &["write", "IMG:/d/input"],
    &["write", "--at", "1M", "IMG:/d/sparse"],
    &["ln", "IMG:/d/small", "IMG:/d/hard"],
    &["ln", "-s", "small", "IMG:/d/soft"],
    &["mv", "IMG:/d/small", "IMG:/d/moved"],
    &["chmod", "640", "IMG:/d/moved"],
    &["chown", "7:8", "IMG:/d/moved"],
    &["touch", "-d", "@1000000000", "IMG:/d/touched"],
    &["truncate", "-s", "100K", "IMG:/d/large"],
    &["fallocate", "-l", "1M", "IMG:/d/reserved"],
    &["xattr", "set", "IMG:/d/moved", "user.a", "value"],
    &["acl", "set", "u:7:rw", "IMG:/d/moved"],
    &["chattr", "+A", "IMG:/d/moved"],
    &["mknod", "IMG:/d/pipe", "p"],
    &["rm", "-r", "IMG:/tree"],
    &["replay", "IMG"],
    &["tune", "--label", "carried", "IMG"],
    &["repair", "--no-undo", "IMG"],
];

/// Every command that reads an image, at least once.
const READS: &[&[&str]] = &[
    &["ls", "-lR", "IMG"],
    &["tree", "IMG:/d"],
    &["cat", "IMG:/d/input", "IMG:/d/large"],
    &["stat", "--json", "IMG:/d/moved"],
    &["find", "IMG:/d", "--name", "*a*"],
    &["tar", "IMG:/d"],
    &["df", "IMG"],
    &["quota", "IMG"],
    &["map", "--json", "IMG"],
    &["lsattr", "IMG:/d"],
    &["xattr", "get", "IMG:/d/moved", "user.a"],
    &["acl", "get", "IMG:/d/moved"],
    &["tune", "--list", "IMG"],
    &["check", "IMG"],
];

/// What commands say, with the image's own name taken out.
fn told(
    commands: &[&[&str]],
    image: &str,
    source: &Path,
    variables: Variables<'_>,
) -> Vec<(i32, Vec<u8>, String)> {
    commands
        .iter()
        .map(|args| {
            let args = with(args, image, source);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let run = run_with(&args, "from a pipe\n", variables);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(image, "IMG");
            let stderr = run.stderr.replace(image, "IMG");
            assert!(
                [0, 1].contains(&run.code),
                "{args:?}: {}",
                text(run.stderr.as_bytes())
            );
            let stdout = if args[0] == "tar" {
                run.stdout
            } else {
                text(&run.stdout).into_bytes()
            };
            (run.code, stdout, stderr)
        })
        .collect()
}

fn compare(
    what: &str,
    commands: &[&[&str]],
    image: &str,
    source: &Path,
    variables: Variables<'_>,
    reference: &[(i32, Vec<u8>, String)],
) {
    let found = told(commands, image, source, variables);
    for ((args, found), expected) in commands.iter().zip(&found).zip(reference) {
        assert_eq!(
            (found.0, &found.2),
            (expected.0, &expected.2),
            "{what}: {args:?}"
        );
        assert!(
            found.1 == expected.1,
            "{what}: {args:?} says something else"
        );
    }
}

fn source(place: &Place) -> PathBuf {
    let source = place.join("source");
    std::fs::create_dir_all(source.join("tree/below")).expect("a directory");
    std::fs::write(source.join("small"), "small\n").expect("a file");
    std::fs::write(source.join("large"), vec![b'x'; 300_000]).expect("a file");
    for n in 0..40 {
        let name = source.join(format!("tree/below/{n}"));
        std::fs::write(name, format!("{n}\n").repeat(n * 50)).expect("a file");
    }
    source
}

/// An image that is the same each time, and the raw file that all is compared with.
struct Base {
    place: Place,
    source: PathBuf,
    fresh: PathBuf,
    changed: PathBuf,
    changes: Vec<(i32, Vec<u8>, String)>,
    reads: Vec<(i32, Vec<u8>, String)>,
}

impl Base {
    fn new() -> Self {
        let place = Place::new();
        let source = source(&place);
        let fresh = place.join("fresh.img");
        mke2fs(&fresh, SIZE, &["-t", "ext4"]);
        let changed = place.join("changed.img");
        std::fs::copy(&fresh, &changed).expect("room");
        let image = changed.display().to_string();
        let changes = told(CHANGES, &image, &source, &[]);
        for (args, told) in CHANGES.iter().zip(&changes) {
            assert_eq!(told.0, 0, "{args:?}: {}", told.2);
        }
        assert_clean(&changed);
        let reads = told(READS, &image, &source, &[]);
        Self {
            place,
            source,
            fresh,
            changed,
            changes,
            reads,
        }
    }

    /// Compares what all commands say over a carrier of the fresh image.
    fn judge(&self, what: &str, image: &str) {
        compare(what, CHANGES, image, &self.source, &[], &self.changes);
        self.judge_reads(what, image, &[]);
    }

    fn judge_reads(&self, what: &str, image: &str, variables: Variables<'_>) {
        compare(what, READS, image, &self.source, variables, &self.reads);
    }

    /// All commands that change an image, none of which does: each says `why`.
    fn judge_changes_refused(&self, image: &str, variables: Variables<'_>, why: &str) {
        for args in CHANGES {
            let args = with(args, image, &self.source);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let refused = run_with(&args, "", variables).fails_somehow();
            assert!(refused.stderr.contains(why), "{args:?}: {}", refused.stderr);
        }
    }

    /// Whether a raw copy of a carrier has the bytes of the raw file.
    fn same_bytes(&self, what: &str, raw: &Path) {
        assert_clean(raw);
        let found = std::fs::read(raw).expect("the copy");
        let expected = std::fs::read(&self.changed).expect("the raw file");
        assert!(
            found[..expected.len().min(found.len())] == expected,
            "{what}: other bytes"
        );
    }

    /// A carrier in a format, made by qemu-img.
    fn converted(&self, name: &str, options: &[&str]) -> String {
        let path = self.place.arg(name);
        let convert = tool("qemu-img")
            .args(["convert", "-f", "raw"])
            .args(options);
        convert.arg(&self.fresh).arg(&path).ok();
        path
    }

    /// The raw disk in a carrier, by qemu-img.
    fn raw_of(&self, format: &str, carrier: &str) -> PathBuf {
        let raw = self.place.join("back.img");
        let convert = tool("qemu-img").args(["convert", "-f", format, "-O", "raw"]);
        convert.arg(carrier).arg(&raw).ok();
        raw
    }
}

fn serve(place: &Place, program: &str, args: &[&str], socket: &str) -> Background {
    let log = place.join(&format!("{program}.log"));
    let mut server = tool(program).args(args).background(&log);
    server.wait_for_socket(Path::new(socket));
    server
}

#[test]
fn every_command_does_the_same_over_nbd_by_nbdkit() {
    let base = Base::new();
    let behind = base.place.arg("behind.img");
    std::fs::copy(&base.fresh, &behind).expect("room");
    let socket = base.place.arg("nbdkit.sock");
    let file = format!("file={behind}");
    let server = serve(
        &base.place,
        "nbdkit",
        &["-f", "-U", &socket, "file", &file],
        &socket,
    );
    base.judge("nbdkit", &format!("nbd+unix:///?socket={socket}"));
    drop(server);
    base.same_bytes("nbdkit", Path::new(&behind));
}

#[test]
fn every_command_does_the_same_over_nbd_by_qemu_nbd_on_qcow2() {
    let base = Base::new();
    let behind = base.converted("behind.qcow2", &["-O", "qcow2"]);
    let socket = base.place.arg("qemu.sock");
    let args = [
        "-t", "-f", "qcow2", "-k", &socket, "-x", "disk one", &behind,
    ];
    let server = serve(&base.place, "qemu-nbd", &args, &socket);
    base.judge(
        "qemu-nbd",
        &format!("nbd+unix:///disk%20one?socket={socket}"),
    );
    drop(server);
    tool("qemu-img").args(["check", &behind]).ok();
    base.same_bytes("qemu-nbd", &base.raw_of("qcow2", &behind));
}

#[test]
fn every_command_does_the_same_in_formats() {
    let base = Base::new();
    for (format, options) in [
        ("qcow2", &["-O", "qcow2"][..]),
        (
            "vpc",
            &["-O", "vpc", "-o", "subformat=dynamic,force_size=on"],
        ),
        ("vpc", &["-O", "vpc", "-o", "subformat=fixed,force_size=on"]),
    ] {
        let carrier = base.converted("carrier", options);
        base.judge(format, &carrier);
        if format == "qcow2" {
            tool("qemu-img").args(["check", &carrier]).ok();
        }
        base.same_bytes(format, &base.raw_of(format, &carrier));
    }
}

#[test]
fn every_command_that_reads_does_the_same_where_nothing_is_written() {
    let base = Base::new();
    let changed = base.changed.display().to_string();
    let simg = base.place.arg("carried.simg");
    tool("img2simg").args([&changed, &simg]).ok();
    tool("sh")
        .args([
            "-c",
            "gzip -k1 \"$1\"; zstd -q -1 \"$1\"; xz -k0 \"$1\"",
            "sh",
            &changed,
        ])
        .ok();
    let compressed = ["gz", "zst", "xz"].map(|end| format!("{changed}.{end}"));
    for carrier in std::iter::once(&simg).chain(&compressed) {
        base.judge_reads(carrier, carrier, &[]);
        let refused = extant(["touch", &format!("{carrier}:/x")]).fails(1);
        assert!(refused.stderr.contains("convert"), "{}", refused.stderr);
    }
}

#[test]
fn every_command_that_reads_does_the_same_over_http_and_no_other_does_anything() {
    let base = Base::new();
    let nginx = Nginx::start();
    std::fs::copy(&base.changed, nginx.root().join("changed.img")).expect("room");
    let url = nginx.url("changed.img");
    base.judge_reads("http", &url, &[]);
    base.judge_changes_refused(&url, &[], "changed nowhere in place");
    let refused = extant(["mkfs", "--force", &url]).fails_somehow();
    assert!(
        refused.stderr.contains("changed nowhere in place"),
        "{}",
        refused.stderr
    );
}

#[test]
fn every_command_that_reads_does_the_same_in_stores_and_no_other_does_anything() {
    let base = Base::new();
    let changed = base.changed.display().to_string();
    for server in StoreServer::all() {
        let (name, variables) = (server.name(), server.variables());
        let url = &server.url("carried/changed.img");
        run_with(&["convert", &changed, url], "", &variables).ok();
        base.judge_reads(name, url, &variables);
        // A new object is made in a store, and nothing in one that is there.
        let part = format!("{url}#1");
        for (args, why) in [
            (["mkfs", "--size=32M", url], "--force replaces it"),
            (["mkfs", "--size=32M", &part], "changed nowhere in place"),
        ] {
            let refused = run_with(&args, "", &variables).fails_somehow();
            assert!(refused.stderr.contains(why), "{name}: {}", refused.stderr);
        }
        base.judge_changes_refused(url, &variables, "changed nowhere in place");
        // It is what it was.
        let back = base.place.arg("back.img");
        run_with(&["convert", "--force", url, &back], "", &variables).ok();
        base.same_bytes(name, Path::new(&back));
    }
}

#[test]
fn every_command_that_reads_does_the_same_of_what_google_holds_and_no_other_does_anything() {
    require!(GoogleServer);
    let base = Base::new();
    let server = StoreServer::fake_gcs();
    server.give_google("carried/changed.img", &base.changed);
    let (url, variables) = (server.url("carried/changed.img"), server.variables());
    base.judge_reads(server.name(), &url, &variables);
    base.judge_changes_refused(&url, &variables, "changed nowhere in place");
}

#[test]
fn every_command_that_reads_does_the_same_in_chunks_and_no_other_does_anything() {
    let base = Base::new();
    let changed = base.changed.display().to_string();
    let nginx = Nginx::start();
    let root = nginx.root();
    let path = |name: &str| root.join(name).display().to_string();
    // By casync, and by us into the same store.
    let (theirs, ours) = (path("theirs.caibx"), path("ours.caibx"));
    let store = format!("--store={}", path("default.castr"));
    tool("casync")
        .args(["make", &store, &theirs, &changed])
        .ok();
    run(&["convert", &changed, &ours], "").ok();
    for index in [&theirs, &ours] {
        base.judge_reads(index, index, &[]);
        base.judge_changes_refused(index, &[], "convert it first");
    }
    for url in [nginx.url("theirs.caibx"), nginx.url("ours.caibx")] {
        base.judge_reads(&url, &url, &[]);
        base.judge_changes_refused(&url, &[], "changed nowhere in place");
    }
    // Where the chunks are elsewhere, the environment says so.
    let moved = base.place.arg("moved.caibx");
    std::fs::copy(&ours, &moved).expect("room");
    for store in [path("default.castr"), nginx.url("default.castr")] {
        let variables = [("EXTANT_CHUNK_STORE", store)];
        base.judge_reads("a store elsewhere", &moved, &variables);
    }
}

#[test]
fn a_file_system_is_made_on_an_export_and_over_what_is_there_only_if_forced() {
    let place = Place::new();
    let source = source(&place);
    let (behind, socket) = (place.arg("behind"), place.arg("sock"));
    let file = std::fs::File::create(&behind).expect("a file");
    file.set_len(SIZE).expect("a size");
    let option = format!("file={behind}");
    let args = ["-f", "-U", &socket, "file", &option];
    let _server = serve(&place, "nbdkit", &args, &socket);
    let url = format!("nbd+unix:///?socket={socket}");
    let from = source.display().to_string();
    run(&["mkfs", &url, "--from", &from], "").ok();
    assert_clean(Path::new(&behind));
    assert_eq!(
        run(&["cat", &format!("{url}:/small")], "").ok().text(),
        "small\n"
    );
    // As a file of this size has it.
    let raw = place.arg("raw.img");
    run(&["mkfs", &raw, "--from", &from, "--size", "32M"], "").ok();
    assert!(std::fs::read(&raw).expect("one") == std::fs::read(&behind).expect("another"));
    let copy = place.arg("copy.img");
    run(&["convert", &url, &copy], "").ok();
    assert!(std::fs::read(&copy).expect("one") == std::fs::read(&behind).expect("another"));
    run(&["convert", &copy, &url], "").fails(2);
    let too_large = run(&["mkfs", &url, "--size", "1G", "--force"], "").fails(1);
    assert!(
        too_large.stderr.contains("only 33554432 bytes are there"),
        "{}",
        too_large.stderr
    );
    mke2fs(Path::new(&behind), SIZE, &["-t", "ext4", "-L", "precious"]);
    let refused = run(&["mkfs", &url], "").fails(1);
    assert!(refused.stderr.contains("precious") && refused.stderr.contains("--force"));
    run(&["mkfs", "--force", &url], "").ok();
    assert_clean(Path::new(&behind));
}

#[test]
fn what_would_have_to_grow_behind_a_server_says_what_to_do() {
    let place = Place::new();
    let raw = place.arg("raw.img");
    mke2fs(Path::new(&raw), SIZE, &["-t", "ext4"]);
    let large = place.arg("large");
    std::fs::write(&large, vec![7; 8 << 20]).expect("a file");
    for (format, word) in [("raw", "raw"), ("qcow2", "qcow2"), ("vpc", "vhd")] {
        let behind = place.arg(&format!("behind.{word}"));
        tool("qemu-img")
            .args(["convert", "-O", format, &raw, &behind])
            .ok();
        let socket = place.arg(&format!("{word}.sock"));
        let option = format!("file={behind}");
        let args = ["-f", "-U", &socket, "file", &option];
        let _server = serve(&place, "nbdkit", &args, &socket);
        let url = format!("nbd+unix:///?socket={socket}");
        let resized = run(&["resize", &url, "128M"], "").fails(8).stderr;
        let advice = match format {
            "raw" => "an export keeps its size".to_owned(),
            _ => format!("the disk in the {word} keeps its size"),
        };
        assert!(resized.contains(&advice), "{word}: {resized}");
        let copied = run(&["cp", &large, &format!("{url}:/large")], "");
        if format == "raw" {
            copied.ok();
            continue;
        }
        let why = copied.fails(1).stderr;
        assert!(why.contains("the export keeps its"), "{word}: {why}");
        assert!(why.contains("qemu-nbd -f qcow2"), "{word}: {why}");
        // What was there before is there, and the image opens.
        run(&["ls", &format!("{url}:/lost+found")], "").ok();
    }
}
