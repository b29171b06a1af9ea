//! Values in inodes of their own: making them, sharing them, and counting references to them.
//!
//! Such an inode has no name. It counts the attributes that refer to it, one for each entry in a
//! record, and one for each entry in a block of attributes, however many inodes share that. When
//! the last goes it becomes an orphan and is deleted like any other. Its content is metadata to the
//! journal, as under Linux.
//!
//! # Invariants
//!
//! - The count changes under the handle that changes the entries, so that a crash leaves both or
//!   neither.
//! - A count that has reached 0 never grows again.

use crate::alloc::{Request, Taken};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Held, Inode};
use crate::map::{self, MapGuard};
use crate::meta::Seal;
use crate::{Error, InPlace, Place, Result};
use extant_format::checksum::Crc32c;
use extant_format::features::Incompat;
use extant_format::xattr::{EaInode, XattrArea, XattrValue, value_hash};
use extant_format::{Expected, FormatError, Ino, Lblk, Structure};
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::HashMap;

static KNOWN: LockClass = LockClass::new("known attribute values", Rank::Leaf);

/// Values that are known by hash.
const KNOWN_MOST: usize = 4096;

/// Which values there are to share, as far as known, by hash.
#[derive(Debug)]
pub(crate) struct SharedValues {
    known: Mutex<HashMap<u32, Ino>>,
}

impl SharedValues {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::new(&KNOWN, HashMap::new()),
        }
    }

    fn remember(&self, hash: u32, ino: Ino) {
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MOST
            && let Some(&any) = known.keys().next()
        {
            known.remove(&any);
        }
        known.insert(hash, ino);
    }

    fn find(&self, hash: u32) -> Option<Ino> {
        self.known.lock().get(&hash).copied()
    }
}

/// Tells whether values may lie in inodes of their own.
pub(super) fn is_possible(fs: &Fs) -> bool {
    fs.superblock().has_incompat(Incompat::EA_INODE)
}

/// Returns the hash of a value, as its inode keeps it.
pub(super) fn hash_of(fs: &Fs, value: &[u8]) -> u32 {
    value_hash(Crc32c::seeded(fs.superblock().checksum_seed()), value)
}

/// Returns the hash that the inode of a value keeps.
///
/// # Errors
/// When it cannot be read, or is none.
pub(crate) fn kept_hash(fs: &Fs, ino: Ino) -> Result<u32> {
    let own = fs.with_inode(ino, |inode| EaInode::from_inode(inode.disk()))?;
    own.map(|own| own.hash).ok_or_else(|| {
        let expected = Expected::Said("an inode that holds an attribute value");
        let source = FormatError::new(Structure::Xattr, "value_inum", ino.get().into(), expected);
        Error::corrupt(Place::Inode(ino), source)
    })
}

/// Sectors that an attribute charges its inode for a value of this length elsewhere.
pub(super) fn sectors(fs: &Fs, len: u64) -> u64 {
    let cluster = u64::from(fs.block_size().bytes()) << fs.geometry().cluster_bits();
    len.next_multiple_of(cluster) >> 9
}

/// Blocks that changing so many counts changes at most: each record, and a neighbour among the
/// orphans.
pub(super) fn credits(fs: &Fs, counts: usize) -> u32 {
    let each = 1 + fs.orphan_credits();
    u32::try_from(counts)
        .unwrap_or(u32::MAX)
        .saturating_mul(each)
}

/// Blocks that a value of this length takes: no more than memory can hold.
fn blocks_of(fs: &Fs, len: usize) -> u32 {
    fs.block_size().blocks_for(len as u64) as u32
}

