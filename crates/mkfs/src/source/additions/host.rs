//! Files and directories of the host, put into a tree.

use std::path::Path;

use super::super::builder::TreeBuilder;
use super::super::directory::{ScanOptions, scan_directory, scan_file};
use super::super::error::SourceResult;
use super::super::model::{FileType, NodeId, Timestamp, Tree};
use super::super::walk::{Reached, directory};
use super::{Place, Put, place_of};

/// What is at a path of the host: a directory with everything below it, or one file, which is the
/// only one in the root of the tree then.
pub(super) struct Read {
    pub(super) tree: Tree,
    is_directory: bool,
}

impl Read {
    /// Reads it. A symbolic link stands for itself.
    pub(super) fn new(from: &Path, scan: &ScanOptions) -> SourceResult<Self> {
        let is_directory = from.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        // With a slash at the end a link to a directory is one.
        let follows = from.as_os_str().as_encoded_bytes().ends_with(b"/") && from.is_dir();
        let is_directory = is_directory || follows;
        let tree = if is_directory {
            scan_directory(from, scan)?
        } else {
            scan_file(from)?
        };
        Ok(Self { tree, is_directory })
    }

    /// The path that it is put at, if `into` says that a file goes into a directory there.
    pub(super) fn place(&self, to: Vec<u8>, into: bool) -> Vec<u8> {
        let only = self.tree.children(NodeId::ROOT).next();
        match only.filter(|_| into && !self.is_directory) {
            Some((name, _)) if to.is_empty() => name.to_vec(),
            Some((name, _)) => [&to, b"/".as_slice(), name].concat(),
            None => to,
        }
    }
}

/// Puts what was read at its path. A directory joins one that is there, whose owner and the like
/// become its own; a file takes the place of any that is no directory.
pub(super) fn put(builder: &mut TreeBuilder, read: &Read, to: &[u8], now: Timestamp) -> Put<()> {
    let tree = &read.tree;
    let place = match place_of(builder, to, now)? {
        Ok(place) => place,
        Err(problem) => return Ok(Err(problem)),
    };
    let mut grafted = vec![None; tree.len()];
    if read.is_directory {
        let top = match place {
            Place::Root => {
                builder.set_meta_from(NodeId::ROOT, tree, NodeId::ROOT)?;
                Ok(NodeId::ROOT)
            }
            // A link that leads to a directory is on the way to it.
            Place::Taken(link, dir, name) if builder.kind(link) == FileType::Symlink => {
                let place = match directory(builder, to) {
                    Ok(Reached::Directory(there)) => Place::Taken(there, dir, name),
                    _ => Place::Taken(link, dir, name),
                };
                at_place(builder, tree, NodeId::ROOT, place)?
            }
            place => at_place(builder, tree, NodeId::ROOT, place)?,
        };
        match top {
            Ok(top) => grafted[NodeId::ROOT.index()] = Some(top),
            Err(problem) => return Ok(Err(problem)),
        }
        return below(builder, tree, &mut grafted);
    }
    let only = tree.entries(NodeId::ROOT).first().map(|entry| entry.node());
    match (only, place) {
        (Some(only), place @ (Place::Free(..) | Place::Taken(..))) => {
            Ok(at_place(builder, tree, only, place)?.map(|_| ()))
        }
        _ => Ok(Err(
            "is a directory: a / at the end puts the file into it".to_owned()
        )),
    }
}

/// Puts everything below directories that have their place at theirs.
fn below(builder: &mut TreeBuilder, tree: &Tree, grafted: &mut [Option<NodeId>]) -> Put<()> {
    // A directory comes before what is in it.
    for dir in tree.ids().filter(|id| tree.node(*id).is_dir()) {
        let Some(into) = grafted[dir.index()] else {
            continue;
        };
        for (name, id) in tree.children(dir) {
            let there = builder.lookup(into, name);
            if let Some(known) = grafted[id.index()] {
                // Another name of one file.
                match there {
                    Some(old) if builder.kind(old) == FileType::Directory => {
                        return Ok(Err(in_the_way(tree, id)));
                    }
                    Some(_) => builder.relink(into, name, known),
                    None => builder.link(into, name, known)?,
                }
                continue;
            }
            let name = Box::from(name);
            let place = match there {
                Some(old) => Place::Taken(old, into, name),
                None => Place::Free(into, name),
            };
            match at_place(builder, tree, id, place)? {
                Ok(new) => grafted[id.index()] = Some(new),
                Err(problem) => return Ok(Err(problem)),
            }
        }
    }
    Ok(Ok(()))
}

/// Puts one file of another tree at a place, and gives what is there then.
fn at_place(builder: &mut TreeBuilder, tree: &Tree, id: NodeId, place: Place) -> Put<NodeId> {
    let is_dir = tree.node(id).is_dir();
    if let Place::Taken(old, _, _) = place
        && builder.kind(old) == FileType::Directory
    {
        if !is_dir {
            return Ok(Err(in_the_way(tree, id)));
        }
        builder.set_meta_from(old, tree, id)?;
        return Ok(Ok(old));
    }
    let new = builder.add_from(tree, id)?;
    builder.keep_source_path(new, || tree.source_parts(id).join(&b'/'));
    match place {
        Place::Taken(_, dir, name) => builder.relink(dir, &name, new),
        Place::Free(dir, name) => builder.link(dir, &name, new)?,
        Place::Root => return Ok(Err("is the root".to_owned())),
    }
    Ok(Ok(new))
}

fn in_the_way(tree: &Tree, id: NodeId) -> String {
    format!("a directory is in the place of {}", tree.path(id).display())
}
