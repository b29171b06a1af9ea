//! Directory entries, the checksum tail of a directory block, and building a block.
//!
//! A block is filled without gaps by records of `rec_len` bytes; a record whose inode is 0 is free
//! space. With `metadata_csum` the last 12 bytes are a tail disguised as such a free record, so
//! that old readers skip it.
//!
//! # Invariants
//! - [`DirEntries`] yields records that lie wholly in the region, whose name lies wholly in the
//!   record and whose inode number the file system can have. It always makes progress and stops at
//!   the first broken record.
//! - [`DirBlockBuilder`] writes only blocks that [`DirEntries`] accepts.

use crate::bytes::{le16, le32, put};
use crate::checksum::Crc32c;
use crate::error::{Expected, FormatError, FormatResult, Structure};
use crate::inode::FileType;
pub use crate::types::NAME_MAX;
use crate::types::{BlockSize, Ino};

/// Bytes of an entry before its name.
pub const ENTRY_HEADER_LEN: usize = 8;
/// Bytes of the checksum tail.
pub const TAIL_LEN: usize = 12;
/// The "file type" that marks a record as the checksum tail.
pub const TAIL_FILE_TYPE: u8 = 0xde;
/// Bytes of the hash kept behind the name in directories that are both encrypted and casefolded.
pub const ENTRY_HASH_LEN: usize = 8;

/// What a directory entry says about the type of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EntryType {
    /// Not recorded: no `filetype` feature, or a number this version does not know.
    Unknown = 0,
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A character device.
    CharDevice = 3,
    /// A block device.
    BlockDevice = 4,
    /// A named pipe.
    Fifo = 5,
    /// A socket.
    Socket = 6,
    /// A symbolic link.
    Symlink = 7,
}

impl EntryType {
    /// Returns the type a byte on disk stands for; unknown numbers read as [`EntryType::Unknown`].
    #[must_use]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => Self::Unknown,
        }
    }

    /// Returns the byte on disk.
    #[must_use]
    pub const fn raw(self) -> u8 {
        self as u8
    }

    /// Returns what an entry says about an inode of this type.
    #[must_use]
    pub const fn of(file_type: FileType) -> Self {
        match file_type {
            FileType::Regular => Self::Regular,
            FileType::Directory => Self::Directory,
            FileType::CharDevice => Self::CharDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::Symlink => Self::Symlink,
        }
    }

    /// Returns the type of the inode, or `None` if the entry does not say.
    #[must_use]
    pub const fn file_type(self) -> Option<FileType> {
        Some(match self {
            Self::Unknown => return None,
            Self::Regular => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::CharDevice => FileType::CharDevice,
            Self::BlockDevice => FileType::BlockDevice,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
            Self::Symlink => FileType::Symlink,
        })
    }
}

/// The hash of the plain name, stored with the entry where the name itself is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct EntryHash {
    /// The hash the index sorts by.
    pub hash: u32,
    /// Its second half, which only orders a listing.
    pub minor: u32,
}

/// What the file system's features and the directory's flags say about its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirLayout {
    /// Block size of the file system.
    pub block_size: BlockSize,
    /// Feature `filetype`: a one-byte name length and a file type, instead of a two-byte length.
    pub file_type: bool,
    /// Feature `metadata_csum`: blocks end in a checksum tail.
    pub checksums: bool,
    /// The directory is encrypted and casefolded: entries carry [`EntryHash`] behind the name.
    pub hash_in_entry: bool,
    /// The directory is encrypted: names are ciphertext and may hold any byte.
    pub raw_names: bool,
    /// Highest inode number of the file system.
    pub max_inode: Ino,
}

impl DirLayout {
    /// Returns the bytes of a block that hold entries, the tail left out.
    #[must_use]
    pub const fn entries_len(&self) -> usize {
        if self.checksums {
            self.block_size.len() - TAIL_LEN
        } else {
            self.block_size.len()
        }
    }

    /// Returns the bytes an entry with this name takes at least. `.` and `..` never carry a hash.
    #[must_use]
    pub fn min_rec_len(&self, name: &[u8]) -> usize {
        let hashed = self.hash_in_entry && name != b"." && name != b"..";
        min_rec_len(name.len(), hashed)
    }

