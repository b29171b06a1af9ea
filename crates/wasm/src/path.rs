//! From a path to an inode: symbolic links, `..`, limits.
//!
//! # Invariants
//! - `..` goes to the directory that was walked through, so it cannot leave the root whatever the
//!   `..` entries of a hostile image say.
//! - At most [`MOST_LINKS`] symbolic links are followed, and a target has at most one block, so
//!   every walk ends.

use extant_core::fs::Fs;
use extant_core::inode::{FileType, Inode};
use extant_core::{Error, Result, ops};
use extant_format::Ino;
use std::sync::Arc;

/// Symbolic links followed at most, as under Linux.
const MOST_LINKS: usize = 40;

/// Returns the inode at a path, which is taken from the root. With `follow` a symbolic link at its
/// end stands for what it points to.
pub(crate) fn resolve(fs: &Fs, path: &[u8], follow: bool) -> Result<Arc<Inode>> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    let root = fs.inode(Ino::ROOT)?;
    let (mut dirs, mut at) = (vec![Arc::clone(&root)], root);
    let mut rest = Vec::new();
    push_names(&mut rest, path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if !at.is_dir() {
            return Err(Error::NotADirectory);
        }
        if name == b"." || name == b".." {
            if name == b".." && dirs.len() > 1 {
                dirs.pop();
            }
            at = dirs.last().map_or(at, Arc::clone);
            continue;
        }
        let found = ops::lookup(fs, &at, &name)?;
        if found.file_type() == FileType::Symlink && (follow || !rest.is_empty()) {
            links += 1;
            if links > MOST_LINKS {
                return Err(Error::Loop);
            }
            let target = ops::readlink(fs, &found)?;
            if target.starts_with(b"/") {
                dirs.truncate(1);
            }
            at = dirs.last().map_or(at, Arc::clone);
            push_names(&mut rest, &target);
            continue;
        }
        if found.is_dir() {
            dirs.push(Arc::clone(&found));
        }
        at = found;
    }
    Ok(at)
}

/// Puts the names of a path in front of the names to go. A `/` at its end counts as `/.`, which
/// only directories have.
fn push_names(rest: &mut Vec<Vec<u8>>, path: &[u8]) {
    if path.ends_with(b"/") {
        rest.push(b".".to_vec());
    }
    let names = path.split(|&byte| byte == b'/');
    let names = names.filter(|name| !name.is_empty());
    rest.extend(names.rev().map(<[u8]>::to_vec));
}
