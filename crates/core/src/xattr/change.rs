//! Setting and removing attributes.
//!
//! An attribute goes into the inode if it fits there beside the others, and into the inode's block
//! otherwise, as under Linux; the others stay where they are. Where the file system allows it, a
//! value that is too large for either gets an inode of its own. Both areas are written anew as a
//! whole.

use super::areas::Areas;
use super::count::as_count;
use super::own_inode;
use super::shared::{self, Put};
use crate::alloc::{Request, Taken};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{FileType, Held, Inode, LiveInode, Timestamp};
use crate::quota::Admission;
use crate::{Error, Place, Result};
use extant_format::features::Compat;
use extant_format::inode::InodeFlags;
use extant_format::xattr::{
    Attribute, AttributeName, NewValue, XattrEntry, XattrValue, encode_in_inode, space_in_inode,
};
use extant_format::{Ino, Pblk};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Whether an attribute that is set has to exist before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetXattr {
    /// It may.
    #[default]
    Any,
    /// It must not (`XATTR_CREATE`).
    Create,
    /// It must (`XATTR_REPLACE`).
    Replace,
}

/// A change of one attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    /// The name.
    pub(crate) name: AttributeName<'a>,
    /// The value as it is stored, or `None` to remove the attribute.
    pub(crate) value: Option<&'a [u8]>,
    /// Whether it has to exist.
    pub(crate) how: SetXattr,
}

/// An attribute that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    index: u8,
    suffix: Box<[u8]>,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Bytes(Box<[u8]>),
    /// In an inode of its own, which is 0 as long as there is none.
    Own {
        ino: Ino,
        size: u32,
        hash: u32,
    },
}

/// Sectors, in which records count space, are of 512 bytes.
const SECTOR_LOG2: u32 = 9;

/// Stands for the inode of a value that has none yet.
const NO_INODE: Ino = Ino::new(0);

impl Kept {
    fn new(name: AttributeName<'_>, value: Value) -> Self {
        Self {
            index: name.index,
            suffix: name.suffix.into(),
            value,
        }
    }

    fn of(entry: &XattrEntry<'_>, hash: u32) -> Self {
        let value = match entry.value {
            XattrValue::Bytes(bytes) => Value::Bytes(bytes.into()),
            XattrValue::InInode { ino, size } => Value::Own { ino, size, hash },
        };
        Self::new(entry.name, value)
    }

    fn name(&self) -> AttributeName<'_> {
        AttributeName {
            index: self.index,
            suffix: &self.suffix,
        }
    }

    pub(super) fn attribute(&self) -> Attribute<'_> {
        let value = match &self.value {
            Value::Bytes(bytes) => NewValue::Bytes(bytes),
            &Value::Own { ino, size, hash } => NewValue::InInode { ino, size, hash },
        };
        Attribute {
            name: self.name(),
            value,
        }
    }

    fn own(&self) -> Option<(Ino, u32)> {
        match self.value {
            Value::Own { ino, size, .. } => Some((ino, size)),
            Value::Bytes(_) => None,
        }
    }
}

/// Bytes of a record for attributes.
#[derive(Clone, Copy, Debug)]
struct Room {
    all: usize,
    /// For one whose value has an inode of its own.
    of_own: usize,
}

impl Room {
    fn in_record(fs: &Fs, image: &Inode) -> Self {
        let record = fs.inode_context(image.ino()).inode_size;
        let all = image.disk().xattr_range(record).len();
        // To e2fsck a symbolic link that is charged space and has no block of attributes has its
        // target in blocks.
        let is_fast = image.file_type() == FileType::Symlink && fs.is_fast_symlink(image);
        let of_own = if is_fast { 0 } else { all };
        Self { all, of_own }
    }
}

/// All attributes of an inode, by area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Both {
    inside: Vec<Kept>,
    outside: Vec<Kept>,
}

impl Both {
    fn of(fs: &Fs, inode: &Inode) -> Result<Self> {
        let mut both = Self::default();
        Areas::of(fs, inode)?.for_each(|place, entry| {
            let area = match place {
                Place::Inode(_) => &mut both.inside,
                _ => &mut both.outside,
            };
            let hash = match entry.value {
                XattrValue::InInode { ino, .. } => own_inode::kept_hash(fs, ino)?,
                XattrValue::Bytes(_) => 0,
            };
            area.push(Kept::of(&entry, hash));
            Ok(ControlFlow::<()>::Continue(()))
        })?;
        Ok(both)
    }

