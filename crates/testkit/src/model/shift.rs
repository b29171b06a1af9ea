//! Where bytes of a file are after a range was taken out of it or put in, and where they were
//! before.

/// A range taken out of a file, or put in; offset and length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shift {
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Whether it is put in.
    pub(super) insert: bool,
    /// The size of the file afterwards.
    pub(super) size: u64,
    /// Whether it is done as a whole or not at all. Of what takes several transactions a crash may
    /// leave a part.
    pub(super) whole: bool,
}

/// Which way to follow a shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From before it to after it.
    Forward,
    /// From after it to before it.
    Back,
}

impl Shift {
    /// Whether what lies behind the offset moves to higher places.
    fn moves_up(self, way: Way) -> bool {
        self.insert == (way == Way::Forward)
    }

    /// Where the byte at `place` is on the other side; `None` when it is not there.
    pub(super) fn byte(self, place: u64, way: Way) -> Option<u64> {
        if place < self.offset {
            return Some(place);
        }
        if self.moves_up(way) {
            Some(place + self.len)
        } else {
            place
                .checked_sub(self.len)
                .filter(|place| *place >= self.offset)
        }
    }

    /// Where the edge between the bytes before and behind `place` is on the other side.
    pub(super) fn edge(self, place: u64, way: Way) -> u64 {
        if place <= self.offset {
            return place;
        }
        if self.moves_up(way) {
            place + self.len
        } else {
            place.saturating_sub(self.len).max(self.offset)
        }
    }
}
