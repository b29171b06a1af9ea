//! Extended attributes: in inodes, in blocks that inodes share, and values in inodes of their own.

use crate::bytes::{le16, le32};
use crate::error::Result;
use crate::inode::fs_seed;
use crate::inode_table::InodeTable;
use crate::maps;
use crate::report::Sink;
use crate::scan::{Scan, XattrReference};
use crate::volume::Volume;
use crate::{Code, Pass, Place, Progress};
use extant_format::features::Incompat;
use extant_format::inode::{FileType, Inode};
use extant_format::xattr::name::{ENCRYPTION, INLINE_DATA};
use extant_format::xattr::{
    BLOCK_HEADER_LEN, ENTRY_HEADER_LEN, EaInode, INODE_HEADER_LEN, VALUE_MAX, XattrArea,
    XattrBlockHeader, XattrContext, XattrValue, value_hash, verify_block_checksum,
};
use extant_format::{Ino, Pblk};
use rayon::prelude::*;
use std::collections::HashMap;

/// How many attributes refer to each inode that holds a value.
#[derive(Debug, Default)]
pub(crate) struct EaReferences(HashMap<Ino, u64>);

impl EaReferences {
    fn refer(&mut self, ino: Ino) {
        *self.0.entry(ino).or_default() += 1;
    }

    /// How many attributes have their value in `ino`.
    pub(crate) fn count(&self, ino: Ino) -> u64 {
        self.0.get(&ino).copied().unwrap_or(0)
    }

    pub(crate) fn absorb(&mut self, other: Self) {
        for (ino, count) in other.0 {
            *self.0.entry(ino).or_default() += count;
        }
    }
}

pub(crate) fn context(volume: &Volume) -> XattrContext {
    XattrContext {
        ea_inode: volume.has_incompat(Incompat::EA_INODE),
        max_inode: Ino::new(volume.geo.inodes_count()),
    }
}

/// What attributes cost the inode that has them: values in inodes of their own are charged to every
/// user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Clusters of values.
    pub(crate) clusters: u64,
    /// Inodes that hold values.
    pub(crate) inodes: u64,
}

impl Cost {
    fn of(volume: &Volume, area: &XattrArea<'_>) -> Self {
        let mut cost = Self::default();
        for entry in area.iter() {
            if let XattrValue::InInode { size, .. } = entry.value {
                let blocks = volume.block_size().blocks_for(size.into());
                cost.clusters += blocks.div_ceil(volume.cluster_ratio());
                cost.inodes += 1;
            }
        }
        cost
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.clusters += other.clusters;
        self.inodes += other.inodes;
    }
}

/// What the values cost that an attribute block leads to.
pub(crate) fn cost_of_block(volume: &Volume, block: Pblk) -> Result<Cost> {
    if !volume.has_incompat(Incompat::EA_INODE) {
        return Ok(Cost::default());
    }
    let bytes = volume.block(block)?;
    let area = XattrArea::in_block(&bytes, &context(volume));
    Ok(area.map_or_else(|_| Cost::default(), |area| Cost::of(volume, &area)))
}

/// Checks the attributes inside an inode, and says what they cost it.
pub(crate) fn in_inode(
    volume: &Volume,
    ino: Ino,
    inode: &Inode,
    slot: &[u8],
    sink: &mut Sink,
    ea: &mut EaReferences,
) -> Result<Cost> {
    let region = inode.xattr_region(slot, volume.inode_size());
    if le32(region, 0) != extant_format::xattr::MAGIC {
        return Ok(Cost::default());
    }
    let place = Place::ino(ino);
    match XattrArea::in_inode(region, &context(volume)) {
        Ok(area) => {
            let base = region.get(INODE_HEADER_LEN..).unwrap_or_default();
            overlaps(base, 0, place, sink);
            empty_values(base, place, sink);
            entries(volume, &area, Hashes::May, place, sink, ea)?;
            Ok(Cost::of(volume, &area))
        }
        Err(e) => {
            sink.format(Code::XattrInInode, place, e);
            Ok(Cost::default())
        }
    }
}

/// The part of an inode's inline data that lies in its attributes.
pub(crate) fn inline_value<'a>(volume: &Volume, inode: &Inode, slot: &'a [u8]) -> Option<&'a [u8]> {
    let region = inode.xattr_region(slot, volume.inode_size());
    let area = XattrArea::in_inode(region, &context(volume)).ok()?;
    match area.find(&INLINE_DATA)?.value {
        XattrValue::Bytes(bytes) => Some(bytes),
        XattrValue::InInode { .. } => None,
    }
}

