//! A file system as a reader sees it: inodes, names, content and attributes, by the rules of Linux
//! where it accepts something, and a little further where a field alone is wrong that says how to
//! read.

use crate::blockset::BlockSet;
use crate::bytes::le16;
use crate::error::Result;
use crate::inode::fs_seed;
use crate::maps::{self, Piece, Run};
use crate::report::Sink;
use crate::volume::Volume;
use crate::{garbage, special, xattr};
use extant_blockdev::SharedDevice;
use extant_format::dir;
use extant_format::features::Incompat;
use extant_format::inline_data::{InlineData, InlineDir};
use extant_format::inode::rules::looks_like_extents;
use extant_format::inode::{FileType, Inode, InodeFlags};
use extant_format::xattr::name::INLINE_DATA;
use extant_format::xattr::{
    EaInode, VALUE_MAX, XattrArea, XattrValue, value_hash, verify_block_checksum,
};
use extant_format::{Ino, Pblk};
use std::collections::BTreeMap;
use std::ops::Range;

/// The first number that users' files have in every file system. A superblock may say more, and is
/// not believed.
const FIRST_OF_USERS: u32 = 11;
/// Bytes of an inode table that are read at once.
const WINDOW: usize = 16 << 10;
/// Bytes of a directory that are read at once.
const READ_BYTES: u64 = 256 << 10;

/// Attributes by the number of their prefix and the rest of their name.
pub(super) type Attributes = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

/// A file system that is read.
pub(super) struct View {
    pub(super) volume: Volume,
    /// Blocks of the file system's own structures: what a file maps of them is no content, since
    /// Linux refuses it.
    pub(super) own: BlockSet,
}

/// An inode that can be read.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) ino: Ino,
    pub(super) slot: Vec<u8>,
    /// With the flags by which its content is to be read.
    pub(super) inode: Inode,
    pub(super) file_type: FileType,
    /// Its content lies in the inode.
    pub(super) is_inline: bool,
}

/// Where the content of an inode lies.
pub(super) struct Map {
    pub(super) runs: Vec<Run>,
    /// Nothing in it is wrong: what is not mapped reads as zeros.
    pub(super) is_sound: bool,
}

/// Inodes read in ascending order, many at once.
pub(super) struct Slots<'a> {
    view: &'a View,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Slots<'a> {
    pub(super) fn new(view: &'a View) -> Self {
        Self {
            view,
            at: 0,
            bytes: Vec::new(),
        }
    }

    /// An inode, if it can be read.
    pub(super) fn get(&mut self, ino: Ino) -> Result<Option<Seen>> {
        let volume = &self.view.volume;
        let Some(offset) = volume.inode_offset(ino) else {
            return Ok(None);
        };
        let size = usize::from(volume.inode_size());
        let end = self.at + self.bytes.len() as u64;
        if offset < self.at || offset + size as u64 > end {
            self.bytes.resize(WINDOW.max(size), 0);
            volume.read_bytes(offset, &mut self.bytes)?;
            self.at = offset;
        }
        let from = (offset - self.at) as usize;
        let slot = self.bytes.get(from..from + size).unwrap_or_default();
        self.view.seen(ino, slot)
    }
}

impl View {
    pub(super) fn new(device: SharedDevice) -> Result<Self> {
        let volume = Volume::open(device, &mut Sink::new())?;
        let mut own = BlockSet::default();
        let end = volume.geo.blocks_count();
        let mut take =
            |from: u64, len: u64| own.add(from.min(end)..from.saturating_add(len).min(end));
        for group in volume.geo.groups() {
            if let Ok(header) = volume.geo.group_header(group) {
                if let Some(block) = header.super_block {
                    take(block.get(), 1);
                }
                let len = header.descs.end.saturating_sub(header.descs.start);
                take(header.descs.start, len);
            }
        }
        let table = u64::from(volume.geo.inode_table_blocks());
        for state in volume.groups.iter().filter(|state| state.located) {
            take(state.desc.block_bitmap.get(), 1);
            take(state.desc.inode_bitmap.get(), 1);
            take(state.desc.inode_table.get(), table);
        }
        Ok(Self { volume, own })
    }

