//! Making one file in an image and giving it what it had.

use super::Keep;
use super::content::{Content, inside};
use super::plan::{Link, Node, Origin, Reading};
use crate::images::{is_final, is_in_the_way, is_missing};
use crate::path::{is_dir, look, look_at_link};
use crate::progress::Bar;
use extant::{Error, Escaped, File, FileType, Filesystem, Metadata, OpenOptions};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What a file may be used for while it is being made: by its owner only.
const PRIVATE: u16 = 0o600;
const PRIVATE_DIR: u16 = 0o700;
/// Permissions without set-id and sticky bits.
const PERMISSIONS: u16 = 0o777;

const DIRECTORY_IN_THE_WAY: &str = "a directory is in the way";

/// Why something was not made.
pub(super) enum Why {
    /// What the destination's image said.
    Image(Error),
    /// What is wrong with the source, as a sentence.
    Source(String),
    /// What is wrong with the place in the image.
    Place(&'static str),
}

impl From<Error> for Why {
    fn from(e: Error) -> Self {
        Self::Image(e)
    }
}

impl Why {
    /// Whether every further file would fail as well.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Image(e) if is_final(e))
    }
}

/// What one thread works with.
pub(super) struct Maker<'a> {
    fs: &'a Filesystem,
    keep: Keep,
    bar: &'a Bar,
    buffer: Vec<u8>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(fs: &'a Filesystem, keep: Keep, bar: &'a Bar) -> Self {
        Self {
            fs,
            keep,
            bar,
            buffer: Vec::new(),
        }
    }

    /// Makes a directory; `false` if it is there already, perhaps by way of a symbolic link.
    pub(super) fn directory(&self, node: &Node) -> Result<bool, Why> {
        let mode = match self.keep.attributes {
            true => PRIVATE_DIR,
            false => node.permissions & PERMISSIONS,
        };
        // The root cannot be made, and says so in its own way.
        if is_dir(self.fs, &node.to)? {
            return Ok(false);
        }
        match self.fs.create_dir_with(&node.to, mode) {
            Ok(()) => Ok(true),
            Err(e) if is_in_the_way(&e) => {
                Err(Why::Place("something that is no directory is in the way"))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Gives a directory what it had, once everything in it is made.
    pub(super) fn directory_attributes(&self, node: &Node, is_new: bool) -> Result<(), Why> {
        if !is_new && self.fs.symlink_metadata(&node.to)?.is_symlink() {
            // What the link leads to is not what is copied.
            return Ok(());
        }
        if !is_new && !self.keep.attributes {
            return Ok(());
        }
        self.attributes(node)
    }

    /// Makes a file that is no directory.
    pub(super) fn file(&mut self, node: &Node) -> Result<(), Why> {
        match node.file_type {
            FileType::Regular => self.regular(node),
            FileType::Symlink => self.symlink(node),
            _ => self.special(node),
        }
    }

    /// Gives a file one more name.
    pub(super) fn link(&self, link: &Link) -> Result<(), Why> {
        match self.fs.hard_link(&link.first, &link.to) {
            Err(e) if is_in_the_way(&e) => {
                let there = self.fs.symlink_metadata(&link.to)?;
                let first = self.fs.symlink_metadata(&link.first)?;
                if there.ino() == first.ino() {
                    return Ok(());
                }
                self.make_way(&link.to, &there)?;
                Ok(self.fs.hard_link(&link.first, &link.to)?)
            }
            made => Ok(made?),
        }
    }

    fn regular(&mut self, node: &Node) -> Result<(), Why> {
        // Refused before anything is made.
        let content = Content::open(node)?;
        let (file, is_new) = self.open(node)?;
        let bar = self.bar;
        let filled = content.copy(&mut self.buffer, |at, bytes| {
            file.write_all_at(bytes, at)?;
            bar.advance(bytes.len() as u64);
            Ok(())
        });
        let done = filled
            .and_then(|size| match file.metadata().len() < size {
                true => Ok(file.set_len(size)?),
                false => Ok(()),
            })
            .and_then(|()| self.attributes(node));
        if done.is_err() && is_new {
            // Half a file is worse than none. If it cannot be removed either, the first failure
            // still says what happened.
            let _ = self.fs.remove_file(&node.to);
        }
        done
    }

    /// Opens the file to fill, empty. Whether it is new.
    fn open(&self, node: &Node) -> Result<(File, bool), Why> {
        let (fs, to) = (self.fs, &node.to);
        let mut options = OpenOptions::new();
        options.write(true);
        if self.keep.attributes {
            options.create_new(true).mode(PRIVATE);
            let file = self.replacing(node, || options.open(fs, to))?;
            return Ok((file, true));
        }
        let Some(there) = look_at_link(fs, to)? else {
            options
                .create_new(true)
                .mode(node.permissions & PERMISSIONS);
            return Ok((options.open(fs, to)?, true));
        };
        let there = match there.is_symlink() {
            false => there,
            true => look(fs, to)?.ok_or(Why::Place(
                "a symbolic link that leads nowhere is in the way: remove it first with `extant rm`",
            ))?,
        };
        if there.is_dir() {
            return Err(Why::Place(DIRECTORY_IN_THE_WAY));
        }
        refuse_same(node, &there)?;
        Ok((options.truncate(true).open(fs, to)?, false))
    }

    fn symlink(&self, node: &Node) -> Result<(), Why> {
        let target = match &node.from {
            Origin::Host { path, .. } => std::fs::read_link(path)
                .map(|target| target.as_os_str().as_bytes().to_vec())
                .map_err(|e| {
                    let path = Escaped::path(path);
                    Why::Source(format!("cannot read the symbolic link {path}: {e}"))
                })?,
            Origin::Image { entry, image, .. } => {
                entry.read_link().map_err(|e| inside(image, &e))?
            }
        };
        let target = Path::new(std::ffi::OsStr::from_bytes(&target));
        self.replacing(node, || self.fs.symlink(target, &node.to))?;
        self.attributes(node)
    }

    fn special(&self, node: &Node) -> Result<(), Why> {
        let mode = match self.keep.attributes {
            true => PRIVATE,
            false => node.permissions & PERMISSIONS,
        };
        self.replacing(node, || {
            self.fs
                .create_special(&node.to, node.file_type, node.device, mode)
        })?;
        self.attributes(node)
    }

    /// Makes something that must be new. What stands in its place makes room, unless it is a directory
    /// or the source itself.
    fn replacing<T>(&self, node: &Node, make: impl Fn() -> Result<T, Error>) -> Result<T, Why> {
        match make() {
            Err(e) if is_in_the_way(&e) => {
                let there = self.fs.symlink_metadata(&node.to)?;
                refuse_same(node, &there)?;
                self.make_way(&node.to, &there)?;
                Ok(make()?)
            }
            made => Ok(made?),
        }
    }

    fn make_way(&self, path: &Path, there: &Metadata) -> Result<(), Why> {
        if there.is_dir() {
            return Err(Why::Place(DIRECTORY_IN_THE_WAY));
        }
        match self.fs.remove_file(path) {
            Err(e) if !is_missing(&e) => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Gives a file its extended attributes, and takes those away that it has besides.
    fn xattrs(&self, node: &Node) -> Result<(), Why> {
        let wanted = match &node.from {
            Origin::Host {
                how: Reading::Stream,
                ..
            } => return Ok(()),
            Origin::Host { path, .. } => host_xattrs(path).map_err(|e| {
                let path = Escaped::path(path);
                Why::Source(format!(
                    "cannot read the extended attributes of {path}: {e}"
                ))
            })?,
            Origin::Image { entry, image, .. } => entry.xattrs().map_err(|e| inside(image, &e))?,
        };
        for name in self.fs.list_xattrs(&node.to)? {
            if wanted.iter().all(|(wanted, _)| *wanted != name) {
                self.fs.remove_xattr(&node.to, name)?;
            }
        }
        for (name, value) in wanted {
            self.fs.set_xattr(&node.to, name, value)?;
        }
        Ok(())
    }

    /// Gives a file or directory its owner, permissions and times, in the order in which none undoes
    /// another.
    fn attributes(&self, node: &Node) -> Result<(), Why> {
        let kept = self
            .keep
            .attributes
            .then_some((Some(node.uid), Some(node.gid)));
        let (uid, gid) = match (self.keep.owner, kept) {
            (Some(owner), kept) => (Some(owner.uid), owner.gid.or(kept.and_then(|(_, gid)| gid))),
            (None, kept) => kept.unwrap_or((None, None)),
        };
        if uid.is_some() || gid.is_some() {
            self.fs.set_owner(&node.to, uid, gid)?;
        }
        if self.keep.xattrs {
            self.xattrs(node)?;
        }
        if self.keep.attributes {
            if node.file_type != FileType::Symlink {
                self.fs.set_permissions(&node.to, node.permissions)?;
            }
            self.fs
                .set_times(&node.to, Some(node.accessed), Some(node.modified))?;
        }
        Ok(())
    }
}

/// A file that is copied onto itself would be emptied.
fn refuse_same(node: &Node, there: &Metadata) -> Result<(), Why> {
    match &node.from {
        Origin::Image {
            entry,
            is_dest: true,
            ..
        } if entry.metadata().ino() == there.ino() => {
            Err(Why::Place("this is the file that is to be copied"))
        }
        _ => Ok(()),
    }
}

/// Names and values of the extended attributes of a file of the host, which is not followed. Where there can be none
/// there are none.
fn host_xattrs(path: &Path) -> rustix::io::Result<Vec<(OsString, Vec<u8>)>> {
    use rustix::io::Errno;
    // The most that Linux returns of either.
    let mut buffer = vec![0; 64 << 10];
    let len = match rustix::fs::llistxattr(path, &mut buffer[..]) {
        Ok(len) => len,
        Err(Errno::NOTSUP) => 0,
        Err(e) => return Err(e),
    };
    let names = buffer.get(..len).unwrap_or_default().to_vec();
    let mut all = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        match rustix::fs::lgetxattr(path, name, &mut buffer[..]) {
            Ok(len) => {
                let value = buffer.get(..len).unwrap_or_default().to_vec();
                all.push((OsString::from_vec(name.to_vec()), value));
            }
            // Gone meanwhile.
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}
