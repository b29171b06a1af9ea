//! What was written to one file, and which bytes are legal at a place.

use super::Tag;
use super::history::DataPromise;
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
    tags: Vec<Tag>,
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
        let mut block = offset / block_size * block_size;
        while block < offset + len {
            let mut mapped = false;
            for (_, change) in &self.changes {
                match *change {
                    DataChange::Write { offset, len } => {
                        mapped |= offset < block + block_size && offset + len > block;
                    }
                    DataChange::Cut { size } => mapped &= block < size,
                    DataChange::Zero { offset, len, .. } => {
                        mapped &= offset > block || offset + len < block + block_size;
                    }
                    // Reserved blocks are mapped when they are written.
                    DataChange::Extend { .. } => {}
                }
            }
            if !mapped {
                return true;
            }
            block += block_size;
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
        for (op, change) in &self.changes {
            if *op < when.begun {
                match *change {
                    DataChange::Write { offset, len } | DataChange::Zero { offset, len, .. } => {
                        edges.extend([offset, offset + len]);
                    }
                    DataChange::Cut { size } | DataChange::Extend { size } => edges.push(size),
                }
            }
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
                let is_version = legal.tags.iter().rev().any(|tag| {
                    tag.fill(place, &mut wanted[..n]);
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

    /// What the byte at `offset` may come from.
    fn legal(&self, offset: u64, when: When) -> Legal {
        let mut legal = Legal {
            tags: Vec::new(),
            zeros: false,
        };
        let (mut is_durable, mut is_mapped) = (false, false);
        // From the newest: what came before a truncation that is in the tree, or before what is durable, is gone.
        let begun = self.changes.iter().rev();
        for (op, change) in begun.filter(|change| change.0 < when.begun) {
            match *change {
                DataChange::Write { offset: o, len } if (o..o + len).contains(&offset) => {
                    if !is_durable {
                        legal.tags.push(Tag {
                            lane: when.lane,
                            op: *op as u32,
                        });
                    }
                    is_durable |= *op < when.durable;
                    // Of a write in part, what the new size covers is mapped.
                    is_mapped |= *op < when.prefix || (*op == when.prefix && offset >= when.size);
                }
                DataChange::Zero {
                    offset: o,
                    len,
                    all,
                } if (o..o + len).contains(&offset) => {
                    legal.zeros |= !is_durable;
                    is_durable |= all && *op < when.durable;
                }
                // A truncation that is not in the tree may have cleared the rest of its last block, unless the
                // smaller size is made durable first.
                DataChange::Cut { size } if size <= offset && *op >= when.prefix => {
                    legal.zeros |= when.promise == DataPromise::Delayed;
                }
                DataChange::Cut { size } if size <= offset => break,
                _ => {}
            }
            if is_durable && *op < when.prefix {
                break;
            }
        }
        legal.tags.reverse();
        let is_mapped = is_mapped && when.promise == DataPromise::InOrder;
        legal.zeros |= !is_durable && !is_mapped;
        legal
    }
}

impl std::fmt::Display for Legal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: Vec<String> = self
            .tags
            .iter()
            .map(|tag| format!("operation {}", tag.op))
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
