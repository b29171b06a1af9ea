//! How many round trips in a row it takes to work on images behind servers that are far: until the
//! first byte of a small file of a large image is there, to copy many files, and to open for
//! writing and to close.

use crate::support::{Place, extant_with};
use extant::{Filesystem, MountOptions};
use extant_blockdev::FileOptions;
use extant_testkit::link::{Counts, Link, Protocol, Speed};
use extant_testkit::nginx;
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::tool::{Background, tool};
use extant_testkit::tree::{Compare, Tree};
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

/// Has nbdkit serve an image, to be read and written.
fn serve(place: &Place, image: &str) -> Background {
    let socket = place.join("nbd");
    let _ = std::fs::remove_file(&socket);
    let mut nbdkit = tool("nbdkit")
        .args(["-f", "-U", &place.arg("nbd"), "file", &place.arg(image)])
        .background(&place.join("nbdkit.log"));
    nbdkit.wait_for_socket(&socket);
    nbdkit
}

/// Runs the command over a link to an image. In its arguments `DISK` stands for the image, and `AT`
/// for what is inside.
fn over_a_link(place: &Place, image: &str, args: &[&str]) -> Counts {
    let _nbdkit = serve(place, image);
    let link = Link::open(Protocol::Nbd, &place.join("nbd"), SPEED).expect("a link");
    let disk = format!("nbd://127.0.0.1:{}/", link.port());
    let at = format!("{disk}:");
    let args = args
        .iter()
        .map(|arg| arg.replace("AT", &at).replace("DISK", &disk));
    extant_with(args, |_| ()).ok();
    let counts = link.counts().expect("all of it is understood");
    eprintln!("{counts:?}");
    counts
}

/// Some hundred small files and links with long targets, in directories in directories.
fn deep_tree() -> TreePlan {
    let mut plan = TreePlan::new();
    let mut path = String::new();
    for dir in 0..40 {
        path = match dir % 8 {
            0 => format!("d{dir}"),
            _ => format!("{path}/d{dir}"),
        };
        plan.dir(path.clone());
        for file in 0..20 {
            let content = Content::filled(dir * 20 + file, 1000 + file * 331);
            plan.file(format!("{path}/f{file}"), content);
        }
        plan.symlink(
            format!("{path}/link"),
            "/far/away".repeat(20 + dir as usize),
        );
    }
    plan
}

#[test]
fn many_files_are_copied_into_and_out_of_an_image_in_few_round_trips() {
    let place = Place::new();
    let plan = deep_tree();
    let (from, to) = (place.join("from"), place.join("to"));
    std::fs::create_dir(&from).expect("a directory");
    plan.plant(&from);
    let options = ["-t", "ext4", "-b", "1024"];
    mke2fs(&place.join("far.img"), 64 << 20, &options);
    let args = ["cp", "-a", "-T", &place.arg("from"), "AT/tree"];
    let into = over_a_link(&place, "far.img", &args);
    assert!(into.round_trips <= MOST_INTO, "{into:?}");
    assert_clean(&place.join("far.img"));

    let args = ["cp", "-a", "-T", "AT/", &place.arg("to")];
    let out = over_a_link(&place, "far.img", &args);
    assert!(out.round_trips <= MOST_OUT, "{out:?}");
    let compare = Compare {
        root: false,
        ..Compare::default()
    };
    Tree::snapshot(&from).assert_same(&Tree::snapshot(&to.join("tree")), &compare);
}

/// For a tree in which directories lie eight deep.
const MOST_INTO: u64 = 26;
const MOST_OUT: u64 = 20;

#[test]
fn images_in_formats_take_as_few_round_trips_as_raw_ones() {
    let place = Place::new();
    let plan = deep_tree();
    let (from, to) = (place.join("from"), place.join("to"));
    std::fs::create_dir(&from).expect("a directory");
    plan.plant(&from);
    let compare = Compare {
        root: false,
        ..Compare::default()
    };
    let options = ["-t", "ext4", "-b", "1024"];
    mke2fs(&place.join("raw.img"), 64 << 20, &options);
    let convert = |args: &[&str], from: &str, to: &str| {
        let convert = tool("qemu-img").arg("convert").args(args);
        convert.arg(place.arg(from)).arg(place.arg(to)).ok();
    };
    // Everything has its place already: exports do not grow.
    let whole = ["-O", "qcow2", "-S", "0", "-o", "preallocation=full"];
    convert(&whole, "raw.img", "far.qcow2");
    let args = ["cp", "-a", "-T", &place.arg("from"), "AT/tree"];
    let into = over_a_link(&place, "far.qcow2", &args);
    assert!(into.round_trips <= MOST_INTO + OF_FORMAT, "{into:?}");
    tool("qemu-img")
        .args(["check", "-q", &place.arg("far.qcow2")])
        .ok();
    convert(&["-O", "raw"], "far.qcow2", "far.img");
    assert_clean(&place.join("far.img"));

    convert(&["-O", "vpc"], "far.img", "far.vhd");
    convert(&["-O", "qcow2"], "far.img", "sparse.qcow2");
    for image in ["far.qcow2", "sparse.qcow2", "far.vhd"] {
        let args = ["cp", "-a", "-T", "AT/", &place.arg("to")];
        let out = over_a_link(&place, image, &args);
        assert!(out.round_trips <= MOST_OUT + OF_FORMAT, "{image}: {out:?}");
        let found = Tree::snapshot(&to.join("tree"));
        Tree::snapshot(&from).assert_same(&found, &compare);
        std::fs::remove_dir_all(&to).expect("removed");
    }
}

