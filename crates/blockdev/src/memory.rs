//! A device in memory.
//!
//! The bytes live in chunks of 64 KiB that come into being when something other than a whole
//! chunk of zeroes is written to them. Chunks hang in a two-level table, each behind its own lock:
//! threads that work in different chunks share nothing, and a 16 TiB device costs a megabyte
//! plus what was touched.

use crate::device::total_len;
use crate::{BlockDevice, DeviceResult, DirectMemory, past_cache};
use extant_sync::{LockClass, Rank, RwLock, debug_assert_may_wait_for_device};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::OnceLock;

const CHUNK: u64 = 64 << 10;
const CHUNKS_PER_LEAF: u64 = 4096;
const LEAF: u64 = CHUNK * CHUNKS_PER_LEAF;

static CHUNK_CLASS: LockClass = LockClass::new("memory device chunk", Rank::Leaf);

/// One chunk; `None` is a hole, which reads as zeroes.
type Chunk = RwLock<Option<Box<[u8]>>>;

type Leaf = Box<[Chunk]>;

/// A sparse device in memory, at first all zeroes. Nothing is durable: `flush` does nothing.
///
/// Copies are atomic within a 64 KiB chunk only.
pub struct MemoryDevice {
    size: u64,
    leaves: Box<[OnceLock<Leaf>]>,
}

impl MemoryDevice {
    /// Makes a device of `size` bytes of zeroes.
    pub fn new(size: u64) -> Self {
        let leaves = size.div_ceil(LEAF);
        Self {
            size,
            leaves: (0..leaves).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Makes a device with a copy of `image`.
    pub fn from_image(image: &[u8]) -> Self {
        let device = Self::new(image.len() as u64);
        for (index, bytes) in image.chunks(CHUNK as usize).enumerate() {
            if bytes.iter().any(|&byte| byte != 0) {
                device.put(index as u64 * CHUNK, bytes);
            }
        }
        device
    }

    /// Returns the memory that the touched chunks hold, in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        let chunks = self.leaves.iter().filter_map(OnceLock::get).flatten();
        chunks.filter(|chunk| chunk.read().is_some()).count() as u64 * CHUNK
    }

    /// The chunk that holds byte `offset`, if its leaf exists.
    fn chunk(&self, offset: u64) -> Option<&Chunk> {
        let leaf = self.leaves.get((offset / LEAF) as usize)?.get()?;
        leaf.get((offset % LEAF / CHUNK) as usize)
    }

    /// The chunk that holds byte `offset`, which lies on the device.
    fn chunk_or_new(&self, offset: u64) -> &Chunk {
        let leaf = self.leaves[(offset / LEAF) as usize].get_or_init(|| {
            (0..CHUNKS_PER_LEAF)
                .map(|_| Chunk::new(&CHUNK_CLASS, None))
                .collect()
        });
        &leaf[(offset % LEAF / CHUNK) as usize]
    }

    /// Copies out a range that lies on the device.
    fn get(&self, offset: u64, dst: &mut [u8]) {
        let mut rest = dst;
        for piece in pieces(offset, rest.len() as u64) {
            let (part, after) = rest.split_at_mut(piece.len);
            match self.chunk(piece.offset).map(Chunk::read).as_deref() {
                Some(Some(bytes)) => part.copy_from_slice(&bytes[piece.within()]),
                _ => part.fill(0),
            }
            rest = after;
        }
    }

    /// Copies in a range that lies on the device.
    fn put(&self, offset: u64, src: &[u8]) {
        self.put_with(offset, src, |dst, src| dst.copy_from_slice(src));
    }

    /// Copies in a range that lies on the device by `copy`, which gets two slices of one length.
    #[inline]
    fn put_with(&self, offset: u64, src: &[u8], copy: impl Fn(&mut [u8], &[u8])) {
        let mut rest = src;
        for piece in pieces(offset, src.len() as u64) {
            let (part, after) = rest.split_at(piece.len);
            let mut bytes = self.chunk_or_new(piece.offset).write();
            let bytes = bytes.get_or_insert_with(|| vec![0; CHUNK as usize].into_boxed_slice());
            copy(&mut bytes[piece.within()], part);
            rest = after;
        }
    }

    /// Makes holes of whole chunks and zeroes of the rest.
    fn punch(&self, offset: u64, len: u64) {
        let mut at = offset;
        let end = offset + len;
        while at < end {
            let Some(chunk) = self.chunk(at) else {
                at = (at / LEAF + 1) * LEAF;
                continue;
            };
            let chunk_start = at / CHUNK * CHUNK;
            let stop = end.min(chunk_start + CHUNK);
            let mut bytes = chunk.write();
            if stop - at == CHUNK {
                *bytes = None;
            } else if let Some(bytes) = bytes.as_mut() {
                bytes[(at - chunk_start) as usize..(stop - chunk_start) as usize].fill(0);
            }
            at = stop;
        }
    }

    /// The first chunk boundary or offset from `from` on, below `end`, whose chunk is a hole or not
    /// as `wanted`.
    fn find(&self, from: u64, end: u64, wanted: bool) -> Option<u64> {
        let mut at = from;
        while at < end {
            match self.chunk(at) {
                None if !wanted => return Some(at),
                None => at = (at / LEAF + 1) * LEAF,
                Some(chunk) if chunk.read().is_some() == wanted => return Some(at),
                Some(_) => at = (at / CHUNK + 1) * CHUNK,
            }
        }
        None
    }
}

/// The part of a range that lies in one chunk.
struct Piece {
    offset: u64,
    len: usize,
}

impl Piece {
    fn within(&self) -> Range<usize> {
        let start = (self.offset % CHUNK) as usize;
        start..start + self.len
    }
}

/// Cuts a range at chunk boundaries.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let offset = at;
        at = end.min((at / CHUNK + 1) * CHUNK);
        Some(Piece {
            offset,
            len: (at - offset) as usize,
        })
    })
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDevice({} bytes)", self.size)
    }
}

