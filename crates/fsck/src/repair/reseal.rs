//! Checksums that start from another seed, or that were not there: of all structures that have one.
//!
//! What starts from the seed are checksums of inodes, nodes of extent trees, blocks of directories,
//! attribute blocks, the orphan file, bitmaps, descriptors and the block of multiple-mount
//! protection. The superblock's own does not, and those of the journal start from the journal's
//! UUID.

use super::draft::Draft;
use super::entries::{blocks_of, is_inline, seal};
use crate::error::{Error, Result};
use crate::inode::fs_seed;
use crate::maps::Piece;
use crate::report::Sink;
use crate::scan::inodes_to_look_at;
use crate::survey::Survey;
use crate::volume::Volume;
use extant_format::checksum::Crc32c;
use extant_format::features::Compat;
use extant_format::group_desc::{DescChecksum, GroupFlags, GroupState};
use extant_format::inode::{FileType, Inode, InodeFlags, seal_slot};
use extant_format::mmp::MmpBlock;
use extant_format::orphan_file::block_seed;
use extant_format::xattr::seal_block;
use extant_format::{Group, Ino, Pblk, bitmap, extent, orphan_file};

/// Bytes of blocks that may change: they are kept in memory until all of them are known.
const BYTES_MAX: u64 = 1 << 30;

/// Writes all checksums of a sound file system as they are in `then`, a volume with another start
/// of checksums, or where there were none. The superblock is still the old one.
pub(super) fn reseal(draft: &Draft, survey: &Survey, then: &Volume) -> Result<()> {
    let starts = survey.volume.sb.checksum_seed() == then.sb.checksum_seed();
    if !starts && survey.table.in_use().any(|(_, inode)| inode.is_ea_inode()) {
        return Err(refused(
            "attribute values in inodes of their own have hashes that start from the UUID",
        ));
    }
    let mut reseal = Reseal {
        draft,
        survey,
        volume: &survey.volume,
        then,
        seed: fs_seed(then),
        bytes: 0,
    };
    reseal.tables()?;
    let inodes: Vec<Ino> = survey.table.in_use().map(|(ino, _)| ino).collect();
    for ino in inodes {
        reseal.blocks_of_inode(ino)?;
    }
    reseal.attributes()?;
    reseal.multiple_mount_protection()?;
    reseal.groups()
}

fn refused(why: &str) -> Error {
    Error::Refused {
        why: format!(
            "{why}: turn on the feature metadata_csum_seed first, which keeps the start of checksums as it is"
        ),
    }
}

struct Reseal<'a> {
    draft: &'a Draft,
    survey: &'a Survey,
    volume: &'a Volume,
    then: &'a Volume,
    seed: Crc32c,
    bytes: u64,
}

