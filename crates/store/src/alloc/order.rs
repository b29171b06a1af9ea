//! Groups by what they have free: found without a lock.
//!
//! Each group that has free clusters is in two sets: by the order of its largest free block, and by
//! that of the average length of its free runs, within one. A group moves between sets under its
//! own lock, into the new set before it leaves the old one. A group that is not in memory stands
//! where the count of its descriptor would put it if all lay side by side.
//!
//! The sets are hints: a thread that looks at them may be late, and they alone never mean that
//! there is no space.

use super::buddy::{Buddy, ORDERS, order_of};
use extant_sync::{AtomicBitSet, RmwClass};

static LARGEST: RmwClass = RmwClass::new("groups by largest free block");
static AVERAGE: RmwClass = RmwClass::new("groups by average free run");

/// Where a group stands: in which sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Standing {
    /// The order of the largest free block, and that of the average free run. `None` when nothing
    /// is free.
    orders: Option<(u8, u8)>,
}

impl Standing {
    /// Of a group of which only the number of free clusters is known.
    pub(super) fn guess(free: u32) -> Self {
        let order = free.checked_ilog2();
        let orders = order.map(|order| {
            let order = order.min(ORDERS as u32 - 1) as u8;
            (order, order)
        });
        Self { orders }
    }

    /// Of a group in memory that stood here: one whose average run is about as long as it was keeps
    /// that place, as each request and each file that goes would move it there and back.
    pub(super) fn next(self, buddy: &Buddy) -> Self {
        let average = (buddy.free() / buddy.fragments().max(1)).checked_ilog2();
        let orders = buddy.largest().zip(average).map(|(largest, average)| {
            let average = average.min(ORDERS as u32 - 1) as u8;
            let old = self.orders.map(|(_, old)| old);
            let old = old.filter(|old| old.abs_diff(average) <= 1);
            (largest as u8, old.unwrap_or(average))
        });
        Self { orders }
    }
}

/// By which property groups are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The largest free block.
    Largest,
    /// The average free run.
    Average,
}

/// The sets.
#[derive(Debug)]
pub(super) struct OrderIndex {
    largest: Box<[AtomicBitSet]>,
    average: Box<[AtomicBitSet]>,
}

impl OrderIndex {
    /// For `groups` groups, none of which stands anywhere.
    pub(super) fn new(groups: usize) -> Self {
        let sets = |class| {
            (0..ORDERS)
                .map(|_| AtomicBitSet::new(class, groups))
                .collect()
        };
        Self {
            largest: sets(&LARGEST),
            average: sets(&AVERAGE),
        }
    }

    /// What puts groups into the sets for the first time.
    pub(super) fn filler(&self) -> Filler<'_> {
        Filler {
            index: self,
            first: 0,
            orders: 0,
            groups: [0; ORDERS],
        }
    }

    /// Moves a group. For a thread that holds its lock, or knows that nobody else moves it.
    pub(super) fn shift(&self, group: u32, old: Standing, new: Standing) {
        let split = |standing: Standing| standing.orders.unzip();
        let (old, new) = (split(old), split(new));
        for (sets, old, new) in [(&self.largest, old.0, new.0), (&self.average, old.1, new.1)] {
            if old == new {
                continue;
            }
            let set = |order: Option<u8>| order.and_then(|order| sets.get(usize::from(order)));
            if let Some(set) = set(new) {
                set.insert(group as usize);
            }
            if let Some(set) = set(old) {
                set.remove(group as usize);
            }
        }
    }

    /// Whether the group has a free block for `clusters`, so far as is known.
    pub(super) fn has_block(&self, group: u32, clusters: u32) -> bool {
        self.next(By::Largest, order_of(clusters)..ORDERS as u32, group) == Some(group)
    }

    /// The first group from `from` on that stands in one of `orders`.
    pub(super) fn next(&self, by: By, orders: std::ops::Range<u32>, from: u32) -> Option<u32> {
        let sets = match by {
            By::Largest => &self.largest,
            By::Average => &self.average,
        };
        let orders = orders.start as usize..(orders.end as usize).min(ORDERS);
        let sets = sets.get(orders).unwrap_or_default();
        let found = sets.iter().filter_map(|set| set.next(from as usize)).min();
        found.map(|group| group as u32)
    }
}

/// Puts groups into the sets that stand nowhere yet, ascending: neighbours with one change of a
/// set, as there may be a hundred thousand groups.
#[derive(Debug)]
pub(super) struct Filler<'a> {
    index: &'a OrderIndex,
    /// The first group of those that wait.
    first: u32,
    /// Bit k is set if some of them have order k.
    orders: u32,
    /// For each order which ones have it.
    groups: [u64; ORDERS],
}

