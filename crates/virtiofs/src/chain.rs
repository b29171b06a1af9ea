//! The pieces of memory of one request: what the guest says, and room for the answer.
//!
//! A guest names pieces by addresses. They may lie anywhere, lie over each other, and change while
//! they are read: what is looked at is copied first.
#![allow(unsafe_code)]

use crate::memory::Mapped;
use std::sync::Arc;
use virtio_queue::DescriptorChain;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

/// Pieces of a request at most. A transfer of the largest length has some 260.
const MOST_PIECES: usize = 4096;

/// One request.
#[derive(Debug)]
pub(crate) struct Chain {
    memory: Arc<Mapped>,
    head: u16,
    /// What the guest says.
    pub(crate) said: Pieces,
    /// Room for the answer.
    pub(crate) room: Pieces,
}

/// Pieces of memory, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    list: Vec<(GuestAddress, usize)>,
    len: usize,
}

impl Pieces {
    /// Returns the length of all.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a piece. What lies right behind the piece before is one with it.
    fn push(&mut self, address: GuestAddress, len: usize) {
        if len == 0 {
            return;
        }
        self.len += len;
        if let Some((begin, before)) = self.list.last_mut()
            && begin.0.checked_add(*before as u64) == Some(address.0)
        {
            *before += len;
            return;
        }
        self.list.push((address, len));
    }

    /// Lists the pieces of bytes from `from` on, `len` of them or as many as there are.
    pub(crate) fn part(&self, from: usize, len: usize) -> Vec<(GuestAddress, usize)> {
        let (mut skip, mut left) = (from, len);
        let mut part = Vec::new();
        for &(address, len) in &self.list {
            let skipped = skip.min(len);
            skip -= skipped;
            let here = (len - skipped).min(left);
            if here > 0 {
                // Pieces end below 2^64.
                part.push((GuestAddress(address.0.wrapping_add(skipped as u64)), here));
                left -= here;
            }
        }
        part
    }
}

/// A request that is none, and what it is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) head: u16,
}

/// An address where the guest has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nowhere;

impl Chain {
    /// Collects the pieces of a request.
    ///
    /// # Errors
    /// When there are too many, or the guest says something behind the room for the answer.
    pub(crate) fn new(
        memory: &Arc<Mapped>,
        descriptors: DescriptorChain<Arc<Mapped>>,
    ) -> Result<Self, Malformed> {
        let head = descriptors.head_index();
        let mut chain = Self {
            memory: Arc::clone(memory),
            head,
            said: Pieces::default(),
            room: Pieces::default(),
        };
        // It ends by itself: a loop is followed as often as there are descriptors.
        for (count, descriptor) in descriptors.enumerate() {
            let len = descriptor.len() as usize;
            if descriptor.addr().0.checked_add(len as u64).is_none() || count >= MOST_PIECES {
                return Err(Malformed { head });
            }
            if descriptor.is_write_only() {
                chain.room.push(descriptor.addr(), len);
            } else if chain.room.len == 0 {
                chain.said.push(descriptor.addr(), len);
            } else {
                return Err(Malformed { head });
            }
        }
        Ok(chain)
    }

    /// Returns what the request is known by in its queue.
    pub(crate) fn head(&self) -> u16 {
        self.head
    }

    /// Copies from what the guest says, from byte `from` on; as much as is there and fits. Returns
    /// how much that is.
    pub(crate) fn copy_from(&self, from: usize, into: &mut [u8]) -> Result<usize, Nowhere> {
        let mut done = 0;
        for (address, len) in self.said.part(from, into.len()) {
            let part = into.get_mut(done..done + len).ok_or(Nowhere)?;
            self.memory.read_slice(part, address).map_err(|_| Nowhere)?;
            done += len;
        }
        Ok(done)
    }

    /// Copies to the room for the answer, from byte `at` on. All of it has to fit.
    pub(crate) fn copy_to(&self, at: usize, bytes: &[u8]) -> Result<(), Nowhere> {
        let mut done = 0;
        for (address, len) in self.room.part(at, bytes.len()) {
            let part = bytes.get(done..done + len).ok_or(Nowhere)?;
            self.memory
                .write_slice(part, address)
                .map_err(|_| Nowhere)?;
            done += len;
        }
        if done == bytes.len() {
            Ok(())
        } else {
            Err(Nowhere)
        }
    }

    /// Sees that the guest has memory in all of a piece.
    pub(crate) fn has(&self, (address, len): (GuestAddress, usize)) -> Result<(), Nowhere> {
        let is_there = self.memory.check_range(address, len);
        is_there.then_some(()).ok_or(Nowhere)
    }

    /// Lends a piece of the guest's memory for data to be put there. `None` where the guest has
    /// none, or where it does not lie in one piece here.
    pub(crate) fn lend_mut(&mut self, (address, len): (GuestAddress, usize)) -> Option<&mut [u8]> {
        let slice = self.memory.get_slice(address, len).ok()?;
        let start = slice.ptr_guard_mut().as_ptr();
        // SAFETY: `len` bytes that are mapped as long as `self.memory` is, which outlasts this
        // borrow. Of the pieces of a request one is lent at a time. The guest can change them
        // meanwhile, or name them in another request: as with the memory that a device is told of,
        // bytes are copied and transferred there, and nothing is decided by what they hold.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Lends a piece of the guest's memory that data is taken from; `None` as for
    /// [`lend_mut`](Self::lend_mut).
    pub(crate) fn lend(&self, (address, len): (GuestAddress, usize)) -> Option<&[u8]> {
        let slice = self.memory.get_slice(address, len).ok()?;
        let start = slice.ptr_guard().as_ptr();
        // SAFETY: as for `lend_mut`. The bytes go to a device as they are.
        Some(unsafe { std::slice::from_raw_parts(start, len) })
    }
}
