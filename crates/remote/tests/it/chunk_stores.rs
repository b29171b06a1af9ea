//! Images in chunks, made by casync and read by us, and the other way round.

use crate::s3::S3;
use crate::support::{hasty, object, read_all, text};
use crate::web_servers::Nginx;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_remote::{make_chunks, open_chunks};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes with repetitions and zeroes, as images have.
fn blob() -> Vec<u8> {
    let noise = object(1_500_000);
    let mut bytes = noise.clone();
    bytes.resize(3_000_000, 0);
    bytes.extend_from_slice(&noise);
    bytes.extend_from_slice(&noise[..777]);
    bytes
}

/// What casync makes of a file: the index, beside its store.
fn casync_make(dir: &Path, bytes: &[u8], options: &[&str]) -> PathBuf {
    let file = dir.join("blob");
    fs::write(&file, bytes).unwrap();
    let index = dir.join("blob.caibx");
    tool("casync")
        .args(["make"])
        .args(options)
        .arg(format!("--store={}", dir.join("default.castr").display()))
        .args([&index, &file])
        .ok();
    index
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn chunk_files(store: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(store).unwrap().flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).unwrap().flatten());
    let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    files.sort();
    files
}

#[test]
fn what_casync_made_is_read() {
    let bytes = blob();
    let all: [&[&str]; 4] = [
        &[],
        &["--digest=sha256"],
        &["--chunk-size=1024:4096:16384"],
        &["--chunk-size=1000000"],
    ];
    for options in all {
        let dir = tempfile::tempdir().unwrap();
        let index = casync_make(dir.path(), &bytes, options);
        let device = open_chunks(shown(&index), None, hasty()).unwrap();
        assert!(read_all(&device).unwrap() == bytes, "{options:?}");
        for at in [0, 1, 65_535, 1_499_999, 2_999_990, bytes.len() - 9] {
            let mut buf = [0; 9];
            device.read_at(at as u64, &mut buf).unwrap();
            assert_eq!(buf, bytes[at..at + 9]);
        }
        assert!(device.read_at(bytes.len() as u64 - 1, &mut [0; 2]).is_err());
        // Zeroes are known without chunks.
        let extents = device.data_extents(0..device.size()).unwrap();
        let data: u64 = extents.iter().map(|range| range.end - range.start).sum();
        assert!(data >= 3_000_000 && data <= device.size());
    }
}

#[test]
fn memory_that_holds_few_chunks_is_enough() {
    let bytes = blob();
    let dir = tempfile::tempdir().unwrap();
    let index = casync_make(dir.path(), &bytes, &[]);
    let mut options = hasty();
    options.cache_bytes = 0;
    options.in_flight = 1;
    let device = open_chunks(shown(&index), None, options).unwrap();
    assert!(read_all(&device).unwrap() == bytes);
}

#[test]
fn other_compressions_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let index = casync_make(dir.path(), &object(100_000), &["--compression=gzip"]);
    let device = open_chunks(shown(&index), None, hasty()).unwrap();
    let error = read_all(&device).unwrap_err();
    assert!(text(&error).contains("gzip"), "{error}");
}

#[test]
fn chunks_are_read_from_web_servers_and_buckets() {
    let bytes = blob();
    let nginx = Nginx::start();
    let index = casync_make(&nginx.root(), &bytes, &[]);
    let device = open_chunks(&nginx.url("blob.caibx"), None, hasty()).unwrap();
    assert!(read_all(&device).unwrap() == bytes);
    let store = nginx.url("default.castr/");
    let device = open_chunks(shown(&index), Some(&store), hasty()).unwrap();
    assert!(read_all(&device).unwrap() == bytes);
    require!(S3Servers);
    for s3 in S3::all() {
        for file in chunk_files(&nginx.root().join("default.castr")) {
            let key = file.strip_prefix(nginx.root()).unwrap();
            s3.put(shown(key), &fs::read(&file).unwrap(), 1 << 20);
        }
        s3.put("blob.caibx", &fs::read(&index).unwrap(), 1 << 20);
        let device = open_chunks("s3://images/blob.caibx", None, s3.options()).unwrap();
        assert!(read_all(&device).unwrap() == bytes, "{}", s3.name);
        let store = Some("s3://images/default.castr/");
        let device = open_chunks(shown(&index), store, s3.options()).unwrap();
        assert!(read_all(&device).unwrap() == bytes, "{}", s3.name);
    }
}