    fn all(&self) -> impl Iterator<Item = &Kept> {
        self.inside.iter().chain(&self.outside)
    }

    fn find(&self, name: AttributeName<'_>) -> Option<&Kept> {
        self.all().find(|kept| kept.name() == name)
    }

    /// Values in inodes of their own.
    fn own_count(&self) -> usize {
        self.all().filter_map(Kept::own).count()
    }

    /// Sectors that values elsewhere charge the inode.
    fn own_sectors(&self, fs: &Fs) -> u64 {
        let own = self.all().filter_map(Kept::own);
        own.map(|(_, size)| own_inode::sectors(fs, size.into()))
            .sum()
    }

    /// Gives the value that has no inode yet this one. Whether its attribute lies in the inode,
    /// where others may have the same value in the block, and the other way round.
    fn resolve(&mut self, found: Ino) -> bool {
        let is_inside = resolve(&mut self.inside, found);
        resolve(&mut self.outside, found);
        is_inside
    }

    fn remove(&mut self, name: AttributeName<'_>) {
        self.inside.retain(|kept| kept.name() != name);
        self.outside.retain(|kept| kept.name() != name);
    }

    /// Gives an attribute a value: in the inode if there is room, in the block otherwise, or, where
    /// that is possible, in an inode of its own if it is large or neither has room. Whether it is
    /// that, and still to be made.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there is no room for it, or its entry.
    fn set(&mut self, fs: &Fs, room: Room, name: AttributeName<'_>, value: &[u8]) -> Result<bool> {
        self.remove(name);
        let may_be_own = own_inode::is_possible(fs) && !value.is_empty();
        let is_large = may_be_own && value.len() > fs.block_size().len() - LARGE_MARGIN;
        if !is_large && self.put(fs, room.all, Kept::new(name, Value::Bytes(value.into()))) {
            return Ok(false);
        }
        let own = Value::Own {
            ino: NO_INODE,
            size: u32::try_from(value.len()).map_err(|_| Error::AttributeTooLarge)?,
            hash: own_inode::hash_of(fs, value),
        };
        if may_be_own && self.put(fs, room.of_own, Kept::new(name, own)) {
            Ok(true)
        } else {
            Err(Error::NoSpace)
        }
    }

    /// Adds an attribute where there is room; whether there is.
    fn put(&mut self, fs: &Fs, room: usize, new: Kept) -> bool {
        self.inside.push(new);
        if in_inode(&self.inside, room).is_some() {
            return true;
        }
        self.outside.extend(self.inside.pop());
        let fits = shared::encoded(fs, &self.outside).is_some();
        if !fits {
            self.outside.pop();
        }
        fits
    }
}

/// Gives the value that has no inode yet this one, if it is among these.
fn resolve(kept: &mut [Kept], found: Ino) -> bool {
    let own = kept.iter_mut().filter_map(|kept| match &mut kept.value {
        Value::Own { ino, .. } if *ino == NO_INODE => Some(ino),
        _ => None,
    });
    own.map(|ino| *ino = found).count() > 0
}

/// Returns the inodes that attributes have their values in.
fn own_inodes(kept: &[Kept]) -> Vec<Ino> {
    kept.iter()
        .filter_map(Kept::own)
        .map(|(ino, _)| ino)
        .collect()
}

/// A value that leaves less of a block than this is not tried there where it may have an inode of
/// its own: the block's header and end, and an entry with a short name.
const LARGE_MARGIN: usize = 32 + 4 + 20;

/// Attributes as the part of a record that holds them; empty without. `None` if `room` bytes do not
/// suffice.
fn in_inode(kept: &[Kept], room: usize) -> Option<Box<[u8]>> {
    if kept.is_empty() {
        return Some(Box::default());
    }
    let attributes: Vec<Attribute<'_>> = kept.iter().map(Kept::attribute).collect();
    if space_in_inode(&attributes) > room {
        return None;
    }
    let mut region = vec![0; room].into_boxed_slice();
    encode_in_inode(&mut region, &attributes).then_some(region)
}

