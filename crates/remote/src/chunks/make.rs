//! Cutting an image into chunks and putting them into a store.
//!
//! While some threads make chunks of one stretch of the image, others read the next one and search
//! it for marks. Then the ends of its chunks are chosen, and it is the next one's turn.
//!
//! # Invariants
//! - An index is complete when all its chunks are durable.
//! - A chunk that is there already is used if it holds what its name says. A crash may have left
//!   less.

use super::cut::{ChunkSizes, Cutter};
use super::index::{self, Algorithm, Id};
use super::store::{OVERHEAD, name_of, open_chunk};
use super::stretch::{Following, Piece, Stretch};
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult};
use extant_sync::{LockClass, Mutex, Rank};
use rustix::fs::syncfs;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::thread;

/// Of zstd: its default.
const LEVEL: i32 = 3;
/// Bytes of the index that are written at once.
const LISTED: usize = 1 << 20;
/// Digests that are remembered; of a chunk that is forgotten the store is asked.
const REMEMBERED: usize = 1 << 20;

static CLAIMS: LockClass = LockClass::new("chunks that are claimed", Rank::Leaf);
static WORK: LockClass = LockClass::new("chunks to be made", Rank::Leaf);

/// How an image is cut into chunks. Made with `default()`, changed field by field.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ChunkOptions {
    /// Sizes of chunks.
    pub sizes: ChunkSizes,
    /// Threads; one for each processor if `None`.
    pub threads: Option<NonZero<usize>>,
}

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
/// index (`.caibx`) to the device `index`, which is empty and grows. Chunks end where casync lets
/// them end, and with the sizes that [`ChunkSizes`] names desync too; both read what is made.
/// `progress` is called with numbers of bytes of the image that are done.
///
/// All chunks are durable before the end of the index is written, without which nothing reads it.
/// To flush it is left to the caller.
///
/// # Errors
/// When the image cannot be read, or the index or a chunk cannot be written. Chunks that were
/// written before that stay in the store; casync and desync remove what no index names.
pub fn make(
    image: &dyn BlockDevice,
    index: &dyn BlockDevice,
    store: &Path,
    options: &ChunkOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> DeviceResult<ChunkReport> {
    // Opened before anything is written, so that no failure of the disk is missed.
    let folder = fs::create_dir_all(store)
        .and_then(|()| File::open(store))
        .map_err(|e| cannot("write", store, e))?;
    let cutter = Cutter::new(options.sizes);
    let largest = options.sizes.max;
    let zeroes = vec![0; largest as usize];
    let mut making = Making {
        image,
        store,
        algorithm: Algorithm::Sha512_256,
        cutter,
        progress,
        claimed: Mutex::new(&CLAIMS, HashSet::new()),
    };
    let threads = options
        .threads
        .or_else(|| thread::available_parallelism().ok())
        .map_or(1, NonZero::get);
    let ChunkSizes { min, average, max } = options.sizes;
    let head = index::head(making.algorithm, [min, average, max]);
    let mut listing = Listing::new(index, head);
    let mut report = ChunkReport::default();
    let mut stretch = Stretch::default();
    loop {
        let ends = stretch.ends(&making.cutter, image.size());
        let Following {
            holes,
            stretch: mut next,
        } = stretch.following(image, &making.cutter, &ends)?;
        let part = making.turn(&stretch, &ends, &mut next, threads)?;
        report.new_chunks += part.new_chunks;
        report.new_bytes += part.new_bytes;
        for (end, id) in ends.iter().zip(part.ids()) {
            listing.add(*end, &id)?;
        }
        if holes > 0 {
            let mut part = Part::default();
            making.make_chunk(0, &zeroes, &mut packer(store)?, &mut part)?;
            report.new_chunks += part.new_chunks;
            report.new_bytes += part.new_bytes;
            let id = making.algorithm.digest(&zeroes);
            for _ in 0..holes {
                listing.add(listing.end + largest, &id)?;
            }
            progress((holes - 1) * largest);
        }
        if next.is_empty() {
            break;
        }
        making.forget();
        stretch = next;
    }
    report.chunks = listing.chunks;
    // All chunks and folders at once, also those that an earlier run left.
    syncfs(&folder).map_err(|e| cannot("write", store, e.into()))?;
    listing.finish()?;
    Ok(report)
}

/// The index, as far as it is known.
struct Listing<'a> {
    to: &'a dyn BlockDevice,
    /// Where `waiting` goes.
    at: u64,
    waiting: Vec<u8>,
    chunks: u64,
    /// Where the last chunk ends.
    end: u64,
}

impl<'a> Listing<'a> {
    fn new(to: &'a dyn BlockDevice, head: Vec<u8>) -> Self {
        Self {
            to,
            at: 0,
            waiting: head,
            chunks: 0,
            end: 0,
        }
    }

