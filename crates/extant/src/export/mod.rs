//! Taking many files out of an image: to a directory (on Linux), or as a tar archive.
//!
//! | module | owns |
//! |---|---|
//! | `plan` | what is to be made, found by one walk and put in the order of the disk |
//! | `target` | the destination: directories by descriptor, never by path |
//! | `create` | making one file and filling it, beside an older one if there is one |
//! | `large` | the content of large files of images behind servers |
//! | `attributes` | giving it what it had besides content |
//! | `older` | what the file had that it takes the place of |
//! | `missing` | what it could not be given |
//! | `gaps` | what of its content could not be read |
//! | `staged` | files made under numbers, to be put in their places later, and attributes alone |
//! | `directory` | [`to_directory`]: plan, directories, files by all threads, links, directories' attributes |
//! | `to_host` | how that is done, and what came of it |
//! | `tar` | [`to_tar`]: a pax archive, [`to_layer`]: a layer of a container image |
//!
//! # Invariants
//!
//! - Nothing is ever made outside the destination, whatever names, links or loops the image holds:
//!   every step goes one checked name down from a held descriptor, never through a symbolic link,
//!   and whatever is made is made new.
//! - What could not be done is in the [`Report`]; nothing is left out in silence.
//! - Content counts for more than anything else: a file whose owner, mode, attribute or time cannot
//!   be set is there, whole, and the report says what it lacks.
//! - An older file is replaced by a rename once the new one is complete, and stays whatever fails
//!   before. Where nothing is kept of the image's file, the new one has what the older one had
//!   besides content.
//! - The host is asked through the C library, so that `fakeroot` and `pseudo` are heard.
//! - Memory grows with the number of names, not with the amount of data, and the amount of data is
//!   bounded by the size of the file system.

#[cfg(target_os = "linux")]
mod attributes;
#[cfg(target_os = "linux")]
mod create;
#[cfg(target_os = "linux")]
mod directory;
mod gaps;
#[cfg(target_os = "linux")]
mod large;
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
mod missing;
#[cfg(target_os = "linux")]
mod older;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod staged;
mod tar;
#[cfg(target_os = "linux")]
mod target;
#[cfg(target_os = "linux")]
mod to_host;

#[cfg(target_os = "linux")]
pub(crate) use directory::count;
#[cfg(target_os = "linux")]
pub use directory::to_directory;
pub use gaps::Unread;
pub use missing::{Attribute, Missing};
#[cfg(target_os = "linux")]
pub(crate) use plan::Top;
#[cfg(target_os = "linux")]
pub(crate) use staged::{Described, Staging, path_of, split};
pub use tar::{LayerOptions, TarOptions, TarReport, to_layer, to_tar, to_tar_of, to_tar_with};
#[cfg(target_os = "linux")]
pub(crate) use target::open_below;
#[cfg(target_os = "linux")]
pub use to_host::{Existing, ExportOptions, MadeFile, Preserve, Report};

use crate::Error;

/// What a report keeps of what went wrong; more is only counted.
const MOST_PROBLEMS: usize = 1000;

/// Tells whether a file is left out, a directory with all that is in it: by its names from the
/// start on, and whether it is a directory.
pub type LeaveOut<'a> = dyn Fn(&[&[u8]], bool) -> bool + Sync + 'a;

/// Takes the name of a member of an archive that was written.
pub type MadeMember<'a> = dyn Fn(&[u8]) + 'a;

/// How far an export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// What there is to do is known.
    Planned {
        /// Files, links and directories.
        files: u64,
        /// Bytes of content.
        bytes: u64,
    },
    /// So much has been done since the last call from this thread.
    Done {
        /// Files, links and directories.
        files: u64,
        /// Bytes of content.
        bytes: u64,
    },
}

/// Sees to it that files can be copied from where they lie.
fn write_back(fs: &crate::Filesystem, path: &std::path::Path) -> crate::Result<()> {
    let written = fs.fs().write_back();
    written.map_err(|e| Error::engine(path, e))
}

/// Bytes of content that files of a file system can hold together. Only file systems whose files
/// share blocks, which say so, have more.
fn data_limit(fs: &extant_core::fs::Fs) -> u64 {
    use extant_format::features::RoCompat;
    if fs.superblock().has_ro_compat(RoCompat::SHARED_BLOCKS) {
        return u64::MAX;
    }
    fs.geometry()
        .blocks_count()
        .saturating_mul(fs.block_size().bytes().into())
}
