//! The user that this thread takes space for.

use crate::alloc::Spending;
use crate::fs::Fs;
use crate::inode::Caller;

impl Fs {
    /// Has the space that this thread takes until the result is dropped paid from what `caller` may
    /// have: the blocks that the superblock reserves only if they are reserved for that user or one
    /// of the groups. Operations that are told for which user they [act](crate::ops::OpContext) do
    /// that by themselves; this is for callers that check permissions otherwise. Results are
    /// dropped in the reverse order in which they were made.
    pub fn spending_for(&self, caller: &Caller) -> Spending {
        let (user, group) = self.superblock().reserved_for();
        // Group 0 is no group that blocks are reserved for, but stands for none.
        let has_reserve =
            caller.uid == 0 || caller.uid == user || (group != 0 && caller.is_in(group));
        Spending::new(self.alloc_if_any(), has_reserve, caller.uid != 0)
    }
}