    /// Whether a user can have an inode of this number.
    fn is_users(&self, ino: Ino) -> bool {
        let users = FIRST_OF_USERS..=self.volume.geo.inodes_count();
        ino == Ino::ROOT || users.contains(&ino.get())
    }

    pub(super) fn inode(&self, ino: Ino) -> Result<Option<Seen>> {
        Slots::new(self).get(ino)
    }

    /// The inode in `slot`, if a user can read it.
    fn seen(&self, ino: Ino, slot: &[u8]) -> Result<Option<Seen>> {
        let volume = &self.volume;
        if !self.is_users(ino) {
            return Ok(None);
        }
        let Ok(mut inode) = Inode::parse(slot, &volume.inode_context(ino)) else {
            return Ok(None);
        };
        let Some(file_type) = inode.file_type().filter(|_| inode.links > 0) else {
            return Ok(None);
        };
        // Where there are checksums, garbage has none that is right.
        let is_garbage = || garbage::contradictions(volume, ino, slot).is_some();
        if volume.seed.is_none() && ino != Ino::ROOT && is_garbage() {
            return Ok(None);
        }
        let is_tree = looks_like_extents(&inode);
        // What is in the inode's own attribute says more than the flag.
        let is_inline = volume.has_incompat(Incompat::INLINE_DATA)
            && !is_tree
            && !file_type.is_device()
            && xattr::inline_value(volume, &inode, slot).is_some();
        if !is_inline {
            let is_text = special::is_text(&inode) && !is_tree;
            inode.flags.set(
                InodeFlags::EXTENTS,
                is_tree || inode.flags.contains(InodeFlags::EXTENTS) && !is_text,
            );
        }
        let seen = Seen {
            ino,
            slot: slot.to_vec(),
            inode,
            file_type,
            is_inline,
        };
        Ok(if self.is_value(&seen)? {
            None
        } else {
            Some(seen)
        })
    }

    /// Whether an inode holds the value of an attribute, and not a flag alone says so.
    fn is_value(&self, seen: &Seen) -> Result<bool> {
        let Some(own) = EaInode::from_inode(&seen.inode) else {
            return Ok(false);
        };
        let fits = (1..=u64::from(VALUE_MAX)).contains(&seen.inode.size);
        if !fits || seen.file_type != FileType::Regular {
            return Ok(false);
        }
        let value = maps::read_file(&self.volume, seen.ino, &seen.inode, VALUE_MAX as usize)?;
        Ok(own.hash == value_hash(fs_seed(&self.volume), &value))
    }

    /// Hands on the pieces of a map; returns whether nothing is wrong with it.
    pub(super) fn walk(&self, seen: &Seen, each: &mut dyn FnMut(Piece)) -> Result<bool> {
        if seen.is_inline || !special::has_map(&self.volume, &seen.inode, seen.file_type) {
            return Ok(true);
        }
        let mut sink = Sink::new();
        maps::walk(&self.volume, seen.ino, &seen.inode, &mut sink, each)?;
        Ok(sink.total() == 0)
    }

    pub(super) fn map(&self, seen: &Seen) -> Result<Map> {
        let mut runs = Vec::new();
        let is_sound = self.walk(seen, &mut |piece| {
            if let Piece::Data(run) = piece {
                runs.push(run);
            }
        })?;
        Ok(Map { runs, is_sound })
    }

    /// All bytes there are for the content of an inode with inline data.
    fn stored_inline(&self, seen: &Seen) -> Vec<u8> {
        let rest = xattr::inline_value(&self.volume, &seen.inode, &seen.slot).unwrap_or_default();
        [&seen.inode.map[..], rest].concat()
    }

    /// The content of an inode with inline data.
    pub(super) fn inline_bytes(&self, seen: &Seen) -> Vec<u8> {
        let mut bytes = self.stored_inline(seen);
        bytes.truncate(usize::try_from(seen.inode.size).unwrap_or(usize::MAX));
        bytes
    }

