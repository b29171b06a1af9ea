//! How many threads make files.
//!
//! A thread that waits for a device far away costs nothing, so there are many where files have to
//! be read from there: those to copy, or the directories that they go into. Making files in
//! directories that are new reads nothing: it takes a processor, and more threads than there are of
//! those take it from the ones that send what was written.

use super::plan::Start;
use crate::time::is_reproducible;
use extant::Filesystem;
use extant_core::ops;
use std::sync::OnceLock;

/// Files that one thread more is worth.
const FILES_PER_THREAD: usize = 32;
/// Blocks, each read by itself, that one more is worth.
const READS_PER_THREAD: usize = 4;
/// Threads at most, unless more are asked for, that mostly wait for a device that is far.
const MOST_FAR: usize = 32;

/// How many threads there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Threads {
    /// Those that are worth having where each of them works, besides those for processors.
    working: usize,
    /// Those where they wait for the destination.
    waiting: usize,
    /// Whether there may be as many as there are processors.
    is_by_processors: bool,
}

impl Threads {
    /// As many as are asked for; 0 for as many as are worth having.
    pub(super) fn of(asked: usize, dest: &Filesystem, starts: &[Start]) -> Self {
        let all = |count| Self {
            working: count,
            waiting: count,
            is_by_processors: false,
        };
        if is_reproducible() {
            return all(1);
        }
        if asked > 0 {
            return all(asked);
        }
        let far = |fs: &Filesystem| ops::in_flight(fs.engine()).min(MOST_FAR);
        let sources = starts.iter().filter_map(|start| match start {
            Start::Image { fs, .. } => Some(far(fs)),
            Start::Host(_) | Start::Input => None,
        });
        let working = sources.max().unwrap_or(1);
        Self {
            working,
            waiting: working.max(far(dest)),
            is_by_processors: true,
        }
    }

    /// Those where each of them works. One makes a few files, however many processors there are.
    fn working(self, files: usize) -> usize {
        if self.is_by_processors && files > FILES_PER_THREAD {
            self.working.max(processors())
        } else {
            self.working
        }
    }

    /// As many as there are for so many files at most.
    pub(super) fn most(self, files: usize) -> usize {
        self.working(files).max(self.waiting)
    }

    /// How many make so many files, for which `reads` says how many blocks of the destination are
    /// read.
    pub(super) fn for_files(self, files: usize, reads: impl FnOnce() -> usize) -> usize {
        let working = self.working(files).min(files.div_ceil(FILES_PER_THREAD));
        if self.waiting <= working {
            return working.max(1);
        }
        let waiting = self.waiting.min(reads().div_ceil(READS_PER_THREAD));
        working.max(waiting).max(1)
    }
}

/// Processors that may be used, which takes many files of the system to find out.
fn processors() -> usize {
    static FOUND: OnceLock<usize> = OnceLock::new();
    *FOUND.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_wait_and_few_work() {
        let threads = Threads {
            working: 2,
            waiting: 32,
            is_by_processors: false,
        };
        for (files, reads, expected) in [
            (0, 0, 1),
            (32, 0, 1),
            (33, 0, 2),
            (10_000, 0, 2),
            (10_000, 8, 2),
            (10_000, 40, 10),
            (10_000, 10_000, 32),
        ] {
            assert_eq!(
                threads.for_files(files, || reads),
                expected,
                "{files} {reads}"
            );
        }
    }
}
