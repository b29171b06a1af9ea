//! What was written to one file, and which bytes are legal at a place.

use std::ops::Range;

use super::Tag;
use super::history::DataPromise;
use super::shift::{Shift, Way};
use super::state::DataChange;

/// Every change of one file's content, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct DataLog {
    /// Number of the operation, and what it did.
    changes: Vec<(usize, DataChange)>,
}

/// The moment that content is judged for.
#[derive(Debug, Clone, Copy)]
pub(super) struct When {
    /// Number of the lane.
    pub(super) lane: u16,
    /// Operations of the prefix: those with smaller numbers are in the tree.
    pub(super) prefix: usize,
    /// The size the file has in the prefix.
    pub(super) size: u64,
    /// Operations with smaller numbers had begun.
    pub(super) begun: usize,
    /// Writes with smaller numbers are durable.
    pub(super) durable: usize,
    pub(super) promise: DataPromise,
}

/// What may be at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Legal {
    /// Writes, and the place at which each of them wrote the byte.
    tags: Vec<(Tag, u64)>,
    zeros: bool,
}

/// A place of a file that holds what it may not.
#[derive(Debug)]
pub(super) struct BadPlace {
    pub(super) offset: u64,
    pub(super) holds: String,
    pub(super) legal: String,
}

/// The unit that a device writes whole.
const SECTOR: u64 = super::super::crash::SECTOR as u64;

impl DataLog {
    pub(super) fn push(&mut self, op: usize, change: DataChange) {
        self.changes.push((op, change));
    }

    /// Whether writing here now gives the file a block that it did not have.
    pub(super) fn would_map(&self, offset: u64, len: u64, block_size: u64) -> bool {
        let first = offset / block_size * block_size;
        let mut blocks = (first..offset + len).step_by(block_size as usize);
        blocks.any(|block| !self.is_mapped(block, block_size))
    }

    /// Whether the block that is now at `place` is mapped, and not only reserved.
    fn is_mapped(&self, mut place: u64, block_size: u64) -> bool {
        for (_, change) in self.changes.iter().rev() {
            let end = place + block_size;
            match *change {
                DataChange::Write { offset, len } if offset < end && offset + len > place => {
                    return true;
                }
                DataChange::Cut { size } if size <= place => return false,
                DataChange::Zero { offset, len, .. } if offset <= place && offset + len >= end => {
                    return false;
                }
                DataChange::Shift(shift) => match shift.byte(place, Way::Back) {
                    Some(before) => place = before,
                    None => return false,
                },
                _ => {}
            }
        }
        false
    }

    /// The smallest size the file may have when only what is durable was mapped.
    pub(super) fn durable_size(&self, when: When) -> u64 {
        let mut size = 0;
        for (op, change) in &self.changes {
            match *change {
                DataChange::Write { offset, len } if *op < when.durable => {
                    size = size.max(offset + len);
                }
                DataChange::Cut { size: cut } if *op < when.prefix => size = cut,
                DataChange::Extend { size: end } if *op < when.prefix => size = size.max(end),
                DataChange::Shift(shift) if *op < when.prefix => size = shift.size,
                _ => {}
            }
        }
        size
    }

    /// Looks at all bytes below `size`; `read` fills a buffer from a byte offset.
    pub(super) fn check(
        &self,
        size: u64,
        when: When,
        read: impl Fn(u64, &mut [u8]),
    ) -> Option<BadPlace> {
        let mut edges = vec![0, when.size, size];
        for view in self.views(when) {
            self.collect_edges(view, when.begun, &mut edges);
        }
        edges.retain(|edge| *edge <= size);
        edges.sort_unstable();
        edges.dedup();
        edges
            .windows(2)
            .find_map(|pair| self.check_range(pair[0], pair[1], when, &read))
    }