impl Filler<'_> {
    /// Adds a group of which only the number of free clusters is known.
    pub(super) fn add(&mut self, group: u32, free: u32) {
        if group / u64::BITS != self.first / u64::BITS {
            self.finish();
            self.first = group;
        }
        // The same order in both.
        let Some((order, _)) = Standing::guess(free).orders else {
            return;
        };
        if let Some(groups) = self.groups.get_mut(usize::from(order)) {
            self.orders |= 1 << order;
            *groups |= 1 << (group % u64::BITS);
        }
    }

    /// Puts the last ones into the sets.
    pub(super) fn finish(&mut self) {
        while self.orders != 0 {
            let order = self.orders.trailing_zeros() as usize;
            self.orders &= self.orders - 1;
            let groups = self.groups.get_mut(order).map_or(0, std::mem::take);
            for sets in [&self.index.largest, &self.index.average] {
                if let Some(set) = sets.get(order) {
                    set.insert_all(self.first as usize, groups);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::rng::{Rng, seed_from_env};

    #[test]
    fn a_group_keeps_its_place_by_average_while_its_runs_are_about_as_long() {
        let mut buddy = Buddy::of_used(&[0xff; 1 << 12], 1 << 15);
        assert_eq!(Standing::default().next(&buddy), Standing::default());
        buddy.give(&(0..1 << 14));
        let at = Standing::default().next(&buddy);
        assert_eq!(at.orders, Some((14, 14)));
        // One run, and it is a little shorter.
        buddy.take(&((1 << 14) - 1..1 << 14));
        let at = at.next(&buddy);
        assert_eq!(at.orders, Some((13, 14)));
        // Two.
        buddy.take(&(100..101));
        let at = at.next(&buddy);
        assert_eq!(at.orders, Some((12, 12)));
        buddy.give(&(100..101));
        let at = at.next(&buddy);
        assert_eq!(at.orders, Some((13, 12)));
    }

    #[test]
    fn groups_that_come_together_stand_where_each_by_itself_would() {
        let mut rng = Rng::new(seed_from_env("alloc_order_filled"));
        for groups in [1_u32, 63, 64, 65, 700] {
            let filled = OrderIndex::new(groups as usize);
            let moved = OrderIndex::new(groups as usize);
            let free: Vec<u32> = (0..groups)
                .map(|_| (rng.below(1 << 16) >> rng.below(17)) as u32)
                .collect();
            // In two parts, which meet within a word.
            let (front, back) = free.split_at(free.len() * 2 / 3);
            for (first, part) in [(0, front), (front.len(), back)] {
                let mut filler = filled.filler();
                for (at, &free) in part.iter().enumerate() {
                    filler.add((first + at) as u32, free);
                }
                filler.finish();
            }
            for (group, &free) in (0..).zip(&free) {
                moved.shift(group, Standing::default(), Standing::guess(free));
            }
            for from in 0..groups {
                for order in 0..ORDERS as u32 {
                    for by in [By::Largest, By::Average] {
                        let found = filled.next(by, order..order + 1, from);
                        assert_eq!(found, moved.next(by, order..order + 1, from));
                    }
                }
            }
        }
    }

    #[test]
    fn the_index_finds_what_a_look_at_every_group_finds() {
        let mut rng = Rng::new(seed_from_env("alloc_order"));
        for groups in [1_u32, 64, 5000] {
            let index = OrderIndex::new(groups as usize);
            let mut standing = vec![Standing::default(); groups as usize];
            for _ in 0..5000 {
                let group = rng.below(groups.into()) as u32;
                let new = Standing {
                    orders: (!rng.one_in(5)).then(|| (rng.below(20) as u8, rng.below(20) as u8)),
                };
                index.shift(group, standing[group as usize], new);
                standing[group as usize] = new;
                let from = rng.below(groups.into()) as u32;
                let low = rng.below(20) as u32;
                let orders = low..rng.between(low.into(), 22) as u32;
                for by in [By::Largest, By::Average] {
                    let naive = (from..groups).find(|group| {
                        let at = standing[*group as usize].orders;
                        let at = at.map(|(l, a)| if by == By::Largest { l } else { a });
                        at.is_some_and(|order| orders.contains(&u32::from(order)))
                    });
                    assert_eq!(index.next(by, orders.clone(), from), naive);
                }
            }
        }
    }
}
