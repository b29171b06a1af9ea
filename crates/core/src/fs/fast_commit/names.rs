//! Directory entries that come and go.

use super::Replay;
use crate::inode::{FileType, Held};
use crate::journal::Handle;
use crate::{Result, data, dir};
use extant_format::jbd2::DirEntryChange;

impl Replay<'_> {
    /// A new inode gets its first name; if it is a directory, its first block too.
    pub(super) fn create(&mut self, change: &DirEntryChange<'_>) -> Result<()> {
        let Some((parent, child)) = self.both(change)? else {
            return Ok(());
        };
        if child.is_dir() && child.snapshot().size() == 0 {
            let handle = self.fs.start(dir::init_credits(self.fs) + 1)?;
            dir::init(&handle, &child, parent.ino())?;
            set_links(&handle, &child, |_| 2)?;
        }
        if self.add(&parent, &child, change.name)? && !child.is_dir() {
            let handle = self.fs.start(1)?;
            set_links(&handle, &child, |_| 1)?;
        }
        Ok(())
    }

    /// An inode that is there gets one more name.
    pub(super) fn link(&mut self, change: &DirEntryChange<'_>) -> Result<()> {
        let Some((parent, child)) = self.both(change)? else {
            return Ok(());
        };
        if self.add(&parent, &child, change.name)? && !child.is_dir() {
            let handle = self.fs.start(1)?;
            set_links(&handle, &child, |links| links.saturating_add(1))?;
        }
        Ok(())
    }

    /// A name goes, if it still stands for the inode.
    pub(super) fn unlink(&mut self, change: &DirEntryChange<'_>) -> Result<()> {
        let Some((parent, child)) = self.both(change)? else {
            return Ok(());
        };
        let image = parent.snapshot();
        let found = dir::lookup(self.fs, &image, change.name)?;
        if found.is_none_or(|found| found.ino != child.ino()) {
            return Ok(());
        }
        let handle = self.fs.start(dir::remove_credits(self.fs, &image) + 2)?;
        dir::remove(&handle, &parent, change.name)?;
        touch(&handle, &parent, child.is_dir().then_some(-1))?;
        let is_dir = child.is_dir();
        set_links(&handle, &child, |links| match is_dir {
            true => 0,
            false => links.saturating_sub(1),
        })
    }

    /// The directory and the inode of a change, if both are there.
    fn both(&mut self, change: &DirEntryChange<'_>) -> Result<Option<(Held, Held)>> {
        let parent = self.inode(change.parent)?.filter(|parent| parent.is_dir());
        let child = self.inode(change.ino)?;
        Ok(parent.zip(child))
    }

    /// Puts a name into a directory, unless it is there; whether it was not.
    fn add(&self, parent: &Held, child: &Held, name: &[u8]) -> Result<bool> {
        let image = parent.snapshot();
        if dir::lookup(self.fs, &image, name)?.is_some() {
            return Ok(false);
        }
        let handle = self.fs.start(dir::insert_credits(self.fs, &image) + 1)?;
        let file_type = child.snapshot().file_type();
        dir::insert(&handle, parent, name, child.ino(), file_type)?;
        let subdirectory = (file_type == FileType::Directory).then_some(1);
        touch(&handle, parent, subdirectory)?;
        Ok(true)
    }
}

fn set_links(handle: &Handle<'_>, held: &Held, links: impl FnOnce(u16) -> u16) -> Result<()> {
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
