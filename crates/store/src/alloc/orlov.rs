//! Which group a new inode should have.
//!
//! Files go where their directory is, so that reading a directory and its files stays in one place,
//! unless several CPUs fill one directory (see [`contention`](super::contention)). Directories
//! directly below the root (or one marked so) are spread over the disk, as their trees seldom have
//! to do with each other; deeper ones stay near their parent as long as that part of the disk is
//! not crowded.
//!
//! Source: Grigoriy Orlov's allocation for FreeBSD, and "Orlov allocator" in the kernel's ext4
//! documentation. With `flex_bg` a flex group counts as one group.

use super::{Alloc, mix};
use crate::meta::Seq;
use extant_format::{Group, Ino};

/// What a unit of the search has: a group, or a flex group.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    free_inodes: u64,
    free_clusters: u64,
    dirs: u64,
}

/// Limits of a directory's place near its parent.
#[derive(Clone, Copy, Debug)]
struct Limits {
    min_inodes: u64,
    min_clusters: u64,
    max_dirs: u64,
}

/// The directory that a new inode comes into.
#[derive(Clone, Copy, Debug)]
pub struct Parent {
    /// Its inode.
    pub ino: Ino,
    /// Whether directories in it have nothing to do with each other, so that they are spread: the
    /// root, and directories with the flag `TOPDIR`.
    pub is_top: bool,
}

impl Alloc {
    /// The groups in which a CPU should look for a free inode in transaction `now`, best first.
    /// Ends with all groups.
    pub(super) fn inode_groups(
        &self,
        parent: Parent,
        is_dir: bool,
        cpu: usize,
        now: Seq,
    ) -> impl Iterator<Item = Group> + '_ {
        let groups = self.slots.len() as u32;
        let home = self
            .volume
            .geometry()
            .locate_inode(parent.ino)
            .map_or(0, |at| at.group.get())
            .min(groups.saturating_sub(1));
        let (first, hops) = if is_dir {
            (self.directory_group(parent, home), false)
        } else {
            (self.inode_home(home, cpu, now), true)
        };
        let start = u64::from(parent.ino.get());
        // Files of different directories go on in different places when all of that is full.
        let far = if is_dir {
            first
        } else {
            (mix(start) % u64::from(groups.max(1))) as u32
        };
        std::iter::once(first)
            .chain(self.hops(home, start).filter(move |_| hops))
            .chain((far..groups).chain(0..far))
            .map(Group::new)
    }

    /// Groups further and further away from `home`, those of different directories in different
    /// places, so that files of full groups do not meet in the next one.
    fn hops(&self, home: u32, start: u64) -> impl Iterator<Item = u32> + '_ {
        let groups = (self.slots.len() as u64).max(1);
        let first = (u64::from(home) + start) % groups;
        std::iter::successors(Some(1_u64), |step| Some(step * 2))
            .take_while(move |step| *step < groups)
            .scan(first, move |at, step| {
                *at = (*at + step) % groups;
                Some(*at as u32)
            })
            .filter(|group| {
                let slot = self.slots.get(*group as usize);
                slot.is_some_and(|slot| slot.free_inodes() > 0 && slot.free() > 0)
            })
    }

    fn directory_group(&self, parent: Parent, home: u32) -> u32 {
        let groups = self.slots.len() as u32;
        let per_unit = self
            .volume
            .geometry()
            .groups_per_flex()
            .clamp(1, groups.max(1));
        let units = groups.div_ceil(per_unit).max(1);
        let top = parent.is_top;
        let unit = if top {
            self.spread(per_unit, units)
        } else {
            self.near(home / per_unit, per_unit, units)
        };
        // Within the unit: with the parent if it is there, else where the fewest directories are. A
        // thread that works below one of those that are spread then does not meet one that works
        // below another in one group.
        let within = unit * per_unit..((unit + 1).saturating_mul(per_unit)).min(groups);
        let has_inodes = |group: u32| {
            let slot = self.slots.get(group as usize);
            slot.is_some_and(|slot| slot.free_inodes() > 0)
        };
        if !top && within.contains(&home) && has_inodes(home) {
            return home;
        }
        let first = within.start;
        let dirs = |group: &u32| {
            let slot = self.slots.get(*group as usize);
            slot.map_or(u32::MAX, |slot| slot.dirs())
        };
        within
            .filter(|group| has_inodes(*group))
            .min_by_key(dirs)
            .unwrap_or(first)
    }

    /// A unit with at least the average of free inodes and blocks, and the fewest directories.
    fn spread(&self, per_unit: u32, units: u32) -> u32 {
        let average = self.average(units);
        let start = (mix(self.seed ^ self.dirs.count()) % u64::from(units)) as u32;
        (start..units)
            .chain(0..start)
            .map(|unit| (unit, self.room(unit, per_unit)))
            .filter(|(_, room)| {
                room.free_inodes > 0
                    && room.free_inodes >= average.free_inodes
                    && room.free_clusters >= average.free_clusters
            })
            .min_by_key(|(_, room)| room.dirs)
            .map_or_else(|| self.least_full(start, per_unit, units), |(unit, _)| unit)
    }

    /// The first unit from that of the parent on that is not crowded.
    fn near(&self, home: u32, per_unit: u32, units: u32) -> u32 {
        let geometry = self.volume.geometry();
        let average = self.average(units);
        let inodes = u64::from(geometry.inodes_per_group()) * u64::from(per_unit);
        let clusters = u64::from(geometry.clusters_per_group()) * u64::from(per_unit);
        let limits = Limits {
            min_inodes: average.free_inodes.saturating_sub(inodes / 4).max(1),
            min_clusters: average.free_clusters.saturating_sub(clusters / 4),
            max_dirs: average.dirs + inodes / 16 + 1,
        };
        (home..units)
            .chain(0..home)
            .find(|unit| {
                let room = self.room(*unit, per_unit);
                room.dirs < limits.max_dirs
                    && room.free_inodes >= limits.min_inodes
                    && room.free_clusters >= limits.min_clusters
            })
            .unwrap_or_else(|| self.least_full(home, per_unit, units))
    }

    /// The first unit from `start` on with at least the average of free inodes.
    fn least_full(&self, start: u32, per_unit: u32, units: u32) -> u32 {
        let average = self.average(units).free_inodes.max(1);
        (start..units)
            .chain(0..start)
            .find(|unit| self.room(*unit, per_unit).free_inodes >= average)
            .unwrap_or(start)
    }

    /// What each unit has on average.
    fn average(&self, units: u32) -> Room {
        let units = u64::from(units.max(1));
        Room {
            free_inodes: self.free_inodes.count() / units,
            free_clusters: self.free.count() / units,
            dirs: self.dirs.count() / units,
        }
    }

    fn room(&self, unit: u32, per_unit: u32) -> Room {
        let first = unit as usize * per_unit as usize;
        self.slots.iter().skip(first).take(per_unit as usize).fold(
            Room::default(),
            |mut room, slot| {
                room.free_inodes += u64::from(slot.free_inodes());
                room.free_clusters += u64::from(slot.free());
                room.dirs += u64::from(slot.dirs());
                room
            },
        )
    }
}
