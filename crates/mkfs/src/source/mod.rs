//! What an image is filled from: directories, tar streams, container images, other images.
//!
//! | module | owns |
//! |---|---|
//! | [`model`] | [`Tree`]: every name, inode and data extent of a source, compact and in canonical order |
//! | `rows` | nodes as they are kept: what many have alike once |
//! | [`builder`] | [`TreeBuilder`]: collects nodes in any order, puts them in canonical order |
//! | [`data`] | [`FileData`]: reading the bytes of a regular file, noticing a change under our feet |
//! | `root` | opening files beneath the root of a directory |
//! | [`directory`] | scanning a directory, in parallel |
//! | [`tar`] | reading a tar archive, plain or compressed, from a file or a stream |
//! | [`image`] | files of other images, which something else reads |
//! | `stack` | sources over sources |
//! | `base` | a file system that is there, below all sources |
//! | `origin` | how a source is named |
//! | `oci` | container images: which layers, whether they are what they should be |
//! | `container` | recognising container images, and single layers |
//! | `whiteout` | names that say what lower layers lose |
//! | `packed` | archives that are compressed |
//! | `spool` | unnamed files for what cannot be read in place |
//! | `concerns` | what is not kept, or will surprise |
//! | [`exclude`] | [`Excludes`]: patterns for what stays out |
//! | `glob` | patterns for paths |
//! | `matching` | which files of a tree patterns mean |
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
mod base;
pub mod builder;
mod concerns;
mod container;
pub mod data;
pub mod directory;
pub(crate) mod edit;
pub mod error;
pub mod exclude;
pub(crate) mod glob;
pub mod image;
mod matching;
pub mod model;
pub mod normalise;
mod oci;
mod origin;
mod packed;
mod root;
mod rows;
mod spool;
mod stack;
pub mod tar;
pub(crate) mod walk;
mod whiteout;

pub use additions::Addition;
pub use base::{Base, Standing, There};
pub use builder::{Content, Meta, Stored, TreeBuilder};
pub use data::FileData;
pub use directory::{ScanOptions, scan_directory};
pub use error::{SourceError, SourceResult};
pub use exclude::Excludes;
pub use image::{ImageFiles, ImageReader};
pub use model::{
    Data, DataExtent, Entry, Extents, FileType, Identity, Node, NodeId, Times, Timestamp, Tree,
    Xattr,
};
pub use normalise::{Normalisation, Owner, TimePolicy};
pub use oci::Platform;
pub use origin::Source;
pub use stack::{Gathered, read_sources, read_sources_over};
pub use tar::{TarOptions, read_tar, read_tar_stream};
pub use whiteout::Whiteouts;

use std::path::{Path, PathBuf};

/// How to read sources.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SourceOptions {
    /// What stays out.
    pub excludes: Excludes,
    /// How many threads read; by default those of the surrounding thread pool.
    pub threads: Option<std::num::NonZero<usize>>,
    /// Where data of an archive goes that cannot be read in place; by default the system's
    /// directory for temporary files. See [`TarOptions::spool_dir`].
    pub spool_dir: Option<PathBuf>,
    /// What becomes of whiteouts. By default they are applied, and a lone directory or archive with
    /// one is refused.
    pub whiteouts: Option<Whiteouts>,
    /// Which of the images of an index; by default the only one.
    pub platform: Option<Platform>,
    /// Leaves it to what makes the image to compare layers with their digests that are read where
    /// they are: [`build`](crate::build) does so while it writes, and
    /// [`PlannedDevice::new`](crate::PlannedDevice::new) before anything is read. Until then a tree
    /// is not known to be what the image says, and an image that is made in place of something has
    /// taken its place when a layer turns out to be damaged.
    pub digests_later: bool,
}

/// Reads a source: a directory, or else an archive (`-` is one on the standard input), or the
/// container image in it.
///
/// # Errors
///
/// Those of [`read_sources`].
pub fn read_source(path: &Path, options: SourceOptions) -> SourceResult<Tree> {
    Ok(read_sources(&[Source::at(path)], &options)?.tree)
}
