//! What is to be made, and where: all sources walked before the first change.

use super::Keep;
use super::ahead::Ahead;
use super::node::moment;
pub(in crate::commands) use super::node::{Node, Origin, Reading, Told};
use super::rivals::{Rivals, Turn};
use crate::commands::cp::rules::{Exclusion, Follow};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{ImagePath, shown};
use crate::images::{FileId, Problems};
use crate::mode::ModeChange;
use crate::path::{follow, look_at_link};
use crate::time::now;
use extant::{DeviceNumber, Escaped, FileType, Filesystem, WalkEntry};
use extant_image::ImageLocation;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files planned at most where links of the host are followed, which may lead to one many times.
const MOST_FOLLOWED: u64 = 1 << 22;
/// As many times the inodes of an image are planned at most where its links are followed.
const MOST_TIMES: u64 = 4;
/// Permissions of a file made from a pipe or device, which has none of its own to hand down.
const STREAM_MODE: u16 = 0o644;

/// A source as the command line names it.
pub(super) enum Start {
    Host(PathBuf),
    /// Standard input.
    Input,
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
            // It has none.
            Self::Input => Path::new("/"),
            Self::Image { from, .. } => &from.path,
        }
    }
}

/// An image that files come from.
struct Source<'a> {
    from: &'a ImagePath,
    fs: &'a Filesystem,
    image: Arc<ImageLocation>,
    /// Whether it is the destination's image.
    is_dest: bool,
    /// Files planned at most where links are followed.
    most: u64,
}

/// What is walked next, and where it goes.
struct Led {
    path: PathBuf,
    to: PathBuf,
    parent: Option<usize>,
    /// From the source on; none of the source itself.
    names: Vec<Vec<u8>>,
}

/// A further name of a file.
pub(in crate::commands) struct Link {
    pub(in crate::commands) first: PathBuf,
    pub(in crate::commands) to: PathBuf,
    pub(in crate::commands) parent: Option<usize>,
    /// As that of a [`Node`].
    pub(in crate::commands) late: usize,
}

/// What tells a source's files apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    Host(FileId),
    Image(Arc<ImageLocation>, u32),
}

/// How sources are walked.
#[derive(Clone, Copy)]
pub(super) struct How<'a> {
    pub(super) is_recursive: bool,
    pub(super) follow: Follow,
    pub(super) exclusion: &'a Exclusion,
    /// What is done to permissions.
    pub(super) mode: Option<&'a ModeChange>,
    /// The destination, if nothing that is there is replaced.
    pub(super) spares: Option<&'a Filesystem>,
}

pub(in crate::commands) struct Plan<'a> {
    /// Parents before their children.
    pub(in crate::commands) dirs: Vec<Node>,
    pub(in crate::commands) files: Vec<Node>,
    pub(in crate::commands) links: Vec<Link>,
    /// Bytes of content.
    pub(in crate::commands) bytes: u64,
    how: Option<How<'a>>,
    keep: Keep,
    /// What the directories of the plan are, by their numbers; of those that were walked to.
    identities: Vec<Identity>,
    /// The first places of files that have several names.
    first_places: HashMap<Identity, PathBuf>,
    /// Files that hold the images in use, which are not copied.
    images: Vec<FileId>,
    rivals: Rivals,
    /// What has no place, as something else was just planned there.
    refused: Vec<Failure>,
}

/// How much a plan has.
pub(in crate::commands) struct Mark {
    dirs: usize,
    files: usize,
    links: usize,
    bytes: u64,
    identities: usize,
}

impl<'a> Plan<'a> {
    /// How much there is so far.
    pub(in crate::commands) const fn mark(&self) -> Mark {
        Mark {
            dirs: self.dirs.len(),
            files: self.files.len(),
            links: self.links.len(),
            bytes: self.bytes,
            identities: self.identities.len(),
        }
    }

    /// Drops what was added since a mark was taken, all of it at `place` and below.
    pub(in crate::commands) fn rewind(&mut self, mark: &Mark, place: &Path) {
        self.dirs.truncate(mark.dirs);
        self.files.truncate(mark.files);
        self.links.truncate(mark.links);
        self.identities.truncate(mark.identities);
        self.bytes = mark.bytes;
        self.first_places.retain(|_, at| !at.starts_with(place));
    }

    /// A plan to make files of trees, which is empty so far.
    pub(in crate::commands) fn of_trees() -> Self {
        Self::with(None, Keep::all(), Vec::new())
    }

    pub(super) fn new(how: How<'a>, keep: Keep, images: Vec<FileId>) -> Self {
        Self::with(Some(how), keep, images)
    }

