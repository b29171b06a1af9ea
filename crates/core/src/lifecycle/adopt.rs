//! Records that come from outside: those of fast commits.

use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{FileType, Held, Inode, LiveInode};
use crate::{Error, InPlace, Place, Result};
use extant_format::extent::{Entries, build_node};
use extant_format::inode::{Inode as DiskInode, InodeContext, InodeFlags, MAP_BYTES};
use extant_format::{Expected, FormatError, Ino, Structure};
use std::sync::Arc;

/// Flags that say what lies in the map.
const SHAPE: InodeFlags = InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA);
/// Flags that belong to what is charged and mapped, not to the rest of the record.
const OF_MAP: InodeFlags = InodeFlags::HUGE_FILE.union(InodeFlags::INDEX);

impl Fs {
    /// Blocks that [`Fs::adopt_inode`] changes at most.
    pub(crate) const ADOPT_CREDITS: u32 = 6;

    /// Whether `raw` is a record of the inode `held`, and not of another one that has got its
    /// number. Linux lets users change the generation where no checksum depends on it.
    ///
    /// # Errors
    /// When it cannot be a record.
    pub(crate) fn is_record_of(&self, held: &Held, raw: &[u8]) -> Result<bool> {
        let disk = self.record_of(held.ino(), raw)?;
        let before = held.snapshot();
        Ok(before.disk.generation == disk.generation
            || (!self.superblock().has_metadata_csum()
                && before.disk.links > 0
                && before.file_type == self.checked_type(held.ino(), &disk)?
                && before.disk.crtime == disk.crtime))
    }

    /// Makes `raw`, which may be shorter than records are, the record of inode `ino`: of `known` if
    /// the number is in use, otherwise of a new inode. What the record says about blocks does not
    /// count: an inode that is there keeps its map, attributes and place among the orphans, a new
    /// one has none; a directory's size belongs to its map.
    ///
    /// # Errors
    /// When the record cannot be one, or is that of another kind of file than `known`, whose record
    /// it is (see [`Fs::is_record_of`]).
    pub(crate) fn adopt_inode(
        &self,
        handle: &Handle<'_>,
        known: Option<&Held>,
        ino: Ino,
        raw: &[u8],
    ) -> Result<Held> {
        let disk = self.record_of(ino, raw)?;
        let file_type = self.checked_type(ino, &disk)?;
        if let Some(held) = known {
            let before = held.snapshot();
            let same =
                before.file_type == file_type && before.disk.flags & SHAPE == disk.flags & SHAPE;
            if !same {
                return Err(wrong(ino, "a record like the one that is there"));
            }
            held.live().update(handle, |inode| keep(inode, disk))?;
            return Ok(held.clone());
        }
        let mut disk = disk;
        self.empty(&mut disk, file_type)?;
        handle
            .alloc()
            .take_this_inode(handle, ino, file_type == FileType::Directory)?;
        let (home, _) = self.locate_inode(ino)?;
        let image = Inode {
            ino,
            file_type,
            seed: self.inode_context(ino).inode_seed(disk.generation),
            disk,
            xattrs: Box::default(),
            fresh: true,
            freed: false,
            values: 0,
        };
        let held = LiveInode::new_held(Arc::new(image), home);
        handle.touch_inode(held.live())?;
        self.inode_table().publish(held.live().clone());
        Ok(held)
    }

    fn record_of(&self, ino: Ino, raw: &[u8]) -> Result<DiskInode> {
        let context = self.inode_context(ino);
        let mut slot = vec![0; context.inode_size.into()];
        for (to, from) in slot.iter_mut().zip(raw) {
            *to = *from;
        }
        // Its checksum is that of a moment when the rest of the record was another.
        let unsummed = InodeContext {
            seed: None,
            ..context
        };
        DiskInode::parse(&slot, &unsummed).in_place(Place::Inode(ino))
    }

    /// Takes out of a new record what refers to blocks.
    fn empty(&self, disk: &mut DiskInode, file_type: FileType) -> Result<()> {
        disk.blocks = 0;
        disk.dtime = 0;
        disk.file_acl = Default::default();
        disk.flags -= OF_MAP;
        if disk.flags.contains(InodeFlags::EXTENTS) {
            disk.map = [0; MAP_BYTES];
            build_node(&mut disk.map, Entries::Extents(&[])).in_place(Place::Superblock)?;
        } else if file_type == FileType::Regular {
            disk.map = [0; MAP_BYTES];
        }
        if file_type == FileType::Directory {
            disk.size = 0;
        }
        Ok(())
    }

    /// An inode of this number, which may be an orphan without names; `None` if the number is free.
    ///
    /// # Errors
    /// When the number or the record is wrong, or the device fails.
    pub(crate) fn hold_any(&self, ino: Ino) -> Result<Option<Held>> {
        if ino < self.superblock().first_ino() && ino != Ino::ROOT {
            return Err(wrong(ino, "an inode that files may have"));
        }
        if !self.alloc()?.is_inode_in_use(ino)? {
            return Ok(None);
        }
        match self.hold(ino) {
            Err(Error::Stale) => {}
            held => return held.map(Some),
        }
        // Orphans are in memory.
        let live = self.inode_table().get_live(ino);
        Ok(live.and_then(|live| LiveInode::try_hold(live).ok()))
    }
}

/// Puts `disk` in place of the record, but for what belongs to the map.
fn keep(inode: &mut Inode, disk: DiskInode) {
    let before = &inode.disk;
    let is_dir = inode.file_type == FileType::Directory;
    inode.disk = DiskInode {
        flags: (disk.flags - OF_MAP) | (before.flags & OF_MAP),
        blocks: before.blocks,
        dtime: before.dtime,
        file_acl: before.file_acl,
        map: before.map,
        size: if is_dir { before.size } else { disk.size },
        links: if is_dir { before.links } else { disk.links },
        ..disk
    };
}

fn wrong(ino: Ino, said: &'static str) -> Error {
    let expected = Expected::Said(said);
    let found = ino.get().into();
    let source = FormatError::new(Structure::FastCommit, "inode", found, expected);
    Error::corrupt(Place::Inode(ino), source)
}
