//! Images in chunks, made by casync and read by us, and the other way round.

use crate::server::{Answer, Server, answer, whole};
use crate::stores::Store;
use crate::support::{hasty, object, read_all, text};
use extant_blockdev::{
    BlockDevice, DeviceError, DeviceResult, FileOptions, MemoryDevice, Request, SharedDevice,
};
use extant_remote::{
    ChunkOptions, ChunkReport, ChunkSizes, RemoteOptions, chunk_store_beside, make_chunks, open,
    open_chunks,
};
use extant_testkit::nginx::Nginx;
use extant_testkit::tool::tool;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::IoSlice;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// Opens an image by the path of its index, and the store beside it.
fn opened(index: &Path) -> DeviceResult<SharedDevice> {
    opened_with(index, hasty())
}

fn opened_with(index: &Path, options: RemoteOptions) -> DeviceResult<SharedDevice> {
    let file = FileOptions::read_only().open(index)?;
    open_chunks(&file, &chunk_store_beside(index.as_os_str()), options)
}

/// Opens an image by the URL of its index, and the store beside it.
fn opened_at(url: &str, options: RemoteOptions) -> DeviceResult<SharedDevice> {
    let index = open(url, options.clone())?;
    open_chunks(&*index, &chunk_store_beside(OsStr::new(url)), options)
}

/// Cuts an image into chunks.
fn make_as(
    image: &dyn BlockDevice,
    index: &Path,
    store: &Path,
    options: &ChunkOptions,
) -> DeviceResult<ChunkReport> {
    let done = std::sync::atomic::AtomicU64::new(0);
    let advance = |bytes| {
        done.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    };
    let file = FileOptions::create(0).open(index)?;
    let report = make_chunks(image, &file, store, options, &advance)?;
    assert_eq!(done.into_inner(), image.size());
    Ok(report)
}

fn make(image: &dyn BlockDevice, index: &Path, store: &Path) -> DeviceResult<ChunkReport> {
    make_as(image, index, store, &ChunkOptions::default())
}

fn options(sizes: [u64; 3], threads: usize) -> ChunkOptions {
    let [min, average, max] = sizes;
    let mut options = ChunkOptions::default();
    options.sizes = ChunkSizes::new(min, average, max).unwrap();
    options.threads = NonZero::new(threads);
    options
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
        let device = opened(&index).unwrap();
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
    let device = opened_with(&index, options).unwrap();
    assert!(read_all(&device).unwrap() == bytes);
}