    /// Looks at a range with the same history everywhere, sector by sector.
    fn check_range(
        &self,
        from: u64,
        to: u64,
        when: When,
        read: &impl Fn(u64, &mut [u8]),
    ) -> Option<BadPlace> {
        let legal = self.legal(from, when);
        let mut at = from;
        let (mut found, mut wanted) = ([0; 4096], [0; SECTOR as usize]);
        while at < to {
            let step = (to - at).min(4096 - at % 4096) as usize;
            read(at, &mut found[..step]);
            // Where there may be nothing but zeros, whole pages are compared.
            let pure = legal.zeros && found[..step].iter().all(|byte| *byte == 0);
            let mut place = at;
            while !pure && place < at + step as u64 {
                let n = (at + step as u64 - place).min(SECTOR - place % SECTOR) as usize;
                let start = (place - at) as usize;
                let bytes = &found[start..start + n];
                let is_version = legal.tags.iter().rev().any(|(tag, written)| {
                    tag.fill(written + (place - from), &mut wanted[..n]);
                    bytes == &wanted[..n]
                });
                let is_zero = legal.zeros && bytes.iter().all(|byte| *byte == 0);
                if !is_version && !is_zero {
                    return Some(BadPlace {
                        offset: place,
                        holds: describe(place, bytes),
                        legal: legal.to_string(),
                    });
                }
                place += n as u64;
            }
            at += step as u64;
        }
        None
    }

    /// The states of the file's map that may be in the tree: shifts of operations with smaller
    /// numbers are. There are two where one has begun that may be there in part.
    fn views(&self, when: When) -> impl Iterator<Item = usize> + use<> {
        let in_part = self.shift_in_part(when).is_some();
        when.prefix..=when.prefix + usize::from(in_part)
    }

    /// The shift that may be there in part.
    fn shift_in_part(&self, when: When) -> Option<Shift> {
        self.changes.iter().find_map(|(op, change)| match change {
            DataChange::Shift(shift) if *op == when.prefix && *op < when.begun => {
                (!shift.whole).then_some(*shift)
            }
            _ => None,
        })
    }

    /// The shifts among the changes `range`.
    fn shifts(&self, range: Range<usize>) -> impl DoubleEndedIterator<Item = Shift> {
        self.changes[range]
            .iter()
            .filter_map(|(_, change)| match change {
                DataChange::Shift(shift) => Some(*shift),
                _ => None,
            })
    }

    /// The edges of what was changed, as places of the view in which the shifts before operation
    /// `moved` are done.
    fn collect_edges(&self, moved: usize, begun: usize, edges: &mut Vec<u64>) {
        let split = self.changes.partition_point(|(op, _)| *op < moved);
        let begun = self.changes.iter().take_while(|(op, _)| *op < begun);
        for (at, (_, change)) in begun.enumerate() {
            let (first, second) = match *change {
                DataChange::Write { offset, len } | DataChange::Zero { offset, len, .. } => {
                    (offset, offset + len)
                }
                DataChange::Cut { size } | DataChange::Extend { size } => (size, size),
                DataChange::Shift(shift) => (shift.offset, shift.offset + shift.len),
            };
            let place = |edge| {
                if at < split {
                    let mut later = self.shifts(at + 1..split);
                    later.try_fold(edge, |edge, shift| Some(shift.edge(edge, Way::Forward)))
                } else {
                    let mut earlier = self.shifts(split..at).rev();
                    earlier.try_fold(edge, |edge, shift| Some(shift.edge(edge, Way::Back)))
                }
            };
            edges.extend([place(first), place(second)].into_iter().flatten());
        }
    }

    /// What the byte at `offset` may come from.
    fn legal(&self, offset: u64, when: When) -> Legal {
        let mut legal = Legal {
            tags: Vec::new(),
            zeros: false,
        };
        self.add_legal(offset, when.prefix, when, &mut legal);
        let in_part = self.shift_in_part(when);
        if in_part.is_some_and(|shift| offset >= shift.offset) {
            self.add_legal(offset, when.prefix + 1, when, &mut legal);
            // What has moved already is a hole, and so is what makes room.
            legal.zeros = true;
        }
        legal
    }

