//! File data and directory entries kept inside an inode.
//!
//! The first 60 bytes lie in `i_block`, the rest in the value of the attribute `system.data`. A
//! directory's first four bytes are its parent (there is no `.` and no `..`), and each of the two
//! parts is filled with records of its own, as if it were a small block.
//!
//! Source: the kernel's `ext4/inlinedata` page.

use crate::bytes::{le32, put};
use crate::checksum::Crc32c;
use crate::dir::edit::{self, Room, Spot};
use crate::dir::entry::{NewEntry, set_rec_len};
use crate::dir::{DirBlockBuilder, DirEntry, DirLayout, EntryType, entries};
use crate::error::{Expected, FormatError, FormatResult, Structure};
use crate::inode::MAP_BYTES;
use crate::types::Ino;

/// Bytes of inline content that lie in `i_block`.
pub const IN_MAP: usize = MAP_BYTES;
/// Bytes of an inline directory in front of its first record: the parent's number.
pub const PARENT_LEN: usize = 4;

/// Where the records of a directory begin once it has a block, behind `.` and `..`.
const IN_BLOCK: usize = 24;
/// How much further back a record lies in the block that the directory gets when it leaves the
/// inode.
pub const BLOCK_SHIFT: usize = IN_BLOCK - PARENT_LEN;

/// Inline content of `size` bytes: the inode's `i_block`, and the value of `system.data`.
///
/// A file may be larger than what is stored of it, as one that is a hole from some byte on: the
/// rest reads as zeros.
#[derive(Clone, Copy, Debug)]
pub struct InlineData<'a> {
    map: &'a [u8; MAP_BYTES],
    rest: &'a [u8],
    size: u64,
}

impl<'a> InlineData<'a> {
    /// Returns the inline content of an inode of `size` bytes; `rest` is the value of
    /// `system.data`, empty if there is none.
    #[must_use]
    pub const fn new(map: &'a [u8; MAP_BYTES], rest: &'a [u8], size: u64) -> Self {
        Self { map, rest, size }
    }

    /// Returns the bytes of content, zeros behind what is stored among them.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the bytes of content that are stored.
    #[must_use]
    pub const fn stored(&self) -> usize {
        let room = IN_MAP + self.rest.len();
        if self.size < room as u64 {
            self.size as usize
        } else {
            room
        }
    }

    /// Copies content from byte `offset` on; returns how many bytes, fewer than `to.len()` only at
    /// the end.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> usize {
        let left = self.size.saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(to.len());
        let Some(to) = to.get_mut(..len) else {
            return 0;
        };
        let mut copied = 0;
        let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for part in [&self.map[..], self.rest] {
            let from = part.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            if let Some(to) = to.get_mut(copied..) {
                let n = from.len().min(to.len());
                if let (Some(to), Some(from)) = (to.get_mut(..n), from.get(..n)) {
                    to.copy_from_slice(from);
                    copied += n;
                }
            }
        }
        if let Some(zeros) = to.get_mut(copied..) {
            zeros.fill(0);
        }
        len
    }
}

/// Returns the most bytes of content an inode can hold whose attribute area has `value_room` bytes
/// for the value of `system.data`.
#[must_use]
pub const fn capacity(value_room: usize) -> usize {
    IN_MAP + value_room
}

/// A directory kept inside its inode.
#[derive(Clone, Copy, Debug)]
pub struct InlineDir<'a> {
    parent: Ino,
    first: &'a [u8],
    second: &'a [u8],
}

impl<'a> InlineDir<'a> {
    /// Returns the directory that inline content makes: all that is stored of it, whatever the size
    /// says, as under Linux.
    ///
    /// # Errors
    /// When the parent is not an inode the file system can have.
    pub fn new(data: &InlineData<'a>, max_inode: Ino) -> FormatResult<Self> {
        let (first, second) = (&data.map[..], data.rest);
        let parent = le32(first, 0);
        if parent == 0 || parent > max_inode.get() {
            return Err(FormatError::new(
                Structure::InlineData,
                "parent",
                u64::from(parent),
                Expected::Between(1, u64::from(max_inode.get())),
            ));
        }
        Ok(Self {
            parent: Ino::new(parent),
            first: first.get(PARENT_LEN..).unwrap_or_default(),
            second,
        })
    }

    /// Returns the parent directory, in place of an entry `..`.
    #[must_use]
    pub const fn parent(&self) -> Ino {
        self.parent
    }