impl BlockDevice for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        "the memory device".to_owned()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("read", offset, buf.len() as u64)?;
        self.get(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("write", offset, buf.len() as u64)?;
        self.put(offset, buf);
        Ok(())
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    /// As many as there are processors: each copies, and chunks have a lock each.
    fn parallel_writes(&self) -> usize {
        static PROCESSORS: OnceLock<usize> = OnceLock::new();
        *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("read", offset, total_len(bufs.iter().map(|b| &**b)))?;
        let mut at = offset;
        for buf in bufs {
            self.get(at, buf);
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("write", offset, total_len(bufs.iter().map(|b| &**b)))?;
        let mut at = offset;
        for buf in bufs {
            self.put(at, buf);
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("discard", offset, len)?;
        self.punch(offset, len);
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("zero", offset, len)?;
        self.punch(offset, len);
        Ok(())
    }

    fn direct(&self) -> Option<&dyn DirectMemory> {
        Some(self)
    }

    fn keeps_what_is_read(&self) -> bool {
        true
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size);
        Ok(self.find(from, end, true).map(|start| {
            let stop = self.find(start, end, false).unwrap_or(end);
            // Another thread may have punched the chunk in between.
            start..stop.clamp(start + 1, end)
        }))
    }
}

impl DirectMemory for MemoryDevice {
    /// Past the cache: most of what is on a device is in none.
    fn copy_in(&self, offset: u64, src: &[u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("write", offset, src.len() as u64)?;
        self.put_with(offset, src, past_cache::copy);
        Ok(())
    }

    fn copy_out(&self, offset: u64, dst: &mut [u8]) -> DeviceResult<()> {
        self.read_at(offset, dst)
    }

    fn persist(&self, range: Range<u64>) -> DeviceResult<()> {
        self.check_range(
            "persist",
            range.start,
            range.end.saturating_sub(range.start),
        )
    }

    /// It is as durable as it ever will be.
    fn is_persistent_on_copy(&self) -> bool {
        true
    }

    /// Each chunk has a lock, which is held for as long as is copied.
    fn whole_within(&self) -> u64 {
        CHUNK
    }
}
