//! What an image is filled from: a directory or a tar stream.
//!
//! | module | owns |
//! |---|---|
//! | [`model`] | [`Tree`]: every name, inode and data extent of a source, compact and in canonical order |
//! | [`builder`] | [`TreeBuilder`]: collects nodes in any order, puts them in canonical order |
//! | [`data`] | [`FileData`]: reading the bytes of a regular file, noticing a change under our feet |
//! | `root` | opening files beneath the root of a directory |
//! | [`directory`] | scanning a directory, in parallel |
//! | [`tar`] | reading a tar archive, plain or compressed, from a file or a stream |
//! | `container` | container images, which are refused |
//! | `concerns` | what is not kept, or will surprise |
//! | [`exclude`] | [`Excludes`]: patterns for what stays out |
//! | `glob` | patterns for paths |
//! | `edit` | changing what the files of a tree have |
//! | `walk` | the directory that a path leads to, through symbolic links |
//! | [`additions`] | what is put into a tree beside what its sources hold |
//! | [`normalise`] | [`Normalisation`]: owners and times that do not depend on where and when |
//! | [`error`] | [`SourceError`]: what was wrong with which file or archive member |
//!
//! # Invariants
//!
//! * A [`Tree`] depends on what the source holds, never on the order in which names were found
//!   or on the number of threads that looked: two scans of the same source are equal.
//! * Names are valid for ext4: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`, unique within
//!   their directory. Directories have one name; everything else has one or more.
//! * Data is never held in memory (except [`Content::Inline`]): a node knows where its bytes are.

pub mod additions;
pub mod builder;
mod concerns;
mod container;
pub mod data;
pub mod directory;
pub(crate) mod edit;
pub mod error;
pub mod exclude;
pub(crate) mod glob;
pub mod model;
pub mod normalise;
mod root;
pub mod tar;
pub(crate) mod walk;

pub use additions::Addition;
pub use builder::{Content, Meta, TreeBuilder};
pub use data::FileData;
pub use directory::{ScanOptions, scan_directory};
pub use error::{SourceError, SourceResult};
pub use exclude::Excludes;
pub use model::{
    Data, DataExtent, Entry, Extents, FileType, Identity, Node, NodeId, Times, Timestamp, Tree,
    Xattr,
};
pub use normalise::{Normalisation, Owner, TimePolicy};
pub use tar::{TarOptions, read_tar, read_tar_stream};

use std::path::{Path, PathBuf};

/// How to read a source of either kind.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SourceOptions {
    /// What stays out.
    pub excludes: Excludes,
    /// How many threads scan a directory; by default those of the surrounding thread pool.
    pub threads: Option<std::num::NonZero<usize>>,
    /// Where data of an archive goes that cannot be read in place; by default the system's
    /// directory for temporary files. See [`TarOptions::spool_dir`].
    pub spool_dir: Option<PathBuf>,
}

/// Reads a source: a directory, or else an archive (`-` is one on the standard input).
///
/// # Errors
///
/// Those of [`scan_directory`] and [`read_tar`]; [`SourceError::NotASource`] for a container image.
pub fn read_source(path: &Path, options: SourceOptions) -> SourceResult<Tree> {
    if path.as_os_str() != "-" && path.is_dir() {
        let options = ScanOptions {
            excludes: options.excludes,
            threads: options.threads,
        };
        let tree = scan_directory(path, &options)?;
        container::check(&tree, path)?;
        return Ok(tree);
    }
    let options = TarOptions {
        excludes: options.excludes,
        spool_dir: options.spool_dir.unwrap_or_else(std::env::temp_dir),
    };
    let tree = read_tar(path, &options)?;
    container::check(&tree, path)?;
    Ok(tree)
}
