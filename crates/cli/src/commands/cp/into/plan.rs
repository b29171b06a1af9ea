//! What is to be made, and where: all sources walked before the first change.

use super::Keep;
use crate::failure::{Failure, Outcome, say};
use crate::image_path::ImagePath;
use crate::images::{FileId, Problems};
use crate::time::TIMES;
use extant::{DeviceNumber, Escaped, FileType, Filesystem, Timestamp, WalkEntry};
use extant_image::ImageLocation;
use extant_mkfs::source::{NodeId, Tree};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Permissions of a file made from a pipe or device, which has none of its own to hand down.
const STREAM_MODE: u16 = 0o644;

/// A source as the command line names it.
pub(super) enum Start {
    Host(PathBuf),
    Image {
        /// As it was named.
        from: ImagePath,
        fs: Filesystem,
        /// What is copied: with links at the end followed, if they are.
        path: PathBuf,
        /// Whether it is the destination's image.
        is_dest: bool,
    },
}

impl Start {
    /// The path that the copy is named after.
    pub(super) fn name(&self) -> &Path {
        match self {
            Self::Host(path) => path,
            Self::Image { from, .. } => &from.path,
        }
    }
}

/// Where a file comes from.
pub(in crate::commands) enum Origin {
    Host {
        path: PathBuf,
        /// Device and inode number, to notice if there is something else by now.
        id: FileId,
        how: Reading,
    },
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
            Origin::Host { .. } | Origin::Tree(_) => None,
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

/// A further name of a file.
pub(in crate::commands) struct Link {
    pub(in crate::commands) first: PathBuf,
    pub(in crate::commands) to: PathBuf,
    pub(in crate::commands) parent: Option<usize>,
}

/// What tells a source's files apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Identity {
    Host(FileId),
    Image(Arc<ImageLocation>, u32),
}

pub(in crate::commands) struct Plan {
    /// Parents before their children.
    pub(in crate::commands) dirs: Vec<Node>,
    pub(in crate::commands) files: Vec<Node>,
    pub(in crate::commands) links: Vec<Link>,
    /// Bytes of content.
    pub(in crate::commands) bytes: u64,
    is_recursive: bool,
    keep: Keep,
    /// The first places of files that have several names.
    first_places: HashMap<Identity, PathBuf>,
    /// Files that hold the images in use, which are not copied.
    images: Vec<FileId>,
}

impl Plan {
    /// A plan to make files of trees, which is empty so far.
    pub(in crate::commands) fn of_trees() -> Self {
        Self::new(true, Keep::all(), Vec::new())
    }

    pub(super) fn new(is_recursive: bool, keep: Keep, images: Vec<FileId>) -> Self {
        Self {
            dirs: Vec::new(),
            files: Vec::new(),
            links: Vec::new(),
            bytes: 0,
            is_recursive,
            keep,
            first_places: HashMap::new(),
            images,
        }
    }

    /// Notes that a file of the host, by device and inode number, is at a place already, so that
    /// further names are given to that.
    pub(in crate::commands) fn stays_of_host(&mut self, id: FileId, at: PathBuf) {
        self.first_places.insert(Identity::Host(id), at);
    }

    /// Notes that a file of an image is at a place already.
    pub(in crate::commands) fn stays_of_image(
        &mut self,
        image: &Arc<ImageLocation>,
        ino: u32,
        at: PathBuf,
    ) {
        let identity = Identity::Image(Arc::clone(image), ino);
        self.first_places.insert(identity, at);
    }

    /// Adds a source and what is below it.
    pub(super) fn add(&mut self, start: &Start, to: PathBuf, problems: &mut Problems) -> Outcome {
        match start {
            Start::Host(path) => self.add_host(path, to, problems),
            Start::Image { .. } => self.add_image(start, to, problems),
        }
    }

    pub(super) const fn keeps_xattrs(&self) -> bool {
        self.keep.xattrs
    }

    fn refuse_directory(&self, shown: impl std::fmt::Display) -> Outcome {
        if self.is_recursive {
            Ok(())
        } else {
            Err(Failure::new(format!(
                "{shown} is a directory: copy it with -r, or with -a to keep owners, times and links"
            )))
        }
    }

    fn add_host(&mut self, start: &Path, to: PathBuf, problems: &mut Problems) -> Outcome {
        let found = if self.is_recursive {
            start.symlink_metadata()
        } else {
            start.metadata()
        };
        let found = found.map_err(|e| cannot("read", start, &e))?;
        if found.is_dir() {
            self.refuse_directory(Escaped::path(start))?;
        }
        if self.images.contains(&id(&found)) {
            return Err(Failure::new(format!(
                "{} is the image itself, which cannot be copied into itself",
                Escaped::path(start)
            )));
        }
        // Depth on the heap; the next one last.
        let mut rest = vec![(start.to_owned(), to, None, Some(found))];
        while let Some((path, to, parent, found)) = rest.pop() {
            let found = match found.map_or_else(|| path.symlink_metadata(), Ok) {
                Ok(found) => found,
                Err(e) => {
                    problems.note(cannot("read", &path, &e));
                    continue;
                }
            };
            if self.images.contains(&id(&found)) {
                say(format_args!(
                    "note: {} is the image itself and was left out",
                    Escaped::path(&path)
                ));
                continue;
            }
            let is_dir = found.is_dir();
            let number = self.add_host_node(&path, to.clone(), parent, &found);
            if is_dir {
                match names_in(&path) {
                    Ok(names) => rest.extend(
                        names
                            .into_iter()
                            .rev()
                            .map(|name| (path.join(&name), to.join(&name), number, None)),
                    ),
                    Err(e) => problems.note(cannot("read the directory", &path, &e)),
                }
            }
        }
        Ok(())
    }

