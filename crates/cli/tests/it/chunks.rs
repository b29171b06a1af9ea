//! Images in chunks, as casync keeps them: made, named and read.

use crate::support::{Place, extant, extant_with};
use extant_testkit::nginx::Nginx;
use extant_testkit::oracle::assert_clean;
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::tool::tool;
use std::fs;
use std::path::Path;

/// An image with files, made in a place.
fn image(place: &Place) -> String {
    let mut plan = TreePlan::new();
    plan.dir("d");
    for n in 0..30 {
        plan.file(format!("d/{n}"), Content::filled(n, 300_000));
    }
    plan.file("small", Content::filled(99, 50));
    let (source, image) = (place.planted("source", &plan), place.arg("plain.img"));
    extant(["mkfs", &image, "--from", &source, "--size", "64M", "-q"]).ok();
    image
}

fn casync_make(store: &str, index: &str, source: &str) {
    let store = format!("--store={store}");
    tool("casync").args(["make", &store, index, source]).ok();
}

/// The raw image that casync makes of an index.
fn extracted(place: &Place, store: &str, index: &str) -> Vec<u8> {
    let raw = place.arg("extracted");
    let store = format!("--store={store}");
    tool("casync").args(["extract", &store, index, &raw]).ok();
    fs::read(raw).unwrap()
}

#[test]
fn convert_makes_the_index_and_the_chunks_that_casync_makes() {
    let place = Place::new();
    let plain = image(&place);
    let (theirs, ours, store) = (
        place.arg("theirs.caibx"),
        place.arg("ours.caibx"),
        place.arg("default.castr"),
    );
    casync_make(&store, &theirs, &plain);
    let made = extant(["convert", &plain, &ours, "--json"]).ok().json();
    assert_eq!(
        (&made["format"], &made["size"]),
        (&"caibx".into(), &(64 << 20).into())
    );
    assert_eq!(
        (&made["new_chunks"], &made["new_bytes"]),
        (&0.into(), &0.into())
    );
    assert!(made["chunks"].as_u64() > Some(100), "{made}");
    tool("cmp").args([&theirs, &ours]).ok();
    // Into a store of our own, and with chunks of another size.
    let other = place.arg("other.castr");
    let args = ["convert", "--force", &plain, &ours, "--store", &other];
    let told = extant([&args[..], &["--threads", "3"]].concat())
        .ok()
        .text();
    assert!(told.contains("chunks are new in"), "{told}");
    assert!(extracted(&place, &other, &ours) == fs::read(&plain).unwrap());
    for (option, sizes) in [("8K", "2048:8192:32768"), ("4K:8K:64K", "4096:8192:65536")] {
        let sized = [&args[..], &["--chunk-size", option]].concat();
        extant(sized).ok();
        let sizes = format!("--chunk-size={sizes}");
        let store = format!("--store={store}");
        tool("casync")
            .args(["make", &store, &sizes, &theirs, &plain])
            .ok();
        tool("cmp").args([&theirs, &ours]).ok();
    }
    // And back.
    let back = place.arg("back.img");
    let run = extant_with(["convert", &ours, &back, "--json"], |command| {
        command.env("EXTANT_CHUNK_STORE", &other);
    });
    assert_eq!(run.ok().json()["source_format"], "caibx");
    tool("cmp").args([&back, &plain]).ok();
}

#[test]
fn mkfs_makes_an_image_in_chunks() {
    let place = Place::new();
    image(&place);
    let (index, source) = (place.arg("made.caibx"), place.arg("source"));
    let mkfs = ["mkfs", &index, "--from", &source, "--size", "64M"];
    extant(mkfs).ok();
    let raw = place.join("raw");
    fs::write(&raw, extracted(&place, &place.arg("default.castr"), &index)).unwrap();
    assert_clean(&raw);
    let again = extant(mkfs).fails(1);
    assert!(
        again.stderr.contains("an index of chunks"),
        "{}",
        again.stderr
    );
    let info = extant(["info", "--json", &index]).ok().json();
    assert_eq!(info["container"]["format"], "caibx");
    assert_eq!(info["size"], 64 << 20);
    let told = extant(["info", &index]).ok().text();
    assert!(told.contains("Container:    caibx, "), "{told}");
    let small = extant(["cat", &format!("{index}:/small")]).ok();
    assert!(small.stdout == fs::read(place.join("source/small")).unwrap());
}

