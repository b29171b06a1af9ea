//! Changing the entries of a directory block in place.
//!
//! An entry goes into a free record or into the slack behind another entry; when it leaves, its
//! record joins the one before it, or becomes free if it is the first. So entries never move, and a
//! position in a block stays good while others come and go.
//!
//! None of this touches the checksum: blocks are edited many times and sealed once.
//!
//! # Invariants
//! - Every record that is walked over is checked as far as its header goes; an edit never reaches
//!   beyond the records it was found in.
//! - The bytes of an entry that was removed are wiped.

use crate::dir::entry::{
    DirLayout, ENTRY_HEADER_LEN, EntryType, NAME_MAX, NewEntry, entries, min_rec_len, set_rec_len,
    set_target, write_entry, write_free, write_tail_header,
};
use crate::error::{Expected, FormatError, FormatResult, Structure};
use crate::types::{BlockSize, Ino};

/// A place for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The record that has the room.
    at: usize,
    rec_len: usize,
    /// Bytes of it that belong to the entry already there; 0 if it is free.
    keep: usize,
}

impl Room {
    /// Returns the bytes the place has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rec_len - self.keep
    }

    /// Returns where the entry that is put here will begin. There is no room of the size that was
    /// asked for before it, then.
    #[must_use]
    pub const fn entry_at(&self) -> usize {
        self.at + self.keep
    }

    /// Returns whether there is no room, which never happens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    at: usize,
    rec_len: usize,
    name_len: usize,
    /// The record before it.
    before: Option<(usize, usize)>,
    /// The inode it names.
    pub ino: Ino,
    /// The type it records.
    pub file_type: EntryType,
}

/// The header of a record.
struct Record {
    at: usize,
    rec_len: usize,
    /// 0 for free space.
    ino: u32,
    name_len: usize,
}

/// Walks the headers of a block, without its tail.
struct Headers<'a> {
    region: &'a [u8],
    layout: &'a DirLayout,
    at: usize,
}

impl<'a> Headers<'a> {
    fn of(block: &'a [u8], layout: &'a DirLayout) -> FormatResult<Self> {
        match block.get(..layout.entries_len()) {
            Some(region) => Ok(Self {
                region,
                layout,
                at: 0,
            }),
            None => Err(FormatError::short(
                Structure::DirBlock,
                block.len(),
                layout.entries_len(),
            )),
        }
    }

    #[cold]
    fn broken(&self, field: &'static str, found: usize, expected: Expected) -> FormatError {
        FormatError::new(Structure::DirEntry, field, found as u64, expected).at(self.at)
    }

    /// Passes by sound records that are not the entry of a name with this length and this end;
    /// stops in front of all others, and of names too short to have an end. Returns the last one
    /// passed.
    #[inline]
    fn skip_others(&mut self, name_len: usize, end: u64) -> Option<(usize, usize)> {
        let mut last = None;
        if !self.layout.file_type || self.layout.block_size == BlockSize::MAX {
            return None;
        }
        let mut rest = self.region.get(self.at..)?;
        while let Some(header) = rest.first_chunk::<ENTRY_HEADER_LEN>() {
            let header = u64::from_le_bytes(*header);
            let rec_len = (header >> 32 & 0xffff) as usize;
            let len = (header >> 48 & 0xff) as usize;
            // Free space is left to others: there is little of it.
            let sound = header as u32 != 0
                && len != 0
                && rec_len.is_multiple_of(4)
                && rec_len >= min_rec_len(len, false);
            let Some(next) = rest.get(rec_len..).filter(|_| sound) else {
                break;
            };
            if len == name_len {
                // The last 8 bytes of the name begin as far behind the record's start as it is
                // long.
                let stored = rest.get(len..).and_then(<[u8]>::first_chunk::<8>);
                if len < 8 || stored.is_none_or(|s| u64::from_le_bytes(*s) == end) {
                    break;
                }
            }
            last = Some((self.at, rec_len));
            self.at += rec_len;
            rest = next;
        }
        last
    }

