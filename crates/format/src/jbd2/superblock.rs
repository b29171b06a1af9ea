//! The journal superblock.

use super::fields::{array, be32, put, put_be32};
use super::{BlockType, Header, LogChecksum, LogFormat, MAGIC, MIN_BLOCKS};
use crate::checksum::Crc32c;
use crate::{BlockSize, Expected, FormatError, FormatResult, Structure, Tid};
use bitflags::bitflags;

const CHECKSUM_AT: usize = 0xFC;
const USERS_AT: usize = 0x100;
const CRC32C_TYPE: u8 = 4;
/// Size of the fast-commit area when the superblock says zero.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

bitflags! {
    /// Features an older reader may ignore.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CompatFeatures: u32 {
        /// Commit blocks carry a CRC32 of their transaction.
        const CHECKSUM = 0x1;
        /// Bits without a name are kept as they are.
        const _ = !0;
    }
}

bitflags! {
    /// Features a reader must know.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IncompatFeatures: u32 {
        /// There may be revoke blocks.
        const REVOKE = 0x1;
        /// Block numbers have 64 bits.
        const WIDE = 0x2;
        /// A commit block may reach the device before the blocks it commits.
        const ASYNC_COMMIT = 0x4;
        /// Records and data blocks carry checksums, version 2.
        const CSUM_V2 = 0x8;
        /// Records and data blocks carry checksums, version 3.
        const CSUM_V3 = 0x10;
        /// The end of the journal is a fast-commit area.
        const FAST_COMMIT = 0x20;
        /// Bits without a name are kept, so that they can be shown.
        const _ = !0;
    }
}

/// What this crate can read: every bit that has a meaning today.
const KNOWN_INCOMPAT: u32 = 0x3f;

/// Names of feature bits as `dumpe2fs` shows them.
const INCOMPAT_NAMES: [(u32, &str); 6] = [
    (0x1, "journal_incompat_revoke"),
    (0x2, "journal_64bit"),
    (0x4, "journal_async_commit"),
    (0x8, "journal_checksum_v2"),
    (0x10, "journal_checksum_v3"),
    (0x20, "fast_commit"),
];

impl CompatFeatures {
    /// Returns the name of a single bit, if it has one.
    #[must_use]
    pub const fn bit_name(bit: u32) -> Option<&'static str> {
        if bit == 0x1 {
            Some("journal_checksum")
        } else {
            None
        }
    }
}

impl IncompatFeatures {
    /// Returns the name of a single bit, if it has one.
    #[must_use]
    pub fn bit_name(bit: u32) -> Option<&'static str> {
        INCOMPAT_NAMES
            .iter()
            .find(|(b, _)| *b == bit)
            .map(|(_, name)| *name)
    }

    /// Returns the bits that have no meaning known here.
    #[must_use]
    pub const fn unknown(self) -> u32 {
        self.bits() & !KNOWN_INCOMPAT
    }
}

/// Which blocks of the journal hold what, in journal block numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogArea {
    /// First block of the log.
    pub first: u32,
    /// The block after the last one of the log; it wraps from here to `first`.
    pub end: u32,
    /// First block of the fast-commit area; equal to `fast_commit_end` when there is none.
    pub fast_commit_first: u32,
    /// The block after the fast-commit area.
    pub fast_commit_end: u32,
}

impl LogArea {
    /// Returns the blocks in the ring.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// Returns whether the ring has no block (never true for an area of a parsed superblock).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the block `n` blocks after `block`, around the ring.
    #[must_use]
    pub const fn advance(&self, block: u32, n: u32) -> u32 {
        if self.is_empty() {
            return self.first;
        }
        let offset = block.saturating_sub(self.first) as u64 + n as u64;
        self.first + (offset % self.len() as u64) as u32
    }
}

