//! From a path to an inode: symbolic links, `..`, limits.
//!
//! # Invariants
//!
//! - `..` goes to the directory that was walked through, so it cannot leave the root whatever the
//!   `..` entries of a hostile image say.
//! - At most [`MAX_LINKS`] symbolic links are followed, and a target has at most one block, so every
//!   walk ends.

use extant_core::fs::Fs;
use extant_core::inode::{FileType, Inode};
use extant_core::{Error, Result, ops};
use extant_format::Ino;
use std::sync::Arc;

/// Symbolic links followed at most, as under Linux.
const MAX_LINKS: u32 = 40;

/// Whether a symbolic link at the end of a path stands for itself or for what it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Keep,
}

/// The inode at `path`, which is taken from the root. A path that ends in `/` must be a directory.
pub(crate) fn resolve(fs: &Fs, path: &[u8], last: LastLink) -> Result<Arc<Inode>> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    let root = fs.inode(Ino::ROOT)?;
    // Directories walked through, the root first.
    let mut dirs = vec![Arc::clone(&root)];
    // Names to go, the next one last.
    let mut rest = Vec::new();
    push_names(&mut rest, path);
    let mut at = root;
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if !at.is_dir() {
            return Err(Error::NotADirectory);
        }
        match &name[..] {
            b"." => continue,
            b".." => {
                if dirs.len() > 1 {
                    dirs.pop();
                }
                if let Some(dir) = dirs.last() {
                    at = Arc::clone(dir);
                }
                continue;
            }
            _ => {}
        }
        let inode = ops::lookup(fs, &at, &name)?;
        let is_link = inode.file_type() == FileType::Symlink;
        if is_link && (last == LastLink::Follow || !rest.is_empty()) {
            links += 1;
            if links > MAX_LINKS {
                return Err(Error::Loop);
            }
            let target = ops::readlink(fs, &inode)?;
            if target.starts_with(b"/") {
                dirs.truncate(1);
            }
            if let Some(dir) = dirs.last() {
                at = Arc::clone(dir);
            }
            push_names(&mut rest, &target);
            continue;
        }
        if inode.is_dir() {
            dirs.push(Arc::clone(&inode));
        }
        at = inode;
    }
    Ok(at)
}

/// Puts the names of `path` in front of the names to go. A trailing `/` counts as `/.`, which only
/// directories have.
fn push_names(rest: &mut Vec<Vec<u8>>, path: &[u8]) {
    if path.ends_with(b"/") {
        rest.push(b".".to_vec());
    }
    let names = path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty());
    rest.extend(names.rev().map(<[u8]>::to_vec));
}
