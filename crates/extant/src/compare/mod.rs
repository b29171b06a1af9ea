//! What differs between two trees: of images, of directories of the host, or one of each.
//!
//! | file | owns |
//! |---|---|
//! | `side` | one of the two trees: its directories, and what is known of its files |
//! | `host` | directories and files of the host, on Linux |
//! | `no_host` | what stands for them elsewhere |
//! | `difference` | [`Difference`]: what is told |
//! | `aspects` | [`Aspects`]: what is compared |
//! | `attributes` | what one file has besides content, compared |
//! | `tree` | [`compare`]: pairs of directories, in the order in which they are told |
//! | `content` | the content of many pairs of files, by all threads and in the order of the disk |
//! | `stream` | that of a pair which the device does not have as it is |
//!
//! # Invariants
//!
//! - What is told depends on the two trees alone, and not on threads: the names of a directory come
//!   in order of their bytes, and before those of the directories in it.
//! - Memory has the names of some directories at a time, those of directories on the way, and a row
//!   for each file with several names; content passes through buffers of one size.
//! - Of images that are open for reading content is compared where it lies: pieces that lie beside
//!   each other in both are read together, whatever files they belong to. Holes and blocks that
//!   were never written are zeros, and not read.
//! - What cannot be read is in the [`Report`]; nothing is taken for the same that was not compared.

mod aspects;
mod attributes;
mod content;
mod difference;
#[cfg_attr(not(target_os = "linux"), path = "no_host.rs")]
mod host;
mod side;
mod stream;
mod tree;

pub use aspects::Aspects;
pub(crate) use content::by_all;
pub use difference::{Difference, What, Which};
pub use side::Side;
pub use tree::compare;

use crate::Error;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Problems kept in a [`Report`]; more are only counted.
const MOST_PROBLEMS: usize = 1000;

/// Whether something is left out: its path below the start, and whether it is a directory on one of
/// the two sides.
pub type Exclude<'a> = &'a (dyn Fn(&Path, bool) -> bool + Sync);

/// How [`compare`] works. Made with [`CompareOptions::new`], changed field by field.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct CompareOptions<'a> {
    /// What is compared besides names and kinds.
    pub aspects: Aspects,
    /// Whether content is taken for the same where size and time of the last change are, and read
    /// only where the time differs. Otherwise all content is read.
    pub trust_times: bool,
    /// Threads; 0 for one per processor, and more where the device is far.
    pub threads: usize,
    /// What is left out, with everything below it.
    pub exclude: Option<Exclude<'a>>,
}

impl CompareOptions<'_> {
    /// Makes options that compare what `aspects` says, and read all content for that.
    #[must_use]
    pub fn new(aspects: Aspects) -> Self {
        Self {
            aspects,
            trust_times: false,
            threads: 0,
            exclude: None,
        }
    }
}

impl fmt::Debug for CompareOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompareOptions")
            .field("aspects", &self.aspects)
            .field("trust_times", &self.trust_times)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// What a comparison did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Names that both sides have.
    pub common: u64,
    /// Bytes of content that were compared, holes not counted.
    pub bytes: u64,
    /// Differences that were told.
    pub differences: u64,
    /// Whether it ended before everything was compared, because it was told to.
    pub is_cut_short: bool,
    /// What could not be read, the first thousand, each with its side.
    pub problems: Vec<(Which, Error)>,
    /// How much could not be read.
    pub problem_count: u64,
    /// The first names, of those on both sides, of files of the first side with several names.
    first_names: HashMap<(u64, u64), PathBuf>,
}

impl Report {
    /// Returns the files of the first side with several names: device and inode number (of an image
    /// 0 and inode number), and the first of the names that both sides have, as in
    /// [`Difference::path`].
    pub fn first_names(&self) -> impl Iterator<Item = ((u64, u64), &Path)> {
        let names = self.first_names.iter();
        names.map(|(number, path)| (*number, path.as_path()))
    }

    fn problem(&mut self, side: Which, problem: Error) {
        self.problem_count += 1;
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push((side, problem));
        }
    }
}
