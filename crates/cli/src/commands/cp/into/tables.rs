//! What tables say that copied files shall have.
//!
//! The plan becomes a tree over the image, to which tables are applied as `extant mkfs` applies
//! them; then each file of the plan is told what the tree has for it, and what tables make is
//! planned, too.

use super::attributes::xattrs_of;
use super::content::Content;
use super::make::{Why, target_of};
use super::plan::{Node, Plan, Told};
use crate::commands::owners::Owners;
use crate::failure::{Failure, Outcome};
use crate::path::is_dir;
use crate::standing::ImageBase;
use extant::{Escaped, FileType, Filesystem};
use extant_image::ImageLocation;
use extant_mkfs::source::{self as sources, Meta, Owner, Times, Tree, TreeBuilder, Xattr};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The lists of accounts that tables name users and groups by, and the most bytes that are read of
/// one.
const LISTS: [&str; 2] = ["/etc/passwd", "/etc/group"];
const LIST_MAX: usize = 16 << 20;

/// Has what is planned be as tables say, with an owner for all before these.
pub(super) fn tell(
    plan: &mut Plan,
    owners: &mut Owners,
    owner: Option<Owner>,
    fs: &Filesystem,
    image: &ImageLocation,
) -> Outcome {
    let base = ImageBase::new(fs, image, Path::new("/"));
    let tree = tree_of(plan, fs, Box::new(base))?;
    let tree = owners.apply(tree, owner).map_err(Failure::new)?;
    let tree = Arc::new(tree);
    let mut is_planned = vec![false; tree.len()];
    for node in plan.dirs.iter_mut().chain(&mut plan.files) {
        let Some(id) = tree.file_at(node.to.as_os_str().as_bytes()) else {
            continue;
        };
        if tree.node(id).kind() != node.file_type {
            continue;
        }
        if let Some(planned) = is_planned.get_mut(id.index()) {
            *planned = true;
        }
        let tree = Arc::clone(&tree);
        node.tell(Told { tree, id });
    }
    for id in tree.ids() {
        if tree.there(id).is_some() || is_planned.get(id.index()) != Some(&false) {
            continue;
        }
        let to = Path::new("/").join(tree.path(id));
        let tree = Arc::clone(&tree);
        let node = Node::of_tree(Told { tree, id }, to, None);
        match node.file_type {
            FileType::Directory => plan.dirs.push(node),
            _ => plan.files.push(node),
        }
    }
    Ok(())
}

/// What is planned, as a tree over the image.
fn tree_of(plan: &Plan, fs: &Filesystem, base: Box<dyn sources::Base>) -> Outcome<Tree> {
    let mut builder = TreeBuilder::over(base).map_err(Failure::new)?;
    for node in plan.dirs.iter().chain(&plan.files) {
        let is_link = || {
            let found = fs.symlink_metadata(&node.to);
            found.is_ok_and(|found| found.is_symlink()) && is_dir(fs, &node.to).unwrap_or(false)
        };
        // Its content goes into what the link leads to, which keeps what it has.
        if node.file_type == FileType::Directory && is_link() {
            continue;
        }
        let meta = meta_of(plan, node)?;
        let path = node.to.as_os_str().as_bytes();
        let put = match node.file_type {
            FileType::Directory => builder.put(path, meta, sources::Content::Directory),
            FileType::Symlink => {
                let target = target_of(node).map_err(|why| failure(&node.to, why))?;
                builder.put(path, meta, sources::Content::Symlink(&target))
            }
            FileType::Regular => {
                let list = list_of(node)?;
                builder.put(path, meta, sources::Content::Inline(&list))
            }
            FileType::Fifo => builder.put(path, meta, sources::Content::Fifo),
            FileType::Socket => builder.put(path, meta, sources::Content::Socket),
            kind => {
                let (major, minor) = (node.device.major, node.device.minor);
                let content = sources::Content::Device { kind, major, minor };
                builder.put(path, meta, content)
            }
        };
        put.map_err(Failure::new)?;
    }
    for link in &plan.links {
        let (first, to) = (link.first.as_os_str(), link.to.as_os_str());
        builder
            .put_link(first.as_bytes(), to.as_bytes())
            .map_err(Failure::new)?;
    }
    builder.finish().map_err(Failure::new)
}

fn meta_of(plan: &Plan, node: &Node) -> Outcome<Meta> {
    let xattrs = if plan.keeps_xattrs() {
        xattrs_of(node).map_err(|why| failure(&node.to, why))?
    } else {
        None
    };
    let xattrs = xattrs.unwrap_or_default().into_iter();
    let xattrs = xattrs.map(|(name, value)| Xattr {
        name: name.into_vec().into_boxed_slice(),
        value: value.into(),
    });
    Ok(Meta {
        mode: node.permissions,
        uid: node.uid,
        gid: node.gid,
        times: Times::new(node.accessed, node.modified, node.modified, node.modified),
        xattrs: xattrs.collect(),
        flags: 0,
    })
}

/// The content of a list of accounts; tables need no other.
fn list_of(node: &Node) -> Outcome<Vec<u8>> {
    let names: PathBuf = node.to.components().collect();
    if !LISTS
        .iter()
        .any(|list| names.as_os_str() == OsStr::new(list))
    {
        return Ok(Vec::new());
    }
    let fail = |why| failure(&node.to, why);
    let mut list = Vec::new();
    let content = Content::open(node).map_err(fail)?;
    let put = |at: u64, piece: &[u8]| {
        let end = (at as usize).saturating_add(piece.len());
        if end > LIST_MAX {
            let text = format!("a list of accounts of more than {LIST_MAX} bytes");
            return Err(Why::Source(text));
        }
        list.resize(list.len().max(end), 0);
        if let Some(place) = list.get_mut(at as usize..end) {
            place.copy_from_slice(piece);
        }
        Ok(())
    };
    content.copy(&mut Vec::new(), put).map_err(fail)?;
    Ok(list)
}

fn failure(to: &Path, why: Why) -> Failure {
    let to = Escaped::path(to);
    Failure::new(match why {
        Why::Source(text) => text,
        Why::ImagePath(text) => format!("{to}: {text}"),
        _ => format!("{to}: cannot be read"),
    })
}