    fn with(how: Option<How<'a>>, keep: Keep, images: Vec<FileId>) -> Self {
        Self {
            dirs: Vec::new(),
            files: Vec::new(),
            links: Vec::new(),
            bytes: 0,
            how,
            keep,
            identities: Vec::new(),
            first_places: HashMap::new(),
            images,
            rivals: Rivals::default(),
            refused: Vec::new(),
        }
    }

    /// Has several sources meet as they should.
    pub(super) fn meet(&mut self, rivals: Rivals) {
        self.rivals = rivals;
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

    /// Adds a source and what is below it. On the host it takes what a thread has found `ahead`,
    /// where that is what it comes to.
    pub(super) fn add(
        &mut self,
        start: &Start,
        to: PathBuf,
        ahead: &mut Option<Ahead>,
        problems: &mut Problems,
    ) -> Outcome {
        let added = match start {
            Start::Host(path) => self.add_host(path, to, ahead, problems),
            Start::Input => {
                self.add_input(to);
                Ok(())
            }
            Start::Image { .. } => self.add_image(start, to, problems),
        };
        for failure in self.refused.drain(..) {
            problems.note(failure);
        }
        added
    }

    fn is_recursive(&self) -> bool {
        self.how.is_none_or(|how| how.is_recursive)
    }

    fn follows_all(&self) -> bool {
        self.how.is_some_and(|how| how.follow == Follow::All)
    }

    fn is_excluded(&self, names: &[&[u8]], is_dir: bool) -> bool {
        self.how.is_some_and(|how| how.exclusion.has(names, is_dir))
    }

    /// Whether a source is left out by its own name.
    fn is_source_excluded(&self, path: &Path, is_dir: bool) -> bool {
        self.how
            .is_some_and(|how| how.exclusion.has_source(path, is_dir))
    }

    /// Whether links lead to so much that there may be no end to it.
    fn is_endless(&self, most: u64) -> bool {
        let planned = self.dirs.len() + self.files.len() + self.links.len();
        self.follows_all() && planned as u64 >= most
    }

    /// Refuses to go into a directory for ever.
    fn may_enter(&self, parent: Option<usize>, identity: &Identity) -> Result<(), &'static str> {
        if !self.follows_all() {
            return Ok(());
        }
        let mut at = parent;
        while let Some(number) = at {
            if self.identities.get(number) == Some(identity) {
                return Err("is left out: a symbolic link leads to a directory that it is in");
            }
            at = self.dirs.get(number).and_then(|dir| dir.parent);
        }
        Ok(())
    }

    pub(super) const fn keeps_xattrs(&self) -> bool {
        self.keep.xattrs
    }

    /// Whether symbolic links that are in the way are replaced, and not followed.
    pub(super) const fn replaces_links(&self) -> bool {
        self.keep.attributes
    }

    fn refuse_directory(&self, shown: impl std::fmt::Display) -> Outcome {
        if self.is_recursive() {
            Ok(())
        } else {
            Err(Failure::new(format!(
                "{shown} is a directory: copy it with -r, or with -a to keep owners, times and links"
            )))
        }
    }

    fn add_input(&mut self, to: PathBuf) {
        let now = now();
        let mut node = Node {
            from: Origin::Input,
            to,
            parent: None,
            file_type: FileType::Regular,
            permissions: STREAM_MODE,
            uid: 0,
            gid: 0,
            accessed: now,
            modified: now,
            device: DeviceNumber::default(),
            told: None,
            late: 0,
        };
        self.set_mode(&mut node);
        self.files.push(node);
    }

    /// Gives what is planned the permissions that were asked for.
    fn set_mode(&self, node: &mut Node) {
        if let Some(mode) = self.how.and_then(|how| how.mode)
            && node.file_type != FileType::Symlink
        {
            let is_dir = node.file_type == FileType::Directory;
            node.permissions = mode.apply(node.permissions, is_dir);
        }
    }

    /// What a path of the host leads to, and the path of that: links are followed where that is
    /// asked for.
    fn host_file(&self, path: &Path, is_source: bool) -> std::io::Result<(PathBuf, Metadata)> {
        let follow = self.how.map_or(Follow::None, |how| how.follow);
        if is_source && !self.is_recursive() && follow.follows_named() {
            // A pipe has no path of its own.
            return Ok((path.to_owned(), path.metadata()?));
        }
        let found = path.symlink_metadata()?;
        let is_followed = follow == Follow::All || is_source && follow.follows_named();
        if !found.is_symlink() || !is_followed {
            return Ok((path.to_owned(), found));
        }
        let led_to = path.canonicalize()?;
        let found = led_to.symlink_metadata()?;
        Ok((led_to, found))
    }