    fn add(&mut self, end: u64, id: &Id) -> DeviceResult<()> {
        self.waiting.extend(index::item(end, id));
        self.chunks += 1;
        self.end = end;
        if self.waiting.len() >= LISTED {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> DeviceResult<()> {
        self.to.grow(self.at + self.waiting.len() as u64)?;
        self.to.write_at(self.at, &self.waiting)?;
        self.at += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    fn finish(mut self) -> DeviceResult<()> {
        self.waiting.extend(index::tail(self.chunks));
        self.write()
    }
}

/// What there is to do in a turn.
enum Work<'a> {
    Read(Piece<'a>),
    /// A chunk, by its number in the stretch.
    Make(usize, &'a [u8]),
}

/// What one thread did in a turn, or all.
#[derive(Default)]
struct Part {
    made: Vec<(usize, Id)>,
    marks: Vec<u64>,
    new_chunks: u64,
    new_bytes: u64,
}

impl Part {
    fn add(&mut self, other: Self) {
        self.made.extend(other.made);
        self.marks.extend(other.marks);
        self.new_chunks += other.new_chunks;
        self.new_bytes += other.new_bytes;
    }

    /// The digests of all chunks of a stretch, in order.
    fn ids(mut self) -> impl Iterator<Item = Id> {
        self.made.sort_unstable_by_key(|(chunk, _)| *chunk);
        self.made.into_iter().map(|(_, id)| id)
    }
}

struct Making<'a> {
    image: &'a dyn BlockDevice,
    store: &'a Path,
    algorithm: Algorithm,
    cutter: Cutter,
    progress: &'a (dyn Fn(u64) + Sync),
    /// Chunks that a thread has put into the store, or is about to.
    claimed: Mutex<HashSet<Id>>,
}

impl Making<'_> {
    /// Makes the chunks of a stretch, and reads the next one.
    fn turn(
        &self,
        stretch: &Stretch,
        ends: &[u64],
        next: &mut Stretch,
        threads: usize,
    ) -> DeviceResult<Part> {
        let mut chunks = stretch.chunks(ends).enumerate();
        let pieces = next.pieces();
        // Reading waits, so that it is spread among what does not.
        let each = ends.len() / pieces.len().max(1);
        let mut work = Vec::new();
        for piece in pieces {
            work.push(Work::Read(piece));
            work.extend(chunks.by_ref().take(each).map(|(n, c)| Work::Make(n, c)));
        }
        work.extend(chunks.map(|(n, c)| Work::Make(n, c)));
        let threads = threads.min(work.len()).max(1);
        let work = Mutex::new(&WORK, work.into_iter());
        let parts: Vec<DeviceResult<Part>> = thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|_| scope.spawn(|| self.work(&work)))
                .collect();
            let own = self.work(&work);
            let joined = others.into_iter().map(|worker| worker.join());
            let joined = joined.map(|result| result.unwrap_or(Err(DeviceError::Cancelled)));
            std::iter::once(own).chain(joined).collect()
        });
        drop(work);
        let mut all = Part::default();
        for part in parts {
            all.add(part?);
        }
        next.note(std::mem::take(&mut all.marks), &self.cutter);
        Ok(all)
    }

    fn work<'w>(&self, work: &Mutex<impl Iterator<Item = Work<'w>>>) -> DeviceResult<Part> {
        let mut part = Part::default();
        let mut packer = packer(self.store)?;
        loop {
            let next = work.lock().next();
            let Some(next) = next else {
                return Ok(part);
            };
            let result = match next {
                Work::Read(piece) => piece
                    .read(self.image, &self.cutter)
                    .map(|marks| part.marks.extend(marks)),
                Work::Make(chunk, bytes) => self.make_chunk(chunk, bytes, &mut packer, &mut part),
            };
            if result.is_err() {
                // Nothing of it is of use any more.
                work.lock().by_ref().for_each(drop);
            }
            result?;
        }
    }

    fn make_chunk(
        &self,
        chunk: usize,
        bytes: &[u8],
        packer: &mut zstd::bulk::Compressor<'_>,
        part: &mut Part,
    ) -> DeviceResult<()> {
        let id = self.algorithm.digest(bytes);
        part.made.push((chunk, id));
        (self.progress)(bytes.len() as u64);
        if !self.claimed.lock().insert(id) {
            return Ok(());
        }
        let [folder, file] = name_of(&id);
        let folder = self.store.join(folder);
        let path = folder.join(file);
        if holds(&path, bytes) {
            return Ok(());
        }
        let packed = packer
            .compress(bytes)
            .map_err(|e| cannot("compress for", &path, e))?;
        put(&folder, &path, &packed).map_err(|e| cannot("write", &path, e))?;
        part.new_chunks += 1;
        part.new_bytes += packed.len() as u64;
        Ok(())
    }

    /// Forgets which chunks there are, if that has become much. No thread is at work.
    fn forget(&mut self) {
        let claimed = self.claimed.get_mut();
        if claimed.len() > REMEMBERED {
            claimed.clear();
        }
    }
}

fn packer(store: &Path) -> DeviceResult<zstd::bulk::Compressor<'static>> {
    zstd::bulk::Compressor::new(LEVEL).map_err(|e| cannot("compress for", store, e))
}

/// Whether a file is the chunk of these bytes, in whatever way it is compressed.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    let most = bytes.len() as u64 + OVERHEAD;
    let read = || {
        let mut packed = Vec::new();
        open_chunk(path)?.take(most).read_to_end(&mut packed)?;
        zstd::bulk::decompress(&packed, bytes.len() + 1)
    };
    read().is_ok_and(|found| found == bytes)
}

/// Writes a file that appears in the folder when it is complete.
fn put(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new()
        .prefix(".new")
        .permissions(readable())
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    let _: File = file.persist(path).map_err(|e| e.error)?;
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