    /// Returns the records of both parts, with the byte offset of each in the content. A broken
    /// record ends the walk of its part.
    pub fn entries(
        &self,
        layout: &DirLayout,
    ) -> impl Iterator<Item = FormatResult<DirEntry<'a>>> + use<'a> {
        let shifted = |base: usize| {
            move |entry: FormatResult<DirEntry<'a>>| match entry {
                Ok(mut entry) => {
                    entry.offset += base;
                    Ok(entry)
                }
                Err(error) => Err(error.at(base + error.at.unwrap_or(0) as usize)),
            }
        };
        let first = entries(self.first, layout).map(shifted(PARENT_LEN));
        let second = entries(self.second, layout).map(shifted(IN_MAP));
        first.chain(second)
    }

    /// Returns the entry of this very name: in which part it is, and where there.
    ///
    /// # Errors
    /// When a record before it breaks the format.
    pub fn find(&self, layout: &DirLayout, name: &[u8]) -> FormatResult<Option<(Part, Spot)>> {
        for (part, bytes) in [(Part::Map, self.first), (Part::Rest, self.second)] {
            if let Some(spot) = edit::find_inline(bytes, layout, name)? {
                return Ok(Some((part, spot)));
            }
        }
        Ok(None)
    }

    /// Returns the first place where an entry of `need` bytes ([`DirLayout::min_rec_len`]) fits: in
    /// which part it is, and where there.
    ///
    /// # Errors
    /// When a record before it breaks the format.
    pub fn find_room(&self, layout: &DirLayout, need: usize) -> FormatResult<Option<(Part, Room)>> {
        for (part, bytes) in [(Part::Map, self.first), (Part::Rest, self.second)] {
            if let Some(room) = edit::find_room_inline(bytes, layout, need)? {
                return Ok(Some((part, room)));
            }
        }
        Ok(None)
    }

    /// Returns the records of the second part, as they lie in the value of `system.data`.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.second
    }

    /// Makes `block` the block that the directory `ino` has when it leaves its inode, without a
    /// checksum. Each record lies [`BLOCK_SHIFT`] bytes further back there.
    ///
    /// # Errors
    /// When a record breaks the format, or they do not fit.
    pub fn fill_block(&self, block: &mut [u8], layout: &DirLayout, ino: Ino) -> FormatResult<()> {
        let mut last = 0;
        for entry in self.entries(layout) {
            last = entry?.offset + BLOCK_SHIFT;
        }
        let end = layout.entries_len();
        let len = IN_BLOCK + self.first.len() + self.second.len();
        if len > end {
            let expected = Expected::AtMost(end as u64);
            return Err(FormatError::new(
                Structure::InlineData,
                "size",
                len as u64,
                expected,
            ));
        }
        let mut builder = DirBlockBuilder::new(block, layout);
        let dots = [(ino, &b"."[..]), (self.parent, b"..")];
        let fit =
            dots.map(|(ino, name)| builder.push(&NewEntry::new(ino, name, EntryType::Directory)));
        debug_assert!(fit == [true; 2], "a block is larger than that");
        builder.finish_unsealed();
        set_rec_len(block, IN_BLOCK / 2, layout, IN_BLOCK / 2);
        put(block, IN_BLOCK, self.first);
        put(block, IN_BLOCK + self.first.len(), self.second);
        set_rec_len(block, last, layout, end - last);
        Ok(())
    }
}

/// A part of an inline directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// In `i_block`, behind the parent's number.
    Map,
    /// In the value of `system.data`.
    Rest,
}

impl Part {
    /// Returns the bytes of this part in what an inode holds.
    #[must_use]
    pub fn of<'a>(self, map: &'a mut [u8; MAP_BYTES], rest: &'a mut [u8]) -> &'a mut [u8] {
        match self {
            Self::Map => map.get_mut(PARENT_LEN..).unwrap_or_default(),
            Self::Rest => rest,
        }
    }
}

/// Makes an inline directory one in another parent.
pub fn set_parent(map: &mut [u8; MAP_BYTES], parent: Ino) {
    put(map, 0, &parent.get().to_le_bytes());
}