    /// Hands on the names in a directory that Linux would list, `.` and `..` left out. Returns
    /// whether any part of it could be read.
    pub(super) fn names(&self, seen: &Seen, each: &mut dyn FnMut(Ino, &[u8])) -> Result<bool> {
        let volume = &self.volume;
        let layout = volume.dir_layout(seen.inode.flags);
        let mut one = |entry: &dir::DirEntry<'_>| {
            if let Some(ino) = entry
                .ino
                .filter(|_| ![&b"."[..], b".."].contains(&entry.name))
            {
                each(ino, entry.name);
            }
        };
        if seen.is_inline {
            let rest = xattr::inline_value(volume, &seen.inode, &seen.slot).unwrap_or_default();
            let data = InlineData::new(&seen.inode.map, rest, seen.inode.size);
            let inline = InlineDir::new(&data, layout.max_inode);
            let Ok(inline) = inline else { return Ok(false) };
            let entries = inline.entries(&layout);
            entries.map_while(|entry| entry.ok()).for_each(|e| one(&e));
            return Ok(true);
        }
        let seed = volume.inode_seed(seen.ino, &seen.inode);
        let size = volume.block_size().len();
        let end = seen.inode.size >> volume.block_size().log2();
        let mut is_read = false;
        let mut buf = Vec::new();
        // A block that the map leads to once more says nothing new.
        let mut known = BlockSet::default();
        let mut parts = Vec::new();
        for run in self.map(seen)?.runs.iter().filter(|run| !run.unwritten) {
            let len = u64::from(run.len).min(end.saturating_sub(run.lblk.into()));
            let blocks = run.pblk..run.pblk + len;
            outside(&known, blocks.clone(), &mut |part| parts.push(part));
            known.add(blocks);
        }
        for part in parts {
            let mut at = part.start;
            while at < part.end {
                let together = (part.end - at).min((READ_BYTES / size as u64).max(1));
                buf.resize(together as usize * size, 0);
                volume.read(Pblk::new(at), &mut buf)?;
                for block in buf.chunks_exact(size) {
                    // Nodes of an index have no names, and their own checksum.
                    let is_sound =
                        seed.is_none_or(|seed| dir::verify_block_checksum(block, seed).is_ok());
                    let first = dir::entries(block, &layout).next();
                    is_read |= first.is_some_and(|entry| entry.is_ok());
                    if is_sound {
                        let entries = dir::entries(block, &layout);
                        entries.map_while(|entry| entry.ok()).for_each(|e| one(&e));
                    }
                }
                at += together;
            }
        }
        Ok(is_read)
    }

    /// Whether the content of an inode begins as a directory's own does, with the inode itself.
    pub(super) fn begins_as_directory(&self, seen: &Seen) -> Result<bool> {
        let map = self.map(seen)?;
        let Some(at) = maps::lookup(&map.runs, 0) else {
            return Ok(false);
        };
        let bytes = self.volume.block(at)?;
        let layout = self.volume.dir_layout(seen.inode.flags);
        let first = dir::entries(&bytes, &layout).next();
        Ok(first
            .and_then(|entry| entry.ok())
            .is_some_and(|entry| entry.name == b"." && entry.ino == Some(seen.ino)))
    }

    /// The target of a symbolic link; `None` where Linux refuses it.
    pub(super) fn target(&self, seen: &Seen) -> Result<Option<Vec<u8>>> {
        let inode = &seen.inode;
        let mut bytes = if seen.is_inline {
            self.stored_inline(seen)
        } else if special::has_map(&self.volume, inode, seen.file_type) {
            let runs = self.map(seen)?.runs;
            match maps::lookup(&runs, 0) {
                Some(at) => self.volume.block(at)?,
                None => return Ok(None),
            }
        } else {
            inode.map.to_vec()
        };
        let size = usize::try_from(inode.size).unwrap_or(usize::MAX);
        if size == 0 || size > bytes.len() {
            return Ok(None);
        }
        let end = bytes.iter().position(|byte| *byte == 0);
        // Ciphertext has its length before it.
        let is_sound = if inode.flags.contains(InodeFlags::ENCRYPT) {
            usize::from(le16(&bytes, 0)) + 2 == size
        } else {
            end.unwrap_or(bytes.len()) == size
        };
        bytes.truncate(size);
        Ok(is_sound.then_some(bytes))
    }

    /// Whether an inode is a file, or a directory, that its mode calls a symbolic link: Linux reads
    /// no target there.
    pub(super) fn is_file_called_link(&self, seen: &Seen) -> Result<bool> {
        Ok(seen.file_type == FileType::Symlink
            && !seen.is_inline
            && special::is_file_called_link(&self.volume, seen.ino, &seen.inode)?
            && self.target(seen)?.is_none())
    }

    /// The attributes that can be read. Inline data is content, and left out.
    pub(super) fn attributes(&self, seen: &Seen) -> Result<Attributes> {
        let volume = &self.volume;
        let context = xattr::context(volume);
        let mut found = Attributes::new();
        let region = seen.inode.xattr_region(&seen.slot, volume.inode_size());
        if crate::bytes::le32(region, 0) == extant_format::xattr::MAGIC
            && let Ok(area) = XattrArea::in_inode(region, &context)
        {
            self.values(&area, &mut found)?;
        }
        let block = seen.inode.file_acl;
        if volume.physical().contains(&block.get()) {
            let bytes = volume.block(block)?;
            let sum = || verify_block_checksum(&bytes, fs_seed(volume), block);
            if (volume.seed.is_none() || sum().is_ok())
                && let Ok(area) = XattrArea::in_block(&bytes, &context)
            {
                self.values(&area, &mut found)?;
            }
        }
        Ok(found)
    }

    fn values(&self, area: &XattrArea<'_>, found: &mut Attributes) -> Result<()> {
        for entry in area.iter() {
            if entry.name == INLINE_DATA || entry.name.index == 0 {
                continue;
            }
            let value = match entry.value {
                XattrValue::Bytes(bytes) => bytes.to_vec(),
                XattrValue::InInode { ino, .. } => match self.value_in(ino)? {
                    Some(value) => value,
                    None => continue,
                },
            };
            let name = (entry.name.index, entry.name.suffix.to_vec());
            found.entry(name).or_insert(value);
        }
        Ok(())
    }

    /// The value in an inode of its own, if it is the one whose hash the inode has.
    fn value_in(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        let Some((_, inode)) = self.volume.inode(ino)? else {
            return Ok(None);
        };
        let Some(own) = EaInode::from_inode(&inode).filter(|_| inode.links > 0) else {
            return Ok(None);
        };
        let value = maps::read_file(&self.volume, ino, &inode, VALUE_MAX as usize)?;
        Ok((own.hash == value_hash(fs_seed(&self.volume), &value)).then_some(value))
    }

    /// The inodes that hold values of a file's attributes.
    pub(super) fn value_inodes(&self, seen: &Seen) -> Result<Vec<Ino>> {
        let volume = &self.volume;
        let context = xattr::context(volume);
        let mut found = Vec::new();
        let mut take = |area: &XattrArea<'_>| {
            for entry in area.iter() {
                if let XattrValue::InInode { ino, .. } = entry.value {
                    found.push(ino);
                }
            }
        };
        let region = seen.inode.xattr_region(&seen.slot, volume.inode_size());
        if let Ok(area) = XattrArea::in_inode(region, &context) {
            take(&area);
        }
        if volume.physical().contains(&seen.inode.file_acl.get()) {
            let bytes = volume.block(seen.inode.file_acl)?;
            if let Ok(area) = XattrArea::in_block(&bytes, &context) {
                take(&area);
            }
        }
        Ok(found)
    }

    /// Hands on the parts of a run of blocks that are not of the file system's own structures.
    pub(super) fn content_of(&self, blocks: Range<u64>, each: &mut dyn FnMut(Range<u64>)) {
        outside(&self.own, blocks, each);
    }
}

/// Hands on the parts of a run of blocks that are not in a set.
fn outside(set: &BlockSet, blocks: Range<u64>, each: &mut dyn FnMut(Range<u64>)) {
    let mut at = blocks.start;
    set.runs(blocks.clone(), &mut |inside| {
        if at < inside.start {
            each(at..inside.start);
        }
        at = inside.end;
    });
    if at < blocks.end {
        each(at..blocks.end);
    }
}