    pub(crate) fn rec_len_from_disk(&self, raw: u16) -> usize {
        let raw = usize::from(raw);
        if self.block_size == BlockSize::MAX {
            // 16 bits cannot hold 65536; 0 and 65535 both stand for the whole block, and the two
            // low bits, always zero in a length, would extend the range beyond.
            if raw == 0 || raw == 65_535 {
                return self.block_size.len();
            }
            return (raw & 65_532) | ((raw & 3) << 16);
        }
        raw
    }

    fn rec_len_to_disk(&self, len: usize) -> u16 {
        if len >= 65_536 { u16::MAX } else { len as u16 }
    }
}

/// Returns the bytes an entry with a name of `name_len` bytes takes at least: header, name, padding
/// to four bytes, and the hash where the directory keeps one in its entries.
#[must_use]
pub const fn min_rec_len(name_len: usize, with_hash: bool) -> usize {
    let len = (ENTRY_HEADER_LEN + name_len + 3) & !3;
    if with_hash { len + ENTRY_HASH_LEN } else { len }
}

/// One record of a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Byte offset of the record in its block (or region).
    pub offset: usize,
    /// Bytes from this record to the next.
    pub rec_len: usize,
    /// The inode, or `None` for free space.
    pub ino: Option<Ino>,
    /// The name as stored; empty for free space.
    pub name: &'a [u8],
    /// The type recorded for the inode.
    pub file_type: EntryType,
    /// The stored hash, in directories that are encrypted and casefolded.
    pub hash: Option<EntryHash>,
    /// The length of the name and the type as the record has them, also where it is free space.
    pub stored: [u8; 2],
}

/// Walks the records of one directory block, or of one region of an inline directory.
///
/// `region` is a whole block, or the bytes that stand in for one; a checksum tail reads as free
/// space. The first broken record is returned as an error and ends the walk.
#[must_use]
pub fn entries<'a>(region: &'a [u8], layout: &DirLayout) -> DirEntries<'a> {
    DirEntries {
        region,
        layout: *layout,
        at: 0,
    }
}

/// Iterator over the records of a directory block. See [`entries`].
#[derive(Clone, Debug)]
pub struct DirEntries<'a> {
    region: &'a [u8],
    layout: DirLayout,
    at: usize,
}

impl<'a> DirEntries<'a> {
    /// Returns where the next record starts.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    fn parse(&self) -> FormatResult<DirEntry<'a>> {
        let at = self.at;
        let broken = |field, found: usize, expected| {
            FormatError::new(Structure::DirEntry, field, found as u64, expected).at(at)
        };
        let left = self.region.len() - at;
        if left < ENTRY_HEADER_LEN {
            return Err(broken(
                "length",
                left,
                Expected::AtLeast(ENTRY_HEADER_LEN as u64),
            ));
        }
        let rec_len = self.layout.rec_len_from_disk(le16(self.region, at + 4));
        if !rec_len.is_multiple_of(4) {
            return Err(broken(
                "rec_len",
                rec_len,
                Expected::Said("a multiple of 4"),
            ));
        }
        let shortest = min_rec_len(1, false);
        // The fake entry that opens an index node, and free space at the end of an inline
        // directory, have no room for a name: 8 bytes are still a record.
        let least = if le32(self.region, at) == 0 {
            ENTRY_HEADER_LEN
        } else {
            shortest
        };
        if rec_len < least || rec_len > left {
            return Err(broken(
                "rec_len",
                rec_len,
                Expected::Between(least as u64, left as u64),
            ));
        }
        let ino = le32(self.region, at);
        let byte = |at: usize| self.region.get(at).copied().unwrap_or(0);
        let stored = [byte(at + 6), byte(at + 7)];
        if ino == 0 {
            return Ok(DirEntry {
                offset: at,
                rec_len,
                ino: None,
                name: &[],
                file_type: EntryType::Unknown,
                hash: None,
                stored,
            });
        }
        if ino > self.layout.max_inode.get() {
            return Err(broken(
                "inode",
                ino as usize,
                Expected::AtMost(u64::from(self.layout.max_inode.get())),
            ));
        }
        let (name_len, file_type) = if self.layout.file_type {
            let [len, kind] = stored;
            (usize::from(len), EntryType::from_raw(kind))
        } else {
            (usize::from(le16(self.region, at + 6)), EntryType::Unknown)
        };
        if name_len == 0 || name_len > NAME_MAX {
            return Err(broken(
                "name_len",
                name_len,
                Expected::Between(1, NAME_MAX as u64),
            ));
        }
        let start = at + ENTRY_HEADER_LEN;
        let name = match self.region.get(start..start + name_len) {
            Some(name) if self.layout.min_rec_len(name) <= rec_len => name,
            _ => {
                let most = rec_len.saturating_sub(ENTRY_HEADER_LEN) as u64;
                return Err(broken("name_len", name_len, Expected::AtMost(most)));
            }
        };
        if !self.layout.raw_names
            && let Some(bad) = name.iter().find(|&&b| b == b'/' || b == 0)
        {
            return Err(broken(
                "name",
                usize::from(*bad),
                Expected::Said("no byte 0 or 47 (/) in a name"),
            ));
        }
        let hash = (self.layout.hash_in_entry && name != b"." && name != b"..").then(|| {
            let at = at + min_rec_len(name_len, false);
            EntryHash {
                hash: le32(self.region, at),
                minor: le32(self.region, at + 4),
            }
        });
        Ok(DirEntry {
            offset: at,
            rec_len,
            ino: Some(Ino::new(ino)),
            name,
            file_type,
            hash,
            stored,
        })
    }
}

