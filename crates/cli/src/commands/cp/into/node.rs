//! One file that is to be made, and where it comes from.

use crate::image_path::shown;
use crate::images::FileId;
use crate::time::TIMES;
use extant::{DeviceNumber, Escaped, FileType, Timestamp, WalkEntry};
use extant_image::ImageLocation;
use extant_mkfs::source::{NodeId, Tree};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a file comes from.
pub(in crate::commands) enum Origin {
    Host {
        path: PathBuf,
        /// Device and inode number, to notice if there is something else by now.
        id: FileId,
        how: Reading,
    },
    /// Standard input, which is read to its end.
    Input,
    Image {
        entry: WalkEntry,
        /// The image, for messages.
        image: Arc<ImageLocation>,
        /// Whether it is the destination's image.
        is_dest: bool,
    },
    /// What a source of `extant mkfs` holds, or a table makes.
    Tree(Told),
}

/// What a tree says that a file shall have.
#[derive(Clone)]
pub(in crate::commands) struct Told {
    pub(in crate::commands) tree: Arc<Tree>,
    pub(in crate::commands) id: NodeId,
}

/// How a file of the host is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Reading {
    /// It is a regular file, with holes.
    File,
    /// A regular file behind symbolic links, with holes.
    FollowedFile,
    /// A pipe or device, to its end.
    Stream,
}

/// A file or directory to make.
pub(in crate::commands) struct Node {
    pub(super) from: Origin,
    pub(super) to: PathBuf,
    /// The directory it goes into, by number; `None` if that was there before.
    pub(super) parent: Option<usize>,
    pub(super) file_type: FileType,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) device: DeviceNumber,
    /// What else it shall have, in place of what it had.
    pub(super) told: Option<Told>,
    /// Its number among what is made after the rest, from one on; zero if it is not.
    pub(super) late: usize,
}

impl Node {
    /// A file that is as a tree says.
    pub(in crate::commands) fn of_tree(told: Told, to: PathBuf, parent: Option<usize>) -> Self {
        let node = told.tree.node(told.id);
        let (major, minor) = node.rdev().unwrap_or_default();
        let mut made = Self {
            from: Origin::Tree(told.clone()),
            to,
            parent,
            file_type: node.kind(),
            permissions: 0,
            uid: 0,
            gid: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            device: DeviceNumber { major, minor },
            told: None,
            late: 0,
        };
        made.tell(told);
        made
    }

    /// Where it is made.
    pub(in crate::commands) fn place(&self) -> &Path {
        &self.to
    }

    /// What is known of it, if it is a file of an image.
    pub(in crate::commands) fn metadata(&self) -> Option<extant::Metadata> {
        match &self.from {
            Origin::Image { entry, .. } => Some(entry.metadata()),
            Origin::Host { .. } | Origin::Input | Origin::Tree(_) => None,
        }
    }

    /// Where it comes from, for messages.
    pub(super) fn shown_source(&self) -> String {
        match &self.from {
            Origin::Host { path, .. } => Escaped::path(path).to_string(),
            Origin::Input => "standard input".to_owned(),
            Origin::Image { entry, image, .. } => {
                format!("{}:{}", shown(image), Escaped::path(entry.path()))
            }
            Origin::Tree(Told { tree, id }) => Escaped::path(&tree.path(*id)).to_string(),
        }
    }

    /// Has it be as a tree says, but for its content.
    pub(super) fn tell(&mut self, told: Told) {
        let node = told.tree.node(told.id);
        self.permissions = node.mode & 0o7777;
        (self.uid, self.gid) = (node.uid, node.gid);
        let kept = |time: Timestamp| moment(time.secs, time.nanos.into());
        self.accessed = kept(node.times.atime());
        self.modified = kept(node.times.mtime());
        self.told = Some(told);
    }
}

/// A moment as ext4 can keep it.
pub(super) fn moment(secs: i64, nanos: i64) -> Timestamp {
    Timestamp {
        secs: secs.clamp(*TIMES.start(), *TIMES.end()),
        nanos: u32::try_from(nanos).unwrap_or(0),
    }
}
