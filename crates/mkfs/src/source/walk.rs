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
    let mut above = vec![NodeId::ROOT];
    let mut links = 0;
    let mut ahead: Vec<Box<[u8]>> = parts(path).rev().map(Box::from).collect();
    while let Some(part) = ahead.pop() {
        let dir = above.last().copied().unwrap_or(NodeId::ROOT);
        match &*part {
            b"." => continue,
            b".." => {
                above.truncate((above.len() - 1).max(1));
                continue;
            }
            _ => {}
        }
        let Some(found) = names.named(dir, &part) else {
            ahead.push(part);
            ahead.reverse();
            return Ok(Reached::Missing(dir, ahead));
        };
        match names.kind_of(found) {
            FileType::Directory => above.push(found),
            FileType::Symlink => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(format!(
                        "lies beneath {}, a symbolic link that leads in a circle",
                        shown(&part)
                    ));
                }
                let target = names.target_of(found);
                if target.starts_with(b"/") {
                    above.truncate(1);
                }
                ahead.extend(parts(target).rev().map(Box::from));
            }
            _ => {
                return Err(format!(
                    "lies beneath {}, which is no directory",
                    shown(&part)
                ));
            }
        }
    }
    Ok(Reached::Directory(
        above.last().copied().unwrap_or(NodeId::ROOT),
    ))
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

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
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
