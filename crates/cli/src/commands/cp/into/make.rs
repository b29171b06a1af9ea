//! Making one file in an image and giving it what it had.

use super::Keep;
use super::content::{Content, inside};
use super::plan::{Link, Node, Origin, Reading};
use crate::images::{is_final, is_in_the_way};
use crate::path::{is_dir, look, look_at_link};
use crate::progress::Bar;
use crate::room::{self, TooLarge};
use extant::{Error, Escaped, File, FileType, Filesystem, Metadata, OpenOptions};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

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
    /// There is no room for it, and what was there is as it was.
    TooLarge(TooLarge),
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
    /// Held by a thread that takes what room is left.
    tight: &'a Mutex<()>,
    threads: usize,
    buffer: Vec<u8>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(
        fs: &'a Filesystem,
        keep: Keep,
        bar: &'a Bar,
        tight: &'a Mutex<()>,
        threads: usize,
    ) -> Self {
        Self {
            fs,
            keep,
            bar,
            tight,
            threads,
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
        self.attributes(node, &node.to)
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
                let ((), at) = beside(&link.to, &there, |at| self.fs.hard_link(&link.first, at))?;
                Ok(self.fs.rename(&at, &link.to)?)
            }
            made => Ok(made?),
        }
    }

    fn regular(&mut self, node: &Node) -> Result<(), Why> {
        // Refused before anything is made.
        let content = Content::open(node)?;
        let there = match self.keep.attributes {
            true => None,
            false => self.written_into(node)?,
        };
        match there {
            Some(there) => self.write_into(node, content, &there),
            None => self.new_file(node, content),
        }
    }

    fn new_file(&mut self, node: &Node, content: Content<'_>) -> Result<(), Why> {
        let mode = match self.keep.attributes {
            true => PRIVATE,
            false => node.permissions & PERMISSIONS,
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let (file, at) = self.new_place(node, |at| options.open(self.fs, at))?;
        let done = self
            .fill(&file, content)
            .and_then(|()| self.attributes(node, &at));
        self.complete(node, &at, done)
    }

    fn fill(&mut self, file: &File, content: Content<'_>) -> Result<(), Why> {
        let bar = self.bar;
        let size = content.copy(&mut self.buffer, |at, bytes| {
            file.write_all_at(bytes, at)?;
            bar.advance(bytes.len() as u64);
            Ok(())
        })?;
        match file.metadata().len() < size {
            true => Ok(file.set_len(size)?),
            false => Ok(()),
        }
    }

    /// The file that is there and gets new content, if there is one: it keeps what else it has.
    fn written_into(&self, node: &Node) -> Result<Option<Metadata>, Why> {
        let (fs, to) = (self.fs, &node.to);
        let Some(there) = look_at_link(fs, to)? else {
            return Ok(None);
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
        Ok(Some(there))
    }

    /// Gives a file that is there another content, once it is sure that it fits.
    fn write_into(
        &mut self,
        node: &Node,
        content: Content<'_>,
        there: &Metadata,
    ) -> Result<(), Why> {
        let fs = self.fs;
        let content = content.spooled(&mut self.buffer)?;
        let needed = content.blocks(room::block_size(fs)?)?;
        // Where all threads together may want more than there is, one at a time asks and takes.
        let is_tight = needed.saturating_mul(self.threads as u64) > room::available(fs)?;
        // Nothing is done under the lock that could leave it poisoned.
        let _alone = is_tight.then(|| self.tight.lock().unwrap_or_else(|e| e.into_inner()));
        room::fits(fs, there, needed)?.map_err(Why::TooLarge)?;
        let file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(fs, &node.to)?;
        self.fill(&file, content)?;
        self.attributes(node, &node.to)
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
        let ((), at) = self.new_place(node, |at| self.fs.symlink(target, at))?;
        self.complete(node, &at, self.attributes(node, &at))
    }

    fn special(&self, node: &Node) -> Result<(), Why> {
        let mode = match self.keep.attributes {
            true => PRIVATE,
            false => node.permissions & PERMISSIONS,
        };
        let ((), at) = self.new_place(node, |at| {
            self.fs
                .create_special(at, node.file_type, node.device, mode)
        })?;
        self.complete(node, &at, self.attributes(node, &at))
    }

    /// Makes something that must be new with `make`, and says where: in its place, or beside what stands there, which
    /// stays until the new one is [complete](Self::complete). A directory and the source itself are not replaced.
    fn new_place<T>(
        &self,
        node: &Node,
        make: impl Fn(&Path) -> Result<T, Error>,
    ) -> Result<(T, PathBuf), Why> {
        match make(&node.to) {
            Err(e) if is_in_the_way(&e) => {
                let there = self.fs.symlink_metadata(&node.to)?;
                refuse_same(node, &there)?;
                beside(&node.to, &there, make)
            }
            made => Ok((made?, node.to.clone())),
        }
    }

    /// Puts what was made at `at` in its place, in one step, or takes it away if it failed: half a file is worse than none.
    fn complete(&self, node: &Node, at: &Path, done: Result<(), Why>) -> Result<(), Why> {
        let done = done.and_then(|()| match at == node.to {
            true => Ok(()),
            false => Ok(self.fs.rename(at, &node.to)?),
        });
        if done.is_err() {
            // If it cannot be removed either, the first failure still says what happened.
            let _ = self.fs.remove_file(at);
        }
        done
    }

    /// Gives the file at `at` its extended attributes, and takes those away that it has besides.
    fn xattrs(&self, node: &Node, at: &Path) -> Result<(), Why> {
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
        for name in self.fs.list_xattrs(at)? {
            if wanted.iter().all(|(wanted, _)| *wanted != name) {
                self.fs.remove_xattr(at, name)?;
            }
        }
        for (name, value) in wanted {
            self.fs.set_xattr(at, name, value)?;
        }
        Ok(())
    }

    /// Gives the file or directory at `at` its owner, permissions and times, in the order in which none undoes another.
    fn attributes(&self, node: &Node, at: &Path) -> Result<(), Why> {
        let kept = self
            .keep
            .attributes
            .then_some((Some(node.uid), Some(node.gid)));
        let (uid, gid) = match (self.keep.owner, kept) {
            (Some(owner), kept) => (Some(owner.uid), owner.gid.or(kept.and_then(|(_, gid)| gid))),
            (None, kept) => kept.unwrap_or((None, None)),
        };
        if uid.is_some() || gid.is_some() {
            self.fs.set_owner(at, uid, gid)?;
        }
        if self.keep.xattrs {
            self.xattrs(node, at)?;
        }
        if self.keep.attributes {
            if node.file_type != FileType::Symlink {
                self.fs.set_permissions(at, node.permissions)?;
            }
            self.fs
                .set_times(at, Some(node.accessed), Some(node.modified))?;
        }
        Ok(())
    }
}

/// Names tried beside a file that is to be replaced.
const NAMES_MAX: u32 = 1000;

/// Makes something under a name of its own in the directory of `path`, where something else stands that is no directory.
fn beside<T>(
    path: &Path,
    there: &Metadata,
    make: impl Fn(&Path) -> Result<T, Error>,
) -> Result<(T, PathBuf), Why> {
    if there.is_dir() {
        return Err(Why::Place(DIRECTORY_IN_THE_WAY));
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    // The number of what is replaced keeps threads out of each other's way.
    for number in 0..NAMES_MAX {
        let at = dir.join(format!(".extant-new-{}-{number}", there.ino()));
        match make(&at) {
            Err(e) if is_in_the_way(&e) => {}
            made => return Ok((made?, at)),
        }
    }
    Err(Why::Place(
        "no name is free beside it for the new file: remove what is called .extant-new-* there",
    ))
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
    let len = match extant_host::llistxattr(path.as_os_str().as_bytes(), &mut buffer) {
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
        match extant_host::lgetxattr(path.as_os_str().as_bytes(), name, &mut buffer) {
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