impl<'a> Iterator for DirEntries<'a> {
    type Item = FormatResult<DirEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.region.len() {
            return None;
        }
        let entry = self.parse();
        match &entry {
            Ok(entry) => self.at += entry.rec_len,
            Err(_) => self.at = self.region.len(),
        }
        Some(entry)
    }
}

impl core::iter::FusedIterator for DirEntries<'_> {}

/// Returns whether the block ends in a checksum tail (which says nothing about the checksum in it).
#[must_use]
pub fn has_tail(block: &[u8]) -> bool {
    let Some(at) = block.len().checked_sub(TAIL_LEN) else {
        return false;
    };
    le32(block, at) == 0
        && le16(block, at + 4) == TAIL_LEN as u16
        && block.get(at + 6) == Some(&0)
        && block.get(at + 7) == Some(&TAIL_FILE_TYPE)
}

/// Returns the checksum of a directory block with a tail, from the inode's seed
/// ([`inode_checksum_seed`](crate::dir::inode_checksum_seed)).
#[must_use]
pub fn block_checksum(block: &[u8], inode_seed: Crc32c) -> u32 {
    let covered = block.len().saturating_sub(TAIL_LEN);
    inode_seed
        .update(block.get(..covered).unwrap_or_default())
        .value()
}

/// Checks the checksum tail of a directory block of a file system with `metadata_csum`.
///
/// # Errors
/// When the tail is missing or the stored checksum differs.
pub fn verify_block_checksum(block: &[u8], inode_seed: Crc32c) -> FormatResult<()> {
    if !has_tail(block) {
        let at = block.len().saturating_sub(TAIL_LEN);
        let found = u64::from(block.get(at + 7).copied().unwrap_or(0));
        let expected = Expected::Exactly(u64::from(TAIL_FILE_TYPE));
        return Err(
            FormatError::new(Structure::DirBlock, "reserved_ft", found, expected).at(at + 7),
        );
    }
    let stored = le32(block, block.len() - 4);
    let computed = block_checksum(block, inode_seed);
    if stored == computed {
        Ok(())
    } else {
        Err(FormatError::checksum(Structure::DirBlock, stored, computed))
    }
}

/// Writes the tail without a checksum into the last 12 bytes of a directory block, so that it reads
/// as free space.
pub fn write_tail_header(block: &mut [u8]) {
    let Some(at) = block.len().checked_sub(TAIL_LEN) else {
        return;
    };
    put(block, at, &0u32.to_le_bytes());
    put(block, at + 4, &(TAIL_LEN as u16).to_le_bytes());
    put(block, at + 6, &[0, TAIL_FILE_TYPE]);
    put(block, at + 8, &0u32.to_le_bytes());
}

