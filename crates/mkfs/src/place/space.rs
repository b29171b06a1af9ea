//! The free space of a formatted image, handed out from the front.
//!
//! Nothing is ever given back, so what is used is always a prefix of the free runs: the image
//! stays dense, its rest free in one piece, and the bitmaps follow from one number.

use super::{PlaceError, PlaceResult};
use std::ops::Range;

/// Free space in allocation units (clusters; blocks without `bigalloc`), in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    free: Vec<Range<u64>>,
    at: usize,
    next: u64,
    used: u64,
}

impl Space {
    /// Free runs in ascending order that do not touch each other.
    pub(crate) fn new(free: Vec<Range<u64>>) -> Self {
        let next = free.first().map_or(0, |run| run.start);
        Self {
            free,
            at: 0,
            next,
            used: 0,
        }
    }

    /// The next free units, at most `want` of them, in one run.
    ///
    /// # Errors
    /// [`PlaceError::NoSpace`] when nothing is left.
    pub(crate) fn take(&mut self, want: u64) -> PlaceResult<Range<u64>> {
        loop {
            let Some(run) = self.free.get(self.at) else {
                return Err(PlaceError::NoSpace {
                    used: self.used,
                    more: want,
                });
            };
            if self.next < run.end {
                let end = run.end.min(self.next.saturating_add(want));
                let taken = self.next..end;
                self.next = end;
                self.used += end - taken.start;
                return Ok(taken);
            }
            self.at += 1;
            if let Some(run) = self.free.get(self.at) {
                self.next = run.start;
            }
        }
    }

    /// Units handed out so far.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// The runs handed out so far, in ascending order.
    pub(crate) fn used_runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.free.iter().take(self.at + 1).map_while(|run| {
            let end = run.end.min(self.next);
            (self.next > run.start).then_some(run.start..end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_handed_out_in_order_and_never_twice() {
        let mut space = Space::new(vec![10..20, 30..35, 40..41]);
        assert_eq!(space.take(4).unwrap(), 10..14);
        assert_eq!(space.take(100).unwrap(), 14..20);
        assert_eq!(space.take(5).unwrap(), 30..35);
        assert_eq!(space.used_runs().collect::<Vec<_>>(), [10..20, 30..35]);
        assert_eq!(space.take(1).unwrap(), 40..41);
        assert!(matches!(
            space.take(1),
            Err(PlaceError::NoSpace { used: 16, more: 1 })
        ));
        assert_eq!(
            space.used_runs().collect::<Vec<_>>(),
            [10..20, 30..35, 40..41]
        );
    }

    #[test]
    fn nothing_used_means_no_runs() {
        let space = Space::new(std::iter::once(10..20).collect());
        assert_eq!(space.used_runs().count(), 0);
        assert_eq!(space.used(), 0);
    }
}
