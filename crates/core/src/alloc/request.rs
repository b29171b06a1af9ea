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

/// Blocks taken from the allocator and not yet owned on the device. Given back when dropped.
#[derive(Debug)]
#[must_use]
pub struct Taken<'f> {
    fs: &'f Fs,
    start: Pblk,
    len: u32,
}

impl<'f> Taken<'f> {
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
}