impl Reseal<'_> {
    fn put(&mut self, at: Pblk, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        if self.bytes > BYTES_MAX {
            return Err(refused(
                "more than 1 GiB of checksums and what they are of would be written anew",
            ));
        }
        let size = self.volume.block_size();
        let offset = size.offset_of(at).unwrap_or(u64::MAX);
        self.draft.write(offset, bytes)
    }

    /// The parts of inode tables that anybody looks at, with inodes that are no longer in use.
    fn tables(&mut self) -> Result<()> {
        let volume = self.volume;
        let slot_len = usize::from(volume.inode_size());
        let per_block = (volume.block_size().len() / slot_len.max(1)) as u32;
        for (group, state) in volume.geo.groups().zip(&volume.groups) {
            let looked_at = inodes_to_look_at(volume, group.get());
            let first = group.get() * volume.geo.inodes_per_group() + 1;
            for block in 0..looked_at.div_ceil(per_block.max(1)) {
                let at = Pblk::new(state.desc.inode_table.get() + u64::from(block));
                let mut bytes = volume.block(at)?;
                let before = bytes.clone();
                let of_block = first + block * per_block;
                for (i, slot) in (0..).zip(bytes.chunks_exact_mut(slot_len)) {
                    if block * per_block + i < looked_at {
                        seal_slot(slot, self.seed, Ino::new(of_block + i));
                    }
                }
                if bytes != before {
                    self.put(at, &bytes)?;
                }
            }
        }
        Ok(())
    }

    fn blocks_of_inode(&mut self, ino: Ino) -> Result<()> {
        let volume = self.volume;
        let Some((_, inode)) = volume.inode(ino)? else {
            return Ok(());
        };
        let context = self.then.inode_context(ino);
        let seed = context.inode_seed(inode.generation).unwrap_or(self.seed);
        // What a map says is asked before its nodes change.
        let is_dir = inode.file_type() == Some(FileType::Directory);
        let is_orphan_file =
            volume.sb.orphan_file_ino() == Some(ino) && volume.has_compat(Compat::ORPHAN_FILE);
        let content = if (is_dir && !is_inline(volume, &inode)) || is_orphan_file {
            blocks_of(volume, ino, &inode)?
        } else {
            Vec::new()
        };
        let layout = self.then.dir_layout(inode.flags);
        let indexed = inode.flags.contains(InodeFlags::INDEX);
        for (lblk, at) in content {
            let mut bytes = volume.block(at)?;
            if is_dir {
                seal(&mut bytes, &layout, lblk, indexed, seed);
            } else {
                let seed = block_seed(self.seed, ino, inode.generation, at);
                let words = bytes.as_chunks::<4>().0;
                let slots: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
                orphan_file::encode(&slots, &mut bytes, Some(seed));
            }
            self.put(at, &bytes)?;
        }
        let mapped = super::map_builder::is_mapped(volume, ino, &inode);
        if mapped && inode.flags.contains(InodeFlags::EXTENTS) {
            self.nodes(ino, &inode, seed)?;
        }
        Ok(())
    }

    fn nodes(&mut self, ino: Ino, inode: &Inode, seed: Crc32c) -> Result<()> {
        let volume = self.volume;
        let mut nodes = Vec::new();
        crate::maps::walk(volume, ino, inode, &mut Sink::new(), &mut |piece| {
            if let Piece::Node(at) = piece {
                nodes.push(at);
            }
        })?;
        for at in nodes {
            let mut bytes = volume.block(at)?;
            extent::store_checksum(&mut bytes, seed)?;
            self.put(at, &bytes)?;
        }
        Ok(())
    }

    fn attributes(&mut self) -> Result<()> {
        for (at, _) in &self.survey.xattr_blocks {
            let mut bytes = self.volume.block(*at)?;
            seal_block(&mut bytes, self.seed, *at);
            self.put(*at, &bytes)?;
        }
        Ok(())
    }

    fn multiple_mount_protection(&mut self) -> Result<()> {
        let volume = self.volume;
        let Some(at) = volume.sb.mmp_block() else {
            return Ok(());
        };
        let mut bytes = volume.block(at)?;
        let seed = volume.seed.map(|_| fs_seed(volume));
        let record = MmpBlock::parse(&bytes, seed)?.encode(Some(self.seed));
        if let Some(to) = bytes.get_mut(..MmpBlock::LEN) {
            to.copy_from_slice(&record);
        }
        self.put(at, &bytes)
    }

    fn groups(&self) -> Result<()> {
        let sums = self.then.sb.desc_checksum();
        for (group, state) in self.volume.geo.groups().zip(&self.volume.groups) {
            self.group(group, state, &sums)?;
        }
        Ok(())
    }

    fn group(&self, group: Group, state: &GroupState, sums: &DescChecksum) -> Result<()> {
        let volume = self.volume;
        let mut desc = state.desc;
        if volume.sb.desc_checksum() == DescChecksum::None {
            // Nothing vouched for what flags say.
            desc.flags = GroupFlags::INODE_ZEROED;
            desc.itable_unused = 0;
        }
        let mask = if volume.geo.desc_size() >= 64 {
            u32::MAX
        } else {
            0xffff
        };
        let of = GroupState { desc, ..*state };
        (desc.block_bitmap_csum, desc.inode_bitmap_csum) =
            bitmap_sums(volume, self.seed, &of, mask)?;
        super::groups::put_sealed(self.draft, volume, group, &desc, sums)
    }
}

/// The checksums of a group's bitmaps, as far as descriptors store them; those of bitmaps that were
/// never written are as they are.
pub(super) fn bitmap_sums(
    volume: &Volume,
    seed: Crc32c,
    state: &GroupState,
    mask: u32,
) -> Result<(u32, u32)> {
    let desc = &state.desc;
    let sum = |at: Pblk, bits: u32| -> Result<u32> {
        Ok(bitmap::checksum(seed.value(), &volume.block(at)?, bits) & mask)
    };
    let blocks = if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        desc.block_bitmap_csum
    } else {
        sum(desc.block_bitmap, volume.geo.clusters_per_group())?
    };
    let inodes = if desc.flags.contains(GroupFlags::INODE_UNINIT) {
        desc.inode_bitmap_csum
    } else {
        sum(desc.inode_bitmap, volume.geo.inodes_per_group())?
    };
    Ok((blocks, inodes))
}
