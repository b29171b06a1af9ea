//! A device whose blocks are hashed while they are written.

use super::growth::{Growth, Missing, WriteBlock};
use extant_blockdev::{BlockDevice, DeviceResult};
use extant_sync::atomic::{AtomicBool, Ordering};
use extant_sync::{LockClass, Mutex, Rank};
use extant_verity::{Digest, Salted, Shape};
use std::collections::BTreeMap;
use std::fmt;

static PARTS: LockClass = LockClass::new("blocks written in part", Rank::Leaf);

/// The first bytes of a device, on which an image is made, and the tree of what is written.
///
/// Each block is expected to be written once. Where one is written again all of it is read in the
/// end, which is slower and as right.
pub(crate) struct Sealing<'d> {
    below: &'d dyn BlockDevice,
    len: u64,
    block_log2: u32,
    /// What was not written reads as zeros.
    zeroed: bool,
    growth: Growth,
    write: WriteBlock<'d>,
    /// Blocks of which a part was written, where all else is zeros.
    parts: Mutex<BTreeMap<u64, Vec<u8>>>,
    begun: AtomicBool,
    again: AtomicBool,
}

impl fmt::Debug for Sealing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing")
            .field("below", &self.below)
            .finish_non_exhaustive()
    }
}

/// What is hashed, and what becomes of it.
#[derive(Clone)]
pub(crate) struct Leaves<'d> {
    /// Bytes of the device that are hashed, a multiple of a block.
    pub(crate) len: u64,
    /// Bytes of a block, as a power of two.
    pub(crate) block_log2: u32,
    pub(crate) shape: Shape,
    pub(crate) salted: Salted,
    /// Bytes of a block of hashes.
    pub(crate) hash_block_len: usize,
    pub(crate) write: WriteBlock<'d>,
}

impl Leaves<'_> {
    pub(super) fn zeros(&self) -> Digest {
        self.salted.hash(&vec![0; 1 << self.block_log2])
    }
}

impl<'d> Sealing<'d> {
    pub(crate) fn new(below: &'d dyn BlockDevice, zeroed: bool, leaves: &Leaves<'d>) -> Self {
        let (shape, salted) = (leaves.shape.clone(), leaves.salted.clone());
        Self {
            below,
            len: leaves.len,
            block_log2: leaves.block_log2,
            zeroed,
            growth: Growth::new(shape, salted, leaves.hash_block_len),
            write: leaves.write,
            parts: Mutex::new(&PARTS, BTreeMap::new()),
            begun: AtomicBool::new(false),
            again: AtomicBool::new(false),
        }
    }

    /// Completes the tree and returns the root hash.
    ///
    /// # Errors
    /// What reading and writing give.
    pub(crate) fn finish(self, leaves: &Leaves<'d>) -> DeviceResult<Option<Digest>> {
        let read = |block: u64| {
            let mut bytes = vec![0; 1 << self.block_log2];
            self.below.read_at(block << self.block_log2, &mut bytes)?;
            Ok(self.growth.salted().hash(&bytes))
        };
        let parts = std::mem::take(&mut *self.parts.lock());
        for (block, bytes) in parts {
            let digest = self.growth.salted().hash(&bytes);
            if !self.growth.put(block, &[digest], self.write)? {
                self.again.store(true, Ordering::Relaxed);
            }
        }
        if self.again.load(Ordering::Relaxed) {
            let (shape, salted) = (leaves.shape.clone(), leaves.salted.clone());
            let growth = Growth::new(shape, salted, leaves.hash_block_len);
            return growth.finish(&Missing::Found(&read), self.write);
        }
        let missing = if self.zeroed {
            Missing::Same(leaves.zeros())
        } else {
            Missing::Found(&read)
        };
        self.growth.finish(&missing, self.write)
    }

    /// Takes the hashes of what was written.
    fn note(&self, offset: u64, bytes: &[u8]) -> DeviceResult<()> {
        let block_len = 1_usize << self.block_log2;
        let within = (offset % block_len as u64) as usize;
        let head = bytes.len().min((block_len - within) % block_len);
        let (head, rest) = bytes.split_at(head);
        let mut block = offset >> self.block_log2;
        if !head.is_empty() {
            self.note_part(block, within, head)?;
            block += 1;
        }
        let whole = rest.chunks_exact(block_len);
        let tail = whole.remainder();
        let digests: Vec<Digest> = whole
            .map(|whole| self.growth.salted().hash(whole))
            .collect();
        if !self.growth.put(block, &digests, self.write)? {
            self.again.store(true, Ordering::Relaxed);
        }
        if !tail.is_empty() {
            self.note_part(block + digests.len() as u64, 0, tail)?;
        }
        Ok(())
    }