#[test]
fn the_chunks_of_a_batch_come_from_a_server_together() {
    let bytes = blob();
    let dir = tempfile::tempdir().unwrap();
    let (index, store) = (dir.path().join("x.caibx"), dir.path().join("store"));
    let image = MemoryDevice::new(bytes.len() as u64);
    image.write_at(0, &bytes).unwrap();
    let sizes = options([4096, 16_384, 65_536], 1);
    make_as(&image, &index, &store, &sizes).unwrap();
    assert_eq!(opened_with_store(&index, &store).unwrap().in_flight(), 1);
    let root = dir.path().to_owned();
    let server = Server::start(move |asked| {
        std::thread::sleep(Duration::from_millis(20));
        match fs::read(root.join(asked.path.trim_start_matches('/'))) {
            Ok(chunk) => Answer::Bytes(whole(asked, &chunk, "\"one\"")),
            Err(_) => Answer::Bytes(answer(
                "404 Not Found",
                &[("Content-Length", "0".to_owned())],
                b"",
            )),
        }
    });
    let file = FileOptions::read_only().open(&index).unwrap();
    for (cache_bytes, in_flight) in [(64 << 20, 8), (0, 5)] {
        let mut options = RemoteOptions::default();
        (options.cache_bytes, options.in_flight) = (cache_bytes, in_flight);
        let device = open_chunks(&file, server.url("store").as_ref(), options).unwrap();
        assert_eq!(device.in_flight(), in_flight);
        // Backwards, so that nothing is read ahead; some in the same chunk, one over many.
        let mut places: Vec<(u64, usize)> = (0..30).rev().map(|n| (n * 49_999, 500)).collect();
        places.extend([
            (1_400_150, 50),
            (1_400_100, 50),
            (9, 300_000),
            (2_999_000, 2000),
        ]);
        let (before, size) = (server.requests(), device.size());
        let mut batch: Vec<_> = places.iter().map(|&(at, n)| Request::read(at, n)).collect();
        batch.push(Request::Flush);
        batch.push(Request::read(size - 1, 2));
        batch.push(Request::write_copy(0, &[IoSlice::new(&[1; 512])]));
        batch.push(Request::Flush);
        let done = device.submit(batch).wait();
        let requests = server.requests() - before;
        assert!(requests >= 30, "{requests} requests");
        if cache_bytes > 0 {
            let all = chunk_files(&store).len() as u64;
            assert!(requests <= all, "{requests} requests for {all} chunks");
        }
        let mut done = done.into_iter();
        for (at, len) in places {
            let read = done.next().unwrap();
            read.result.unwrap();
            let buf = read.request.into_read_buf().unwrap();
            let at = at as usize;
            assert!(buf[..] == bytes[at..at + len], "{len} bytes at {at}");
        }
        done.next().unwrap().result.unwrap();
        let outside = done.next().unwrap().result.unwrap_err();
        assert!(
            matches!(outside, DeviceError::OutOfRange { .. }),
            "{outside}"
        );
        let write = done.next().unwrap().result.unwrap_err();
        assert!(matches!(write, DeviceError::ReadOnly { .. }), "{write}");
        let last = done.next().unwrap().result.unwrap_err();
        assert!(matches!(last, DeviceError::Cancelled), "{last}");
        assert!(done.next().is_none());
        if in_flight == 8 {
            let most = server.largest_transfer();
            assert!((5..=8).contains(&most), "{most} requests at once");
        }
    }
    // One that is missing fails its own request, and no other.
    let device = open_chunks(&file, server.url("store").as_ref(), hasty()).unwrap();
    for chunk in chunk_files(&store) {
        fs::remove_file(chunk).unwrap();
    }
    let hole = Request::read(2_000_000, 100);
    let done = device.submit(vec![Request::read(0, 100), hole]).wait();
    let missing = done[0].result.as_ref().unwrap_err();
    assert!(text(missing).contains("404"), "{missing}");
    let folder = server.url("store/");
    assert!(text(missing).contains(&folder), "{missing}");
    assert!(text(missing).contains(".cacnk"), "{missing}");
    assert!(done[1].result.is_ok());
}

#[test]
fn other_compressions_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let index = casync_make(dir.path(), &object(100_000), &["--compression=gzip"]);
    let device = opened(&index).unwrap();
    let error = read_all(&device).unwrap_err();
    assert!(text(&error).contains("gzip"), "{error}");
}

#[test]
fn chunks_are_read_from_web_servers_and_buckets() {
    let bytes = blob();
    let nginx = Nginx::start();
    let index = casync_make(&nginx.root(), &bytes, &[]);
    let device = opened_at(&nginx.url("blob.caibx?version=1"), hasty()).unwrap();
    assert!(read_all(&device).unwrap() == bytes);
    let file = FileOptions::read_only().open(&index).unwrap();
    let store = nginx.url("default.castr/");
    let device = open_chunks(&file, store.as_ref(), hasty()).unwrap();
    assert!(read_all(&device).unwrap() == bytes);
    for bucket in Store::all() {
        for file in chunk_files(&nginx.root().join("default.castr")) {
            let key = file.strip_prefix(nginx.root()).unwrap();
            bucket.put(shown(key), &fs::read(&file).unwrap(), 1 << 20);
        }
        bucket.put("blob.caibx", &fs::read(&index).unwrap(), 1 << 20);
        let device = opened_at(&bucket.url("blob.caibx"), bucket.options()).unwrap();
        assert!(read_all(&device).unwrap() == bytes, "{}", bucket.name);
        let store = bucket.url("default.castr/");
        let device = open_chunks(&file, OsStr::new(&store), bucket.options()).unwrap();
        assert!(read_all(&device).unwrap() == bytes, "{}", bucket.name);
    }
}

