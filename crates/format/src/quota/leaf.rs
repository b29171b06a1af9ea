//! Blocks of entries: sixteen bytes of numbers, then the entries, wherever there is room.

use super::{BLOCK_LEN, QuotaBlock, QuotaEntry, QuotaInfo, entry};
use crate::bytes::{le16, le32, put};
use crate::{Expected, FormatError, FormatResult, Structure};

const HEADER_LEN: usize = 16;
const NEXT_AT: usize = 0;
const PREVIOUS_AT: usize = 4;
const COUNT_AT: usize = 8;

/// Entries in a block.
pub const ENTRIES_PER_LEAF: usize = (BLOCK_LEN - HEADER_LEN) / entry::LEN;

/// A block of entries, or one that is not used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    bytes: QuotaBlock,
}

impl Leaf {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; BLOCK_LEN],
    };

    /// Checks the numbers in front of the entries.
    pub(super) fn parse(bytes: QuotaBlock, info: &QuotaInfo) -> FormatResult<Self> {
        let leaf = Self { bytes };
        info.check_link("next_free", leaf.next(), NEXT_AT)?;
        info.check_link("prev_free", leaf.previous(), PREVIOUS_AT)?;
        if leaf.count() > ENTRIES_PER_LEAF {
            let expected = Expected::AtMost(ENTRIES_PER_LEAF as u64);
            let found = leaf.count() as u64;
            return Err(
                FormatError::new(Structure::Quota, "entries", found, expected).at(COUNT_AT),
            );
        }
        Ok(leaf)
    }

    pub(super) fn into_bytes(self) -> QuotaBlock {
        self.bytes
    }

    /// The next block of the list this one is in, 0 for none.
    pub(super) fn next(&self) -> u32 {
        le32(&self.bytes, NEXT_AT)
    }

    /// The block before it in the list of leaves with room, 0 for none.
    pub(super) fn previous(&self) -> u32 {
        le32(&self.bytes, PREVIOUS_AT)
    }

    /// Entries it says it has.
    pub(super) fn count(&self) -> usize {
        usize::from(le16(&self.bytes, COUNT_AT))
    }

    pub(super) fn set_next(&mut self, block: u32) {
        put(&mut self.bytes, NEXT_AT, &block.to_le_bytes());
    }

    pub(super) fn set_previous(&mut self, block: u32) {
        put(&mut self.bytes, PREVIOUS_AT, &block.to_le_bytes());
    }

    pub(super) fn set_count(&mut self, count: usize) {
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        put(&mut self.bytes, COUNT_AT, &count.to_le_bytes());
    }

    /// What is at each place.
    pub(super) fn entries(&self) -> impl Iterator<Item = Option<QuotaEntry>> {
        let entries = self.bytes.get(HEADER_LEN..).unwrap_or_default();
        entries.chunks_exact(entry::LEN).map(QuotaEntry::parse)
    }

    /// The place and content of the entry of `id`.
    pub(super) fn entry_of(&self, id: u32) -> Option<(usize, QuotaEntry)> {
        self.entries()
            .enumerate()
            .find_map(|(i, entry)| entry.filter(|entry| entry.id == id).map(|entry| (i, entry)))
    }

    /// A place without an entry.
    pub(super) fn free_place(&self) -> Option<usize> {
        self.entries().position(|entry| entry.is_none())
    }

    /// Writes an entry, or that there is none.
    pub(super) fn set(&mut self, place: usize, entry: Option<&QuotaEntry>) {
        let bytes = entry.map_or([0; entry::LEN], QuotaEntry::encode);
        put(&mut self.bytes, HEADER_LEN + place * entry::LEN, &bytes);
    }
}
