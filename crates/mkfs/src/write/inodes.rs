//! The inodes of a placed tree, and the tables they lie in.

use crate::layout::Draft;
use crate::place::{AttrInode, FAST_SYMLINK_MAX, LINK_MAX, MapKind, PlaceError, Placed, Placement};
use crate::source::{FileType, Node, NodeId, Timestamp, Tree};
use crate::write::{WriteError, WriteResult};
use extant_format::features::RoCompat;
use extant_format::inode::{DeviceNumber, Inode, InodeContext, InodeFlags, Mode};
use extant_format::{Ino, Pblk};

/// Makes the inodes of a placement.
pub(crate) struct InodeEncoder<'p> {
    tree: &'p Tree,
    placement: &'p Placement,
    huge_file: bool,
    /// The time of what the builder makes itself.
    now: Timestamp,
}

impl<'p> InodeEncoder<'p> {
    /// One for the inodes of a tree that was placed on a draft.
    pub(crate) fn new(tree: &'p Tree, placement: &'p Placement, draft: &Draft) -> Self {
        Self {
            tree,
            placement,
            huge_file: draft.superblock().has_ro_compat(RoCompat::HUGE_FILE),
            now: Timestamp::from_secs(draft.layout().options().time as i64),
        }
    }
}

impl InodeEncoder<'_> {
    /// Fills the slot of `ino` in its table. Numbers that are not of the tree are left alone.
    ///
    /// # Errors
    /// A number that does not fit the format.
    pub(crate) fn encode(&self, ino: Ino, slot: &mut [u8]) -> WriteResult<()> {
        let shape = &self.placement.shape;
        let first_attr = self.placement.numbering.end();
        if let Some(id) = self.placement.numbering.node(ino) {
            let placed = self.placement.placed(self.tree, id);
            let inode = self.of_node(id, &placed)?;
            self.store(ino, &inode, slot)?;
            let room = inode.xattr_range(shape.inode_size);
            if self
                .placement
                .attrs
                .write_body(placed.attrs, &mut slot[room])
            {
                // The checksum covers the attributes.
                self.store(ino, &inode, slot)?;
            }
        } else if ino == shape.lost_found_ino {
            if let Some(placed) = &self.placement.lost_found {
                self.store(ino, &self.lost_found(placed)?, slot)?;
            }
        } else if let Some(index) = u64::from(ino.get()).checked_sub(first_attr)
            && let Some(value) = self.placement.attrs.inodes().get(index as usize)
        {
            self.store(ino, &self.of_value(value)?, slot)?;
        }
        Ok(())
    }

    fn store(&self, ino: Ino, inode: &Inode, slot: &mut [u8]) -> WriteResult<()> {
        let shape = &self.placement.shape;
        let context = InodeContext {
            inode_size: shape.inode_size,
            seed: shape.seed,
            ino,
            large_dir: shape.dirs.large_dir,
            huge_file: self.huge_file,
        };
        inode.encode(slot, &context)?;
        Ok(())
    }

    /// An inode with nothing but its mode and the times of the build.
    fn blank(&self, mode: u16) -> Inode {
        let now = self.now;
        Inode {
            mode: Mode::from_bits(mode),
            uid: 0,
            gid: 0,
            size: 0,
            links: 1,
            blocks: 0,
            flags: InodeFlags::empty(),
            atime: now,
            ctime: now,
            mtime: now,
            crtime: Some(now),
            dtime: 0,
            generation: 0,
            file_acl: Pblk::new(0),
            version: 0,
            project: Some(0),
            extra_isize: self.placement.shape.extra_isize,
            map: [0; 60],
        }
    }

    fn of_node(&self, id: NodeId, placed: &Placed) -> WriteResult<Inode> {
        let node = self.tree.node(id);
        let mut inode = self.blank(node.mode);
        inode.uid = node.uid;
        inode.gid = node.gid;
        inode.atime = node.times.atime();
        inode.mtime = node.times.mtime();
        inode.ctime = node.times.ctime();
        inode.crtime = Some(node.times.crtime());
        inode.file_acl = Pblk::new(placed.attrs.block);
        inode.links = self.links(id, &node);
        inode.flags = InodeFlags::from_bits_retain(self.tree.flags(id)?);
        match node.kind() {
            FileType::Directory => self.map_directory(&mut inode, placed)?,
            FileType::Regular => {
                inode.size = node.size;
                let seals = self.placement.shape.seals.as_ref();
                if seals.is_some_and(|seals| seals.contains(id)) {
                    inode.flags |= InodeFlags::VERITY;
                }
                self.map_blocks(&mut inode, placed)?;
            }
            FileType::Symlink => {
                let target = self.tree.symlink_target(id).unwrap_or_default();
                inode.size = target.len() as u64;
                if target.len() <= FAST_SYMLINK_MAX {
                    inode.map[..target.len()].copy_from_slice(target);
                } else {
                    self.map_blocks(&mut inode, placed)?;
                }
            }
            FileType::CharDevice | FileType::BlockDevice => self.device(&mut inode, id, &node)?,
            FileType::Fifo | FileType::Socket => {}
        }
        self.charge(&mut inode, placed.charged)?;
        Ok(inode)
    }

    fn links(&self, id: NodeId, node: &Node) -> u16 {
        let made = u32::from(id == NodeId::ROOT && self.placement.lost_found.is_some());
        let links = node.nlink + made;
        // A directory with too many subdirectories to count has "one" link.
        if node.is_dir() && links > LINK_MAX {
            1
        } else {
            links as u16
        }
    }

    fn lost_found(&self, placed: &Placed) -> WriteResult<Inode> {
        let mut inode = self.blank(0o040_700);
        inode.links = 2;
        self.map_directory(&mut inode, placed)?;
        self.charge(&mut inode, placed.charged)?;
        Ok(inode)
    }

    fn of_value(&self, value: &AttrInode) -> WriteResult<Inode> {
        let mut inode = self.blank(0o100_600);
        inode.size = value.len;
        inode.flags = InodeFlags::EA_INODE;
        // An inode that holds a value keeps its hash and reference count in fields of its own.
        value.stamp(&mut inode);
        if self.placement.shape.map_kind == MapKind::Extents {
            inode.flags |= InodeFlags::EXTENTS;
        }
        inode.map = self.placement.maps.root(value.map)?;
        self.charge(&mut inode, value.charged)?;
        Ok(inode)
    }

    fn map_directory(&self, inode: &mut Inode, placed: &Placed) -> WriteResult<()> {
        inode.size = u64::from(placed.dir_blocks) << self.placement.shape.block_size.log2();
        if placed.indexed {
            inode.flags |= InodeFlags::INDEX;
        }
        self.map_blocks(inode, placed)
    }

    fn map_blocks(&self, inode: &mut Inode, placed: &Placed) -> WriteResult<()> {
        if self.placement.shape.map_kind == MapKind::Extents {
            inode.flags |= InodeFlags::EXTENTS;
        }
        inode.map = self.placement.maps.root(placed.map)?;
        Ok(())
    }

    fn charge(&self, inode: &mut Inode, blocks: u64) -> WriteResult<()> {
        let size = self.placement.shape.block_size;
        inode.set_sectors(blocks << (size.log2() - 9), size, self.huge_file)?;
        Ok(())
    }

    fn device(&self, inode: &mut Inode, id: NodeId, node: &Node) -> WriteResult<()> {
        let (major, minor) = node.rdev().unwrap_or_default();
        let Some((old, wide)) = (DeviceNumber { major, minor }).encode() else {
            let path = self.tree.path(id);
            return Err(WriteError::Place(PlaceError::DeviceNumber {
                path,
                major,
                minor,
            }));
        };
        inode.map[..4].copy_from_slice(&old.to_le_bytes());
        inode.map[4..8].copy_from_slice(&wide.to_le_bytes());
        Ok(())
    }
}