    /// Where each change finds the byte that is at `offset` of the view in which the shifts before
    /// operation `moved` are done; `None` when it is not there.
    fn places(&self, offset: u64, moved: usize) -> Vec<Option<u64>> {
        let split = self.changes.partition_point(|(op, _)| *op < moved);
        let mut places = vec![Some(offset); self.changes.len()];
        let mut place = Some(offset);
        for (found, (_, change)) in places.iter_mut().zip(&self.changes).skip(split) {
            *found = place;
            if let DataChange::Shift(shift) = *change {
                place = place.and_then(|place| shift.byte(place, Way::Forward));
            }
        }
        place = Some(offset);
        for (found, (_, change)) in places.iter_mut().zip(&self.changes).take(split).rev() {
            if let DataChange::Shift(shift) = *change {
                place = place.and_then(|place| shift.byte(place, Way::Back));
            }
            *found = place;
        }
        places
    }

    fn add_legal(&self, offset: u64, moved: usize, when: When, legal: &mut Legal) {
        let places = self.places(offset, moved);
        let (mut is_durable, mut is_mapped) = (false, false);
        let before = legal.tags.len();
        // From the newest: what came before a truncation that is in the tree, or before what is
        // durable, is gone.
        for ((op, change), place) in self.changes.iter().zip(places).rev() {
            let Some(place) = place.filter(|_| *op < when.begun) else {
                continue;
            };
            match *change {
                DataChange::Write { offset, len } if (offset..offset + len).contains(&place) => {
                    if !is_durable {
                        let tag = Tag {
                            lane: when.lane,
                            op: *op as u32,
                        };
                        legal.tags.push((tag, place));
                    }
                    is_durable |= *op < when.durable;
                    // Of a write in part, what the new size covers is mapped.
                    is_mapped |= *op < when.prefix || (*op == when.prefix && place >= when.size);
                }
                DataChange::Zero { offset, len, all }
                    if (offset..offset + len).contains(&place) =>
                {
                    legal.zeros |= !is_durable;
                    is_durable |= all && *op < when.durable;
                }
                // A truncation that is not in the tree may have cleared the rest of its last block,
                // unless the smaller size is made durable first.
                DataChange::Cut { size } if size <= place && *op >= when.prefix => {
                    legal.zeros |= when.promise == DataPromise::Delayed;
                }
                DataChange::Cut { size } if size <= place => break,
                _ => {}
            }
            if is_durable && *op < when.prefix {
                break;
            }
        }
        legal.tags[before..].reverse();
        let is_mapped = is_mapped && when.promise == DataPromise::InOrder;
        legal.zeros |= !is_durable && !is_mapped;
    }
}

impl std::fmt::Display for Legal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: Vec<String> = self
            .tags
            .iter()
            .map(|(tag, _)| format!("operation {}", tag.op))
            .collect();
        if names.len() > 4 {
            names.drain(1..names.len() - 2);
            names.insert(1, "...".to_owned());
        }
        if self.zeros || names.is_empty() {
            names.push("zeros".to_owned());
        }
        f.write_str(&names.join(" or "))
    }
}

/// What some bytes of a file are.
fn describe(offset: u64, bytes: &[u8]) -> String {
    let skip = (offset.next_multiple_of(16) - offset) as usize;
    let Some((tag, place)) = bytes.get(skip..).and_then(Tag::read) else {
        if bytes.iter().all(|byte| *byte == 0) {
            return "zeros".to_owned();
        }
        let shown = &bytes[..bytes.len().min(16)];
        return format!("bytes that no write wrote ({shown:02x?})");
    };
    let at = offset + skip as u64;
    if place == at {
        format!("what {tag} wrote")
    } else {
        format!("what {tag} wrote at byte {place}")
    }
}
