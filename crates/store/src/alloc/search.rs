//! Which free blocks a request gets.
//!
//! One criterion after the other, each over the groups from the goal's on:
//!
//! 1. *The goal.* As many as wanted at the goal, or in its group. Touches nothing but that group.
//! 2. *A power of two.* A group whose largest free block holds them all.
//! 3. *The length.* A group whose free runs are as long on average, for lengths between two powers
//!    of two.
//! 4. *The best there is.* Fewer and fewer, never below what the request needs.
//! 5. *Any.* Every group, by its count of free clusters.
//! 6. *Any, waiting.* The same without passing by groups that others use, and without trusting
//!    anything but the groups themselves. Only this one can say that there is no space.
//!
//! A group that somebody else uses is passed by, so threads that meet in one part.

use super::Alloc;
use super::buddy::{ORDERS, order_of};
use super::group::{Loaded, Locked, Slot};
use super::order::By;
use crate::volume::Cluster;
use crate::{Error, InPlace, Place, Result};
use extant_format::Group;
use std::ops::Range;

/// Groups looked through for the length between two powers of two.
const MOST_BY_LENGTH: usize = 32;
/// Attempts to get the lock of the goal's group, whose holder is soon done.
const ATTEMPTS: usize = 40;
/// Bitmaps read at once, ahead of the search.
const AHEAD: u32 = 32;

/// A run of clusters in a group.
type Spot = (Group, Range<u32>);

/// How to look into a group.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// For this many, where a block of the order is free.
    Block(u32),
    /// For this many, however they lie; if there are fewer, the most there are, if at least so
    /// many.
    Run(u32, u32),
}

/// Where clusters should lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    pub(super) goal: Cluster,
    /// Away from the goal, in a place with room for so many, if there is any and that is more than
    /// are wanted: to go on there.
    pub(super) room: u32,
    /// Numbers of blocks must fit 32 bits.
    pub(super) below_32_bits: bool,
}

/// A search for clusters.
pub(super) struct Search<'a> {
    alloc: &'a Alloc,
    /// The goal.
    home: Group,
    goal: u32,
    want: u32,
    min: u32,
    room: u32,
    below_32_bits: bool,
}

impl<'a> Search<'a> {
    /// A search for `want` clusters side by side, or at least `min`.
    pub(super) fn new(alloc: &'a Alloc, near: Near, want: u32, min: u32) -> Self {
        let goal = alloc.volume.cluster_size().block(near.goal);
        let goal = alloc.volume.geometry().bitmap_position(goal);
        let (home, goal) = goal.unwrap_or((Group::new(0), 0));
        Self {
            alloc,
            home,
            goal,
            want,
            min,
            room: near.room,
            below_32_bits: near.below_32_bits,
        }
    }

    /// Finds and takes.
    pub(super) fn run(&self) -> Result<Spot> {
        if let Some(found) = self.at_goal() {
            return Ok(found);
        }
        if let Some(found) = self.elsewhere()? {
            return Ok(found);
        }
        for wait in [false, true] {
            if let Some(found) = self.any(wait)? {
                return Ok(found);
            }
        }
        Err(Error::NoSpace)
    }

    /// The criterion of the goal.
    fn at_goal(&self) -> Option<Spot> {
        let slot = self.alloc.slot(self.home).ok()?;
        if slot.free() < self.want {
            return None;
        }
        // A failure is found again by a request that has no other group.
        let (slot, loaded) = match slot.loaded() {
            Some(loaded) if !loaded.is_away() => (slot, loaded),
            _ => self.alloc.load_group_ahead(self.home, AHEAD).ok()?,
        };
        let locked = (0..ATTEMPTS).find_map(|_| {
            let locked = self.enter(slot, loaded);
            if locked.is_none() {
                std::hint::spin_loop();
            }
            locked
        });
        let end = self.end(self.home).ok()?;
        self.take(&mut locked?, self.home, end, Look::Block(self.want))
    }