/// Hands on the encryption context of an inode, which lies in itself or in its attribute block.
pub(crate) fn with_encryption(
    volume: &Volume,
    inode: &Inode,
    slot: &[u8],
    each: &mut dyn FnMut(XattrValue<'_>),
) -> Result<()> {
    let context = context(volume);
    let mut look = |area: &XattrArea<'_>| {
        let found = area.iter().find(|entry| entry.name.index == ENCRYPTION);
        if let Some(entry) = &found {
            each(entry.value);
        }
        found.is_some()
    };
    let region = inode.xattr_region(slot, volume.inode_size());
    if XattrArea::in_inode(region, &context).is_ok_and(|area| look(&area)) {
        return Ok(());
    }
    if volume.physical().contains(&inode.file_acl.get()) {
        let bytes = volume.block(inode.file_acl)?;
        if let Ok(area) = XattrArea::in_block(&bytes, &context) {
            look(&area);
        }
    }
    Ok(())
}

/// Looks for values that share bytes. The area has been walked once without an error.
fn overlaps(base: &[u8], first: usize, place: Place, sink: &mut Sink) {
    let mut values: Vec<(usize, usize)> = Vec::new();
    let mut at = first;
    while le32(base, at) != 0 {
        let name_len = base.get(at).copied().map_or(0, usize::from);
        let (offset, size) = (le16(base, at + 2), le32(base, at + 8));
        if le32(base, at + 4) == 0 && size != 0 {
            let start = usize::from(offset);
            let padded = (size as usize).saturating_add(3) & !3;
            values.push((start, start.saturating_add(padded)));
        }
        at += ENTRY_HEADER_LEN + ((name_len + 3) & !3);
    }
    values.sort_unstable();
    let touching = values.windows(2).find_map(|pair| match pair {
        [a, b] if a.1 > b.0 => Some((a.0, b.0)),
        _ => None,
    });
    if let Some((a, b)) = touching {
        let text = format!("the values at bytes {a} and {b} overlap");
        sink.say(Code::XattrOverlap, place, text);
    }
}

/// Looks for empty values that lie outside: e2fsck gives up all attributes of such an inode. The
/// area has been walked once without an error.
fn empty_values(base: &[u8], place: Place, sink: &mut Sink) {
    let mut at = 0;
    while le32(base, at) != 0 {
        let name_len = base.get(at).copied().map_or(0, usize::from);
        let offset = usize::from(le16(base, at + 2));
        if le32(base, at + 4) == 0 && le32(base, at + 8) == 0 && offset > base.len() {
            let (what, most) = ("place of an empty value", base.len() as u64);
            sink.number(Code::XattrInInode, place, what, offset as u64, most);
        }
        at += ENTRY_HEADER_LEN + ((name_len + 3) & !3);
    }
}

/// Whether entries have a hash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hashes {
    /// In an inode they may go without.
    May,
    Must,
}

fn entries(
    volume: &Volume,
    area: &XattrArea<'_>,
    hashes: Hashes,
    place: Place,
    sink: &mut Sink,
    ea: &mut EaReferences,
) -> Result<()> {
    for entry in area.iter() {
        if hashes == Hashes::Must && entry.hash == 0 {
            let name = entry.name.suffix.escape_ascii();
            let text = format!("the attribute \"{name}\" in a block has no hash");
            sink.say(Code::XattrHash, place, text);
        }
        let XattrValue::InInode { ino, size } = entry.value else {
            if let Err(e) = entry.verify_hash() {
                sink.format(Code::XattrHash, place, e);
            }
            continue;
        };
        ea.refer(ino);
        let Some((_, inode)) = volume.inode(ino)? else {
            let text = format!("inode {ino}, which should hold a value, cannot be read");
            sink.say(Code::XattrValueInode, place, text);
            continue;
        };
        let own = EaInode::from_inode(&inode);
        let regular = inode.file_type() == Some(FileType::Regular) && inode.links > 0;
        let Some(own) = own.filter(|_| regular) else {
            let text = format!("inode {ino}, which should hold a value, is not of that kind");
            sink.say(Code::XattrValueInode, place, text);
            continue;
        };
        if inode.size != u64::from(size) {
            let what = "size of a value in an inode";
            sink.number(Code::XattrValueInode, place, what, size, inode.size);
        }
        if let Err(e) = entry.verify_with_value_hash(own.hash) {
            sink.format(Code::XattrHash, place, e);
        }
    }
    Ok(())
}