/// Makes `changes`, all or none, and with them `edit` of the record, whose time of change is
/// `time`. The caller has the inode's `op` lock exclusively.
///
/// # Errors
/// [`Error::Exists`] and [`Error::NoAttribute`] as [`SetXattr`] says and when there is none to
/// remove; [`Error::NoSpace`] when the attribute fits neither the inode nor its block, or no block
/// is free; [`Error::Unsupported`] when it takes a block and the file system has not the feature
/// for that; [`Error::Corrupt`] when an area is broken. Nothing has changed then.
pub(crate) fn change(
    fs: &Fs,
    held: &Held,
    changes: &[Change<'_>],
    time: Timestamp,
    edit: impl FnOnce(&mut Inode),
) -> Result<()> {
    let image = held.snapshot();
    let before = Both::of(fs, &image)?;
    let room = Room::in_record(fs, &image);
    let mut after = before.clone();
    // One at most: of several large values none is ever set together with another.
    let mut pending = None;
    for change in changes {
        let found = after.find(change.name);
        let is_same = match (found.map(|kept| &kept.value), change.value) {
            (Some(Value::Bytes(found)), Some(value)) => **found == *value,
            (None, None) => true,
            _ => false,
        };
        match (change.how, found) {
            (SetXattr::Create, Some(_)) => return Err(Error::Exists),
            (SetXattr::Replace, None) => return Err(Error::NoAttribute),
            _ if is_same => continue,
            _ => {}
        }
        match change.value {
            Some(value) if after.set(fs, room, change.name, value)? => pending = Some(value),
            Some(_) => {}
            None => after.remove(change.name),
        }
    }
    let plan = Plan {
        image: &image,
        before: &before,
        after: &after,
        pending,
        room: room.all,
        time,
    };
    write(fs, held, &plan, edit)
}

/// What is to become of an inode's attributes.
struct Plan<'a> {
    image: &'a Inode,
    before: &'a Both,
    after: &'a Both,
    /// The value that is to have an inode of its own.
    pending: Option<&'a [u8]>,
    /// Bytes of the record for attributes.
    room: usize,
    time: Timestamp,
}

impl Plan<'_> {
    fn old_block(&self) -> Option<Pblk> {
        Some(self.image.disk().file_acl).filter(|block| block.get() != 0)
    }

    fn moves(&self) -> bool {
        self.before.outside != self.after.outside
    }

    /// Lets the owners of the inode be charged for what it gets, until the result is dropped.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    fn admit<'f>(&self, fs: &'f Fs, live: &LiveInode) -> Result<[Admission<'f>; 2]> {
        let block = if self.old_block().is_none() && !self.after.outside.is_empty() {
            fs.cluster_size().blocks().into()
        } else {
            0
        };
        let [had, has] = [self.before, self.after].map(|both| both.own_sectors(fs));
        let values = has.saturating_sub(had) >> (fs.block_size().log2() - SECTOR_LOG2);
        let more = (self.after.own_count()).saturating_sub(self.before.own_count());
        Ok([
            fs.admit_blocks(live, block + values)?,
            fs.admit_values(live, more as u64)?,
        ])
    }

    /// Blocks that a handle changes at most, but for the value that is to be made.
    fn credits(&self, fs: &Fs) -> u32 {
        let counts = self.before.own_count() + self.after.own_count();
        let block = if self.moves() { shared::CREDITS } else { 0 };
        1 + block + own_inode::credits(fs, 2 * counts)
    }
}

