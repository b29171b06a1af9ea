//! A plan made real in a directory.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use super::{Content, Node, NodeKind, TreePlan};
use crate::tree::Time;

impl TreePlan {
    /// Makes the tree below the existing directory `root`, whose own attributes become those of
    /// the plan's root. As root everything can be made; see [`TreePlan::unprivileged`].
    ///
    /// # Panics
    ///
    /// When something cannot be made; the message names it.
    pub fn plant(&self, root: &Path) {
        let must = |node: &Node, result: io::Result<()>| {
            result.unwrap_or_else(|e| panic!("planting {}: {e}", node.path.escape_ascii()));
        };
        for node in &self.nodes {
            let path = below(root, &node.path);
            must(node, make(root, node, &path));
        }
        // Directories last and deepest first: making entries changes their times, a default ACL
        // would be inherited, and a mode may lock us out.
        for node in self
            .nodes
            .iter()
            .rev()
            .filter(|n| n.kind == NodeKind::Directory)
        {
            must(node, dress(node, &below(root, &node.path)));
        }
    }
}

fn below(root: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() {
        root.to_owned()
    } else {
        root.join(OsStr::from_bytes(path))
    }
}

fn make(root: &Path, node: &Node, path: &Path) -> io::Result<()> {
    match &node.kind {
        NodeKind::Directory if node.path.is_empty() => return Ok(()),
        NodeKind::Directory => return std::fs::create_dir(path),
        NodeKind::HardLink(target) => return std::fs::hard_link(below(root, target), path),
        NodeKind::File(content) => write_file(path, content)?,
        NodeKind::Symlink(target) => {
            std::os::unix::fs::symlink(OsStr::from_bytes(target), path)?;
        }
        NodeKind::Fifo => make_node(path, FileType::Fifo, 0)?,
        NodeKind::Socket => make_node(path, FileType::Socket, 0)?,
        NodeKind::CharDevice(major, minor) => {
            make_node(
                path,
                FileType::CharacterDevice,
                rustix::fs::makedev(*major, *minor),
            )?;
        }
        NodeKind::BlockDevice(major, minor) => {
            make_node(
                path,
                FileType::BlockDevice,
                rustix::fs::makedev(*major, *minor),
            )?;
        }
    }
    dress(node, path)
}

fn make_node(path: &Path, kind: FileType, device: rustix::fs::Dev) -> io::Result<()> {
    Ok(rustix::fs::mknodat(
        CWD,
        path,
        kind,
        Mode::from_raw_mode(0o600),
        device,
    )?)
}

fn write_file(path: &Path, content: &Content) -> io::Result<()> {
    let file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    if content.size > 0 {
        file.set_len(content.size)?;
    }
    content.for_each_chunk(|at, chunk| file.write_all_at(chunk, at))
}

/// Owner, mode, xattrs and times, in the order in which none undoes another: chown clears setuid
/// and capabilities, chmod changes an ACL's mask, everything changes times.
fn dress(node: &Node, path: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(node.uid), Gid::from_raw(node.gid));
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if !matches!(node.kind, NodeKind::Symlink(_)) {
        rustix::fs::chmod(path, Mode::from_raw_mode(node.mode.into()))?;
    }
    for (name, value) in &node.xattrs {
        rustix::fs::lsetxattr(path, name.as_slice(), value, XattrFlags::empty()).map_err(|e| {
            io::Error::other(format!(
                "xattr {} of {} bytes: {e}",
                name.escape_ascii(),
                value.len()
            ))
        })?;
    }
    let time = timespec(node.mtime);
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(rustix::fs::utimensat(
        CWD,
        path,
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

fn timespec(time: Time) -> Timespec {
    Timespec {
        tv_sec: time.sec,
        tv_nsec: time.nsec.into(),
    }
}
