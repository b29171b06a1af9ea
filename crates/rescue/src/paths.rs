//! Paths of what was deleted.

use crate::DeletedName;
use crate::candidate::Candidate;
use crate::names::{Found, Names, Owner, is_plain};
use crate::timeline::{Key, Moment, Timeline};
use crate::tree::{MOST_OF_PATH, Tree};
use crate::volume::Volume;
use extant_format::Ino;
use extant_format::inode::FileType;
use std::collections::HashMap;

/// Deleted directories on the way to a file, at most.
const MOST_DEPTH: usize = 64;
/// Names that are told of one file.
pub(crate) const MOST_TOLD: usize = 8;

/// Paths of what was deleted.
pub(crate) struct Paths<'a> {
    timeline: &'a Timeline,
    tree: &'a Tree,
    pub(crate) names: &'a Names,
    candidates: &'a [Candidate],
    by_number: HashMap<Ino, Vec<usize>>,
}

impl<'a> Paths<'a> {
    pub(crate) fn new(
        timeline: &'a Timeline,
        tree: &'a Tree,
        names: &'a Names,
        candidates: &'a [Candidate],
    ) -> Self {
        let mut by_number: HashMap<Ino, Vec<usize>> = HashMap::new();
        for (i, found) in candidates.iter().enumerate() {
            by_number.entry(found.ino).or_default().push(i);
        }
        Self {
            timeline,
            tree,
            names,
            candidates,
            by_number,
        }
    }

    /// The names of a deleted file.
    pub(crate) fn of(&self, i: usize) -> Vec<DeletedName> {
        let Some(found) = self.candidates.get(i) else {
            return Vec::new();
        };
        let mut names: Vec<DeletedName> = Vec::new();
        for name in self.of_number(found.ino, Some(i)) {
            match names.iter_mut().find(|known| known.path == name.path) {
                Some(known) => known.is_sure |= name.is_sure,
                None => names.push(name),
            }
        }
        names.sort_by_key(|name| !name.is_sure);
        names.truncate(MOST_TOLD);
        names
    }

    /// The names that a number had while it was this candidate, or any.
    pub(crate) fn of_number(
        &self,
        ino: Ino,
        candidate: Option<usize>,
    ) -> impl Iterator<Item = DeletedName> + '_ {
        self.names.of(ino).iter().filter_map(move |found| {
            if candidate.is_some() && self.life_at(ino, found.at) != candidate {
                return None;
            }
            let mut path = self.directory(found.dir, found.at, 0)?;
            if !is_plain(&found.name) {
                return None;
            }
            if path != b"/" {
                path.push(b'/');
            }
            path.extend_from_slice(&found.name);
            if path.len() > MOST_OF_PATH || !self.tree.may_tell(path.len()) {
                return None;
            }
            let at = found.at.filter(|_| candidate.is_some());
            let is_sure = at.is_some_and(|at| self.timeline.unbroken.contains(&at));
            Some(DeletedName { path, is_sure })
        })
    }

    /// Which deleted file a number was at a moment; without one, the last.
    fn life_at(&self, ino: Ino, at: Option<Moment>) -> Option<usize> {
        let mine = self.by_number.get(&ino)?;
        let of_key = |key: Key| {
            let is_it = |i: &&usize| self.candidates.get(**i).is_some_and(|c| c.key == key);
            mine.iter().rfind(is_it).copied()
        };
        let Some(at) = at else {
            return mine.last().copied();
        };
        let Some(lives) = self.timeline.lives.get(&ino) else {
            return mine.last().copied();
        };
        let life = lives
            .iter()
            .find(|life| life.gone.is_none_or(|gone| gone > at))?;
        of_key(life.key)
    }

    /// The path of a directory, in use or deleted.
    fn directory(&self, ino: Ino, at: Option<Moment>, depth: usize) -> Option<Vec<u8>> {
        if self.tree.is_directory(ino) {
            return self.tree.path(ino);
        }
        if depth >= MOST_DEPTH {
            return None;
        }
        let own = self.life_at(ino, at);
        let names = self.names.of(ino);
        let of_life = |found: &&Found| own.is_some() && self.life_at(ino, found.at) == own;
        let best = names
            .iter()
            .filter(of_life)
            .max_by_key(|found| found.at)
            .filter(|found| found.dir != ino && is_plain(&found.name))?;
        let mut path = self.directory(best.dir, best.at, depth + 1)?;
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(&best.name);
        Some(path)
    }
}

/// The blocks of deleted directories, sorted.
pub(crate) fn former_directories(volume: &Volume, candidates: &[Candidate]) -> Vec<(u64, Owner)> {
    let mut blocks = Vec::new();
    // As many as there are, however often they are claimed.
    let mut left = volume.blocks_on_device();
    for found in candidates {
        if found.inode.file_type() != Some(FileType::Directory) {
            continue;
        }
        let owner = Owner {
            ino: found.ino,
            generation: found.key.generation,
            flags: found.inode.flags,
        };
        let end = volume.block_size().blocks_for(found.inode.size);
        for run in &found.runs {
            let len = u64::from(run.len).min(end.saturating_sub(u64::from(run.lblk)));
            let len = len.min(left);
            left -= len;
            blocks.extend((run.pblk..run.pblk + len).map(|block| (block, owner)));
        }
    }
    blocks.sort_unstable_by_key(|(block, _)| *block);
    blocks
}