fn write(fs: &Fs, held: &Held, plan: &Plan<'_>, edit: impl FnOnce(&mut Inode)) -> Result<()> {
    let ino = held.ino();
    let old = plan.old_block();
    let to_block = plan.moves() && !plan.after.outside.is_empty();
    if to_block && old.is_none() {
        check_may_have_blocks(fs)?;
    }
    // A new block is taken before the handle, if it looks as if it is needed.
    let mut needs_block = to_block
        && match old {
            Some(old) => shared::sharers(fs, ino, old)? > 1,
            None => true,
        };
    loop {
        let mut spare = if needs_block {
            Some(take_block(fs, plan.image)?)
        } else {
            None
        };
        let _let_in = plan.admit(fs, held)?;
        let value = plan
            .pending
            .map(|value| own_inode::take_blocks(fs, plan.image, value))
            .transpose()?;
        let more = (plan.pending.zip(value.as_ref())).map_or(0, |(value, taken)| {
            own_inode::provide_credits(fs, value.len(), taken)
        });
        let handle = fs.start(plan.credits(fs) + more)?;
        handle.touch_inode(held.live())?;
        let mut after = plan.after.clone();
        // Where the reference that is made here belongs.
        let (mut in_record, mut in_block) = (None, None);
        if let (Some(value), Some(taken)) = (plan.pending, value) {
            let hash = own_inode::hash_of(fs, value);
            let made = own_inode::provide(&handle, plan.image, value, hash, taken)?;
            if after.resolve(made) {
                in_record = Some(made)
            } else {
                in_block = Some(made)
            }
        }
        let block = match store(&handle, plan, &after, in_block, &mut spare) {
            Ok(Some(block)) => block,
            failed => {
                let made = in_record.or(in_block);
                made.into_iter()
                    .for_each(|value| own_inode::release(&handle, value));
                failed?;
                needs_block = true;
                continue;
            }
        };
        let region = in_inode(&after.inside, plan.room).ok_or(Error::NoSpace)?;
        let values = as_count(after.own_count());
        held.note_attributes_change();
        held.live().update(&handle, |inode| {
            if plan.before.inside != after.inside {
                inode.set_xattr_region(region);
            }
            charge(fs, inode, block);
            charge_values(
                fs,
                inode,
                plan.before.own_sectors(fs),
                after.own_sectors(fs),
            );
            inode.set_values(values);
            edit(inode);
            inode.disk_mut().ctime = plan.time;
        })?;
        let mut had = own_inodes(&plan.before.inside);
        had.extend(in_record);
        let lost = shared::without(had, &own_inodes(&after.inside));
        lost.into_iter()
            .for_each(|value| own_inode::release(&handle, value));
        return Ok(());
    }
}

/// Brings the attributes that lie in a block there, and says which it is; `None` when one has to be
/// taken first. One of them has the reference `owned` already.
fn store<'f>(
    handle: &Handle<'f>,
    plan: &Plan<'_>,
    after: &Both,
    owned: Option<Ino>,
    spare: &mut Option<Taken<'f>>,
) -> Result<Option<Pblk>> {
    let (fs, ino) = (handle.fs(), plan.image.ino());
    let old = plan.old_block();
    if !plan.moves() {
        return Ok(Some(plan.image.disk().file_acl));
    }
    if after.outside.is_empty() {
        if let Some(old) = old {
            shared::leave(handle, ino, old)?;
        }
        return Ok(Some(Pblk::new(0)));
    }
    let data = shared::encoded(fs, &after.outside).ok_or(Error::NoSpace)?;
    match shared::put(handle, ino, old, data, owned, spare)? {
        Put::In(block) => Ok(Some(block)),
        Put::NeedsBlock => Ok(None),
    }
}

/// Blocks that [`give_up`] changes at most beyond an inode's block of attributes.
pub(crate) fn give_up_credits(fs: &Fs, image: &Inode) -> u32 {
    if !own_inode::is_possible(fs) || !image.may_have_attributes() {
        return 0;
    }
    // What cannot be read is not given up either.
    let values = Both::of(fs, image).map_or(0, |both| both.own_count());
    own_inode::credits(fs, values)
}

/// Gives up an inode's attributes: its part in a block, which goes if nobody else has one, and its
/// references to values.
///
/// # Errors
/// When they are broken or cannot be read. Nothing has changed then.
pub(crate) fn give_up(handle: &Handle<'_>, live: &Arc<LiveInode>) -> Result<()> {
    let fs = handle.fs();
    let image = live.snapshot();
    if !image.may_have_attributes() {
        return Ok(());
    }
    let own = if own_inode::is_possible(fs) {
        Both::of(fs, &image)?
    } else {
        Both::default()
    };
    let block = image.disk().file_acl;
    let inside = own_inodes(&own.inside);
    if block.get() == 0 && inside.is_empty() {
        return Ok(());
    }
    if block.get() != 0 {
        shared::leave(handle, live.ino(), block)?;
    }
    live.update(handle, |inode| {
        charge(fs, inode, Pblk::new(0));
        if !inside.is_empty() {
            inode.set_xattr_region(Box::default());
        }
        charge_values(fs, inode, own.own_sectors(fs), 0);
        inode.set_values(0);
    })?;
    inside
        .into_iter()
        .for_each(|value| own_inode::release(handle, value));
    Ok(())
}

