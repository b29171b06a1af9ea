//! Cutting an image into chunks and putting them into a store.
//!
//! Chunks are of one size and aligned: what lies in an image stays at its place from build to
//! build, or moves by whole blocks. (casync cuts by content, so that its stores share with ours
//! only what is cut alike: chunks of zeroes, and images that we made.)
//!
//! # Invariants
//! - An index appears when all its chunks are durable.
//! - A chunk that is there already is used if it holds what its name says. A crash may have left
//!   less.

use super::index::{Algorithm, Id, Index};
use super::store::{OVERHEAD, name_of};
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult};
use extant_sync::atomic::AtomicBool;
use extant_sync::{CountedAtomicU64, LockClass, Mutex, Rank, RmwClass};
use rustix::fs::syncfs;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

/// Bytes of a chunk.
const CHUNK: u64 = 64 << 10;
/// Of zstd: its default.
const LEVEL: i32 = 3;

static CLAIMS: LockClass = LockClass::new("chunks that are claimed", Rank::Leaf);
static COUNTS: RmwClass = RmwClass::new("chunks being made");

/// What became of an image that was cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChunkReport {
    /// Chunks of the image.
    pub chunks: u64,
    /// Chunks that the store did not have, or had damaged.
    pub new_chunks: u64,
    /// Bytes of these, compressed.
    pub new_bytes: u64,
}

/// Cuts an image into chunks, puts those that are new into the directory `store`, and writes the
/// index to the file `index` (`.caibx`), which appears when all chunks are durable. casync and
/// desync read both.
///
/// # Errors
/// When the image cannot be read, or the index or a chunk cannot be written. Chunks that were
/// written before that stay in the store; casync and desync remove what no index names.
pub fn make(image: &dyn BlockDevice, index: &Path, store: &Path) -> DeviceResult<ChunkReport> {
    let size = image.size();
    let number = size.div_ceil(CHUNK);
    // Opened before anything is written, so that no failure of the disk is missed.
    let folder = fs::create_dir_all(store)
        .and_then(|()| File::open(store))
        .map_err(|e| cannot("write", store, e))?;
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let making = Making {
        image,
        store,
        zeroes: Algorithm::Sha512_256.digest(&[0; CHUNK as usize]),
        claimed: Mutex::new(&CLAIMS, HashSet::new()),
        next: CountedAtomicU64::new(&COUNTS, 0),
        number,
        has_failed: AtomicBool::new(false),
    };
    let parts: Vec<DeviceResult<Part>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| making.work()))
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .map(|result| result.unwrap_or(Err(DeviceError::Cancelled)))
            .collect()
    });
    let mut chunks = vec![(0, making.zeroes); number as usize];
    let mut report = ChunkReport {
        chunks: number,
        ..ChunkReport::default()
    };
    for part in parts {
        let part = part?;
        report.new_chunks += part.new_chunks;
        report.new_bytes += part.new_bytes;
        for (chunk, id) in part.ids {
            chunks[chunk as usize].1 = id;
        }
    }
    for (chunk, (end, _)) in (1..).zip(&mut chunks) {
        *end = size.min(chunk * CHUNK);
    }
    let listed = Index {
        algorithm: Algorithm::Sha512_256,
        sizes: [CHUNK; 3],
        chunks,
    };
    // All chunks and folders at once, also those that an earlier run left.
    syncfs(&folder).map_err(|e| cannot("write", store, e.into()))?;
    put(index, &listed.write(), Durable::Now).map_err(|e| cannot("write", index, e))?;
    Ok(report)
}

/// What one thread made.
#[derive(Default)]
struct Part {
    ids: Vec<(u64, Id)>,
    new_chunks: u64,
    new_bytes: u64,
}

struct Making<'a> {
    image: &'a dyn BlockDevice,
    store: &'a Path,
    /// The digest of a chunk of zeroes.
    zeroes: Id,
    /// Chunks that a thread has put into the store, or is about to.
    claimed: Mutex<HashSet<Id>>,
    next: CountedAtomicU64,
    number: u64,
    has_failed: AtomicBool,
}

impl Making<'_> {
    fn work(&self) -> DeviceResult<Part> {
        let mut part = Part::default();
        let mut packer = zstd::bulk::Compressor::new(LEVEL)
            .map_err(|e| cannot("compress for", self.store, e))?;
        let mut bytes = vec![0; CHUNK as usize];
        // A failure elsewhere is told there.
        while !self.has_failed.load(Ordering::Relaxed) {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.number {
                break;
            }
            let result = self.make_chunk(chunk, &mut bytes, &mut packer, &mut part);
            if result.is_err() {
                self.has_failed.store(true, Ordering::Relaxed);
            }
            result?;
        }
        Ok(part)
    }

    fn make_chunk(
        &self,
        chunk: u64,
        bytes: &mut [u8],
        packer: &mut zstd::bulk::Compressor<'_>,
        part: &mut Part,
    ) -> DeviceResult<()> {
        let start = chunk * CHUNK;
        let end = (start + CHUNK).min(self.image.size());
        let bytes = &mut bytes[..(end - start) as usize];
        if self.image.next_data(start, end)?.is_some() {
            self.image.read_at(start, bytes)?;
        } else {
            bytes.fill(0);
        }
        let id = Algorithm::Sha512_256.digest(bytes);
        part.ids.push((chunk, id));
        if !self.claimed.lock().insert(id) {
            return Ok(());
        }
        let [folder, file] = name_of(&id);
        let path = self.store.join(folder).join(file);
        if holds(&path, bytes) {
            return Ok(());
        }
        let packed = packer
            .compress(bytes)
            .map_err(|e| cannot("compress for", &path, e))?;
        put(&path, &packed, Durable::Later).map_err(|e| cannot("write", &path, e))?;
        part.new_chunks += 1;
        part.new_bytes += packed.len() as u64;
        Ok(())
    }
}

/// Whether a file is the chunk of these bytes, in whatever way it is compressed.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    let most = bytes.len() as u64 + OVERHEAD;
    let read = || {
        let mut packed = Vec::new();
        File::open(path)?.take(most).read_to_end(&mut packed)?;
        zstd::bulk::decompress(&packed, bytes.len() + 1)
    };
    read().is_ok_and(|found| found == bytes)
}

/// When a file is to be durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    Now,
    Later,
}

/// Writes a file that appears when it is complete.
fn put(path: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new()
        .prefix(".new")
        .permissions(readable())
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    if durable == Durable::Now {
        file.as_file().sync_all()?;
    }
    let _: File = file.persist(path).map_err(|e| e.error)?;
    if durable == Durable::Now {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// As other files are made, less what the process leaves out.
fn readable() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

fn cannot(op: &'static str, path: &Path, error: io::Error) -> DeviceError {
    DeviceError::Open {
        op,
        path: path.to_owned(),
        source: error,
    }
}
