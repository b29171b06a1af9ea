//! File systems in objects: everything as in the local file, in few round trips.

use crate::server::{Answer, Server, answer};
use crate::stores::Store;
use crate::support::hasty;
use extant::{Filesystem, MountOptions};
use extant_mkfs::defaults::InodeDensity;
use extant_mkfs::output::Output;
use extant_mkfs::source::{SourceOptions, read_source};
use extant_mkfs::{BuildOptions, FormatOptions, Silent, Size, build, build_into};
use extant_remote::{RemoteOptions, create, open};
use extant_testkit::nginx::Nginx;
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::rng::seed_from_env;
use extant_testkit::torture::random_plan;
use extant_testkit::{require, require_full};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Most round trips to the first byte of a small file.
const ROUND_TRIPS: u64 = 8;
/// Most bytes on the way to it.
const MOVED: u64 = 1 << 20;

fn mounted(url: &str, options: RemoteOptions) -> Filesystem {
    let device = open(url, options).unwrap();
    Filesystem::open_device(device, MountOptions::read_only()).unwrap()
}

/// An image that `mke2fs` made of a plan.
fn image(plan: &TreePlan, mebibytes: u64) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    plan.plant(&source);
    let path = dir.path().join("fs.img");
    let options = ["-t", "ext4", "-d", source.to_str().unwrap()];
    mke2fs(&path, mebibytes << 20, &options);
    (dir, path)
}

/// A server of a file, which counts.
fn counting(path: &Path) -> Server {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    Server::start(move |asked| {
        let range = asked.range(size).unwrap();
        let mut body = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut body, range.start).unwrap();
        let headers = [
            ("Content-Length", body.len().to_string()),
            (
                "Content-Range",
                format!("bytes {}-{}/{size}", range.start, range.end - 1),
            ),
            ("ETag", "\"one\"".to_owned()),
        ];
        Answer::Bytes(answer("206 Partial Content", &headers, &body))
    })
}

/// What both file systems hold is the same; returns the number of entries.
fn assert_same(local: &Filesystem, remote: &Filesystem) -> usize {
    let mut count = 0;
    let mut others = remote.walk("/").unwrap();
    for entry in local.walk("/").unwrap() {
        let (entry, other) = (entry.unwrap(), others.next().unwrap().unwrap());
        let path = entry.path();
        assert_eq!(path, other.path());
        let (one, two) = (entry.metadata(), other.metadata());
        assert_eq!(format!("{one:?}"), format!("{two:?}"), "{}", path.display());
        if one.is_file() {
            let (one, two) = (local.read(path).unwrap(), remote.read(path).unwrap());
            assert!(one == two, "{}", path.display());
        } else if one.is_symlink() {
            assert_eq!(
                local.read_link(path).unwrap(),
                remote.read_link(path).unwrap()
            );
        }
        count += 1;
    }
    assert!(others.next().is_none());
    count
}

#[test]
fn everything_behind_nginx_is_as_in_the_file() {
    require!(Root);
    let nginx = Nginx::start();
    let source = tempfile::tempdir().unwrap();
    let seed = seed_from_env("everything_behind_nginx_is_as_in_the_file");
    random_plan(seed, 600).plant(source.path());
    let tree = read_source(source.path(), SourceOptions::default()).unwrap();
    let format = FormatOptions::reproducible(0, 1_700_000_000, &tree.fingerprint());
    let options = BuildOptions::new(format, Size::Bytes(256 << 20));
    let path = nginx.root().join("fs.img");
    build(Some(&tree), &path, None, &options, &Silent).unwrap();
    let local = Filesystem::open(&path).unwrap();
    // Small enough that pieces come and go.
    let mut options = hasty();
    options.cache_bytes = 1 << 20;
    let count = assert_same(&local, &mounted(&nginx.url("fs.img"), options));
    assert!(count > 100, "{count} entries");
}