#[test]
fn a_store_that_is_not_there_and_chunks_that_are_not_are_named() {
    let place = Place::new();
    let plain = image(&place);
    let index = place.arg("x.caibx");
    extant(["convert", &plain, &index, "-q"]).ok();
    fs::rename(place.join("default.castr"), place.join("moved.castr")).unwrap();
    let missing = extant(["ls", &index]).fails(1);
    assert!(
        missing.stderr.contains("default.castr/"),
        "{}",
        missing.stderr
    );
    let with = |store: &str, args: &[&str]| {
        extant_with(args, |command| {
            command.env("EXTANT_CHUNK_STORE", store);
            command.current_dir(place.path());
        })
    };
    with("moved.castr", &["ls", &index]).ok();
    with("", &["ls", &index]).fails(1);
    // Nothing lies beside an open file.
    let through = |variable: &str| {
        let script = format!("cd \"$1\" && {variable} \"$2\" ls fd:3 3< x.caibx");
        let program = env!("CARGO_BIN_EXE_extant");
        let shell = tool("sh").args(["-c", &script, "sh"]).arg(place.path());
        shell.arg(program).run()
    };
    let refused = through("");
    assert_eq!(refused.code, 1, "{refused}");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("EXTANT_CHUNK_STORE"), "{told}");
    let listed = through("EXTANT_CHUNK_STORE=moved.castr");
    assert!(listed.text().contains("small"), "{listed}");
    // What begins as an index and is none.
    let bytes = fs::read(&index).unwrap();
    fs::write(&index, &bytes[..bytes.len() - 1]).unwrap();
    let cut = with("moved.castr", &["ls", &index]).fails(1);
    assert!(cut.stderr.contains("cut short"), "{}", cut.stderr);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let place = Place::new();
    let plain = image(&place);
    let (index, qcow2) = (place.arg("x.caibx"), place.arg("x.qcow2"));
    let convert = |target: &str, more: &[&str]| {
        extant([&["convert", &plain, target], more].concat())
            .fails(2)
            .stderr
    };
    for (target, more, why) in [
        (&qcow2, ["--store", "s"], "--format caibx"),
        (&qcow2, ["--chunk-size", "64K"], "--format caibx"),
        (&index, ["--chunk-size", "1K"], "1024 are the least"),
        (&index, ["--chunk-size", "8M"], "4194304 are the most"),
        (&index, ["--chunk-size", "1K:2K"], "16K:64K:256K"),
        (&index, ["--chunk-size", "64K:4K:256K"], "in this order"),
        (&index, ["--store", "http://host/store"], "no directory"),
    ] {
        let told = convert(target, &more);
        assert!(told.contains(why), "{more:?}: {told}");
    }
    let told = convert("s3://bucket/x.caibx", &[]);
    assert!(told.contains("raw images are made"), "{told}");
    assert!(!Path::new(&index).exists() && !place.join("default.castr").exists());
}

#[test]
fn an_archive_of_casync_is_named() {
    let place = Place::new();
    image(&place);
    let (store, source) = (place.arg("default.castr"), place.arg("source"));
    for name in ["tree.caidx", "tree.catar"] {
        let archive = place.arg(name);
        casync_make(&store, &archive, &source);
        let told = extant(["info", &archive]).ok().text();
        assert!(told.contains("an archive of casync"), "{told}");
        assert!(told.contains("casync extract"), "{told}");
        let refused = extant(["ls", &archive]).fails(1).stderr;
        assert!(refused.contains("an archive of casync"), "{refused}");
    }
}

#[test]
fn an_image_in_chunks_is_served_and_read_over_http() {
    let place = Place::new();
    let plain = image(&place);
    let nginx = Nginx::start();
    let index = nginx.root().join("x.caibx").display().to_string();
    extant(["convert", &plain, &index, "-q"]).ok();
    let url = nginx.url("x.caibx");
    let back = place.arg("back.img");
    extant(["convert", &url, &back, "-q"]).ok();
    tool("cmp").args([&back, &plain]).ok();
    let socket = place.arg("socket");
    let mut server = tool(env!("CARGO_BIN_EXE_extant"))
        .args([
            "serve",
            &url,
            "--read-only",
            "--nbd",
            &format!("unix:{socket}"),
        ])
        .background(&place.join("log"));
    server.wait_for_socket(Path::new(&socket));
    let copy = place.arg("copy.img");
    tool("nbdcopy")
        .args([&format!("nbd+unix:///?socket={socket}"), &copy])
        .ok();
    tool("cmp").args([&copy, &plain]).ok();
}

#[test]
fn the_secrets_of_a_store_are_in_no_message() {
    let place = Place::new();
    let plain = place.arg("plain.img");
    fs::write(&plain, [0; 4096]).unwrap();
    let index = place.arg("x.caibx");
    for (store, named) in [
        ("https://user:hush@host.test/store", "host.test/store"),
        ("https://host.test/store?key=hush", "host.test/store"),
        ("s3://user:hush@bucket/store", "is no directory"),
        ("ftp://user:hush@host.test/store", "is no directory"),
    ] {
        let by_variable = extant_with(["convert", &plain, &index, "-q"], |command| {
            command.env("EXTANT_CHUNK_STORE", store);
        });
        let by_option = extant(["convert", &plain, &index, "--store", store]);
        for refused in [by_variable.fails(2), by_option.fails(2)] {
            assert!(refused.stderr.contains(named), "{}", refused.stderr);
            assert!(!refused.stderr.contains("hush"), "{}", refused.stderr);
        }
    }
    assert!(!Path::new(&index).exists());
}
