//! Extended attributes: in the inode, in blocks shared by equal sets, in inodes of their own.
//!
//! Files with equal attributes share one set in the tree, and so one plan here: what it costs
//! depends on the number of different sets, not of files.

use super::{FileMap, PlaceError, PlaceResult, Shape};
use crate::source::{NodeId, Tree, Xattr};
use extant_format::acl::Acl;
use extant_format::checksum::Crc32c;
use extant_format::inode::Inode;
use extant_format::xattr::{self, Attribute, AttributeName, EaInode, NewValue};
use extant_format::{Ino, NAME_MAX, Pblk};
use std::sync::Arc;

/// Most inodes that may share a block of attributes; the kernel's limit.
const SHARE_MAX: u32 = 1024;

/// Most bytes of a value that `getxattr` returns.
const VALUE_MAX: usize = 64 << 10;

/// The attributes of one inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeAttrs {
    /// Its set; 0 is the empty one.
    set: u32,
    /// Its attribute block; 0 is none.
    pub(crate) block: u64,
}

/// A value in an inode of its own.
#[derive(Debug)]
pub(crate) struct AttrInode {
    pub(crate) ino: Ino,
    pub(crate) len: u64,
    pub(crate) map: FileMap,
    pub(crate) charged: u64,
    hash: u32,
    references: u64,
    set: u32,
    attribute: usize,
}

impl AttrInode {
    /// Writes hash and reference count into the inode.
    pub(crate) fn stamp(&self, inode: &mut Inode) {
        EaInode {
            hash: self.hash,
            ref_count: self.references,
        }
        .apply(inode);
    }
}

/// A block of attributes shared by up to [`SHARE_MAX`] inodes.
#[derive(Debug)]
struct AttrBlock {
    set: u32,
    references: u32,
    pblk: Option<u64>,
}

/// One set of attributes, in the encoding of the disk.
#[derive(Debug, Default)]
struct SetPlan {
    attributes: Vec<Xattr>,
    placement: xattr::encode::Placement,
    /// Index of the inode that holds the value of each attribute in `placement.own_inode`.
    first_inode: u32,
    /// Inodes with this set.
    users: u32,
    /// The block that takes the next user.
    current_block: Option<u32>,
}

/// The plans of all sets.
#[derive(Debug)]
pub(crate) struct AttrPlans {
    sets: Vec<SetPlan>,
    blocks: Vec<AttrBlock>,
    inodes: Vec<AttrInode>,
}

impl AttrPlans {
    /// Plans every set of the tree; values in inodes of their own are numbered from `next_ino`.
    ///
    /// # Errors
    /// [`PlaceError::Xattr`] for an attribute that ext4 cannot hold.
    pub(crate) fn new(tree: &Tree, shape: &Shape, next_ino: u64) -> PlaceResult<Self> {
        let mut plans = Self {
            sets: (0..tree.xattr_sets()).map(|_| SetPlan::default()).collect(),
            blocks: Vec::new(),
            inodes: Vec::new(),
        };
        let mut first_user = vec![None; tree.xattr_sets()];
        for id in tree.ids() {
            let set = tree.xattr_set(id) as usize;
            plans.sets[set].users += 1;
            first_user[set].get_or_insert(id);
        }
        for (set, id) in first_user.iter().enumerate() {
            if let Some(id) = *id
                && !tree.xattrs(id).is_empty()
            {
                plans.plan_set(tree, id, set as u32, shape, next_ino)?;
            }
        }
        Ok(plans)
    }

    fn plan_set(
        &mut self,
        tree: &Tree,
        id: NodeId,
        set: u32,
        shape: &Shape,
        next_ino: u64,
    ) -> PlaceResult<()> {
        let attributes = on_disk(tree, id, tree.xattrs(id))?;
        let mut sizes = Vec::with_capacity(attributes.len());
        for attribute in &attributes {
            let name = split_name(&attribute.name)
                .map_err(|reason| refuse(tree, id, &attribute.name, reason))?;
            if attribute.value.len() > VALUE_MAX {
                let reason = "Linux cannot read values of more than 64 KiB";
                return Err(refuse(tree, id, &attribute.name, reason));
            }
            sizes.push((name, attribute.value.len()));
        }
        let room =
            usize::from(shape.inode_size).saturating_sub(128 + usize::from(shape.extra_isize));
        let room = if shape.extra_isize == 0 { 0 } else { room };
        let placement = xattr::encode::place(&sizes, room, shape.block_size.len(), shape.ea_inode)
            .ok_or_else(|| {
                let largest = attributes.iter().max_by_key(|a| a.value.len());
                let reason = if shape.ea_inode {
                    "its attributes are more than ext4 can hold"
                } else {
                    "its attributes do not fit the inode and one block; use --features ea_inode"
                };
                refuse(tree, id, largest.map_or(&[], |a| &a.name), reason)
            })?;
        let users = self.sets[set as usize].users;
        let first_inode = self.inodes.len() as u32;
        for &attribute in &placement.own_inode {
            let value = &attributes[attribute].value;
            let references = if placement.in_inode.contains(&attribute) {
                users
            } else {
                users.div_ceil(SHARE_MAX)
            };
            self.inodes.push(AttrInode {
                ino: Ino::new((next_ino + self.inodes.len() as u64) as u32),
                len: value.len() as u64,
                map: FileMap::default(),
                charged: 0,
                hash: xattr::value_hash(shape.value_seed, value),
                references: references.into(),
                set,
                attribute,
            });
        }
        self.sets[set as usize] = SetPlan {
            attributes,
            placement,
            first_inode,
            users,
            current_block: None,
        };
        Ok(())
    }

