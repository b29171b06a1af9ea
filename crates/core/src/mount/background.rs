//! What the journal's thread does in a turn.

use crate::Result;
use crate::fs::Fs;
use crate::journal::{Due, Tail};
use std::sync::Arc;
use std::time::Duration;

impl Fs {
    /// Starts the journal's thread, for which a commit is due every `interval`.
    pub(super) fn start_journal_thread(self: &Arc<Self>, interval: Duration) -> Result<()> {
        let weak = Arc::downgrade(self);
        self.journal()?.start_background(interval, move |due| {
            let fs = weak.upgrade();
            if let Some(fs) = &fs {
                fs.tend(due);
            }
            fs.is_some()
        })
    }

    /// One turn of the thread. Errors stop the journal where they happen and reach the threads that
    /// wait.
    fn tend(&self, due: Due) {
        let Ok(journal) = self.journal() else { return };
        journal.write_reports();
        if let Some(_changing) = self.try_begin_change() {
            let _ = self.reap();
        }
        if due.commit {
            let _ = self.commit(journal.running());
        }
        if due.checkpoint {
            let _ = journal.checkpoint_with(Tail::NextCommit);
        }
    }
}