/// To know the format, and to read its tables.
const OF_FORMAT: u64 = 15;

#[test]
fn thousands_of_files_are_copied_into_a_small_log_in_few_round_trips() {
    const DIRECTORIES: u64 = 100;
    const FILES: u64 = 30;
    let place = Place::new();
    let mut plan = TreePlan::new();
    for dir in 0..DIRECTORIES {
        plan.dir(format!("d{dir}"));
        for file in 0..FILES {
            let number = dir * FILES + file;
            let content = Content::filled(number, 200 + number * 37 % 8000);
            plan.file(format!("d{dir}/f{file}"), content);
        }
    }
    let from = place.join("from");
    std::fs::create_dir(&from).expect("a directory");
    plan.plant(&from);
    let image = place.join("far.img");
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=4"];
    mke2fs(&image, 96 << 20, &options);
    let args = ["cp", "-a", "-T", &place.arg("from"), "AT/tree"];
    let into = over_a_link(&place, "far.img", &args);
    assert!(into.round_trips <= MOST_FOR_THOUSANDS, "{into:?}");
    assert_clean(&image);
}

const MOST_FOR_THOUSANDS: u64 = 36;

#[test]
fn a_file_system_is_made_in_few_round_trips() {
    let place = Place::new();
    let from = place.join("from");
    std::fs::create_dir(&from).expect("a directory");
    deep_tree().plant(&from);
    let image = place.join("far.img");
    let file = std::fs::File::create(&image).expect("a file");
    // Some hundred groups, each of which has an inode table that is zeroed.
    file.set_len(1 << 30).expect("a size");
    let args = [
        "mkfs",
        "DISK",
        "--block-size",
        "1K",
        "--from",
        &place.arg("from"),
    ];
    let made = over_a_link(&place, "far.img", &args);
    assert!(made.round_trips <= MOST_TO_MAKE, "{made:?}");
    assert_clean(&image);
}

const MOST_TO_MAKE: u64 = 60;

#[test]
fn a_disk_is_converted_with_many_requests_under_way() {
    const MIB: usize = 16;
    let place = Place::new();
    let bytes: Vec<u8> = (0..MIB << 20).map(|n| (n / 4093 % 255) as u8 + 1).collect();
    std::fs::write(place.join("far.img"), &bytes).expect("written");
    let args = [
        "convert",
        "DISK",
        &place.arg("to.qcow2"),
        "--image-format",
        "raw",
    ];
    let converted = over_a_link(&place, "far.img", &args);
    // Some mebibytes at a time.
    let most = MIB as u64 / 2 + MOST_TO_OPEN;
    assert!(converted.round_trips <= most, "{converted:?}");
    tool("qemu-img")
        .args([
            "compare",
            "-q",
            &place.arg("far.img"),
            &place.arg("to.qcow2"),
        ])
        .ok();
}

/// To connect, and to see what is there.
const MOST_TO_OPEN: u64 = 10;

#[test]
fn opening_for_writing_and_closing_take_few_round_trips() {
    let place = Place::new();
    let options = ["-t", "ext4", "-b", "4096"];
    mke2fs(&place.join("far.img"), 64 << 20, &options);
    let counts = over_a_link(&place, "far.img", &["mkdir", "AT/new"]);
    assert!(counts.round_trips <= MOST_TO_CHANGE, "{counts:?}");
    assert_clean(&place.join("far.img"));
}

/// To open, to make one directory, and to close.
const MOST_TO_CHANGE: u64 = 16;

#[test]
fn a_log_is_replayed_in_few_round_trips() {
    const DIRECTORIES: u64 = 3000;
    let place = Place::new();
    let image = place.join("far.img");
    mke2fs(
        &image,
        256 << 20,
        &["-b", "4096", "-J", "size=32", "-N", "8192"],
    );
    let device = FileOptions::read_write().open(&image).expect("a device");
    let options = MountOptions::read_write().background(false);
    let fs = Filesystem::open_device(Arc::new(device), options).expect("it opens");
    for dir in 0..DIRECTORIES {
        fs.create_dir(format!("/d{dir:05}")).expect("a directory");
        if dir % 250 == 249 {
            fs.sync().expect("a sync");
        }
    }
    // As after a crash: nothing is written home.
    for copy in ["read.img", "changed.img"] {
        std::fs::copy(&image, place.join(copy)).expect("a copy");
    }
    drop(fs);
    let read = over_a_link(&place, "read.img", &["ls", "AT/"]);
    assert!(read.round_trips <= MOST_TO_REPLAY, "{read:?}");
    assert!(read.to_client > 10 << 20, "there is a log: {read:?}");
    let written = over_a_link(&place, "changed.img", &["mkdir", "AT/new"]);
    let most = MOST_TO_REPLAY + MOST_TO_CHANGE;
    assert!(written.round_trips <= most, "{written:?}");
    let image = place.join("changed.img");
    assert_clean(&image);
    let fs = Filesystem::open(&image).expect("it opens");
    let entries = fs.read_dir("/").expect("a directory");
    // With that of lost files, and the new one.
    assert_eq!(entries.count() as u64, DIRECTORIES + 2);
}

/// To open an image with a log of more than ten mebibytes, and to list its root.
const MOST_TO_REPLAY: u64 = 60;