/// The journal superblock: the first 1024 bytes of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSuperblock {
    /// Whether this is version 2, which has everything from `compat` on.
    pub v2: bool,
    /// Transaction number in the header (unused by recovery).
    pub header_sequence: Tid,
    /// Size of a journal block.
    pub block_size: BlockSize,
    /// Blocks in the journal, this one included.
    pub max_len: u32,
    /// First block of the log.
    pub first: u32,
    /// The first transaction expected in the log.
    pub sequence: Tid,
    /// Block where the log starts; 0 when there is nothing to replay.
    pub start: u32,
    /// Error recorded when the journal was aborted, as a negative errno; 0 if none.
    pub errno: i32,
    /// Features that may be ignored.
    pub compat: CompatFeatures,
    /// Features that must be known.
    pub incompat: IncompatFeatures,
    /// Features that must be known before writing. None exist.
    pub ro_compat: u32,
    /// UUID of the journal.
    pub uuid: [u8; 16],
    /// File systems that share the journal.
    pub users_count: u32,
    /// Block of a dynamic superblock copy (unused).
    pub dynamic_super: u32,
    /// Limit of journal blocks per transaction (unused).
    pub max_transaction: u32,
    /// Limit of data blocks per transaction (unused).
    pub max_trans_data: u32,
    /// Kind of checksum: 4 is CRC32C; 0 without checksums v2 and v3.
    pub checksum_type: u8,
    /// Blocks of the fast-commit area; 0 means 256.
    pub fast_commit_blocks: u32,
    /// Block where the next transaction of a clean journal would start; 0 if not recorded.
    pub head: u32,
    /// UUIDs of the file systems that share the journal.
    pub users: [[u8; 16]; 48],
}

impl JournalSuperblock {
    /// Bytes of the record.
    pub const LEN: usize = 1024;

    /// Reads and validates the superblock at the start of `bytes`: every field that other code
    /// computes with is sound afterwards.
    ///
    /// # Errors
    /// A wrong magic, type or checksum, lengths and positions outside the journal, checksum
    /// features that exclude each other, a feature that is not known.
    pub fn parse(bytes: &[u8]) -> FormatResult<Self> {
        let sb = Self::parse_fields(bytes)?;
        sb.check_lengths()?;
        Ok(sb)
    }

    /// Reads the superblock at the start of `bytes` as one of a log that begins behind it, in block
    /// 1, whatever the record says: in a journal inside a file system no program has it begin
    /// elsewhere (`mke2fs`, and "Super Block" of jbd2 in the kernel's ext4 documentation).
    ///
    /// # Errors
    /// Whatever else is wrong with it: see [`Self::parse`].
    pub fn parse_with_usual_first(bytes: &[u8]) -> FormatResult<Self> {
        let mut sb = Self::parse_fields(bytes)?;
        sb.first = 1;
        sb.check_lengths()?;
        Ok(sb)
    }

    /// Reads the record, and judges all but lengths and positions.
    fn parse_fields(bytes: &[u8]) -> FormatResult<Self> {
        let record = bytes.get(..Self::LEN).ok_or_else(|| {
            FormatError::short(Structure::JournalSuperblock, bytes.len(), Self::LEN)
        })?;
        let v2 = check_header(record)?;
        let raw_size = be32(record, 0x0C);
        let block_size = BlockSize::from_bytes(raw_size).ok_or_else(|| {
            bad(
                "blocksize",
                raw_size,
                Expected::Said("a power of two from 1024 to 65536"),
            )
            .at(0x0C)
        })?;
        let mut users = [[0; 16]; 48];
        for (i, user) in users.iter_mut().enumerate() {
            *user = array(record, USERS_AT + i * 16).unwrap_or_default();
        }
        let later = |at| if v2 { be32(record, at) } else { 0 };
        let sb = Self {
            v2,
            header_sequence: Tid::new(be32(record, 8)),
            block_size,
            max_len: be32(record, 0x10),
            first: be32(record, 0x14),
            sequence: Tid::new(be32(record, 0x18)),
            start: be32(record, 0x1C),
            errno: be32(record, 0x20) as i32,
            compat: CompatFeatures::from_bits_retain(later(0x24)),
            incompat: IncompatFeatures::from_bits_retain(later(0x28)),
            ro_compat: later(0x2C),
            uuid: if v2 {
                array(record, 0x30).unwrap_or_default()
            } else {
                [0; 16]
            },
            users_count: later(0x40),
            dynamic_super: later(0x44),
            max_transaction: later(0x48),
            max_trans_data: later(0x4C),
            checksum_type: if v2 {
                array(record, 0x50).map_or(0, |[t]: [u8; 1]| t)
            } else {
                0
            },
            fast_commit_blocks: later(0x54),
            head: later(0x58),
            users: if v2 { users } else { [[0; 16]; 48] },
        };
        // Linux does not mount with it. The records have the shape that the features say, and would
        // be read as others.
        let is_named_wrongly = !v2 && [0x24, 0x28, 0x2C].iter().any(|at| be32(record, *at) != 0);
        if is_named_wrongly && sb.start != 0 {
            return Err(bad("blocktype", 3, Expected::Exactly(4)).at(4));
        }
        sb.check_features()?;
        if sb.has_checksum() {
            let stored = be32(record, CHECKSUM_AT);
            let computed = superblock_checksum(record);
            if stored != computed {
                return Err(
                    FormatError::checksum(Structure::JournalSuperblock, stored, computed)
                        .at(CHECKSUM_AT),
                );
            }
        }
        Ok(sb)
    }