/// Checks every attribute block once, and claims it. Returns the blocks with how many inodes refer
/// to each, ascending.
pub(crate) fn blocks(
    volume: &Volume,
    scan: &mut Scan,
    progress: &dyn Progress,
) -> Result<Vec<(Pblk, u32)>> {
    let mut all: Vec<(Pblk, XattrReference)> = scan.xattr_blocks.drain().collect();
    all.sort_unstable_by_key(|(block, _)| *block);
    progress.begin(Pass::Attributes, all.len() as u64);
    for (block, _) in &all {
        let cluster = volume.cluster_of(block.get());
        scan.claims.claim(cluster..cluster + 1);
    }
    let new = || (Sink::new(), EaReferences::default());
    let counts = all.iter().map(|(block, of)| (*block, of.count)).collect();
    let (sink, ea) = all
        .into_par_iter()
        .try_fold(new, |(mut sink, mut ea), (block, reference)| {
            one_block(volume, block, reference, &mut sink, &mut ea)?;
            progress.advance(1);
            Ok(((sink), ea))
        })
        .try_reduce(new, |(mut sink, mut ea), (more, more_ea)| {
            sink.absorb(more);
            ea.absorb(more_ea);
            Ok::<_, crate::Error>((sink, ea))
        })?;
    scan.sink.absorb(sink);
    scan.ea.absorb(ea);
    Ok(counts)
}

fn one_block(
    volume: &Volume,
    block: Pblk,
    reference: XattrReference,
    sink: &mut Sink,
    ea: &mut EaReferences,
) -> Result<()> {
    let place = Place::ino(reference.ino).at_block(block);
    let bytes = volume.block(block)?;
    if volume.seed.is_some()
        && let Err(e) = verify_block_checksum(&bytes, fs_seed(volume), block)
    {
        sink.format(Code::XattrBlockChecksum, place, e);
    }
    let header = match XattrBlockHeader::parse(&bytes) {
        Ok(header) => header,
        Err(e) => {
            sink.format(Code::XattrBlock, place, e);
            return Ok(());
        }
    };
    if header.ref_count != reference.count {
        let what = "reference count";
        sink.number(
            Code::XattrReferences,
            place,
            what,
            header.ref_count,
            reference.count,
        );
    }
    match XattrArea::in_block(&bytes, &context(volume)) {
        Ok(area) => {
            overlaps(&bytes, BLOCK_HEADER_LEN, place, sink);
            if area.iter().any(|entry| entry.name.index == 0) {
                let text = "an attribute has a name without a prefix";
                sink.say(Code::XattrBlock, place, text);
            }
            entries(volume, &area, Hashes::Must, place, sink, ea)
        }
        Err(e) => {
            sink.format(Code::XattrBlock, place, e);
            Ok(())
        }
    }
}

/// Whether nothing but a flag says that an inode holds the value of an attribute: it is a file.
pub(crate) fn is_flag_alone(
    volume: &Volume,
    ea: &EaReferences,
    ino: Ino,
    inode: &Inode,
) -> Result<bool> {
    let Some(own) = EaInode::from_inode(inode) else {
        return Ok(false);
    };
    if ea.count(ino) > 0 {
        return Ok(false);
    }
    if !(1..=u64::from(VALUE_MAX)).contains(&inode.size) {
        return Ok(true);
    }
    let value = maps::read_file(volume, ino, inode, VALUE_MAX as usize)?;
    Ok(value_hash(fs_seed(volume), &value) != own.hash)
}

/// Compares the inodes that hold values with the attributes that refer to them.
pub(crate) fn value_inodes(
    volume: &Volume,
    table: &InodeTable,
    ea: &EaReferences,
    sink: &mut Sink,
) -> Result<()> {
    if !volume.has_incompat(Incompat::EA_INODE) {
        return Ok(());
    }
    for (ino, summary) in table.in_use().filter(|(_, s)| s.is_ea_inode()) {
        let referred = ea.count(ino);
        let place = Place::ino(ino);
        let Some((_, inode)) = volume.inode(ino)? else {
            continue;
        };
        let Some(own) = EaInode::from_inode(&inode) else {
            continue;
        };
        if summary.is_orphan() {
            continue;
        }
        if is_flag_alone(volume, ea, ino, &inode)? {
            let text = "the flag of an inode that holds an attribute's value, though no attribute refers to it, and it \
                        has not the hash of its content";
            sink.say(Code::InodeFlags, place, text);
            continue;
        }
        if summary.links != 1 {
            let what = "link count of an inode that holds a value";
            sink.number(Code::LinkCount, place, what, summary.links, 1u32);
        }
        if own.ref_count != referred {
            let what = "references to the value";
            sink.number(
                Code::EaInodeReferences,
                place,
                what,
                own.ref_count,
                referred,
            );
        }
        if inode.size == 0 || inode.size > u64::from(VALUE_MAX) {
            sink.number(
                Code::XattrValueInode,
                place,
                "size",
                inode.size,
                u64::from(VALUE_MAX),
            );
            continue;
        }
        let value = maps::read_file(volume, ino, &inode, VALUE_MAX as usize)?;
        let computed = value_hash(fs_seed(volume), &value);
        if computed != own.hash {
            let what = "hash of the value";
            sink.number(Code::XattrHash, place, what, own.hash, computed);
        }
    }
    Ok(())
}
