//! Parts of a device that are shown as zeros, before they are.

use super::shown::Way;
use extant_blockdev::{DeviceResult, SharedDevice};
use extant_sync::{LockClass, Rank, RwLock};
use std::collections::BTreeMap;
use std::ops::Range;

static ZEROED_CLASS: LockClass = LockClass::new("parts shown as zeros", Rank::Leaf);

/// With zeros in some parts. Memory follows the number of parts, and not their size.
#[derive(Debug)]
pub(super) struct Zeroed {
    /// First bytes and ends of parts that do not touch each other.
    parts: RwLock<BTreeMap<u64, u64>>,
}

impl Zeroed {
    pub(super) fn new() -> Self {
        Self {
            parts: RwLock::new(&ZEROED_CLASS, BTreeMap::new()),
        }
    }

    /// Shows a range of bytes as zeros from now on.
    pub(super) fn add(&self, part: Range<u64>) {
        let mut parts = self.parts.write();
        let mut part = part;
        while let Some((start, end)) = parts.range(..=part.end).next_back() {
            let (start, end) = (*start, *end);
            if end < part.start {
                break;
            }
            parts.remove(&start);
            part = start.min(part.start)..end.max(part.end);
        }
        parts.insert(part.start, part.end);
    }

    /// All parts, ascending.
    pub(super) fn parts(&self) -> Vec<Range<u64>> {
        let parts = self.parts.read();
        parts.iter().map(|(start, end)| *start..*end).collect()
    }

    /// What of a range of bytes is shown as zeros.
    pub(super) fn parts_of(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let parts = self.parts.read();
        let before_end = parts.range(..range.end).rev();
        before_end
            .take_while(|(_, end)| **end > range.start)
            .map(|(start, end)| range.start.max(*start)..range.end.min(*end))
            .collect()
    }
}

impl Way for Zeroed {
    fn read(&self, base: &SharedDevice, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        base.read_at(offset, buf)?;
        for part in self.parts_of(&(offset..offset + buf.len() as u64)) {
            let bytes = (part.start - offset) as usize..(part.end - offset) as usize;
            buf.get_mut(bytes).unwrap_or_default().fill(0);
        }
        Ok(())
    }

    fn is_as_it_lies(&self, range: &Range<u64>) -> bool {
        self.parts_of(range).is_empty()
    }

    fn next_data(
        &self,
        base: &SharedDevice,
        range: Range<u64>,
    ) -> DeviceResult<Option<Range<u64>>> {
        base.next_data(range.start, range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_touch_are_one() {
        let zeroed = Zeroed::new();
        for part in [40..50, 10..20, 60..70, 20..30] {
            zeroed.add(part);
        }
        assert_eq!(zeroed.parts(), [10..30, 40..50, 60..70]);
        assert_eq!(zeroed.parts_of(&(25..65)), [60..65, 40..50, 25..30]);
        assert!(zeroed.parts_of(&(30..40)).is_empty());
        zeroed.add(12..45);
        assert_eq!(zeroed.parts(), [10..50, 60..70]);
        zeroed.add(0..65);
        zeroed.add(80..90);
        assert_eq!(zeroed.parts(), [0..70, 80..90]);
    }
}