#[test]
fn missing_and_damaged_chunks_are_named() {
    let bytes = blob();
    let dir = tempfile::tempdir().unwrap();
    let index = casync_make(dir.path(), &bytes, &[]);
    let store = dir.path().join("default.castr");
    let files = chunk_files(&store);
    let device = open_chunks(shown(&index), None, hasty()).unwrap();
    for (n, file) in files.iter().enumerate() {
        let good = fs::read(file).unwrap();
        match n % 4 {
            0 => fs::remove_file(file).unwrap(),
            // Another chunk under its name.
            1 => drop(fs::copy(&files[(n + 1) % files.len()], file).unwrap()),
            2 => fs::write(file, &good[..good.len() / 2]).unwrap(),
            _ => fs::write(file, zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap()).unwrap(),
        }
    }
    let mut errors = 0;
    for at in (0..device.size()).step_by(200_000) {
        if let Err(error) = device.read_at(at, &mut [0; 100]) {
            let name = files
                .iter()
                .map(|f| f.file_name().unwrap().to_str().unwrap());
            assert!(
                name.into_iter().any(|n| text(&error).contains(n)),
                "{error}"
            );
            errors += 1;
        }
    }
    assert!(errors >= 10, "{errors} errors");
}

#[test]
fn what_is_no_index_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.caibx");
    for bytes in [&b""[..], b"short", &object(4096)] {
        fs::write(&path, bytes).unwrap();
        let error = open_chunks(shown(&path), None, hasty()).unwrap_err();
        assert!(text(&error).contains("index"), "{error}");
    }
    assert!(open_chunks("/none/x.caibx", None, hasty()).is_err());
}

#[test]
fn casync_reads_what_we_make_and_images_share_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("default.castr");
    let mut bytes = blob();
    let mut made = Vec::new();
    for n in 0..2 {
        let image = MemoryDevice::new(bytes.len() as u64);
        image.write_at(0, &bytes).unwrap();
        let index = dir.path().join(format!("{n}.caibx"));
        made.push(make_chunks(&image, &index, &store).unwrap());
        let out = dir.path().join(format!("{n}.out"));
        tool("casync")
            .args(["extract".as_ref(), index.as_os_str(), out.as_os_str()])
            .arg(format!("--store={}", store.display()))
            .ok();
        assert!(fs::read(&out).unwrap() == bytes, "image {n}");
        let device = open_chunks(shown(&index), None, hasty()).unwrap();
        assert!(read_all(&device).unwrap() == bytes, "image {n}");
        // The next image differs in one place.
        bytes[1_000_000] ^= 1;
    }
    assert_eq!(made[0].chunks, bytes.len().div_ceil(64 << 10) as u64);
    assert!(made[0].new_chunks < made[0].chunks, "zeroes are one chunk");
    assert_eq!(made[1].new_chunks, 1);
    let kept: u64 = chunk_files(&store)
        .iter()
        .map(|f| f.metadata().unwrap().len())
        .sum();
    assert_eq!(kept, made[0].new_bytes + made[1].new_bytes);
}

#[test]
fn chunks_that_a_crash_damaged_are_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("default.castr");
    let index = dir.path().join("x.caibx");
    let bytes = object(640 << 10);
    let image = MemoryDevice::new(bytes.len() as u64);
    image.write_at(0, &bytes).unwrap();
    assert_eq!(make_chunks(&image, &index, &store).unwrap().new_chunks, 10);
    for (n, file) in chunk_files(&store).iter().enumerate() {
        let mut chunk = fs::read(file).unwrap();
        match n {
            0 => chunk.clear(),
            1 => chunk.truncate(1000),
            2 => chunk.fill(0),
            // As another program may compress it.
            3 => {
                chunk = zstd::bulk::compress(&zstd::bulk::decompress(&chunk, 1 << 20).unwrap(), 9)
                    .unwrap()
            }
            _ => continue,
        }
        fs::write(file, chunk).unwrap();
    }
    assert_eq!(make_chunks(&image, &index, &store).unwrap().new_chunks, 3);
    let device = open_chunks(shown(&index), None, hasty()).unwrap();
    assert!(read_all(&device).unwrap() == bytes);
}

#[test]
fn an_index_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let image = MemoryDevice::new(100_000);
    fs::write(dir.path().join("file"), b"x").unwrap();
    let store = dir.path().join("file/store");
    let error = make_chunks(&image, &dir.path().join("x.caibx"), &store).unwrap_err();
    assert!(text(&error).contains("file/store"), "{error}");
    assert!(!dir.path().join("x.caibx").exists());
}
