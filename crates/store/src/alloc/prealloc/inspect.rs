//! A look inside the allocator, for tests that compare it with models (feature `inspect`).

use super::FileState;
use crate::alloc::Alloc;
use crate::volume::Cluster;
use extant_format::Ino;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl FileState {
    /// Lists what the file keeps ready: logical cluster and clusters of each run.
    pub fn preallocated_runs(&self) -> Vec<(u32, u32)> {
        let kept = self.kept.read();
        kept.tree.iter().map(|(at, (_, len))| (at, len)).collect()
    }

    /// Forgets where the last clusters went.
    pub fn forget_last(&self) {
        self.last.forget();
    }
}

impl Alloc {
    /// Gives back what is kept ready for small files of any inode.
    pub fn give_small_files_back(&self) {
        self.give_all_back(self.prealloc.locality.drain());
    }

    /// Takes out what is kept ready for small files, as runs, which are then the caller's.
    pub fn drain_small_files(&self) -> Vec<(Cluster, u32)> {
        self.prealloc.locality.drain()
    }

    /// Gives such runs back.
    pub fn give_runs_back(&self, runs: Vec<(Cluster, u32)>) {
        self.give_all_back(runs);
    }

    /// Counts the clusters that files keep ready.
    pub fn clusters_of_files(&self) -> u64 {
        let of_file = |state: Arc<FileState>| -> u64 {
            let runs = state.preallocated_runs();
            runs.iter().map(|(_, len)| u64::from(*len)).sum()
        };
        self.prealloc.files.all().map(of_file).sum()
    }

    /// Returns the goal of a file that has none of its own yet, if its inode has one.
    pub fn goal_of_inode(&self, ino: Ino) -> Option<u32> {
        let goal = self.prealloc.goals.of(ino)?;
        Some(goal.load(Ordering::Relaxed))
    }
}