/// Writes the tail with its checksum into the last 12 bytes of a directory block.
pub fn write_tail(block: &mut [u8], inode_seed: Crc32c) {
    let Some(at) = block.len().checked_sub(TAIL_LEN) else {
        return;
    };
    write_tail_header(block);
    let checksum = block_checksum(block, inode_seed);
    put(block, at + 8, &checksum.to_le_bytes());
}

/// Writes one record at `offset` of `region`: header, name, padding and hash. The bytes from there
/// to the end of the record are left alone.
///
/// Returns `false`, having written nothing, if the record does not fit in `rec_len`, `rec_len` in
/// the region, or the name is empty or longer than 255 bytes.
#[must_use]
pub fn write_entry(
    region: &mut [u8],
    offset: usize,
    layout: &DirLayout,
    rec_len: usize,
    entry: &NewEntry<'_>,
) -> bool {
    let name_len = entry.name.len();
    let fits = (1..=NAME_MAX).contains(&name_len)
        && rec_len.is_multiple_of(4)
        && rec_len >= layout.min_rec_len(entry.name)
        && offset
            .checked_add(rec_len)
            .is_some_and(|end| end <= region.len());
    if !fits {
        return false;
    }
    put(region, offset, &entry.ino.get().to_le_bytes());
    put(
        region,
        offset + 4,
        &layout.rec_len_to_disk(rec_len).to_le_bytes(),
    );
    let kind = if layout.file_type {
        entry.file_type.raw()
    } else {
        0
    };
    put(region, offset + 6, &[name_len as u8, kind]);
    put(region, offset + ENTRY_HEADER_LEN, entry.name);
    let padded = min_rec_len(name_len, false);
    let padding = padded - ENTRY_HEADER_LEN - name_len;
    put(
        region,
        offset + ENTRY_HEADER_LEN + name_len,
        &[0; 3][..padding],
    );
    if layout.hash_in_entry && entry.name != b"." && entry.name != b".." {
        let hash = entry.hash.unwrap_or_default();
        put(region, offset + padded, &hash.hash.to_le_bytes());
        put(region, offset + padded + 4, &hash.minor.to_le_bytes());
    }
    true
}

/// Writes a record of free space of `rec_len` bytes at `offset`.
pub fn write_free(region: &mut [u8], offset: usize, layout: &DirLayout, rec_len: usize) {
    put(region, offset, &0u32.to_le_bytes());
    put(
        region,
        offset + 4,
        &layout.rec_len_to_disk(rec_len).to_le_bytes(),
    );
    put(region, offset + 6, &[0, 0]);
}

/// Sets how many bytes the record at `offset` spans.
pub(crate) fn set_rec_len(region: &mut [u8], offset: usize, layout: &DirLayout, rec_len: usize) {
    let raw = layout.rec_len_to_disk(rec_len);
    put(region, offset + 4, &raw.to_le_bytes());
}

/// Makes the record at `offset` name another inode.
pub(crate) fn set_target(
    region: &mut [u8],
    offset: usize,
    layout: &DirLayout,
    ino: Ino,
    file_type: EntryType,
) {
    put(region, offset, &ino.get().to_le_bytes());
    if layout.file_type {
        put(region, offset + 7, &[file_type.raw()]);
    }
}

/// An entry to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// The inode it names.
    pub ino: Ino,
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// The type of the inode; not written without the `filetype` feature.
    pub file_type: EntryType,
    /// The stored hash, where the directory keeps one (zero if absent).
    pub hash: Option<EntryHash>,
}

impl<'a> NewEntry<'a> {
    /// Makes an entry without a stored hash.
    #[must_use]
    pub const fn new(ino: Ino, name: &'a [u8], file_type: EntryType) -> Self {
        Self {
            ino,
            name,
            file_type,
            hash: None,
        }
    }
}