    /// Adds one file of the host. Returns its number if it is a directory.
    pub(in crate::commands) fn add_host_node(
        &mut self,
        path: &Path,
        to: PathBuf,
        parent: Option<usize>,
        found: &Metadata,
    ) -> Option<usize> {
        let mut file_type = host_type(found);
        let mut permissions = (found.mode() & 0o7777) as u16;
        let mut how = if self.is_recursive {
            Reading::File
        } else {
            Reading::FollowedFile
        };
        let is_stream = !self.is_recursive && file_type != FileType::Regular;
        if is_stream {
            (file_type, permissions, how) = (FileType::Regular, STREAM_MODE, Reading::Stream);
        }
        let number = found.rdev();
        let node = Node {
            from: Origin::Host {
                path: path.to_owned(),
                id: id(found),
                how,
            },
            to,
            parent,
            file_type,
            permissions,
            uid: found.uid(),
            gid: found.gid(),
            accessed: moment(found.atime(), found.atime_nsec()),
            modified: moment(found.mtime(), found.mtime_nsec()),
            device: DeviceNumber {
                major: rustix::fs::major(number),
                minor: rustix::fs::minor(number),
            },
            told: None,
        };
        let bytes = match how {
            Reading::Stream => 0,
            // What is a hole takes no time.
            _ => found.len().min(found.blocks().saturating_mul(512)),
        };
        self.add_node(node, Identity::Host(id(found)), found.nlink(), bytes)
    }

    fn add_image(&mut self, start: &Start, to: PathBuf, problems: &mut Problems) -> Outcome {
        let Start::Image {
            from,
            fs,
            path,
            is_dest,
        } = start
        else {
            return Ok(());
        };
        let image: Arc<ImageLocation> = Arc::new(from.image.clone());
        // The directories that lead to what comes next.
        let mut above: Vec<(PathBuf, Option<usize>)> = Vec::new();
        let mut walk = fs.walk(path).map_err(|e| from.failure(&e))?.whole();
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    problems.note(from.failure(&e));
                    continue;
                }
            };
            let depth = entry.depth();
            if depth == 0 && entry.file_type() == FileType::Directory {
                self.refuse_directory(from.shown())?;
            }
            above.truncate(depth);
            let (to, parent) = match above.last() {
                None => (to.clone(), None),
                Some((dir, number)) => (dir.join(entry.file_name()), *number),
            };
            if let Err(e) = entry.check_name() {
                problems.note(from.failure(&e));
                walk.skip_children();
                continue;
            }
            let is_dir = entry.file_type() == FileType::Directory;
            let number = self.add_image_node(entry, &image, *is_dest, to.clone(), parent);
            if is_dir {
                above.push((to, number));
            }
        }
        Ok(())
    }

    pub(in crate::commands) fn add_image_node(
        &mut self,
        entry: WalkEntry,
        image: &Arc<ImageLocation>,
        is_dest: bool,
        to: PathBuf,
        parent: Option<usize>,
    ) -> Option<usize> {
        let found = entry.metadata();
        let node = Node {
            from: Origin::Image {
                entry,
                image: Arc::clone(image),
                is_dest,
            },
            to,
            parent,
            file_type: found.file_type(),
            permissions: found.mode().permissions(),
            uid: found.uid(),
            gid: found.gid(),
            accessed: found.atime(),
            modified: found.mtime(),
            device: found.rdev().unwrap_or_default(),
            told: None,
        };
        let identity = Identity::Image(Arc::clone(image), found.ino());
        let bytes = found.len().min(found.blocks().saturating_mul(512));
        self.add_node(node, identity, found.nlink().into(), bytes)
    }

    fn add_node(
        &mut self,
        node: Node,
        identity: Identity,
        names: u64,
        bytes: u64,
    ) -> Option<usize> {
        if node.file_type == FileType::Directory {
            self.dirs.push(node);
            return Some(self.dirs.len() - 1);
        }
        if self.keep.everything && names > 1 {
            if let Some(first) = self.first_places.get(&identity) {
                self.links.push(Link {
                    first: first.clone(),
                    to: node.to,
                    parent: node.parent,
                });
                return None;
            }
            self.first_places.insert(identity, node.to.clone());
        }
        if node.file_type == FileType::Regular {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        self.files.push(node);
        None
    }
}

pub(super) fn id(found: &Metadata) -> FileId {
    (found.dev(), found.ino())
}

fn cannot(action: &str, path: &Path, e: &std::io::Error) -> Failure {
    Failure::new(format!("cannot {action} {}: {e}", Escaped::path(path)))
}

/// The names in a directory, in order of their bytes.
pub(in crate::commands) fn names_in(path: &Path) -> std::io::Result<Vec<OsString>> {
    let mut names = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<std::io::Result<Vec<_>>>()?;
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(names)
}

pub(in crate::commands) fn host_type(found: &Metadata) -> FileType {
    let file_type = found.file_type();
    if file_type.is_dir() {
        FileType::Directory
    } else if file_type.is_symlink() {
        FileType::Symlink
    } else if file_type.is_char_device() {
        FileType::CharDevice
    } else if file_type.is_block_device() {
        FileType::BlockDevice
    } else if file_type.is_fifo() {
        FileType::Fifo
    } else if file_type.is_socket() {
        FileType::Socket
    } else {
        FileType::Regular
    }
}

/// A moment as ext4 can keep it.
fn moment(secs: i64, nanos: i64) -> Timestamp {
    Timestamp {
        secs: secs.clamp(*TIMES.start(), *TIMES.end()),
        nanos: u32::try_from(nanos).unwrap_or(0),
    }
}