    /// Inodes that hold values, in the order of their numbers.
    pub(crate) fn inodes(&self) -> &[AttrInode] {
        &self.inodes
    }

    /// Says where the value of inode `index` was put.
    pub(crate) fn put_inode(&mut self, index: u32, map: FileMap, charged: u64) {
        let inode = &mut self.inodes[index as usize];
        inode.map = map;
        inode.charged = charged;
    }

    /// The value in the inode with this index.
    pub(crate) fn value(&self, index: u32) -> &[u8] {
        let inode = &self.inodes[index as usize];
        &self.sets[inode.set as usize].attributes[inode.attribute].value
    }

    /// Lengths of a set's values that are in inodes of their own.
    pub(crate) fn own_values(&self, set: u32) -> impl Iterator<Item = u64> + '_ {
        let plan = &self.sets[set as usize];
        let own = &plan.placement.own_inode;
        own.iter().map(|&i| plan.attributes[i].value.len() as u64)
    }

    /// The attributes of an inode with this set, without its block.
    pub(crate) fn of(&self, set: u32) -> NodeAttrs {
        NodeAttrs { set, block: 0 }
    }

    /// The block that one more inode with this set shares, if the set needs one.
    pub(crate) fn block_for(&mut self, set: u32) -> Option<u32> {
        let plan = &mut self.sets[set as usize];
        if plan.placement.in_block.is_empty() {
            return None;
        }
        if let Some(index) = plan.current_block
            && let Some(block) = self.blocks.get_mut(index as usize)
            && block.references < SHARE_MAX
        {
            block.references += 1;
            return Some(index);
        }
        let index = self.blocks.len() as u32;
        plan.current_block = Some(index);
        self.blocks.push(AttrBlock {
            set,
            references: 1,
            pblk: None,
        });
        Some(index)
    }

    /// Where a block was put, if it was.
    pub(crate) fn block_address(&self, index: u32) -> Option<u64> {
        self.blocks[index as usize].pblk
    }

    /// Says where a block was put.
    pub(crate) fn put_block(&mut self, index: u32, pblk: u64) {
        self.blocks[index as usize].pblk = Some(pblk);
    }

    /// Writes the attributes kept in an inode into the room after its extra fields. `false` if
    /// there are none.
    pub(crate) fn write_body(&self, attrs: NodeAttrs, region: &mut [u8]) -> bool {
        let plan = &self.sets[attrs.set as usize];
        let list = self.attributes(plan, &plan.placement.in_inode);
        let fits = xattr::encode_in_inode(region, &list);
        debug_assert!(fits, "placed to fit");
        !list.is_empty()
    }

    /// Makes the bytes of a block.
    ///
    /// # Errors
    /// None that placing has not met before.
    pub(crate) fn encode_block(
        &self,
        index: u32,
        bytes: &mut [u8],
        seed: Option<Crc32c>,
    ) -> PlaceResult<()> {
        let block = &self.blocks[index as usize];
        let plan = &self.sets[block.set as usize];
        let list = self.attributes(plan, &plan.placement.in_block);
        let address = Pblk::new(block.pblk.unwrap_or(0));
        let checksum = seed.map(|seed| (seed, address));
        let fits = xattr::encode_block(bytes, &list, block.references, checksum);
        debug_assert!(fits, "placed to fit");
        Ok(())
    }

    fn attributes<'p>(&'p self, plan: &'p SetPlan, which: &[usize]) -> Vec<Attribute<'p>> {
        which
            .iter()
            .filter_map(|&i| {
                let attribute = &plan.attributes[i];
                let own = plan.placement.own_inode.iter().position(|&own| own == i);
                let value = match own {
                    None => NewValue::Bytes(&attribute.value),
                    Some(nth) => {
                        let inode = &self.inodes[plan.first_inode as usize + nth];
                        let size = inode.len as u32;
                        NewValue::InInode {
                            ino: inode.ino,
                            size,
                            hash: inode.hash,
                        }
                    }
                };
                Some(Attribute {
                    name: xattr::split_name(&attribute.name)?,
                    value,
                })
            })
            .collect()
    }
}

/// A set in the encoding of the disk: access control lists have one of their own.
fn on_disk(tree: &Tree, id: NodeId, set: &Arc<[Xattr]>) -> PlaceResult<Vec<Xattr>> {
    set.iter()
        .map(|attribute| {
            if !attribute.name.starts_with(b"system.posix_acl_") {
                return Ok(attribute.clone());
            }
            let acl = Acl::decode_syscall(&attribute.value)
                .map_err(|e| refuse(tree, id, &attribute.name, &e.to_string()))?;
            Ok(Xattr {
                name: attribute.name.clone(),
                value: acl.encode_disk().into(),
            })
        })
        .collect()
}

/// The name as it is stored.
fn split_name(full: &[u8]) -> Result<AttributeName<'_>, &'static str> {
    // As many as `getxattr` takes, the namespace included.
    if full.len() > NAME_MAX {
        return Err("Linux knows no names of more than 255 bytes");
    }
    xattr::split_name(full).ok_or("ext4 has no place for names of this namespace")
}

fn refuse(tree: &Tree, id: NodeId, name: &[u8], reason: &str) -> PlaceError {
    PlaceError::Xattr {
        path: tree.path(id),
        name: String::from_utf8_lossy(name).into_owned(),
        reason: reason.to_owned(),
    }
}
