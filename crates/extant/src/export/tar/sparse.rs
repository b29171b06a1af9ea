//! Files with holes, in the form `GNU.sparse` 1.0: a map of the data in front of the data.

use super::header::UNIT;
use crate::export::gaps::Gaps;
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::ops;
use std::ops::Range;

/// Where a file has data: ascending, disjoint, not touching, in bytes.
#[derive(Debug)]
pub(super) struct DataMap {
    pub(super) ranges: Vec<Range<u64>>,
    size: u64,
}

impl DataMap {
    /// Reads where the file has data, as far as that can be read. Blocks that were never written
    /// count as holes.
    pub(super) fn read(fs: &Fs, inode: &Inode, gaps: &mut Gaps) -> Self {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for piece in ops::extents(fs, inode) {
            let piece = match piece {
                Ok(piece) => piece,
                Err(e) => {
                    let end = ranges.last().map_or(0, |last| last.end);
                    gaps.add_last(end..inode.size().max(end), e.into());
                    break;
                }
            };
            if piece.unwritten || piece.len == 0 {
                continue;
            }
            let end = piece.offset.saturating_add(piece.len);
            match ranges.last_mut() {
                Some(last) if last.end == piece.offset => last.end = end,
                _ => ranges.push(piece.offset..end),
            }
        }
        Self {
            ranges,
            size: inode.size(),
        }
    }

    /// The map of a file whose holes are data.
    pub(super) fn filled(self) -> Self {
        let whole = 0..self.size;
        Self {
            ranges: Vec::from_iter((self.size > 0).then_some(whole)),
            size: self.size,
        }
    }

    /// Bytes of data.
    pub(super) fn data_len(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    pub(super) fn has_holes(&self) -> bool {
        self.data_len() < self.size
    }

    /// The map as it goes in front of the data: numbers in lines, in whole units.
    pub(super) fn encode(&self) -> Vec<u8> {
        let ends_in_hole = self.ranges.last().is_none_or(|last| last.end < self.size);
        let end = ends_in_hole.then_some(self.size..self.size);
        let count = self.ranges.len() + usize::from(ends_in_hole);
        let mut text = format!("{count}\n");
        for range in self.ranges.iter().chain(&end) {
            text.push_str(&format!("{}\n{}\n", range.start, range.end - range.start));
        }
        let mut bytes = text.into_bytes();
        bytes.resize(bytes.len().next_multiple_of(UNIT), 0);
        bytes
    }
}

/// The name that programs without knowledge of the form will use: `dir/GNUSparseFile.0/name`.
pub(super) fn stand_in_name(path: &[u8]) -> Vec<u8> {
    let cut = path
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |at| at + 1);
    let (dir, name) = path.split_at(cut);
    [
        if dir.is_empty() { b"./" } else { dir },
        b"GNUSparseFile.0/",
        name,
    ]
    .concat()
}
