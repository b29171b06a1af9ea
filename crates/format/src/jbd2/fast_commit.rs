//! Records of the fast-commit area: tags with a length and a value, little-endian, packed into
//! blocks; no record crosses the end of a block.
//!
//! ```text
//! HEAD(features, tid)  ADD_RANGE|DEL_RANGE|CREAT|LINK|UNLINK|INODE|PAD ...  TAIL(tid, crc)
//! ```
//!
//! One fast commit may span blocks; its CRC32C starts at zero with its first record and ends with
//! the transaction number in its tail. The tail's length reaches to the end of the block.

use super::fields::{le16, le32};
use crate::checksum::Crc32c;
use crate::{Expected, FormatError, FormatResult, Ino, Lblk, Pblk, Structure, Tid};
use alloc::vec::Vec;

/// Bytes of tag and length in front of every value.
pub const FAST_COMMIT_TAG_LEN: usize = 4;

const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREAT: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// Extents longer than this are unwritten; the excess is their length.
const MAX_WRITTEN: u16 = 32_768;

/// The directory entry a fast commit adds or removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntryChange<'a> {
    /// The directory.
    pub parent: Ino,
    /// What the entry points at.
    pub ino: Ino,
    /// The name: 1 to 255 bytes.
    pub name: &'a [u8],
}

