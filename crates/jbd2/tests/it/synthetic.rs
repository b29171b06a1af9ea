//! Logs made with the encoding side, and a model of what replay must give.

use crate::recording_device::RecordingDevice;
use extant_blockdev::MemoryDevice;
use extant_format::jbd2::{
    CommitBlock, CompatFeatures, DescriptorBlock, IncompatFeatures, JournalSuperblock, LogFormat,
    RevokeBlock, Tag, TransactionCrc, escape, needs_escape,
};
use extant_format::{BlockSize, Pblk, Tid};
use extant_jbd2::{JournalResult, Log, LogRun, Recovery};
use std::collections::{BTreeMap, HashMap};

pub(crate) const SIZE: BlockSize = BlockSize::MIN;
/// Blocks of the synthetic file system; the journal lies in the upper half of it.
pub(crate) const FS_BLOCKS: u64 = 512;
pub(crate) const JOURNAL_BLOCKS: u32 = 128;

/// Every shape of log there is.
pub(crate) const KINDS: [(u32, u32); 8] = [
    (0, 0x1),
    (0, 0x3),
    (1, 0x1),
    (1, 0x3),
    (0, 0x9),
    (0, 0xb),
    (0, 0x11),
    (0, 0x13),
];

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write(u64, Vec<u8>),
    Revoke(u64),
}

/// A log under construction on an image of its own.
pub(crate) struct LogMaker {
    pub(crate) superblock: JournalSuperblock,
    pub(crate) format: LogFormat,
    pub(crate) image: Vec<u8>,
    pub(crate) runs: Vec<LogRun>,
    /// Next journal block to write.
    pub(crate) at: u32,
    pub(crate) tid: Tid,
    pub(crate) seconds: u64,
    writes: Vec<(Tid, u64, Vec<u8>)>,
    revokes: HashMap<u64, Tid>,
}

impl LogMaker {
    pub(crate) fn new((compat, incompat): (u32, u32), start: u32, tid: u32) -> Self {
        let mut superblock = JournalSuperblock::empty(SIZE, JOURNAL_BLOCKS, [0x5a; 16]);
        superblock.compat = CompatFeatures::from_bits_retain(compat);
        superblock.incompat = IncompatFeatures::from_bits_retain(incompat);
        superblock.checksum_type = if incompat & 0x18 != 0 { 4 } else { 0 };
        superblock.start = start;
        superblock.sequence = Tid::new(tid);
        let run = |first, len, start| LogRun {
            first,
            len,
            start: Pblk::new(start),
        };
        let mut maker = Self {
            format: superblock.log_format(),
            superblock,
            image: vec![0xee; FS_BLOCKS as usize * SIZE.len()],
            // In three pieces, out of order, as on an aged file system.
            runs: vec![run(0, 40, 400), run(40, 8, 300), run(48, 80, 310)],
            at: start,
            tid: Tid::new(tid),
            seconds: 1_000_000,
            writes: Vec::new(),
            revokes: HashMap::new(),
        };
        let record = maker.superblock.encode();
        maker.block_mut(0)[..record.len()].copy_from_slice(&record);
        maker
    }

    /// The bytes of journal block `block`.
    pub(crate) fn block_mut(&mut self, block: u32) -> &mut [u8] {
        let run = self
            .runs
            .iter()
            .find(|run| (run.first..run.first + run.len).contains(&block))
            .unwrap();
        let at = (run.start.get() as usize + (block - run.first) as usize) * SIZE.len();
        &mut self.image[at..at + SIZE.len()]
    }

