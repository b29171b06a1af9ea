//! Attribute blocks, and inodes that hold values.

use super::content::salvage;
use super::work::{Work, delete};
use crate::bytes::le32;
use crate::error::Result;
use crate::inode::fs_seed;
use crate::{Code, Place, maps};
use extant_format::features::Compat;
use extant_format::inode::Inode;
use extant_format::xattr::{
    BLOCK_HEADER_LEN, EaInode, MAGIC, VALUE_MAX, XattrBlockHeader, encode_block, value_hash,
};
use extant_format::{Ino, Pblk};
use std::collections::{BTreeMap, BTreeSet};

const CODES: &[Code] = &[
    Code::XattrBlock,
    Code::XattrBlockChecksum,
    Code::XattrReferences,
    Code::XattrOverlap,
    Code::XattrHash,
    Code::XattrValueInode,
];

/// Puts attribute blocks right; those of which nothing is left lose their references.
pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    let mut found: BTreeMap<Pblk, BTreeSet<Code>> = BTreeMap::new();
    for finding in work.findings(CODES) {
        if let Some(block) = finding.place.block {
            found.entry(block).or_default().insert(finding.code);
        }
    }
    let counts: BTreeMap<Pblk, u32> = work.survey.xattr_blocks.iter().copied().collect();
    let mut lost = BTreeSet::new();
    for (block, codes) in found {
        let Some(count) = counts.get(&block) else {
            continue;
        };
        if !work.owns(block) {
            continue;
        }
        if !one(work, block, *count)? {
            lost.insert(block);
            continue;
        }
        for code in codes {
            let text = format!("put right, with {count} references");
            work.fix(code, Place::block(block), text);
        }
    }
    forget(work, &lost)
}

/// Writes an attribute block anew with what is sound of it; returns whether there is anything.
fn one(work: &mut Work<'_>, at: Pblk, count: u32) -> Result<bool> {
    let volume = work.volume();
    let old = volume.block(at)?;
    if XattrBlockHeader::parse(&old).is_err() {
        return Ok(false);
    }
    let mut attributes = salvage(volume, &old, BLOCK_HEADER_LEN)?;
    let checksum = volume.seed.map(|_| (fs_seed(volume), at));
    let mut new = vec![0; old.len()];
    while !attributes.is_empty() {
        if encode_block(&mut new, &attributes, count, checksum) {
            work.put_block(at, &new)?;
            return Ok(true);
        }
        attributes.pop();
    }
    Ok(false)
}

/// Takes away what refers to some attribute blocks.
fn forget(work: &mut Work<'_>, lost: &BTreeSet<Pblk>) -> Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    let survey = work.survey;
    for (ino, _) in survey.table.in_use() {
        let Some((_, inode)) = survey.volume.inode(ino)? else {
            continue;
        };
        if lost.contains(&inode.file_acl) {
            let block = inode.file_acl;
            work.edit_inode(ino, |inode, _| inode.file_acl = Pblk::new(0))?;
            let text = format!("block {block} holds no attributes, and is no longer referred to");
            work.fix(Code::XattrBlock, Place::ino(ino), text);
        }
    }
    Ok(())
}

/// Puts an inode right that holds a value: its references and its hash; one that nothing refers to
/// is deleted.
pub(super) fn value_inode(work: &mut Work<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    let volume = work.volume();
    let referred = work.survey.ea.count(ino);
    let possible = (1..=u64::from(VALUE_MAX)).contains(&inode.size);
    if referred == 0 || !possible {
        delete(inode, work.deletion_time());
        return Ok(());
    }
    let value = maps::read_file(volume, ino, inode, VALUE_MAX as usize)?;
    let own = EaInode {
        hash: value_hash(fs_seed(volume), &value),
        ref_count: referred,
    };
    own.apply(inode);
    Ok(())
}

/// Whether an attribute block is one, and only the feature is off that would say so.
pub(super) fn feature_is_missing(work: &Work<'_>, at: Pblk) -> Result<bool> {
    let volume = work.volume();
    if volume.has_compat(Compat::EXT_ATTR) || !volume.physical().contains(&at.get()) {
        return Ok(false);
    }
    Ok(le32(&volume.block(at)?, 0) == MAGIC)
}
