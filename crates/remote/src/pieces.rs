//! Which pieces of an object are in memory, which are coming, and which go when room is needed.
//!
//! A piece is [`PIECE`] bytes, aligned; the last one of an object may be shorter. What goes is
//! chosen in the order of arrival, with a second chance for what was used meanwhile.
//!
//! Where many pieces of one region are missed in no order, as by the files of a directory, their
//! neighbours come with them: the more have been missed there, the more at a time.
//!
//! # Invariants
//! - A piece is held, or coming, or neither. A thread that claims it makes it come, or fail.
//! - A failed piece is neither: the next reader tries again.

use crate::error::RemoteError;
use crate::streams::Streams;
use bytes::Bytes;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a piece.
pub(crate) const PIECE: u64 = 64 << 10;

/// Pieces of a region: 4 MiB.
const REGION: u64 = 64;
/// Regions in which misses are counted.
const MOST_REGIONS: usize = 1024;
/// The most neighbours that come with a missed piece: 2 MiB with it.
const MOST_NEIGHBOURS: u64 = 32;

static PIECES: LockClass = LockClass::new("remote pieces", Rank::DeviceQueue);
static COMING: LockClass = LockClass::new("remote piece", Rank::Leaf);

/// What became of a piece.
pub(crate) type Outcome = Result<Bytes, Arc<RemoteError>>;

/// A piece that is coming.
#[derive(Debug)]
pub(crate) struct Coming {
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
}

impl Coming {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            outcome: Mutex::new(&COMING, None),
            ended: Condvar::new(),
        })
    }

    /// Waits until the piece is there, or known not to come.
    pub(crate) fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            self.ended.wait(&mut outcome);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.outcome.lock().is_some()
    }

    fn end(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.ended.notify_all();
    }
}

#[derive(Debug)]
enum Slot {
    Held { bytes: Bytes, used: bool },
    Coming(Arc<Coming>),
}

/// A piece that a reader wants.
#[derive(Debug)]
pub(crate) enum Wanted {
    Held(Bytes),
    Coming(Arc<Coming>),
}

#[derive(Debug)]
struct Inside {
    slots: HashMap<u64, Slot>,
    /// Held pieces in the order in which they are looked at when room is needed.
    order: VecDeque<u64>,
    held: u64,
    most: u64,
    streams: Streams,
    /// Pieces that were missed, by region.
    misses: HashMap<u64, u64>,
}

/// The pieces of one object.
#[derive(Debug)]
pub(crate) struct Pieces {
    inside: Mutex<Inside>,
}

impl Pieces {
    /// No pieces; at most `most` bytes of them are held.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            inside: Mutex::new(
                &PIECES,
                Inside {
                    slots: HashMap::new(),
                    order: VecDeque::new(),
                    held: 0,
                    most: most.max(PIECE),
                    streams: Streams::new(PIECE, (most / 4).min(8 << 20)),
                    misses: HashMap::new(),
                },
            ),
        }
    }

    /// The pieces of a range of pieces, and those that the caller now has to make come, ascending.
    pub(crate) fn want(&self, range: Range<u64>) -> (Vec<Wanted>, Vec<u64>) {
        let mut claimed = Vec::new();
        let mut inside = self.inside.lock();
        let wanted = range
            .map(|piece| match inside.slots.get_mut(&piece) {
                Some(Slot::Held { bytes, used }) => {
                    *used = true;
                    Wanted::Held(bytes.clone())
                }
                Some(Slot::Coming(coming)) => Wanted::Coming(Arc::clone(coming)),
                None => {
                    let coming = Coming::new();
                    inside
                        .slots
                        .insert(piece, Slot::Coming(Arc::clone(&coming)));
                    claimed.push(piece);
                    Wanted::Coming(coming)
                }
            })
            .collect();
        (wanted, claimed)
    }

    /// Notes that a piece was missed, and returns the pieces around it that are probably wanted
    /// too.
    pub(crate) fn note_miss(&self, piece: u64) -> Range<u64> {
        let mut inside = self.inside.lock();
        if inside.misses.len() >= MOST_REGIONS {
            inside.misses.clear();
        }
        let misses = inside.misses.entry(piece / REGION).or_insert(0);
        *misses += 1;
        // A power of two, aligned: groups do not overlap.
        let group = match *misses {
            0..8 => return piece..piece,
            misses => (1 << misses.ilog2() >> 1).min(MOST_NEIGHBOURS),
        };
        let start = piece / group * group;
        start..start + group
    }

    /// Claims those pieces of a range that are neither held nor coming, at most `most`.
    pub(crate) fn claim(&self, range: Range<u64>, most: usize) -> Vec<u64> {
        let mut inside = self.inside.lock();
        let mut claimed = Vec::new();
        for piece in range {
            if claimed.len() == most {
                break;
            }
            if let Entry::Vacant(place) = inside.slots.entry(piece) {
                place.insert(Slot::Coming(Coming::new()));
                claimed.push(piece);
            }
        }
        claimed
    }

    /// Notes that bytes are read, and returns the bytes to read ahead.
    pub(crate) fn note_read(&self, read: &Range<u64>) -> Option<Range<u64>> {
        self.inside.lock().streams.note(read)
    }

    /// Ends the coming of a piece that the caller has claimed.
    pub(crate) fn end(&self, piece: u64, outcome: Outcome) {
        let mut inside = self.inside.lock();
        let slot = match &outcome {
            Ok(bytes) => {
                let used = false;
                inside.held += bytes.len() as u64;
                inside.order.push_back(piece);
                let bytes = bytes.clone();
                inside.slots.insert(piece, Slot::Held { bytes, used })
            }
            Err(_) => inside.slots.remove(&piece),
        };
        inside.make_room();
        drop(inside);
        if let Some(Slot::Coming(coming)) = slot {
            coming.end(outcome);
        }
    }

    /// Bytes held, and pieces that are coming.
    pub(crate) fn counts(&self) -> (u64, usize) {
        let inside = self.inside.lock();
        (inside.held, inside.slots.len() - inside.order.len())
    }
}

