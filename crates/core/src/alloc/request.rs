//! What is asked for, and what was taken.

use crate::fs::Fs;
use extant_format::Pblk;

/// A request for blocks.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Where the blocks should lie, if they can.
    pub goal: Pblk,
    /// How many are wanted, side by side: at least 1.
    pub len: u32,
    /// How few will do; the allocator gives as many as it finds together.
    pub min: u32,
    /// Block numbers must fit 32 bits: indirect maps hold no others.
    pub below_32_bits: bool,
    /// May use the blocks reserved for privileged users, and for finishing what was begun.
    pub privileged: bool,
}

/// What freed blocks held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedKind {
    /// Data of a file.
    Data,
    /// Metadata: images of the blocks may wait in the log and its queue.
    Metadata,
}

/// Blocks taken from the allocator and not yet owned on the device. Given back when dropped.
#[derive(Debug)]
#[must_use]
pub struct Taken<'f> {
    fs: &'f Fs,
    start: Pblk,
    len: u32,
}

impl<'f> Taken<'f> {
    pub(in crate::alloc) fn new(fs: &'f Fs, start: Pblk, len: u32) -> Self {
        Self { fs, start, len }
    }

    /// First block.
    pub fn start(&self) -> Pblk {
        self.start
    }

    /// Number of blocks.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether nothing is left of it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file system.
    pub fn fs(&self) -> &'f Fs {
        self.fs
    }

    /// Cuts off the first `len` blocks, or all if there are no more.
    pub fn split_front(&mut self, len: u32) -> Self {
        let len = len.min(self.len);
        let front = Self::new(self.fs, self.start, len);
        self.len -= len;
        self.start = Pblk::new(self.start.get() + u64::from(len));
        front
    }

    /// Gives the blocks back, but keeps the promise of as many: what a caller with
    /// [`reserve_space`](Fs::reserve_space) does when it cannot use them yet.
    pub(crate) fn into_promise(self) {
        let (fs, start, len) = (self.fs, self.start, self.len);
        self.keep();
        fs.untake(start, len);
        fs.note_promised(len.into());
    }

    /// The blocks as numbers, for a caller who remembers them: nobody else gets them until
    /// [`unpark`](Self::unpark).
    pub(crate) fn park(self) -> (Pblk, u32) {
        let parked = (self.start, self.len);
        self.fs.note_promised(self.len.into());
        self.keep();
        parked
    }

    /// Blocks that were parked.
    pub(crate) fn unpark(fs: &'f Fs, start: Pblk, len: u32) -> Self {
        fs.note_promised(-i64::from(len));
        Self::new(fs, start, len)
    }

    /// The blocks are owned on the device now.
    pub(in crate::alloc) fn keep(mut self) {
        self.len = 0;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.len > 0 {
            self.fs.give_back(self.start, self.len);
        }
    }
}
