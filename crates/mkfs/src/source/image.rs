//! Images of file systems as sources. What reads their format is given from outside: this crate has
//! no engine.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::builder::{Stored, TreeBuilder};
use super::data::DataStore;
use super::error::SourceResult;
use super::exclude::Excludes;
use super::model::{DataExtent, Tree};
use super::rows::Origin;

/// Reads the files of an image, or of a directory in one, into a tree.
pub trait ImageReader: fmt::Debug + Send + Sync {
    /// Reads all names and inodes but those that stay out, and makes a tree of them
    /// ([`TreeBuilder::finish_image`]).
    ///
    /// # Errors
    ///
    /// The image cannot be read, is damaged, or has something in it that cannot go into another.
    fn scan(&self, excludes: &Excludes) -> SourceResult<Tree>;
}

/// Gives the data of an image's files while another image is written, to many threads at once.
pub trait ImageFiles: fmt::Debug + Send + Sync {
    /// Fills `buf` with the bytes of the inode `ino` from `offset` on. All of them lie before the
    /// size that the scan found.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    fn read_at(&self, ino: u32, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Looks whether the image is what it was when it was scanned.
    ///
    /// # Errors
    ///
    /// It has changed, or cannot be asked.
    fn check(&self) -> io::Result<()>;
}

/// The reader of a source; equal to itself alone.
#[derive(Clone, Debug)]
pub(super) struct Reader(pub(super) Arc<dyn ImageReader>);

impl PartialEq for Reader {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Reader {}

impl<'a> Stored<'a> {
    /// Names the data of the inode `ino` of an image, of a file of this size. Extents are in
    /// ascending order, without overlap, and each says as its place (`at`) where it is in the file;
    /// what they do not cover is a hole.
    #[must_use]
    pub const fn of_image(ino: u32, size: u64, extents: &'a [DataExtent]) -> Self {
        Self {
            size,
            origin: Origin::Image { ino },
            extents: Some(extents),
        }
    }
}

impl TreeBuilder {
    /// Returns the tree of everything that can be reached from the root, with data that `files`
    /// gives. `name` is what errors call the image; `warnings` are sentences about what is not
    /// kept.
    ///
    /// # Errors
    ///
    /// As for [`finish`](Self::finish).
    pub fn finish_image(
        self,
        files: Arc<dyn ImageFiles>,
        name: PathBuf,
        warnings: Vec<String>,
    ) -> SourceResult<Tree> {
        let mut tree = self.finish_with(vec![DataStore::Image { files, name }])?;
        tree.warnings = warnings;
        Ok(tree)
    }
}
