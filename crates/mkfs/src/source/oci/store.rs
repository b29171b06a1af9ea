//! The files of an image, in a directory or an archive.

use std::fs::File;
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use super::super::data::{DataStore, Stamp};
use super::super::error::{SourceError, SourceResult};
use super::super::model::{FileType, NodeId, Tree};
use super::super::tar::Bytes;
use super::JSON_MAX;
use super::digest::{Digest, Hasher};

/// Most symbolic links on the way to a file in an archive.
const LINKS_MAX: u32 = 40;

/// Where the files are.
pub(in super::super) enum Store<'a> {
    Directory(&'a Path),
    /// The archive at `path`, which holds this.
    Archive {
        tree: &'a Tree,
        path: &'a Path,
    },
}

impl Store<'_> {
    /// What the image is called in errors.
    pub(super) const fn name(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Archive { path, .. } => path,
        }
    }

    /// An error about the image.
    pub(super) fn refused(&self, problem: impl std::fmt::Display) -> SourceError {
        SourceError::Refused {
            path: self.name().to_owned(),
            problem: format!("container image: {problem}"),
        }
    }

    /// Finds the regular file of a name that the image says; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`SourceError::Refused`] for a name that leads elsewhere, or to something else.
    pub(super) fn open(&self, name: &str) -> SourceResult<Option<Bytes>> {
        let is_inside = !name.is_empty()
            && Path::new(name)
                .components()
                .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_inside || name.contains('\0') {
            let shown: String = name.chars().take(100).collect();
            return Err(self.refused(format!("{shown:?} is no name of a file in it")));
        }
        match self {
            Self::Directory(path) => self.open_file(&path.join(name)),
            Self::Archive { tree, .. } => self.open_member(tree, name),
        }
    }

    fn open_file(&self, path: &Path) -> SourceResult<Option<Bytes>> {
        // Should a pipe be in its place, opening it must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(e) => return Err(SourceError::io("open", path, e)),
        };
        let meta = file
            .metadata()
            .map_err(|e| SourceError::io("stat", path, e))?;
        if !meta.is_file() {
            return Err(self.refused(format!("{} is no regular file", path.display())));
        }
        let stamp = Stamp::of(&file).map_err(|e| SourceError::io("stat", path, e))?;
        Ok(Some(Bytes {
            file: Arc::new(file),
            base: 0,
            len: meta.len(),
            stamp: Some(stamp),
            is_whole: false,
        }))
    }

    fn open_member(&self, tree: &Tree, name: &str) -> SourceResult<Option<Bytes>> {
        let Some(node) = resolve(tree, name) else {
            return Ok(None);
        };
        if tree.node(node).kind() != FileType::Regular {
            return Err(self.refused(format!("{name} is no regular file")));
        }
        let Some(DataStore::Archive { file, stamp, .. }) = tree.stores.first() else {
            return Ok(None);
        };
        let len = tree.node(node).size;
        let mut extents = tree.extents(node);
        let (first, rest) = (extents.next(), extents.next());
        let base = match (first, rest) {
            (None, _) if len == 0 => 0,
            (Some(all), None) if (all.logical, all.len) == (0, len) => all.at,
            _ => {
                return Err(self.refused(format!(
                    "{name} is stored as a sparse file: pack the image again, without --sparse"
                )));
            }
        };
        Ok(Some(Bytes {
            file: Arc::clone(file),
            base,
            len,
            stamp: *stamp,
            is_whole: false,
        }))
    }

    /// Reads what is at most [`JSON_MAX`] bytes.
    pub(super) fn read(&self, bytes: &Bytes, what: &str) -> SourceResult<Vec<u8>> {
        if bytes.len > JSON_MAX {
            return Err(self.refused(format!(
                "{what} has {} bytes, and at most {JSON_MAX} are read",
                bytes.len
            )));
        }
        let mut read = Vec::with_capacity(bytes.len as usize);
        bytes.each(self.name(), |piece| read.extend_from_slice(piece))?;
        Ok(read)
    }

    /// Reads the file of a name, which must be there.
    pub(super) fn read_file(&self, name: &str) -> SourceResult<Vec<u8>> {
        let bytes = self
            .open(name)?
            .ok_or_else(|| self.refused(format!("{name} is missing")))?;
        self.read(&bytes, name)
    }

    /// Finds content by its digest; its size must be this.
    pub(super) fn blob(&self, digest: &Digest, size: u64, what: &str) -> SourceResult<Bytes> {
        let bytes = self.open(&digest.path())?.ok_or_else(|| {
            self.refused(format!(
                "{what} {digest} is missing: the image is not complete (fetch it with skopeo copy)"
            ))
        })?;
        if bytes.len != size {
            return Err(self.refused(format!(
                "{what} {digest} has {} bytes, and should have {size}",
                bytes.len
            )));
        }
        Ok(bytes)
    }

    /// Reads content by its digest, and compares it with that.
    pub(super) fn read_blob(
        &self,
        digest: &Digest,
        size: u64,
        what: &str,
    ) -> SourceResult<Vec<u8>> {
        let read = self.read(&self.blob(digest, size, what)?, what)?;
        self.check(&read, digest, what)?;
        Ok(read)
    }

    /// Compares content with its digest.
    pub(super) fn check(&self, content: &[u8], digest: &Digest, what: &str) -> SourceResult<()> {
        let mut hasher = Hasher::new(digest);
        hasher.update(content);
        hasher.compare(digest).map_err(|found| {
            self.refused(format!(
                "the digest of {what} is {found}, and should be {digest}"
            ))
        })
    }

    /// Takes JSON apart.
    pub(super) fn parse<T: DeserializeOwned>(&self, json: &[u8], what: &str) -> SourceResult<T> {
        serde_json::from_slice(json).map_err(|e| self.refused(format!("{what}: {e}")))
    }
}

/// The node at a path of an archive, through symbolic links, which lead nowhere outside.
fn resolve(tree: &Tree, name: &str) -> Option<NodeId> {
    let mut above = vec![NodeId::ROOT];
    let mut ahead: Vec<Vec<u8>> = parts(name.as_bytes());
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        match &*part {
            b"." => continue,
            b".." => {
                above.truncate((above.len() - 1).max(1));
                continue;
            }
            _ => {}
        }
        let dir = above.last().copied().unwrap_or(NodeId::ROOT);
        let node = tree.child(dir, &part)?;
        let Some(target) = tree.symlink_target(node) else {
            above.push(node);
            continue;
        };
        links += 1;
        if links > LINKS_MAX {
            return None;
        }
        if target.starts_with(b"/") {
            above.truncate(1);
        }
        ahead.extend(parts(target));
    }
    above.last().copied()
}

/// The names of a path, the last one first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&b| b == b'/')
        .filter(|part| !part.is_empty())
        .rev()
        .map(<[u8]>::to_vec)
        .collect()
}