    /// Returns the record, with its checksum if the features ask for one.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut record = [0; Self::LEN];
        Header {
            block_type: if self.v2 {
                BlockType::SuperblockV2
            } else {
                BlockType::SuperblockV1
            },
            sequence: self.header_sequence,
        }
        .encode(&mut record);
        put_be32(&mut record, 0x0C, self.block_size.bytes());
        put_be32(&mut record, 0x10, self.max_len);
        put_be32(&mut record, 0x14, self.first);
        put_be32(&mut record, 0x18, self.sequence.get());
        put_be32(&mut record, 0x1C, self.start);
        put_be32(&mut record, 0x20, self.errno as u32);
        if !self.v2 {
            return record;
        }
        put_be32(&mut record, 0x24, self.compat.bits());
        put_be32(&mut record, 0x28, self.incompat.bits());
        put_be32(&mut record, 0x2C, self.ro_compat);
        put(&mut record, 0x30, &self.uuid);
        put_be32(&mut record, 0x40, self.users_count);
        put_be32(&mut record, 0x44, self.dynamic_super);
        put_be32(&mut record, 0x48, self.max_transaction);
        put_be32(&mut record, 0x4C, self.max_trans_data);
        put(&mut record, 0x50, &[self.checksum_type]);
        put_be32(&mut record, 0x54, self.fast_commit_blocks);
        put_be32(&mut record, 0x58, self.head);
        for (i, user) in self.users.iter().enumerate() {
            put(&mut record, USERS_AT + i * 16, user);
        }
        if self.has_checksum() {
            let sum = superblock_checksum(&record);
            put_be32(&mut record, CHECKSUM_AT, sum);
        }
        record
    }

    /// Returns the superblock of an empty journal of `max_len` blocks as `mke2fs` writes it:
    /// version 2, no features (the first read-write mount adds what it needs), nothing to replay.
    #[must_use]
    pub fn empty(block_size: BlockSize, max_len: u32, uuid: [u8; 16]) -> Self {
        Self {
            v2: true,
            header_sequence: Tid::new(0),
            block_size,
            max_len,
            first: 1,
            sequence: Tid::new(1),
            start: 0,
            errno: 0,
            compat: CompatFeatures::empty(),
            incompat: IncompatFeatures::empty(),
            ro_compat: 0,
            uuid,
            users_count: 1,
            dynamic_super: 0,
            max_transaction: 0,
            max_trans_data: 0,
            checksum_type: 0,
            fast_commit_blocks: 0,
            head: 0,
            users: [[0; 16]; 48],
        }
    }

    /// Returns the shape of the other records.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        let checksum = if self.incompat.contains(IncompatFeatures::CSUM_V3) {
            LogChecksum::V3
        } else if self.incompat.contains(IncompatFeatures::CSUM_V2) {
            LogChecksum::V2
        } else if self.compat.contains(CompatFeatures::CHECKSUM) {
            LogChecksum::CommitOnly
        } else {
            LogChecksum::None
        };
        LogFormat {
            block_size: self.block_size,
            wide: self.incompat.contains(IncompatFeatures::WIDE),
            checksum,
            uuid: self.uuid,
        }
    }

    /// Returns where the log and the fast-commit area lie.
    #[must_use]
    pub fn area(&self) -> LogArea {
        let whole = LogArea {
            first: self.first,
            end: self.max_len,
            fast_commit_first: self.max_len,
            fast_commit_end: self.max_len,
        };
        if !self.incompat.contains(IncompatFeatures::FAST_COMMIT) {
            return whole;
        }
        let blocks = match self.fast_commit_blocks {
            0 => DEFAULT_FAST_COMMIT_BLOCKS,
            n => n,
        };
        match self.max_len.checked_sub(blocks) {
            // The block at `end` belongs to neither: Linux starts the fast-commit area after it.
            Some(end) if end >= MIN_BLOCKS && end > self.first => LogArea {
                end,
                fast_commit_first: end.saturating_add(1).min(self.max_len),
                ..whole
            },
            _ => whole,
        }
    }

    fn has_checksum(&self) -> bool {
        self.incompat
            .intersects(IncompatFeatures::CSUM_V2.union(IncompatFeatures::CSUM_V3))
    }

    fn check_features(&self) -> FormatResult<()> {
        let unknown = self.incompat.unknown();
        if unknown != 0 {
            return Err(bad(
                "feature_incompat",
                unknown,
                Expected::Said("only known features"),
            )
            .at(0x28));
        }
        let both = IncompatFeatures::CSUM_V2.union(IncompatFeatures::CSUM_V3);
        if self.incompat.contains(both) {
            return Err(bad(
                "feature_incompat",
                self.incompat.bits(),
                Expected::Said("checksums v2 or v3, not both"),
            )
            .at(0x28));
        }
        if self.has_checksum() {
            if self.compat.contains(CompatFeatures::CHECKSUM) {
                return Err(bad(
                    "feature_compat",
                    self.compat.bits(),
                    Expected::Said("no checksum v1 beside v2 or v3"),
                )
                .at(0x24));
            }
            if self.checksum_type != CRC32C_TYPE {
                return Err(bad(
                    "checksum_type",
                    u32::from(self.checksum_type),
                    Expected::Exactly(u64::from(CRC32C_TYPE)),
                )
                .at(0x50));
            }
        }
        Ok(())
    }

    fn check_lengths(&self) -> FormatResult<()> {
        // Two blocks of log are the least that can hold a transaction and its end.
        if self.max_len < 3 {
            return Err(bad("maxlen", self.max_len, Expected::AtLeast(3)).at(0x10));
        }
        let area = self.area();
        if self.first == 0 || self.first >= area.end {
            let limit = u64::from(area.end.saturating_sub(1));
            return Err(bad("first", self.first, Expected::Between(1, limit)).at(0x14));
        }
        if self.start != 0 && !(self.first..area.end).contains(&self.start) {
            let range = Expected::Between(u64::from(self.first), u64::from(area.end - 1));
            return Err(bad("start", self.start, range).at(0x1C));
        }
        Ok(())
    }
}

/// Whether the record is version 2; an error if it is no superblock at all.
fn check_header(record: &[u8]) -> FormatResult<bool> {
    let magic = be32(record, 0);
    if magic != MAGIC {
        return Err(bad("magic", magic, Expected::Exactly(u64::from(MAGIC))));
    }
    match BlockType::from_raw(be32(record, 4)) {
        Some(BlockType::SuperblockV1) => Ok(false),
        Some(BlockType::SuperblockV2) => Ok(true),
        _ => Err(bad("blocktype", be32(record, 4), Expected::Between(3, 4)).at(4)),
    }
}

fn superblock_checksum(record: &[u8]) -> u32 {
    Crc32c::INIT
        .update(record.get(..CHECKSUM_AT).unwrap_or(&[]))
        .update(&[0; 4])
        .update(record.get(CHECKSUM_AT + 4..).unwrap_or(&[]))
        .value()
}

fn bad(field: &'static str, found: u32, expected: Expected) -> FormatError {
    FormatError::new(
        Structure::JournalSuperblock,
        field,
        u64::from(found),
        expected,
    )
}
