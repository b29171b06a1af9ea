//! Blocks of attributes, which inodes with equal attributes share.
//!
//! # Invariants
//!
//! - The count of inodes that share a block, and its content, change only under the block's lock.
//! - A block that is known by its hash is in use: it is forgotten before it is freed or rewritten,
//!   under the same lock. So an inode that finds it under the lock may add itself to those that
//!   share it.

use super::change::Kept;
use super::own_inode::{acquire, of_block, release};
use crate::alloc::{FreedKind, Taken};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::meta::BlockRef;
use crate::meta::Seal;
use crate::mutants::{Mutant, is_on};
use crate::{Error, InPlace, Place, Result};
use extant_format::xattr::{
    Attribute, BLOCK_HEADER_LEN, XattrBlockHeader, encode_block, space_in_block,
    verify_block_checksum,
};
use extant_format::{Expected, FormatError, Ino, Pblk, Structure};
use extant_sync::{LockClass, Mutex, MutexGuard, Rank};
use std::collections::HashMap;

static BLOCK: LockClass = LockClass::new("shared attribute block", Rank::Xattr);
static KNOWN: LockClass = LockClass::new("known attribute blocks", Rank::Leaf);

/// Blocks of attributes that can change at the same time, at most.
const LOCKS: usize = 16;
/// Blocks that are known by hash, for each lock of them.
const KNOWN_MOST: usize = 256;
/// Blocks that are known of one hash: different content may have the same.
const SAME_MOST: usize = 4;
/// Most inodes that share a block, as under Linux.
const SHARERS_MOST: u32 = 1024;

/// Which blocks of attributes there are to share, as far as known, and the locks of all of them.
#[derive(Debug)]
pub(crate) struct SharedBlocks {
    locks: Box<[Mutex<()>]>,
    known: Box<[Mutex<Known>]>,
}

/// Blocks by hash.
type Known = HashMap<u32, Vec<Pblk>>;

impl SharedBlocks {
    pub(crate) fn new() -> Self {
        Self {
            locks: (0..LOCKS).map(|_| Mutex::new(&BLOCK, ())).collect(),
            known: (0..LOCKS)
                .map(|_| Mutex::new(&KNOWN, HashMap::new()))
                .collect(),
        }
    }

    /// Locks a block: its content and the count of its sharers stand still.
    fn lock(&self, block: Pblk) -> MutexGuard<'_, ()> {
        self.locks[block.get() as usize % LOCKS].lock()
    }

    fn known(&self, hash: u32) -> MutexGuard<'_, Known> {
        self.known[hash as usize % LOCKS].lock()
    }

    /// The caller has locked the block, which is in use. A block of hash 0 is not to be shared.
    fn remember(&self, hash: u32, block: Pblk) {
        if hash == 0 {
            return;
        }
        let mut known = self.known(hash);
        if known.len() >= KNOWN_MOST
            && let Some(&any) = known.keys().next()
        {
            known.remove(&any);
        }
        let same = known.entry(hash).or_default();
        same.retain(|known| *known != block);
        if same.len() >= SAME_MOST {
            same.remove(0);
        }
        same.push(block);
    }

    /// The caller has locked the block.
    fn forget(&self, hash: u32, block: Pblk) {
        let mut known = self.known(hash);
        if let Some(same) = known.get_mut(&hash) {
            same.retain(|known| *known != block);
            if same.is_empty() {
                known.remove(&hash);
            }
        }
    }

    fn find(&self, hash: u32) -> Vec<Pblk> {
        self.known(hash).get(&hash).cloned().unwrap_or_default()
    }
}

/// Attributes as a whole block, with one sharer and no checksum. `None` if they do not fit one.
pub(super) fn encoded(fs: &Fs, kept: &[Kept]) -> Option<Box<[u8]>> {
    let attributes: Vec<Attribute<'_>> = kept.iter().map(Kept::attribute).collect();
    let len = fs.block_size().len();
    if space_in_block(&attributes) > len {
        return None;
    }
    let mut data = vec![0; len].into_boxed_slice();
    encode_block(&mut data, &attributes, 1, None).then_some(data)
}