    /// The criteria that follow the index.
    fn elsewhere(&self) -> Result<Option<Spot>> {
        let all = ORDERS as u32;
        let order = order_of(self.want);
        let fits = Look::Block(self.want);
        if let Some(found) = self.by(By::Largest, order..all, usize::MAX, fits)? {
            return Ok(Some(found));
        }
        if !self.want.is_power_of_two() {
            let exact = Look::Run(self.want, self.want);
            let average = self.by(By::Average, order - 1..all, MOST_BY_LENGTH, exact)?;
            if average.is_some() {
                return Ok(average);
            }
        }
        let lowest = self.min.max(1).ilog2();
        for order in (lowest..order).rev() {
            let least = self.min.max(1 << order);
            let trimmed = Look::Run(self.want, least);
            if let Some(found) = self.by(By::Largest, order..order + 1, usize::MAX, trimmed)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Looks into up to `most` groups that stand in some of `orders`, nearest behind the goal
    /// first.
    fn by(&self, by: By, orders: Range<u32>, most: usize, look: Look) -> Result<Option<Spot>> {
        let home = self.home.get();
        let mut tried = 0;
        for part in [home..u32::MAX, 0..home] {
            let mut from = part.start;
            while let Some(group) = self.alloc.index.next(by, orders.clone(), from) {
                if group >= part.end || tried >= most {
                    break;
                }
                tried += 1;
                let found = self.look(Group::new(group), look, false);
                match found {
                    Ok(None) => {}
                    // The last criterion will say so, if there is no other group.
                    Err(error) if is_of_group(&error) => {}
                    found => return found,
                }
                from = group + 1;
            }
        }
        Ok(None)
    }

    /// The criteria that look at every group.
    fn any(&self, wait: bool) -> Result<Option<Spot>> {
        let mut failed = None;
        let groups = self.alloc.slots.len() as u32;
        let home = self.home.get().min(groups);
        for group in (home..groups).chain(0..home).map(Group::new) {
            if self.alloc.slot(group)?.free() < self.min {
                continue;
            }
            match self.look(group, Look::Run(self.want, self.min), wait) {
                Ok(None) => {}
                // A damaged group is left out, and known as such from now on.
                Err(error) if error.is_corruption() => {}
                Err(error) => failed = Some(error),
                found => return found,
            }
        }
        match failed {
            Some(error) if wait => Err(error),
            _ => Ok(None),
        }
    }

    /// Looks into a group.
    fn look(&self, group: Group, look: Look, wait: bool) -> Result<Option<Spot>> {
        let slot = self.alloc.slot(group)?;
        let end = self.end(group)?;
        // A damaged one has none.
        if end == 0 || slot.free() == 0 {
            return Ok(None);
        }
        if wait {
            let (_, mut state) = self.alloc.lock_group(group)?;
            return Ok(self.take(&mut state, group, end, look));
        }
        let (slot, loaded) = match slot.loaded() {
            Some(loaded) if !loaded.is_away() => (slot, loaded),
            _ => self.alloc.load_group_ahead(group, AHEAD)?,
        };
        let Some(mut state) = self.enter(slot, loaded) else {
            return Ok(None);
        };
        Ok(self.take(&mut state, group, end, look))
    }

    /// Locks a group, unless somebody uses it, or it has just left memory.
    fn enter<'g>(&self, slot: &'g Slot, loaded: &'g Loaded) -> Option<Locked<'g>> {
        #[cfg(feature = "baseline")]
        if self.alloc.forms.waits_for_groups() {
            return slot.lock(loaded);
        }
        #[cfg(not(feature = "baseline"))]
        let _ = self;
        slot.try_lock(loaded)
    }

    fn take(&self, state: &mut Locked<'_>, group: Group, end: u32, look: Look) -> Option<Spot> {
        let goal = if group == self.home { self.goal } else { 0 };
        let run = match look {
            Look::Block(want) => state.space.near(goal, end, want, self.room)?,
            Look::Run(want, least) => {
                let run = state.space.longest(goal, end, want)?;
                (run.end - run.start >= least).then_some(run)?
            }
        };
        state.take(&run);
        Some((group, run))
    }

    /// The first cluster of the group that must not be given.
    fn end(&self, group: Group) -> Result<u32> {
        if !self.below_32_bits {
            return Ok(u32::MAX);
        }
        let geometry = self.alloc.volume.geometry();
        let place = Place::Group(group);
        let first = geometry.group_first_block(group).in_place(place)?.get();
        let last = geometry.group_last_block(group).in_place(place)?.get();
        Ok(end_of_32_bits(first, last, geometry.cluster_bits()))
    }
}

/// Whether the error leaves other groups to be tried.
fn is_of_group(error: &Error) -> bool {
    error.is_corruption() || matches!(error, Error::Device(_))
}

/// The first cluster past the blocks whose numbers fit 32 bits, in a group of blocks `first` to
/// `last`; [`u32::MAX`] if all do.
fn end_of_32_bits(first: u64, last: u64, cluster_bits: u32) -> u32 {
    if last <= u64::from(u32::MAX) {
        return u32::MAX;
    }
    let below = (1_u64 << 32).saturating_sub(first);
    // Fewer than the group has.
    (below >> cluster_bits) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_for_indirect_maps_end_where_32_bits_do() {
        let limit = 1_u64 << 32;
        assert_eq!(end_of_32_bits(limit - 32768, limit - 1, 0), u32::MAX);
        assert_eq!(end_of_32_bits(limit - 100, limit + 8000, 0), 100);
        assert_eq!(end_of_32_bits(limit, limit + 32767, 0), 0);
        assert_eq!(end_of_32_bits(limit - 128, limit + 8000, 4), 8);
    }
}
