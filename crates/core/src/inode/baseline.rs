//! Which of the mechanisms of this room work as they did before they were improved, to compare
//! with.

/// Which mechanisms work as they did before they were improved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// One lock for all orphans, held while a change of the list is prepared.
    pub one_orphan_lock: bool,
    /// One lock for the hash table of inodes, lookups included, and one list of all inodes under
    /// another.
    pub one_inode_list: bool,
}

impl Baseline {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self {
            one_orphan_lock: true,
            one_inode_list: true,
        }
    }
}
