//! The headers of a sparse image and of its chunks.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What an image begins with.
const MAGIC: u32 = 0xed26_ff3a;

/// Most bytes of a block; programs make them of 4096.
const MOST_BLOCK: u32 = 64 << 20;

/// What stands in front of the chunks.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    magic: U32,
    major: U16,
    minor: U16,
    header_size: U16,
    chunk_header_size: U16,
    block_size: U32,
    blocks: U32,
    chunks: U32,
    checksum: U32,
}

/// Bytes of the header as it is written here.
pub(super) const HEADER: usize = size_of::<Header>();

impl Header {
    pub(super) fn new(block_size: u32, blocks: u32, chunks: u32) -> Self {
        Self {
            magic: U32::new(MAGIC),
            major: U16::new(1),
            minor: U16::ZERO,
            header_size: U16::new(HEADER as u16),
            chunk_header_size: U16::new(CHUNK as u16),
            block_size: U32::new(block_size),
            blocks: U32::new(blocks),
            chunks: U32::new(chunks),
            // Programs leave it zero; checksums are chunks.
            checksum: U32::ZERO,
        }
    }

    /// Takes the bytes of a header apart. What is wrong is said in words.
    pub(super) fn parse(bytes: &[u8; HEADER]) -> Result<Self, String> {
        let header: Self = zerocopy::transmute!(*bytes);
        if header.magic.get() != MAGIC {
            return Err("the mark is missing".to_owned());
        }
        if header.major.get() != 1 {
            return Err(format!(
                "the version is {}, and 1 was expected",
                header.major
            ));
        }
        let (own, of_chunks) = (header.header_size.get(), header.chunk_header_size.get());
        if usize::from(own) < HEADER || usize::from(of_chunks) < CHUNK {
            return Err(format!(
                "headers have {own} and {of_chunks} bytes, fewer than {HEADER} and {CHUNK}"
            ));
        }
        let block_size = header.block_size.get();
        if !(4..=MOST_BLOCK).contains(&block_size) || !block_size.is_multiple_of(4) {
            return Err(format!(
                "its blocks have {block_size} bytes, and a multiple of 4 up to {MOST_BLOCK} was \
                 expected"
            ));
        }
        Ok(header)
    }

    /// Bytes of the header itself; chunks begin behind it.
    pub(super) fn len(&self) -> u64 {
        self.header_size.get().into()
    }

    /// Bytes of the header of a chunk.
    pub(super) fn chunk_header_len(&self) -> u64 {
        self.chunk_header_size.get().into()
    }

    /// Bytes of a block.
    pub(super) fn block_size(&self) -> u32 {
        self.block_size.get()
    }

    /// Blocks of the disk.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks.get()
    }

    /// Chunks of the image.
    pub(super) fn chunks(&self) -> u32 {
        self.chunks.get()
    }
}

/// Whether a file begins as a sparse image does.
pub(crate) fn is_sparse(head: &[u8]) -> bool {
    head.starts_with(&MAGIC.to_le_bytes())
}

/// What a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The bytes follow.
    Raw = 0xcac1,
    /// A word follows that fills all.
    Fill = 0xcac2,
    /// Nothing is said of the content.
    DontCare = 0xcac3,
    /// The checksum of everything before follows; the chunk has no blocks.
    Crc32 = 0xcac4,
}

impl Kind {
    pub(super) fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0xcac1 => Self::Raw,
            0xcac2 => Self::Fill,
            0xcac3 => Self::DontCare,
            0xcac4 => Self::Crc32,
            _ => return None,
        })
    }
}

/// What stands in front of a chunk's data.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ChunkHeader {
    kind: U16,
    reserved: U16,
    blocks: U32,
    total: U32,
}

/// Bytes of the header of a chunk as it is written here.
pub(super) const CHUNK: usize = size_of::<ChunkHeader>();

impl ChunkHeader {
    /// The header of a chunk of `blocks` blocks with `data` bytes behind it.
    pub(super) fn new(kind: Kind, blocks: u32, data: u32) -> Self {
        Self {
            kind: U16::new(kind as u16),
            reserved: U16::ZERO,
            blocks: U32::new(blocks),
            total: U32::new(CHUNK as u32 + data),
        }
    }

    pub(super) fn kind_number(&self) -> u16 {
        self.kind.get()
    }

    /// Blocks of the disk that the chunk stands for.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks.get()
    }

    /// Bytes of the chunk with its header.
    pub(super) fn total(&self) -> u32 {
        self.total.get()
    }
}