#[test]
fn missing_and_damaged_chunks_are_named() {
    let bytes = blob();
    let dir = tempfile::tempdir().unwrap();
    let index = casync_make(dir.path(), &bytes, &[]);
    let store = dir.path().join("default.castr");
    let files = chunk_files(&store);
    let device = opened(&index).unwrap();
    let other = fs::read(files.last().unwrap()).unwrap();
    for (n, file) in files.iter().enumerate() {
        let good = fs::read(file).unwrap();
        match n % 5 {
            0 => fs::remove_file(file).unwrap(),
            // Another chunk under its name.
            1 => fs::write(file, &other).unwrap(),
            2 => fs::write(file, &good[..good.len() / 2]).unwrap(),
            // A pipe without another end, which nobody waits for.
            3 => {
                fs::remove_file(file).unwrap();
                tool("mkfifo").arg(file).ok();
            }
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
        let error = opened(&path).unwrap_err();
        assert!(text(&error).contains("index"), "{error}");
    }
    let store = dir.path().join("store");
    // With holes alone, more than an index may have.
    File::create(&path).unwrap().set_len(2 << 30).unwrap();
    let file = FileOptions::read_only().open(&path).unwrap();
    let error = open_chunks(&file, store.as_os_str(), hasty()).unwrap_err();
    assert!(text(&error).contains("2147483648 bytes"), "{error}");
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
        made.push(make(&image, &index, &store).unwrap());
        let out = dir.path().join(format!("{n}.out"));
        tool("casync")
            .args(["extract".as_ref(), index.as_os_str(), out.as_os_str()])
            .arg(format!("--store={}", store.display()))
            .ok();
        assert!(fs::read(&out).unwrap() == bytes, "image {n}");
        let device = opened(&index).unwrap();
        assert!(read_all(&device).unwrap() == bytes, "image {n}");
        // The next image differs in one place.
        bytes[1_000_000] ^= 1;
    }
    assert!(made[0].new_chunks < made[0].chunks, "zeroes are one chunk");
    // What differs, and what is cut elsewhere for that reason.
    assert!((1..4).contains(&made[1].new_chunks), "{:?}", made[1]);
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
    let fixed = options([64 << 10; 3], 2);
    let new_chunks = || {
        let made = make_as(&image, &index, &store, &fixed);
        made.unwrap().new_chunks
    };
    assert_eq!(new_chunks(), 10);
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
    assert_eq!(new_chunks(), 3);
    let device = opened(&index).unwrap();
    assert!(read_all(&device).unwrap() == bytes);
}

#[test]
fn an_index_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let image = MemoryDevice::new(100_000);
    fs::write(dir.path().join("file"), b"x").unwrap();
    let store = dir.path().join("file/store");
    let index = dir.path().join("x.caibx");
    let error = make(&image, &index, &store).unwrap_err();
    assert!(text(&error).contains("file/store"), "{error}");
    assert_eq!(fs::read(&index).unwrap(), b"");
    // A folder of chunks that is none: the index has no end, and is refused.
    let store = dir.path().join("store");
    fs::create_dir(&store).unwrap();
    let made = make(&image, &index, &store).unwrap();
    assert!(opened_with_store(&index, &store).is_ok());
    assert_eq!(made.new_chunks, 1);
    let folder = fs::read_dir(&store)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, b"").unwrap();
    let error = make(&image, &index, &store).unwrap_err();
    assert!(text(&error).contains(shown(&folder)), "{error}");
    assert!(opened_with_store(&index, &store).is_err());
}

fn opened_with_store(index: &Path, store: &Path) -> DeviceResult<SharedDevice> {
    let file = FileOptions::read_only().open(index)?;
    open_chunks(&file, store.as_os_str(), hasty())
}