    /// The next record; `None` at the end.
    #[inline]
    fn next(&mut self) -> FormatResult<Option<Record>> {
        let at = self.at;
        let rest = self.region.get(at..).unwrap_or_default();
        let Some(&[i0, i1, i2, i3, r0, r1, n0, n1]) = rest.first_chunk::<ENTRY_HEADER_LEN>() else {
            return match rest.len() {
                0 => Ok(None),
                left => {
                    Err(self.broken("length", left, Expected::AtLeast(ENTRY_HEADER_LEN as u64)))
                }
            };
        };
        let ino = u32::from_le_bytes([i0, i1, i2, i3]);
        let rec_len = self.layout.rec_len_from_disk(u16::from_le_bytes([r0, r1]));
        let name_len = match (ino, self.layout.file_type) {
            (0, _) => 0,
            (_, true) => usize::from(n0),
            (_, false) => usize::from(u16::from_le_bytes([n0, n1])),
        };
        let least = match ino {
            0 => ENTRY_HEADER_LEN,
            _ => min_rec_len(name_len, false),
        };
        if rec_len < least || rec_len > rest.len() || !rec_len.is_multiple_of(4) {
            let expected = Expected::Between(least as u64, rest.len() as u64);
            return Err(self.broken("rec_len", rec_len, expected));
        }
        if ino != 0 && !(1..=NAME_MAX).contains(&name_len) {
            return Err(self.broken("name_len", name_len, Expected::Between(1, NAME_MAX as u64)));
        }
        self.at = at + rec_len;
        Ok(Some(Record {
            at,
            rec_len,
            ino,
            name_len,
        }))
    }
}

/// A name that is looked for. Most names it is compared with differ in their last bytes, which are
/// compared first.
struct Wanted<'a> {
    name: &'a [u8],
    /// The last 8 bytes, or 0 if there are fewer.
    end: u64,
}

impl<'a> Wanted<'a> {
    fn new(name: &'a [u8]) -> Self {
        Self {
            name,
            end: end_of(name),
        }
    }

    /// Whether `stored`, which is as long, is the name.
    #[inline]
    fn is(&self, stored: &[u8]) -> bool {
        end_of(stored) == self.end && stored == self.name
    }
}

#[inline]
fn end_of(name: &[u8]) -> u64 {
    name.last_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
}

/// Returns the first place of a block where an entry of `need` bytes ([`DirLayout::min_rec_len`])
/// fits.
///
/// # Errors
/// When a record before that place breaks the format.
pub fn find_room(block: &[u8], layout: &DirLayout, need: usize) -> FormatResult<Option<Room>> {
    find_room_from(block, layout, need, 0)
}

/// Looks for room from a record on which the caller knows to begin at `from`; 0 is the first.
///
/// # Errors
/// As for [`find_room`].
pub fn find_room_from(
    block: &[u8],
    layout: &DirLayout,
    need: usize,
    from: usize,
) -> FormatResult<Option<Room>> {
    let mut headers = Headers::of(block, layout)?;
    headers.at = from;
    find_room_among(headers, need)
}

/// Returns the first place where an entry of `need` bytes fits in one part of a directory that lies
/// in its inode, which has no tail.
///
/// # Errors
/// As for [`find_room`].
pub fn find_room_inline(
    part: &[u8],
    layout: &DirLayout,
    need: usize,
) -> FormatResult<Option<Room>> {
    let headers = Headers {
        region: part,
        layout,
        at: 0,
    };
    find_room_among(headers, need)
}

fn find_room_among(mut headers: Headers<'_>, need: usize) -> FormatResult<Option<Room>> {
    let layout = headers.layout;
    while let Some(record) = headers.next()? {
        if record.rec_len < need {
            continue;
        }
        let keep = match record.ino {
            0 => 0,
            // `.` and `..` carry no hash, and have no slack that ends with it.
            _ => min_rec_len(record.name_len, layout.hash_in_entry).min(record.rec_len),
        };
        if record.rec_len - keep >= need {
            return Ok(Some(Room {
                at: record.at,
                rec_len: record.rec_len,
                keep,
            }));
        }
    }
    Ok(None)
}

/// Returns all bytes of a block that no entry needs: what there would be in one piece if the
/// entries lay close together.
///
/// # Errors
/// When a record breaks the format.
pub fn slack(block: &[u8], layout: &DirLayout) -> FormatResult<usize> {
    let mut headers = Headers::of(block, layout)?;
    let mut slack = 0;
    while let Some(record) = headers.next()? {
        let keep = match record.ino {
            0 => 0,
            _ => min_rec_len(record.name_len, layout.hash_in_entry),
        };
        slack += record.rec_len.saturating_sub(keep);
    }
    Ok(slack)
}