/// Blocks that putting an inode's attributes into another block changes at most: the new block, its
/// group, the old one, its group, one that is shared, the superblock.
pub(super) const CREDITS: u32 = (1 + 3) + (1 + 3) + 1 + 1;

/// What became of a block that was to be written.
pub(super) enum Put {
    /// The attributes are in this block now.
    In(Pblk),
    /// A block has to be taken first.
    NeedsBlock,
}

/// Puts `data`, which [`encoded`] made, where inode `ino` finds it from now on: into a block that
/// others have with the same content; over its `old` block, if it is the only one to have that;
/// otherwise into the block taken for it. The inode's part in its old block is given up. With
/// `owned` the caller gives a reference to the value in that inode, which one of the entries is
/// for.
///
/// # Errors
/// When the old block cannot be read or freed; then the inode's part in that is as it was.
pub(super) fn put<'f>(
    handle: &Handle<'f>,
    ino: Ino,
    old: Option<Pblk>,
    data: Box<[u8]>,
    owned: Option<Ino>,
    spare: &mut Option<Taken<'f>>,
) -> Result<Put> {
    let fs = handle.fs();
    let shared = fs.shared_attributes()?;
    let hash = XattrBlockHeader::parse(&data)
        .in_place(Place::Inode(ino))?
        .hash;
    if let Some(block) = join(handle, ino, old, hash, &data)? {
        if let Some(old) = old
            && let Err(e) = leave(handle, ino, old)
        {
            // Somebody else shares it, so this frees nothing.
            leave(handle, ino, block)?;
            return Err(e);
        }
        // Its entries have their references.
        owned.into_iter().for_each(|value| release(handle, value));
        return Ok(Put::In(block));
    }
    let place = Place::Inode(ino);
    let mut values = of_block(fs, place, &data)?;
    if let Some(old) = old {
        let locked = shared.lock(old);
        let (bytes, header) = read(fs, ino, old)?;
        if header.ref_count <= 1 {
            let mut had = of_block(fs, place, &bytes)?;
            had.extend(owned);
            let lost = without(had, &values);
            shared.forget(header.hash, old);
            handle.replace(&bytes, seal(fs), data);
            shared.remember(hash, old);
            drop(locked);
            lost.into_iter().for_each(|value| release(handle, value));
            return Ok(Put::In(old));
        }
    }
    let Some(taken) = spare.take() else {
        return Ok(Put::NeedsBlock);
    };
    let block = taken.start();
    values = without(values, owned.as_slice());
    acquire_all(handle, &values)?;
    let committed = handle.alloc().commit_blocks(handle, taken).and_then(|()| {
        let left = old.map_or(Ok(()), |old| leave(handle, ino, old));
        if left.is_err() {
            handle
                .alloc()
                .free_blocks(handle, block, 1, FreedKind::Metadata)?;
        }
        left
    });
    if let Err(e) = committed {
        values.into_iter().for_each(|value| release(handle, value));
        return Err(e);
    }
    let _locked = shared.lock(block);
    let new = handle.create(block, seal(fs), data);
    // Made here, so there is no checksum yet to compare with.
    new.set_verified(Structure::XattrBlock, None);
    shared.remember(hash, block);
    Ok(Put::In(block))
}

/// `all` without one of each of `some`.
pub(super) fn without(mut all: Vec<Ino>, some: &[Ino]) -> Vec<Ino> {
    for gone in some {
        if let Some(at) = all.iter().position(|ino| ino == gone) {
            all.swap_remove(at);
        }
    }
    all
}

