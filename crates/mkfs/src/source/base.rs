//! What lies below all sources where they are put over a file system that is there, and what a tree
//! says of it.
//!
//! A tree over a file system has the files that the sources bring, and of those that are there only
//! the ones that were met: the directories on the way, what is replaced, what gets another name.
//! All others stay as they are.

use std::collections::HashMap;
use std::fmt::Debug;

use super::builder::{Meta, cleaned};
use super::model::{FileType, NodeId, Tree};

/// A file system that is there, looked into name by name. Paths are names from its root, joined by
/// `/`, and lead through directories alone; the root is an empty path.
pub trait Base: Debug + Send + Sync {
    /// Returns the file at a path, which is not followed.
    ///
    /// # Errors
    ///
    /// A sentence about what cannot be read.
    fn find(&self, path: &[u8]) -> Result<Option<Standing>, String>;

    /// Returns the names in a directory, in any order.
    ///
    /// # Errors
    ///
    /// A sentence about what cannot be read.
    fn names(&self, path: &[u8]) -> Result<Vec<Box<[u8]>>, String>;

    /// Returns the first `most` bytes of a regular file.
    ///
    /// # Errors
    ///
    /// A sentence about what cannot be read.
    fn content(&self, path: &[u8], most: u64) -> Result<Vec<u8>, String>;
}

/// A file that is there.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What tells it apart from others: names of one file have one number.
    pub number: u64,
    /// What it is.
    pub kind: FileType,
    /// What every kind has.
    pub meta: Meta,
    /// Of a regular file, in bytes.
    pub size: u64,
    /// Of a symbolic link.
    pub target: Vec<u8>,
    /// Of a device.
    pub device: (u32, u32),
}

/// What is known of a file of a tree that is there.
#[derive(Clone, Debug)]
pub(crate) struct Stands {
    pub(crate) number: u64,
    /// The path that it was found at.
    pub(crate) path: Box<[u8]>,
    /// Whether a source says what it shall have.
    pub(crate) is_described: bool,
}

/// How a tree lies over a file system.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) base: Box<dyn Base>,
    pub(crate) standing: HashMap<NodeId, Stands>,
    /// Names that sources take away.
    pub(crate) removed: Vec<(NodeId, Box<[u8]>)>,
}

/// A file of a tree that is there in the file system below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct There<'t> {
    /// Its number, as [`Standing::number`].
    pub number: u64,
    /// A path of it, as it was before.
    pub path: &'t [u8],
    /// Whether it is to get owner, permissions, times and attributes from the tree.
    pub is_described: bool,
}

impl Tree {
    /// Returns what is known of a node that is there in the file system below; `None` of one that
    /// is to be made.
    #[must_use]
    pub fn there(&self, id: NodeId) -> Option<There<'_>> {
        let stands = self.over.as_ref()?.standing.get(&id)?;
        Some(There {
            number: stands.number,
            path: &stands.path,
            is_described: stands.is_described,
        })
    }

    /// Returns the names that are taken away, each with its directory; a name may have been given
    /// anew since.
    pub fn removed(&self) -> impl Iterator<Item = (NodeId, &[u8])> {
        let removed = self.over.as_ref().map(|over| over.removed.iter());
        removed
            .into_iter()
            .flatten()
            .map(|(dir, name)| (*dir, &**name))
    }

    /// Returns the node at a path, through symbolic links to directories; one in the last place
    /// stands for itself.
    #[must_use]
    pub fn file_at(&self, path: &[u8]) -> Option<NodeId> {
        let mut names = self;
        match super::walk::file(&mut names, &cleaned(path)) {
            Ok(super::walk::Found::File(id)) => Some(id),
            _ => None,
        }
    }

    /// Whether a node has what a source or a table says, and not what the file system below has.
    pub(crate) fn is_given(&self, id: NodeId) -> bool {
        self.there(id).is_none_or(|there| there.is_described)
    }
}
