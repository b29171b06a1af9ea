//! New inodes.

use super::acl;
use super::delete::Progress;
use crate::alloc::Parent;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Held, Inode, LiveInode, SET_GID};
use crate::xattr::{Fresh, charge, leave};
use crate::{Error, InPlace, Place, Result};
use extant_format::extent::{Entries, build_node};
use extant_format::features::{Incompat, RoCompat};
use extant_format::inode::{
    DeviceNumber, FIXED_BYTES, FileType, Inode as DiskInode, InodeFlags, KNOWN_BYTES, MAP_BYTES,
    Mode, Timestamp,
};
use extant_format::{Expected, FormatError, Ino, Pblk, Structure};
use extant_sync::pin;
use std::sync::Arc;

/// What a directory hands down to what is made in it.
const INHERITED: InodeFlags = InodeFlags::SECURE_DELETION
    .union(InodeFlags::UNDELETABLE)
    .union(InodeFlags::COMPRESSED)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NO_DUMP)
    .union(InodeFlags::NO_ATIME)
    .union(InodeFlags::NO_COMPRESS)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NO_TAIL)
    .union(InodeFlags::DIR_SYNC)
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::DAX);
/// Of these, what means something for a directory only.
const FOR_DIRECTORIES: InodeFlags = InodeFlags::DIR_SYNC
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD);
/// Of these, what means something for what is neither a directory nor a regular file.
const FOR_OTHERS: InodeFlags = InodeFlags::NO_DUMP.union(InodeFlags::NO_ATIME);

/// What an attribute without a value takes in an inode, with what comes before and behind all of
/// them.
const SPACE_OF_EMPTY_CONTENT: usize = 4 + 16 + 4 + 4;

/// What the maker of an inode decides.
#[derive(Clone, Debug)]
pub struct NewInode {
    /// The file type.
    pub file_type: FileType,
    /// Set-id, sticky and permission bits, before the umask.
    pub permissions: u16,
    /// Permissions to take away, unless the parent's default access control list decides.
    pub umask: u16,
    /// The owner.
    pub uid: u32,
    /// The group, unless the parent hands down its own.
    pub gid: u32,
    /// The number of a device node.
    pub device: DeviceNumber,
    /// The time of now, for all its times.
    pub time: Timestamp,
}

impl NewInode {
    /// An inode of this type and these permissions, made now by the privileged user.
    #[must_use]
    pub fn new(file_type: FileType, permissions: u16, time: Timestamp) -> Self {
        Self {
            file_type,
            permissions,
            umask: 0,
            uid: 0,
            gid: 0,
            device: DeviceNumber::default(),
            time,
        }
    }
}

impl NewInode {
    /// User, group and project of the inode if it is made in `parent`.
    pub(crate) fn owners_in(&self, parent: &Inode) -> [u32; 3] {
        let parent = parent.disk();
        let gid = if parent.mode.permissions() & SET_GID != 0 {
            parent.gid
        } else {
            self.gid
        };
        let project = if parent.flags.contains(InodeFlags::PROJECT_INHERIT) {
            parent.project.unwrap_or(0)
        } else {
            0
        };
        [self.uid, gid, project]
    }
}

impl Fs {
    /// Blocks that [`Fs::new_inode`] changes at most: the record, the group's bitmap, descriptor
    /// and counts, and the superblock.
    #[must_use]
    pub(crate) fn new_inode_credits(&self) -> u32 {
        5
    }

    /// Counts the blocks that a new inode in `parent` changes, whose access control list it may
    /// inherit.
    #[must_use]
    pub(crate) fn new_inode_credits_in(&self, parent: &Inode) -> u32 {
        let inherited = if parent.may_have_attributes() {
            Fresh::CREDITS
        } else {
            0
        };
        self.new_inode_credits() + inherited
    }

    /// Makes an inode that belongs into the directory `parent`, with no content. It has the names
    /// it is going to have: 2 for a directory, otherwise 1. A caller that fails to give it its name
    /// calls [`Fs::abandon_inode`] under the same handle.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when no inode is free, or no block for an access control list that it
    /// inherits; those of reading the parent's attributes, the bitmap and the inode table. Nothing
    /// has changed then.
    pub(crate) fn new_inode(
        &self,
        handle: &Handle<'_>,
        parent: &Inode,
        new: &NewInode,
    ) -> Result<Held> {
        let is_inline = matches!(new.file_type, FileType::Regular | FileType::Directory)
            && self.superblock().has_incompat(Incompat::INLINE_DATA);
        let mut flags = InodeFlags::empty();
        flags.set(InodeFlags::INLINE_DATA, is_inline);
        self.new_inode_as(handle, parent, new, flags)
    }