fn acquire_all(handle: &Handle<'_>, values: &[Ino]) -> Result<()> {
    for (i, value) in values.iter().enumerate() {
        let acquired = acquire(handle, *value);
        if matches!(acquired, Ok(true)) {
            continue;
        }
        let done = values.iter().take(i);
        done.for_each(|value| release(handle, *value));
        let expected = Expected::Said("an inode that holds an attribute value, in use");
        let found = value.get().into();
        let source = FormatError::new(Structure::Xattr, "value_inum", found, expected);
        return acquired.and(Err(Error::corrupt(Place::Inode(*value), source)));
    }
    Ok(())
}

/// Adds a sharer to a block other than `old` with the content of `data`, if one is known.
fn join(
    handle: &Handle<'_>,
    ino: Ino,
    old: Option<Pblk>,
    hash: u32,
    data: &[u8],
) -> Result<Option<Pblk>> {
    let fs = handle.fs();
    let shared = fs.shared_attributes()?;
    for block in shared.find(hash) {
        let _locked = shared.lock(block);
        if Some(block) == old || !shared.find(hash).contains(&block) {
            continue;
        }
        // What cannot be read is not shared.
        let Ok((bytes, mut header)) = read(fs, ino, block) else {
            continue;
        };
        let same = bytes.get(BLOCK_HEADER_LEN..) == data.get(BLOCK_HEADER_LEN..);
        if same && (1..SHARERS_MOST).contains(&header.ref_count) {
            header.ref_count += u32::from(!is_on(Mutant::SharerForgotten));
            handle.edit(&bytes, seal(fs), |bytes| header.store_ref_count(bytes));
            return Ok(Some(block));
        }
    }
    Ok(None)
}

/// Gives up the part of inode `ino` in a block of attributes; the last one frees it.
///
/// # Errors
/// When the block is broken, or cannot be read or freed; then nothing has changed.
pub(crate) fn leave(handle: &Handle<'_>, ino: Ino, block: Pblk) -> Result<()> {
    let fs = handle.fs();
    let shared = fs.shared_attributes()?;
    let locked = shared.lock(block);
    let (bytes, mut header) = read(fs, ino, block)?;
    if header.ref_count > 1 {
        header.ref_count -= 1;
        handle.edit(&bytes, seal(fs), |bytes| header.store_ref_count(bytes));
        return Ok(());
    }
    let values = of_block(fs, Place::InodeBlock(ino, block), &bytes)?;
    drop(bytes);
    handle
        .alloc()
        .free_blocks(handle, block, 1, FreedKind::Metadata)?;
    shared.forget(header.hash, block);
    handle.revoke(block);
    drop(locked);
    values.into_iter().for_each(|value| release(handle, value));
    Ok(())
}

/// Returns how many inodes share the block of inode `ino`, so far as that stands still.
pub(super) fn sharers(fs: &Fs, ino: Ino, block: Pblk) -> Result<u32> {
    Ok(read(fs, ino, block)?.1.ref_count)
}

fn read(fs: &Fs, ino: Ino, block: Pblk) -> Result<(BlockRef, XattrBlockHeader)> {
    let place = Place::InodeBlock(ino, block);
    let bytes = load(fs, place, block)?;
    let header = XattrBlockHeader::parse(&bytes).in_place(place)?;
    Ok((bytes, header))
}

/// Returns a block of attributes, checked.
pub(super) fn load(fs: &Fs, place: Place, block: Pblk) -> Result<BlockRef> {
    // Inodes share the block: its checksum depends on its address only.
    fs.metadata(block, place, Structure::XattrBlock, None, |bytes| {
        // Something else at that address is told by its magic, not by a wrong checksum.
        XattrBlockHeader::parse(bytes)?;
        match fs.checksum_seed() {
            Some(seed) => verify_block_checksum(bytes, seed, block),
            None => Ok(()),
        }
    })
}

fn seal(fs: &Fs) -> Seal {
    fs.checksum_seed().map_or(Seal::Plain, Seal::XattrBlock)
}