    /// Writes the next block of the log and returns its number.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u32 {
        let block = self.at;
        self.block_mut(block).copy_from_slice(bytes);
        self.at = self.superblock.area().advance(block, 1);
        block
    }

    /// Writes a transaction without its commit block. Returns its CRC for checksum v1.
    pub(crate) fn open_transaction(&mut self, changes: &[Change]) -> u32 {
        let revoked: Vec<Pblk> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Revoke(block) => Some(Pblk::new(*block)),
                Change::Write(..) => None,
            })
            .collect();
        for blocks in revoked.chunks(RevokeBlock::capacity(&self.format)) {
            let record = RevokeBlock {
                sequence: self.tid,
                blocks: blocks.to_vec(),
            };
            self.put(&record.encode(&self.format).unwrap());
        }
        let mut crc = TransactionCrc::new();
        let writes: Vec<_> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Write(block, data) => Some((*block, data.clone())),
                Change::Revoke(_) => None,
            })
            .collect();
        // Small descriptors, so that transactions have several.
        for chunk in writes.chunks(DescriptorBlock::capacity(&self.format).min(3)) {
            let mut tags = Vec::new();
            let mut data = Vec::new();
            for (block, bytes) in chunk {
                let mut bytes = bytes.clone();
                let escaped = needs_escape(&bytes);
                if escaped {
                    escape(&mut bytes);
                }
                let home = Pblk::new(*block);
                tags.push(Tag::new(&self.format, self.tid, home, &bytes, escaped));
                data.push(bytes);
            }
            let descriptor = DescriptorBlock {
                sequence: self.tid,
                tags,
            };
            let bytes = descriptor.encode(&self.format).unwrap();
            crc.update(&bytes);
            self.put(&bytes);
            for bytes in data {
                crc.update(&bytes);
                self.put(&bytes);
            }
        }
        crc.value()
    }

    /// Writes the commit block and returns its number.
    pub(crate) fn commit(&mut self, crc: u32) -> u32 {
        self.seconds += 1;
        let commit = CommitBlock {
            sequence: self.tid,
            seconds: self.seconds,
            nanoseconds: 7,
            transaction_crc: Some(crc),
        };
        let block = self.put(&commit.encode(&self.format));
        self.tid = self.tid.next();
        block
    }

    /// Writes a whole transaction, and tells the model of it. Returns the commit's block.
    pub(crate) fn transaction(&mut self, changes: &[Change]) -> u32 {
        for change in changes {
            match change {
                Change::Write(block, data) => self.writes.push((self.tid, *block, data.clone())),
                Change::Revoke(block) => {
                    self.revokes.insert(*block, self.tid);
                }
            }
        }
        let crc = self.open_transaction(changes);
        self.commit(crc)
    }

    /// What replay must give.
    pub(crate) fn expected(&self) -> BTreeMap<u64, Vec<u8>> {
        let mut images = BTreeMap::new();
        for (tid, block, data) in &self.writes {
            let revoked = self.revokes.get(block).is_some_and(|r| !tid.is_after(*r));
            if !revoked {
                images.insert(*block, data.clone());
            }
        }
        images
    }

    pub(crate) fn recover(&self) -> JournalResult<Recovery> {
        let device = MemoryDevice::from_image(&self.image);
        Log::open(&device, &self.runs, SIZE)?.recover(FS_BLOCKS)
    }

    /// Recovers, from a device at hand and from one that is far, and compares with the model.
    pub(crate) fn check(&self) -> Recovery {
        let from = |device: RecordingDevice| {
            let log = Log::open(&device, &self.runs, SIZE).unwrap();
            let recovery = log.recover(FS_BLOCKS).unwrap();
            let mut images = BTreeMap::new();
            for block in recovery.blocks.iter() {
                let mut image = vec![0; SIZE.len()];
                let offset = SIZE.offset_of(block).unwrap();
                recovery.blocks.read(&device, offset, &mut image).unwrap();
                images.insert(block.get(), image);
            }
            assert_eq!(images, self.expected());
            recovery
        };
        let far = from(RecordingDevice::far(&self.image));
        let near = from(RecordingDevice::new(&self.image));
        assert_eq!(format!("{far:?}"), format!("{near:?}"));
        near
    }
}

/// A block filled with `byte`.
pub(crate) fn filled(byte: u8) -> Vec<u8> {
    vec![byte; SIZE.len()]
}

pub(crate) fn write(block: u64, byte: u8) -> Change {
    Change::Write(block, filled(byte))
}
