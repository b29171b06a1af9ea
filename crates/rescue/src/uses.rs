//! What a block is used for.

use crate::Rescue;
use crate::error::Result;
use crate::journal::Journal;
use crate::maps::{Piece, has_map, runs_in_place};
use crate::tree::Tree;
use crate::volume::Volume;
use extant_format::dir::entries;
use extant_format::inode::{FileType, Inode, InodeFlags};
use extant_format::{Group, Ino, Pblk, xattr};
use std::collections::{HashMap, HashSet};

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Use {
    /// The superblock, or a copy of it.
    Superblock,
    /// Group descriptors, or a copy of them.
    GroupDescriptors,
    /// Kept for more group descriptors.
    ReservedDescriptors,
    /// The block bitmap of a group.
    BlockBitmap(Group),
    /// The inode bitmap of a group.
    InodeBitmap(Group),
    /// A block of an inode table.
    InodeTable {
        /// Its group.
        group: Group,
        /// The first inode in the block.
        first: Ino,
        /// Inodes in the block.
        count: u32,
    },
    /// A block of the journal.
    Journal,
    /// The block of multiple-mount protection.
    MultipleMount,
    /// A block of a directory.
    Directory {
        /// The directory.
        ino: Ino,
        /// Its logical block.
        lblk: u32,
    },
    /// A node of an extent tree, or a block of pointers.
    MapNode {
        /// The inode whose map it belongs to.
        ino: Ino,
    },
    /// A block of extended attributes.
    Attributes {
        /// An inode that has them.
        ino: Ino,
    },
    /// A block of a quota file.
    Quota {
        /// The file.
        ino: Ino,
    },
    /// A block of the orphan file.
    OrphanFile {
        /// The file.
        ino: Ino,
    },
    /// A block that the resize inode keeps.
    Resize,
    /// Content of a file or a symbolic link.
    Data {
        /// The file.
        ino: Ino,
        /// Its logical block.
        lblk: u32,
    },
    /// Nothing owns it any more; by its content it was a block of a directory.
    FormerDirectory,
    /// Nothing owns it any more; by its content it was a node of an extent tree.
    FormerMapNode,
    /// Nothing owns it any more; by its content it was a block of extended attributes.
    FormerAttributes,
    /// Nothing owns it.
    Unowned,
    /// It lies outside the file system.
    Outside,
}

impl Use {
    /// Returns the inode that the block belongs to.
    #[must_use]
    pub fn ino(&self) -> Option<Ino> {
        match *self {
            Self::Directory { ino, .. }
            | Self::MapNode { ino }
            | Self::Attributes { ino }
            | Self::Quota { ino }
            | Self::OrphanFile { ino }
            | Self::Data { ino, .. } => Some(ino),
            _ => None,
        }
    }
}

/// What a block is used for, and by which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockUse {
    /// The block.
    pub block: Pblk,
    /// What it is used for now; of a block that nothing owns, what its content looks like.
    pub used_for: Use,
    /// The path of the file or directory that it belongs to, where that is known.
    pub path: Option<Vec<u8>>,
}