    fn add_host(
        &mut self,
        start: &Path,
        to: PathBuf,
        ahead: &mut Option<Ahead>,
        problems: &mut Problems,
    ) -> Outcome {
        let (path, found) = self
            .host_file(start, true)
            .map_err(|e| cannot("read", start, &e))?;
        if self.is_source_excluded(start, found.is_dir()) {
            return Ok(());
        }
        if found.is_dir() {
            self.refuse_directory(Escaped::path(start))?;
        }
        if self.images.contains(&id(&found)) {
            return Err(Failure::new(format!(
                "{} is the image itself, which cannot be copied into itself",
                Escaped::path(start)
            )));
        }
        // Depth on the heap; the next one last. Of each the names from the source on, too.
        let mut rest = vec![(path, to, None, Vec::new(), Some(found))];
        while let Some((path, to, parent, names, found)) = rest.pop() {
            if self.is_endless(MOST_FOLLOWED) {
                problems.note(Failure::new(format!(
                    "{}: symbolic links lead to more than {MOST_FOLLOWED} files, and these are left \
                     out from here on",
                    Escaped::path(&path)
                )));
                break;
            }
            let seen = ahead.as_mut().and_then(|ahead| ahead.take(&path));
            let (seen, seen_names) = seen.map_or((None, None), |it| (Some(it.found), it.names));
            let looked = match (found, seen) {
                (Some(found), _) => Ok((path.clone(), found)),
                (None, Some(seen)) => seen.map(|found| (path.clone(), found)),
                (None, None) => self.host_file(&path, false),
            };
            let (path, found) = match looked {
                Ok(looked) => looked,
                Err(e) => {
                    problems.note(cannot("read", &path, &e));
                    continue;
                }
            };
            let is_dir = found.is_dir();
            let parts: Vec<&[u8]> = names
                .iter()
                .map(|name: &OsString| name.as_bytes())
                .collect();
            if !parts.is_empty() && self.is_excluded(&parts, is_dir) {
                continue;
            }
            if self.images.contains(&id(&found)) {
                say(format_args!(
                    "note: {} is the image itself and was left out",
                    Escaped::path(&path)
                ));
                continue;
            }
            if is_dir && let Err(why) = self.may_enter(parent, &Identity::Host(id(&found))) {
                problems.note(Failure::new(format!("{} {why}", Escaped::path(&path))));
                continue;
            }
            let number = self.add_host_node(&path, to.clone(), parent, &found);
            if is_dir {
                match seen_names.unwrap_or_else(|| names_in(&path)) {
                    Ok(found) => rest.extend(found.into_iter().rev().map(|name| {
                        let below = if self.excludes() {
                            [&names[..], std::slice::from_ref(&name)].concat()
                        } else {
                            Vec::new()
                        };
                        (path.join(&name), to.join(&name), number, below, None)
                    })),
                    Err(e) => problems.note(cannot("read the directory", &path, &e)),
                }
            }
        }
        Ok(())
    }

    fn excludes(&self) -> bool {
        self.how.is_some_and(|how| !how.exclusion.is_empty())
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
        let mut how = if self.is_recursive() {
            Reading::File
        } else {
            Reading::FollowedFile
        };
        let is_stream =
            !self.is_recursive() && !matches!(file_type, FileType::Regular | FileType::Symlink);
        if is_stream {
            (file_type, permissions, how) = (FileType::Regular, STREAM_MODE, Reading::Stream);
        }
        let number = found.rdev();
        let mut node = Node {
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
            late: 0,
        };
        self.set_mode(&mut node);
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
        let inodes = fs.statfs().map_err(|e| from.failure(&e))?.inodes;
        let source = Source {
            from,
            fs,
            image: Arc::new(from.image.clone()),
            is_dest: *is_dest,
            most: inodes.saturating_mul(MOST_TIMES),
        };
        let found = fs.symlink_metadata(path).map_err(|e| from.failure(&e))?;
        if self.is_source_excluded(&from.path, found.is_dir()) {
            return Ok(());
        }
        let mut rest = vec![Led {
            path: path.clone(),
            to,
            parent: None,
            names: Vec::new(),
        }];
        while let Some(led) = rest.pop() {
            let is_source = led.names.is_empty();
            let walked = self.walk_image(&source, led, &mut rest, problems);
            // What a link led to is one of several.
            match walked {
                Err(failure) if !is_source => problems.note(failure),
                walked => walked?,
            }
        }
        Ok(())
    }

