//! How much one removal may free.

use super::credits::{GROUP, remove_reserve};
use crate::fs::Handle;
use crate::inode::Inode;
use extant_format::{Group, Pblk};

/// Runs that one removal frees at most, which bounds its memory.
const MOST_FREED: usize = 1 << 14;
/// Credits that a removal asks for when it runs out.
const MORE_CREDITS: u32 = 8 * GROUP;

/// Says how much a removal may free.
pub(super) trait Allowance {
    /// Returns how many blocks at the end of these may be freed.
    fn data(&mut self, start: Pblk, len: u32) -> u32;

    /// Tells whether the node in `block` may be freed or changed.
    fn node(&mut self, block: Pblk) -> bool;
}

/// Allows to unmap all that is asked for.
pub(super) struct Everything;

impl Allowance for Everything {
    fn data(&mut self, _start: Pblk, len: u32) -> u32 {
        len
    }

    fn node(&mut self, _block: Pblk) -> bool {
        true
    }
}

/// What a handle's credits allow to free.
pub(super) struct Budget<'h, 'f> {
    handle: &'h Handle<'f>,
    left: u32,
    /// Groups that are paid for, sorted.
    groups: Vec<Group>,
    pieces: usize,
}

impl<'h, 'f> Budget<'h, 'f> {
    pub(super) fn new(handle: &'h Handle<'f>, inode: &Inode, keep: u32) -> Self {
        let reserve = remove_reserve(inode).saturating_add(keep);
        Self {
            handle,
            left: handle.credits().saturating_sub(reserve),
            groups: Vec::new(),
            pieces: 0,
        }
    }

    fn pay(&mut self, credits: u32) -> bool {
        if self.left < credits {
            if !self.handle.extend(MORE_CREDITS) {
                return false;
            }
            self.left += MORE_CREDITS;
        }
        self.left -= credits;
        true
    }

    fn group(&mut self, block: Pblk) -> bool {
        // Out of range cannot be: the block was validated.
        let geometry = self.handle.fs().geometry();
        let group = geometry.group_of_block(block).unwrap_or_default();
        let Err(at) = self.groups.binary_search(&group) else {
            return true;
        };
        let paid = self.pay(GROUP);
        if paid {
            self.groups.insert(at, group);
        }
        paid
    }
}

impl Allowance for Budget<'_, '_> {
    fn data(&mut self, start: Pblk, len: u32) -> u32 {
        if self.pieces >= MOST_FREED {
            return 0;
        }
        self.pieces += 1;
        let geometry = self.handle.fs().geometry();
        let mut granted = 0;
        while granted < len {
            let last = Pblk::new(start.get() + u64::from(len - granted) - 1);
            let first = geometry
                .group_of_block(last)
                .and_then(|group| geometry.group_first_block(group))
                .unwrap_or(start)
                .max(start);
            if !self.group(last) {
                break;
            }
            granted += (last.get() - first.get() + 1) as u32;
        }
        granted.min(len)
    }

    fn node(&mut self, block: Pblk) -> bool {
        self.group(block) && self.pay(1)
    }
}