/// Fills a directory block (or a region of an inline directory) front to back.
///
/// Dropping it unfinished leaves the block invalid; [`DirBlockBuilder::finish`] closes it.
#[derive(Debug)]
pub struct DirBlockBuilder<'a> {
    region: &'a mut [u8],
    layout: DirLayout,
    /// Bytes that may hold entries.
    end: usize,
    /// Where the next entry goes.
    at: usize,
    /// Where the last entry starts, whose record `finish` stretches to the end.
    last: Option<usize>,
}

impl<'a> DirBlockBuilder<'a> {
    /// Starts an empty block, which is zeroed first. `block` must be one block long; room for the
    /// tail is kept if the layout asks for one.
    #[must_use]
    pub fn new(block: &'a mut [u8], layout: &DirLayout) -> Self {
        block.fill(0);
        let tail = if layout.checksums { TAIL_LEN } else { 0 };
        let end = block.len().saturating_sub(tail);
        Self {
            region: block,
            layout: *layout,
            end,
            at: 0,
            last: None,
        }
    }

    /// Starts an empty region of an inline directory: no tail, whatever the layout says.
    #[must_use]
    pub fn new_inline(region: &'a mut [u8], layout: &DirLayout) -> Self {
        region.fill(0);
        let end = region.len();
        Self {
            region,
            layout: *layout,
            end,
            at: 0,
            last: None,
        }
    }

    /// Returns the bytes still free for entries.
    #[must_use]
    pub fn room(&self) -> usize {
        self.end - self.at
    }

    /// Returns whether nothing has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Adds an entry. `false`, and no change, if there is no room for it or its name is not 1 to
    /// 255 bytes long.
    #[must_use]
    pub fn push(&mut self, entry: &NewEntry<'_>) -> bool {
        let len = self.layout.min_rec_len(entry.name);
        if len > self.room() {
            return false;
        }
        let end = self.end;
        let Some(region) = self.region.get_mut(..end) else {
            return false;
        };
        if !write_entry(region, self.at, &self.layout, len, entry) {
            return false;
        }
        self.last = Some(self.at);
        self.at += len;
        true
    }

    /// Stretches the last record to the end (or makes the whole block free space) and, where the
    /// layout asks for it, writes the tail. `inode_seed` is unused without `metadata_csum`.
    pub fn finish(self, inode_seed: Crc32c) {
        let region = self.close();
        if let Some(block) = region {
            write_tail(block, inode_seed);
        }
    }

    /// Finishes the block without a checksum, as it is sealed later.
    pub fn finish_unsealed(self) {
        let region = self.close();
        if let Some(block) = region {
            write_tail_header(block);
        }
    }