    /// Makes an inode with these flags beside those that it inherits; its content lies inside the
    /// inode only if there is room.
    fn new_inode_as(
        &self,
        handle: &Handle<'_>,
        parent: &Inode,
        new: &NewInode,
        flags: InodeFlags,
    ) -> Result<Held> {
        let extra_isize = self.new_extra_isize();
        let region = usize::from(self.inode_context(parent.ino()).inode_size)
            .saturating_sub(FIXED_BYTES + usize::from(extra_isize));
        let is_inline = flags.contains(InodeFlags::INLINE_DATA) && region >= SPACE_OF_EMPTY_CONTENT;
        let inherited = acl::inherit(self, parent, new, region, is_inline)?;
        let mut disk = blank(new, inherited.permissions, extra_isize);
        self.inherit(&mut disk, parent, new);
        disk.flags |= flags & !InodeFlags::INLINE_DATA;
        if is_inline {
            disk.flags |= InodeFlags::INLINE_DATA
        } else {
            self.empty_map(&mut disk, new)?
        }

        let place = Parent {
            ino: parent.ino(),
            is_top: parent.ino() == Ino::ROOT || parent.flags().contains(InodeFlags::TOP_DIR),
        };
        let is_dir = new.file_type == FileType::Directory;
        let ino = handle.alloc().take_inode(handle, place, is_dir)?;
        disk.generation = self.alloc()?.new_generation(ino);
        let made = self.check_unused(ino).and_then(|()| {
            let (home, _) = self.locate_inode(ino)?;
            let owners = [disk.uid, disk.gid, disk.project.unwrap_or(0)];
            let _let_in = self.admit_new_blocks(ino, owners, inherited.xattrs.blocks(self))?;
            let block = inherited.xattrs.store(handle, ino)?;
            let mut image = Inode {
                ino,
                file_type: new.file_type,
                seed: self.inode_context(ino).inode_seed(disk.generation),
                disk,
                xattrs: inherited.xattrs.region,
                fresh: true,
                freed: false,
                values: 0,
            };
            if let Some(block) = block {
                charge(self, &mut image, block);
            }
            let held = LiveInode::new_held(Arc::new(image), home);
            // The next ones will mostly be beside it.
            let read = self.read_new_inodes_around(ino, home);
            if let Err(e) = read.and_then(|()| handle.touch_inode(held.live())) {
                return match block {
                    Some(block) => leave(handle, ino, block).and(Err(e)),
                    None => Err(e),
                };
            }
            held.live().note_datasync(handle);
            Ok(held)
        });
        match made {
            Ok(held) => {
                self.inode_table().publish(held.live().clone());
                Ok(held)
            }
            Err(e) => {
                handle
                    .alloc()
                    .free_inode(handle, ino, new.file_type == FileType::Directory)?;
                Err(e)
            }
        }
    }

    /// Makes an inode without content for an attribute value of `owner`, and near it.
    ///
    /// # Errors
    /// As for [`Fs::new_inode`].
    pub(crate) fn new_value_inode(&self, handle: &Handle<'_>, owner: &Inode) -> Result<Held> {
        // Nothing is inherited.
        let mut near = owner.clone();
        near.xattrs = Box::default();
        near.disk.file_acl = Pblk::new(0);
        near.disk.flags = InodeFlags::empty();
        near.disk.mode = Mode::new(owner.file_type, 0);
        let new = NewInode {
            uid: owner.disk.uid,
            gid: owner.disk.gid,
            ..NewInode::new(FileType::Regular, 0o600, crate::data::now())
        };
        // Linux keeps no value inside. With the flag it is nobody's from the start.
        self.new_inode_as(handle, &near, &new, InodeFlags::EA_INODE)
    }

    /// Bytes of extra fields that new inodes have: what the superblock wants, all this crate knows
    /// at least, if there is room.
    fn new_extra_isize(&self) -> u16 {
        let room = self
            .geometry()
            .inode_size()
            .saturating_sub(FIXED_BYTES as u32);
        let mut wanted = (KNOWN_BYTES - FIXED_BYTES) as u32;
        if self.superblock().has_ro_compat(RoCompat::EXTRA_ISIZE) {
            let raw = self.superblock().raw();
            wanted = wanted
                .max(raw.want_extra_isize.get().into())
                .max(raw.min_extra_isize.get().into());
        }
        u16::try_from(wanted.min(room) & !3).unwrap_or(0)
    }