/// Puts an entry where [`find_room`] found room in this very block.
///
/// Returns `false`, having changed nothing, if the entry does not fit there.
#[must_use]
pub fn insert(block: &mut [u8], layout: &DirLayout, room: &Room, entry: &NewEntry<'_>) -> bool {
    let written = write_entry(block, room.at + room.keep, layout, room.len(), entry);
    if written && room.keep > 0 {
        set_rec_len(block, room.at, layout, room.keep);
    }
    written
}

/// Makes what lies behind byte `at` of one part of a directory in its inode the record of an entry.
///
/// Returns `false`, having changed nothing, if the entry does not fit there.
#[must_use]
pub fn append(part: &mut [u8], at: usize, layout: &DirLayout, entry: &NewEntry<'_>) -> bool {
    let rec_len = part.len().saturating_sub(at);
    write_entry(part, at, layout, rec_len, entry)
}

/// Returns where the entry of this very name is.
///
/// # Errors
/// When a record before it breaks the format.
pub fn find(block: &[u8], layout: &DirLayout, name: &[u8]) -> FormatResult<Option<Spot>> {
    find_among(Headers::of(block, layout)?, name)
}

/// Finds a name in one part of a directory that lies in its inode, which has no tail.
///
/// # Errors
/// As for [`find`].
pub fn find_inline(part: &[u8], layout: &DirLayout, name: &[u8]) -> FormatResult<Option<Spot>> {
    let headers = Headers {
        region: part,
        layout,
        at: 0,
    };
    find_among(headers, name)
}

fn find_among(mut headers: Headers<'_>, name: &[u8]) -> FormatResult<Option<Spot>> {
    let (block, layout) = (headers.region, headers.layout);
    let wanted = Wanted::new(name);
    let mut before = None;
    loop {
        // Most records are passed by here.
        if let Some((at, rec_len)) = headers.skip_others(name.len(), wanted.end) {
            before = Some((at, rec_len));
        }
        let Some(record) = headers.next()? else { break };
        let start = record.at + ENTRY_HEADER_LEN;
        if record.ino != 0
            && record.name_len == name.len()
            && let Some(stored) = block.get(start..start + name.len())
            && wanted.is(stored)
        {
            if record.ino > layout.max_inode.get() {
                let expected = Expected::AtMost(layout.max_inode.get().into());
                let found = record.ino.into();
                let error = FormatError::new(Structure::DirEntry, "inode", found, expected);
                return Err(error.at(record.at));
            }
            let kind = block
                .get(record.at + 7)
                .copied()
                .filter(|_| layout.file_type);
            return Ok(Some(Spot {
                at: record.at,
                rec_len: record.rec_len,
                name_len: record.name_len,
                before,
                ino: Ino::new(record.ino),
                file_type: EntryType::from_raw(kind.unwrap_or(0)),
            }));
        }
        before = Some((record.at, record.rec_len));
    }
    Ok(None)
}

/// Takes out the entry that [`find`] found in this very block. Returns where the record begins that
/// has its room now.
pub fn remove(block: &mut [u8], layout: &DirLayout, spot: &Spot) -> usize {
    let wiped = ENTRY_HEADER_LEN + spot.name_len;
    if let Some(bytes) = block.get_mut(spot.at..spot.at + wiped) {
        bytes.fill(0);
    }
    match spot.before {
        Some((at, rec_len)) => {
            set_rec_len(block, at, layout, rec_len + spot.rec_len);
            at
        }
        None => {
            write_free(block, spot.at, layout, spot.rec_len);
            spot.at
        }
    }
}

/// Makes the entry that [`find`] found in this very block name another inode.
pub fn retarget(block: &mut [u8], layout: &DirLayout, spot: &Spot, ino: Ino, file_type: EntryType) {
    set_target(block, spot.at, layout, ino, file_type);
}

