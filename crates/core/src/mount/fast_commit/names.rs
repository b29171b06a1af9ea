//! Directory entries that come and go.

use super::{Replay, contradiction};
use crate::fs::Handle;
use crate::inode::{FileType, Held};
use crate::{Result, data, dir};
use extant_format::Ino;
use extant_format::jbd2::DirEntryChange;
use std::collections::{BTreeMap, BTreeSet};

/// A directory and a name in it.
type Name = (Ino, Box<[u8]>);

/// Names that records give to inodes and have not taken back.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Those that are in their directories.
    given: BTreeMap<Ino, BTreeSet<Name>>,
    /// Those that wait until it is known which inode has the number.
    waiting: BTreeMap<Ino, BTreeSet<Name>>,
}

impl Names {
    /// How many names an inode has got.
    pub(super) fn count(&self, ino: Ino) -> u16 {
        let given = self.given.get(&ino).map_or(0, BTreeSet::len);
        u16::try_from(given).unwrap_or(u16::MAX)
    }

    /// Forgets what was given to the inode that had this number.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.given.remove(&ino);
    }
}

impl Replay<'_> {
    /// A new inode gets its first name; if it is a directory, its first block too.
    pub(super) fn create(&mut self, change: &DirEntryChange<'_>) -> Result<()> {
        let Some((parent, child)) = self.both(change)? else {
            return Ok(());
        };
        if child.is_dir() {
            self.give_dots(&parent, &child)?;
        }
        if self.add(&parent, &child, change.name)? && !child.is_dir() {
            let handle = self.start(1)?;
            set_links(&handle, &child, |_| 1)?;
        }
        Ok(())
    }

    /// Makes `.` and `..` right in a directory that has no name.
    fn give_dots(&self, parent: &Held, child: &Held) -> Result<()> {
        let image = child.snapshot();
        let handle = self.start(dir::init_credits(self.fs) + 1)?;
        if image.size() == 0 {
            dir::init(&handle, child, parent.ino())?;
        } else if image.disk().links == 0 {
            dir::set_parent(&handle, child, parent.ino())?;
        } else {
            return Ok(());
        }
        set_links(&handle, child, |_| 2)
    }

    /// An inode gets one more name. If it has none it may be that its number is about to go to
    /// another one.
    pub(super) fn link(&mut self, change: &DirEntryChange<'_>) -> Result<()> {
        let child = self.inode(change.ino)?;
        let Some(child) = child.filter(|child| child.snapshot().disk().links > 0) else {
            let name = (change.parent, change.name.into());
            self.names
                .waiting
                .entry(change.ino)
                .or_default()
                .insert(name);
            return Ok(());
        };
        if self.add_to(change.parent, &child, change.name)? {
            let handle = self.start(1)?;
            set_links(&handle, &child, |links| links.saturating_add(1))?;
        }
        Ok(())
    }

    /// Gives an inode the names that wait for its record, which counts them.
    pub(super) fn link_waiting(&mut self, child: &Held) -> Result<()> {
        let names = self.names.waiting.remove(&child.ino());
        for (parent, name) in names.into_iter().flatten() {
            self.add_to(parent, child, &name)?;
        }
        Ok(())
    }

    /// Links all inodes that wait for it: no more records come.
    pub(super) fn link_all_waiting(&mut self) -> Result<()> {
        let inodes: Vec<Ino> = self.names.waiting.keys().copied().collect();
        for ino in inodes {
            if let Some(child) = self.inode(ino)? {
                self.link_waiting(&child)?;
            }
        }
        Ok(())
    }

    /// A name goes, if it still stands for the inode.
    pub(super) fn unlink(&mut self, change: &DirEntryChange<'_>) -> Result<()> {
        let name: Name = (change.parent, change.name.into());
        let waiting = self.names.waiting.get_mut(&change.ino);
        if waiting.is_some_and(|names| names.remove(&name)) {
            return Ok(());
        }
        let Some((parent, child)) = self.both(change)? else {
            return Ok(());
        };
        let image = parent.snapshot();
        let found = dir::lookup(self.fs, &image, change.name)?;
        if found.is_none_or(|found| found.ino != child.ino()) {
            return Ok(());
        }
        let is_dir = child.is_dir();
        if is_dir && (child.ino() == Ino::ROOT || !dir::is_empty(self.fs, &child)?) {
            let links = child.snapshot().disk().links.into();
            return Err(contradiction(
                child.ino(),
                "links",
                links,
                "those of an empty directory, as it is removed",
            ));
        }
        let handle = self.start(dir::remove_credits(self.fs, &image) + 2)?;
        dir::remove(&handle, &parent, change.name)?;
        touch(&handle, &parent, is_dir.then_some(-1))?;
        if let Some(names) = self.names.given.get_mut(&child.ino()) {
            names.remove(&name);
        }
        set_links(&handle, &child, |links| {
            if is_dir { 0 } else { links.saturating_sub(1) }
        })
    }

    /// The directory of this number, if it is one.
    fn directory(&mut self, ino: Ino) -> Result<Option<Held>> {
        Ok(self.inode(ino)?.filter(|held| held.is_dir()))
    }

    /// The directory and the inode of a change, if both are there.
    fn both(&mut self, change: &DirEntryChange<'_>) -> Result<Option<(Held, Held)>> {
        let parent = self.directory(change.parent)?;
        let child = self.inode(change.ino)?;
        Ok(parent.zip(child))
    }

    /// Puts one more name of `child`, which is no directory, into that of number `parent`, if there
    /// is one; whether it was not there.
    fn add_to(&mut self, parent: Ino, child: &Held, name: &[u8]) -> Result<bool> {
        if child.is_dir() {
            let links = child.snapshot().disk().links.into();
            let said = "those of something else than a directory, as it gets one more name";
            return Err(contradiction(child.ino(), "links", links, said));
        }
        match self.directory(parent)? {
            Some(parent) => self.add(&parent, child, name),
            None => Ok(false),
        }
    }

    /// Puts a name into a directory, unless it is there; whether it was not.
    fn add(&mut self, parent: &Held, child: &Held, name: &[u8]) -> Result<bool> {
        if name.contains(&0) || name.contains(&b'/') || name == b"." || name == b".." {
            let said = "a name that a file can have";
            let len = name.len() as u64;
            return Err(contradiction(parent.ino(), "name", len, said));
        }
        let image = parent.snapshot();
        let found = dir::lookup(self.fs, &image, name)?;
        if found.is_none_or(|found| found.ino == child.ino()) {
            let given = self.names.given.entry(child.ino()).or_default();
            given.insert((parent.ino(), name.into()));
        }
        if found.is_some() {
            return Ok(false);
        }
        let handle = self.start(dir::insert_credits(self.fs, &image) + 1)?;
        let file_type = child.snapshot().file_type();
        dir::insert(&handle, parent, name, child.ino(), file_type)?;
        let subdirectory = (file_type == FileType::Directory).then_some(1);
        touch(&handle, parent, subdirectory)?;
        Ok(true)
    }
}

pub(super) fn set_links(
    handle: &Handle<'_>,
    held: &Held,
    links: impl FnOnce(u16) -> u16,
) -> Result<()> {
    held.live().update(handle, |inode| {
        let disk = inode.disk_mut();
        disk.links = links(disk.links);
    })
}

/// Notes in a directory that its names changed, and how many subdirectories it has more.
fn touch(handle: &Handle<'_>, parent: &Held, subdirectories: Option<i16>) -> Result<()> {
    let time = data::now();
    parent.live().update(handle, |inode| {
        let disk = inode.disk_mut();
        disk.mtime = time;
        disk.ctime = time;
        // 1 stands for a count that did not fit.
        if let (Some(more), 2..) = (subdirectories, disk.links) {
            disk.links = disk.links.saturating_add_signed(more).max(2);
        }
    })
}