    /// Adds what is at and below a path of an image; what links in it lead to comes after it.
    fn walk_image(
        &mut self,
        source: &Source<'_>,
        start: Led,
        rest: &mut Vec<Led>,
        problems: &mut Problems,
    ) -> Outcome {
        let Source { from, fs, .. } = source;
        let failed = |e: extant::Error| from.failure(&e);
        // The directories that lead to what comes next.
        let mut above: Vec<(PathBuf, Option<usize>)> = Vec::new();
        let mut walk = fs.walk(&start.path).map_err(failed)?.whole();
        while let Some(entry) = walk.next() {
            if self.is_endless(source.most) {
                rest.clear();
                problems.note(Failure::new(format!(
                    "{}: symbolic links lead to several times as many files as the image has, and \
                     these are left out from here on",
                    from.shown()
                )));
                break;
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    problems.note(failed(e));
                    continue;
                }
            };
            let depth = entry.depth();
            let is_dir = entry.file_type() == FileType::Directory;
            if depth == 0 && is_dir {
                self.refuse_directory(from.shown())?;
            }
            above.truncate(depth);
            let (to, parent) = match above.last() {
                None => (start.to.clone(), start.parent),
                Some((dir, number)) => (dir.join(entry.file_name()), *number),
            };
            if let Err(e) = entry.check_name() {
                problems.note(failed(e));
                walk.skip_children();
                continue;
            }
            let names = self.names_of(&start, &entry);
            let parts: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let is_link = self.follows_all() && entry.file_type() == FileType::Symlink;
            if is_link {
                let led_to = fs.metadata(entry.path()).map_err(failed);
                let led_to = led_to.and_then(|found| {
                    let path = follow(fs, entry.path()).map_err(failed)?;
                    Ok((path, found.is_dir()))
                });
                match led_to {
                    Ok((_, is_dir)) if !parts.is_empty() && self.is_excluded(&parts, is_dir) => {}
                    Ok((path, _)) => rest.push(Led {
                        path,
                        to,
                        parent,
                        names,
                    }),
                    Err(failure) => problems.note(failure),
                }
                continue;
            }
            if depth > 0 && !parts.is_empty() && self.is_excluded(&parts, is_dir) {
                walk.skip_children();
                continue;
            }
            let identity = Identity::Image(Arc::clone(&source.image), entry.metadata().ino());
            if is_dir && let Err(why) = self.may_enter(parent, &identity) {
                problems.note(Failure::new(format!(
                    "{}:{} {why}",
                    shown(&source.image),
                    Escaped::path(entry.path())
                )));
                walk.skip_children();
                continue;
            }
            let (image, is_dest) = (&source.image, source.is_dest);
            let number = self.add_image_node(entry, image, is_dest, to.clone(), parent);
            if is_dir {
                above.push((to, number));
            }
        }
        Ok(())
    }

    /// The names of an entry from the source on, where patterns or links ask for them.
    fn names_of(&self, start: &Led, entry: &WalkEntry) -> Vec<Vec<u8>> {
        if !self.excludes() && !self.follows_all() {
            return Vec::new();
        }
        let below = entry.path_bytes();
        let below = below
            .get(start.path.as_os_str().len()..)
            .unwrap_or_default();
        let parts = below.split(|byte| *byte == b'/');
        let parts = parts.filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
        start.names.iter().cloned().chain(parts).collect()
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
        let mut node = Node {
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
            late: 0,
        };
        self.set_mode(&mut node);
        let identity = Identity::Image(Arc::clone(image), found.ino());
        let bytes = found.len().min(found.blocks().saturating_mul(512));
        self.add_node(node, identity, found.nlink().into(), bytes)
    }

    fn add_node(
        &mut self,
        mut node: Node,
        identity: Identity,
        names: u64,
        bytes: u64,
    ) -> Option<usize> {
        if node.file_type == FileType::Directory {
            self.dirs.push(node);
            self.identities.push(identity);
            return Some(self.dirs.len() - 1);
        }
        if let Some(fs) = self.how.and_then(|how| how.spares)
            && matches!(look_at_link(fs, &node.to), Ok(Some(_)))
        {
            return None;
        }
        node.late = match self.rivals.turn(&node, &identity) {
            Turn::Any => 0,
            Turn::Late(number) => number,
            Turn::Never => return None,
            Turn::Refused => {
                self.refused.push(Failure::new(format!(
                    "{} is not copied: another source of this command is just put at {}",
                    node.shown_source(),
                    Escaped::path(&node.to)
                )));
                return None;
            }
        };
        // What links lead to has their names, too.
        if self.keep.everything && (names > 1 || self.follows_all()) {
            if let Some(first) = self.first_places.get(&identity)
                && let Some(late) = self.rivals.late_at(first, &identity)
            {
                // After its first name.
                let late = match node.late {
                    0 if late > 0 => self.rivals.next(),
                    number => number,
                };
                self.links.push(Link {
                    first: first.clone(),
                    to: node.to,
                    parent: node.parent,
                    late,
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