/// Gives a block of names the form that it has in another layout, with a tail or without: the
/// record of the last name reaches to the end of what holds names there. No name moves, and of
/// what is read one length and the header of the tail change: a write of the block that arrives in
/// part leaves all of them.
///
/// Returns `false`, having changed nothing, if the last name leaves no room for the tail, or a
/// record is broken.
#[must_use]
pub fn reach(block: &mut [u8], now: &DirLayout, then: &DirLayout) -> bool {
    let end = then.entries_len();
    if block.len() != now.block_size.len() || end > block.len() {
        return false;
    }
    let mut last = None;
    for entry in entries(block, now) {
        let Ok(entry) = entry else { return false };
        if entry.ino.is_some() {
            last = Some((entry.offset, now.min_rec_len(entry.name)));
        }
    }
    match last {
        Some((at, len)) if at + len <= end => set_rec_len(block, at, then, end - at),
        Some(_) => return false,
        None => {
            // Without any name it is free, and nothing in it may be read as an index.
            write_free(block, 0, then, end);
            if let Some(rest) = block.get_mut(ENTRY_HEADER_LEN..end) {
                rest.fill(0);
            }
        }
    }
    if end < block.len() {
        write_tail_header(block);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Crc32c;
    use crate::dir::entry::{DirBlockBuilder, has_tail, verify_block_checksum, write_tail};
    use crate::types::BlockSize;
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    type Model = BTreeMap<Vec<u8>, (Ino, EntryType)>;

    fn read(block: &[u8], layout: &DirLayout) -> Model {
        entries(block, layout)
            .map(Result::unwrap)
            .filter_map(|e| Some((e.name.to_vec(), (e.ino?, e.file_type))))
            .collect()
    }

    /// Bytes that entries and what must stay behind each take.
    fn used(model: &Model, layout: &DirLayout) -> usize {
        model.keys().map(|name| layout.min_rec_len(name)).sum()
    }

    fn any_name() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            3 => prop::collection::vec(b'a'..=b'c', 1..=3),
            2 => prop::collection::vec(b'a'..=b'z', 4..=40),
            1 => prop::collection::vec(b'a'..=b'z', 200..=255),
        ]
    }

    proptest! {
        #[test]
        fn edits_do_what_a_map_does(
            steps in prop::collection::vec((0u8..6, any_name(), 1u32..1000, 1u8..8), 1..300),
            log2 in prop_oneof![4 => Just(10u32), 2 => Just(12u32), 1 => Just(16u32)],
            file_type: bool,
            checksums: bool,
        ) {
            let layout = DirLayout {
                block_size: BlockSize::from_log2(log2).unwrap(),
                file_type,
                checksums,
                hash_in_entry: false,
                raw_names: false,
                max_inode: Ino::new(1000),
            };
            let mut block = vec![0x77; layout.block_size.len()];
            DirBlockBuilder::new(&mut block, &layout).finish(Crc32c::INIT);
            let mut model = Model::new();
            for (what, name, ino, kind) in steps {
                let kind = if file_type { EntryType::from_raw(kind) } else { EntryType::Unknown };
                let target = (Ino::new(ino), kind);
                let spot = find(&block, &layout, &name).unwrap();
                prop_assert_eq!(spot.map(|s| (s.ino, s.file_type)), model.get(&name).copied());
                match (what, spot) {
                    (0 | 1, Some(spot)) => {
                        remove(&mut block, &layout, &spot);
                        model.remove(&name);
                    }
                    (2, Some(spot)) => {
                        retarget(&mut block, &layout, &spot, target.0, target.1);
                        model.insert(name, target);
                    }
                    (_, Some(_)) => {}
                    (_, None) => {
                        let need = layout.min_rec_len(&name);
                        let room = find_room(&block, &layout, need).unwrap();
                        let free = layout.entries_len() - used(&model, &layout);
                        // All free space together would not do; or what there is was found.
                        prop_assert!(room.is_none() || free >= need);
                        prop_assert!(room.is_some() || free < need * (model.len() + 2));
                        if let Some(room) = room {
                            let entry = NewEntry::new(target.0, &name, target.1);
                            prop_assert!(insert(&mut block, &layout, &room, &entry));
                            model.insert(name, target);
                        }
                    }
                }
                prop_assert_eq!(&read(&block, &layout), &model);
            }
            if checksums {
                write_tail(&mut block, Crc32c::INIT);
                verify_block_checksum(&block, Crc32c::INIT).unwrap();
            }
        }

        #[test]
        fn any_bytes_are_safe_to_search_and_edit(
            mut block in prop::collection::vec(prop_oneof![Just(0u8), Just(12), any::<u8>()], 1024),
            name in any_name(),
            file_type: bool,
            checksums: bool,
        ) {
            let layout = DirLayout {
                block_size: BlockSize::from_log2(10).unwrap(),
                file_type, checksums, hash_in_entry: false, raw_names: false,
                max_inode: Ino::new(1000),
            };
            if let Ok(Some(room)) = find_room(&block, &layout, layout.min_rec_len(&name)) {
                let entry = NewEntry::new(Ino::new(5), &name, EntryType::Regular);
                prop_assert!(insert(&mut block, &layout, &room, &entry));
            }
            if let Ok(Some(spot)) = find(&block, &layout, &name) {
                remove(&mut block, &layout, &spot);
            }
        }
    }

    #[test]
    fn what_is_removed_leaves_no_name_behind() {
        let layout = DirLayout {
            block_size: BlockSize::from_log2(10).unwrap(),
            file_type: true,
            checksums: true,
            hash_in_entry: false,
            raw_names: false,
            max_inode: Ino::new(1000),
        };
        let mut block = vec![0; 1024];
        let mut builder = DirBlockBuilder::new(&mut block, &layout);
        for name in [&b"first"[..], b"secret"] {
            assert!(builder.push(&NewEntry::new(Ino::new(12), name, EntryType::Regular)));
        }
        builder.finish(Crc32c::INIT);
        for name in [&b"secret"[..], b"first"] {
            let spot = find(&block, &layout, name).unwrap().unwrap();
            remove(&mut block, &layout, &spot);
            assert!(!block.windows(name.len()).any(|w| w == name));
        }
        assert!(read(&block, &layout).is_empty());
    }

    fn plain_layout() -> DirLayout {
        DirLayout {
            block_size: BlockSize::from_log2(10).unwrap(),
            file_type: true,
            checksums: false,
            hash_in_entry: false,
            raw_names: false,
            max_inode: Ino::new(1000),
        }
    }

    /// What a block says, in order.
    fn names(block: &[u8], layout: &DirLayout) -> Vec<Vec<u8>> {
        let found = entries(block, layout).map(|entry| entry.expect("a sound record"));
        let named = found.filter(|entry| entry.ino.is_some());
        named.map(|entry| entry.name.to_vec()).collect()
    }

    #[test]
    fn a_block_that_gets_or_loses_its_tail_keeps_all_names_however_a_write_is_torn() {
        let plain = plain_layout();
        let sealed = DirLayout {
            checksums: true,
            ..plain
        };
        let mut block = vec![0; plain.block_size.len()];
        write_free(&mut block, 0, &plain, plain.entries_len());
        let mut put = 0;
        for i in 0..400 {
            let name = format!("a name {i}");
            let entry = NewEntry::new(Ino::new(12 + i), name.as_bytes(), EntryType::Regular);
            match find_room(&block, &plain, plain.min_rec_len(entry.name)) {
                Ok(Some(room)) if room.entry_at() + 60 < block.len() => {
                    assert!(insert(&mut block, &plain, &room, &entry));
                    put += 1;
                }
                _ => break,
            }
        }
        assert!(put > 20);
        let before = names(&block, &plain);
        let mut with_tail = block.clone();
        assert!(reach(&mut with_tail, &plain, &sealed));
        assert!(has_tail(&with_tail));
        assert_eq!(names(&with_tail, &sealed), before);
        let mut again = with_tail.clone();
        assert!(reach(&mut again, &sealed, &plain));
        assert_eq!(names(&again, &plain), before);
        // Only one half of a write arrives.
        for (first, second) in [
            (&block, &with_tail),
            (&with_tail, &block),
            (&with_tail, &again),
            (&again, &with_tail),
        ] {
            let torn = [&first[..512], &second[512..]].concat();
            let found = entries(&torn, &plain).map_while(Result::ok);
            let found = found.filter(|entry| entry.ino.is_some());
            assert_eq!(found.count(), before.len());
        }
    }

    #[test]
    fn a_block_whose_last_name_is_in_the_way_of_a_tail_stays_as_it_is() {
        let plain = plain_layout();
        let sealed = DirLayout {
            checksums: true,
            ..plain
        };
        let mut block = vec![0; plain.block_size.len()];
        let last = plain.entries_len() - 16;
        write_free(&mut block, 0, &plain, last);
        let entry = NewEntry::new(Ino::new(12), b"name", EntryType::Regular);
        assert!(write_entry(&mut block, last, &plain, 16, &entry));
        let before = block.clone();
        assert!(!reach(&mut block, &plain, &sealed));
        assert_eq!(block, before);
        // An empty one is free space, and no node of an index.
        write_free(&mut block, 0, &plain, plain.entries_len());
        assert!(reach(&mut block, &plain, &sealed));
        assert_eq!(names(&block, &sealed), Vec::<Vec<u8>>::new());
        assert!(
            block[ENTRY_HEADER_LEN..sealed.entries_len()]
                .iter()
                .all(|byte| *byte == 0)
        );
    }
}
