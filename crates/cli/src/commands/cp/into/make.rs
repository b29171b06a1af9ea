//! Making one file in an image and giving it what it had.

use super::Keep;
use super::attributes::Lacking;
use super::content::{Content, inside};
use super::plan::{Link, Node, Origin, Told};
use crate::images::{is_final, is_in_the_way};
use crate::no_room::NoRoom;
use crate::older::{Names, Obstacle, Older, beside};
use crate::path::is_dir;
use crate::progress::Bar;
use crate::room::{self, Fit, TooLarge};
use extant::{Error, Escaped, File, FileType, Filesystem, Metadata, OpenOptions};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What a file may be used for while it is being made: by its owner only.
const PRIVATE: u16 = 0o600;
const PRIVATE_DIR: u16 = 0o700;
/// Permissions without set-id and sticky bits.
const PERMISSIONS: u16 = 0o777;

/// Why something was not made.
pub(super) enum Why {
    /// What the destination's image said.
    Image(Error),
    /// What is wrong with the source, as a sentence.
    Source(String),
    /// What is wrong with the place in the image.
    ImagePath(&'static str),
    /// There is no room for it, and what was there is as it was.
    TooLarge(TooLarge),
    /// There is no room in the destination's image.
    NoRoom(Error, NoRoom),
    /// It is there with all its content, but not with all else that it had.
    Incomplete(Lacking),
}

impl From<Error> for Why {
    fn from(e: Error) -> Self {
        Self::Image(e)
    }
}

impl From<Obstacle> for Why {
    fn from(why: Obstacle) -> Self {
        match why {
            Obstacle::Image(e) => Self::Image(e),
            Obstacle::Place(text) => Self::ImagePath(text),
        }
    }
}

impl Why {
    /// Whether every further file would fail as well.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Image(e) => is_final(e),
            Self::NoRoom(_, what) => *what == NoRoom::Blocks,
            Self::Incomplete(lacking) => lacking.is_final,
            Self::Source(_) | Self::ImagePath(_) | Self::TooLarge(_) => false,
        }
    }
}

