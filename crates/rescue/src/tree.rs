//! The names of directories in use, and of other inodes that are asked for.

use crate::error::Result;
use crate::maps::{Piece, has_map, runs_in_place};
use crate::names::is_plain;
use crate::volume::Volume;
use extant_format::Ino;
use extant_format::dir::entries;
use extant_format::inline_data::{InlineData, InlineDir};
use extant_format::inode::{FileType, Inode};
use extant_format::xattr::name::INLINE_DATA;
use extant_format::xattr::{XattrArea, XattrContext, XattrValue};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};

/// Bytes of a path, at most: more cannot be handed to Linux at once.
pub(crate) const MOST_OF_PATH: usize = 4096;
/// Bytes of all paths that are told, at most.
const MOST_OF_PATHS: usize = 1 << 28;

/// A block of a directory in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirBlock {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) flags: extant_format::inode::InodeFlags,
    pub(crate) pblk: u64,
}

/// Names by inode.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    names: HashMap<Ino, (Ino, Box<[u8]>)>,
    directories: HashSet<Ino>,
    /// Blocks of directories, by their place on the device.
    pub(crate) blocks: Vec<DirBlock>,
    /// Directories claim more blocks than there are, and not all were read.
    pub(crate) is_cut: bool,
    /// Bytes of paths that were told.
    told: Cell<usize>,
}

impl Tree {
    /// Reads all directories in use. Names of files are kept of the inodes `wanted`.
    pub(crate) fn read(volume: &Volume, wanted: &HashSet<Ino>) -> Result<Self> {
        let mut tree = Self::default();
        volume.begin();
        volume.slots(&mut |ino, in_use, slot| {
            if !in_use {
                return Ok(());
            }
            let Some(inode) = volume.parse(slot, ino) else {
                return Ok(());
            };
            if inode.file_type() == Some(FileType::Directory) && inode.links > 0 {
                tree.directories.insert(ino);
                tree.directory(volume, ino, &inode, slot, wanted)?;
            }
            Ok(())
        })?;
        tree.blocks.sort_unstable_by_key(|block| block.pblk);
        // Kept while it was not known yet what is a directory.
        let directories = &tree.directories;
        tree.names
            .retain(|ino, _| directories.contains(ino) || wanted.contains(ino));
        Ok(tree)
    }

    fn directory(
        &mut self,
        volume: &Volume,
        ino: Ino,
        inode: &Inode,
        slot: &[u8],
        wanted: &HashSet<Ino>,
    ) -> Result<()> {
        let layout = volume.dir_layout(inode.flags);
        if !has_map(volume, inode) {
            let rest = inline_rest(volume, inode, slot);
            let data = InlineData::new(&inode.map, rest, inode.size);
            if let Ok(dir) = InlineDir::new(&data, layout.max_inode) {
                for entry in dir.entries(&layout).flatten() {
                    if let Some(child) = entry.ino {
                        self.entry(ino, child, entry.name, entry.file_type.file_type(), wanted);
                    }
                }
            }
            return Ok(());
        }
        let mut blocks = Vec::new();
        // Each block has one owner, so that all directories have no more than there are.
        let room = volume.blocks_on_device();
        let mut room = room.saturating_sub(self.blocks.len() as u64);
        let mut is_cut = false;
        let end = volume.block_size().blocks_for(inode.size);
        let seed = volume.inode_seed(ino, inode.generation);
        runs_in_place(volume, inode, seed, &mut |piece| {
            if let Piece::Data(run) = piece {
                let left = end.saturating_sub(u64::from(run.lblk));
                let len = u64::from(run.len).min(left);
                is_cut |= len > room;
                let len = len.min(room);
                room -= len;
                blocks.extend(run.pblk..run.pblk + len);
            }
        })?;
        self.is_cut |= is_cut;
        let mut bytes = vec![0; volume.block_size().len()];
        for pblk in blocks {
            volume.read(pblk, &mut bytes)?;
            for entry in entries(&bytes, &layout).map_while(std::result::Result::ok) {
                if let Some(child) = entry.ino {
                    self.entry(ino, child, entry.name, entry.file_type.file_type(), wanted);
                }
            }
            self.blocks.push(DirBlock {
                ino,
                generation: inode.generation,
                flags: inode.flags,
                pblk,
            });
        }
        Ok(())
    }

    fn entry(
        &mut self,
        parent: Ino,
        child: Ino,
        name: &[u8],
        kind: Option<FileType>,
        wanted: &HashSet<Ino>,
    ) {
        // Names of encrypted directories are any bytes; those of inline ones have the parent first.
        if !is_plain(name) {
            return;
        }
        let may_be_directory = kind.is_none_or(|kind| kind == FileType::Directory);
        if may_be_directory || wanted.contains(&child) {
            self.names
                .entry(child)
                .or_insert_with(|| (parent, name.into()));
        }
    }

    /// Whether this is a directory in use.
    pub(crate) fn is_directory(&self, ino: Ino) -> bool {
        self.directories.contains(&ino)
    }

    /// The directory that holds an inode, and its name there.
    pub(crate) fn name_of(&self, ino: Ino) -> Option<(Ino, &[u8])> {
        let (parent, name) = self.names.get(&ino)?;
        Some((*parent, name))
    }

    /// Takes bytes from those of paths that may be told.
    pub(crate) fn may_tell(&self, len: usize) -> bool {
        let told = self.told.get().saturating_add(len);
        self.told.set(told);
        told <= MOST_OF_PATHS
    }

    /// The path of an inode from the root, `/` in front. `None` also where it is longer than
    /// paths are.
    pub(crate) fn path(&self, ino: Ino) -> Option<Vec<u8>> {
        if ino == Ino::ROOT {
            return Some(b"/".to_vec());
        }
        let mut parts = Vec::new();
        let mut len = 0;
        let mut at = ino;
        while at != Ino::ROOT {
            let (parent, name) = self.name_of(at)?;
            len += 1 + name.len();
            if len > MOST_OF_PATH || !self.may_tell(1 + name.len()) {
                return None;
            }
            parts.push(name);
            at = parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Some(path)
    }
}

/// What an inode keeps of its inline content outside of its map.
pub(crate) fn inline_rest<'s>(volume: &Volume, inode: &Inode, slot: &'s [u8]) -> &'s [u8] {
    let context = XattrContext {
        ea_inode: false,
        max_inode: Ino::new(volume.geo.inodes_count()),
    };
    let region = inode.xattr_region(slot, volume.inode_size());
    let Ok(area) = XattrArea::in_inode(region, &context) else {
        return &[];
    };
    match area.find(&INLINE_DATA).map(|entry| entry.value) {
        Some(XattrValue::Bytes(value)) => value,
        _ => &[],
    }
}