/// One record of a fast commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastCommitRecord<'a> {
    /// Blocks mapped into a file.
    AddRange {
        /// The file.
        ino: Ino,
        /// First logical block.
        lblk: Lblk,
        /// Blocks: 1 to 32768, or to 32767 when unwritten.
        len: u16,
        /// Allocated but to be read as zeros.
        unwritten: bool,
        /// First physical block.
        start: Pblk,
    },
    /// Blocks taken out of a file.
    DelRange {
        /// The file.
        ino: Ino,
        /// First logical block.
        lblk: Lblk,
        /// Blocks.
        len: u32,
    },
    /// A new file and its entry.
    Create(DirEntryChange<'a>),
    /// A new entry of an existing file.
    Link(DirEntryChange<'a>),
    /// A removed entry.
    Unlink(DirEntryChange<'a>),
    /// An inode's new content, without its map.
    Inode {
        /// The inode.
        ino: Ino,
        /// The raw inode, of the inode size or shorter.
        raw: &'a [u8],
    },
    /// Unused bytes up to the end of a block.
    Pad {
        /// How many.
        len: u16,
    },
    /// The end of one fast commit.
    Tail {
        /// The transaction it stands for.
        tid: Tid,
        /// CRC32C of everything since the previous tail.
        crc: u32,
        /// Bytes of value; what is beyond the 8 above is unused.
        len: u16,
    },
    /// The first record of the area.
    Head {
        /// Feature bits; none exist.
        features: u32,
        /// The transaction the fast commits stand for.
        tid: Tid,
    },
}

/// The records of one block of the fast-commit area, each with its bytes (tag included).
#[derive(Clone, Debug)]
pub struct FastCommitRecords<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> FastCommitRecords<'a> {
    /// Returns the records of `block`.
    #[must_use]
    pub const fn new(block: &'a [u8]) -> Self {
        Self { block, at: 0 }
    }
}

impl<'a> Iterator for FastCommitRecords<'a> {
    type Item = FormatResult<(FastCommitRecord<'a>, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.block.get(self.at..)?;
        if rest.len() < FAST_COMMIT_TAG_LEN {
            return None;
        }
        let len = FAST_COMMIT_TAG_LEN + usize::from(le16(rest, 2));
        let at = self.at;
        let Some(bytes) = rest.get(..len) else {
            self.at = self.block.len();
            return Some(Err(FormatError::new(
                Structure::FastCommit,
                "len",
                len as u64,
                Expected::AtMost(rest.len() as u64),
            )
            .at(at)));
        };
        match FastCommitRecord::parse(bytes) {
            Ok(record) => {
                self.at += len;
                Some(Ok((record, bytes)))
            }
            Err(e) => {
                self.at = self.block.len();
                Some(Err(e.at(at)))
            }
        }
    }
}

impl<'a> FastCommitRecord<'a> {
    /// Reads one record from exactly its bytes, tag and length included.
    ///
    /// # Errors
    /// An unknown tag, or a value too short or malformed for it.
    pub fn parse(bytes: &'a [u8]) -> FormatResult<Self> {
        let tag = le16(bytes, 0);
        let value = bytes
            .get(FAST_COMMIT_TAG_LEN..)
            .ok_or_else(|| bad("length", bytes.len() as u64, Expected::AtLeast(4)))?;
        match tag {
            ADD_RANGE => {
                need(value, 16)?;
                parse_add_range(value)
            }
            DEL_RANGE => {
                need(value, 12)?;
                Ok(Self::DelRange {
                    ino: ino(value, 0)?,
                    lblk: Lblk::new(le32(value, 4)),
                    len: le32(value, 8),
                })
            }
            CREAT => Ok(Self::Create(parse_entry(value)?)),
            LINK => Ok(Self::Link(parse_entry(value)?)),
            UNLINK => Ok(Self::Unlink(parse_entry(value)?)),
            INODE => {
                // The fixed 128 bytes are in every inode.
                need(value, 4 + 128)?;
                Ok(Self::Inode {
                    ino: ino(value, 0)?,
                    raw: value.get(4..).unwrap_or(&[]),
                })
            }
            PAD => Ok(Self::Pad {
                len: value.len() as u16,
            }),
            TAIL => {
                need(value, 8)?;
                Ok(Self::Tail {
                    tid: Tid::new(le32(value, 0)),
                    crc: le32(value, 4),
                    len: value.len() as u16,
                })
            }
            HEAD => {
                need(value, 8)?;
                Ok(Self::Head {
                    features: le32(value, 0),
                    tid: Tid::new(le32(value, 4)),
                })
            }
            _ => Err(bad("tag", u64::from(tag), Expected::Between(1, 9))),
        }
    }

    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::AddRange {
                ino,
                lblk,
                len,
                unwritten,
                start,
            } => {
                tag(out, ADD_RANGE, 16);
                out.extend_from_slice(&ino.get().to_le_bytes());
                out.extend_from_slice(&lblk.get().to_le_bytes());
                let raw = if unwritten {
                    len.saturating_add(MAX_WRITTEN)
                } else {
                    len
                };
                out.extend_from_slice(&raw.to_le_bytes());
                out.extend_from_slice(&((start.get() >> 32) as u16).to_le_bytes());
                out.extend_from_slice(&(start.get() as u32).to_le_bytes());
            }
            Self::DelRange { ino, lblk, len } => {
                tag(out, DEL_RANGE, 12);
                out.extend_from_slice(&ino.get().to_le_bytes());
                out.extend_from_slice(&lblk.get().to_le_bytes());
                out.extend_from_slice(&len.to_le_bytes());
            }
            Self::Create(entry) => encode_entry(out, CREAT, entry),
            Self::Link(entry) => encode_entry(out, LINK, entry),
            Self::Unlink(entry) => encode_entry(out, UNLINK, entry),
            Self::Inode { ino, raw } => {
                tag(out, INODE, 4 + raw.len());
                out.extend_from_slice(&ino.get().to_le_bytes());
                out.extend_from_slice(raw);
            }
            Self::Pad { len } => {
                tag(out, PAD, usize::from(len));
                out.resize(out.len() + usize::from(len), 0);
            }
            Self::Tail { tid, crc, len } => {
                let len = usize::from(len).max(8);
                tag(out, TAIL, len);
                out.extend_from_slice(&tid.get().to_le_bytes());
                out.extend_from_slice(&crc.to_le_bytes());
                out.resize(out.len() + len - 8, 0);
            }
            Self::Head { features, tid } => {
                tag(out, HEAD, 8);
                out.extend_from_slice(&features.to_le_bytes());
                out.extend_from_slice(&tid.get().to_le_bytes());
            }
        }
    }

    /// Returns the part of a record's bytes its fast commit's CRC covers: all of them, but of a
    /// tail only the transaction number.
    #[must_use]
    pub fn checksummed<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        match self {
            Self::Tail { .. } => bytes.get(..FAST_COMMIT_TAG_LEN + 4).unwrap_or(bytes),
            _ => bytes,
        }
    }
}

