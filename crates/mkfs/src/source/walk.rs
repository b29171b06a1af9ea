//! The directory that a path leads to, through symbolic links, which lead nowhere outside the tree:
//! an absolute one begins at its root, and `..` ends there.

use super::builder::TreeBuilder;
use super::model::{FileType, NodeId, Tree};

/// Most symbolic links on the way to one file, as Linux has it.
const LINKS_MAX: u32 = 40;

/// What can be asked for the file of a name in a directory.
pub(crate) trait Names {
    /// The file with this name in a directory.
    fn named(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId>;
    /// What a file is.
    fn kind_of(&self, id: NodeId) -> FileType;
    /// Where a symbolic link leads.
    fn target_of(&self, id: NodeId) -> &[u8];
}

impl Names for TreeBuilder {
    fn named(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.lookup(dir, name)
    }

    fn kind_of(&self, id: NodeId) -> FileType {
        self.kind(id)
    }

    fn target_of(&self, id: NodeId) -> &[u8] {
        self.symlink_target(id).unwrap_or_default()
    }
}

impl Names for &Tree {
    fn named(&mut self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.child(dir, name)
    }

    fn kind_of(&self, id: NodeId) -> FileType {
        self.node(id).kind()
    }

    fn target_of(&self, id: NodeId) -> &[u8] {
        self.symlink_target(id).unwrap_or_default()
    }
}

/// A directory on the way to a file, with the name it was found by.
pub(crate) type Step = (NodeId, Box<[u8]>);

/// A way through directories and symbolic links, as far as it has been gone.
pub(crate) struct Walk {
    /// The root first.
    way: Vec<Step>,
    /// The next name last.
    ahead: Vec<Box<[u8]>>,
    links: u32,
}

impl Walk {
    /// Begins at the root. Names of the path are separated by `/`.
    pub(crate) fn new(path: &[u8]) -> Self {
        Self {
            way: vec![(NodeId::ROOT, Box::default())],
            ahead: parts(path).rev().map(Box::from).collect(),
            links: 0,
        }
    }

    /// Goes on to the end, or to a name that leads to no directory: gives that name, and what has
    /// it. An error is the rest of a sentence about what lies there.
    pub(crate) fn go(&mut self, names: &mut impl Names) -> Result<Option<Stop>, String> {
        while let Some(part) = self.ahead.pop() {
            match &*part {
                b"." => continue,
                b".." => {
                    self.way.truncate((self.way.len() - 1).max(1));
                    continue;
                }
                _ => {}
            }
            let found = names.named(self.end(), &part);
            match found.map(|found| (found, names.kind_of(found))) {
                Some((found, FileType::Directory)) => self.way.push((found, part)),
                Some((found, FileType::Symlink)) => {
                    self.links += 1;
                    if self.links > LINKS_MAX {
                        return Err(format!(
                            "lies beneath {}, a symbolic link that leads in a circle",
                            shown(&part)
                        ));
                    }
                    let target = names.target_of(found);
                    if target.starts_with(b"/") {
                        self.way.truncate(1);
                    }
                    self.ahead.extend(parts(target).rev().map(Box::from));
                }
                _ => return Ok(Some((part, found))),
            }
        }
        Ok(None)
    }

    /// Goes into a directory, in the place of the name that [`go`](Self::go) stopped at.
    pub(crate) fn enter(&mut self, dir: NodeId, name: Box<[u8]>) {
        self.way.push((dir, name));
    }

    /// The directory it has come to.
    pub(crate) fn end(&self) -> NodeId {
        end_of(&self.way)
    }

    /// All directories that led there.
    pub(crate) fn into_way(self) -> Vec<Step> {
        self.way
    }
}

/// A name that leads to no directory, and what has it.
pub(crate) type Stop = (Box<[u8]>, Option<NodeId>);

/// The directory that a way leads to.
pub(crate) fn end_of(way: &[Step]) -> NodeId {
    way.last().map_or(NodeId::ROOT, |(node, _)| *node)
}

/// How far a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reached {
    /// To this directory.
    Directory(NodeId),
    /// To this directory, in which the first of these names is missing.
    Missing(NodeId, Vec<Box<[u8]>>),
}

/// Follows a path (names separated by `/`) to a directory. An error is the rest of a sentence about
/// what lies there.
pub(crate) fn directory(names: &mut impl Names, path: &[u8]) -> Result<Reached, String> {
    let mut walk = Walk::new(path);
    Ok(match walk.go(names)? {
        None => Reached::Directory(walk.end()),
        Some((name, Some(_))) => return Err(not_a_directory(&name)),
        Some((name, None)) => {
            let dir = walk.end();
            let ahead = walk.ahead.into_iter().rev();
            Reached::Missing(dir, std::iter::once(name).chain(ahead).collect())
        }
    })
}

/// The rest of a sentence about something that a path needs to lead through.
pub(crate) fn not_a_directory(part: &[u8]) -> String {
    format!("lies beneath {}, which is not a directory", shown(part))
}

/// The file at a path, and the place of its name; a symbolic link in the last place stands for
/// itself. `None` of a node means that its directory is there.
pub(crate) fn file<'p>(names: &mut impl Names, path: &'p [u8]) -> Result<Found<'p>, String> {
    let (dir, name) = split_last(path);
    let Some(name) = name else {
        return Ok(Found::File(NodeId::ROOT));
    };
    Ok(match directory(names, dir)? {
        Reached::Missing(dir, rest) => Found::NoDirectory(dir, rest, name),
        Reached::Directory(dir) => match names.named(dir, name) {
            Some(node) => Found::File(node),
            None => Found::NoFile(dir, name),
        },
    })
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found<'p> {
    /// This file.
    File(NodeId),
    /// A directory that does not have the name.
    NoFile(NodeId, &'p [u8]),
    /// A directory that does not have the first of these names, in which the name would be.
    NoDirectory(NodeId, Vec<Box<[u8]>>, &'p [u8]),
}

/// The names of a path.
pub(crate) fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|part| !part.is_empty())
}

/// The path of the directory, and the name in it; none of the root.
pub(crate) fn split_last(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (&[], Some(path).filter(|name| !name.is_empty())),
    }
}

fn shown(part: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(part))
}