/// Charges an inode for values in inodes of their own.
fn charge_values(fs: &Fs, inode: &mut Inode, had: u64, has: u64) {
    if had == has {
        return;
    }
    let block_size = fs.block_size();
    let huge = fs.inode_context(inode.ino()).huge_file;
    let disk = inode.disk_mut();
    let sectors = (disk.sectors(block_size) + has).saturating_sub(had);
    // It fits but in a hostile image, whose count is wrong anyway.
    let _ = disk.set_sectors(sectors, block_size, huge);
}

/// Makes `block` the inode's block of attributes, 0 for none, and charges it accordingly.
pub(crate) fn charge(fs: &Fs, inode: &mut Inode, block: Pblk) {
    let block_size = fs.block_size();
    let huge = fs.inode_context(inode.ino()).huge_file;
    let disk = inode.disk_mut();
    let had = u64::from(disk.file_acl.get() != 0);
    let has = u64::from(block.get() != 0);
    // It has a cluster to itself.
    let each = u64::from(fs.cluster_size().blocks()) * u64::from(block_size.bytes() >> 9);
    disk.file_acl = block;
    if had != has {
        let sectors = (disk.sectors(block_size) + has * each).saturating_sub(had * each);
        // One block more or less than a file that has been written: it fits but in a hostile image,
        // whose count is wrong anyway.
        let _ = disk.set_sectors(sectors, block_size, huge);
    }
}

/// Refuses a block of attributes to an inode where no inode may have one.
fn check_may_have_blocks(fs: &Fs) -> Result<()> {
    if fs.superblock().has_compat(Compat::EXT_ATTR) {
        Ok(())
    } else {
        Err(Error::Unsupported {
            features: "ext_attr (the file system does not have it)".to_owned(),
        })
    }
}

fn take_block<'f>(fs: &'f Fs, image: &Inode) -> Result<Taken<'f>> {
    let below_32_bits = !image.flags().contains(InodeFlags::EXTENTS);
    take_block_near(fs, image.ino(), below_32_bits)
}

fn take_block_near(fs: &Fs, ino: Ino, below_32_bits: bool) -> Result<Taken<'_>> {
    fs.alloc()?.take_blocks(&Request {
        goal: fs.near_inode(ino),
        len: 1,
        min: 1,
        below_32_bits,
        privileged: false,
    })
}

/// Attributes of an inode that is made.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    /// The part of the record that holds them; empty without.
    pub(crate) region: Box<[u8]>,
    /// The content of a block for those that do not fit there.
    block: Option<Box<[u8]>>,
}

/// Returns what a new inode with `room` bytes for attributes has for these.
///
/// # Errors
/// [`Error::NoSpace`] when one fits neither there nor a block.
pub(crate) fn fresh(
    fs: &Fs,
    room: usize,
    values: &[(AttributeName<'_>, Vec<u8>)],
) -> Result<Fresh> {
    let mut both = Both::default();
    let rooms = Room {
        all: room,
        of_own: room,
    };
    for (name, value) in values {
        if both.set(fs, rooms, *name, value)? {
            return Err(Error::NoSpace);
        }
    }
    if !both.outside.is_empty() {
        check_may_have_blocks(fs)?;
    }
    Ok(Fresh {
        region: in_inode(&both.inside, room).ok_or(Error::NoSpace)?,
        block: if both.outside.is_empty() {
            None
        } else {
            Some(shared::encoded(fs, &both.outside).ok_or(Error::NoSpace)?)
        },
    })
}

impl Fresh {
    /// Blocks that [`Fresh::store`] changes at most.
    pub(crate) const CREDITS: u32 = shared::CREDITS;

    /// Blocks that the new inode is charged for it.
    pub(crate) fn blocks(&self, fs: &Fs) -> u64 {
        match self.block {
            Some(_) => fs.cluster_size().blocks().into(),
            None => 0,
        }
    }

    /// Brings what does not fit the record of the new inode `ino` into a block, and returns that.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; those of reading a block that is shared. Nothing has changed then.
    pub(crate) fn store(&self, handle: &Handle<'_>, ino: Ino) -> Result<Option<Pblk>> {
        let Some(data) = &self.block else {
            return Ok(None);
        };
        let fs = handle.fs();
        let mut spare = None;
        loop {
            match shared::put(handle, ino, None, data.clone(), None, &mut spare)? {
                Put::In(block) => return Ok(Some(block)),
                Put::NeedsBlock => spare = Some(take_block_near(fs, ino, false)?),
            }
        }
    }
}