    /// Flags, group and project that come from the parent.
    fn inherit(&self, disk: &mut DiskInode, parent: &Inode, new: &NewInode) {
        let file_type = new.file_type;
        let [_, gid, of_parent] = new.owners_in(parent);
        disk.gid = gid;
        if let Some(project) = &mut disk.project {
            *project = of_parent;
        }
        let parent = parent.disk();
        let flags = parent.flags & INHERITED;
        disk.flags = match file_type {
            FileType::Directory => flags,
            FileType::Regular => flags & !FOR_DIRECTORIES,
            _ => flags & FOR_OTHERS,
        };
        if parent.mode.permissions() & SET_GID != 0 && file_type == FileType::Directory {
            disk.mode = Mode::new(file_type, disk.mode.permissions() | SET_GID);
        }
    }

    /// A map of nothing, or the number of a device.
    fn empty_map(&self, disk: &mut DiskInode, new: &NewInode) -> Result<()> {
        match new.file_type {
            FileType::CharDevice | FileType::BlockDevice => {
                let too_large = Error::InvalidInput("the device number does not fit the format");
                let (old, wide) = new.device.encode().ok_or(too_large)?;
                let words = [old, wide].map(u32::to_le_bytes);
                for (to, from) in disk.map.iter_mut().zip(words.as_flattened()) {
                    *to = *from;
                }
            }
            FileType::Regular | FileType::Directory | FileType::Symlink
                if self.superblock().has_incompat(Incompat::EXTENTS) =>
            {
                disk.flags |= InodeFlags::EXTENTS;
                build_node(&mut disk.map, Entries::Extents(&[])).in_place(Place::Superblock)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses a number whose inode is in use, though the bitmap says that it is free.
    fn check_unused(&self, ino: Ino) -> Result<()> {
        {
            let guard = pin();
            let known = self.inode_table().peek(ino, &guard);
            if known.is_none_or(|live| live.image(&guard).is_freed()) {
                return Ok(());
            }
        }
        let expected = Expected::Said("set, as the inode is in use");
        let source = FormatError::new(Structure::InodeBitmap, "bit", 0, expected);
        Err(Error::corrupt(Place::Inode(ino), source))
    }

    /// Undoes [`Fs::new_inode`] under the same handle, for a caller that could not give the inode a
    /// name; nobody else has seen it. What it has been given meanwhile goes too, if need be in a
    /// transaction of its own when the caller calls [`Fs::reap`].
    pub(crate) fn abandon_inode(&self, handle: &Handle<'_>, held: Held) {
        // A thread that goes through all inodes may hold it for a moment.
        let deleted = if held.claim_last() {
            let deleted = self.delete_with_more(handle, held.live());
            if matches!(deleted, Ok(Progress::Done)) {
                return;
            }
            held.live().unclaim();
            deleted.map(drop)
        } else {
            Ok(())
        };
        // It must not stay in use without a name: the end of the last hold queues it.
        let noted = held
            .live()
            .update(handle, |inode| inode.disk.links = 0)
            .and_then(|()| self.orphan_add(handle, held.live()));
        if let Some(error) = deleted.err().or(noted.err()) {
            self.report(&error);
        }
    }
}

/// An inode of nothing, with the times of now.
fn blank(new: &NewInode, permissions: u16, extra_isize: u16) -> DiskInode {
    let reaches = |end: usize| FIXED_BYTES + usize::from(extra_isize) >= end;
    DiskInode {
        mode: Mode::new(new.file_type, permissions),
        uid: new.uid,
        gid: new.gid,
        size: 0,
        links: if new.file_type == FileType::Directory {
            2
        } else {
            1
        },
        blocks: 0,
        flags: InodeFlags::empty(),
        atime: new.time,
        ctime: new.time,
        mtime: new.time,
        // Creation time and project are the last two of the known fields.
        crtime: reaches(KNOWN_BYTES - 8).then_some(new.time),
        dtime: 0,
        generation: 0,
        file_acl: Pblk::new(0),
        version: 1,
        project: reaches(KNOWN_BYTES).then_some(0),
        extra_isize,
        map: [0; MAP_BYTES],
    }
}