/// Blocks that [`provide`] changes at most for a value of `len` bytes that lies in `taken`.
pub(super) fn provide_credits(fs: &Fs, len: usize, taken: &[Taken<'_>]) -> u32 {
    let blocks = blocks_of(fs, len);
    let runs = taken.len() as u32;
    fs.new_inode_credits() + map::new_map_credits(runs) + blocks + credits(fs, 1)
}

/// Returns the inodes that the entries of an area refer to, one for each.
pub(super) fn of_area(area: &XattrArea<'_>) -> Vec<Ino> {
    let ino = |value| match value {
        XattrValue::InInode { ino, .. } => Some(ino),
        XattrValue::Bytes(_) => None,
    };
    area.iter().filter_map(|entry| ino(entry.value)).collect()
}

/// Returns the inodes that the entries of a block refer to.
pub(super) fn of_block(fs: &Fs, place: Place, block: &[u8]) -> Result<Vec<Ino>> {
    if !is_possible(fs) {
        return Ok(Vec::new());
    }
    let area = XattrArea::in_block(block, &fs.xattr_context()).in_place(place)?;
    Ok(of_area(&area))
}

/// Adds a reference to a value; whether it still can have one.
///
/// # Errors
/// When the inode cannot be read, or is not one that holds a value. Nothing has changed then.
pub(super) fn acquire(handle: &Handle<'_>, ino: Ino) -> Result<bool> {
    add_reference(handle, &handle.fs().hold(ino)?)
}

fn add_reference(handle: &Handle<'_>, held: &Held) -> Result<bool> {
    held.live().update(handle, |inode| {
        let Some(mut own) = EaInode::from_inode(inode.disk()) else {
            return false;
        };
        if own.ref_count == 0 || inode.disk().links == 0 {
            return false;
        }
        own.ref_count += 1;
        own.apply(inode.disk_mut());
        true
    })
}

/// Gives up a reference. The last one makes the inode an orphan, which the next reaping deletes.
/// What is wrong with such an inode is reported; what refers to it goes all the same.
pub(super) fn release(handle: &Handle<'_>, ino: Ino) {
    if let Err(error) = try_release(handle, ino) {
        crate::event!(error, %error, "the attribute value in inode {ino} was not given up");
        if error.is_corruption() {
            handle.fs().report(&error);
        }
    }
}

fn try_release(handle: &Handle<'_>, ino: Ino) -> Result<()> {
    let fs = handle.fs();
    let held = fs.hold(ino)?;
    let left = held.live().update(handle, |inode| {
        let mut own = EaInode::from_inode(inode.disk())?;
        own.ref_count = own.ref_count.saturating_sub(1);
        own.apply(inode.disk_mut());
        if own.ref_count == 0 {
            inode.disk_mut().links = 0;
        }
        Some(own.ref_count)
    })?;
    match left {
        Some(0) => fs.orphan_add(handle, held.live()),
        _ => Ok(()),
    }
}

/// Returns an inode with this value and one reference more, which is the caller's: one that is
/// there already, or a new one near `near`, whose blocks have been taken before.
///
/// # Errors
/// [`Error::NoSpace`]; those of reading the bitmaps and the inode table. Nothing has changed then.
pub(super) fn provide<'f>(
    handle: &Handle<'f>,
    near: &Inode,
    value: &[u8],
    hash: u32,
    taken: Vec<Taken<'f>>,
) -> Result<Ino> {
    let fs = handle.fs();
    let shared = fs.shared_values()?;
    // Others may give it up meanwhile: what is held keeps its number and its content.
    if let Some(ino) = shared.find(hash)
        && let Ok(held) = fs.hold(ino)
        && holds(fs, &held, value, hash)
        && add_reference(handle, &held)?
    {
        return Ok(ino);
    }
    let held = fs.new_value_inode(handle, near)?;
    if let Err(e) = fill(handle, &held, value, hash, taken) {
        fs.abandon_inode(handle, held);
        return Err(e);
    }
    shared.remember(hash, held.ino());
    Ok(held.ino())
}

/// Tells whether an inode holds this value.
fn holds(fs: &Fs, held: &Held, value: &[u8], hash: u32) -> bool {
    let image = held.copy();
    let same = |own: EaInode| own.hash == hash && image.size() == value.len() as u64;
    EaInode::from_inode(image.disk()).is_some_and(same)
        && read(fs, &image).is_ok_and(|found| found == value)
}

/// Returns the content of an inode that holds a value. Through the cache: what is committed may not
/// have come home yet.
///
/// # Errors
/// When the map is broken or the device fails.
pub(super) fn read(fs: &Fs, holder: &Inode) -> Result<Vec<u8>> {
    let mut value = vec![0; holder.size() as usize];
    for (at, part) in (0..).zip(value.chunks_mut(fs.block_size().len())) {
        let block = fs.file_block(holder, Lblk::new(at), Structure::Xattr, |_| Ok(()))?;
        if let Some(bytes) = block.as_deref().and_then(|bytes| bytes.get(..part.len())) {
            part.copy_from_slice(bytes);
        }
    }
    Ok(value)
}

/// Takes the blocks for a value.
///
/// # Errors
/// [`Error::NoSpace`].
pub(super) fn take_blocks<'f>(fs: &'f Fs, near: &Inode, value: &[u8]) -> Result<Vec<Taken<'f>>> {
    let mut left = blocks_of(fs, value.len());
    let mut all = Vec::new();
    while left > 0 {
        let taken = fs.alloc()?.take_blocks(&Request {
            goal: fs.near_inode(near.ino()),
            len: left,
            min: 1,
            below_32_bits: !fs.superblock().has_incompat(Incompat::EXTENTS),
            privileged: false,
        })?;
        left = left.saturating_sub(taken.len());
        all.push(taken);
    }
    Ok(all)
}

/// Gives a new inode its value.
fn fill<'f>(
    handle: &Handle<'f>,
    held: &Held,
    value: &[u8],
    hash: u32,
    taken: Vec<Taken<'f>>,
) -> Result<()> {
    let fs = handle.fs();
    let mut left = blocks_of(fs, value.len());
    let run = |taken: &Taken<'f>| {
        let len = taken.len().min(left);
        left -= len;
        (taken.start(), len)
    };
    let runs: Vec<_> = taken.iter().map(run).collect();
    let guard = MapGuard::lock(held.live());
    let edit = |tree: &mut map::Tree<'_>| {
        let mut at = 0;
        for &(start, len) in &runs {
            tree.insert(Lblk::new(at), start, len, false)?;
            at += len;
        }
        Ok(())
    };
    let also = |inode: &mut Inode| {
        let own = EaInode { hash, ref_count: 1 };
        inode.disk_mut().size = value.len() as u64;
        own.apply(inode.disk_mut());
    };
    map::change(handle, held.live(), &guard, taken, edit, also)?;
    let mut parts = value.chunks(fs.block_size().len());
    let blocks = runs
        .iter()
        .flat_map(|&(start, len)| (0..len).map(move |i| start.checked_add(i.into())));
    for (block, part) in blocks.zip(&mut parts) {
        let mut data = vec![0; fs.block_size().len()].into_boxed_slice();
        if let Some(bytes) = data.get_mut(..part.len()) {
            bytes.copy_from_slice(part);
        }
        let block = block.ok_or(Error::Internal("blocks past the last possible one"))?;
        handle.create(block, Seal::Plain, data);
    }
    Ok(())
}
