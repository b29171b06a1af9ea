//! All files for which something is kept, so that it can be given back.
//!
//! A list holds on to what is kept, not to the inodes: what was kept for a file that has left
//! memory is given back when the list is gone through the next time.

use super::FileState;
use crate::alloc::Alloc;
use extant_sync::{LockClass, Mutex, PerCpu, Rank};
use std::sync::Arc;

static FILES: LockClass = LockClass::new("files with preallocations", Rank::Leaf);

/// Entries of a list before it is gone through.
const FEW: usize = 64;

/// The files, in a list for each CPU.
#[derive(Debug)]
pub(super) struct Files {
    lists: PerCpu<Mutex<List>>,
}

#[derive(Debug, Default)]
struct List {
    files: Vec<Arc<FileState>>,
    /// Entries from which on it is gone through.
    limit: usize,
}

impl Files {
    pub(super) fn new() -> Self {
        Self {
            lists: PerCpu::new(|_| Mutex::new(&FILES, List::default())),
        }
    }

    /// All files, list by list.
    pub(super) fn all(&self) -> impl Iterator<Item = Arc<FileState>> + '_ {
        self.lists.iter().flat_map(|list| {
            let files = list.lock().files.clone();
            files.into_iter()
        })
    }
}

impl Alloc {
    /// Adds a file.
    pub(super) fn list_file(&self, state: &Arc<FileState>) {
        let list = self.prealloc.files.lists.local();
        let mut locked = list.lock();
        locked.files.push(Arc::clone(state));
        if locked.files.len() <= locked.limit.max(FEW) {
            return;
        }
        let old = std::mem::take(&mut locked.files);
        drop(locked);
        let mut stay = Vec::with_capacity(old.len());
        for state in old {
            if Arc::strong_count(&state) == 1 {
                // The inode has left memory.
                self.give_all_back(state.drain());
                continue;
            }
            let mut kept = state.kept.write();
            kept.listed = !kept.tree.is_empty();
            let listed = kept.listed;
            drop(kept);
            if listed {
                stay.push(state);
            }
        }
        let mut locked = list.lock();
        locked.files.append(&mut stay);
        locked.limit = locked.files.len() * 2;
    }
}
