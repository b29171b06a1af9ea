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
use std::collections::{HashMap, HashSet};

/// Directories on the way from the root to a file, at most.
const MOST_DEPTH: usize = 4096;

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
        let end = volume.block_size().blocks_for(inode.size);
        let seed = volume.inode_seed(ino, inode.generation);
        runs_in_place(volume, inode, seed, &mut |piece| {
            if let Piece::Data(run) = piece {
                let left = end.saturating_sub(u64::from(run.lblk));
                let len = u64::from(run.len).min(left);
                blocks.extend(run.pblk..run.pblk + len);
            }
        })?;
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

    /// The path of an inode from the root, `/` in front.
    pub(crate) fn path(&self, ino: Ino) -> Option<Vec<u8>> {
        if ino == Ino::ROOT {
            return Some(b"/".to_vec());
        }
        let mut parts = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT {
            if parts.len() > MOST_DEPTH {
                return None;
            }
            let (parent, name) = self.name_of(at)?;
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
