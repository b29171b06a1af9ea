//! Setting and removing attributes.
//!
//! An attribute goes into the inode if it fits there beside the others, and into the inode's block
//! otherwise, as under Linux; the others stay where they are. Both areas are written anew as a whole.

use super::areas::Areas;
use super::shared::{self, Put};
use crate::alloc::{Request, Taken};
use crate::fs::Fs;
use crate::inode::{Held, Inode, Timestamp};
use crate::journal::Handle;
use crate::{Error, Place, Result};
use extant_format::features::Compat;
use extant_format::inode::InodeFlags;
use extant_format::xattr::{
    Attribute, AttributeName, NewValue, XattrEntry, XattrValue, encode_in_inode, space_in_inode,
};
use extant_format::{Ino, Pblk};
use std::ops::ControlFlow;

/// Whether an attribute that is set has to exist before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    value: Box<[u8]>,
}

impl Kept {
    fn new(name: AttributeName<'_>, value: &[u8]) -> Self {
        Self {
            index: name.index,
            suffix: name.suffix.into(),
            value: value.into(),
        }
    }

    fn of(entry: &XattrEntry<'_>) -> Result<Self> {
        match entry.value {
            XattrValue::Bytes(bytes) => Ok(Self::new(entry.name, bytes)),
            XattrValue::InInode { .. } => Err(Error::Unsupported {
                features: "attribute values in inodes of their own (for writing)".to_owned(),
            }),
        }
    }

    fn name(&self) -> AttributeName<'_> {
        AttributeName {
            index: self.index,
            suffix: &self.suffix,
        }
    }

    pub(super) fn attribute(&self) -> Attribute<'_> {
        Attribute {
            name: self.name(),
            value: NewValue::Bytes(&self.value),
        }
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
            area.push(Kept::of(&entry)?);
            Ok(ControlFlow::<()>::Continue(()))
        })?;
        Ok(both)
    }

    fn value(&self, name: AttributeName<'_>) -> Option<&[u8]> {
        let mut all = self.inside.iter().chain(&self.outside);
        all.find(|kept| kept.name() == name)
            .map(|kept| &*kept.value)
    }

    fn remove(&mut self, name: AttributeName<'_>) {
        self.inside.retain(|kept| kept.name() != name);
        self.outside.retain(|kept| kept.name() != name);
    }

    /// Puts an attribute into the inode if its `room` bytes suffice, into the block otherwise.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when it fits neither.
    fn set(&mut self, fs: &Fs, room: usize, new: Kept) -> Result<()> {
        self.remove(new.name());
        self.inside.push(new);
        if in_inode(&self.inside, room).is_some() {
            return Ok(());
        }
        self.outside.extend(self.inside.pop());
        match shared::encoded(fs, &self.outside) {
            Some(_) => Ok(()),
            None => Err(Error::NoSpace),
        }
    }
}

/// Attributes as the part of a record that holds them; empty without. `None` if `room` bytes do not suffice.
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