    /// Stretches the last record; returns the block if it needs a tail.
    fn close(self) -> Option<&'a mut [u8]> {
        match self.last {
            Some(last) => set_rec_len(self.region, last, &self.layout, self.end - last),
            None => write_free(self.region, 0, &self.layout, self.end),
        }
        (self.end < self.region.len()).then_some(self.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn layout(block_size: u32) -> DirLayout {
        DirLayout {
            block_size: BlockSize::from_bytes(block_size).unwrap(),
            file_type: true,
            checksums: true,
            hash_in_entry: false,
            raw_names: false,
            max_inode: Ino::new(u32::MAX),
        }
    }

    #[test]
    fn an_empty_block_is_one_free_record_and_a_tail() {
        for size in [1024, 4096, 65_536] {
            let layout = layout(size);
            let mut block = vec![0xaa; size as usize];
            DirBlockBuilder::new(&mut block, &layout).finish(Crc32c::INIT);
            verify_block_checksum(&block, Crc32c::INIT).unwrap();
            let all: Vec<_> = entries(&block, &layout).map(Result::unwrap).collect();
            assert_eq!(all.len(), 2);
            assert!(all.iter().all(|e| e.ino.is_none()));
            assert_eq!(all[0].rec_len, size as usize - TAIL_LEN);
        }
    }

    #[test]
    fn a_record_of_a_whole_64k_block_survives_its_16_bit_length() {
        let mut layout = layout(65_536);
        layout.checksums = false;
        let mut block = vec![0; 65_536];
        let mut builder = DirBlockBuilder::new(&mut block, &layout);
        assert!(builder.push(&NewEntry::new(Ino::new(12), b"a", EntryType::Regular)));
        builder.finish(Crc32c::INIT);
        assert_eq!(le16(&block, 4), 65_535);
        let only = entries(&block, &layout).next().unwrap().unwrap();
        assert_eq!(only.rec_len, 65_536);
        block[4..6].copy_from_slice(&[0, 0]);
        let only = entries(&block, &layout).next().unwrap().unwrap();
        assert_eq!(only.rec_len, 65_536);
    }

    #[test]
    fn a_slash_in_a_name_is_corruption_unless_the_name_is_encrypted() {
        let mut l = layout(1024);
        let mut block = vec![0; 1024];
        let mut builder = DirBlockBuilder::new(&mut block, &l);
        assert!(builder.push(&NewEntry::new(Ino::new(12), b"../x", EntryType::Regular)));
        builder.finish(Crc32c::INIT);
        assert_eq!(
            entries(&block, &l).next().unwrap().unwrap_err().field,
            "name"
        );
        l.raw_names = true;
        assert_eq!(entries(&block, &l).next().unwrap().unwrap().name, b"../x");
    }

    #[test]
    fn a_changed_byte_fails_the_checksum() {
        let layout = layout(1024);
        let mut block = vec![0; 1024];
        DirBlockBuilder::new(&mut block, &layout).finish(Crc32c::INIT);
        block[100] ^= 1;
        assert!(
            verify_block_checksum(&block, Crc32c::INIT)
                .unwrap_err()
                .is_checksum()
        );
        block[1023 - 4] = 0;
        assert_eq!(
            verify_block_checksum(&block, Crc32c::INIT)
                .unwrap_err()
                .field,
            "reserved_ft"
        );
    }

    fn any_name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            any::<u8>().prop_filter("in a name", |b| *b != 0 && *b != b'/'),
            1..=255,
        )
    }

    proptest! {
        #[test]
        fn what_is_built_reads_back(
            names in prop::collection::vec((any_name(), 1u32.., 0u8..8, any::<(u32, u32)>()), 0..60),
            log2 in 10u32..=16,
            file_type: bool,
            checksums: bool,
            hash_in_entry: bool,
            seed: u32,
        ) {
            let layout = DirLayout {
                block_size: BlockSize::from_log2(log2).unwrap(),
                file_type, checksums, hash_in_entry, raw_names: false, max_inode: Ino::new(u32::MAX),
            };
            let mut block = vec![0x55; layout.block_size.len()];
            let mut builder = DirBlockBuilder::new(&mut block, &layout);
            let mut kept = Vec::new();
            for (name, ino, kind, (hash, minor)) in &names {
                let entry = NewEntry {
                    ino: Ino::new(*ino),
                    name,
                    file_type: EntryType::from_raw(*kind),
                    hash: Some(EntryHash { hash: *hash, minor: *minor }),
                };
                let room = builder.room();
                let pushed = builder.push(&entry);
                prop_assert_eq!(pushed, room >= layout.min_rec_len(name));
                if pushed {
                    kept.push(entry);
                }
            }
            let seed = Crc32c::seeded(seed);
            builder.finish(seed);
            if checksums {
                verify_block_checksum(&block, seed).unwrap();
            }
            let all: Vec<_> = entries(&block, &layout).collect::<Result<_, _>>().unwrap();
            let total: usize = all.iter().map(|e| e.rec_len).sum();
            prop_assert_eq!(total, block.len());
            let used: Vec<_> = all.iter().filter(|e| e.ino.is_some()).collect();
            prop_assert_eq!(used.len(), kept.len());
            for (read, wrote) in used.iter().zip(&kept) {
                prop_assert_eq!(read.ino, Some(wrote.ino));
                prop_assert_eq!(read.name, wrote.name);
                if file_type {
                    prop_assert_eq!(read.file_type, wrote.file_type);
                }
                let special = wrote.name == b"." || wrote.name == b"..";
                if hash_in_entry && !special {
                    prop_assert_eq!(read.hash, wrote.hash);
                } else {
                    prop_assert_eq!(read.hash, None);
                }
            }
        }
    }
}
