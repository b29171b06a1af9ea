//! Large files into and out of images behind an NBD server at hand, where they go by ways of their
//! own: past memory, and by several threads.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, debugfs, mke2fs};
use extant_testkit::tool::{Background, tool};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes of an image.
const SIZE: u64 = 96 << 20;

/// A server of an image, and its address.
fn serve(place: &Place, image: &str, more: &[&str]) -> (Background, String) {
    let socket = place.join(&format!("{image}.socket"));
    let _ = std::fs::remove_file(&socket);
    let mut server = tool("nbdkit")
        .args(["-f", "-U"])
        .arg(&socket)
        .args(more)
        .arg(format!("file={}", place.arg(image)))
        .background(&place.join("nbdkit.log"));
    server.wait_for_socket(&socket);
    let address = format!("nbd+unix:///?socket={}", socket.display());
    (server, address)
}

/// A file of data that no block of is like another, with holes of these bytes.
fn file(path: &Path, size: u64, holes: &[std::ops::Range<u64>]) {
    let file = File::create(path).expect("a file");
    file.set_len(size).expect("a size");
    for at in (0..size).step_by(4096) {
        if holes.iter().any(|hole| hole.contains(&at)) {
            continue;
        }
        let block: Vec<u8> = (0..512)
            .flat_map(|n| (at * 512 + n + 1).to_le_bytes())
            .collect();
        let len = (size - at).min(4096) as usize;
        file.write_all_at(&block[..len], at).expect("room");
    }
}

fn assert_same(expected: &Path, found: &Path) {
    let read = |path: &Path| std::fs::read(path).expect("a file");
    assert!(read(expected) == read(found), "{}", found.display());
}

/// Where blocks can be reserved, where clusters are longer than what pieces begin and end at, and
/// where nothing can be reserved.
#[test]
fn large_files_go_into_and_out_of_an_image_behind_a_server() {
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
        &["-t", "ext3"],
    ] {
        into_and_out(options);
    }
}

fn into_and_out(options: &[&str]) {
    let place = Place::new();
    mke2fs(&place.join("image"), SIZE, options);
    let (server, address) = serve(&place, "image", &["file"]);
    let hole = |from: u64, to: u64| from << 12..to << 12;
    let cases = [
        // Whole blocks; half a sector at the end; holes at both ends of pieces and of the file.
        ("whole", 12 << 20, vec![]),
        ("odd", (9 << 20) + 257, vec![hole(1000, 1500)]),
        (
            "holes",
            20 << 20,
            vec![hole(0, 300), hole(1024, 1025), hole(4000, 5120)],
        ),
        ("tail", (10 << 20) + 1, vec![hole(2048, 2560)]),
    ];
    for (name, size, holes) in &cases {
        let source = place.join(name);
        file(&source, *size, holes);
        let inside = format!("{address}:/{name}");
        extant(["cp", &place.arg(name), &inside]).ok();
        let out = place.join(&format!("{name}.out"));
        extant(["cp", &inside, &out.display().to_string()]).ok();
        assert_same(&source, &out);
        let blocks = |path: &Path| path.metadata().expect("a file").blocks();
        assert!(blocks(&out) <= blocks(&source), "{name} keeps its holes");
        let told = extant(["stat", "--json", &inside]).ok().json();
        assert_eq!(told["size"], *size, "{name}");
        let holes: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
        let most = (size.next_multiple_of(4096) - holes) / 512;
        let found = told["blocks"].as_u64().expect("a number");
        // Clusters, and blocks that map others.
        let more = if options.len() > 2 {
            32 * 8
        } else {
            most / 200 + 16
        };
        assert!(
            found <= most + more,
            "{options:?}: {name} has {found} sectors, {most} with data"
        );
    }
    // Over what is there: what it has stays, the content is another one.
    let inside = format!("{address}:/holes");
    extant(["chmod", "4710", &inside]).ok();
    extant(["cp", &place.arg("odd"), &inside]).ok();
    let mode = &extant(["stat", "--json", &inside]).ok().json()["mode"];
    assert_eq!(mode, "4710");
    // In place of what is there.
    extant(["cp", "-a", &place.arg("tail"), &format!("{address}:/whole")]).ok();
    drop(server);
    let image = place.join("image");
    assert_clean(&image);
    for (name, source) in [("holes", "odd"), ("whole", "tail"), ("tail", "tail")] {
        let dumped = place.join("dumped");
        debugfs(&image, &format!("dump /{name} {}", dumped.display()));
        assert_same(&place.join(source), &dumped);
    }
}

#[test]
fn a_large_file_without_room_is_refused_and_leaves_nothing() {
    let place = Place::new();
    mke2fs(&place.join("image"), 16 << 20, &["-t", "ext4"]);
    let (server, address) = serve(&place, "image", &["file"]);
    file(&place.join("large"), 24 << 20, &[]);
    let run = extant(["cp", &place.arg("large"), &format!("{address}:/large")]).fails(1);
    assert!(run.stderr.contains("extant resize"), "{}", run.stderr);
    assert_eq!(extant(["ls", &address]).ok().text().trim(), "lost+found");
    drop(server);
    assert_clean(&place.join("image"));
}

#[test]
fn a_large_file_that_cannot_be_read_to_its_end_is_not_left_in_part() {
    let place = Place::new();
    let image = place.join("image");
    mke2fs(&image, SIZE, &["-t", "ext4"]);
    file(&place.join("large"), 32 << 20, &[]);
    extant([
        "cp",
        &place.arg("large"),
        &format!("{}:/large", image.display()),
    ])
    .ok();
    // From some moment on every read fails.
    let trigger = place.arg("trigger");
    let (server, address) = serve(
        &place,
        "image",
        &[
            "-r",
            "--filter=error",
            "file",
            "error-pread=EIO",
            "error-pread-rate=10%",
            &format!("error-pread-file={trigger}"),
        ],
    );
    let out = place.join("out");
    let copy = || {
        extant([
            "cp",
            &format!("{address}:/large"),
            &out.display().to_string(),
        ])
    };
    copy().ok();
    assert_same(&place.join("large"), &out);
    std::fs::remove_file(&out).expect("it is there");
    std::fs::write(&trigger, "").expect("a file");
    copy().fails(1);
    assert!(!out.exists());
    drop(server);
}