/// What casync makes of a file by these sizes, and what we make of it by several numbers of
/// threads: the same index, and the same chunks.
fn compare_with_casync(file: &Path, sizes: [u64; 3]) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let [min, average, max] = sizes;
    // Of nothing casync makes no store.
    fs::create_dir(path("casync.castr")).unwrap();
    let casync = |name: &str, store: &str| {
        tool("casync")
            .args(["make", &format!("--chunk-size={min}:{average}:{max}")])
            .arg(format!("--store={}", path(store).display()))
            .arg(path(name))
            .arg(file)
            .ok();
        fs::read(path(name)).unwrap()
    };
    let expected = casync("casync.caibx", "casync.castr");
    let names = |store: &str| {
        let files = chunk_files(&path(store)).into_iter();
        let names: Vec<_> = files.map(|f| f.file_name().unwrap().to_owned()).collect();
        names
    };
    let image = FileOptions::read_only().open(file).unwrap();
    for threads in [1, 3] {
        let store = path(&format!("{threads}.castr"));
        let index = path("ours.caibx");
        let made = make_as(&image, &index, &store, &options(sizes, threads)).unwrap();
        assert!(fs::read(&index).unwrap() == expected, "another index");
        assert_eq!(names(&format!("{threads}.castr")), names("casync.castr"));
        assert_eq!(made.new_chunks, names("casync.castr").len() as u64);
    }
    // Each finds what the other has put into a store.
    let (ours, theirs) = (path("1.castr"), path("casync.castr"));
    let index = path("again.caibx");
    let made = make_as(&image, &index, &theirs, &options(sizes, 2)).unwrap();
    assert_eq!((made.new_chunks, made.new_bytes), (0, 0));
    let before = times(&ours);
    casync("again.caibx", "1.castr");
    assert_eq!(times(&ours), before, "casync has put chunks there");
}

/// The chunks of a store, with the times of their last changes.
fn times(store: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let files = chunk_files(store).into_iter();
    let time = |file: &PathBuf| file.metadata().unwrap().modified().unwrap();
    files.map(|file| (file.clone(), time(&file))).collect()
}

const DEFAULT: [u64; 3] = [16 << 10, 64 << 10, 256 << 10];

#[test]
fn chunks_are_those_of_casync_whatever_the_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("blob");
    let mut bytes = blob();
    // A text, and something that comes again at an odd place.
    bytes.extend_from_slice("all work and no play\n".repeat(20_000).as_bytes());
    bytes.extend_from_within(100_001..1_100_000);
    fs::write(&file, &bytes).unwrap();
    for sizes in [
        DEFAULT,
        [1024, 4096, 16_384],
        [10_000, 70_000, 100_000],
        [1_000_000, 1_000_000, 4_000_000],
        // The divisor is limited by the smallest or by the largest size.
        [65_536, 65_536, 70_000],
        [16_384, 65_536, 1 << 20],
        // Of one size.
        [65_536; 3],
        [5000; 3],
    ] {
        compare_with_casync(&file, sizes);
    }
    for len in [0, 47, 48, 16_384, 262_145] {
        fs::write(&file, object(len)).unwrap();
        compare_with_casync(&file, DEFAULT);
    }
}

#[test]
fn chunks_are_those_of_casync_over_stretches_and_holes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let file = File::create(&path).unwrap();
    // Data over the end of what is read at once, holes that begin and end anywhere, and zeroes at
    // the end that are no hole.
    file.write_all_at(&object(40_000_000), 0).unwrap();
    file.write_all_at(&object(1_000_003), 70_000_001).unwrap();
    file.write_all_at(&object(777), 90_000_000).unwrap();
    file.write_all_at(&vec![0; 3_000_000], 91_000_000).unwrap();
    compare_with_casync(&path, DEFAULT);
    file.set_len(96_123_457).unwrap();
    compare_with_casync(&path, [65_536, 262_144, 1 << 20]);
}

#[test]
fn holes_are_not_read_and_cost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let file = File::create(&path).unwrap();
    file.set_len(1 << 36).unwrap();
    file.write_all_at(&object(300_000), 30_000_000_123).unwrap();
    let image = FileOptions::read_only().open(&path).unwrap();
    let (index, store) = (dir.path().join("x.caibx"), dir.path().join("default.castr"));
    let began = std::time::Instant::now();
    let made = make(&image, &index, &store).unwrap();
    // A part of what reading alone would take.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    assert!(made.chunks >= 1 << 18 && made.new_chunks < 20, "{made:?}");
    let device = opened(&index).unwrap();
    assert_eq!(device.size(), 1 << 36);
    let mut bytes = vec![0; 300_000];
    device.read_at(30_000_000_123, &mut bytes).unwrap();
    assert!(bytes == object(300_000));
    let extents = device.data_extents(0..device.size()).unwrap();
    let data: u64 = extents.iter().map(|range| range.end - range.start).sum();
    assert!(data < 2 << 20, "{extents:?}");
}