impl Inside {
    fn make_room(&mut self) {
        while self.held > self.most {
            let Some(piece) = self.order.pop_front() else {
                return;
            };
            match self.slots.get_mut(&piece) {
                Some(Slot::Held { used, .. }) if *used => {
                    *used = false;
                    self.order.push_back(piece);
                }
                Some(Slot::Held { bytes, .. }) => {
                    self.held -= bytes.len() as u64;
                    self.slots.remove(&piece);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PIECE, Pieces, Wanted};
    use crate::error::RemoteError;
    use bytes::Bytes;
    use std::sync::Arc;

    fn full() -> Bytes {
        Bytes::from(vec![1; PIECE as usize])
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let pieces = Pieces::new(4 * PIECE);
        for piece in 0..100 {
            let (_, claimed) = pieces.want(piece..piece + 1);
            assert_eq!(claimed, [piece]);
            pieces.end(piece, Ok(full()));
            let (wanted, claimed) = pieces.want(0..1);
            assert!(claimed.is_empty(), "piece 0 went at {piece}");
            assert!(matches!(wanted[0], Wanted::Held(_)));
            assert!(pieces.counts().0 <= 4 * PIECE);
        }
    }

    #[test]
    fn neighbours_come_where_much_is_missed_and_only_there() {
        let pieces = Pieces::new(1 << 20);
        let mut fetched = std::collections::BTreeSet::new();
        let mut misses = 0;
        for n in 0..64 {
            let piece = n * 37 % 64 + 640;
            if fetched.insert(piece) {
                misses += 1;
                fetched.extend(pieces.note_miss(piece));
                assert!(fetched.len() <= 4 * misses * misses);
            }
        }
        assert!(misses < 28, "{misses} misses");
        assert_eq!(fetched, (640..704).collect());
        for n in 0..500 {
            assert!(pieces.note_miss(n * 64 + 7000).is_empty());
        }
    }

    #[test]
    fn one_claims_and_others_wait_and_a_failure_is_tried_again() {
        let pieces = Arc::new(Pieces::new(PIECE));
        assert_eq!(pieces.want(3..5).1, [3, 4]);
        let (wanted, claimed) = pieces.want(3..4);
        assert!(claimed.is_empty());
        let Wanted::Coming(coming) = &wanted[0] else {
            panic!("it is not there yet");
        };
        assert!(!coming.has_ended());
        pieces.end(3, Err(Arc::new(RemoteError::Closed)));
        assert!(coming.wait().is_err());
        assert_eq!(pieces.want(3..4).1, [3]);
        assert_eq!(pieces.counts(), (0, 2));
    }
}