/// What one thread works with.
pub(super) struct Maker<'a> {
    pub(super) fs: &'a Filesystem,
    pub(super) keep: Keep,
    bar: &'a Bar,
    /// Held by a thread that takes what room is left.
    tight: &'a Mutex<()>,
    /// Names of files of the image that have several.
    names: &'a Names,
    threads: usize,
    buffer: Vec<u8>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(
        fs: &'a Filesystem,
        keep: Keep,
        bar: &'a Bar,
        tight: &'a Mutex<()>,
        names: &'a Names,
        threads: usize,
    ) -> Self {
        Self {
            fs,
            keep,
            bar,
            tight,
            names,
            threads,
            buffer: Vec::new(),
        }
    }

    /// Makes a directory; `false` if it is there already, perhaps by way of a symbolic link.
    pub(super) fn directory(&self, node: &Node) -> Result<bool, Why> {
        let mode = if self.keep.attributes {
            PRIVATE_DIR
        } else {
            node.permissions & PERMISSIONS
        };
        // The root cannot be made, and says so in its own way.
        if is_dir(self.fs, &node.to)? {
            return Ok(false);
        }
        match self.fs.create_dir_with(&node.to, mode) {
            Ok(()) => Ok(true),
            Err(e) if is_in_the_way(&e) => Err(Why::ImagePath(
                "something that is no directory is in the way",
            )),
            Err(e) => Err(no_room(self.fs, e, true)),
        }
    }

    /// Gives a directory what it had, once everything in it is made.
    pub(super) fn directory_attributes(&self, node: &Node, is_new: bool) -> Result<(), Why> {
        let is_dir = node.file_type == FileType::Directory;
        if !is_new && is_dir && self.fs.symlink_metadata(&node.to)?.is_symlink() {
            // What the link leads to is not what is copied.
            return Ok(());
        }
        if !is_new && !self.keep.attributes {
            return Ok(());
        }
        self.attributes(node, &node.to).outcome()
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
                self.fs.rename(&at, &link.to).map_err(|e| {
                    // If it cannot be removed either, the first failure still says what happened.
                    let _ = self.fs.remove_file(&at);
                    e.into()
                })
            }
            made => Ok(made?),
        }
    }

    fn regular(&mut self, node: &Node) -> Result<(), Why> {
        // Refused before anything is made.
        let content = Content::open(node)?;
        let older = if self.keep.attributes || self.keep.removes_first {
            None
        } else {
            Older::find(self.fs, &node.to, self.names)?
        };
        match older {
            Some(older) => self.in_place_of(older, node, content),
            None => self.new_file(node, content),
        }
    }

    fn new_file(&mut self, node: &Node, content: Content<'_>) -> Result<(), Why> {
        let mode = if self.keep.attributes {
            PRIVATE
        } else {
            node.permissions & PERMISSIONS
        };
        let is_direct = content.is_large(self.fs, self.threads);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        options.direct(is_direct);
        let (file, at) = self.new_place(node, |at| options.open(self.fs, at))?;
        let filled = self.fill(&file, content, is_direct);
        self.complete(node, &at, filled)
    }

    fn fill(&mut self, file: &File, content: Content<'_>, is_direct: bool) -> Result<(), Why> {
        let (fs, bar) = (self.fs, self.bar);
        let no_room = |e| no_room(fs, e, false);
        let put = |at, bytes: &[u8]| {
            file.write_all_at(bytes, at).map_err(no_room)?;
            bar.advance(bytes.len() as u64);
            Ok(())
        };
        let size = if is_direct {
            let reserve = |Range { start, end }| file.allocate(start, end - start).is_ok();
            content.copy_large(&mut self.buffer, reserve, put)
        } else {
            content.copy(&mut self.buffer, put)
        }?;
        if file.metadata().len() != size {
            file.set_len(size).map_err(no_room)
        } else {
            Ok(())
        }
    }

    /// Puts a file with another content in the place of an older one, which keeps what else it has,
    /// once it is sure that it fits.
    fn in_place_of(
        &mut self,
        older: Older<'_>,
        node: &Node,
        content: Content<'_>,
    ) -> Result<(), Why> {
        refuse_same(node, older.metadata())?;
        let fs = self.fs;
        let content = content.spooled(&mut self.buffer)?;
        let needed = content.blocks(room::block_size(fs)?)?;
        // Where all threads together may want more than there is, one at a time asks and takes.
        let is_tight = needed.saturating_mul(self.threads as u64) > room::available(fs)?;
        // Nothing is done under the lock that could leave it poisoned.
        let _alone = is_tight.then(|| self.tight.lock().unwrap_or_else(|e| e.into_inner()));
        let fit = room::fits(fs, older.metadata(), needed)?;
        if fit.map_err(Why::TooLarge)? == Fit::InPlace {
            return self.write_into(node, content);
        }
        let is_direct = content.is_large(fs, self.threads);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE);
        options.direct(is_direct);
        let made = older.beside(|at| options.open(fs, at));
        let (file, at) = made.map_err(|why| match why {
            Obstacle::Image(e) => no_room(fs, e, true),
            why => why.into(),
        })?;
        let done = self.fill(&file, content, is_direct).and_then(|()| {
            let mut lacking = Lacking::default();
            older.give(&at, &mut |what, e| lacking.note(what, e));
            lacking.add(self.attributes(node, &at));
            let hidden = older.replace(&at, &mut |what, e| lacking.note(what, e))?;
            lacking.what.extend(hidden);
            Ok(lacking)
        });
        if done.is_err() {
            // If it cannot be removed either, the first failure still says what happened.
            let _ = fs.remove_file(&at);
        }
        done?.outcome()
    }

    /// Gives a file that is there another content where there is no room for both.
    fn write_into(&mut self, node: &Node, content: Content<'_>) -> Result<(), Why> {
        let fs = self.fs;
        let is_direct = content.is_large(fs, self.threads);
        let file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .direct(is_direct)
            .open(fs, &node.to)?;
        self.fill(&file, content, is_direct)?;
        self.attributes(node, &node.to).outcome()
    }

    fn symlink(&self, node: &Node) -> Result<(), Why> {
        let target = target_of(node)?;
        let target = Path::new(std::ffi::OsStr::from_bytes(&target));
        let ((), at) = self.new_place(node, |at| self.fs.symlink(target, at))?;
        self.complete(node, &at, Ok(()))
    }

    fn special(&self, node: &Node) -> Result<(), Why> {
        let mode = if self.keep.attributes {
            PRIVATE
        } else {
            node.permissions & PERMISSIONS
        };
        let ((), at) = self.new_place(node, |at| {
            self.fs
                .create_special(at, node.file_type, node.device, mode)
        })?;
        self.complete(node, &at, Ok(()))
    }

    /// Makes something that must be new with `make`, and says where: in its place, or beside what
    /// stands there, which stays until the new one is [complete](Self::complete). A directory and
    /// the source itself are not replaced.
    fn new_place<T>(
        &self,
        node: &Node,
        make: impl Fn(&Path) -> Result<T, Error>,
    ) -> Result<(T, PathBuf), Why> {
        match make(&node.to) {
            Err(e) if is_in_the_way(&e) => {
                let there = self.fs.symlink_metadata(&node.to)?;
                refuse_same(node, &there)?;
                if self.keep.removes_first && !there.is_dir() {
                    self.fs.remove_file(&node.to)?;
                    let made = make(&node.to).map_err(|e| no_room(self.fs, e, true))?;
                    return Ok((made, node.to.clone()));
                }
                beside(&node.to, &there, make).map_err(|why| match why {
                    Obstacle::Image(e) => no_room(self.fs, e, true),
                    why => why.into(),
                })
            }
            Err(e) => Err(no_room(self.fs, e, true)),
            Ok(made) => Ok((made, node.to.clone())),
        }
    }

    /// Gives what was made and filled at `at` what else it had, and puts it in its place, in one
    /// step; or takes it away if filling it failed: half a file is worse than none.
    fn complete(&self, node: &Node, at: &Path, filled: Result<(), Why>) -> Result<(), Why> {
        let done = filled.and_then(|()| {
            let lacking = self.attributes(node, at);
            if at != node.to {
                self.fs.rename(at, &node.to)?;
            }
            Ok(lacking)
        });
        if done.is_err() {
            // If it cannot be removed either, the first failure still says what happened.
            let _ = self.fs.remove_file(at);
        }
        done?.outcome()
    }
}

/// Where a symbolic link leads.
pub(super) fn target_of(node: &Node) -> Result<Vec<u8>, Why> {
    match &node.from {
        Origin::Host { path, .. } => std::fs::read_link(path)
            .map(|target| target.as_os_str().as_bytes().to_vec())
            .map_err(|e| {
                let path = Escaped::path(path);
                Why::Source(format!("cannot read the symbolic link {path}: {e}"))
            }),
        Origin::Image { entry, image, .. } => entry.read_link().map_err(|e| inside(image, &e)),
        // It is a file.
        Origin::Input => Ok(Vec::new()),
        Origin::Tree(Told { tree, id }) => {
            Ok(tree.symlink_target(*id).unwrap_or_default().to_vec())
        }
    }
}

/// An error of making or filling a file, told apart by what there is no room for.
fn no_room(fs: &Filesystem, e: Error, making: bool) -> Why {
    match NoRoom::of(fs, &e, making) {
        Some(what) => Why::NoRoom(e, what),
        None => Why::Image(e),
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
            Err(Why::ImagePath("this is the file that is to be copied"))
        }
        _ => Ok(()),
    }
}
