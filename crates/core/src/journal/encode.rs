//! A captured transaction as images of blocks.
//!
//! Runs on private copies, with new handles already changing what was captured. Blocks of the
//! inode table and of group descriptors are published by nobody but this step, one transaction after
//! the other.

use super::capture::Captured;
use super::queue::{Bytes, Image};
use crate::fs::Fs;
use crate::meta::BlockRef;
use crate::mutants::{Mutant, is_on};
use crate::{Error, InPlace, Place, Result};
use extant_format::{Expected, FormatError, Pblk, Structure};
use std::collections::HashSet;
use std::sync::Arc;

/// All images of the transaction, ascending by block, each block once.
///
/// # Errors
/// When something does not fit the format, or a block that was in memory has to be read again and
/// the device fails. The transaction cannot be committed then.
pub(super) fn encode(fs: &Fs, captured: &mut Captured) -> Result<Vec<Image>> {
    let seq = captured.seq;
    let mut images = Vec::with_capacity(captured.blocks.len());
    for block in &captured.blocks {
        images.push(complete(fs, block)?);
    }
    let inodes = std::mem::take(&mut captured.inodes);
    let mut tables = fs.encode_inodes(&inodes, seq)?;
    let mut quotas = match fs.counts_usage() {
        true => fs.encode_quotas(&fs.tally_usage(&inodes), seq)?,
        false => Vec::new(),
    };
    if is_on(Mutant::UsageNotLogged) {
        quotas.clear();
    }
    if !quotas.is_empty() {
        // Blocks that the files have got in this transaction: what is in them now counts.
        let changed: HashSet<Pblk> = quotas.iter().map(BlockRef::block).collect();
        images.retain(|image| !changed.contains(&image.block));
    }
    // They may leave memory while the log is written.
    drop(inodes);
    if is_on(Mutant::RecordsSkipped) {
        tables.truncate(1);
    }
    let orphans = fs.encode_orphan_blocks(std::mem::take(&mut captured.orphans), seq)?;
    images.extend(
        tables
            .into_iter()
            .chain(orphans)
            .chain(quotas)
            .map(|image| Image {
                block: image.block(),
                bytes: Bytes::Cached(image),
            }),
    );
    let groups = fs.encode_groups(&std::mem::take(&mut captured.groups))?;
    images.extend(groups.into_iter().map(|(block, bytes)| Image {
        block,
        bytes: Bytes::Own(bytes),
    }));
    if let Some(superblock) = &captured.superblock {
        let state = fs.super_state()?;
        let bytes = state.encode(superblock);
        images.push(Image {
            block: state.block(),
            bytes: Bytes::Own(bytes.into()),
        });
    }
    images.sort_unstable_by_key(|image| image.block);
    if let Some(twice) = images
        .windows(2)
        .find(|pair| pair[0].block == pair[1].block)
    {
        let block = twice[0].block;
        let expected = Expected::Said("one kind of metadata in each block");
        let what = Structure::JournalBlock;
        let source = FormatError::new(what, "kinds of metadata", 2, expected);
        return Err(Error::corrupt(Place::Block(block), source));
    }
    Ok(images)
}

/// An image with its checksum.
fn complete(fs: &Fs, image: &BlockRef) -> Result<Image> {
    let block = image.block();
    let bytes = if image.seal().is_plain() {
        Bytes::Cached(image.clone())
    } else {
        let mut copy = fs.cache().content_of(image);
        image
            .seal()
            .complete(block, &mut copy)
            .in_place(Place::Block(block))?;
        Bytes::Sealed(Arc::new(copy))
    };
    Ok(Image { block, bytes })
}