/// Packs `records` into one fast commit of transaction `tid`: padding where a record does not fit
/// the rest of a block, a tail with the CRC, whole blocks of `block_len` bytes.
///
/// # Errors
/// A record longer than a block.
pub fn encode_fast_commit(
    records: &[FastCommitRecord<'_>],
    tid: Tid,
    block_len: usize,
) -> FormatResult<Vec<u8>> {
    const TAIL_BYTES: usize = FAST_COMMIT_TAG_LEN + 8;
    let mut out = Vec::new();
    let mut one = Vec::new();
    let pad_to_fit = |out: &mut Vec<u8>, needed: usize| {
        let left = block_len - out.len() % block_len;
        // What is left must take a padding record itself, or be filled exactly.
        if needed != left && needed + FAST_COMMIT_TAG_LEN > left {
            let len = left.saturating_sub(FAST_COMMIT_TAG_LEN);
            FastCommitRecord::Pad { len: len as u16 }.encode(out);
        }
    };
    for record in records {
        one.clear();
        record.encode(&mut one);
        let limit = block_len.saturating_sub(FAST_COMMIT_TAG_LEN);
        if one.len() > limit {
            return Err(bad("len", one.len() as u64, Expected::AtMost(limit as u64)));
        }
        pad_to_fit(&mut out, one.len());
        out.extend_from_slice(&one);
    }
    pad_to_fit(&mut out, TAIL_BYTES);
    let left = block_len - out.len() % block_len;
    let tail = FastCommitRecord::Tail {
        tid,
        crc: 0,
        len: (left - FAST_COMMIT_TAG_LEN) as u16,
    };
    let at = out.len();
    tail.encode(&mut out);
    let covered = out.get(..at + FAST_COMMIT_TAG_LEN + 4).unwrap_or(&[]);
    let crc = Crc32c::seeded(0).update(covered).value();
    super::fields::put(&mut out, at + 8, &crc.to_le_bytes());
    Ok(out)
}

fn parse_add_range(value: &[u8]) -> FormatResult<FastCommitRecord<'_>> {
    let raw_len = le16(value, 8);
    let unwritten = raw_len > MAX_WRITTEN;
    let len = if unwritten {
        raw_len - MAX_WRITTEN
    } else {
        raw_len
    };
    if len == 0 {
        return Err(bad("ex.len", 0, Expected::AtLeast(1)));
    }
    let high = u64::from(le16(value, 10));
    Ok(FastCommitRecord::AddRange {
        ino: ino(value, 0)?,
        lblk: Lblk::new(le32(value, 4)),
        len,
        unwritten,
        start: Pblk::new(high << 32 | u64::from(le32(value, 12))),
    })
}

fn parse_entry(value: &[u8]) -> FormatResult<DirEntryChange<'_>> {
    let name = value.get(8..).unwrap_or(&[]);
    if name.is_empty() || name.len() > 255 {
        return Err(bad("dname", name.len() as u64, Expected::Between(1, 255)));
    }
    Ok(DirEntryChange {
        parent: ino(value, 0)?,
        ino: ino(value, 4)?,
        name,
    })
}

fn encode_entry(out: &mut Vec<u8>, kind: u16, entry: DirEntryChange<'_>) {
    tag(out, kind, 8 + entry.name.len());
    out.extend_from_slice(&entry.parent.get().to_le_bytes());
    out.extend_from_slice(&entry.ino.get().to_le_bytes());
    out.extend_from_slice(entry.name);
}

fn tag(out: &mut Vec<u8>, kind: u16, len: usize) {
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&(len as u16).to_le_bytes());
}

fn ino(value: &[u8], at: usize) -> FormatResult<Ino> {
    match le32(value, at) {
        0 => Err(bad("ino", 0, Expected::AtLeast(1))),
        n => Ok(Ino::new(n)),
    }
}

fn need(value: &[u8], len: usize) -> FormatResult<()> {
    if value.len() < len {
        return Err(bad(
            "len",
            value.len() as u64,
            Expected::AtLeast(len as u64),
        ));
    }
    Ok(())
}

fn bad(field: &'static str, found: u64, expected: Expected) -> FormatError {
    FormatError::new(Structure::FastCommit, field, found, expected)
}