impl Rescue {
    /// Returns what each of these blocks is used for now, in the order in which they are given. All
    /// inodes are read once, and all directories if a block belongs to one of them.
    ///
    /// # Errors
    /// A device that fails.
    pub fn uses(&self, blocks: &[Pblk]) -> Result<Vec<BlockUse>> {
        let volume = &self.volume;
        let mut wanted: Vec<u64> = blocks.iter().map(|block| block.get()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let uses = of_blocks(volume, self.journal.as_ref(), &wanted)?;
        let owners: HashSet<Ino> = uses.values().filter_map(Use::ino).collect();
        let tree = Tree::read(volume, &owners)?;
        let told = blocks.iter().map(|&block| {
            let used_for = match uses.get(&block.get()) {
                Some(of) => *of,
                None => by_content(volume, &volume.block(block.get())?),
            };
            let path = used_for.ino().and_then(|ino| tree.path(ino));
            Ok(BlockUse {
                block,
                used_for,
                path,
            })
        });
        told.collect()
    }
}

/// What each of these blocks, which are sorted, is used for now.
pub(crate) fn of_blocks(
    volume: &Volume,
    journal: Option<&Journal>,
    wanted: &[u64],
) -> Result<HashMap<u64, Use>> {
    let mut found = HashMap::with_capacity(wanted.len());
    owned(volume, wanted, &mut found)?;
    fixed(volume, journal, wanted, &mut found);
    Ok(found)
}

/// Those of these sorted numbers that lie in `start..start + len`.
pub(crate) fn within(sorted: &[u64], start: u64, len: u64) -> &[u64] {
    let from = sorted.partition_point(|block| *block < start);
    let to = sorted.partition_point(|block| *block < start.saturating_add(len));
    sorted.get(from..to).unwrap_or_default()
}

fn fixed(
    volume: &Volume,
    journal: Option<&Journal>,
    wanted: &[u64],
    found: &mut HashMap<u64, Use>,
) {
    let geo = &volume.geo;
    for block in wanted {
        if *block >= geo.blocks_count() {
            found.insert(*block, Use::Outside);
        } else if journal.is_some_and(|journal| journal.contains(*block)) {
            found.insert(*block, Use::Journal);
        }
    }
    if let Some(block) = volume.sb.mmp_block()
        && wanted.binary_search(&block.get()).is_ok()
    {
        found.insert(block.get(), Use::MultipleMount);
    }
    for (group, state) in geo.groups().zip(&volume.groups) {
        let mut mark = |start: u64, len: u64, of: &dyn Fn(u64) -> Use| {
            for block in within(wanted, start, len) {
                found.insert(*block, of(*block));
            }
        };
        if let Ok(header) = geo.group_header(group) {
            if let Some(block) = header.super_block {
                mark(block.get(), 1, &|_| Use::Superblock);
            }
            for (range, of) in [
                (header.descs, Use::GroupDescriptors),
                (header.reserved_gdt, Use::ReservedDescriptors),
            ] {
                mark(range.start, range.end.saturating_sub(range.start), &|_| of);
            }
        }
        if !state.located {
            continue;
        }
        mark(state.desc.block_bitmap.get(), 1, &|_| {
            Use::BlockBitmap(group)
        });
        mark(state.desc.inode_bitmap.get(), 1, &|_| {
            Use::InodeBitmap(group)
        });
        let table = state.desc.inode_table.get();
        let per_block = geo.inodes_per_block();
        mark(table, u64::from(geo.inode_table_blocks()), &|block| {
            let index = (block - table) as u32 * per_block;
            let first = geo.inode_at(group, index).unwrap_or(Ino::new(0));
            let left = geo.inodes_per_group().saturating_sub(index);
            Use::InodeTable {
                group,
                first,
                count: per_block.min(left),
            }
        });
    }
}

/// What inodes in use have of these blocks.
fn owned(volume: &Volume, wanted: &[u64], found: &mut HashMap<u64, Use>) -> Result<()> {
    volume.begin();
    volume.slots(&mut |ino, in_use, slot| {
        if !in_use {
            return Ok(());
        }
        let Some(inode) = volume.parse(slot, ino) else {
            return Ok(());
        };
        let acl = inode.file_acl.get();
        if acl != 0 && wanted.binary_search(&acl).is_ok() {
            found.entry(acl).or_insert(Use::Attributes { ino });
        }
        if !has_map(volume, &inode) {
            return Ok(());
        }
        let data = data_of(volume, ino, &inode);
        let seed = volume.inode_seed(ino, inode.generation);
        runs_in_place(volume, &inode, seed, &mut |piece| match piece {
            Piece::Node(block) if ino == Ino::RESIZE => {
                mark(wanted, block, 1, found, &|_| Use::Resize);
            }
            Piece::Node(block) => mark(wanted, block, 1, found, &|_| Use::MapNode { ino }),
            Piece::Data(run) => {
                let lblk = |block: u64| run.lblk.saturating_add((block - run.pblk) as u32);
                mark(wanted, run.pblk, u64::from(run.len), found, &|block| {
                    data(lblk(block))
                });
            }
        })?;
        Ok(())
    })
}

fn mark(
    wanted: &[u64],
    start: u64,
    len: u64,
    found: &mut HashMap<u64, Use>,
    of: &dyn Fn(u64) -> Use,
) {
    for block in within(wanted, start, len) {
        found.entry(*block).or_insert_with(|| of(*block));
    }
}

/// What the data of an inode is.
fn data_of(volume: &Volume, ino: Ino, inode: &Inode) -> impl Fn(u32) -> Use + use<> {
    let is_quota = volume.sb.quota_inodes().contains(&Some(ino));
    let is_orphans = volume.sb.orphan_file_ino() == Some(ino);
    let is_directory = inode.file_type() == Some(FileType::Directory);
    let is_value = inode.flags.contains(InodeFlags::EA_INODE);
    move |lblk| {
        if is_quota {
            Use::Quota { ino }
        } else if is_orphans {
            Use::OrphanFile { ino }
        } else if ino == Ino::RESIZE {
            Use::Resize
        } else if is_directory && !is_value {
            Use::Directory { ino, lblk }
        } else {
            Use::Data { ino, lblk }
        }
    }
}

/// What a block that nothing owns was, by its content.
pub(crate) fn by_content(volume: &Volume, bytes: &[u8]) -> Use {
    use extant_format::extent::ExtentNode;
    if ExtentNode::parse(bytes).is_ok_and(|node| !node.is_empty()) {
        return Use::FormerMapNode;
    }
    if xattr::MAGIC.to_le_bytes() == bytes.get(..4).unwrap_or_default() {
        return Use::FormerAttributes;
    }
    if is_directory_block(volume, bytes) {
        return Use::FormerDirectory;
    }
    Use::Unowned
}

/// Whether all of a block is records of a directory, with a name among them.
pub(crate) fn is_directory_block(volume: &Volume, bytes: &[u8]) -> bool {
    let mut names = 0;
    for entry in entries(bytes, &volume.dir_layout(InodeFlags::empty())) {
        match entry {
            Ok(entry) => names += u32::from(entry.ino.is_some()),
            Err(_) => return false,
        }
    }
    names > 0
}