#[test]
fn an_image_is_made_in_a_store_without_a_local_copy() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let mut plan = TreePlan::new();
    for n in 0..300 {
        plan.dir(format!("{n}"));
        plan.file(format!("{n}/file"), Content::filled(n, 100_000));
    }
    plan.plant(&source);
    let tree = read_source(&source, SourceOptions::default()).unwrap();
    let format = FormatOptions::reproducible(0, 1_700_000_000, &tree.fingerprint());
    let options = BuildOptions::new(format, Size::Bytes(100 << 20));
    let path = dir.path().join("fs.img");
    build(Some(&tree), &path, None, &options, &Silent).unwrap();
    assert_clean(&path);
    let expected = fs::read(&path).unwrap();
    for store in Store::all() {
        let mut upload = store.upload();
        upload.memory_bytes = 16 << 20;
        let output = |size| {
            let writer = create(&store.url("fs.img"), size, upload).unwrap();
            Ok(Output::on_unfinished(writer.device(), true, || {
                writer.finish()
            }))
        };
        build_into(Some(&tree), output, &options, &Silent).unwrap();
        let device = open(&store.url("fs.img"), store.options()).unwrap();
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        assert!(bytes == expected, "{}", store.name);
        let local = Filesystem::open(&path).unwrap();
        let remote = mounted(&store.url("fs.img"), store.options());
        assert_same(&local, &remote);
    }
}

/// Reads one small file of the image, counts, and compares with the targets.
fn first_byte(path: &Path, file: &str, content: &[u8]) {
    let server = counting(path);
    let fs = mounted(&server.url("fs.img"), hasty());
    assert_eq!(fs.read(file).unwrap(), content);
    let (requests, moved) = (server.requests(), server.bytes());
    println!("{file}: {requests} requests, {moved} bytes");
    assert!(requests <= ROUND_TRIPS, "{:?}", server.asked());
    assert!(moved <= MOVED, "{moved} bytes");
}

#[test]
fn the_first_byte_of_a_small_file_takes_few_round_trips() {
    let mut plan = TreePlan::new();
    for dir in 0..50 {
        plan.dir(format!("dir{dir}"));
        for file in 0..100 {
            plan.file(
                format!("dir{dir}/file{file}"),
                Content::filled(dir * 100 + file, 2000),
            );
        }
    }
    let (dir, path) = image(&plan, 2048);
    let expected = fs::read(dir.path().join("source/dir37/file61")).unwrap();
    first_byte(&path, "/dir37/file61", &expected);
}

#[test]
fn the_first_byte_of_one_of_a_million_files_takes_few_round_trips() {
    require_full!("takes minutes, and 5 GiB of disk");
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("files.tar");
    let mut tar = BufWriter::new(File::create(&archive).unwrap());
    let content = |dir: usize, file: usize| format!("{dir:04}/{file:04} ").repeat(150).into_bytes();
    for dir in 0..1000 {
        tar.write_all(&tar_head(&format!("dir{dir:04}/"), 0, b'5'))
            .unwrap();
        for file in 0..1000 {
            let bytes = content(dir, file);
            let name = format!("dir{dir:04}/file{file:04}");
            tar.write_all(&tar_head(&name, bytes.len(), b'0')).unwrap();
            tar.write_all(&bytes).unwrap();
            tar.write_all(&vec![0; bytes.len().next_multiple_of(512) - bytes.len()])
                .unwrap();
        }
    }
    tar.write_all(&[0; 1024]).unwrap();
    drop(tar.into_inner().unwrap());
    let tree = read_source(&archive, SourceOptions::default()).unwrap();
    let mut format = FormatOptions::reproducible(0, 1_700_000_000, &tree.fingerprint());
    format.inodes = InodeDensity::Count(1_100_000);
    let path = dir.path().join("fs.img");
    let options = BuildOptions::new(format, Size::Bytes(10 << 30));
    build(Some(&tree), &path, None, &options, &Silent).unwrap();
    for (d, f) in [(0, 0), (567, 123), (999, 999)] {
        first_byte(&path, &format!("/dir{d:04}/file{f:04}"), &content(d, f));
    }
}

/// The head of an entry, as POSIX has it.
fn tar_head(name: &str, size: usize, kind: u8) -> [u8; 512] {
    let mut head = [0; 512];
    head[..name.len()].copy_from_slice(name.as_bytes());
    head[100..108].copy_from_slice(b"0000755\0");
    head[108..116].copy_from_slice(b"0000000\0");
    head[116..124].copy_from_slice(b"0000000\0");
    head[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    head[136..148].copy_from_slice(b"14000000000\0");
    head[156] = kind;
    head[257..265].copy_from_slice(b"ustar\x0000");
    head[148..156].fill(b' ');
    let sum: u32 = head.iter().map(|&byte| u32::from(byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    head
}