    fn note_part(&self, block: u64, within: usize, bytes: &[u8]) -> DeviceResult<()> {
        if self.growth.has(block) {
            self.again.store(true, Ordering::Relaxed);
        } else if self.zeroed {
            let mut parts = self.parts.lock();
            let whole = parts
                .entry(block)
                .or_insert_with(|| vec![0; 1 << self.block_log2]);
            whole[within..within + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Content may be zeros where it was noted otherwise.
    fn note_zeros(&self) {
        if self.begun.load(Ordering::Relaxed) {
            self.again.store(true, Ordering::Relaxed);
        }
    }
}

impl BlockDevice for Sealing<'_> {
    fn size(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        self.below.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        self.begun.store(true, Ordering::Relaxed);
        self.below.write_at(offset, buf)?;
        self.note(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.below.flush()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("discard", offset, len)?;
        self.note_zeros();
        self.below.discard(offset, len)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        self.note_zeros();
        self.below.zero(offset, len)
    }

    fn logical_sector(&self) -> u32 {
        self.below.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.below.preferred_io()
    }

    fn parallel_writes(&self) -> usize {
        self.below.parallel_writes()
    }

    fn in_flight(&self) -> usize {
        self.below.in_flight()
    }

    fn is_served(&self) -> bool {
        self.below.is_served()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_blockdev::MemoryDevice;
    use extant_verity::Algorithm;

    /// The root hash of what is on a device.
    fn plainly(device: &dyn BlockDevice, salted: &Salted) -> Digest {
        let mut hashes: Vec<u8> = Vec::new();
        for at in (0..device.size()).step_by(512) {
            let mut block = [0; 512];
            device.read_at(at, &mut block).unwrap();
            hashes.extend(salted.hash(&block).as_bytes());
        }
        while hashes.len() > 32 {
            hashes = hashes
                .chunks(1024)
                .flat_map(|part| {
                    let mut block = part.to_vec();
                    block.resize(1024, 0);
                    salted.hash(&block).as_bytes().to_vec()
                })
                .collect();
        }
        Digest::of(&hashes).unwrap()
    }

    /// Writes pieces, and compares the root hash with that of what is there.
    fn compare(zeroed: bool, pieces: &[(u64, usize)]) {
        let device = MemoryDevice::new(64 << 10);
        if !zeroed {
            device.write_at(0, &[0xee; 64 << 10]).unwrap();
        }
        let write = |_: u64, _: &[u8]| Ok(());
        let leaves = Leaves {
            len: 64 << 10,
            block_log2: 9,
            shape: Shape::new(128, 5),
            salted: Salted::new(Algorithm::Sha256, b"salt"),
            hash_block_len: 1024,
            write: &write,
        };
        let sealing = Sealing::new(&device, zeroed, &leaves);
        for (n, (offset, len)) in pieces.iter().enumerate() {
            sealing.write_at(*offset, &vec![n as u8 + 1; *len]).unwrap();
        }
        let root = sealing.finish(&leaves).unwrap().unwrap();
        assert_eq!(
            root,
            plainly(&device, &leaves.salted),
            "{zeroed} {pieces:?}"
        );
    }

    #[test]
    fn the_tree_is_that_of_what_lies_on_the_device_however_it_was_written() {
        let cases: [&[(u64, usize)]; 9] = [
            &[],
            &[(0, 64 << 10)],
            &[(512, 1024), (8192, 512)],
            // In part, in pieces of one block, across blocks.
            &[(1000, 5)],
            &[(512, 100), (700, 100)],
            &[(100, 2000)],
            // Twice.
            &[(0, 32 << 10), (512, 512)],
            &[(512, 512), (600, 20)],
            &[(600, 20), (512, 512)],
        ];
        for zeroed in [true, false] {
            for case in cases {
                compare(zeroed, case);
            }
        }
    }
}