/// Makes `changes`, all or none, and with them `edit` of the record, whose time of change is `time`. The caller has
/// the inode's `op` lock exclusively.
///
/// # Errors
/// [`Error::Exists`] and [`Error::NoAttribute`] as [`SetXattr`] says and when there is none to remove;
/// [`Error::NoSpace`] when the attribute fits neither the inode nor its block, or no block is free;
/// [`Error::Unsupported`] when it takes a block and the file system has not the feature for that;
/// [`Error::Corrupt`] when an area is broken. Nothing has changed then.
pub(crate) fn change(
    fs: &Fs,
    held: &Held,
    changes: &[Change<'_>],
    time: Timestamp,
    edit: impl FnOnce(&mut Inode),
) -> Result<()> {
    let image = held.snapshot();
    let before = Both::of(fs, &image)?;
    let room = image
        .disk()
        .xattr_range(fs.inode_context(image.ino()).inode_size)
        .len();
    let mut after = before.clone();
    for change in changes {
        let found = after.value(change.name);
        match (change.how, found) {
            (SetXattr::Create, Some(_)) => return Err(Error::Exists),
            (SetXattr::Replace, None) => return Err(Error::NoAttribute),
            _ if found == change.value => continue,
            _ => {}
        }
        match change.value {
            Some(value) => after.set(fs, room, Kept::new(change.name, value))?,
            None => after.remove(change.name),
        }
    }
    write(fs, held, &image, (&before, &after), room, time, edit)
}

fn write(
    fs: &Fs,
    held: &Held,
    image: &Inode,
    (before, after): (&Both, &Both),
    room: usize,
    time: Timestamp,
    edit: impl FnOnce(&mut Inode),
) -> Result<()> {
    let region = in_inode(&after.inside, room).ok_or(Error::NoSpace)?;
    let ino = held.ino();
    let old = Some(image.disk().file_acl).filter(|block| block.get() != 0);
    let moves = before.outside != after.outside;
    if !after.outside.is_empty() && old.is_none() {
        check_may_have_blocks(fs)?;
    }
    let data = match after.outside.is_empty() {
        true => None,
        false => Some(shared::encoded(fs, &after.outside).ok_or(Error::NoSpace)?),
    };
    // A new block is taken before the handle, if it looks as if it is needed.
    let mut needs_block = moves
        && data.is_some()
        && match old {
            Some(old) => shared::sharers(fs, ino, old)? > 1,
            None => true,
        };
    loop {
        let mut spare = match needs_block {
            true => Some(take_block(fs, image)?),
            false => None,
        };
        let handle = fs.start(1 + if moves { shared::CREDITS } else { 0 })?;
        handle.touch_inode(held.live())?;
        let block = match (&data, old) {
            _ if !moves => image.disk().file_acl,
            (None, Some(old)) => {
                shared::leave(&handle, ino, old)?;
                Pblk::new(0)
            }
            (None, None) => Pblk::new(0),
            (Some(data), _) => match shared::put(&handle, ino, old, data.clone(), &mut spare)? {
                Put::In(block) => block,
                Put::NeedsBlock => {
                    needs_block = true;
                    continue;
                }
            },
        };
        held.note_maybe_capable();
        held.live().update(&handle, |inode| {
            if before.inside != after.inside {
                inode.set_xattr_region(region);
            }
            charge(fs, inode, block);
            edit(inode);
            inode.disk_mut().ctime = time;
        })?;
        return Ok(());
    }
}

/// Makes `block` the inode's block of attributes, 0 for none, and charges it accordingly.
pub(crate) fn charge(fs: &Fs, inode: &mut Inode, block: Pblk) {
    let block_size = fs.block_size();
    let huge = fs.inode_context(inode.ino()).huge_file;
    let disk = inode.disk_mut();
    let had = u64::from(disk.file_acl.get() != 0);
    let has = u64::from(block.get() != 0);
    let each = u64::from(block_size.bytes()) >> 9;
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
    match fs.superblock().has_compat(Compat::EXT_ATTR) {
        true => Ok(()),
        false => Err(Error::Unsupported {
            features: "ext_attr (the file system does not have it)".to_owned(),
        }),
    }
}

fn take_block<'f>(fs: &'f Fs, image: &Inode) -> Result<Taken<'f>> {
    let below_32_bits = !image.flags().contains(InodeFlags::EXTENTS);
    take_block_near(fs, image.ino(), below_32_bits)
}

fn take_block_near(fs: &Fs, ino: Ino, below_32_bits: bool) -> Result<Taken<'_>> {
    fs.take_blocks(&Request {
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

/// What a new inode with `room` bytes for attributes has for these.
///
/// # Errors
/// [`Error::NoSpace`] when one fits neither there nor a block.
pub(crate) fn fresh(
    fs: &Fs,
    room: usize,
    values: &[(AttributeName<'_>, Vec<u8>)],
) -> Result<Fresh> {
    let mut both = Both::default();
    for (name, value) in values {
        both.set(fs, room, Kept::new(*name, value))?;
    }
    if !both.outside.is_empty() {
        check_may_have_blocks(fs)?;
    }
    Ok(Fresh {
        region: in_inode(&both.inside, room).ok_or(Error::NoSpace)?,
        block: match both.outside.is_empty() {
            true => None,
            false => Some(shared::encoded(fs, &both.outside).ok_or(Error::NoSpace)?),
        },
    })
}

impl Fresh {
    /// Blocks that [`Fresh::store`] changes at most.
    pub(crate) const CREDITS: u32 = shared::CREDITS;

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
            match shared::put(handle, ino, None, data.clone(), &mut spare)? {
                Put::In(block) => return Ok(Some(block)),
                Put::NeedsBlock => spare = Some(take_block_near(fs, ino, false)?),
            }
        }
    }
}
