//! Walking what is reachable by name from the root, level by level and in parallel.

use super::view::{Seen, Slots, View};
use crate::blockset::BlockSet;
use crate::error::Result;
use extant_format::Ino;
use extant_format::inode::FileType;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Directories, and inodes, that one task looks at.
const DIRS: usize = 64;
const INODES: usize = 1024;
/// Tasks in which directories are read before what they found is put together.
const TASKS: usize = 64;
/// Names that a task holds before it leaves out those that are there twice.
const NAMES: usize = 1 << 16;
/// A path is told as far as this many names.
const DEPTH_MAX: usize = 4096;

/// What is reachable.
#[derive(Default)]
pub(super) struct Reach {
    pub(super) inodes: BlockSet,
    /// Directories and the one that each was found in, ascending.
    dirs: Vec<(Ino, Ino)>,
}

impl Reach {
    pub(super) fn contains(&self, ino: Ino) -> bool {
        self.inodes.contains(ino.get().into())
    }
}

/// Walks from the root on. `each` sees every readable inode once, from several threads; what it
/// returns `true` for is returned.
pub(super) fn walk(
    view: &View,
    each: &(dyn Fn(&Seen) -> Result<bool> + Sync),
) -> Result<(Reach, Vec<Ino>)> {
    let mut reach = Reach::default();
    let mut chosen = Vec::new();
    let mut found = vec![(Ino::ROOT, Ino::ROOT)];
    while !found.is_empty() {
        let inodes = look(view, &found, each)?;
        let mut level = Vec::new();
        for one in inodes {
            reach
                .inodes
                .add(one.ino.get().into()..u64::from(one.ino.get()) + 1);
            if one.is_chosen {
                chosen.push(one.ino);
            }
            if one.is_dir {
                level.push((one.ino, one.parent));
            }
        }
        found = children(view, &level, &reach)?;
        reach.dirs.append(&mut level);
    }
    reach.dirs.sort_unstable();
    chosen.sort_unstable();
    Ok((reach, chosen))
}

/// What is remembered of an inode until the next level.
struct One {
    ino: Ino,
    parent: Ino,
    is_dir: bool,
    is_chosen: bool,
}

fn look(
    view: &View,
    found: &[(Ino, Ino)],
    each: &(dyn Fn(&Seen) -> Result<bool> + Sync),
) -> Result<Vec<One>> {
    let parts = found.par_chunks(INODES).map(|some| {
        let mut slots = Slots::new(view);
        let mut inodes = Vec::with_capacity(some.len());
        for &(ino, parent) in some {
            if let Some(seen) = slots.get(ino)? {
                inodes.push(One {
                    ino,
                    parent,
                    is_dir: seen.file_type == FileType::Directory,
                    is_chosen: each(&seen)?,
                });
            }
        }
        Ok::<_, crate::Error>(inodes)
    });
    let parts: Vec<Vec<One>> = parts.collect::<Result<_>>()?;
    Ok(parts.into_iter().flatten().collect())
}

/// The inodes that some directories name and that were not reached before, each once, ascending,
/// and the first directory that names it. What is held while they are read follows the number of
/// inodes, however often each is named.
fn children(view: &View, dirs: &[(Ino, Ino)], reach: &Reach) -> Result<Vec<(Ino, Ino)>> {
    let mut all = Vec::new();
    let mut named = BlockSet::default();
    for some in dirs.chunks(DIRS * TASKS) {
        let is_new = |ino: Ino| !reach.contains(ino) && !named.contains(ino.get().into());
        let parts = some.par_chunks(DIRS).map(|some| {
            let mut slots = Slots::new(view);
            let mut children = Vec::new();
            let mut room = NAMES;
            for &(dir, _) in some {
                if let Some(seen) = slots.get(dir)? {
                    view.names(&seen, &mut |ino, _| {
                        if is_new(ino) {
                            children.push((ino, dir));
                        }
                        if children.len() > room {
                            leave_one_each(&mut children);
                            room = NAMES.max(2 * children.len());
                        }
                    })?;
                }
            }
            leave_one_each(&mut children);
            Ok::<_, crate::Error>(children)
        });
        let parts: Vec<Vec<(Ino, Ino)>> = parts.collect::<Result<_>>()?;
        // Directories ascend, so the first part that names an inode has the first of them.
        for (ino, dir) in parts.into_iter().flatten() {
            let mut is_known = false;
            let number = u64::from(ino.get());
            named.insert(number..number + 1, &mut |_| is_known = true);
            if !is_known {
                all.push((ino, dir));
            }
        }
    }
    all.par_sort_unstable();
    Ok(all)
}

/// Leaves each inode once, with the first directory that names it.
fn leave_one_each(children: &mut Vec<(Ino, Ino)>) {
    children.sort_unstable();
    children.dedup_by_key(|(ino, _)| *ino);
}

/// A path to each of some inodes.
pub(super) fn paths(
    view: &View,
    reach: &Reach,
    inodes: &BTreeSet<Ino>,
) -> Result<BTreeMap<Ino, Vec<u8>>> {
    let parent_of = |ino: Ino| {
        let at = reach.dirs.binary_search_by_key(&ino, |(dir, _)| *dir);
        at.ok()
            .and_then(|at| reach.dirs.get(at))
            .map(|(_, parent)| *parent)
    };
    // Files first: which directory has a name for them is not remembered.
    let mut names: BTreeMap<Ino, (Ino, Vec<u8>)> = BTreeMap::new();
    let mut slots = Slots::new(view);
    for &(dir, _) in &reach.dirs {
        if let Some(seen) = slots.get(dir)? {
            view.names(&seen, &mut |ino, name| {
                if inodes.contains(&ino) && parent_of(ino).is_none_or(|parent| parent == dir) {
                    names.entry(ino).or_insert_with(|| (dir, name.to_vec()));
                }
            })?;
        }
    }
    // Then the directories on the way, each in its own parent.
    let mut wanted: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
    for (first, _) in names.values() {
        let mut dir = *first;
        while dir != Ino::ROOT
            && let Some(parent) = parent_of(dir)
            && wanted.entry(parent).or_default().insert(dir)
        {
            dir = parent;
        }
    }
    for (dir, children) in &wanted {
        if let Some(seen) = view.inode(*dir)? {
            view.names(&seen, &mut |ino, name| {
                if children.contains(&ino) {
                    names.entry(ino).or_insert_with(|| (*dir, name.to_vec()));
                }
            })?;
        }
    }
    let path = |ino: &Ino| {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut at = *ino;
        while at != Ino::ROOT
            && parts.len() < DEPTH_MAX
            && let Some((dir, name)) = names.get(&at)
        {
            parts.push(name);
            at = *dir;
        }
        parts.push(b"");
        parts.reverse();
        match parts.len() {
            1 => b"/".to_vec(),
            _ => parts.join(&b'/'),
        }
    };
    Ok(inodes.iter().map(|ino| (*ino, path(ino))).collect())
}
