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
        let upto = due.is_time.then(|| journal.running()).or(due.commit);
        let commit = || upto.map(|upto| self.commit(upto));
        let checkpoint = || journal.checkpoint_with(Tail::NextCommit);
        if !due.checkpoint {
            let _ = commit();
        } else if upto.is_some() && self.device().in_flight() > 1 {
            // Both take round trips, and neither waits for the other.
            std::thread::scope(|scope| {
                let beside = std::thread::Builder::new().spawn_scoped(scope, checkpoint);
                let _ = commit();
                if beside.is_err() {
                    let _ = checkpoint();
                }
            });
        } else {
            let _ = commit();
            let _ = checkpoint();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MountOptions;
    use crate::meta::Seq;
    use extant_format::Ino;
    use extant_format::inode::Timestamp;
    use extant_testkit::crash::Content;
    use extant_testkit::oracle::mke2fs;
    use tempfile::TempDir;

    /// Changes something in the running transaction, which is returned.
    fn change(fs: &Fs, seconds: i64) -> Seq {
        let held = fs.hold(Ino::ROOT).unwrap();
        let handle = fs.start(4).unwrap();
        let stamp = |inode: &mut crate::inode::Inode| {
            inode.disk_mut().mtime = Timestamp::from_secs(seconds);
        };
        held.live().update(&handle, stamp).unwrap();
        handle.seq()
    }

    #[test]
    fn a_commit_that_another_thread_has_made_is_not_followed_by_one_of_the_next_transaction() {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("image");
        mke2fs(&image, 16 << 20, &["-b", "1024"]);
        let options = MountOptions::read_write().background(false);
        let fs = Fs::open(Content::of_file(&image).open(), options).unwrap();
        let commits = || fs.journal().unwrap().stats().commits;
        let due = |is_time, commit| Due {
            is_time,
            commit,
            checkpoint: false,
        };
        let asked_for = change(&fs, 1000);
        fs.commit(asked_for).unwrap();
        let running = change(&fs, 2000);
        let before = commits();
        fs.tend(due(false, Some(asked_for)));
        assert_eq!(commits(), before);
        fs.tend(due(false, Some(running)));
        assert_eq!(commits(), before + 1);
        change(&fs, 3000);
        fs.tend(due(true, Some(asked_for)));
        assert_eq!(commits(), before + 2);
    }
}