/// Builds an inline directory: as many of `list` as fit go into `map`, the others into `rest`,
/// which becomes the value of `system.data` (its length is the directory's size less 60).
///
/// Returns `false`, the buffers then holding nothing of use, if they do not fit.
#[must_use]
pub fn encode_dir<'e>(
    map: &mut [u8; MAP_BYTES],
    rest: &mut [u8],
    layout: &DirLayout,
    parent: Ino,
    list: impl IntoIterator<Item = &'e NewEntry<'e>>,
) -> bool {
    put(map, 0, &parent.get().to_le_bytes());
    let Some(first) = map.get_mut(PARENT_LEN..) else {
        return false;
    };
    let mut list = list.into_iter().peekable();
    let mut fill = |region| {
        let mut builder = DirBlockBuilder::new_inline(region, layout);
        while let Some(entry) = list.peek() {
            if !builder.push(entry) {
                break;
            }
            list.next();
        }
        builder.finish(Crc32c::INIT);
    };
    fill(first);
    if !rest.is_empty() {
        fill(rest);
    }
    list.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::EntryType;
    use crate::types::BlockSize;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn layout() -> DirLayout {
        DirLayout {
            block_size: BlockSize::K4,
            file_type: true,
            checksums: true,
            hash_in_entry: false,
            raw_names: false,
            max_inode: Ino::new(1000),
        }
    }

    proptest! {
        #[test]
        fn content_reads_as_one_piece(
            map in prop::collection::vec(any::<u8>(), MAP_BYTES),
            rest in prop::collection::vec(any::<u8>(), 0..100),
            cut in 0usize..300, offset in 0u64..320, len in 0usize..200,
        ) {
            let map: [u8; MAP_BYTES] = map.try_into().unwrap();
            let whole = [&map[..], &rest].concat();
            let data = InlineData::new(&map, &rest, cut as u64);
            prop_assert_eq!(data.stored(), cut.min(whole.len()));
            let mut buffer = vec![0xee; len];
            let n = data.read(offset, &mut buffer);
            // What is not stored reads as zeros.
            let whole = [&whole[..], &[0; 400]].concat();
            let from = (offset as usize).min(cut);
            let expected = &whole[from..cut.min(from + len)];
            prop_assert_eq!(&buffer[..n], expected);
        }

        #[test]
        fn directories_read_back(
            names in prop::collection::vec(prop::collection::vec(b'a'..=b'z', 1..30), 0..8),
            room in 0usize..40,
        ) {
            let list: Vec<_> = names.iter().enumerate()
                .map(|(i, name)| NewEntry::new(Ino::new(11 + i as u32), name, EntryType::Regular))
                .collect();
            let mut map = [0xaa; MAP_BYTES];
            let mut rest = vec![0xaa; room * 4];
            let fits = encode_dir(&mut map, &mut rest, &layout(), Ino::new(2), &list);
            let data = InlineData::new(&map, &rest, (IN_MAP + rest.len()) as u64);
            if rest.len() == 4 {
                // Too small for any record.
                return Ok(());
            }
            let dir = InlineDir::new(&data, Ino::new(1000)).unwrap();
            prop_assert_eq!(dir.parent(), Ino::new(2));
            let read: Vec<_> = dir.entries(&layout()).map(Result::unwrap)
                .filter(|e| e.ino.is_some()).collect();
            prop_assert_eq!(read.len() == list.len(), fits);
            let mut block = vec![0; layout().block_size.len()];
            dir.fill_block(&mut block, &layout(), Ino::new(12)).unwrap();
            let all: Vec<_> = entries(&block, &layout()).map(Result::unwrap)
                .filter(|e| e.ino.is_some()).collect();
            prop_assert_eq!((all[0].name, all[0].ino), (&b"."[..], Some(Ino::new(12))));
            prop_assert_eq!((all[1].name, all[1].ino), (&b".."[..], Some(Ino::new(2))));
            let moved: Vec<_> = all[2..].iter().map(|e| (e.offset - BLOCK_SHIFT, e.name)).collect();
            let there: Vec<_> = read.iter().map(|e| (e.offset, e.name)).collect();
            prop_assert_eq!(moved, there);
            for entry in &read {
                let (part, spot) = dir.find(&layout(), entry.name).unwrap().unwrap();
                let (mut map, mut rest) = (map, rest.clone());
                edit::remove(part.of(&mut map, &mut rest), &layout(), &spot);
                let data = InlineData::new(&map, &rest, data.size());
                let dir = InlineDir::new(&data, Ino::new(1000)).unwrap();
                let left = dir.entries(&layout()).map(Result::unwrap).filter(|e| e.ino.is_some());
                prop_assert_eq!(left.count(), read.len() - 1);
            }
            let new = NewEntry::new(Ino::new(999), b"another", EntryType::Directory);
            let need = layout().min_rec_len(new.name);
            let (mut map, mut longer) = (map, rest.clone());
            match dir.find_room(&layout(), need).unwrap() {
                Some((part, room)) => {
                    prop_assert!(edit::insert(part.of(&mut map, &mut longer), &layout(), &room, &new));
                }
                None => {
                    longer.resize(rest.len() + need, 0);
                    prop_assert!(edit::append(&mut longer, rest.len(), &layout(), &new));
                }
            }
            let size = (IN_MAP + longer.len()) as u64;
            let data = InlineData::new(&map, &longer, size);
            let larger = InlineDir::new(&data, Ino::new(1000)).unwrap();
            let (_, spot) = larger.find(&layout(), new.name).unwrap().unwrap();
            prop_assert_eq!(spot.ino, new.ino);
            let places = |dir: &InlineDir<'_>| -> Vec<(usize, Vec<u8>)> {
                let all = dir.entries(&layout()).map(Result::unwrap);
                let all = all.filter(|e| e.ino.is_some() && e.name != new.name);
                all.map(|e| (e.offset, e.name.to_vec())).collect()
            };
            prop_assert_eq!(places(&larger), places(&dir));
            for (read, wrote) in read.iter().zip(&list) {
                prop_assert_eq!(read.name, wrote.name);
                prop_assert_eq!(read.ino, Some(wrote.ino));
            }
        }
    }
}
